//! Which modem a packet is for.

use std::net::{IpAddr, Ipv6Addr};

use thiserror::Error;
use warmlane_mem::BURST_CAPACITY;
use warmlane_table::{ExactError, ExactReader, ExactTable, NO_VALUE};
use warmlane_wire::MacAddress;

use super::fields::Fields;
use crate::control::ServiceGroup;

/// An address: those of IPv6 as they are, others in the part of IPv6 that nobody may send to (`::/8`, RFC 4291 section 2.4).
type Key = [u8; 16];

/// The table of addresses can't be made.
#[derive(Debug, Error)]
#[error("the table of modems' addresses")]
pub struct LookupError(#[from] ExactError);

/// What a lookup found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) modem: u32,
    /// By the IP address, not the Ethernet address.
    pub(crate) by_address: bool,
}

/// Addresses of modems and of devices behind them.
pub(crate) struct ModemTable {
    reader: ExactReader<Key>,
    keys: Box<[Key; BURST_CAPACITY]>,
    values: Box<[u32; BURST_CAPACITY]>,
}

impl ModemTable {
    pub(crate) fn new(group: &ServiceGroup) -> Result<Self, LookupError> {
        let addresses = |modem: &crate::control::Modem| 1 + modem.cpe_macs.len() + modem.addresses.len();
        let mut table = ExactTable::new(group.modems.iter().map(addresses).sum())?;
        for (number, modem) in group.modems.iter().enumerate() {
            let macs = modem.cpe_macs.iter().chain([&modem.mac]).map(|mac| of_mac(*mac));
            for key in modem.addresses.iter().filter_map(|address| of_ip(*address)).chain(macs) {
                table.insert(&key, number as u32)?;
            }
        }
        let (keys, values) = (Box::new([[0; 16]; BURST_CAPACITY]), Box::new([NO_VALUE; BURST_CAPACITY]));
        Ok(Self { reader: table.reader(), keys, values })
    }

    /// Looks up one packet.
    pub(crate) fn find(&self, fields: &Fields) -> Option<Found> {
        let address = fields.ip.and_then(|ip| of_ip(ip.destination));
        let by_address = address.and_then(|key| self.reader.lookup(&key));
        let modem = by_address.or_else(|| self.reader.lookup(&of_mac(fields.destination_mac)))?;
        Some(Found { modem, by_address: by_address.is_some() })
    }

    /// Looks up all packets of a burst at once, so that their cache misses overlap.
    #[inline]
    pub(crate) fn look_up(&mut self, fields: &[Option<Fields>], found: &mut [Option<Found>]) {
        let count = fields.len().min(BURST_CAPACITY);
        let (keys, values) = (&mut self.keys[..count], &mut self.values[..count]);
        for (key, fields) in keys.iter_mut().zip(fields) {
            let fields = fields.as_ref();
            let ip = fields.and_then(|fields| of_ip(fields.ip?.destination));
            *key = ip.unwrap_or_else(|| {
                of_mac(fields.map_or(MacAddress([0; 6]), |fields| fields.destination_mac))
            });
        }
        self.reader.lookup_burst(keys, values);
        for (((found, value), key), fields) in found.iter_mut().zip(values).zip(keys).zip(fields) {
            let has_address = !is_mac(key);
            *found = match (*value, fields) {
                (NO_VALUE, Some(fields)) if has_address => {
                    let modem = self.reader.lookup(&of_mac(fields.destination_mac));
                    modem.map(|modem| Found { modem, by_address: false })
                }
                (NO_VALUE, _) | (_, None) => None,
                (modem, Some(_)) => Some(Found { modem, by_address: has_address }),
            };
        }
    }
}

const MAC: [u8; 2] = [0, 1];

fn of_mac(MacAddress([a, b, c, d, e, f]): MacAddress) -> Key {
    [MAC[0], MAC[1], 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d, e, f]
}

fn is_mac(key: &Key) -> bool {
    key.starts_with(&MAC)
}

/// `None` for addresses that nobody may send to.
fn of_ip(address: IpAddr) -> Option<Key> {
    match address {
        IpAddr::V4(address) => Some(address.to_ipv6_mapped().octets()),
        IpAddr::V6(address) => Some(Ipv6Addr::octets(&address)).filter(|octets| octets[0] != 0),
    }
}
