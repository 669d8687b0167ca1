//! The interfaces by which the kernel gets what only it can forward.

use crate::messages;
use anyhow::Context as _;
use std::fs;
use warmlane::drivers::kernel::tap::{self, TapOptions};
use warmlane::drivers::xdp::{Reentry, XdpPort};
use warmlane::functions::router::datapath::Entrance;
use warmlane::lane::Output;
use warmlane::mem::Pool;
use warmlane::port::PortView;
use warmlane::port::TransmitQueue;
use warmlane::wire::MacAddress;

/// Their names: the kernel puts a number in.
const NAME: &str = "warmlane%d";

/// A TAP interface for the packets of one port, with a queue for each lane.
pub(super) struct PuntInterface {
    name: String,
    mac: MacAddress,
    view: PortView,
    queues: Vec<Box<dyn TransmitQueue>>,
}

/// Makes one for each port.
pub(super) fn open(ports: usize, lanes: usize, pool: &Pool) -> anyhow::Result<Vec<PuntInterface>> {
    (0..ports).map(|_| PuntInterface::open(lanes, pool)).collect()
}

impl PuntInterface {
    fn open(lanes: usize, pool: &Pool) -> anyhow::Result<Self> {
        let config =
            TapOptions { interface: Some(NAME.to_owned()), offloads: false, ..TapOptions::default() };
        let queues = u16::try_from(lanes).unwrap_or(u16::MAX);
        let port =
            tap::open(&config, queues, pool).context("the interface by which the kernel gets packets")?;
        let view = port.view();
        let name = port.name;
        let set = |parameter: String, value: &str| {
            // A kernel without IPv6 has no such file.
            let _ = fs::write(format!("/proc/sys/net/{parameter}"), value);
        };
        // Where packets come in there from everywhere, a strict check of their sources would drop them. The stricter of
        // this and what is said for all interfaces counts, but loose (2) counts more than strict (1).
        let all = fs::read_to_string("/proc/sys/net/ipv4/conf/all/rp_filter").unwrap_or_default();
        set(format!("ipv4/conf/{name}/rp_filter"), if all.trim() == "0" { "0" } else { "2" });
        set(format!("ipv4/conf/{name}/forwarding"), "1");
        set(format!("ipv6/conf/{name}/forwarding"), "1");
        let address = fs::read_to_string(format!("/sys/class/net/{name}/address")).unwrap_or_default();
        let mac = address.trim().parse().with_context(|| format!("the address of interface {name}"))?;
        Ok(Self { name, mac, view, queues: port.transmit })
    }

    /// What stays readable of it.
    pub(super) fn view(&self) -> PortView {
        self.view.clone()
    }
}

/// What leads punted packets back to the ports that they came in by.
pub(super) struct Punts {
    /// By port.
    pub(super) entrances: Vec<Entrance>,
    /// The interface of each port, and what leads packets back, to be kept as long as they are to go that way.
    pub(super) interfaces: Vec<(String, Option<Reentry>)>,
    /// By lane, and then by port.
    pub(super) outputs: Vec<Vec<(String, Output)>>,
}

/// Connects the interfaces with the ports.
pub(super) fn connect(interfaces: Vec<PuntInterface>, ports: &[XdpPort], lanes: usize) -> Punts {
    let mut outputs: Vec<Vec<(String, Output)>> = (0..lanes).map(|_| Vec::new()).collect();
    let mut entrances = Vec::new();
    let mut kept = Vec::new();
    for (interface, port) in interfaces.into_iter().zip(ports) {
        let name = &port.port.name;
        let (reentry, entrance) = match reentry(&interface.name, port) {
            Ok(reentry) => (Some(reentry), Entrance::Port),
            Err(reason) => {
                messages::note(format_args!(
                    "what only the kernel can forward of interface '{name}' reaches it by {} ({reason}): rules and filters of the kernel's that look at the interface don't see '{name}', and packets of VRFs and of such rules are dropped instead; Linux 6.6 and native XDP avoid that",
                    interface.name
                ));
                (None, Entrance::Other(interface.mac))
            }
        };
        entrances.push(entrance);
        kept.push((interface.name.clone(), reentry));
        for (outputs, queue) in outputs.iter_mut().zip(interface.queues) {
            outputs.push((interface.name.clone(), queue.into()));
        }
    }
    Punts { entrances, interfaces: kept, outputs }
}

/// Leads what the kernel gets by an interface of ours back into a port, or says why that can't be.
pub(super) fn reentry(from: &str, port: &XdpPort) -> Result<Reentry, String> {
    if port.monitor.obtained.native {
        Reentry::new(from, &port.port.name).map_err(|error| error.to_string())
    } else {
        Err("its XDP program is in generic mode".to_owned())
    }
}
