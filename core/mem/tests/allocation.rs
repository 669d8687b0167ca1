//! Taking, moving and freeing packets allocates nothing.

#![cfg(not(loom))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use warmlane_mem::{Burst, Pool, PoolConfig, PoolKind, channel};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn no_burst_allocates() {
    for kind in [PoolKind::Depot, PoolKind::Stack, PoolKind::LockFreeStack, PoolKind::Ring] {
        for (attached, magazine) in [(true, Some(32)), (true, Some(0)), (false, Some(32))] {
            let pool = Pool::new(&PoolConfig { kind, buffers: 4_096, magazine, ..PoolConfig::default() })
                .expect("4,096 buffers");
            let (mut sender, mut receiver) = channel(256).expect("a power of two");
            let _lane = attached.then(|| pool.attach().expect("first attachment"));
            let mut burst = Burst::new();
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            for round in 0..1_000 {
                pool.take_burst(&mut burst, 1 + round % 64);
                for packet in burst.iter_mut() {
                    packet.fill(&[0; 60]).expect("fits");
                }
                sender.send(&mut burst);
                receiver.receive(&mut burst);
                burst.clear();
            }
            assert_eq!(
                ALLOCATIONS.load(Ordering::Relaxed),
                before,
                "{kind:?} attached {attached} {magazine:?}"
            );
        }
    }
}
