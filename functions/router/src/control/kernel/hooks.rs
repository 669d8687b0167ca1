//! What the kernel does with packets on their way through it besides forwarding them: chains of netfilter, policies of IPsec,
//! filters and shapers of tc, switches that forbid forwarding. Only whether there is something: what it says is the kernel's business.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use netlink_packet_core::NlasIterator;
use rustix::io::Errno;
use rustix::net::netlink::{NETFILTER, XFRM};
use warmlane_bpf::AttachPoint;

use super::event::{Link, LinkIndex};
use super::ipvs;
use super::socket::RequestSocket;
use super::traffic_control::traffic_control;
use super::xtables;

/// Something that packets on their way pass in the kernel.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hook {
    /// What it is, in words.
    pub what: String,
    /// Whether it concerns IPv4.
    pub ipv4: bool,
    /// Whether it concerns IPv6.
    pub ipv6: bool,
    /// Which packets pass it.
    pub at: HookPlace,
    /// What can be done about it.
    pub kind: HookKind,
    /// Established flows are forwarded past it.
    pub except_established: bool,
}

/// What can be done about a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HookKind {
    /// It says that nothing is forwarded at all, so that there is nothing to bypass.
    Switch,
    /// Chains of netfilter around routing: what they let pass, conntrack knows as a flow.
    Netfilter,
    /// All others.
    Other,
}

/// Which packets pass a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HookPlace {
    /// All.
    Everywhere,
    /// Those that come in by this interface.
    ComingInBy(LinkIndex),
    /// Those that leave by this interface.
    LeavingBy(LinkIndex),
    /// Those that come or go by tunnels of the box, for these are bridged, and their datagrams are the box's own.
    Tunnelled,
}

/// Links, by their numbers.
pub(super) type Links = BTreeMap<LinkIndex, Link>;

/// What the kernel tells changes of: chains of nf_tables, policies of IPsec, tc.
///
/// # Errors
/// The kernel refuses: it needs `CAP_NET_ADMIN`. A kernel that has no such thing is no error.
pub fn told_hooks(links: &Links) -> io::Result<Vec<Hook>> {
    let mut hooks = Vec::new();
    or_nothing(RequestSocket::of(Some(NETFILTER)).and_then(|mut socket| {
        // struct nfgenmsg: any family.
        socket.list(GET_CHAIN, &[0; 4], |_, body| hooks.extend(chain(body, links)))
    }))?;
    let mut policies = [0_usize; 2];
    or_nothing(RequestSocket::of(Some(XFRM)).and_then(|mut socket| {
        // struct xfrm_userpolicy_id, which a listing doesn't look at.
        socket.list(GET_POLICY, &[0; 64], |_, body| {
            if let Some(is_ipv6) = policy(body) {
                policies[usize::from(is_ipv6)] += 1;
            }
        })
    }))?;
    for (is_ipv6, count) in [false, true].into_iter().zip(policies).filter(|(_, count)| *count > 0) {
        hooks.push(Hook {
            what: format!("{count} IPsec policies (`ip xfrm policy`)"),
            ipv4: !is_ipv6,
            ipv6: is_ipv6,
            at: HookPlace::Everywhere,
            kind: HookKind::Other,
            except_established: false,
        });
    }
    let mut blocks = false;
    or_nothing(RequestSocket::of(Some(XFRM)).and_then(|mut socket| {
        blocks = socket.get(GET_DEFAULT, &[0; 3], blocks_by_default)?.unwrap_or(false);
        Ok(true)
    }))?;
    if blocks {
        hooks.push(Hook {
            what: "a default policy of IPsec that blocks (`ip xfrm policy getdefault`)".to_owned(),
            ipv4: true,
            ipv6: true,
            at: HookPlace::Everywhere,
            kind: HookKind::Other,
            except_established: false,
        });
    }
    hooks.extend(traffic_control(links)?);
    Ok(hooks)
}

