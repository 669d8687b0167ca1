//! What the tests share.

#![allow(dead_code, reason = "not each program of tests uses all")]

pub(crate) mod front_end;

use warmlane_mem::{Pool, PoolConfig};
pub(crate) use warmlane_testkit::exchange::until;
use warmlane_virtio::vhost::VhostPort;

pub(crate) fn pool() -> Pool {
    Pool::new(&PoolConfig { buffers: 8192, ..PoolConfig::default() }).unwrap()
}

pub(crate) fn connected(port: &VhostPort) -> bool {
    port.monitor.status().is_some_and(|status| status.connected)
}
