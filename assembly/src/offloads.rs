//! Who does the work on packets that a port may do or software has to, port by port: for people who want to know.

use std::fmt;

use serde::Serialize;
use warmlane_mem::HashKind;
use warmlane_port::{Layered, Port, TransmitOffloads, Transports};

/// Who does what for the packets of a port.
#[derive(Clone, Debug, Serialize)]
pub struct PortOffloads {
    /// The port's name.
    pub port: String,
    /// Its driver's.
    pub driver: &'static str,
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

/// Of ports that forward to each other: what one leaves undone, another may have to do.
pub fn offloads(ports: &[Port]) -> Vec<PortOffloads> {
    let leaves = ports.iter().map(|port| port.capabilities.offloads.leaves);
    let left = leaves.fold(TransmitOffloads::NONE, TransmitOffloads::or);
    ports.iter().map(|port| of_port(port, left)).collect()
}

/// `left` is what packets may need that are sent by it.
fn of_port(port: &Port, left: TransmitOffloads) -> PortOffloads {
    let own = &port.capabilities.offloads;
    let mut work = Vec::new();
    if !port.receive.is_empty() {
        let hash = own.hash.map(|kind| {
            match kind {
                HashKind::Toeplitz => "all, by addresses and ports (Toeplitz)",
                HashKind::ToeplitzAddresses => "all, by addresses (Toeplitz)",
                HashKind::Device => "all, in its own way",
                HashKind::Software => "all, by software of the driver",
            }
            .to_owned()
        });
        work.extend([
            Offload {
                work: "check received checksums",
                by_port: layered(own.receive_checksums),
                by_software: Vec::new(),
            },
            whole("take VLAN tags off", own.vlan_strip, false),
            Offload {
                work: "hash flows",
                by_software: all(hash.is_none()),
                by_port: hash.into_iter().collect(),
            },
            whole("note the time of reception", port.capabilities.timestamps, false),
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
    PortOffloads { port: port.name.clone(), driver: port.driver, work }
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
        writeln!(f, "{} ({})", self.port, self.driver)?;
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

    fn port(name: &str, offloads: Offloads) -> Port {
        let mut port = warmlane_memory::null::sink(name, 1);
        port.capabilities.offloads = offloads;
        port
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
            segmentation: Layered::OUTER,
            ..TransmitOffloads { checksums: Layered::ALL, ..TransmitOffloads::NONE }
        };
        let ports = [
            port("leaves", Offloads { leaves: left, ..Offloads::default() }),
            port("able", Offloads { transmit: able, ..Offloads::default() }),
        ];
        let [leaves, able] = &offloads(&ports)[..] else { panic!("two ports") };
        let named = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let wanted = [
            Offload {
                work: "complete checksums",
                by_port: named(&["tcp4", "udp4"]),
                by_software: Vec::new(),
            },
            Offload {
                work: "cut segments (TSO, USO)",
                by_port: named(&["tcp4"]),
                by_software: named(&["inner tcp4"]),
            },
            Offload { work: "put VLAN tags on", by_port: Vec::new(), by_software: named(&["all"]) },
        ];
        // Sinks receive nothing.
        assert_eq!(able.work, wanted);
        assert!(leaves.work.iter().all(|work| work.by_port.is_empty() && !work.by_software.is_empty()));
        let text = able.to_string();
        assert!(text.contains("cut segments (TSO, USO)    the port: tcp4; software: inner tcp4\n"), "{text}");
    }
}
