//! Compares what programs have been told, and what they decide, with what the kernel says.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::layout::Decision;
use crate::control::kernel::{LinkIndex, RequestSocket, Route, RouteQuestion, Target, View};

/// What decisions are about.
type Flow = (LinkIndex, IpAddr, IpAddr, u8, [u16; 2]);

/// Decisions that the kernel would not have made, the last time it was asked.
#[derive(Debug, Default)]
pub(super) struct Suspects(HashMap<Flow, Decision>);

impl Suspects {
    /// Asks the kernel about those of the decisions of late that were made since a moment of the coarse monotonic clock, and about what
    /// was suspect before and isn't older. Returns how many that was, and of those that the kernel would not make, a sentence each.
    pub(super) fn examine(
        &mut self,
        of_late: impl Iterator<Item = Decision>,
        since: u64,
        view: &View,
        socket: &mut RequestSocket,
    ) -> (usize, Vec<String>) {
        let before = std::mem::take(&mut self.0).into_values();
        let mut latest: HashMap<Flow, Decision> = HashMap::new();
        for decision in before.chain(of_late) {
            if decision.decided > since {
                let known = latest.entry(flow(&decision)).or_insert(decision);
                *known = if known.decided < decision.decided { decision } else { *known };
            }
        }
        let count = latest.len();
        let mut sentences = Vec::new();
        for (flow, decision) in latest {
            if let Some(sentence) = disagreement(&decision, view, socket) {
                sentences.push(sentence);
                self.0.insert(flow, decision);
            }
        }
        (count, sentences)
    }
}

fn address(family: u8, bytes: [u8; 16]) -> IpAddr {
    const IPV4: u8 = 2;
    let [a, b, c, d, ..] = bytes;
    if family == IPV4 { Ipv4Addr::new(a, b, c, d).into() } else { Ipv6Addr::from(bytes).into() }
}

fn flow(decision: &Decision) -> Flow {
    let of = |bytes| address(decision.family, bytes);
    let ports = decision.ports.map(u16::from_be_bytes);
    (decision.ingress, of(decision.source), of(decision.destination), decision.protocol, ports)
}

/// Whether the kernel would do otherwise, and what.
fn disagreement(decision: &Decision, view: &View, socket: &mut RequestSocket) -> Option<String> {
    let (ingress, source, destination, protocol, ports) = flow(decision);
    // Everything else was left to the kernel.
    let is_forwarded = match decision.result {
        Decision::SUCCESS | Decision::NO_NEIGHBOUR => true,
        Decision::BLACKHOLE => false,
        _ => return None,
    };
    let [first, second, third, fourth] = decision.flow_info;
    let (tos, label) = match destination {
        IpAddr::V4(_) => (first, false),
        IpAddr::V6(_) => (first << 4 | second >> 4, second & 0xf != 0 || third != 0 || fourth != 0),
    };
    let question =
        RouteQuestion { ingress: Some(ingress), source: Some(source), destination, protocol, ports, tos };
    let next_hop = address(decision.next_hop_family, decision.next_hop);
    let goes_there = |route: &Route| match &*route.target {
        Target::Paths(paths) if is_forwarded => {
            let is_taken = |path: &crate::control::kernel::RoutePath| {
                path.link == decision.egress && path.gateway.unwrap_or(destination) == next_hop
            };
            paths.iter().any(is_taken)
        }
        Target::Blackhole => !is_forwarded,
        _ => false,
    };
    let fits = |route: &Route| route.mtu == 0 || !is_forwarded || u32::from(decision.length) <= route.mtu;
    let theirs = match socket.route_of(&question) {
        Ok(Some((_, route))) if goes_there(&route) && fits(&route) => return None,
        Ok(Some((_, route))) => {
            // A question has no flow label, and ports of TCP and UDP only, so the kernel can't say which of several paths. And it tells of
            // an MTU that it has learned for its own packets, where those that it forwards go by the route's (`ip_dst_mtu_maybe_forward`).
            let has_said_all = matches!(protocol, 6 | 17) && !label;
            if (goes_there(&route) || !has_said_all)
                && let Ok(Some((_, whole))) = socket.whole_route_of(&question)
                && goes_there(&whole)
                && fits(&whole)
            {
                return None;
            }
            words(&route, view)
        }
        Ok(None) => "it has no route".to_owned(),
        // So it says that a route is a blackhole (`net/ipv4/fib_semantics.c: fib_props`).
        Err(error) if !is_forwarded && error.kind() == io::ErrorKind::InvalidInput => return None,
        // The interface went away.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => return None,
        Err(error) => format!("it refuses: {error}"),
    };
    let ours = if is_forwarded {
        format!("are sent out of {} to {next_hop}", name(decision.egress, view))
    } else {
        "are dropped".to_owned()
    };
    Some(format!(
        "packets from {source} to {destination} that come in by {} {ours}, and the kernel would do otherwise: {theirs}",
        name(ingress, view)
    ))
}