/// What the kernel tells nothing of, so that it has to be looked at now and then: the older iptables, services of IPVS, the switches that forbid
/// forwarding, or say what lanes don't follow, and programs that others have by links. `of_lanes` are the links of lanes, `ours` all of the
/// router's.
///
/// # Errors
/// The kernel refuses, as to who isn't root.
pub fn untold_hooks<'a>(
    of_lanes: impl IntoIterator<Item = &'a Link>,
    ours: impl IntoIterator<Item = &'a Link>,
) -> io::Result<Vec<Hook>> {
    let chains = xtables::chains()?.into_iter().map(|chain| Hook {
        what: format!("rules of iptables (`{}`)", chain.command),
        ipv4: !chain.is_ipv6,
        ipv6: chain.is_ipv6,
        at: if chain.is_for_own { HookPlace::Tunnelled } else { HookPlace::Everywhere },
        kind: HookKind::Netfilter,
        except_established: false,
    });
    let read = |parameter: &str| fs::read_to_string(format!("/proc/sys/net/{parameter}")).ok();
    let mut hooks: Vec<Hook> = chains.collect();
    hooks.extend(balancing(ipvs::services()?));
    for link in of_lanes {
        hooks.extend(switches_of(link, &|parameter| read(parameter)?.trim().parse().ok()));
    }
    for link in ours {
        hooks.extend(programs_of_others(link)?);
    }
    Ok(hooks)
}

/// Services of IPVS: what servers answer is forwarded, and translated on its way.
fn balancing(services: ipvs::Services) -> Option<Hook> {
    let ipvs::Services { ipv4, ipv6, marked } = services;
    let count = ipv4 + ipv6 + marked;
    (count > 0).then(|| Hook {
        what: format!("{count} service(s) of IPVS (`ipvsadm -Ln`)"),
        ipv4: ipv4 + marked > 0,
        ipv6: ipv6 + marked > 0,
        at: HookPlace::Everywhere,
        kind: HookKind::Other,
        except_established: false,
    })
}

/// BPF programs of others at a link's sides of tc that aren't filters: netlink doesn't list those.
fn programs_of_others(link: &Link) -> io::Result<Vec<Hook>> {
    let Link { index, name, .. } = link;
    let sides = [
        (AttachPoint::Tc, HookPlace::ComingInBy(*index), "ingress"),
        (AttachPoint::TcEgress, HookPlace::LeavingBy(*index), "egress"),
    ];
    let mut hooks = Vec::new();
    for (point, at, side) in sides {
        if warmlane_bpf::has_others(*index, point)? {
            let what = format!("BPF programs of others at tc {side} (`bpftool net show dev {name}`)");
            let kind = HookKind::Other;
            hooks.push(Hook { what, ipv4: true, ipv6: true, at, kind, except_established: false });
        }
    }
    Ok(hooks)
}

