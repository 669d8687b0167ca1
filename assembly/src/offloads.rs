//! What each port is like, and who does the work on packets that it may do or software has to: for people who want to know.

use std::fmt;

use serde::Serialize;
use warmlane_forward::datapath::Forwarder;
use warmlane_port::software_offload::MERGED;
use warmlane_port::{Layered, Port, TransmitOffloads, Transports};
use warmlane_vxlan::Gateway;
use warmlane_wire::ethernet::MacAddress;

/// What a port is like, and who does what for its packets.
#[derive(Clone, Debug, Serialize)]
pub struct PortOffloads {
    /// The port's name.
    pub port: String,
    /// Its driver's.
    pub driver: &'static str,
    /// How many queues it receives by, one a lane.
    pub receive_queues: usize,
    /// How many it sends by.
    pub transmit_queues: usize,
    /// The largest IP packet in bytes, if that is known.
    pub mtu: Option<u32>,
    /// Its own Ethernet address, if it has one.
    pub address: Option<String>,
    /// The port does what is said as far as the other side agrees when it connects; software does what it doesn't agree to.
    pub if_agreed: bool,
    /// All kinds of work, in the order in which packets meet them.
    pub work: Vec<Offload>,
}

/// A kind of work, and who does it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Offload {
    /// What is done, such as `complete checksums`.
    pub work: &'static str,
    /// The packets for which the port does it, such as `tcp4` and `inner udp6`; `all` where it is the same for all.
    pub by_port: Vec<String>,
    /// Those for which software does it.
    pub by_software: Vec<String>,
}

/// Of ports that forward to each other: what one leaves undone, another may have to do. With tunnels there are a gateway's stages in between.
pub fn offloads(ports: &[Port], has_tunnels: bool) -> Vec<PortOffloads> {
    let (accepted, made) = if has_tunnels {
        (Forwarder::ACCEPTS.and(Gateway::ACCEPTS), Gateway::LEAVES)
    } else {
        (Forwarder::ACCEPTS, TransmitOffloads::NONE)
    };
    let leaves = ports.iter().map(|port| port.capabilities.offloads.leaves);
    let left = leaves.fold(made, |left, leaves| left.or(leaves.and(accepted)));
    ports.iter().map(|port| of_port(port, accepted, left)).collect()
}

/// Stages take packets with the work `accepted` undone, and those that are sent may have `left` undone.
fn of_port(port: &Port, accepted: TransmitOffloads, left: TransmitOffloads) -> PortOffloads {
    let own = &port.capabilities.offloads;
    let mut work = Vec::new();
    if !port.receive.is_empty() {
        let unwanted = own.leaves.without(accepted);
        // What is left to cut was whole when it came, or was merged here.
        let by_port = if own.in_software.merges { Layered::NONE } else { own.leaves.segmentation };
        work.extend([
            Offload {
                work: "check received checksums",
                by_port: layered(own.receive_checksums),
                by_software: Vec::new(),
            },
            Offload {
                work: "merge segments (LRO, GRO)",
                by_port: layered(by_port),
                by_software: layered(if own.in_software.merges {
                    MERGED.segmentation
                } else {
                    Layered::NONE
                }),
            },
            whole("steer by rules", false, own.in_software.steers),
            whole(
                "spread flows (RSS)",
                own.in_software.device_queues.unwrap_or(port.receive.len()) > 1,
                own.in_software.spreads,
            ),
            whole("take VLAN tags off", own.vlan_strip, false),
            whole("note the time of reception", port.capabilities.timestamps, false),
            Offload {
                work: "cut what stages don't take",
                by_port: Vec::new(),
                by_software: layered(unwanted.segmentation),
            },
        ]);
    }
    if !port.transmit.is_empty() {
        let (by_port, by_software) = (left.and(own.transmit), left.without(own.transmit));
        work.extend([
            Offload {
                work: "complete checksums",
                by_port: layered(by_port.checksums),
                by_software: layered(by_software.checksums),
            },
            Offload {
                work: "cut segments (TSO, USO)",
                by_port: layered(by_port.segmentation),
                by_software: layered(by_software.segmentation),
            },
            whole("put VLAN tags on", by_port.vlan_insert, by_software.vlan_insert),
        ]);
    }
    let if_agreed = ["vhost", "virtio"].contains(&port.driver);
    PortOffloads {
        port: port.name.clone(),
        driver: port.driver,
        receive_queues: port.receive.len(),
        transmit_queues: port.transmit.len(),
        mtu: port.capabilities.mtu,
        address: port.capabilities.mac.map(|mac| MacAddress(mac).to_string()),
        if_agreed,
        work,
    }
}

fn whole(work: &'static str, by_port: bool, by_software: bool) -> Offload {
    Offload { work, by_port: all(by_port), by_software: all(by_software) }
}

