//! Lanes that share a pool: what they leave each other, and that nothing is lost when they come and go.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use warmlane_mem::{
    Burst, LaneThread, Packet, PacketReceiver, Pool, PoolConfig, PoolError, PoolKind, channel,
};

use crate::common::{KINDS, config, take_all, times};

fn pool(kind: PoolKind, buffers: u32, magazine: u32) -> Pool {
    let name = format!("test {kind:?} {magazine}");
    Pool::new(&PoolConfig { name, magazine: Some(magazine), ..config(kind, buffers) }).expect("plain pages")
}

/// Every buffer of the pool is there, once.
fn assert_whole(pool: &Pool) {
    assert_eq!(pool.ledger().outstanding(), 0, "{}", pool.name());
    assert_eq!(pool.occupancy().available, pool.buffers(), "{}", pool.name());
    let packets = take_all(pool);
    let distinct: HashSet<_> = packets.iter().map(Packet::id).collect();
    assert_eq!((packets.len(), distinct.len()), (pool.buffers() as usize, pool.buffers() as usize));
}

#[test]
fn what_is_not_to_be_had_is_counted() {
    for kind in KINDS {
        for (attached, magazine) in [(true, 8), (true, 0), (false, 8)] {
            let pool = pool(kind, 40, magazine);
            let lane = attached.then(|| pool.attach().expect("first attachment"));
            assert_eq!((pool.occupancy().available, pool.occupancy().refused), (40, 0));
            let mut burst = Burst::new();
            assert_eq!(pool.take_burst(&mut burst, 50), 40);
            assert!(pool.take().is_none());
            let check = |available| {
                let now = pool.occupancy();
                let expected = (available, 0, 11);
                assert_eq!((now.available, now.lowest, now.refused), expected, "{}", pool.name());
            };
            check(0);
            burst.clear();
            drop(lane);
            check(40);
        }
    }
}

#[test]
fn a_lane_that_only_takes_has_the_next_magazine_a_burst_before_it_needs_it() {
    for kind in KINDS {
        let pool = pool(kind, 512, 128);
        let lane = pool.attach().expect("first attachment");
        let mut bursts = Vec::new();
        let mut held = || {
            let mut burst = Burst::new();
            assert_eq!(pool.take_burst(&mut burst, 32), 32);
            bursts.push(burst);
            lane.len()
        };
        assert_eq!([held(), held(), held(), held(), held()], [96, 64, 32 + 128, 128, 96], "{}", pool.name());
    }
}

#[test]
fn an_idle_lane_returns_what_another_asks_for() {
    for kind in KINDS {
        let pool = pool(kind, 40, 8);
        let mut idle = pool.attach().expect("first attachment");
        let mut burst = Burst::new();
        pool.take_burst(&mut burst, 16);
        burst.clear();
        assert_eq!(idle.len(), 16);
        assert!(!idle.flush_if_requested(), "nobody has asked");
        let taken = std::thread::scope(|scope| scope.spawn(|| take_all(&pool)).join().expect("no panic"));
        assert_eq!(taken.len(), 24);
        assert!(idle.flush_if_requested());
        assert!(idle.is_empty() && !idle.flush_if_requested());
        assert_eq!(pool.occupancy().available, 16);
        drop(taken);
        // The lane goes on as before.
        assert_eq!(pool.take_burst(&mut burst, 30), 30);
        burst.clear();
        idle.flush();
        assert!(idle.is_empty());
        assert_whole(&pool);
    }
}

