//! The driver as the rest of the program sees it.

use crate::bpf::Steering;
use crate::options::XdpOptions;
use crate::port::{self, XdpPort};
use crate::umem::Umem;
use std::collections::HashSet;
use warmlane_driver_common::{
    Direction, Driver, DriverHelp, Environment, OpenError, SystemError, driver_help,
};
use warmlane_port::Port;

/// Packets that a port that only sends gives to the kernel at once: those that wait in a longer ring leave the caches
/// before they are sent.
const RING_TO_SEND: u32 = 256;

/// Ports on existing interfaces, by AF_XDP.
#[derive(Debug)]
pub struct XdpDriver;

impl Driver for XdpDriver {
    const HELP: DriverHelp = driver_help! {
        "xdp": "An existing interface, by AF_XDP, which keeps its driver. Needs CAP_NET_RAW, CAP_NET_ADMIN \
            and CAP_BPF.";
        examples: "xdp:eth0", "xdp:eth0,mode=zero-copy,steering=transit";
        "interface" "NAME": "the interface";
        "mode" "best|zero-copy|copy|generic": "how packets are exchanged with the kernel; without it, the \
            best that works";
        "steering" "all|transit|none": "take all packets, or only those that pass through: those for the \
            kernel's own addresses, for groups, and what is not IP stay with the kernel; or none, to only \
            send; without it, all";
        "take-all" "": "take all packets even if the kernel has addresses on the interface";
        "pass-expiring" "": "leave packets whose time to live ends here with the kernel; for \
            steering=transit";
        "busy-poll" "": "let system calls do the interface's work instead of interrupts";
        "offloads" "true|false": "leave checksums that are to be completed to the card or the kernel, where \
            packets are copied; without it, true";
        "ring" "ENTRIES": "entries of each ring, a power of two from 64 to 32768; without it, 2048, or 256 \
            to only send";
    };
    type Options = XdpOptions;

    fn open(options: &XdpOptions, environment: &mut Environment<'_>) -> Result<Port, OpenError> {
        let failed = |source| {
            let action = "follow the kernel's addresses".to_owned();
            OpenError::new(SystemError::Failed { action, source })
        };
        let is_transit = options.steering == Steering::Transit;
        let local = if is_transit {
            environment.addresses().map_err(failed)?.addresses().clone()
        } else {
            HashSet::new()
        };
        let pool = environment.pool;
        let umem = environment.shared.get_or_try_insert(|| Umem::new(pool)).map_err(OpenError::new)?;
        let mut options = options.clone();
        if environment.direction == Direction::Transmit {
            options.ring.get_or_insert(RING_TO_SEND);
            if options.steering == Steering::All {
                options.steering = Steering::None;
            }
        }
        let queues = u32::try_from(environment.queues).unwrap_or(u32::MAX);
        let XdpPort { port, monitor } = port::open(&options, queues, umem, &local).map_err(OpenError::new)?;
        if is_transit {
            environment.addresses().and_then(|all| all.add(Box::new(monitor.local))).map_err(failed)?;
        }
        Ok(port)
    }
}
