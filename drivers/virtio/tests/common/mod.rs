//! What the tests share.

#![allow(dead_code, reason = "not each program of tests uses all")]

pub(crate) mod back_end;
pub(crate) mod front_end;

use warmlane_mem::{Pool, PoolConfig};
pub(crate) use warmlane_testkit::exchange::until;
use warmlane_testkit::exchange::{exchange, lengths};
use warmlane_virtio::VirtioPort;

pub(crate) fn pool() -> Pool {
    Pool::new(&PoolConfig { buffers: 8192, ..PoolConfig::default() }).unwrap()
}

pub(crate) fn connected(port: &VirtioPort) -> bool {
    port.monitor.status().is_some_and(|status| status.connected)
}

/// Sends packets to testpmd, by each of our queues in turn, and compares what comes back.
pub(crate) fn echoes(port: &mut VirtioPort, pool: &Pool, longest: usize) {
    let lengths: Vec<_> = lengths().into_iter().filter(|length| (14..=longest).contains(length)).collect();
    for queue in 0..port.port.transmit.len() {
        let (transmit, receive) = (&mut port.port.transmit[queue], &mut port.port.receive[queue]);
        // It drops what its ring has no room for.
        exchange(pool, &mut **transmit, &mut **receive, &lengths, 20);
    }
}
