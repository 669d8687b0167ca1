//! What the control socket understands: one JSON object a line in, one a line out. docs/router.md describes it.

use std::net::IpAddr;

use serde::Deserialize;
use serde_json::{Value, json};
use warmlane_control::{Answer, Answers, Common};
use warmlane_forward::control::{IpTunnel, NextHop};

use super::desired::Desired;
use super::follow::Follower;
use super::kernel::{IpTunnelDevice, Link, NeighbourState, View, Vxlan};
use super::route_list::{RouteList, shown};
use super::verify::{Reference, describe};

/// Routes and neighbours in an answer, unless the request says otherwise.
const USUAL_LIMIT: usize = 1000;

/// Neighbours in an answer at most, for that is made at once. The kernel has fewer, unless it is told to.
const MOST_NEIGHBOURS: usize = 65_536;

/// What a router answers on its control socket.
pub struct RouterAnswers<'a> {
    /// What all instances answer.
    pub common: &'a Common,
    /// What it knows of the kernel.
    pub follower: &'a mut Follower,
    /// The program that it runs in.
    pub host: &'a mut dyn Host,
}

impl Answers for RouterAnswers<'_> {
    type List = RouteList;

    fn answer(&mut self, line: &[u8]) -> Answer<RouteList> {
        self.common.try_answer(line).unwrap_or_else(|| match Request::parse(line) {
            Ok(request) => request.answer(self.follower, self.host),
            Err(sentence) => Answer::error(sentence),
        })
    }

    fn go_on(&mut self, list: &mut RouteList, text: &mut Vec<u8>) -> bool {
        list.write(self.follower, text)
    }
}

/// The program that a router runs in: what it can tell and do.
pub trait Host {
    /// All that was counted, also by the [`Follower`].
    fn counters(&mut self) -> Value;

    /// Which path packets of each interface take.
    fn paths(&mut self) -> Value;

    /// What is not as an operator may think, a sentence each, apart from what the [`Follower`] knows.
    fn warnings(&mut self, view: &View) -> Vec<String>;

    /// Compares paths inside the kernel with it: how many of their decisions it was asked about, and what is different, a sentence each.
    fn verify(&mut self, reference: Reference<'_>) -> (usize, Vec<String>);

    /// Reads the configuration again and goes on by it. Says what is different now, a sentence each.
    ///
    /// # Errors
    /// A sentence that says why nothing was changed.
    fn reload(&mut self, follower: &mut Follower) -> Result<Vec<String>, String>;
}

/// A request to a running router.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "ask", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// How it is.
    Status {},
    /// What was counted.
    Counters {},
    /// What the tables hold: all prefixes, or what one address finds.
    Routes {
        /// Only what packets to this address would find.
        address: Option<IpAddr>,
        /// At most so many.
        limit: Option<usize>,
        /// Which table; 0 is the one outside of VRFs.
        table: Option<u16>,
    },
    /// Neighbours on the interfaces.
    Neighbours {
        /// At most so many.
        limit: Option<usize>,
    },
    /// Whether the tables are what the kernel's are.
    Verify {},
    /// To read the configuration again.
    Reload {},
}

