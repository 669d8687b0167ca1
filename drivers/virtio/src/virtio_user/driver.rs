//! The driver as the rest of the program sees it.

use super::options::VirtioUserOptions;
use warmlane_driver_common::{Driver, DriverHelp, Environment, OpenError, driver_help};
use warmlane_port::Port;

/// Ports to vhost-user back ends.
#[derive(Debug)]
pub struct VirtioUserDriver;

impl Driver for VirtioUserDriver {
    const HELP: DriverHelp = driver_help! {
        "virtio": "Another process that is a device of virtio, such as a switch's vhost-user port; this side \
            is the driver. Needs no privilege but access to the socket.";
        examples: "virtio:/run/vhost.sock", "virtio:/run/vhost.sock,packed=true,wait=10";
        "socket" "PATH|@NAME": "the control socket; @NAME has no file";
        "role" "client|server": "connect to the socket, or make it; without it, client";
        "queues" "COUNT": "pairs of rings, if the back end has as many; without it, one for each lane";
        "ring-size" "DESCRIPTORS": "of each ring, a power of two from 64 to 32768; without it, 1024";
        "packed" "true|false": "packed rings; without it, false: split ones";
        "mergeable" "true|false": "let packets be spread over several buffers, if the back end can; without \
            it, true";
        "in-order" "true|false": "buffers are used in order, if the back end can; without it, true";
        "offloads" "true|false": "leave checksums and segmentation to the back end, and let it leave them to \
            whoever sends its packets on: fewer, longer packets; without it, true";
        "hash-report" "true|false": "take hashes of packets from the back end, if it reports them; without it, \
            false";
        "wait" "SECONDS": "for the back end, before anything else is done; without it, packets are dropped \
            until it is there";
    };
    type Options = VirtioUserOptions;

    fn open(options: &VirtioUserOptions, environment: &mut Environment<'_>) -> Result<Port, OpenError> {
        let opened = super::open(&environment.name, options, environment.queues, environment.pool)
            .map_err(OpenError::new)?;
        environment.watch_connection(move || opened.monitor.status());
        Ok(opened.port)
    }
}
