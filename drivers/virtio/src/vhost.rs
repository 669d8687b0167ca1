//! The back end of vhost-user: another process, such as the monitor of a virtual machine, lends its memory and rings; this side is the device.

mod device;
mod driver;
mod inflight;
mod options;
mod session;

use crate::connection::control::Session;
use crate::error::VirtioError;
use crate::port::{Plan, VirtioPort};
use crate::queue::sides::RingSide;
pub use driver::VhostDriver;
pub use options::VhostOptions;
use session::DeviceSession;
use warmlane_mem::Pool;

/// Opens a port with a pair of queues for each of `lanes`, unless the options say how many. Drivers come and go;
/// [`VhostOptions::wait`] waits for the first time.
///
/// # Errors
/// [`VirtioError`] says what is wrong with the options or the socket, and the remedy.
pub fn open(
    name: &str,
    options: &VhostOptions,
    lanes: usize,
    pool: &Pool,
) -> Result<VirtioPort, VirtioError> {
    let VhostOptions { ref socket, role, queues, offloads, hash_report, wait } = *options;
    let plan = Plan {
        name,
        driver: "vhost",
        peer: "driver",
        ring_side: RingSide::Device,
        socket,
        role,
        queues,
        lanes,
        wait,
    };
    let offered = session::offered(plan.pairs()?, offloads, hash_report);
    plan.open(pool, offered, |rings, alarm| {
        let alarm = alarm.clone();
        Box::new(move || {
            let session = DeviceSession::new(rings.clone(), offered, alarm.clone());
            Ok(Box::new(session) as Box<dyn Session>)
        })
    })
}
