//! Trials over a cable in memory: the books are right, whatever the cable does.

use crate::common::{cable, pool, profile, stream, template};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use warmlane_gen::control::Stream;
use warmlane_gen::datapath::Pattern;
use warmlane_gen::methods::rfc2544::{ThroughputConfig, throughput};
use warmlane_gen::methods::{Measured, MethodError, Request, mlrsearch};
use warmlane_gen::{Tester, TrialConfig, TrialResult};
use warmlane_mem::Pool;
use warmlane_port::fault::{Fault, FaultPlan};
use warmlane_port::rate_limit;
use warmlane_sys::affinity;
use warmlane_sys::clock::Clock;

/// Lanes spin on their CPUs; two tests at once would only be in each other's way.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A tester that receives through `device`, on two CPUs if there are two.
fn tester(
    pool: &Pool,
    device: impl FnOnce(Box<dyn warmlane_port::ReceiveQueue>) -> Box<dyn warmlane_port::ReceiveQueue>,
) -> Tester {
    let (transmit, receive) = cable(4_096);
    let cpus = affinity::allowed_cpus().unwrap();
    Tester::start(transmit, vec![device(receive)], pool, &cpus).unwrap()
}

fn streams() -> Vec<Stream> {
    vec![stream("a", template(), "imix", vec![]), stream("b", template(), "128", vec![])]
}

/// Slow enough for a busy machine, and a patient generator: these tests are about counts, not about speed.
fn config(streams: Vec<Stream>, packets: u64) -> TrialConfig {
    TrialConfig {
        pattern: Pattern::Constant,
        packets_per_second: 50_000.0,
        duration: Duration::from_secs(10),
        count: Some(packets),
        patience: Duration::from_secs(10),
        drain: Duration::from_millis(300),
        ..TrialConfig::new(Arc::new(profile(streams).plan().unwrap()))
    }
}

fn run(tester: &mut Tester, config: &TrialConfig) -> TrialResult {
    let result = tester.run(config, &mut |_| true).unwrap();
    assert_eq!(result.offered, result.sent + result.unsent.total);
    let received = result.received.as_ref().unwrap();
    assert_eq!(result.sent, received.packets + received.corrupted + received.lost);
    result
}

#[test]
fn a_perfect_cable_loses_nothing() {
    let _alone = alone();
    let pool = pool();
    let mut tester = tester(&pool, |queue| queue);
    for _ in 0..3 {
        let result = run(&mut tester, &config(streams(), 10_000));
        assert_eq!((result.void, result.offered), (None, 10_000));
        let received = result.received.unwrap();
        assert_eq!((received.packets, received.loss_ratio), (10_000, 0.0));
        let odd = [received.duplicated, received.reordered, received.stale, received.foreign];
        assert_eq!(odd, [0; 4]);
        let latency = received.latency.unwrap();
        assert!(latency.minimum <= latency.median && latency.median <= latency.maximum);
        assert_eq!(latency.histogram.iter().map(|(_, count)| count).sum::<u64>(), 10_000);
        let counts: Vec<(u64, u64)> =
            result.streams.iter().map(|stream| (stream.sent, stream.received)).collect();
        assert_eq!(counts, [(5_000, 5_000), (5_000, 5_000)]);
    }
    drop(tester);
    assert_eq!(pool.ledger().outstanding(), 0);
}

#[test]
fn faults_are_found_exactly() {
    let _alone = alone();
    let second = Clock::calibrated().cycles_per_second();
    let pool = pool();
    let mut faults = FaultPlan::new();
    // The streams take turns: even packets are the first one's.
    for lost in 0..40 {
        faults = faults.with(100 + 2 * lost, Fault::Drop);
    }
    for twice in 0..30 {
        faults = faults.with(1_001 + 10 * twice, Fault::Duplicate);
    }
    for held in 0..20 {
        faults = faults.with(2_000 + 50 * held, Fault::HoldPackets(11));
    }
    for damaged in 0..10 {
        // In the payload, in the signature, in an address.
        faults = faults
            .with(4_000 + 3 * damaged, Fault::Corrupt { offset: 43, with: 1 })
            .with(5_000 + 3 * damaged, Fault::Corrupt { offset: -9, with: 0x40 })
            .with(6_000 + 3 * damaged, Fault::Corrupt { offset: 29, with: 0xff });
    }
    for late in 0..5 {
        faults = faults.with(9_990 + late, Fault::HoldCycles(second / 10));
    }
    let mut tester = tester(&pool, |queue| faults.wrap(queue, &pool));
    let late_after = Duration::from_millis(99);
    let result = run(&mut tester, &TrialConfig { late_after, ..config(streams(), 10_000) });
    let received = result.received.unwrap();
    assert_eq!(result.sent, 10_000);
    assert_eq!((received.lost, received.duplicated, received.corrupted), (40, 30, 30));
    assert_eq!(received.packets, 10_000 - 40 - 30);
    // Held by 11 packets of both streams: behind 5 or 6 of its own. The 5 late ones come behind the last five, in order.
    assert_eq!(received.reordered, 20 + 5);
    assert!((5..=6).contains(&received.reorder_extent), "{}", received.reorder_extent);
    assert_eq!((received.foreign, received.stale), (0, 0));
    assert!(received.late >= 5, "{}", received.late);
    assert_eq!(result.streams[0].lost - 5, 40, "40 lost and 5 with a damaged signature");
    assert_eq!(result.streams[1].duplicated, 30);
    drop(tester);
    assert_eq!(pool.ledger().outstanding(), 0);
}

