//! Stages that hold packets, copy them, make them, and work by the clock.

use super::{Endless, pool, run, sink, source};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use warmlane_lane::{
    KeptOutputs, LaneDrop, Outputs, PassThrough, Pipeline, Poll, Stage, Tap, Task, branch, every,
};
use warmlane_mem::{Burst, Packet, Pool, PoolConfig};
use warmlane_port::QueueStatus;

/// Keeps each packet for some polls, and lets it go by the named output, or on.
struct Delay {
    held: Vec<(u32, Packet)>,
    polls: u32,
    goes_on: bool,
}

impl Stage for Delay {
    fn process(&mut self, burst: &mut Burst, _outputs: &mut Outputs<'_>) {
        self.held.extend(burst.drain().map(|packet| (self.polls + 3, packet)));
    }

    fn output_count(&self) -> usize {
        1
    }

    fn is_polled(&self) -> bool {
        true
    }

    fn poll(&mut self, _now: u64, burst: &mut Burst, outputs: &mut Outputs<'_>) -> usize {
        self.polls += 1;
        let due = self.held.iter().take_while(|(poll, _)| *poll <= self.polls).count().min(burst.space());
        for (_, packet) in self.held.drain(..due) {
            let left = if self.goes_on { burst.push(packet) } else { outputs.push(0, packet) };
            assert!(left.is_ok());
        }
        due
    }

    fn is_done(&self) -> bool {
        self.held.is_empty()
    }

    fn finish(&mut self, burst: &mut Burst, _outputs: &mut Outputs<'_>) -> usize {
        let count = self.held.len().min(burst.space());
        for (_, packet) in self.held.drain(..count) {
            assert!(burst.push(packet).is_ok());
        }
        count
    }
}

#[test]
fn what_a_stage_holds_goes_on_later_through_the_rest_of_its_row() {
    for goes_on in [true, false] {
        let pool = pool();
        let (sink, taken) = sink(64, true);
        let seen = Arc::new(AtomicU64::new(0));
        let count = {
            let seen = Arc::clone(&seen);
            move |burst: &mut Burst| {
                seen.fetch_add(burst.len() as u64, Ordering::Relaxed);
            }
        };
        let mut builder = Pipeline::builder();
        let input = builder.input("in", source(&pool, 500));
        let delay = Delay { held: Vec::new(), polls: 0, goes_on };
        let row = builder.stage("row", (PassThrough, delay, count));
        let output = builder.output("out", sink);
        builder.connect(input, row).connect(row, output);
        if !goes_on {
            builder.connect((row, "output0"), output);
        }
        let mut pipeline = builder.build().expect("it fits");
        let graph = Arc::clone(pipeline.graph());
        run(&mut pipeline).expect("nothing breaks");
        assert_eq!(taken.packets(), 500);
        assert_eq!((graph.made(), seen.load(Ordering::Relaxed)), (500, if goes_on { 500 } else { 0 }));
        assert_eq!(pool.ledger().outstanding(), 0);
    }
}

#[test]
fn what_is_held_at_the_end_is_passed_on() {
    let pool = pool();
    let (sink, taken) = sink(256, true);
    let delay = Delay { held: Vec::new(), polls: 0, goes_on: true };
    let mut pipeline = Pipeline::new(source(&pool, u64::MAX), delay, sink);
    assert_eq!(pipeline.poll(), Poll::Worked(64));
    pipeline.stop();
    pipeline.finish().expect("nothing breaks");
    assert_eq!(taken.packets(), 64);
    assert_eq!(pool.ledger().outstanding(), 0);
}

