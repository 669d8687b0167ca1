//! What the tests share.

#![allow(dead_code, reason = "not each program of tests uses all")]

pub(crate) mod back_end;
pub(crate) mod front_end;

use back_end::BackEnd;
use warmlane_mem::{Burst, Pool, PoolConfig};
use warmlane_testkit::exchange::bytes_of;
pub(crate) use warmlane_testkit::exchange::until;
use warmlane_testkit::hostile::{Beside, alone};
use warmlane_testkit::test_lane::TestLane;
use warmlane_virtio::vhost::{self, VhostOptions};
use warmlane_virtio::virtio_user::{self, VirtioUserOptions};
use warmlane_virtio::{Role, VirtioPort};

pub(crate) fn pool() -> Pool {
    Pool::new(&PoolConfig { buffers: 8192, ..PoolConfig::default() }).unwrap()
}

pub(crate) fn connected(port: &VirtioPort) -> bool {
    port.monitor.status().is_some_and(|status| status.connected)
}

/// Two of our ports that nobody lies to, with packets from one to the other. One pair at a time.
pub(crate) fn undisturbed() -> Beside {
    let (pool, socket) = (pool(), format!("@undisturbed-{}", std::process::id()));
    let mut device = vhost::open("device", &VhostOptions::new(&socket, Role::Server), 1, &pool).unwrap();
    let options = VirtioUserOptions::new(&socket, Role::Client);
    let mut driver = virtio_user::open("driver", &options, 1, &pool).unwrap();
    until("the others are connected", || connected(&device) && connected(&driver));
    Beside::start(pool, driver.port.transmit.remove(0), device.port.receive.remove(0))
}

/// One of our ports, on this thread as a lane, and the socket by which another side comes. One at a time. When it goes, no buffer is missing.
pub(crate) struct World {
    pub(crate) port: VirtioPort,
    pub(crate) pool: Pool,
    pub(crate) path: String,
    // Goes last.
    _lane: TestLane,
}

impl World {
    /// Opens the port with this socket.
    pub(crate) fn new(open: impl FnOnce(&str, &Pool) -> VirtioPort) -> Self {
        let lane = TestLane::new(alone(), pool);
        let (path, pool) = (lane.socket("ours.sock"), lane.pool.clone());
        Self { port: open(&path, &pool), pool, path, _lane: lane }
    }

    /// A back end that comes by the socket, with these features.
    pub(crate) fn back_end(&self, features: u64) -> BackEnd {
        let mut back_end = BackEnd::connect(&self.path, features);
        back_end.run();
        until("the port knows", || connected(&self.port));
        back_end
    }

    /// Lets the other side go, and waits until the port knows.
    pub(crate) fn disconnect<Side>(&self, other_side: Side) {
        drop(other_side);
        until("the connection is over", || !connected(&self.port));
    }

    /// Packets received until `is_all` says so of how many there are.
    pub(crate) fn receive_until(&mut self, is_all: impl Fn(usize) -> bool) -> Vec<Vec<u8>> {
        let (mut burst, mut frames) = (Burst::new(), Vec::new());
        until("the packets have come", || {
            self.port.port.receive[0].receive(&mut burst);
            frames.extend(burst.drain().map(|packet| bytes_of(&packet)));
            is_all(frames.len())
        });
        frames
    }

    /// Waits for the end of the connection while `poll` is called; says why it ended.
    pub(crate) fn reason_while(&mut self, mut poll: impl FnMut(&mut Self)) -> String {
        until("the connection is over", || {
            poll(self);
            !connected(&self.port)
        });
        self.port.monitor.status().unwrap().reason
    }
}
