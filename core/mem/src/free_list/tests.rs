use super::*;

#[test]
#[cfg_attr(miri, ignore = "a pool of so many buffers takes it minutes")]
fn a_hot_set_that_was_chosen_stays() {
    let config = PoolConfig { buffers: 65_536, hot_set: Some(1_536), ..PoolConfig::default() };
    let free_list = FreeList::new(&config, 2_240, true).unwrap();
    for _ in 0..10_000 {
        free_list.observe_taking(10_000 + 100 * u64::from(free_list.hot_set()));
    }
    assert_eq!(free_list.hot_set(), 1_536);
    let all = FreeList::new(&PoolConfig { hot_set: Some(u32::MAX), ..config }, 2_240, true).unwrap();
    assert_eq!(all.hot_set(), 65_536, "no more than the pool has");
}

#[test]
#[cfg_attr(miri, ignore = "a pool of so many buffers takes it minutes")]
fn low_buffers_go_round_and_the_cold_side_begins_behind_them() {
    let config = PoolConfig { buffers: 16_384, hot_set: Some(4_096), ..PoolConfig::default() };
    let free_list = FreeList::new(&config, 2_240, true).unwrap();
    let (mut hot, mut cold) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        let full = free_list.exchange_for_full(free_list.lend().unwrap(), free_list.capacity(), 0).unwrap();
        // SAFETY: the exchange gave the magazine to this thread.
        let first = unsafe { free_list.indices(full.number, 1) }[0];
        if full.hot { &mut hot } else { &mut cold }.push(first as usize / free_list.capacity());
    }
    let Order::Depot(depot) = &free_list.order else { panic!("not a depot") };
    let behind = depot.most() as usize;
    assert!(behind >= 16 && hot.len() >= 2 && cold.len() >= 2, "{hot:?} {cold:?}");
    assert_eq!(hot, (0..hot.len()).collect::<Vec<_>>());
    assert_eq!(cold, (behind..behind + cold.len()).collect::<Vec<_>>());
}

#[test]
#[cfg_attr(miri, ignore = "a pool of so many buffers takes it minutes")]
fn the_slower_side_moves_the_hot_set() {
    let bound_after = |freeing: u64| {
        let free_list =
            FreeList::new(&PoolConfig { buffers: 65_536, ..PoolConfig::default() }, 2_240, true).unwrap();
        for _ in 0..10_000 {
            free_list.observe_freeing(freeing);
            free_list.observe_taking(10_000 + 100 * u64::from(free_list.hot_set()));
        }
        free_list.hot_set()
    };
    let first = FreeList::new(&PoolConfig::default(), 2_240, true).unwrap().hot_set();
    assert_eq!(
        bound_after(0),
        PoolConfig::default().magazine_size(),
        "the smallest is best for the lane that takes"
    );
    assert_eq!(bound_after(1 << 40), first, "the lane that frees is no faster with it");
}