/// What the kernel's switches keep from lanes of an interface. What comes in: for IPv6 the kernel looks at the switch for all interfaces only
/// (`net/ipv6/ip6_output.c: ip6_forward`), for IPv4 at the interface's (`net/ipv4/route.c: ip_route_input_slow`), which the
/// one for all sets; nor do lanes know of MTUs that it has learned (`include/net/ip.h: ip_dst_mtu_maybe_forward`). What leaves: IPv6 may have
/// an MTU of its own (`net/ipv6/ip6_output.c: ip6_dst_mtu_maybe_forward`).
fn switches_of(link: &Link, read: &dyn Fn(&str) -> Option<u32>) -> impl Iterator<Item = Hook> {
    let Link { index, name, mtu, .. } = link;
    let hook = |what: String, [ipv4, ipv6]: [bool; 2], at| Hook {
        what,
        ipv4,
        ipv6,
        at,
        kind: HookKind::Switch,
        except_established: false,
    };
    let off = |switch: &str| {
        let remedy = switch.replace('/', ".");
        (read(switch) == Some(0)).then(|| format!("forwarding is off (`sysctl -w net.{remedy}=1`)"))
    };
    let coming_in = HookPlace::ComingInBy(*index);
    let off_ipv4 = off(&format!("ipv4/conf/{name}/forwarding"));
    let off_ipv6 = off("ipv6/conf/all/forwarding");
    let learned = (read("ipv4/ip_forward_use_pmtu").unwrap_or(0) != 0).then(|| {
        "MTUs that the kernel has learned count (`sysctl -w net.ipv4.ip_forward_use_pmtu=0`)".to_owned()
    });
    // Nothing of it comes in then (`net/ipv6/ip6_input.c: ip6_rcv_core`).
    let disabled = (read(&format!("ipv6/conf/{name}/disable_ipv6")).unwrap_or(0) != 0)
        .then(|| format!("IPv6 is disabled there (`sysctl -w net.ipv6.conf.{name}.disable_ipv6=0`)"));
    let other_mtu = read(&format!("ipv6/conf/{name}/mtu")).filter(|own| own < mtu).map(|own| {
        format!("IPv6 has an MTU of its own there, {own} (`sysctl -w net.ipv6.conf.{name}.mtu={mtu}`)")
    });
    let all = [
        off_ipv4.map(|what| hook(what, [true, false], coming_in)),
        off_ipv6.map(|what| hook(what, [false, true], coming_in)),
        disabled.map(|what| hook(what, [false, true], coming_in)),
        learned.map(|what| hook(what, [true, false], coming_in)),
        other_mtu.map(|what| hook(what, [true, true], HookPlace::LeavingBy(*index))),
    ];
    all.into_iter().flatten()
}

/// `NFT_MSG_GETCHAIN` of the subsystem nf_tables (`include/uapi/linux/netfilter/nfnetlink.h`, `nf_tables.h`).
const GET_CHAIN: u16 = 10 << 8 | 4;

/// `XFRM_MSG_GETPOLICY` and `XFRM_MSG_GETDEFAULT` (`include/uapi/linux/xfrm.h`).
const GET_POLICY: u16 = 0x15;
const GET_DEFAULT: u16 = 0x28;

/// A kernel without the subsystem says one of these.
pub(super) fn or_nothing(listed: io::Result<bool>) -> io::Result<()> {
    const NONE: [Errno; 3] = [Errno::INVAL, Errno::OPNOTSUPP, Errno::PROTONOSUPPORT];
    match listed {
        Err(error) if NONE.iter().any(|none| Some(none.raw_os_error()) == error.raw_os_error()) => Ok(()),
        other => other.map(|_| ()),
    }
}

