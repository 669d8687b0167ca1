//! What of the host that a forwarder stands in for decides about packets on their way.

use std::net::{IpAddr, Ipv4Addr};

/// TTL and hop limit of packets of our own, unless somebody says another (RFC 1700, "IP TIME TO LIVE PARAMETER").
pub(crate) const OWN_TTL: u8 = 64;

/// The host's addresses and settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Addresses of ours on no port, such as a loopback's, which ICMP errors leave with where ports have none.
    pub other_addresses: Vec<IpAddr>,
    /// Addresses of ours, with which as its source nobody else's packet is forwarded.
    pub own_sources: Vec<Ipv4Addr>,
    /// Addresses that mean all stations on a link. Whoever takes punted packets decides about packets from these.
    pub broadcast_sources: Vec<Ipv4Addr>,
    /// What chooses one of several paths, for IPv4 and for IPv6.
    pub multipath_hash: [MultipathHash; 2],
    /// The TTL of IPv4 packets of our own (Linux: `net.ipv4.ip_default_ttl`).
    pub ttl: u8,
}

impl Default for Host {
    /// Without addresses, with a TTL of 64; ports choose a path.
    fn default() -> Self {
        Self::nothing()
    }
}

impl Host {
    pub(crate) const fn nothing() -> Self {
        Self {
            other_addresses: Vec::new(),
            own_sources: Vec::new(),
            broadcast_sources: Vec::new(),
            multipath_hash: [MultipathHash::Ports; 2],
            ttl: OWN_TTL,
        }
    }
}

/// What of a packet chooses one of several paths: packets that are alike in this take the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MultipathHash {
    /// Addresses; for IPv6 flow label and protocol as well. An ICMP error goes by those of the packet that it tells of.
    Addresses,
    /// Addresses, protocol and ports.
    #[default]
    Ports,
}

/// What is known of a source that packets shouldn't have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claimed {
    /// It is one of our own addresses.
    Own,
    /// It means all stations on a link.
    Broadcast,
}

/// Bits of the filter.
const FILTER_BITS: u32 = 12;

/// Sources that packets shouldn't have, to be found fast that a packet has none of them.
#[derive(Debug, Default)]
pub(crate) struct ClaimedSources {
    /// A bit for all addresses of the same hash.
    filter: Vec<u64>,
    sorted: Vec<(u32, Claimed)>,
}

impl ClaimedSources {
    pub(crate) const fn none() -> Self {
        Self { filter: Vec::new(), sorted: Vec::new() }
    }

    pub(crate) fn of(host: &Host) -> Self {
        let own = host.own_sources.iter().map(|address| (address.to_bits(), Claimed::Own));
        let broadcasts = host.broadcast_sources.iter().map(|address| (address.to_bits(), Claimed::Broadcast));
        let mut sorted: Vec<(u32, Claimed)> = own.chain(broadcasts).collect();
        sorted.sort_by_key(|(address, _)| *address);
        sorted.dedup_by_key(|(address, _)| *address);
        let mut filter = Vec::new();
        if !sorted.is_empty() {
            filter.resize((1 << FILTER_BITS) / 64, 0);
        }
        for (address, _) in &sorted {
            let (word, bit) = place(*address);
            if let Some(word) = filter.get_mut(word) {
                *word |= bit;
            }
        }
        Self { filter, sorted }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// What is known of an address, if anything.
    #[inline(always)]
    pub(crate) fn find(&self, address: u32) -> Option<Claimed> {
        let (word, bit) = place(address);
        if self.filter.get(word).is_none_or(|word| word & bit == 0) { None } else { self.look_up(address) }
    }

    #[cold]
    fn look_up(&self, address: u32) -> Option<Claimed> {
        let index = self.sorted.binary_search_by_key(&address, |(known, _)| *known).ok()?;
        self.sorted.get(index).map(|(_, claimed)| *claimed)
    }
}

/// The word and the bit of an address in the filter.
#[inline(always)]
const fn place(address: u32) -> (usize, u64) {
    let hash = address.wrapping_mul(0x9e37_79b1) >> (32 - FILTER_BITS);
    ((hash / 64) as usize, 1 << (hash % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_and_no_other() {
        let address = |number: u32| Ipv4Addr::from_bits(0x0a00_0000 + number * 256);
        let host = Host {
            own_sources: (0..300).map(address).collect(),
            broadcast_sources: (300..600).map(address).collect(),
            ..Host::default()
        };
        let sources = ClaimedSources::of(&host);
        for number in 0..100_000 {
            let expected = match number {
                0..300 => Some(Claimed::Own),
                300..600 => Some(Claimed::Broadcast),
                _ => None,
            };
            assert_eq!(sources.find(address(number).to_bits()), expected, "{number}");
        }
        assert!(ClaimedSources::of(&Host::default()).find(0).is_none());
    }
}