fn all(is_done: bool) -> Vec<String> {
    is_done.then(|| "all".to_owned()).into_iter().collect()
}

fn layered(Layered { outer, inner }: Layered) -> Vec<String> {
    let names = |layer: &'static str, Transports { tcp4, tcp6, udp4, udp6 }| {
        [("tcp4", tcp4), ("tcp6", tcp6), ("udp4", udp4), ("udp6", udp6)]
            .into_iter()
            .filter(|(_, is_there)| *is_there)
            .map(move |(name, _)| format!("{layer}{name}"))
    };
    names("", outer).chain(names("inner ", inner)).collect()
}

impl fmt::Display for PortOffloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let condition = if self.if_agreed { ", as far as the other side agrees" } else { "" };
        writeln!(f, "{} ({}{condition})", self.port, self.driver)?;
        if let Some(address) = &self.address {
            writeln!(f, "  {:<27}{address}", "address")?;
        }
        if let Some(mtu) = self.mtu {
            writeln!(f, "  {:<27}{mtu} bytes", "largest packet (MTU)")?;
        }
        let queues = [(self.receive_queues, "to receive"), (self.transmit_queues, "to send")];
        let queues = queues.map(|(count, what)| format!("{count} {what}"));
        writeln!(f, "  {:<27}{}", "queues, one a lane", queues.join(", "))?;
        for Offload { work, by_port, by_software } in &self.work {
            let doers = [("the port", by_port), ("software", by_software)];
            let mut parts: Vec<String> = doers
                .iter()
                .filter(|(_, packets)| !packets.is_empty())
                .map(|(who, packets)| format!("{who}: {}", packets.join(", ")))
                .collect();
            if parts.is_empty() {
                parts.push("-".to_owned());
            }
            writeln!(f, "  {work:<27}{}", parts.join("; "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_port::Offloads;
    use warmlane_port::steering::{Action, Match, Rule, Steering};

    fn port(name: &str, offloads: Offloads) -> Port {
        let mut port = warmlane_memory::null::sink(name, 1);
        port.capabilities.offloads = offloads;
        port
    }

    #[test]
    fn queues_that_software_made_are_not_the_devices() {
        let pool = warmlane_mem::Pool::new(&warmlane_mem::PoolConfig::default()).unwrap();
        let of = Match { mac: Some([2; 6]), ..Match::default() };
        let steering = Steering::new(&[Rule { of, action: Action::Drop }], None, 2).unwrap();
        let port = warmlane_memory::null::source("in", &pool, 0).unwrap().steered(&steering);
        let [explained] = &offloads(&[port], false)[..] else { panic!("one port") };
        let work = |name| explained.work.iter().find(|offload| offload.work == name).unwrap();
        assert_eq!(work("steer by rules").by_software, ["all"]);
        assert!(work("spread flows (RSS)").by_port.is_empty(), "{explained}");
    }

    #[test]
    fn what_one_port_leaves_another_does_or_software() {
        let tcp = Transports { tcp4: true, ..Transports::NONE };
        let left = TransmitOffloads {
            checksums: Layered { outer: Transports { udp4: true, ..tcp }, inner: Transports::NONE },
            segmentation: Layered { outer: tcp, inner: tcp },
            vlan_insert: true,
        };
        let able = TransmitOffloads {
            checksums: Layered { outer: tcp, inner: Transports::NONE },
            segmentation: Layered::OUTER,
            ..TransmitOffloads::NONE
        };
        let ports = [
            port("leaves", Offloads { leaves: left, ..Offloads::default() }),
            port("able", Offloads { transmit: able, ..Offloads::default() }),
        ];
        let [leaves, able] = &offloads(&ports, false)[..] else { panic!("two ports") };
        let named = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        // Tags never get behind the forwarder. Sinks receive nothing.
        let wanted = [
            Offload { work: "complete checksums", by_port: named(&["tcp4"]), by_software: named(&["udp4"]) },
            Offload {
                work: "cut segments (TSO, USO)",
                by_port: named(&["tcp4"]),
                by_software: named(&["inner tcp4"]),
            },
            whole("put VLAN tags on", false, false),
        ];
        assert_eq!(able.work, wanted);
        assert_eq!(leaves.work[0].by_software, named(&["tcp4", "udp4"]));
        assert_eq!(leaves.work[1].by_software, named(&["tcp4", "inner tcp4"]));
        let text = able.to_string();
        assert!(text.contains("  complete checksums         the port: tcp4; software: udp4\n"), "{text}");
        // What is in tunnels may be left with its checksum undone, and uncut.
        let [_, able] = &offloads(&ports, true)[..] else { panic!("two ports") };
        for work in &able.work[..2] {
            assert!(work.by_software.contains(&"inner tcp6".to_owned()), "{able}");
        }
    }
}
