//! What is the box's own: what is addressed to it stays with the kernel.

use super::kernel::{KernelTable, Link, LinkIndex, Target, View};
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use warmlane_table::IpPrefix;

/// The kernel's table of its own addresses (`RT_TABLE_LOCAL`).
pub(crate) const LOCAL_TABLE: u32 = 255;

/// An Ethernet address that no frame is sent to alone: that of a group.
pub(crate) const NOBODY: [u8; 6] = [0xff; 6];

/// The addresses that are the kernel's own: those of its interfaces, and single ones that its local table names, such as
/// broadcast addresses of links.
pub(crate) fn addresses(view: &View) -> HashSet<IpAddr> {
    let of_links = view.links().keys().flat_map(|&link| view.addresses(link)).map(|known| known.address);
    let of_table =
        view.table(LOCAL_TABLE).into_iter().flat_map(KernelTable::prefixes).filter_map(|(prefix, routes)| {
            let is_own =
                |route: &super::kernel::Route| matches!(*route.target, Target::Local | Target::Broadcast);
            routes.as_slice().first().is_some_and(is_own).then(|| single(prefix)).flatten()
        });
    of_links.chain(of_table).collect()
}

/// IPv4 addresses that only the box itself sends from, and those that nobody does, as they mean all stations on a link.
pub(crate) fn ipv4_sources(view: &View) -> (Vec<Ipv4Addr>, Vec<Ipv4Addr>) {
    let mut own: Vec<Ipv4Addr> = Vec::new();
    let mut broadcasts = Vec::new();
    for link in view.links().keys() {
        own.extend(view.addresses(*link).filter_map(|known| match known.address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        }));
    }
    for (prefix, routes) in view.table(LOCAL_TABLE).into_iter().flat_map(KernelTable::prefixes) {
        let (Some(IpAddr::V4(address)), Some(route)) = (single(prefix), routes.as_slice().first()) else {
            continue;
        };
        match *route.target {
            Target::Local => own.push(address),
            Target::Broadcast => broadcasts.push(address),
            _ => {}
        }
    }
    for list in [&mut own, &mut broadcasts] {
        list.sort_unstable();
        list.dedup();
    }
    (own, broadcasts)
}

/// Whether the box has whole IPv4 prefixes of its own, besides that of the loopback.
pub(crate) fn has_prefixes(view: &View) -> bool {
    view.table(LOCAL_TABLE).into_iter().flat_map(KernelTable::prefixes).any(|(prefix, routes)| {
        let is_local = routes.as_slice().first().is_some_and(|route| *route.target == Target::Local);
        is_local && matches!(prefix, IpPrefix::V4(prefix) if prefix.length() < 32 && !prefix.address().is_loopback())
    })
}

/// The address of a prefix that has but one.
fn single(prefix: IpPrefix) -> Option<IpAddr> {
    match prefix {
        IpPrefix::V4(prefix) => (prefix.length() == 32).then(|| IpAddr::V4(prefix.first().into())),
        IpPrefix::V6(prefix) => (prefix.length() == 128).then(|| IpAddr::V6(prefix.first().into())),
    }
}

/// The Ethernet address of frames that are for an interface itself. If a bridge, a bond or a team takes them, there is none.
pub(crate) fn mac(view: &View, link: LinkIndex) -> [u8; 6] {
    let Some(known) = view.links().get(&link) else { return NOBODY };
    if is_member(view, known) { NOBODY } else { known.mac.unwrap_or(NOBODY) }
}

/// Whether a bridge, a bond or a team takes what comes in by a link. A VRF doesn't.
pub(crate) fn is_member(view: &View, link: &Link) -> bool {
    let master = link.master.and_then(|master| view.links().get(&master));
    master.is_some_and(|master| master.kind != "vrf")
}
