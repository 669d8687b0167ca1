//! The tables' routes for who asks, written piece by piece: there may be a million, and the kernel is followed meanwhile.

use std::net::IpAddr;

use serde_json::{Value, json};
use warmlane_forward::control::{NextHop, TableNumber};
use warmlane_table::{IpPrefix, NextHopId};

use super::desired::{Desired, HopKey, host_prefix};
use super::follow::Follower;
use super::kernel::{Route, Target, View};

/// Routes in a piece.
const PIECE: usize = 500;

/// Routes that are to be told yet: those that there were when they were asked for.
#[derive(Debug)]
pub struct RouteList {
    table: TableNumber,
    prefixes: std::vec::IntoIter<IpPrefix>,
    /// What comes before the next.
    separator: String,
}

impl RouteList {
    /// The first routes of a table, or what packets to an address find there; `None` if there is no such table.
    pub(super) fn new(
        follower: &Follower,
        table: TableNumber,
        address: Option<IpAddr>,
        limit: usize,
    ) -> Option<Self> {
        let live = follower.fib().live();
        let (ipv4, ipv6) = (live.ipv4(table)?, live.ipv6(table)?);
        let prefixes: Vec<IpPrefix> = match address {
            Some(IpAddr::V4(ip)) => {
                ipv4.longest_match(ip.to_bits()).map(|(prefix, _)| IpPrefix::V4(prefix)).into_iter().collect()
            }
            Some(IpAddr::V6(ip)) => {
                ipv6.longest_match(ip.to_bits()).map(|(prefix, _)| IpPrefix::V6(prefix)).into_iter().collect()
            }
            None => ipv4
                .routes()
                .map(|(prefix, _)| IpPrefix::V4(prefix))
                .chain(ipv6.routes().map(|(prefix, _)| IpPrefix::V6(prefix)))
                .take(limit)
                .collect(),
        };
        let separator = format!("{{\"total\":{},\"routes\":[", ipv4.len() + ipv6.len());
        Some(Self { table, prefixes: prefixes.into_iter(), separator })
    }

    /// Appends the next piece to a text; `false` if that was the last. What is no more is left out.
    pub(super) fn write(&mut self, follower: &Follower, text: &mut Vec<u8>) -> bool {
        for prefix in self.prefixes.by_ref().take(PIECE) {
            if let Some(route) = route(follower, self.table, prefix) {
                text.extend(self.separator.as_bytes());
                text.extend(route.to_string().into_bytes());
                ",".clone_into(&mut self.separator);
            }
        }
        if self.prefixes.len() > 0 {
            return true;
        }
        if self.separator != "," {
            text.extend(self.separator.as_bytes());
        }
        text.extend(b"]}");
        false
    }
}

/// The route of lanes' tables to a prefix.
fn route(follower: &Follower, table: TableNumber, prefix: IpPrefix) -> Option<Value> {
    let live = follower.fib().live();
    let id: NextHopId = match prefix {
        IpPrefix::V4(prefix) => live.ipv4(table)?.route(prefix)?,
        IpPrefix::V6(prefix) => live.ipv6(table)?.route(prefix)?,
    };
    let (interfaces, gateways) = paths(follower, table, prefix);
    let leads_to = match follower.fib().next_hop(id) {
        Some(NextHop::Punt) if !interfaces.is_empty() => {
            Some(format!("the kernel, out of {}", interfaces.join(" or ")))
        }
        hop => hop.map(|hop| follower.fib().describe(hop, follower.view())),
    };
    let protocol = protocol(follower, table, prefix).map(protocol_name);
    Some(json!({
        "prefix": prefix.to_string(), "leads_to": leads_to, "gateways": gateways, "protocol": protocol,
    }))
}

/// The interfaces and the gateways that a route of a lanes' table goes by.
fn paths(follower: &Follower, table: TableNumber, prefix: IpPrefix) -> (Vec<String>, Vec<IpAddr>) {
    let desired = Desired::new(follower.view(), follower.fib().all_ports());
    let key = follower.fib().tables().get(table).and_then(|table| desired.route(&table.policy, prefix));
    let paths = match key {
        Some(HopKey::Path(link, gateway, _)) => vec![(link, gateway)],
        Some(HopKey::Target(target, _)) => desired.links_and_gateways(&target),
        _ => Vec::new(),
    };
    let name = |link| follower.view().links().get(&link).map(|link| link.name.clone());
    let gateways =
        paths.iter().filter_map(|(_, gateway)| *gateway).filter(|&gateway| host_prefix(gateway) != prefix);
    (paths.iter().filter_map(|(link, _)| name(*link)).collect(), gateways.collect())
}

/// A route of the kernel's own, where there are no tables of lanes.
pub(super) fn shown(view: &View, prefix: IpPrefix, route: &Route) -> Value {
    let paths = match &*route.target {
        Target::Paths(paths) => &paths[..],
        _ => &[],
    };
    let name = |link| view.links().get(&link).map_or("an interface that is gone", |link| link.name.as_str());
    let mut leads_to: Vec<&str> = paths.iter().map(|path| name(path.link)).collect();
    leads_to.dedup();
    let leads_to = match &*route.target {
        Target::Paths(_) => leads_to.join(" or "),
        Target::Local => "the kernel, whose address it is".to_owned(),
        Target::Broadcast => "all neighbours on a link".to_owned(),
        Target::Blackhole => "nowhere".to_owned(),
        Target::Unreachable => "nowhere, and the sender is told".to_owned(),
        Target::Prohibit => "nowhere, and the sender is told that it's prohibited".to_owned(),
        Target::Object(_) | Target::KernelOnly => "where only the kernel can send it".to_owned(),
    };
    let gateways: Vec<IpAddr> = paths.iter().filter_map(|path| path.gateway).collect();
    json!({
        "prefix": prefix.to_string(), "leads_to": leads_to, "gateways": gateways, "protocol": protocol_name(route.protocol),
    })
}

/// Who made the kernel's route to a prefix; neighbours are no routes there.
fn protocol(follower: &Follower, table: TableNumber, prefix: IpPrefix) -> Option<u8> {
    let tables = follower.fib().tables().get(table)?.policy.tables();
    let routes = tables.into_iter().find_map(|number| follower.view().table(number)?.get(prefix));
    routes?.as_slice().first().map(|route| route.protocol)
}

/// What `ip route` calls it (`/etc/iproute2/rt_protos`, `include/uapi/linux/rtnetlink.h: RTPROT_*`).
fn protocol_name(number: u8) -> String {
    let name = match number {
        1 => "redirect",
        2 => "kernel",
        3 => "boot",
        4 => "static",
        8 => "gated",
        9 => "ra",
        10 => "mrt",
        11 => "zebra",
        12 => "bird",
        13 => "dnrouted",
        14 => "xorp",
        15 => "ntk",
        16 => "dhcp",
        17 => "mrouted",
        18 => "keepalived",
        42 => "babel",
        186 => "bgp",
        187 => "isis",
        188 => "ospf",
        189 => "rip",
        192 => "eigrp",
        other => return other.to_string(),
    };
    name.to_owned()
}
