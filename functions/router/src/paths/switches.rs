//! The kernel's switches that say whether and how it forwards what comes in by an interface.

use warmlane_forward::control::SourceCheck;

use super::layout::Ingress;
use crate::control::kernel::{read_switch, reverse_path};

/// How they are for an interface, as the programs know them.
pub(super) fn flags(interface: &str) -> u32 {
    flags_by(interface, &read_switch)
}

fn flags_by(interface: &str, read: &dyn Fn(&str) -> Option<i32>) -> u32 {
    let ipv4 = |name: &str, whom: &str| read(&format!("ipv4/conf/{whom}/{name}")).unwrap_or(0);
    let ipv6 = |name: &str, whom: &str| read(&format!("ipv6/conf/{whom}/{name}")).unwrap_or(0);
    let mut flags = 0;
    if ipv4("forwarding", interface) != 0 {
        flags |= Ingress::FORWARDS_IPV4;
    }
    // `net/ipv6/ip6_output.c: ip6_forward`. The lookup wants the interface's own to be on as well.
    let forwards_ipv6 = ipv6("forwarding", "all") != 0 || ipv6("force_forwarding", interface) != 0;
    // Then nothing comes in (`net/ipv6/ip6_input.c: ip6_rcv_core`).
    if forwards_ipv6 && ipv6("disable_ipv6", interface) == 0 {
        flags |= Ingress::FORWARDS_IPV6;
    }
    flags |= match reverse_path(interface, read) {
        SourceCheck::Off => 0,
        SourceCheck::Strict => Ingress::SOURCE_HAS_ROUTE | Ingress::SOURCE_IS_THERE,
        SourceCheck::Loose | SourceCheck::Foreign => Ingress::SOURCE_HAS_ROUTE,
    };
    // IPv6's can't be switched off.
    if ipv4("send_redirects", "all") != 0 || ipv4("send_redirects", interface) != 0 {
        flags |= Ingress::SENDS_REDIRECTS;
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greater_filter_counts_and_forwarding_is_per_family() {
        let with = |known: &[(&str, i32)]| {
            flags_by("w0", &|parameter| {
                known.iter().find(|(name, _)| *name == parameter).map(|(_, value)| *value)
            })
        };
        assert_eq!(with(&[]), 0);
        assert_eq!(with(&[("ipv4/conf/w0/forwarding", 1)]), Ingress::FORWARDS_IPV4);
        assert_eq!(with(&[("ipv6/conf/all/forwarding", 1)]), Ingress::FORWARDS_IPV6);
        assert_eq!(with(&[("ipv6/conf/w0/forwarding", 1)]), 0);
        assert_eq!(with(&[("ipv6/conf/all/forwarding", 1), ("ipv6/conf/w0/disable_ipv6", 1)]), 0);
        let strict = Ingress::SOURCE_HAS_ROUTE | Ingress::SOURCE_IS_THERE;
        assert_eq!(with(&[("ipv4/conf/all/rp_filter", 1)]), strict);
        let both = [("ipv4/conf/all/rp_filter", 1), ("ipv4/conf/w0/rp_filter", 2)];
        assert_eq!(with(&both), Ingress::SOURCE_HAS_ROUTE);
    }
}
