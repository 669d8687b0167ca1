//! Rates, priorities and drops, by a clock that the tests move.

use std::sync::LazyLock;
use std::time::Duration;

use super::*;
use crate::control::{Generated, ServiceFlow, generate};
use warmlane_mem::{Pool, PoolConfig};

/// Cycles a second of the tests' clock.
const HZ: u64 = 1_000_000_000;
/// Bytes of each packet, CRC included.
const BYTES: u64 = 1_000;
/// How often the scheduler is asked, in cycles: every 10 microseconds.
const STEP: u64 = HZ / 100_000;

fn pool() -> &'static Pool {
    static POOL: LazyLock<Pool> =
        LazyLock::new(|| Pool::new(&PoolConfig { buffers: 8_192, ..PoolConfig::default() }).expect("a pool"));
    &POOL
}

/// Flows of one modem over one channel of this rate.
fn scheduler(rate: u64, flows: Vec<ServiceFlow>) -> Scheduler {
    let mut group = generate(&Generated { modems: 1, ofdm: 1, sc_qam: 0, maximum_rate: None });
    group.channels[0].rate = rate;
    group.modems[0].classifiers.clear();
    group.flows = flows;
    group.limits.age = Duration::from_millis(100);
    group.check().expect("a service group");
    Scheduler::new(&group, HZ)
}

fn flow(priority: u8, change: impl FnOnce(&mut ServiceFlow)) -> ServiceFlow {
    let mut flow = ServiceFlow { priority, ..ServiceFlow::best_effort(0, 0) };
    change(&mut flow);
    flow
}

fn packet() -> Packet {
    let mut packet = pool().take().expect("a buffer");
    packet.fill(&[0; BYTES as usize - CRC]).expect("space");
    packet
}

/// Keeps all queues filled for so many seconds; when packets of each flow left.
fn overload(scheduler: &mut Scheduler, seconds: u64) -> Vec<Vec<u64>> {
    let mut left = vec![Vec::new(); scheduler.flows.len()];
    let mut now = 0;
    while now < seconds * HZ {
        for number in 0..left.len() as u32 {
            while scheduler.queues.len(number) < 64 {
                scheduler.push(number, packet(), now).expect("space");
            }
        }
        scheduler.dispatch(now, false, |packet| {
            let Ok(packet) = packet else { return true };
            left[packet.application::<Tag>().flow as usize].push(now);
            true
        });
        now += STEP;
    }
    left
}

/// Bits a second.
fn rate(left: &[u64], seconds: u64) -> f64 {
    (left.len() as u64 * BYTES * 8) as f64 / seconds as f64
}

fn assert_near(rate: f64, wanted: f64) {
    assert!((rate / wanted - 1.0).abs() < 0.01, "{rate} instead of {wanted}");
}

#[test]
fn each_flow_gets_its_rate_and_never_more_than_its_burst() {
    let rates = [1_000_000, 7_000_000, 20_000_000, 50_000_000];
    let flows = rates.map(|rate| {
        flow(0, |flow| (flow.maximum_rate, flow.maximum_burst, flow.queue) = (Some(rate), 5_000, 64))
    });
    let mut scheduler = scheduler(1_000_000_000, flows.to_vec());
    let left = overload(&mut scheduler, 1);
    for (wanted, left) in rates.into_iter().zip(&left) {
        // The burst comes on top of the rate once.
        assert_near(rate(&left[5..], 1), wanted as f64);
        for (index, from) in left.iter().enumerate() {
            for (count, until) in (1..).zip(left[index..].iter().take(50)) {
                let allowed = wanted as f64 / 8.0 * (until - from) as f64 / HZ as f64 + 5_000.0;
                assert!((count * BYTES) as f64 <= allowed + 1.0);
            }
        }
    }
}

#[test]
fn the_peak_rate_spreads_a_burst() {
    let peak = flow(0, |flow| {
        (flow.maximum_rate, flow.maximum_burst, flow.peak_rate) =
            (Some(1_000_000), 100_000, Some(10_000_000));
    });
    let left = &overload(&mut scheduler(1_000_000_000, vec![peak]), 1)[0];
    // After the first packet, one every 800 microseconds until the burst is spent.
    let gaps: Vec<_> = left.windows(2).take(90).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().skip(1).all(|gap| *gap >= 790_000), "{gaps:?}");
}

#[test]
fn priorities_hold_under_overload() {
    // Together twice what the channel carries.
    let flows = [7, 5, 3, 0].map(|priority| {
        flow(priority, |flow| {
            (flow.maximum_rate, flow.maximum_burst, flow.queue) = (Some(50_000_000), 3_044, 64);
        })
    });
    let mut scheduler = scheduler(100_000_000, flows.to_vec());
    let left = overload(&mut scheduler, 1);
    assert_near(rate(&left[0], 1), 50e6);
    // The rest of the channel: MAC headers are counted there, not in the flows' rates.
    assert!(rate(&left[1], 1) > 45e6);
    assert!(left[2].len() + left[3].len() < 200, "{} {}", left[2].len(), left[3].len());
}

