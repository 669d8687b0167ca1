//! Which packets a classifier or a filter is for (MULPI annex C.2.1: LLC, 802.1P/Q, IPv4 and IPv6 criteria).

use std::net::IpAddr;

use warmlane_table::IpPrefix;
use warmlane_wire::{EtherType, IpProtocol, MacAddress};

use super::fields::Fields;

/// Conditions, all of which must hold. What isn't given holds for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Match {
    /// Priorities of the VLAN tag, from and to.
    pub vlan_priority: Option<(u8, u8)>,
    /// The VLAN's number.
    pub vlan: Option<u16>,
    /// Destination address, and which of its bits count.
    pub destination_mac: Option<(MacAddress, MacAddress)>,
    /// Source address.
    pub source_mac: Option<MacAddress>,
    /// The EtherType, also in a SNAP header.
    pub ethertype: Option<EtherType>,
    /// The destination service access point of LLC frames (IEEE 802.2) without SNAP header; so it is never 0xaa.
    pub dsap: Option<u8>,
    /// The traffic class (IPv4: type of service), from and to, and which of its bits count.
    pub traffic_class: Option<(u8, u8, u8)>,
    /// The protocol, for IPv6 behind the extension headers.
    pub protocol: Option<IpProtocol>,
    /// Source addresses.
    pub source: Option<IpPrefix>,
    /// Destination addresses.
    pub destination: Option<IpPrefix>,
    /// Source ports of TCP and UDP, from and to.
    pub source_ports: Option<(u16, u16)>,
    /// Destination ports of TCP and UDP, from and to.
    pub destination_ports: Option<(u16, u16)>,
}

impl Match {
    /// Whether all conditions hold.
    #[inline]
    pub(crate) fn holds(&self, fields: &Fields) -> bool {
        let ip = fields.ip.as_ref();
        let ports = ip.and_then(|ip| ip.ports);
        holds(self.vlan_priority, fields.vlan, |(from, to), (priority, _)| (from..=to).contains(&priority))
            && holds(self.vlan, fields.vlan, |wanted, (_, vlan)| wanted == vlan)
            && holds(self.destination_mac, Some(fields.destination_mac), |(wanted, mask), address| {
                bits(wanted) & bits(mask) == bits(address) & bits(mask)
            })
            && holds(self.source_mac, Some(fields.source_mac), |wanted, address| wanted == address)
            && holds(self.ethertype, Some(fields.ethertype), |wanted, ethertype| wanted == ethertype)
            && holds(self.dsap, fields.dsap, |wanted, dsap| wanted == dsap)
            && holds(self.traffic_class, ip, |(from, to, mask), ip| {
                (from..=to).contains(&(ip.traffic_class & mask))
            })
            && holds(self.protocol, ip, |wanted, ip| wanted == ip.protocol)
            && holds(self.source, ip, |wanted, ip| contains(wanted, ip.source))
            && holds(self.destination, ip, |wanted, ip| contains(wanted, ip.destination))
            && holds(self.source_ports, ports, |(from, to), (port, _)| (from..=to).contains(&port))
            && holds(self.destination_ports, ports, |(from, to), (_, port)| (from..=to).contains(&port))
    }

    /// Whether there may be packets for which both hold. It may say so where there are none, but never the other way round.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        fn meet(a: Option<(u16, u16)>, b: Option<(u16, u16)>) -> bool {
            may(a, b, |(from, to), (other_from, other_to)| from <= other_to && other_from <= to)
        }
        let wide = |range: Option<(u8, u8)>| range.map(|(from, to)| (from.into(), to.into()));
        let prefixes = |a: IpPrefix, b: IpPrefix| match (a, b) {
            (IpPrefix::V4(a), IpPrefix::V4(b)) => a.covers(&b) || b.covers(&a),
            (IpPrefix::V6(a), IpPrefix::V6(b)) => a.covers(&b) || b.covers(&a),
            _ => false,
        };
        meet(wide(self.vlan_priority), wide(other.vlan_priority))
            && may(self.vlan, other.vlan, |a, b| a == b)
            && may(self.destination_mac, other.destination_mac, |(a, a_mask), (b, b_mask)| {
                let mask = bits(a_mask) & bits(b_mask);
                bits(a) & mask == bits(b) & mask
            })
            && may(self.source_mac, other.source_mac, |a, b| a == b)
            && may(self.ethertype, other.ethertype, |a, b| a == b)
            && may(self.dsap, other.dsap, |a, b| a == b)
            && may(self.traffic_class, other.traffic_class, |(a, a_to, a_mask), (b, b_to, b_mask)| {
                a_mask != b_mask || a <= b_to && b <= a_to
            })
            && may(self.protocol, other.protocol, |a, b| a == b)
            && may(self.source, other.source, prefixes)
            && may(self.destination, other.destination, prefixes)
            && meet(self.source_ports, other.source_ports)
            && meet(self.destination_ports, other.destination_ports)
    }
}

/// Whether a condition holds for what a packet has.
#[inline(always)]
fn holds<C, F>(condition: Option<C>, field: Option<F>, compare: impl FnOnce(C, F) -> bool) -> bool {
    match (condition, field) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(condition), Some(field)) => compare(condition, field),
    }
}

/// Whether two conditions may hold for one packet.
fn may<C>(a: Option<C>, b: Option<C>, compare: impl FnOnce(C, C) -> bool) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => compare(a, b),
        _ => true,
    }
}

fn bits(MacAddress([a, b, c, d, e, f]): MacAddress) -> u64 {
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

fn contains(prefix: IpPrefix, address: IpAddr) -> bool {
    match (prefix, address) {
        (IpPrefix::V4(prefix), IpAddr::V4(address)) => prefix.contains(address.into()),
        (IpPrefix::V6(prefix), IpAddr::V6(address)) => prefix.contains(address.into()),
        _ => false,
    }
}