/// A chain that a forwarded packet passes and that does something (`net/netfilter/nf_tables_api.c: nf_tables_fill_chain_info`).
fn chain(body: &[u8], links: &Links) -> Option<Hook> {
    const TABLE: u16 = 1;
    const NAME: u16 = 3;
    const HOOK: u16 = 4;
    const POLICY: u16 = 5;
    const USES: u16 = 6;
    const DROP: u32 = 0;
    const HOOK_NUMBER: u16 = 1;
    const HOOK_DEVICE: u16 = 3;
    const HOOK_DEVICES: u16 = 4;
    // enum nf_inet_hooks and, for the family netdev, enum nf_dev_hooks.
    const INET_INGRESS: u32 = 5;
    const DEVICE_EGRESS: u32 = 1;

    let (header, attributes) = body.split_first_chunk::<4>()?;
    let (mut table, mut name, mut device) = (String::new(), String::new(), None);
    let (mut hook, mut drops, mut uses, mut devices) = (None, false, 0, 0);
    for attribute in NlasIterator::new(attributes).flatten() {
        let value = attribute.value();
        match attribute.kind() {
            TABLE => table = text(value),
            NAME => name = text(value),
            HOOK => {
                for nested in NlasIterator::new(value).flatten() {
                    match nested.kind() {
                        HOOK_NUMBER => hook = number(nested.value()),
                        HOOK_DEVICE => device = Some(text(nested.value())),
                        HOOK_DEVICES => devices = NlasIterator::new(nested.value()).flatten().count(),
                        _ => {}
                    }
                }
            }
            POLICY => drops = number(value) == Some(DROP),
            USES => uses = number(value).unwrap_or(0),
            _ => {}
        }
    }
    // Before and after routing, between, and where an interface comes first or last; 1 and 3 are for what the box itself gets and sends.
    let (family, hooks, ipv4, ipv6): (_, &[u32], _, _) = match header.first()? {
        1 => ("inet", &[0, 1, 2, 3, 4, INET_INGRESS], true, true),
        2 => ("ip", &[0, 1, 2, 3, 4], true, false),
        5 => ("netdev", &[0, DEVICE_EGRESS], true, true),
        7 => ("bridge", &[0, 1, 2, 3, 4], true, true),
        10 => ("ip6", &[0, 1, 2, 3, 4], false, true),
        _ => return None,
    };
    let hook = hook.filter(|hook| hooks.contains(hook))?;
    if !drops && uses == 0 {
        return None;
    }
    // One of several interfaces is as good as all.
    let device = device.filter(|_| devices <= 1);
    let link =
        device.and_then(|device| links.values().find(|link| link.name == device)).map(|link| link.index);
    let at = match (link, family) {
        (_, "bridge") => HookPlace::Tunnelled,
        (_, "inet" | "ip" | "ip6") if matches!(hook, 1 | 3) => HookPlace::Tunnelled,
        (Some(link), "netdev") if hook == DEVICE_EGRESS => HookPlace::LeavingBy(link),
        (Some(link), _) => HookPlace::ComingInBy(link),
        (None, _) => HookPlace::Everywhere,
    };
    let what = format!("rules of nftables (`nft list chain {family} {table} {name}`)");
    // Conntrack comes behind what is done where an interface comes first.
    let is_around_routing = at == HookPlace::Everywhere && hook != INET_INGRESS;
    let kind = if is_around_routing { HookKind::Netfilter } else { HookKind::Other };
    Some(Hook { what, ipv4, ipv6, at, kind, except_established: false })
}

/// Whether a policy (struct xfrm_userpolicy_info) for packets that leave or are forwarded is about IPv6; `None`: it is for others.
fn policy(body: &[u8]) -> Option<bool> {
    const FAMILY: usize = 40;
    const DIRECTION: usize = 160;
    const OUT: u8 = 1;
    const FORWARD: u8 = 2;
    const IPV6: u16 = 10;
    let family = u16::from_ne_bytes(*body.get(FAMILY..)?.first_chunk()?);
    matches!(body.get(DIRECTION), Some(&(OUT | FORWARD))).then_some(family == IPV6)
}

/// Whether what no policy is about is blocked where it is forwarded or leaves (struct `xfrm_userpolicy_default`: in, fwd, out).
fn blocks_by_default(body: &[u8]) -> bool {
    const BLOCK: u8 = 1;
    body.get(1..3).is_some_and(|directions| directions.contains(&BLOCK))
}

pub(super) fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value.strip_suffix(b"\0").unwrap_or(value)).into_owned()
}

