//! The driver as the rest of the program sees it.

use super::options::VhostOptions;
use warmlane_driver_common::{Driver, DriverHelp, Environment, OpenError, driver_help};
use warmlane_port::Port;

/// Ports to virtual machines and other drivers of virtio.
#[derive(Debug)]
pub struct VhostDriver;

impl Driver for VhostDriver {
    const HELP: DriverHelp = driver_help! {
        "vhost": "A virtual machine, or another process that drives virtio, by vhost-user; this side is the \
            device. Needs no privilege but access to the socket.";
        examples: "vhost:/run/vm.sock", "vhost:/run/vm.sock,role=client,wait=10";
        "socket" "PATH|@NAME": "the control socket; @NAME has no file";
        "role" "server|client": "make the socket, or connect to the one that QEMU makes with server=on; \
            without it, server";
        "queues" "COUNT": "pairs of rings that the driver may have; without it, one for each lane";
        "offloads" "true|false": "let the driver leave checksums and segmentation to whoever sends its \
            packets on, and leave them to it: fewer, longer packets; without it, true";
        "hash-report" "true|false": "let the driver have hashes of packets, as far as the ports that they came by \
            have found them; without it, false";
        "wait" "SECONDS": "for the driver, before anything else is done; without it, packets are dropped \
            until it is there";
    };
    type Options = VhostOptions;

    fn open(options: &VhostOptions, environment: &mut Environment<'_>) -> Result<Port, OpenError> {
        let opened = super::open(&environment.name, options, environment.queues, environment.pool)
            .map_err(OpenError::new)?;
        environment.watch_connection(move || opened.monitor.status());
        Ok(opened.port)
    }
}
