//! The interfaces by which the kernel gets what only it can forward.

use super::ports::UserPortsError;
use std::fs;
use warmlane_kernel::tap::{self, TapOptions};
use warmlane_mem::Pool;
use warmlane_port::Port;
use warmlane_router::datapath::Entrance;
use warmlane_wire::MacAddress;
use warmlane_xdp::{Reentry, XdpPort};

/// Their names: the kernel puts a number in.
const NAME: &str = "warmlane%d";

/// A TAP interface for the packets of one port.
pub(super) struct PuntInterface {
    name: String,
    mac: MacAddress,
    /// What leads packets back to the interface that they came in by.
    reentry: Option<Reentry>,
}

impl PuntInterface {
    /// Makes one, with a queue for each lane.
    pub(super) fn open(lanes: usize, pool: &Pool) -> Result<(Self, Port), UserPortsError> {
        let config =
            TapOptions { interface: Some(NAME.to_owned()), offloads: false, ..TapOptions::default() };
        let queues = u16::try_from(lanes).unwrap_or(u16::MAX);
        let mut port = tap::open(&config, queues, pool).map_err(UserPortsError::Punt)?;
        // What the kernel would send by it is nobody's.
        port.receive.clear();
        let name = port.name.clone();
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
        let mac = address
            .trim()
            .parse()
            .map_err(|source| UserPortsError::PuntAddress { interface: name.clone(), source })?;
        Ok((Self { name, mac, reentry: None }, port))
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Leads nothing back any more.
    pub(super) fn disconnect(&mut self) {
        self.reentry = None;
    }

    /// Leads what the kernel gets by it back into a port, if that can be; a sentence if not.
    pub(super) fn connect(&mut self, port: &XdpPort) -> (Entrance, Option<String>) {
        match self.lead_to(port) {
            Ok(reentry) => {
                self.reentry = Some(reentry);
                (Entrance::Port, None)
            }
            Err(reason) => {
                let (name, own) = (&port.port.name, &self.name);
                let note = format!(
                    "what only the kernel can forward of interface '{name}' reaches it by {own} ({reason}): rules and filters of the kernel's that look at the interface don't see '{name}', and packets of VRFs and of such rules are dropped instead; Linux 6.6 and native XDP avoid that"
                );
                (Entrance::Other(self.mac), Some(note))
            }
        }
    }

    fn lead_to(&self, port: &XdpPort) -> Result<Reentry, String> {
        if port.monitor.obtained.native {
            Reentry::new(&self.name, &port.port.name).map_err(|error| error.to_string())
        } else {
            Err("its XDP program is in generic mode".to_owned())
        }
    }
}