fn number(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::kernel::attribute;
    use proptest::prelude::*;

    /// A chain as the kernel tells of it, in the order of `nf_tables_fill_chain_info`.
    fn told(family: u8, hook: Option<u32>, policy: u32, uses: u32, device: Option<&str>) -> Option<Hook> {
        let mut body = vec![family, 0, 0, 0];
        body.extend(attribute(1, b"mine\0"));
        body.extend(attribute(3, b"across\0"));
        if let Some(hook) = hook {
            let mut nested = [attribute(1, &hook.to_be_bytes()), attribute(2, &0_u32.to_be_bytes())].concat();
            if let Some(device) = device {
                nested.extend(attribute(3, format!("{device}\0").as_bytes()));
            }
            body.extend(attribute(4 | 0x8000, &nested));
            body.extend(attribute(5, &policy.to_be_bytes()));
        }
        body.extend(attribute(6, &uses.to_be_bytes()));
        let link = Link { index: 7, name: "eth7".to_owned(), mtu: 1500, ..Link::default() };
        chain(&body, &BTreeMap::from([(7, link)]))
    }

    #[test]
    fn only_chains_in_the_way_that_do_something_count() {
        const ACCEPT: u32 = 1;
        let families = |hook: Option<Hook>| hook.map(|hook| (hook.ipv4, hook.ipv6, hook.at));
        let everywhere = |ipv4, ipv6| Some((ipv4, ipv6, HookPlace::Everywhere));
        assert_eq!(families(told(1, Some(2), ACCEPT, 1, None)), everywhere(true, true));
        assert_eq!(families(told(10, Some(2), 0, 0, None)), everywhere(false, true));
        assert_eq!(families(told(2, Some(4), ACCEPT, 3, None)), everywhere(true, false));
        let at = |at| Some((true, true, at));
        assert_eq!(families(told(5, Some(0), ACCEPT, 1, Some("eth7"))), at(HookPlace::ComingInBy(7)));
        assert_eq!(families(told(5, Some(1), ACCEPT, 1, Some("eth7"))), at(HookPlace::LeavingBy(7)));
        assert_eq!(families(told(5, Some(0), ACCEPT, 1, Some("gone"))), everywhere(true, true));
        // For the box itself; of a bridge.
        for (family, hook) in [(1, 1), (1, 3), (7, 2)] {
            let hook = told(family, Some(hook), 0, 5, None).unwrap();
            assert_eq!((hook.at, hook.kind), (HookPlace::Tunnelled, HookKind::Other), "{hook:?}");
        }
        // Without rules; not at a hook.
        assert_eq!(told(1, Some(2), ACCEPT, 0, None), None);
        assert_eq!(told(1, Some(1), ACCEPT, 0, None), None);
        assert_eq!(told(1, None, 0, 5, None), None);
    }

    #[test]
    fn switches_that_lanes_do_not_follow_are_hooks_of_their_interface() {
        let link = Link { index: 3, name: "w0".to_owned(), mtu: 1500, ..Link::default() };
        let with = |known: &[(&str, u32)]| {
            let read =
                |parameter: &str| known.iter().find(|(name, _)| *name == parameter).map(|(_, value)| *value);
            switches_of(&link, &read).collect::<Vec<_>>()
        };
        // A kernel without IPv6 has no such switches.
        assert!(with(&[]).is_empty());
        let on = ("ipv6/conf/all/forwarding", 1);
        assert!(with(&[("ipv4/conf/w0/forwarding", 1), on, ("ipv6/conf/w0/mtu", 1500)]).is_empty());
        let hook = |switch: &str, value| {
            let [hook] = &with(&[on, (switch, value)])[..] else { panic!("{switch}") };
            assert!(hook.what.contains(&format!("net.{}=", switch.replace('/', "."))), "{hook:?}");
            (hook.ipv4, hook.ipv6, hook.at)
        };
        assert_eq!(hook("ipv4/conf/w0/forwarding", 0), (true, false, HookPlace::ComingInBy(3)));
        assert_eq!(hook("ipv4/ip_forward_use_pmtu", 1), (true, false, HookPlace::ComingInBy(3)));
        assert_eq!(hook("ipv6/conf/w0/disable_ipv6", 1), (false, true, HookPlace::ComingInBy(3)));
        assert_eq!(hook("ipv6/conf/w0/mtu", 1400), (true, true, HookPlace::LeavingBy(3)));
        assert_eq!(with(&[("ipv6/conf/all/forwarding", 0), ("ipv4/conf/w0/forwarding", 0)]).len(), 2);
    }

    proptest! {
        #[test]
        fn any_body_is_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (chain(&bytes, &BTreeMap::new()), policy(&bytes), blocks_by_default(&bytes));
        }
    }
}
