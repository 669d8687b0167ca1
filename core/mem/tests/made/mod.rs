//! Small pools of all kinds, for tests.

use warmlane_mem::{Packet, Pool, PoolConfig, PoolKind};
use warmlane_sys::pages::PagePreference;

pub(crate) const KINDS: [PoolKind; 4] =
    [PoolKind::Depot, PoolKind::Stack, PoolKind::LockFreeStack, PoolKind::Ring];

pub(crate) fn config(kind: PoolKind, buffers: u32) -> PoolConfig {
    PoolConfig {
        name: format!("test {kind:?}"),
        buffers,
        kind,
        magazine: 8,
        pages: PagePreference::Plain,
        ..PoolConfig::default()
    }
}

pub(crate) fn pool(kind: PoolKind, buffers: u32) -> Pool {
    Pool::new(&config(kind, buffers)).expect("plain pages are always to be had")
}

pub(crate) fn take_all(pool: &Pool) -> Vec<Packet> {
    std::iter::from_fn(|| pool.take()).collect()
}
