//! The front end of vhost-user: this side drives the rings, in memory of its own; another process is the device, such as a switch with a
//! vhost-user port or DPDK's `net_vhost`.

mod driver;
mod options;
mod session;
mod shared_memory;

use crate::connection::control::Session;
use crate::error::VirtioError;
use crate::layout::RING_SIZES;
use crate::port::{Plan, VirtioPort};
use crate::queue::sides::RingSide;
pub use driver::VirtioUserDriver;
pub use options::VirtioUserOptions;
use session::DriverSession;
use shared_memory::Kept;
use warmlane_mem::Pool;

/// Opens a port with a pair of queues for each of `lanes`, unless the options say how many. Back ends come and go;
/// [`VirtioUserOptions::wait`] waits for the first time.
///
/// # Errors
/// [`VirtioError`] says what is wrong with the options or the socket, and the remedy.
pub fn open(
    name: &str,
    options: &VirtioUserOptions,
    lanes: usize,
    pool: &Pool,
) -> Result<VirtioPort, VirtioError> {
    let VirtioUserOptions { ref socket, role, queues, ring_size, wait, .. } = *options;
    if !ring_size.is_power_of_two() || !RING_SIZES.contains(&ring_size) {
        return Err(VirtioError::RingSize { size: ring_size });
    }
    let ring_side = RingSide::Driver;
    let plan =
        Plan { name, driver: "virtio", peer: "back end", ring_side, socket, role, queues, lanes, wait };
    let wanted = session::wanted(plan.pairs()?, options);
    let memory_name = format!("virtio {name}");
    plan.open(pool, wanted, |rings, _alarm| {
        let kept = Kept::default();
        Box::new(move || {
            let kept = Kept::clone(&kept);
            let session = DriverSession::new(rings.clone(), wanted, ring_size, &memory_name, kept);
            Ok(Box::new(session) as Box<dyn Session>)
        })
    })
}
