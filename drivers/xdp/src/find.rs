//! Finds the interface of a port, and waits for what the port before it left there.

use crate::bpf;
use crate::error::XdpError;
use std::time::{Duration, Instant};
use warmlane_driver_common::{Interface, InterfaceName};

/// How long a program of ours may stay attached after its port was closed. A child process of another thread has the port's
/// descriptors between `fork` and `exec`, and the kernel takes programs off in the background.
const LEAVING: Duration = Duration::from_secs(2);

/// Pauses between two looks.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The interface of this name. If a program of ours is still attached to it, waits for it to go.
pub(crate) fn interface(name: &str) -> Result<Interface, XdpError> {
    let name = InterfaceName::new(name)?;
    let end = Instant::now() + LEAVING;
    let mut pause = FIRST_PAUSE;
    loop {
        let interface = Interface::find(&name)?;
        match interface.xdp_program {
            Some(program) if bpf::is_ours(program) && Instant::now() < end => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            _ => return Ok(interface),
        }
    }
}