#[test]
fn a_share_is_left_for_its_lane() {
    for kind in KINDS {
        let pool = pool(kind, 64, 8);
        let too_much = pool.attach_with_share(33);
        assert!(matches!(too_much, Err(PoolError::Share { share: 33, limit: 32, .. })), "{too_much:?}");
        let mut lane = pool.attach_with_share(24).expect("less than half");
        let greedy = |attached: bool| {
            let pool = &pool;
            std::thread::scope(|scope| {
                let lane = scope.spawn(move || {
                    let lane = attached.then(|| pool.attach().expect("first attachment"));
                    let taken = take_all(pool);
                    drop(lane);
                    taken
                });
                lane.join().expect("no panic")
            })
        };
        for attached in [true, false] {
            let taken = greedy(attached);
            assert_eq!(taken.len(), 40, "{kind:?} attached {attached}");
            let mut burst = Burst::new();
            assert_eq!(pool.take_burst(&mut burst, 40), 24, "{kind:?}");
            burst.clear();
            drop(taken);
            // What the lane has in reserve is its own anyway.
            lane.flush();
        }
    }
}

#[test]
fn a_lane_that_cannot_attach_takes_nothing_with_it() {
    let pool = pool(PoolKind::Depot, 256, 8);
    for _ in 0..times(300) {
        assert!(pool.attach_with_share(200).is_err());
    }
    drop(pool.attach_with_share(128).expect("half the pool"));
    drop(pool.attach_with_share(128).expect("half the pool, again"));
    assert_whole(&pool);
}

/// Receives until the channel ends, checks each stamp, and frees.
fn check_stamps(pool: &Pool, receiver: &mut PacketReceiver) {
    let _lane = pool.attach().expect("first attachment");
    let mut burst = Burst::with_limit(32);
    // A lane lives for a while only.
    for _ in 0..times(200) {
        if receiver.receive(&mut burst) == 0 {
            if receiver.is_finished() {
                return;
            }
            std::thread::yield_now();
        }
        for packet in &*burst {
            let stamp = u32::from_le_bytes(packet.data().try_into().expect("four bytes"));
            assert_eq!(stamp, packet.id().index(), "nobody wrote to a buffer that was under way");
        }
        burst.clear();
    }
    // It dies with packets in hand.
    receiver.receive(&mut burst);
    std::panic::resume_unwind(Box::new("on purpose"));
}

#[test]
fn lanes_that_die_in_between_lose_nothing() {
    for kind in KINDS {
        for magazine in [0, 8, 128] {
            let pool = pool(kind, times(1_000) as u32, magazine);
            let (sender, mut receiver) = channel(128).expect("a power of two");
            let sender = std::sync::Mutex::new(sender);
            let deaths = AtomicU32::new(0);
            std::thread::scope(|scope| {
                let (pool, deaths) = (&pool, &deaths);
                scope.spawn(move || {
                    while !receiver.is_finished() {
                        let lane = std::thread::scope(|scope| {
                            scope.spawn(|| check_stamps(pool, &mut receiver)).join()
                        });
                        deaths.fetch_add(u32::from(lane.is_err()), Ordering::Relaxed);
                    }
                });
                for _ in 0..times(60) {
                    let lane = std::thread::scope(|scope| {
                        let send = || -> () {
                            let mut sender = sender.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                            let _lane = pool.attach().expect("first attachment");
                            let mut burst = Burst::with_limit(32);
                            for _ in 0..times(50) {
                                pool.take_burst(&mut burst, 32);
                                for packet in burst.iter_mut() {
                                    let stamp = packet.id().index().to_le_bytes();
                                    packet.fill(&stamp).expect("fits");
                                }
                                while sender.send(&mut burst) == 0 && !burst.is_empty() {
                                    std::thread::yield_now();
                                }
                            }
                            std::panic::resume_unwind(Box::new("on purpose"));
                        };
                        scope.spawn(send).join()
                    });
                    assert!(lane.is_err(), "it died");
                }
                drop(sender);
            });
            assert!(deaths.load(Ordering::Relaxed) > 0, "{}", pool.name());
            assert_whole(&pool);
        }
    }
}