fn name(link: LinkIndex, view: &View) -> &str {
    view.links().get(&link).map_or("an interface that is gone", |link| link.name.as_str())
}

fn words(route: &Route, view: &View) -> String {
    let Target::Paths(paths) = &*route.target else { return format!("{:?}", route.target) };
    let path = |path: &crate::control::kernel::RoutePath| match path.gateway {
        Some(gateway) => format!("out of {} to {gateway}", name(path.link, view)),
        None => format!("out of {}", name(path.link, view)),
    };
    let mtu = if route.mtu == 0 { String::new() } else { format!(", up to {} bytes", route.mtu) };
    paths.iter().map(path).collect::<Vec<_>>().join(" or ") + &mtu
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd as _;

    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    use warmlane_testkit::namespace::{Namespace, link};
    use warmlane_testkit::requirements;

    fn ipv4(text: &str) -> [u8; 16] {
        let Ok(IpAddr::V4(address)) = text.parse() else { panic!("{text} is an IPv4 address") };
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&address.octets());
        bytes
    }

    /// Asks the kernel in whose network namespace the calling thread is.
    fn examined(suspects: &mut Suspects, decisions: &[Decision]) -> (usize, Vec<String>) {
        let (mut view, mut socket) = (View::default(), RequestSocket::new().unwrap());
        socket.list_links(|event| view.apply(event)).unwrap();
        suspects.examine(decisions.iter().copied(), 1, &view, &mut socket)
    }

    /// Takes the calling thread into a network namespace, and returns a decision that the kernel there would make, too.
    fn right_in(router: &Namespace) -> Decision {
        let network = File::open(format!("/run/netns/{}", router.name())).unwrap();
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        let (mut view, mut socket) = (View::default(), RequestSocket::new().unwrap());
        socket.list_links(|event| view.apply(event)).unwrap();
        let [west, east] = ["w0", "e0"].map(|name| view.link_by_name(name).unwrap().index);
        Decision {
            decided: 2,
            source: ipv4("192.0.2.2"),
            destination: ipv4("203.0.113.7"),
            next_hop: ipv4("198.51.100.2"),
            ingress: west,
            egress: east,
            result: Decision::SUCCESS,
            ports: [[0x30, 0x39], [0, 9]],
            length: 1000,
            protocol: 17,
            family: 2,
            next_hop_family: 2,
            ..Decision::default()
        }
    }

    fn wrong_decisions_are_told_in(router: &Namespace) {
        let right = right_in(router);
        let to = |text| Decision { destination: ipv4(text), ..right };
        let dropped = |text| Decision { result: Decision::BLACKHOLE, ..to(text) };
        let mut suspects = Suspects::default();
        // What was passed to the kernel, and what is older than its last change, can't be wrong.
        let unreachable = Decision { result: 2, ..to("203.0.113.8") };
        let old = Decision { decided: 1, next_hop: ipv4("198.51.100.9"), ..to("203.0.113.9") };
        let all = [right, dropped("203.0.114.7"), unreachable, old];
        assert_eq!(examined(&mut suspects, &all), (3, Vec::new()));
        for (wrong, ours, theirs) in [
            (
                Decision { next_hop: ipv4("198.51.100.9"), ..right },
                "out of e0 to 198.51.100.9",
                "out of e0 to 198.51.100.2",
            ),
            (
                Decision { egress: right.ingress, ..right },
                "out of w0 to 198.51.100.2",
                "out of e0 to 198.51.100.2",
            ),
            (Decision { length: 1301, ..to("203.0.115.7") }, "out of e0", "up to 1300 bytes"),
            (dropped("203.0.113.7"), "are dropped", "out of e0 to 198.51.100.2"),
            (to("203.0.114.7"), "out of e0 to 198.51.100.2", "it refuses"),
            (to("203.0.116.7"), "out of e0 to 198.51.100.2", "it refuses"),
        ] {
            let (count, told) = examined(&mut Suspects::default(), &[wrong]);
            assert_eq!((count, told.len()), (1, 1), "{wrong:?}: {told:?}");
            let (before, after) = told[0].split_once(", and the kernel would do otherwise: ").unwrap();
            assert!(before.contains("that come in by w0") && before.contains(ours), "{}", told[0]);
            assert!(after.contains(theirs), "{}", told[0]);
        }
        // It is asked about again, though the program may have forgotten it, until the kernel agrees.
        let wrong = Decision { next_hop: ipv4("198.51.100.9"), ..right };
        assert_eq!(examined(&mut suspects, &[right, wrong]).1, Vec::<String>::new(), "the first is as new");
        let newer = Decision { decided: 3, ..wrong };
        assert_eq!(examined(&mut suspects, &[right, newer]).1.len(), 1);
        assert_eq!(examined(&mut suspects, &[]).1.len(), 1);
        router.ip("route replace 203.0.113.0/24 via 198.51.100.9");
        assert_eq!(examined(&mut suspects, &[]), (1, Vec::new()));
        assert_eq!(examined(&mut suspects, &[]), (0, Vec::new()));
    }

    /// What the kernel learns for its own packets doesn't count for those that it forwards.
    fn learned_mtus_are_no_difference_in(router: &Namespace) {
        let long = Decision { length: 1400, ..right_in(router) };
        router.run("ping -n -c 1 -W 10 -M do -s 1400 203.0.113.7");
        let route = router.run("ip route get 203.0.113.7 from 192.0.2.2 iif w0").output;
        assert!(route.contains("mtu 1300"), "it was learned: {route}");
        assert_eq!(examined(&mut Suspects::default(), &[long]), (1, Vec::new()));
        let elsewhere = Decision { next_hop: ipv4("198.51.100.9"), ..long };
        assert_eq!(examined(&mut Suspects::default(), &[elsewhere]).1.len(), 1);
    }

    /// Made-up decisions, and a real kernel: a router, and a gateway in the east that carries less than it.
    fn check_in_a_router(check: fn(&Namespace)) {
        if !requirements::namespaces_and(&["ip", "sysctl", "ping"]) {
            return;
        }
        let (router, hosts) = (Namespace::new("router"), Namespace::new("hosts"));
        for (interface, network) in [("w0", "192.0.2"), ("e0", "198.51.100")] {
            link((&router, interface), (&hosts, interface), 1500);
            for (namespace, last) in [(&router, 1), (&hosts, 2)] {
                namespace.set("net.ipv4.ip_forward", "1");
                namespace.ip(&format!("address add {network}.{last}/24 dev {interface}"));
            }
        }
        router.ip("route add 203.0.113.0/24 via 198.51.100.2");
        router.ip("route add blackhole 203.0.114.0/24");
        router.ip("route add 203.0.115.0/24 via 198.51.100.2 mtu 1300");
        hosts.ip("route add 203.0.113.0/24 via 192.0.2.9 mtu lock 1300");
        // A thread can't be in another namespace for the others of its process.
        std::thread::scope(|scope| scope.spawn(|| check(&router)).join().unwrap());
    }

    #[test]
    fn what_the_kernel_would_not_do_is_told() {
        check_in_a_router(wrong_decisions_are_told_in);
    }

    #[test]
    fn learned_mtus_are_no_difference() {
        check_in_a_router(learned_mtus_are_no_difference_in);
    }
}