#[test]
fn what_is_reserved_is_given_before_priorities() {
    let neither = flow(0, |flow| flow.queue = 64);
    let flows = urgent_and_reserved().into_iter().chain([neither]).collect();
    let left = overload(&mut scheduler(100_000_000, flows), 1);
    assert_near(rate(&left[1], 1), 10e6);
    assert!(rate(&left[0], 1) > 85e6);
    assert_eq!(left[2].len(), 0);
}

/// A flow of the highest priority, and one of the lowest for which 10 Mbit/s are reserved.
fn urgent_and_reserved() -> Vec<ServiceFlow> {
    let urgent = flow(7, |flow| flow.queue = 64);
    let reserved = flow(0, |flow| (flow.minimum_rate, flow.queue) = (10_000_000, 64));
    vec![urgent, reserved]
}

#[test]
fn what_is_reserved_is_given_to_a_flow_whose_queue_runs_empty() {
    let mut scheduler = scheduler(100_000_000, urgent_and_reserved());
    let mut left = [0; 2];
    // Less than it is reserved: one packet a millisecond.
    for step in 0..HZ / STEP {
        while scheduler.queues.len(0) < 64 {
            scheduler.push(0, packet(), step * STEP).expect("space");
        }
        if step % 100 == 0 {
            scheduler.push(1, packet(), step * STEP).expect("space");
        }
        scheduler.dispatch(step * STEP, false, |packet| {
            let Ok(packet) = packet else { return true };
            left[packet.application::<Tag>().flow as usize] += 1;
            true
        });
    }
    assert_eq!(left[1], 1_000);
    assert!(left[0] > 10_000);
}

#[test]
fn what_a_flow_had_beyond_what_it_is_reserved_is_not_held_against_it() {
    let mut scheduler = scheduler(100_000_000, urgent_and_reserved());
    // In the first second it has the channel alone, and takes it; in the next one others need it.
    let mut left = [[0; 2]; 2];
    for step in 0..2 * HZ / STEP {
        let second = (step * STEP / HZ) as usize;
        for number in (0..2).filter(|number| *number == 1 || second == 1) {
            while scheduler.queues.len(number) < 64 {
                scheduler.push(number, packet(), step * STEP).expect("space");
            }
        }
        scheduler.dispatch(step * STEP, false, |packet| {
            let Ok(packet) = packet else { return true };
            left[second][packet.application::<Tag>().flow as usize] += BYTES * 8;
            true
        });
    }
    assert!(left[0][1] > 95_000_000, "{left:?}");
    assert_near(left[1][1] as f64, 10e6);
}

#[test]
fn flows_of_one_priority_share_alike() {
    let flows = (0..10).map(|_| flow(2, |flow| flow.queue = 64)).collect();
    let left = overload(&mut scheduler(400_000_000, flows), 1);
    let first = rate(&left[0], 1);
    for left in &left {
        assert_near(rate(left, 1), first);
    }
}

/// With ten packets in one flow that is too slow for them.
fn ten_that_wait() -> Scheduler {
    let slow = flow(0, |flow| (flow.maximum_rate, flow.maximum_burst) = (Some(8_000), 1_522));
    let mut scheduler = scheduler(100_000_000, vec![slow]);
    for _ in 0..10 {
        scheduler.push(0, packet(), 0).unwrap();
    }
    scheduler
}

#[test]
fn packets_that_wait_too_long_are_dropped() {
    let mut scheduler = ten_that_wait();
    let (mut sent, mut aged) = (0, 0);
    for now in (0..2 * HZ).step_by(STEP as usize) {
        sent += scheduler.dispatch(now, false, |packet| {
            if let Err((reason, packet)) = packet {
                assert_eq!((reason, packet.len() + CRC), (UpperDrop::Aged, BYTES as usize));
                aged += 1;
            }
            true
        });
    }
    assert_eq!((sent, aged, scheduler.count()), (1, 9, 0));
}

#[test]
fn what_is_left_at_the_end_goes_at_once() {
    let mut scheduler = ten_that_wait();
    assert_eq!(scheduler.dispatch(1, false, |_| true), 1);
    let mut space = 4;
    let mut limited = |_: Result<_, _>| {
        space -= 1;
        space > 0
    };
    assert_eq!(scheduler.dispatch(2, true, &mut limited), 4);
    assert_eq!(scheduler.dispatch(3, true, |_| true), 5);
}