#[test]
fn a_lane_is_attached_to_what_it_uses() {
    for kind in KINDS {
        let (pool, other) = (pool(kind, 64, 8), pool(kind, 64, 8));
        let unattached = || (pool.occupancy().unattached, other.occupancy().unattached);
        let mut burst = Burst::new();
        pool.take_burst(&mut burst, 2);
        burst.clear();
        assert_eq!(unattached(), (2, 0), "this thread is no lane yet");
        let foreign = other.take().expect("a buffer");
        let before = unattached();
        let lane = LaneThread::enter();
        drop(LaneThread::enter());
        pool.take_burst(&mut burst, 2);
        burst.clear();
        // Of one pool it only frees; and by number.
        drop(foreign);
        let mut indices = [0; 2];
        assert_eq!(other.region().take_raw(&mut indices), 2);
        // SAFETY: taken just above.
        unsafe { other.region().free_raw(&indices) };
        assert_eq!(unattached(), before);
        assert!(pool.attach().is_err() && other.attach().is_err(), "it is attached already");
        assert_eq!((pool.occupancy().available, other.occupancy().available), (56, 55));
        // What another thread wants it returns when it has nothing to do.
        std::thread::scope(|scope| scope.spawn(|| take_all(&pool)).join().expect("no panic"));
        lane.idle();
        assert_eq!((pool.occupancy().available, other.occupancy().available), (64, 55));
        drop(lane);
        assert_whole(&pool);
        assert_whole(&other);
        assert!(pool.attach().is_ok(), "it is detached");
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri's memory has no mappings that /proc/self/maps would show")]
fn a_lane_lets_go_of_a_pool_that_only_lanes_have() {
    let mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux");
        maps.contains("/memfd:only-lanes-have-it")
    };
    let config = PoolConfig { name: "only-lanes-have-it".to_owned(), ..config(PoolKind::Depot, 64) };
    let pool = Pool::new(&config).expect("plain pages");
    let lane = LaneThread::enter();
    let packet = pool.take().expect("a buffer");
    std::thread::scope(|scope| {
        let theirs = pool.clone();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            let lane = LaneThread::enter();
            drop(theirs.take());
            lane.idle();
            drop(theirs);
            // The first thread has let go.
            wait.recv().expect("it lives");
            lane.idle();
        });
        drop(packet);
        lane.idle();
        assert!(pool.attach().is_err(), "there is a handle still");
        drop(pool);
        while mapped() {
            // Until the other thread has only its cache left, that is a user like any other.
            lane.idle();
            let _ = go.send(());
            std::thread::yield_now();
        }
    });
    drop(lane);
}

#[test]
fn lanes_that_keep_all_they_may_leave_most_of_a_small_pool_to_others() {
    for (buffers, lanes) in [(1_024, 2), (1_024, 4), (256, 4), (16_384, 8), (64, 4), (16, 4)] {
        if cfg!(miri) && buffers > 256 {
            continue;
        }
        for kind in KINDS {
            let pool = Pool::new(&PoolConfig { lanes, magazine: None, ..config(kind, buffers) })
                .expect("plain pages");
            let (full, done) =
                (std::sync::Barrier::new(lanes as usize), std::sync::Barrier::new(lanes as usize));
            std::thread::scope(|scope| {
                for _ in 1..lanes {
                    scope.spawn(|| {
                        let _lane = LaneThread::enter();
                        let taken: Vec<_> = (0..buffers / lanes).filter_map(|_| pool.take()).collect();
                        drop(taken);
                        full.wait();
                        done.wait();
                    });
                }
                full.wait();
                let _lane = LaneThread::enter();
                let available = take_all(&pool).len() as u32;
                done.wait();
                assert!(
                    available >= buffers * 3 / 4,
                    "{available} of {buffers} with {lanes} lanes, {kind:?}"
                );
            });
        }
    }
    let size = |buffers, lanes| PoolConfig { buffers, lanes, ..PoolConfig::default() }.magazine_size();
    assert_eq!((size(16_384, 4), size(1_024, 4), size(1_024, 2), size(8_191, 4)), (256, 32, 64, 128));
    assert_eq!((size(16, 4), size(16, 0), size(u32::MAX, u32::MAX)), (0, 2, 0));
}