#[test]
fn a_generator_that_is_too_slow_says_so() {
    let _alone = alone();
    let pool = pool();
    let mut tester = tester(&pool, |queue| queue);
    let fast = TrialConfig {
        packets_per_second: 9e8,
        count: None,
        duration: Duration::from_millis(50),
        patience: Duration::from_millis(1),
        ..config(streams(), 0)
    };
    let result = run(&mut tester, &fast);
    let why = result.void.unwrap();
    assert!(why.contains("did not keep the rate") && result.unsent.total > 0, "{why}");
}

#[test]
fn a_receiver_that_gets_nothing_says_so() {
    let _alone = alone();
    let pool = pool();
    let mut tester = tester(&pool, |queue| rate_limit::wrap(queue, 1e-6, 0));
    let result = run(&mut tester, &config(streams(), 100));
    assert!(
        result.notes.iter().any(|note| note.contains("got nothing of 100 packets")),
        "{:?}",
        result.notes
    );
    let error = tester
        .run(&TrialConfig { ..config(vec![stream("jumbo", template(), "9000", vec![])], 1) }, &mut |_| true)
        .unwrap_err();
    assert!(error.to_string().contains("more room"), "{error}");
}

#[test]
fn methods_find_a_known_capacity() {
    const CAPACITY: f64 = 2_000.0;
    const BUCKET: u32 = 1_000;
    let _alone = alone();
    let pool = pool();
    let mut tester = tester(&pool, |queue| rate_limit::wrap(queue, CAPACITY, BUCKET));
    let plan = Arc::new(profile(streams()).plan().unwrap());
    let mut measure = |request: &Request| -> Result<Measured, MethodError> {
        let config = TrialConfig {
            pattern: Pattern::Constant,
            packets_per_second: request.packets_per_second,
            duration: request.duration,
            count: request.count,
            // On a busy machine lanes are held up; what the generator makes up for then, the bucket takes.
            patience: Duration::from_secs(10),
            tolerance: 0.02,
            drain: Duration::from_millis(20),
            ..TrialConfig::new(Arc::clone(&plan))
        };
        let result = tester.run(&config, &mut |_| true).unwrap();
        let received = result.received.unwrap();
        Ok(Measured {
            packets_per_second: request.packets_per_second,
            seconds: request.duration.as_secs_f64(),
            offered: result.sent,
            received: received.packets,
            void: result.void,
            latency: received.latency,
        })
    };
    let duration = Duration::from_millis(500);
    let config = ThroughputConfig { maximum: 5_000.0, duration, width: 0.02 };
    let found = throughput(&mut measure, &config).unwrap();
    let (lower, upper) = (found.packets_per_second.unwrap(), found.lossy_packets_per_second.unwrap());
    // In that time the bucket's contents pass beside what flows in.
    let most = CAPACITY + f64::from(BUCKET) / duration.as_secs_f64();
    assert!(
        upper - lower <= 0.02 * upper && lower <= most * 1.02 && upper >= CAPACITY * 0.9,
        "{lower} {upper}"
    );

    let goal = mlrsearch::Goal {
        final_trial: 0.5,
        duration_sum: 1.0,
        initial_trial: 0.5,
        width: 0.02,
        ..mlrsearch::Goal::PDR
    };
    let found = mlrsearch::search(&mut measure, &[goal], 100.0, 5_000.0).unwrap();
    let throughput = found.goals[0].throughput.unwrap();
    assert!(throughput <= most * 1.03 && throughput >= CAPACITY * 0.9, "{:?}", found.goals);
}
