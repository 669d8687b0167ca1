//! What the tests share.

#![allow(dead_code, unused_imports, reason = "not each program of tests uses all")]

use warmlane_mem::{Pool, PoolConfig};
use warmlane_memif::MemifPort;
pub(crate) use warmlane_testkit::exchange::{exchange, lengths, until};

pub(crate) fn pool() -> Pool {
    Pool::new(&PoolConfig { buffers: 8192, ..PoolConfig::default() }).unwrap()
}

pub(crate) fn connected(port: &MemifPort) -> bool {
    port.monitor.status().is_some_and(|status| status.connected)
}
