//! What a file says, in the terms that count for caches.

use crate::cache_model::LINE_BYTES;
use serde::Serialize;
use std::fmt;
use warmlane_forward::control::Routes;
use warmlane_mem::PoolConfig;

/// Whose file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Function {
    /// `warmlane forward`
    Forward,
    /// `warmlane router`
    Router,
    /// `warmlane docsis`
    Docsis,
}

impl fmt::Display for Function {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Forward => "forward",
            Self::Router => "router",
            Self::Docsis => "docsis",
        })
    }
}

/// Packets in a transmit ring that a device hasn't given back, mostly: two bursts of 32.
pub(super) const HELD: u32 = 64;

/// What a lane has of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortRings {
    /// Its name.
    pub name: String,
    /// Its driver's.
    pub driver: &'static str,
    /// Entries of a ring; 0 if there is none.
    pub entries: u32,
    /// Bytes of an entry, those of all its rings together.
    pub entry_bytes: u32,
    /// Whether buffers of ours wait in the ring, and the device writes to them: else packets are copied.
    pub posts: bool,
    /// Bytes of the slots that packets are copied from; 0 if they are nowhere before.
    pub slot_bytes: u32,
    /// Packets that wait in the transmit ring until the device has sent them.
    pub held: u32,
    /// How the ring's length is said; `None` if it can't be.
    pub option: Option<&'static str>,
}

impl PortRings {
    /// A port that has no rings: packets are copied, or come from a file.
    pub fn without_rings(name: &str, driver: &'static str) -> Self {
        Self {
            name: name.to_owned(),
            driver,
            entries: 0,
            entry_bytes: 0,
            posts: false,
            slot_bytes: 0,
            held: 0,
            option: None,
        }
    }

    /// A port in whose rings our buffers are: descriptors of so many bytes, both directions together.
    pub fn posting(
        name: &str,
        driver: &'static str,
        [entries, entry_bytes]: [u32; 2],
        option: &'static str,
    ) -> Self {
        let none = Self::without_rings(name, driver);
        Self { entries, entry_bytes, posts: true, held: HELD, option: Some(option), ..none }
    }

    /// Bytes of its rings and slots.
    pub const fn bytes(&self) -> u64 {
        self.entries as u64 * (self.entry_bytes + self.slot_bytes) as u64
    }
}

/// A table that lookups read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Whether it is that of IPv6.
    pub ipv6: bool,
    /// Routes in it.
    pub routes: usize,
    /// Bytes that lookups may read.
    pub bytes: u64,
    /// Lines of them that lookups do read, if packets go to all prefixes alike.
    pub reached: u64,
}

/// Addresses that share a line of the IPv4 table's root: those of a /16.
const LINE_LENGTH: u8 = 16;

/// Lines that a prefix has of a table at least: where its stretch is described, and its next hop.
const OF_A_PREFIX: u64 = 2;

impl Table {
    /// The tables that have routes, asked for their sizes; `lengths` are those of the prefixes of each family, IPv4 first, or `None` if
    /// the full table is there and all is reached.
    pub fn all(routes: &Routes, lengths: [Option<&[u8]>; 2]) -> Vec<Self> {
        let (ipv4, ipv6) = (routes.ipv4(), routes.ipv6());
        let table = |ipv6, routes, bytes: usize, lengths: Option<&[u8]>| {
            let bytes = bytes as u64;
            let all = bytes.div_ceil(LINE_BYTES);
            let reached = lengths.map_or(all, |lengths| reached(lengths).min(all));
            (reached > 0).then_some(Self { ipv6, routes, bytes, reached })
        };
        let [of_ipv4, of_ipv6] = lengths;
        let both = [
            table(false, ipv4.len(), ipv4.lookup_bytes(), of_ipv4),
            table(true, ipv6.len(), ipv6.lookup_bytes(), of_ipv6),
        ];
        both.into_iter().flatten().collect()
    }
}

/// Lines that prefixes of these lengths have of a table.
fn reached(lengths: &[u8]) -> u64 {
    let lines = |length: &u8| OF_A_PREFIX.max(1 << LINE_LENGTH.saturating_sub(*length));
    lengths.iter().map(lines).sum()
}

/// All that counts.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// Whose it is.
    pub function: Function,
    /// Lanes that forward; a downstream's two count as one, on the threads of one core.
    pub lanes: usize,
    /// How many such run side by side.
    pub instances: usize,
    /// Where buffers come from.
    pub pool: PoolConfig,
    /// What each lane has of each port.
    pub ports: Vec<PortRings>,
    /// What lookups read.
    pub tables: Vec<Table>,
    /// Modems of a downstream.
    pub modems: u32,
    /// Whether a downstream makes CRCs.
    pub crc: bool,
}

impl Configuration {
    /// Lanes of all instances.
    pub const fn all_lanes(&self) -> usize {
        self.lanes * self.instances
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_asked_for_their_sizes_and_prefixes_for_their_lines() {
        let mac = "02:00:00:00:00:01";
        let routes = Routes::builder()
            .port(mac, ["192.0.2.1/24"])
            .neighbour("192.0.2.2", mac, 0)
            .route("0.0.0.0/0", "192.0.2.2")
            .build()
            .unwrap();
        let table = |lengths: &[u8]| Table::all(&routes, [Some(lengths), Some(&[])]);
        // The root has 4 MiB, all of which a default route leads through.
        let default = table(&[0]);
        assert_eq!((default.len(), default[0].ipv6, default[0].reached), (1, false, 1 << 16));
        assert!(default[0].bytes >= 4 << 20 && default[0].routes >= 1, "{default:?}");
        assert_eq!(table(&[24, 24, 32])[0].reached, 6);
        assert_eq!(table(&[8])[0].reached, 256);
        assert_eq!(Table::all(&routes, [None, Some(&[])])[0].reached, default[0].bytes.div_ceil(64));
    }
}