impl Request {
    /// Reads a request.
    ///
    /// # Errors
    /// A sentence that says what is wrong, and what would be right.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(line).map_err(|error| {
            format!("that is no request ({error}): write one like {{\"ask\":\"status\"}}, see docs/router.md")
        })
    }

    /// Answers it.
    pub fn answer(&self, follower: &mut Follower, host: &mut dyn Host) -> Answer<RouteList> {
        Answer::whole(&match self {
            Self::Status {} => {
                let mut status = status(follower, host.warnings(follower.view()));
                if let Value::Object(map) = &mut status {
                    map.insert("paths".to_owned(), host.paths());
                }
                status
            }
            Self::Counters {} => host.counters(),
            Self::Routes { address, limit, table } => {
                let (table, limit) = (table.unwrap_or(0), limit.unwrap_or(USUAL_LIMIT));
                if !follower.has_lanes() {
                    return Answer::whole(&kernel_route(follower, *address));
                }
                match RouteList::new(follower, table, *address, limit) {
                    Some(list) => return Answer::List(list),
                    None => json!({ "error": format!("there is no table {table}: \"status\" lists them") }),
                }
            }
            Self::Neighbours { limit } => {
                neighbours(follower, limit.unwrap_or(USUAL_LIMIT).min(MOST_NEIGHBOURS))
            }
            Self::Verify {} => match follower.verify(host) {
                Ok(comparison) => json!(comparison),
                Err(error) => json!({ "error": format!("the kernel's routes can't be listed: {error}") }),
            },
            Self::Reload {} => match host.reload(follower) {
                Ok(changed) => json!({ "changed": changed }),
                Err(sentence) => json!({ "error": sentence }),
            },
        })
    }
}

fn status(follower: &Follower, more_warnings: Vec<String>) -> Value {
    let (view, fib) = (follower.view(), follower.fib());
    let (ipv4, ipv6) = fib.route_counts();
    let ports: Vec<Value> = fib
        .ports()
        .iter()
        .enumerate()
        .filter(|(_, port)| port.is_taken())
        .map(|(number, port)| match view.links().get(&port.link) {
            Some(link) => json!({
                "interface": link.name,
                "up": link.is_up,
                "mtu": link.mtu.min(u32::from(port.mtu_limit)),
                "mac": link.mac.map(|mac| warmlane_wire::MacAddress(mac).to_string()),
                "table": fib.table_in_use(number as u16, None),
                "urpf": fib.source_check(&port.name).to_string(),
                "addresses": view.addresses(link.index)
                    .map(|own| format!("{}/{}", own.address, own.length)).collect::<Vec<_>>(),
            }),
            None => json!({ "interface": null, "gone": true }),
        })
        .collect();
    let tables: Vec<Value> = fib
        .tables()
        .iter()
        .map(|table| json!({ "table": table.number, "kernel": table.policy.tables(), "vrf": table.policy.vrf.is_some() }))
        .collect();
    let warnings = [follower.warnings(), more_warnings].concat();
    let tunnels = tunnels(follower);
    if !follower.has_lanes() {
        return json!({ "ports": ports, "warnings": warnings });
    }
    json!({
        "ports": ports,
        "tables": tables,
        "tunnels": tunnels,
        "routes": { "ipv4": ipv4, "ipv6": ipv6 },
        "next_hops": fib.next_hop_count(),
        "kernel_routes": view.route_count(),
        "warnings": warnings,
    })
}

/// The tunnels that packets can go through, and what lanes have to do with each.
fn tunnels(follower: &Follower) -> Vec<Value> {
    let (view, fib) = (follower.view(), follower.fib());
    let devices = view.links().values().filter_map(|link| Some((link, link.vxlan.as_ref()?)));
    let counts = |link: &Link| match fib.tunnel_counts().get(&link.index) {
        Some(counts) => (counts.encapsulated.get(), counts.decapsulated.get()),
        None => ((0, 0), (0, 0)),
    };
    let counted = |(packets, bytes): (u64, u64)| json!({ "packets": packets, "bytes": bytes });
    let tunnel = |(link, vxlan): (&Link, &Vxlan)| {
        let mut remotes: Vec<IpAddr> =
            view.stations().of_device(link.index).map(|(_, end)| end.address).collect();
        remotes.sort_unstable();
        remotes.dedup();
        let is_taken = fib.arrivals().tunnels.iter().any(|tunnel| tunnel.device == link.index);
        let (encapsulated, decapsulated) = counts(link);
        json!({
            "device": link.name,
            "vni": vxlan.identifier,
            "local": vxlan.local,
            "udp_port": vxlan.udp_port,
            "network": link.master.and_then(|master| view.links().get(&master)).map(|master| &master.name),
            "up": link.is_up,
            "remotes": remotes,
            "by_lanes": is_taken,
            "encapsulated": counted(encapsulated),
            "decapsulated": counted(decapsulated),
        })
    };
    let packets = view.links().values().filter_map(|link| Some((link, link.ip_tunnel.as_ref()?)));
    let packet_tunnel = |(link, device): (&Link, &IpTunnelDevice)| {
        let [_, outward] = device.tunnel;
        let mut tunnel = json!({
            "device": link.name,
            "kind": link.kind,
            "local": device.local,
            "up": link.is_up,
            "remotes": [device.remote],
            "by_lanes": fib.arrivals().packets.iter().any(|tunnel| tunnel.device == link.index),
            "encapsulated": counted(counts(link).0),
            "decapsulated": counted(counts(link).1),
        });
        if let IpTunnel::Gre(Some(key)) = outward {
            tunnel["key"] = key.into();
        }
        tunnel
    };
    // The kernel's modules each make a device that is no tunnel.
    let packets = packets.filter(|(_, device)| !device.remote.is_unspecified());
    devices.map(tunnel).chain(packets.map(packet_tunnel)).collect()
}

