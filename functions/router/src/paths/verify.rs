//! Compares what programs have been told, and what they decide, with what the kernel says.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::interface::Interface;
use super::layout::Decision;
use crate::control::kernel::{LinkIndex, RequestSocket, Route, RouteQuestion, Target, View};

/// What decisions are about.
type Flow = (LinkIndex, IpAddr, IpAddr, u8, [u16; 2]);

/// Decisions that the kernel would not have made, the last time it was asked.
#[derive(Debug, Default)]
pub(super) struct Suspects(HashMap<Flow, Decision>);

impl Suspects {
    /// Asks the kernel about what programs have decided since a moment of the coarse monotonic clock, and about what was suspect before
    /// and isn't older. Returns how many decisions that was, and of those that the kernel would not make, a sentence each.
    pub(super) fn examine<'a>(
        &mut self,
        interfaces: impl Iterator<Item = &'a Interface>,
        since: u64,
        view: &View,
        socket: &mut RequestSocket,
    ) -> (usize, Vec<String>) {
        let before = std::mem::take(&mut self.0).into_values();
        let mut latest: HashMap<Flow, Decision> = HashMap::new();
        for decision in before.chain(interfaces.flat_map(Interface::decisions)) {
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
    let agrees = |route: &Route| {
        let is_short = route.mtu == 0 || u32::from(decision.length) <= route.mtu;
        match &*route.target {
            Target::Paths(paths) if is_forwarded => {
                let is_taken = |path: &crate::control::kernel::RoutePath| {
                    path.link == decision.egress && path.gateway.unwrap_or(destination) == next_hop
                };
                is_short && paths.iter().any(is_taken)
            }
            Target::Blackhole => !is_forwarded,
            _ => false,
        }
    };
    let theirs = match socket.route_of(&question) {
        Ok(Some((_, route))) if agrees(&route) => return None,
        Ok(Some((_, route))) => {
            // A question has no flow label, and ports of TCP and UDP only, so the kernel can't say which of several paths.
            let has_said_all = matches!(protocol, 6 | 17) && !label;
            if !has_said_all
                && let Ok(Some((_, whole))) = socket.whole_route_of(&question)
                && agrees(&whole)
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
