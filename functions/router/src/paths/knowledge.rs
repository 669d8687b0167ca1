//! What programs are to know, as the kernel's view says it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;

use warmlane_table::{IpPrefix, Prefix};

use super::layout::{Egress, Ingress, Settings};
use super::switches;
use crate::control::kernel::{Link, LinkIndex, View, shortened};
use crate::control::local;

/// What a program is to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Knowledge {
    pub(super) settings: Settings,
    pub(super) vlans: BTreeMap<u32, Ingress>,
    pub(super) egresses: BTreeMap<LinkIndex, Egress>,
    pub(super) devices: BTreeSet<LinkIndex>,
    pub(super) own_addresses: BTreeSet<Ipv4Addr>,
    pub(super) route_mtus: HashMap<IpPrefix, u32>,
}

impl Knowledge {
    /// Has what another has, too.
    pub(super) fn take_in(&mut self, other: Self) {
        self.vlans.extend(other.vlans);
        self.egresses.extend(other.egresses);
        self.devices.extend(other.devices);
        self.own_addresses.extend(other.own_addresses);
        self.route_mtus.extend(other.route_mtus);
    }
}

/// How many prefixes with MTUs of their own the programs have space for.
const MOST_MTUS: usize = 65_536;

/// What packets to a prefix may be as long as: the least of its own MTU and of those of all around it, for which of them a packet goes by
/// is not known here.
pub(super) fn route_mtus(own: &HashMap<IpPrefix, u32>) -> HashMap<IpPrefix, u32> {
    if own.len() > MOST_MTUS {
        let everything = [IpPrefix::V4(Prefix::containing(0, 0)), IpPrefix::V6(Prefix::containing(0, 0))];
        let least = own.values().copied().min().unwrap_or(0);
        return everything.into_iter().map(|prefix| (prefix, least)).collect();
    }
    let length = |prefix: &IpPrefix| match prefix {
        IpPrefix::V4(prefix) => prefix.length(),
        IpPrefix::V6(prefix) => prefix.length(),
    };
    let least = |prefix: &IpPrefix| {
        let around = (0..=length(prefix)).filter_map(|length| own.get(&shortened(*prefix, length)));
        around.copied().min().unwrap_or(0)
    };
    own.keys().map(|prefix| (*prefix, least(prefix))).collect()
}

/// Two bits for each address, as `is_own_address` in `bpf/forward.h` looks at them.
pub(super) fn own_address_bits(addresses: &BTreeSet<Ipv4Addr>) -> u64 {
    let of_one = |address: &Ipv4Addr| {
        let hash = u32::from_ne_bytes(address.octets()).wrapping_mul(0x9e37_79b1);
        1_u64 << (hash >> 26) | 1 << (hash >> 20 & 63)
    };
    addresses.iter().map(of_one).fold(0, |bits, one| bits | one)
}

/// The least MTU of any route of IPv4, or of IPv6; 0 if none has one.
pub(super) fn least_mtu(mtus: &HashMap<IpPrefix, u32>, of_ipv4: bool) -> u32 {
    let of_family = mtus.iter().filter(|(prefix, _)| matches!(prefix, IpPrefix::V4(_)) == of_ipv4);
    of_family.map(|(_, mtu)| *mtu).min().unwrap_or(0)
}

fn ingress(link: &Link, view: &View, offloads: bool) -> Ingress {
    // What a bridge takes is no business of routes, and what comes in by a tunnel without Ethernet headers is not as programs expect it.
    let is_ours = link.is_up && link.mac.is_some() && !local::is_member(view, link);
    let mut flags = if is_ours { switches::flags(&link.name) } else { 0 };
    for (is_ipv6, policy) in [false, true].into_iter().zip(view.switches().multipath_hash) {
        if policy.is_none() {
            flags &= !(if is_ipv6 { Ingress::FORWARDS_IPV6 } else { Ingress::FORWARDS_IPV4 });
        }
    }
    for (is_ipv6, forwards, established_only) in [
        (false, Ingress::FORWARDS_IPV4, Ingress::ESTABLISHED_ONLY_IPV4),
        (true, Ingress::FORWARDS_IPV6, Ingress::ESTABLISHED_ONLY_IPV6),
    ] {
        if offloads && !view.is_left_though_established(link.index, is_ipv6) {
            flags |= if view.is_left(link.index, is_ipv6) { established_only } else { 0 };
        } else if view.is_left(link.index, is_ipv6) {
            flags &= !forwards;
        }
    }
    Ingress { link: link.index, flags }
}

pub(super) fn settings(link: &Link, view: &View, offloads: bool) -> Settings {
    let [a, b, c, d, e, f] = local::mac(view, link.index);
    Settings {
        untagged: ingress(link, view, offloads),
        mac: [a, b, c, d, e, f, 0, 0],
        checksums_left: u32::from(!link.kind.is_empty()),
        ..Settings::default()
    }
}

/// The VLANs on a link, by their number.
pub(super) fn vlans(link: &Link, view: &View, offloads: bool) -> BTreeMap<u32, Ingress> {
    let on_it = view.links().values().filter(|other| other.lower == Some(link.index));
    on_it
        // Frames for another Ethernet address than the link's are the kernel's.
        .filter(|other| other.mac == link.mac)
        .filter_map(|other| Some((u32::from(other.vlan?), ingress(other, view, offloads))))
        .collect()
}

/// Where packets may leave: by these links and the VLANs on them.
pub(super) fn egresses(view: &View, members: &BTreeMap<String, LinkIndex>) -> BTreeMap<LinkIndex, Egress> {
    let is_member = |link: &LinkIndex| members.values().any(|member| member == link);
    let of = |link: &Link| {
        let flags = if link.mac.is_some() { Egress::IS_ETHERNET } else { 0 };
        match (link.vlan, link.lower) {
            _ if is_member(&link.index) => Some(Egress { device: link.index, vlan: 0, flags }),
            (Some(vlan), Some(lower)) if is_member(&lower) => Some(Egress { device: lower, vlan, flags }),
            _ => None,
        }
    };
    let up = view.links().values().filter(|link| link.is_up && !view.is_left_at_egress(link.index));
    up.filter_map(|link| Some((link.index, of(link)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_mtu_around_counts() {
        let ipv4 = |text: &str| IpPrefix::V4(text.parse().unwrap());
        let ipv6 = |text: &str| IpPrefix::V6(text.parse().unwrap());
        let own = HashMap::from([
            (ipv4("10.0.0.0/8"), 1300),
            (ipv4("10.1.0.0/16"), 1400),
            (ipv4("192.0.2.0/24"), 1200),
            (ipv6("::/0"), 1280),
            (ipv6("2001:db8::/32"), 1400),
        ]);
        let all = route_mtus(&own);
        assert_eq!(all.len(), 5);
        assert_eq!(all[&ipv4("10.1.0.0/16")], 1300);
        assert_eq!(all[&ipv4("192.0.2.0/24")], 1200);
        assert_eq!(all[&ipv6("2001:db8::/32")], 1280);
        assert_eq!((least_mtu(&all, true), least_mtu(&all, false)), (1200, 1280));
        let many = (0..=MOST_MTUS as u32)
            .map(|number| (IpPrefix::V4(Prefix::containing(number << 8, 24)), 1000 + number));
        let one = route_mtus(&many.collect());
        assert_eq!((one.len(), one[&ipv4("0.0.0.0/0")], one[&ipv6("::/0")]), (2, 1000, 1000));
    }
}