/// What packets to an address find where there are no lanes: the kernel's own route.
fn kernel_route(follower: &mut Follower, address: Option<IpAddr>) -> Value {
    let Some(address) = address else {
        return json!({ "error":
            "without lanes the routes are the kernel's own, and `ip route` shows them; `warmlane router routes ADDRESS` says what one address finds"
        });
    };
    match follower.ask_for_route(address) {
        Ok(None) => json!({ "total": 0, "routes": [] }),
        Ok(Some((prefix, route))) => {
            json!({ "total": 1, "routes": [shown(follower.view(), prefix, &route)] })
        }
        // Its routes say so by these errors (`net/ipv4/fib_semantics.c: fib_props`).
        Err(error) => json!({ "error": format!("the kernel has no way there: {error}") }),
    }
}

fn neighbours(follower: &Follower, limit: usize) -> Value {
    let view = follower.view();
    let mut all: Vec<_> =
        view.neighbours().filter(|known| !follower.has_lanes() || follower.is_ours(known.link)).collect();
    all.sort_by_key(|known| (known.link, known.address));
    let total = all.len();
    let list: Vec<Value> = all
        .into_iter()
        .take(limit)
        .map(|known| {
            let state = match known.state {
                NeighbourState::Known(_) => "known",
                NeighbourState::Stale(_) => "stale",
                NeighbourState::Unknown => "unknown",
            };
            json!({
                "interface": view.links().get(&known.link).map(|link| &link.name),
                "address": known.address,
                "mac": known.state.mac().map(|mac| warmlane_wire::MacAddress(mac).to_string()),
                "state": state,
            })
        })
        .collect();
    json!({ "total": total, "neighbours": list })
}

/// What a group's members are, or a next hop is, in words.
pub(crate) fn words<'a>(hops: impl Iterator<Item = &'a NextHop>, names: &Desired<'_>) -> String {
    let mut all: Vec<String> = hops.map(|hop| describe(hop, names)).collect();
    all.sort();
    all.dedup();
    all.join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn requests_are_read() {
        assert_eq!(Request::parse(br#"{"ask":"status"}"#), Ok(Request::Status {}));
        let routes = Request::parse(br#"{"ask":"routes","address":"2001:db8::1","limit":7}"#).unwrap();
        let address = Some("2001:db8::1".parse().unwrap());
        assert_eq!(routes, Request::Routes { address, limit: Some(7), table: None });
        for wrong in
            [&b"status"[..], br#"{"ask":"reboot"}"#, br#"{"ask":"routes","address":"x"}"#, b"", b"\xff"]
        {
            assert!(Request::parse(wrong).unwrap_err().contains("docs/router.md"));
        }
        assert!(Request::parse(br#"{"ask":"routes","adress":"192.0.2.1"}"#).is_err());
    }

    proptest! {
        #[test]
        fn any_line_is_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Request::parse(&bytes);
        }
    }
}
