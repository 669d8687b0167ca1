//! What the tests share.

#![allow(dead_code, reason = "not each program of tests uses all")]

pub(crate) mod back_end;
pub(crate) mod front_end;

use warmlane_mem::{Burst, Pool, PoolConfig};
use warmlane_testkit::exchange::bytes_of;
pub(crate) use warmlane_testkit::exchange::until;
use warmlane_testkit::hostile::Beside;
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

/// One of our ports and whoever lies to it.
pub(crate) struct World {
    pub(crate) port: VirtioPort,
    pub(crate) pool: Pool,
    pub(crate) path: String,
    _folder: tempfile::TempDir,
}

impl World {
    /// Opens the port with this socket.
    pub(crate) fn new(open: impl FnOnce(&str, &Pool) -> VirtioPort) -> Self {
        let (folder, pool) = (tempfile::tempdir().unwrap(), pool());
        let path = folder.path().join("ours.sock").to_str().unwrap().to_owned();
        let port = open(&path, &pool);
        Self { port, pool, path, _folder: folder }
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

    /// Closes the port; no buffer is missing.
    pub(crate) fn end(self) {
        let Self { port, pool, .. } = self;
        drop(port);
        assert_eq!(pool.ledger().outstanding(), 0);
    }
}
