//! Lanes from the outside: they carry everything, drain when stopped, and say when they break.

use std::sync::Arc;
use std::time::{Duration, Instant};
use warmlane_counters::{Counter, CounterView};
use warmlane_lane::{
    Graph, LaneConfig, LaneError, Lanes, Outputs, PassThrough, Pipeline, Poll, Stage, Task, per_packet, place,
};
use warmlane_mem::{Burst, Pool, PoolConfig, channel};
use warmlane_port::{QueueStatus, ReceiveQueue, TransmitQueue};
use warmlane_testkit::queues::{Sink, Source};

fn pool() -> Pool {
    Pool::new(&PoolConfig { buffers: 1_024, ..PoolConfig::default() }).expect("1,024 buffers")
}

/// So many packets that carry their number.
fn numbers(pool: &Pool, count: u64) -> Box<dyn ReceiveQueue> {
    Box::new(Source::new(pool, count, |packet, number| packet.fill(&number.to_le_bytes()).expect("fits")))
}

/// Adds the numbers up; takes at most so many packets at a time, and none on every other call.
fn sum(most: usize) -> (Box<dyn TransmitQueue>, CounterView) {
    let total = Counter::new();
    let sum = total.view();
    let mut sink = Sink::new(most).with_look(move |packet| {
        total.add(u64::from_le_bytes(packet.data().try_into().expect("eight bytes")));
    });
    (sink.every, sink.is_lossless) = (2, true);
    (Box::new(sink), sum)
}

fn lane(name: &str) -> LaneConfig {
    LaneConfig { name: name.into(), ..LaneConfig::default() }
}

const COUNT: u64 = 100_000;

#[test]
fn a_pipeline_carries_every_packet_once() {
    let pool = pool();
    let (transmit, sum) = sum(5);
    let odd = per_packet(|packet| packet.data()[0] % 2 == 1);
    let pipeline = Pipeline::new(numbers(&pool, COUNT), (odd, PassThrough), transmit);
    let graph = Arc::clone(pipeline.graph());
    let mut lanes = Lanes::new();
    lanes.spawn(lane("one"), pipeline).expect("a thread");
    let views = lanes.join().expect("no panic");
    assert!(!views[0].cut_short);
    assert_eq!(sum.get(), (0..COUNT).filter(|number| number % 2 == 1).sum::<u64>());
    assert_eq!((graph.received(), graph.sent(), graph.drops().total()), (COUNT, COUNT / 2, 0));
    assert!(
        matches!(*graph.stages[0].drops(), [(reason, count)] if reason.name == "filtered" && count == COUNT / 2)
    );
    assert_eq!(pool.ledger().outstanding(), 0);
}

/// Two lanes that carry so many numbers, the first's graph, and the sum of what arrives.
fn two_lanes(pool: &Pool, count: u64) -> (Lanes, Arc<Graph>, CounterView) {
    let (transmit, sum) = sum(64);
    let (sender, receiver) = channel(256).expect("a power of two");
    let first = Pipeline::new(numbers(pool, count), PassThrough, sender);
    let graph = Arc::clone(first.graph());
    let mut lanes = Lanes::new();
    lanes.spawn(lane("first"), first).expect("a thread");
    lanes.spawn(lane("second"), Pipeline::new(receiver, PassThrough, transmit)).expect("a thread");
    (lanes, graph, sum)
}

#[test]
fn two_lanes_carry_every_packet_once() {
    let pool = pool();
    let (mut lanes, _, sum) = two_lanes(&pool, COUNT);
    lanes.join().expect("no panic");
    assert_eq!(sum.get(), (0..COUNT).sum::<u64>());
    assert_eq!(pool.ledger().outstanding(), 0);
}

#[test]
fn a_stop_drains_both_lanes() {
    let pool = pool();
    let (mut lanes, graph, sum) = two_lanes(&pool, u64::MAX);
    while graph.sent() < 1_000 {
        std::thread::sleep(Duration::from_millis(1));
    }
    lanes.stop();
    lanes.join().expect("no panic");
    assert_eq!(sum.get(), (0..graph.received()).sum::<u64>(), "all that was received was carried on");
    assert_eq!(pool.ledger().outstanding(), 0);
}

#[test]
fn a_panic_is_told_and_stops_the_others() {
    struct Broken;
    impl Stage for Broken {
        fn process(&mut self, _burst: &mut Burst, _outputs: &mut Outputs<'_>) {
            panic!("on purpose");
        }
    }
    let pool = pool();
    let (sender, receiver) = channel(256).expect("a power of two");
    let mut lanes = Lanes::new();
    lanes
        .spawn(lane("whole"), Pipeline::new(numbers(&pool, u64::MAX), PassThrough, sender))
        .expect("a thread");
    lanes.spawn(lane("broken"), Pipeline::new(receiver, Broken, sum(1).0)).expect("a thread");
    let error = lanes.join().expect_err("one panicked").to_string();
    assert!(error.contains("broken") && error.contains("on purpose"), "{error}");
    assert_eq!(pool.ledger().outstanding(), 0);
}

