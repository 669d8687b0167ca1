//! The driver as the rest of the program sees it.

use super::options::VhostOptions;
use warmlane_driver_common::{Driver, Environment, OpenError, OptionHelp, option_help};
use warmlane_port::Port;

/// Ports to virtual machines and other drivers of virtio.
#[derive(Debug)]
pub struct VhostDriver;

impl Driver for VhostDriver {
    const NAME: &'static str = "vhost";
    const SUMMARY: &'static str = "A virtual machine, or another process that drives virtio, by vhost-user; this side is the device. Needs no privilege but access to the socket.";
    const EXAMPLES: &'static [&'static str] =
        &["vhost:/run/vm.sock", "vhost:/run/vm.sock,role=client,wait=10"];
    const OPTIONS: &'static [OptionHelp] = option_help! {
        "socket" "PATH|@NAME": "the control socket; @NAME has no file";
        "role" "server|client": "make the socket, or connect to the one that QEMU makes with server=on; without it, server";
        "queues" "COUNT": "pairs of rings that the driver may have; without it, one for each lane";
        "offloads" "true|false": "let the driver leave checksums and segmentation to whoever sends its packets on, and leave them to it: fewer, longer packets; without it, true";
        "wait" "SECONDS": "for the driver, before anything else is done; without it, packets are dropped until it is there";
    };
    const MAIN_OPTION: Option<&'static str> = Some("socket");
    type Options = VhostOptions;

    fn open(
        name: &str,
        options: &VhostOptions,
        environment: &mut Environment<'_>,
    ) -> Result<Port, OpenError> {
        super::open(name, options, environment.queues, environment.pool)
            .map(|opened| opened.port)
            .map_err(OpenError::new)
    }
}
