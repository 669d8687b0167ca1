//! The kernel's switches (sysctls) that say how packets are treated that go on. It doesn't tell of their changes.

use std::collections::BTreeMap;
use std::fs;

use warmlane_forward::control::{MultipathHash, SourceCheck};

use super::event::LinkIndex;

/// How they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switches {
    /// What chooses one of several paths, for IPv4 and for IPv6; `None`: what lanes don't look at.
    pub multipath_hash: [Option<MultipathHash>; 2],
    /// Conntrack counts packets of the flows that begin.
    pub counts_flows: bool,
    /// The TTL of IPv4 packets of the box's own.
    pub ttl: u8,
    links: BTreeMap<LinkIndex, LinkSwitches>,
}

/// How they are for what comes in by an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkSwitches {
    /// How IPv4 packets' sources are checked.
    pub reverse_path: SourceCheck,
    /// IPv4 packets may come from one of the box's own addresses.
    pub accepts_own: bool,
    /// The hop limit of IPv6 packets of the box's own that leave there.
    pub hop_limit: u8,
}

/// What TTL and hop limit are unless somebody says another (`include/uapi/linux/ip.h: IPDEFTTL`, `include/net/ipv6.h:
/// IPV6_DEFAULT_HOPLIMIT`).
const USUAL_TTL: u8 = 64;

impl Default for LinkSwitches {
    fn default() -> Self {
        Self { reverse_path: SourceCheck::Off, accepts_own: false, hop_limit: USUAL_TTL }
    }
}

impl Default for Switches {
    /// As a kernel has them that nobody has said anything to.
    fn default() -> Self {
        let multipath_hash = [Some(MultipathHash::Addresses); 2];
        Self { multipath_hash, counts_flows: false, ttl: USUAL_TTL, links: BTreeMap::new() }
    }
}

impl Switches {
    /// Reads them for interfaces of these numbers and names.
    pub fn read<'a>(links: impl IntoIterator<Item = (LinkIndex, &'a str)>) -> Self {
        Self::read_by(links, &read_switch)
    }

    fn read_by<'a>(
        links: impl IntoIterator<Item = (LinkIndex, &'a str)>,
        read: &dyn Fn(&str) -> Option<i32>,
    ) -> Self {
        let hash = |family: &str| match read(&format!("{family}/fib_multipath_hash_policy")).unwrap_or(0) {
            0 => Some(MultipathHash::Addresses),
            1 => Some(MultipathHash::Ports),
            _ => None,
        };
        let ipv4 = |whom: &str, name: &str| read(&format!("ipv4/conf/{whom}/{name}")).unwrap_or(0);
        let ttl = |name: &str| read(name).and_then(|ttl| u8::try_from(ttl).ok()).unwrap_or(USUAL_TTL);
        let of_link = |name: &str| LinkSwitches {
            reverse_path: reverse_path(name, read),
            accepts_own: ipv4(name, "accept_local") != 0 || ipv4("all", "accept_local") != 0,
            hop_limit: ttl(&format!("ipv6/conf/{name}/hop_limit")),
        };
        Self {
            multipath_hash: [hash("ipv4"), hash("ipv6")],
            counts_flows: read("netfilter/nf_conntrack_acct").unwrap_or(0) != 0,
            ttl: ttl("ipv4/ip_default_ttl"),
            links: links.into_iter().map(|(link, name)| (link, of_link(name))).collect(),
        }
    }

    /// How they are for an interface.
    pub fn of_link(&self, link: LinkIndex) -> LinkSwitches {
        self.links.get(&link).copied().unwrap_or_default()
    }
}

/// A switch of this network namespace, below `net`.
pub(crate) fn read_switch(parameter: &str) -> Option<i32> {
    fs::read_to_string(format!("/proc/sys/net/{parameter}")).ok()?.trim().parse().ok()
}

/// How the sources of IPv4 packets are checked that come in by an interface.
pub(crate) fn reverse_path(interface: &str, read: &dyn Fn(&str) -> Option<i32>) -> SourceCheck {
    let of = |whom: &str| read(&format!("ipv4/conf/{whom}/rp_filter")).unwrap_or(0);
    // The greater one counts (`include/linux/inetdevice.h: IN_DEV_RPFILTER`), where 2 is loose.
    match of("all").max(of(interface)) {
        0 => SourceCheck::Off,
        1 => SourceCheck::Strict,
        _ => SourceCheck::Loose,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greater_filter_counts_and_what_is_unknown_is_left() {
        let with = |known: &[(&str, i32)]| {
            Switches::read_by([(7, "w0")], &|parameter| {
                known.iter().find(|(name, _)| *name == parameter).map(|(_, value)| *value)
            })
        };
        let usual = with(&[]);
        assert_eq!(usual.multipath_hash, [Some(MultipathHash::Addresses); 2]);
        assert_eq!(usual.of_link(7), LinkSwitches::default());
        let strict = with(&[("ipv4/conf/all/rp_filter", 1), ("ipv6/fib_multipath_hash_policy", 1)]);
        assert_eq!(strict.of_link(7).reverse_path, SourceCheck::Strict);
        assert_eq!(strict.of_link(8), LinkSwitches::default());
        assert_eq!(strict.multipath_hash, [MultipathHash::Addresses, MultipathHash::Ports].map(Some));
        let loose = with(&[
            ("ipv4/conf/all/rp_filter", 1),
            ("ipv4/conf/w0/rp_filter", 2),
            ("ipv4/conf/w0/accept_local", 1),
            ("ipv4/fib_multipath_hash_policy", 3),
            ("ipv4/ip_default_ttl", 99),
            ("ipv6/conf/w0/hop_limit", 33),
        ]);
        let expected = LinkSwitches { reverse_path: SourceCheck::Loose, accepts_own: true, hop_limit: 33 };
        assert_eq!(loose.of_link(7), expected);
        assert_eq!((loose.multipath_hash[0], loose.ttl, usual.ttl), (None, 99, 64));
    }
}