#[test]
fn a_lane_that_fails_is_named_with_the_reason_and_the_others_finish() {
    let pool = pool();
    let mut broken = Source::new(&pool, 10, |packet, _| packet.fill(&[0]).expect("fits"));
    broken.end = QueueStatus::Failed("interface 'eth7' is gone".to_owned());
    let (transmit, sum) = sum(64);
    let mut lanes = Lanes::new();
    lanes
        .spawn(lane("broken"), Pipeline::new(Box::new(broken), PassThrough, Box::new(Sink::new(64))))
        .expect("a thread");
    lanes
        .spawn(lane("whole"), Pipeline::new(numbers(&pool, COUNT), PassThrough, transmit))
        .expect("a thread");
    let error = lanes.join().expect_err("a queue broke");
    assert_eq!(error.to_string(), "lane 'broken': interface 'eth7' is gone");
    let LaneError::Failed { lane, source } = error else { panic!("{error}") };
    assert_eq!((lane.as_str(), source.reasons), ("broken", vec!["interface 'eth7' is gone".to_owned()]));
    let failed: Vec<_> = lanes.views().iter().map(|lane| lane.failed.is_some()).collect();
    assert_eq!((failed, sum.get()), (vec![true, false], (0..COUNT).sum::<u64>()));
    assert_eq!(pool.ledger().outstanding(), 0);
}

#[test]
fn what_never_moves_is_cut_short_and_counted() {
    struct Stuck;
    impl Task for Stuck {
        fn poll(&mut self) -> Poll {
            Poll::Idle
        }
        fn stop(&mut self) {}
    }
    let mut lanes = Lanes::new();
    lanes.spawn(LaneConfig { name: "stuck".into(), ..LaneConfig::default() }, Stuck).expect("a thread");
    lanes.stop();
    assert!(lanes.join().expect("no panic")[0].cut_short);
}

/// However much still moves, a stop comes to its end.
#[test]
fn what_always_moves_is_cut_short_as_well() {
    struct Tireless;
    impl Task for Tireless {
        fn poll(&mut self) -> Poll {
            Poll::Worked(1)
        }
        fn stop(&mut self) {}
    }
    let mut lanes = Lanes::new();
    let config = LaneConfig { stop_within: Duration::from_millis(10), ..lane("tireless") };
    lanes.spawn(config, Tireless).expect("a thread");
    lanes.stop();
    assert!(lanes.join().expect("no panic")[0].cut_short);
}

/// Whoever moves packets may take longer than one who doesn't.
#[test]
fn a_lane_that_moves_packets_is_not_cut_short_for_its_patience() {
    struct Busy(Option<Instant>);
    impl Task for Busy {
        fn poll(&mut self) -> Poll {
            // The patience, which is two seconds, and half as long again.
            let is_over = self.0.is_some_and(|asked| asked.elapsed() > Duration::from_secs(3));
            if is_over { Poll::Finished } else { Poll::Worked(1) }
        }
        fn stop(&mut self) {
            self.0 = Some(Instant::now());
        }
    }
    let mut lanes = Lanes::new();
    lanes.spawn(LaneConfig { stop_within: Duration::MAX, ..lane("busy") }, Busy(None)).expect("a thread");
    lanes.stop();
    assert!(!lanes.join().expect("no panic")[0].cut_short);
}

#[test]
fn lanes_run_where_they_are_put() {
    struct Where(Counter);
    impl Task for Where {
        fn poll(&mut self) -> Poll {
            self.0.add(warmlane_sys::affinity::current_cpu().map_or(u64::MAX, |cpu| cpu as u64));
            Poll::Finished
        }
        fn stop(&mut self) {}
    }
    let cpu = place(1).expect("one CPU")[0];
    let counter = Counter::new();
    let seen = counter.view();
    let mut lanes = Lanes::new();
    let config = LaneConfig { name: "here".into(), cpu: Some(cpu), ..LaneConfig::default() };
    lanes.spawn(config, Where(counter)).expect("pinned");
    lanes.join().expect("no panic");
    assert_eq!(seen.get(), cpu as u64);

    let config = LaneConfig { name: "nowhere".into(), cpu: Some(100_000), ..LaneConfig::default() };
    let error = lanes.spawn(config, Where(Counter::new())).expect_err("no such CPU");
    assert!(matches!(&error, LaneError::Pin { lane, .. } if lane == "nowhere"), "{error}");
}

/// Takes and frees packets once, so that its lane keeps some in reserve, and has nothing to do after that.
struct Hoarder {
    pool: Pool,
    worked: bool,
    stopping: bool,
}

impl Task for Hoarder {
    fn poll(&mut self) -> Poll {
        if self.stopping {
            return Poll::Finished;
        }
        if std::mem::replace(&mut self.worked, true) {
            return Poll::Idle;
        }
        let mut burst = Burst::new();
        Poll::Worked(self.pool.take_burst(&mut burst, 16))
    }

    fn stop(&mut self) {
        self.stopping = true;
    }
}

#[test]
fn an_idle_lane_leaves_its_reserve_to_who_asks() {
    let pool = Pool::new(&PoolConfig { buffers: 32, magazine: Some(8), ..PoolConfig::default() })
        .expect("a small pool");
    let mut lanes = Lanes::new();
    let config = LaneConfig { name: "idle".to_owned(), ..LaneConfig::default() };
    let task = Hoarder { pool: pool.clone(), worked: false, stopping: false };
    lanes.spawn(config, task).expect("a lane");
    while lanes.views()[0].counters.packets() == 0 {
        std::thread::yield_now();
    }
    let mut taken = Vec::new();
    let start = Instant::now();
    while taken.len() < 32 && start.elapsed() < Duration::from_secs(10) {
        taken.extend(pool.take());
        std::thread::yield_now();
    }
    assert_eq!(taken.len(), 32, "the lane kept {}", 32 - taken.len());
    lanes.stop();
    lanes.join().expect("no panic");
}
