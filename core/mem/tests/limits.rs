//! How many pools and lanes there can be. In a program of its own: while it has all pools, no other test could have one.

#![cfg(not(loom))]

use warmlane_mem::{MAXIMUM_LANES, MAXIMUM_POOLS, Pool, PoolConfig, PoolError};
use warmlane_sys::pages::PagePreference;

fn pool() -> Result<Pool, PoolError> {
    Pool::new(&PoolConfig { buffers: 64, pages: PagePreference::Plain, ..PoolConfig::default() })
}

#[test]
fn one_pool_or_lane_too_many_is_refused_until_another_goes() {
    let mut pools: Vec<Pool> = (0..MAXIMUM_POOLS).map(|_| pool().expect("there is a slot")).collect();
    assert!(matches!(pool(), Err(PoolError::TooManyPools)));
    pools.pop();
    let pool = pool().expect("one has gone");

    // A thread has one lane cache of a pool; each of these keeps its own until all have tried.
    let everybody = std::sync::Barrier::new(MAXIMUM_LANES as usize + 1);
    let attach = || {
        let lane = pool.attach();
        everybody.wait();
        lane.map(drop)
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..=MAXIMUM_LANES).map(|_| scope.spawn(attach)).collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    });
    let refused: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    assert!(matches!(&refused[..], [PoolError::TooManyLanes { .. }]), "{refused:?}");
    assert!(pool.attach().is_ok(), "all have gone");
}
