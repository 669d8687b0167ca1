//! Trials over a cable in memory: the books are right, whatever the cable does.

use crate::common::{Awkward, Noisy, awkward, cable, pool, profile, stream, template};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use warmlane_gen::control::Stream;
use warmlane_gen::datapath::Pattern;
use warmlane_gen::methods::rfc2544::{ThroughputConfig, throughput};
use warmlane_gen::methods::{Request, Trials, Watch, mlrsearch};
use warmlane_gen::{Interval, Sample, Tester, TrialConfig, TrialResult};
use warmlane_mem::Pool;
use warmlane_port::QueueCountersView;
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

/// Looks at nothing.
struct Nobody;

impl Watch for Nobody {
    fn goes(&mut self, _: &Request, _: &Sample) -> bool {
        true
    }

    fn ended(&mut self, _: &Request, _: &TrialResult) {}
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

/// Runs a trial and checks its books against each other.
fn run(tester: &mut Tester, config: &TrialConfig) -> TrialResult {
    let result = tester.run(config, &mut |_| true).unwrap();
    let unsent = result.unsent;
    assert_eq!(unsent.late + unsent.refused + unsent.dropped, unsent.total);
    assert_eq!(result.offered, result.sent + unsent.total);
    let received = result.received.as_ref().unwrap();
    assert_eq!(result.sent, received.packets + received.corrupted + received.lost);
    // Whatever the intervals, nothing is missing from them.
    for most in [1, 7, 1_000] {
        let intervals = result.intervals(most);
        let sum = |count: fn(&Interval) -> u64| intervals.iter().map(count).sum::<u64>();
        assert_eq!(sum(|part| part.sent), result.sent);
        assert_eq!(sum(|part| part.received), received.packets + received.corrupted);
        let worst = intervals.iter().filter_map(|part| part.worst_latency).max();
        assert_eq!(worst.is_some(), received.latency.is_some());
    }
    result
}

#[test]
fn a_perfect_cable_loses_nothing() {
    let _alone = alone();
    let pool = pool();
    let mut port = None;
    let mut tester = tester(&pool, |queue| {
        port = Some(queue.counters());
        queue
    });
    for trial in 1..=3 {
        let result = run(&mut tester, &config(streams(), 10_000));
        assert_eq!((&result.void, result.offered), (&None, 10_000));
        // The last one leaves 199.98 ms after the first; and the port has its own books.
        assert!(result.seconds > 0.1999 && result.sent_packets_per_second < 50_025.0, "{}", result.seconds);
        let received = result.received.unwrap();
        assert_eq!(port.as_ref().map(QueueCountersView::packets), Some(trial * received.packets));
        assert_eq!((received.packets, received.loss_ratio), (10_000, 0.0));
        let odd =
            [received.disorder.duplicated, received.disorder.reordered, received.stale, received.foreign];
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
    assert_eq!((received.lost, received.disorder.duplicated, received.corrupted), (40, 30, 30));
    assert_eq!(received.packets, 10_000 - 40 - 30);
    // Held by 11 packets of both streams: behind 5 or 6 of its own. The 5 late ones come behind the last five, in order.
    assert_eq!(received.disorder.reordered, 20 + 5);
    assert!((5..=6).contains(&received.disorder.reorder_extent), "{}", received.disorder.reorder_extent);
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
fn a_count_that_takes_longer_than_its_rate_allows_is_void() {
    let _alone = alone();
    let pool = pool();
    let mut tester = tester(&pool, |queue| queue);
    for pattern in [Pattern::Constant, Pattern::Poisson, Pattern::Bursts(64)] {
        let fast = TrialConfig { pattern, packets_per_second: 9e8, ..config(streams(), 1_000) };
        let result = run(&mut tester, &fast);
        assert_eq!(result.sent, 1_000);
        let why = result.void.unwrap();
        assert!(why.contains("did not keep the rate") && why.contains("took"), "{why}");
        assert!(result.sent_packets_per_second < 5e8, "{}", result.sent_packets_per_second);
    }
    // A burst at once has no rate.
    let at_once = TrialConfig { pattern: Pattern::Unpaced, ..config(streams(), 10) };
    let result = run(&mut tester, &at_once);
    assert_eq!((result.void, result.sent_packets_per_second), (None, 0.0));
    assert!(result.notes[0].contains("tells no rate"), "{:?}", result.notes);
}

#[test]
fn a_trial_that_is_stopped_says_so() {
    let _alone = alone();
    let pool = pool();
    let mut tester = tester(&pool, |queue| queue);
    let long = TrialConfig { count: None, tolerance: 0.5, ..config(streams(), 0) };
    let result = tester.run(&long, &mut |sample| sample.seconds < 0.2).unwrap();
    assert!(result.seconds < 5.0 && result.void.is_none(), "{:?}", result.void);
    assert!(result.notes[0].contains("ended early: after 0.") && result.notes[0].contains("of 10"));
}

#[test]
fn what_the_sending_port_does_not_take_or_drops_is_unsent() {
    let _alone = alone();
    let pool = pool();
    let start = |how| {
        let (transmit, receive) = cable(4_096);
        let cpus = affinity::allowed_cpus().unwrap();
        Tester::start(awkward(transmit, how), vec![receive], &pool, &cpus).unwrap()
    };
    let one = || vec![stream("only", template(), "128", vec![])];
    let short = TrialConfig {
        count: None,
        duration: Duration::from_millis(20),
        patience: Duration::from_millis(5),
        tolerance: 1.0,
        ..config(one(), 0)
    };
    let result = run(&mut start(Awkward::Takes(100)), &short);
    assert_eq!((result.offered, result.sent, result.unsent.dropped), (1_000, 100, 0));
    assert!(result.unsent.refused > 0, "{:?}", result.unsent);
    // Rates in bits are those of whole frames, whatever was built in vain or never.
    let frame = result.sent_bits_per_second_l2 / result.sent_packets_per_second / 8.0;
    assert!((frame - 128.0).abs() < 1e-6, "{frame}");

    let mut tester = start(Awkward::DropsTenths);
    let result = run(&mut tester, &TrialConfig { tolerance: 0.2, ..config(one(), 1_000) });
    assert_eq!((result.void, result.sent, result.unsent.dropped), (None, 900, 100));
    let stream = &result.streams[0];
    assert_eq!((stream.sent, stream.received, stream.lost), (900, 900, 0));
    let result = run(&mut tester, &TrialConfig { tolerance: 0.05, ..config(streams(), 1_000) });
    assert!(result.void.unwrap().contains("100 dropped by the port"));
    assert!(result.notes[0].contains("dropped 100 packets"), "{:?}", result.notes);
}

#[test]
fn what_a_port_sends_only_in_parts_arrives_whole() {
    let _alone = alone();
    let pool = pool();
    let (transmit, receive) = cable(4_096);
    let cpus = affinity::allowed_cpus().unwrap();
    let transmit = awkward(transmit, Awkward::SendsEights);
    let mut tester = Tester::start(transmit, vec![receive], &pool, &cpus).unwrap();
    let result = run(&mut tester, &TrialConfig { pattern: Pattern::Unpaced, ..config(streams(), 1_000) });
    assert_eq!((result.sent, result.received.unwrap().packets), (1_000, 1_000));
}

#[test]
fn others_traffic_neither_ends_a_trial_early_nor_keeps_it_from_ending() {
    let _alone = alone();
    let pool = pool();
    let mut faults = FaultPlan::new();
    for late in 995..1_000 {
        faults = faults.with(late, Fault::HoldCycles(Clock::calibrated().cycles_per_second() / 10));
    }
    let mut tester =
        tester(&pool, |queue| Box::new(Noisy { queue: faults.wrap(queue, &pool), pool: pool.clone() }));
    let patient = TrialConfig { drain: Duration::from_secs(5), ..config(streams(), 1_000) };
    let result = run(&mut tester, &patient);
    let received = result.received.unwrap();
    assert_eq!((received.packets, received.lost), (1_000, 0));
    assert!(received.foreign > 1_000, "{}", received.foreign);
}

#[test]
fn a_packet_a_hundred_thousand_places_behind_is_not_lost() {
    let _alone = alone();
    let pool = pool();
    let faults = FaultPlan::new().with(10, Fault::HoldPackets(100_000));
    let mut tester = tester(&pool, |queue| faults.wrap(queue, &pool));
    let one = vec![stream("only", template(), "64", vec![])];
    let result = run(&mut tester, &TrialConfig { pattern: Pattern::Unpaced, ..config(one, 120_000) });
    let received = result.received.unwrap();
    assert_eq!(
        (received.lost, received.disorder.reordered, received.disorder.reorder_extent),
        (0, 1, 100_000)
    );
}

#[test]
fn thousands_of_streams_share_a_latency() {
    let _alone = alone();
    let pool = pool();
    let mut tester = tester(&pool, |queue| queue);
    let many = (0..5_000).map(|number| stream(&number.to_string(), template(), "64", vec![])).collect();
    let result = run(&mut tester, &config(many, 10_000));
    let received = result.received.unwrap();
    assert_eq!(received.latency.unwrap().histogram.iter().map(|(_, count)| count).sum::<u64>(), 10_000);
    assert!(result.streams.iter().all(|stream| stream.received == 2 && stream.latency.is_none()));
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
    assert!(error.to_string().contains("larger ones"), "{error}");
}

/// On one lane for both, a port that broke after it had sent everything is not taken for the receiving one.
#[test]
fn a_transmitting_port_that_breaks_is_not_the_receiving_one() {
    let _alone = alone();
    let pool = pool();
    let (transmit, receive) = cable(4_096);
    let transmit = awkward(transmit, Awkward::BreaksAfter(1_000));
    let cpus = affinity::allowed_cpus().unwrap();
    let mut tester = Tester::start(transmit, vec![receive], &pool, &cpus[..1]).unwrap();
    let result = run(&mut tester, &config(streams(), 1_000));
    assert_eq!((result.sent, result.void), (1_000, None));
}

#[test]
fn methods_find_a_known_capacity() {
    const CAPACITY: f64 = 2_000.0;
    const BUCKET: u32 = 1_000;
    const WIDTH: f64 = 0.02;
    const TOLERANCE: f64 = 0.02;
    let _alone = alone();
    let pool = pool();
    let mut tester = tester(&pool, |queue| rate_limit::wrap(queue, CAPACITY, BUCKET));
    let plan = Arc::new(profile(streams()).plan().unwrap());
    let base = TrialConfig {
        // On a busy machine lanes are held up; what the generator makes up for then, the bucket takes.
        patience: Duration::from_secs(10),
        tolerance: TOLERANCE,
        drain: Duration::from_millis(20),
        ..TrialConfig::new(plan)
    };
    let mut measure = Trials { tester: &mut tester, config: base, watch: &mut Nobody };
    let duration = Duration::from_millis(500);
    let config = ThroughputConfig { maximum: 5_000.0, duration, width: WIDTH };
    let found = throughput(&mut measure, &config).unwrap();
    let (lower, upper) = (found.packets_per_second.unwrap(), found.lossy_packets_per_second.unwrap());
    // In that time the bucket's contents pass beside what flows in.
    let most = CAPACITY + f64::from(BUCKET) / duration.as_secs_f64();
    // The width is that of the rates asked for; each of the two that were sent may be off by the tolerance.
    let width = WIDTH + 2.0 * TOLERANCE;
    assert!(
        upper - lower <= width * upper && lower <= most * 1.02 && upper >= CAPACITY * 0.9,
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
