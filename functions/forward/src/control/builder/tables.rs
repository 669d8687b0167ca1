//! The routes of all kinds that a builder's tables get: hosts, links, our own addresses, the embedded table.

use std::collections::HashMap;
use std::net::IpAddr;

use warmlane_table::{IpPrefix, Ipv4Prefix, Ipv6Prefix, NextHopId, Prefix};
use warmlane_wire::martian;

use crate::control::config::{FullTableConfig, InterfaceAddress};
use crate::control::full_table;
use crate::control::next_hop::NextHop;
use crate::control::routes::RoutesError;

/// What the tables will hold.
#[derive(Default)]
pub(super) struct Tables {
    pub(super) hops: Vec<NextHop>,
    numbers: HashMap<NextHop, NextHopId>,
    pub(super) ipv4: Vec<(Ipv4Prefix, NextHopId)>,
    pub(super) ipv6: Vec<(Ipv6Prefix, NextHopId)>,
}

impl Tables {
    /// The number of a next hop. Equal ones share theirs.
    pub(super) fn number(&mut self, hop: NextHop) -> Result<NextHopId, RoutesError> {
        if let Some(&known) = self.numbers.get(&hop) {
            return Ok(known);
        }
        let fresh = u32::try_from(self.hops.len()).ok().and_then(NextHopId::new);
        let fresh = fresh.ok_or(RoutesError::TooManyNextHops { maximum: NextHopId::MAXIMUM + 1 })?;
        self.hops.push(hop.clone());
        self.numbers.insert(hop, fresh);
        Ok(fresh)
    }

    /// Adds a route; of two to the same prefix the later one stays.
    pub(super) fn add(&mut self, prefix: IpPrefix, hop: NextHopId) {
        match prefix {
            IpPrefix::V4(prefix) => self.ipv4.push((prefix, hop)),
            IpPrefix::V6(prefix) => self.ipv6.push((prefix, hop)),
        }
    }

    /// Adds a route to one address. Addresses that mean something on one link only get none.
    pub(super) fn add_host(&mut self, address: IpAddr, hop: NextHopId) {
        match address {
            IpAddr::V4(address) if !martian::ipv4_stays_on_link(address) => {
                self.ipv4.push((Prefix::containing(address.to_bits(), 32), hop));
            }
            IpAddr::V6(address) if !martian::ipv6_stays_on_link(address) => {
                self.ipv6.push((Prefix::containing(address.to_bits(), 128), hop));
            }
            _ => {}
        }
    }

    pub(super) fn add_full_table(
        &mut self,
        spread: &FullTableConfig,
        neighbours: &[NextHopId],
    ) -> Result<(), RoutesError> {
        let hop = |list: &[usize], prefix: &str| {
            let entry = list.get(FullTableConfig::entry(prefix, list.len()));
            entry.map_or(NextHopId::NONE, |&number| nth(neighbours, number))
        };
        if !spread.ipv4.is_empty() {
            let prefixes = full_table::ipv4()?.into_iter();
            self.ipv4.extend(prefixes.map(|prefix| (prefix, hop(&spread.ipv4, &prefix.to_string()))));
        }
        if !spread.ipv6.is_empty() {
            let prefixes = full_table::ipv6()?.into_iter();
            self.ipv6.extend(prefixes.map(|prefix| (prefix, hop(&spread.ipv6, &prefix.to_string()))));
        }
        Ok(())
    }

    /// Adds the prefixes of the ports' links: hosts there that aren't known as neighbours get no packets.
    pub(super) fn add_links(
        &mut self,
        own: impl Iterator<Item = InterfaceAddress>,
    ) -> Result<(), RoutesError> {
        let unknown = self.number(NextHop::NoNeighbour)?;
        let broadcast = self.number(NextHop::DirectedBroadcast)?;
        for InterfaceAddress { address, length } in own {
            match address {
                IpAddr::V4(address) if !martian::ipv4_stays_on_link(address) => {
                    let link: Ipv4Prefix = Prefix::containing(address.to_bits(), length);
                    self.ipv4.push((link, unknown));
                    if length < 31 {
                        let ends = [link.first(), link.last()];
                        self.ipv4.extend(ends.map(|end| (Prefix::containing(end, 32), broadcast)));
                    }
                }
                IpAddr::V6(address) if !martian::ipv6_stays_on_link(address) => {
                    self.ipv6.push((Prefix::containing(address.to_bits(), length), unknown));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Adds our own addresses, the subnet-router anycast addresses (RFC 4291 section 2.6.1) among them.
    pub(super) fn add_own(&mut self, own: impl Iterator<Item = InterfaceAddress>) -> Result<(), RoutesError> {
        let local = self.number(NextHop::Local)?;
        for InterfaceAddress { address, length } in own {
            if let IpAddr::V6(address) = address
                && length < 127
            {
                let link: Ipv6Prefix = Prefix::containing(address.to_bits(), length);
                self.add_host(IpAddr::V6(link.address()), local);
            }
            self.add_host(address, local);
        }
        Ok(())
    }
}

/// The next hop of the neighbour with this number. A number that no neighbour has gives none, which the table refuses
/// by the name of the prefix.
pub(super) fn nth(neighbours: &[NextHopId], number: usize) -> NextHopId {
    neighbours.get(number).copied().unwrap_or(NextHopId::NONE)
}