#[test]
fn stages_are_called_by_the_clock_and_when_idle_without_packets() {
    struct CountsIdle(Arc<AtomicU64>);
    impl Stage for CountsIdle {
        fn process(&mut self, _burst: &mut Burst, _outputs: &mut Outputs<'_>) {}
        fn idle(&mut self, _outputs: &mut Outputs<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let pool = pool();
    let mut quiet = source(&pool, 0);
    quiet.end = QueueStatus::Running;
    let (idle, ticks) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let tick = {
        let ticks = Arc::clone(&ticks);
        move || {
            ticks.fetch_add(1, Ordering::Relaxed);
        }
    };
    let row = (CountsIdle(Arc::clone(&idle)), every(Duration::from_millis(1), tick));
    let mut pipeline = Pipeline::new(quiet, row, sink(64, false).0);
    let mut polls = 0;
    while ticks.load(Ordering::Relaxed) < 3 {
        assert_eq!(pipeline.poll(), Poll::Idle);
        polls += 1;
    }
    assert_eq!(idle.load(Ordering::Relaxed), polls);
    // Three milliseconds are many polls: the clock decides, not they.
    assert!(polls > 10, "{polls}");
}

#[test]
fn a_tap_copies_what_passes_and_holds_nothing_up() {
    let (pool, copies) =
        (pool(), Pool::new(&PoolConfig { buffers: 64, ..PoolConfig::default() }).expect("64"));
    let ((out, passed), (tap, tapped)) = (sink(64, true), sink(64, false));
    let mut builder = Pipeline::builder();
    let input = builder.input("in", source(&pool, 3_000));
    let stage = builder.stage("tap", Tap::new(&copies).one_in(3));
    let (out, tap) = (builder.output("out", out), builder.output("capture", tap));
    let mut pipeline =
        builder.connect(input, stage).connect(stage, out).connect((stage, "tap"), tap).build().expect("fits");
    let graph = Arc::clone(pipeline.graph());
    let hoard: Vec<_> = (0..32).map(|_| copies.take()).collect();
    run(&mut pipeline).expect("nothing breaks");
    assert_eq!((passed.packets(), tapped.packets()), (3_000, 1_000));
    drop(hoard);

    // With no buffer for copies the packets pass all the same.
    let hoard: Vec<_> = std::iter::from_fn(|| copies.take()).collect();
    let (out, passed) = sink(64, true);
    let mut pipeline = Pipeline::new(source(&pool, 100), Tap::new(&copies), out);
    let starved = Arc::clone(pipeline.graph());
    run(&mut pipeline).expect("nothing breaks");
    assert_eq!(passed.packets(), 100);
    let names: Vec<_> =
        starved.stages[0].drops().iter().map(|(reason, count)| (reason.name, *count)).collect();
    assert_eq!(names, [("tap-no-buffer", 100)]);
    assert!(graph.stages[0].drops().is_empty());
    drop(hoard);
    assert_eq!((pool.ledger().outstanding(), copies.ledger().outstanding()), (0, 0));
}

/// A capture that is stuck, and lossless, must not hold up the packets themselves.
#[test]
fn a_tap_is_never_waited_for() {
    let pool = pool();
    let ((out, passed), (stuck, tapped)) = (sink(64, true), sink(0, true));
    let mut builder = Pipeline::builder();
    let input = builder.input("in", source(&pool, 1_000));
    let stage = builder.stage("row", (PassThrough, Tap::new(&pool)));
    let (out, tap) = (builder.output("out", out), builder.output("capture", stuck));
    let mut pipeline =
        builder.connect(input, stage).connect(stage, out).connect((stage, "tap"), tap).build().expect("fits");
    for _ in 0..1_000 {
        pipeline.poll();
    }
    assert_eq!((passed.packets(), tapped.packets()), (1_000, 0));
}

#[test]
fn a_stage_that_makes_packets_is_stopped() {
    let pool = pool();
    let (sink, taken) = sink(64, true);
    let mut builder = Pipeline::builder();
    let stage = builder.stage("endless", Endless(pool.clone()));
    let out = builder.output("out", sink);
    let mut pipeline = builder.connect(stage, out).build().expect("fits");
    assert_eq!(pipeline.poll(), Poll::Worked(8));
    pipeline.stop();
    run(&mut pipeline).expect("nothing breaks");
    assert_eq!(taken.packets(), 8);
}

/// What a stage has sent by the clock, at once, is not left in the queue for the next 64 polls.
#[test]
fn what_is_sent_by_the_clock_alone_is_flushed() {
    let pool = pool();
    let (out, taken) = sink(64, false);
    let flushes = out.flushes();
    let mut quiet = source(&pool, 0);
    quiet.end = QueueStatus::Running;
    let buffers = pool.clone();
    let report = branch(&["report"], |_, _| ()).every(Duration::from_millis(1), move |_, outputs| {
        let mut burst = Burst::new();
        buffers.take_burst(&mut burst, 1);
        assert_eq!(outputs.transmit(0, &mut burst), 1);
    });
    let mut builder = Pipeline::builder();
    let (input, report) = (builder.input("in", quiet), builder.stage("report", report));
    let output = builder.output("out", out);
    let mut pipeline =
        builder.connect(input, report).connect((report, "report"), output).build().expect("fits");
    for sent in 0..9 {
        let mut before = 0;
        while taken.packets() == sent {
            before = flushes.get();
            pipeline.poll();
        }
        assert_eq!(flushes.get(), before + 1, "in the poll that sent it");
    }
}

/// Keeps all packets until the end, and is done at any time.
struct Hoard(Vec<Packet>);

impl Stage for Hoard {
    fn process(&mut self, burst: &mut Burst, _outputs: &mut Outputs<'_>) {
        self.0.extend(burst.drain());
    }

    fn finish(&mut self, burst: &mut Burst, _outputs: &mut Outputs<'_>) -> usize {
        let count = self.0.len().min(burst.space());
        self.0.drain(..count).for_each(|packet| assert!(burst.push(packet).is_ok()));
        count
    }
}

#[test]
fn what_stages_hold_at_the_end_is_not_lost_to_a_slow_queue() {
    let pool = pool();
    // Several bursts, and few enough refusals that a busy machine gets through them while they are waited for.
    let (mut slow, taken) = sink(8, true);
    slow.every = 2;
    let mut pipeline = Pipeline::new(source(&pool, 200), Hoard(Vec::new()), slow);
    let graph = Arc::clone(pipeline.graph());
    run(&mut pipeline).expect("nothing breaks");
    assert_eq!((taken.packets(), graph.drops().total()), (200, 0));
}

#[test]
fn what_a_stuck_queue_does_not_take_at_the_end_is_counted() {
    let pool = pool();
    let mut pipeline = Pipeline::new(source(&pool, u64::MAX), Hoard(Vec::new()), sink(0, true).0);
    let graph = Arc::clone(pipeline.graph());
    for _ in 0..10 {
        pipeline.poll();
    }
    pipeline.stop();
    // As a lane that has lost its patience does.
    pipeline.finish().expect("nothing breaks");
    assert_eq!(graph.received(), 640);
    assert_eq!((graph.sent(), graph.drops().get(LaneDrop::Unsent)), (0, graph.received()));
    assert_eq!(pool.ledger().outstanding(), 0);

    let (mut broken, _) = sink(0, true);
    broken.status = QueueStatus::Failed("no link".to_owned());
    let mut pipeline = Pipeline::new(source(&pool, 300), Hoard(Vec::new()), broken);
    let graph = Arc::clone(pipeline.graph());
    pipeline.poll();
    assert_eq!(run(&mut pipeline), Err("no link".to_owned()));
    assert_eq!(graph.received(), graph.drops().total());
    assert_eq!(pool.ledger().outstanding(), 0);
}

#[test]
fn what_is_sent_and_does_not_get_there_is_counted() {
    let pool = pool();
    let mut stage = branch(&["out"], |burst, outputs| {
        for packet in burst.drain() {
            outputs.send(0, packet);
        }
    });
    for (limit, connected, reason) in [(4, true, LaneDrop::OutputFull), (4, false, LaneDrop::Unconnected)] {
        let mut kept = KeptOutputs::of(&stage);
        *kept.burst(0) = Burst::with_limit(limit);
        if !connected {
            kept = kept.without(0);
        }
        let mut burst = Burst::new();
        pool.take_burst(&mut burst, 10);
        stage.process(&mut burst, &mut kept.outputs());
        let there = kept.burst(0).len() as u64;
        assert_eq!((there, kept.drops().get(reason)), if connected { (4, 6) } else { (0, 10) });
    }
    let (mut broken, _) = sink(0, false);
    broken.status = QueueStatus::Finished;
    let mut builder = Pipeline::builder();
    let (input, stage) = (builder.input("in", source(&pool, 1_000)), builder.stage("stage", stage));
    let output = builder.output("out", broken);
    let mut pipeline = builder.connect(input, stage).connect((stage, "out"), output).build().expect("fits");
    let graph = Arc::clone(pipeline.graph());
    run(&mut pipeline).expect("nothing breaks");
    assert_eq!(graph.received(), graph.drops().total());
    assert!(graph.drops().get(LaneDrop::OutputFull) > 0, "{:?}", graph.drops());
    assert_eq!(pool.ledger().outstanding(), 0);
}
