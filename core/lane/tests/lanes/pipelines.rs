//! Pipelines polled by hand: where packets go, when stages are called, what is lost and how it is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use warmlane_lane::{
    Failure, GraphError, KeptOutputs, LaneDrop, Node, Outputs, PassThrough, Pipeline, Poll, Stage, Tap, Task,
    branch, every, per_packet,
};
use warmlane_mem::{Burst, Packet, Pool, PoolConfig, channel};
use warmlane_port::{QueueCounters, QueueCountersView, QueueStatus, ReceiveQueue, TransmitQueue};

/// Gives out packets that carry their number in the first byte, then ends in a given way.
struct Source {
    pool: Pool,
    next: u8,
    left: usize,
    end: QueueStatus,
    counters: QueueCounters,
}

impl ReceiveQueue for Source {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        let before = burst.len();
        let count = self.pool.take_burst(burst, self.left);
        for packet in &mut burst[before..] {
            packet.fill(&[self.next]).expect("fits");
            self.next = self.next.wrapping_add(1);
        }
        self.left -= count;
        count
    }

    fn status(&self) -> QueueStatus {
        if self.left > 0 { QueueStatus::Running } else { self.end.clone() }
    }

    fn counters(&self) -> QueueCountersView {
        self.counters.view()
    }
}

/// Takes so many packets a call, none on every other call if it is halting.
struct Sink {
    each: usize,
    halts: bool,
    calls: u64,
    lossless: bool,
    costly: bool,
    flushes: Arc<AtomicU64>,
    status: QueueStatus,
    taken: Arc<AtomicU64>,
    counters: QueueCounters,
}

impl TransmitQueue for Sink {
    fn transmit(&mut self, burst: &mut Burst) -> usize {
        self.calls += 1;
        if self.halts && self.calls.is_multiple_of(2) {
            return 0;
        }
        let count = burst.len().min(self.each);
        burst.free_front(count);
        self.taken.fetch_add(count as u64, Ordering::Relaxed);
        count
    }

    fn is_lossless(&self) -> bool {
        self.lossless
    }

    fn is_costly_to_call(&self) -> bool {
        self.costly
    }

    fn flush(&mut self) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
    }

    fn status(&self) -> QueueStatus {
        self.status.clone()
    }

    fn counters(&self) -> QueueCountersView {
        self.counters.view()
    }
}

fn pool() -> Pool {
    Pool::new(&PoolConfig { buffers: 2_048, ..PoolConfig::default() }).expect("2,048 buffers")
}

#[expect(clippy::unnecessary_box_returns, reason = "pipelines take boxed queues")]
fn source(pool: &Pool, left: usize) -> Box<Source> {
    let counters = QueueCounters::new();
    Box::new(Source { pool: pool.clone(), next: 0, left, end: QueueStatus::Finished, counters })
}

fn sink(each: usize, lossless: bool) -> (Box<Sink>, Arc<AtomicU64>) {
    let taken = Arc::<AtomicU64>::default();
    let sink = Sink {
        each,
        halts: false,
        calls: 0,
        lossless,
        costly: false,
        flushes: Arc::default(),
        status: QueueStatus::Running,
        taken: Arc::clone(&taken),
        counters: QueueCounters::new(),
    };
    (Box::new(sink), taken)
}

/// Polls to the end.
fn run(pipeline: &mut Pipeline) -> Result<(), String> {
    let polls = (0..1_000_000).take_while(|_| pipeline.poll() != Poll::Finished).count();
    assert!(polls < 1_000_000, "it never ends");
    pipeline.finish().map_err(|failed| failed.to_string())
}

#[test]
fn nothing_is_lost_behind_the_shortest_idiom() {
    let pool = pool();
    let (slow, taken) = sink(1, true);
    let mut pipeline = Pipeline::new(source(&pool, 100_000), PassThrough, slow);
    let graph = Arc::clone(pipeline.graph());
    run(&mut pipeline).expect("nothing breaks");
    assert_eq!((taken.load(Ordering::Relaxed), graph.drops().total()), (100_000, 0));
    assert_eq!(pool.ledger().outstanding(), 0);
}

#[test]
fn a_slow_queue_that_may_lose_packets_loses_them_with_a_reason() {
    let pool = pool();
    let (mut slow, taken) = sink(1, false);
    slow.halts = true;
    let mut pipeline = Pipeline::new(source(&pool, 10_000), PassThrough, slow);
    let graph = Arc::clone(pipeline.graph());
    run(&mut pipeline).expect("nothing breaks");
    let (sent, lost) = (taken.load(Ordering::Relaxed), graph.drops().get(LaneDrop::OutputFull));
    assert!(lost > 0);
    assert_eq!(sent + lost, 10_000);
    assert_eq!(graph.received(), graph.sent() + graph.drops().total());
}

#[test]
fn a_broken_queue_ends_the_pipeline_and_says_why() {
    let pool = pool();
    let mut broken = source(&pool, 10);
    broken.end = QueueStatus::Failed("interface 'eth7' is gone".to_owned());
    let mut pipeline = Pipeline::new(broken, PassThrough, sink(64, false).0);
    let graph = Arc::clone(pipeline.graph());
    assert_eq!(run(&mut pipeline), Err("interface 'eth7' is gone".to_owned()));
    assert_eq!(graph.name(graph.failures()[0].node), "input");

    let (mut broken, _) = sink(0, true);
    broken.status = QueueStatus::Failed("no link".to_owned());
    let mut pipeline = Pipeline::new(source(&pool, usize::MAX), PassThrough, broken);
    let graph = Arc::clone(pipeline.graph());
    assert_eq!(run(&mut pipeline), Err("no link".to_owned()));
    assert_eq!(graph.failures(), [Failure { node: Node::Output(0), reason: "no link".to_owned() }]);
    assert_eq!(graph.received(), graph.drops().total());
    assert_eq!(pool.ledger().outstanding(), 0);
}

/// A splitter by the lowest bit, as a stage of one's own with a named output.
fn odd_ones_out() -> impl Stage {
    branch(&["odd"], |burst, outputs| {
        let mut even = Burst::with_limit(burst.limit());
        for packet in burst.drain() {
            let is_odd = packet.data()[0] % 2 == 1;
            let left = if is_odd { outputs.push(0, packet) } else { even.push(packet) };
            assert!(left.is_ok());
        }
        std::mem::swap(burst, &mut even);
    })
}

#[test]
fn named_outputs_lead_where_they_are_connected() {
    let pool = pool();
    let ((odd, odds), (even, evens)) = (sink(64, true), sink(64, true));
    let mut builder = Pipeline::builder();
    let input = builder.input("in", source(&pool, 1_000));
    let split = builder.stage("split", odd_ones_out());
    let third = builder.stage("third", per_packet(|packet| packet.data()[0] % 3 == 0));
    let (odd, even) = (builder.output("odd", odd), builder.output("even", even));
    builder.connect(input, split).connect((split, "odd"), third).connect(third, odd).connect(split, even);
    let mut pipeline = builder.build().expect("it fits");
    let graph = Arc::clone(pipeline.graph());
    run(&mut pipeline).expect("nothing breaks");
    let number = |index: usize| (index % 256) as u8;
    let (mut expected_odds, mut expected_evens) = (0, 0);
    for index in 0..1_000 {
        expected_odds += u64::from(number(index) % 2 == 1 && number(index) % 3 == 0);
        expected_evens += u64::from(number(index) % 2 == 0);
    }
    assert_eq!(
        (odds.load(Ordering::Relaxed), evens.load(Ordering::Relaxed)),
        (expected_odds, expected_evens)
    );
    assert_eq!(graph.stages[1].processed(), 500);
    let edge = graph.edges.iter().find(|edge| edge.output.as_deref() == Some("odd")).expect("an edge");
    assert_eq!((graph.name(edge.from), graph.name(edge.to)), ("split", "third"));
    assert!(graph.dot().contains("stage0 -> stage1 [label=\"odd\""), "{}", graph.dot());
    assert_eq!(pool.ledger().outstanding(), 0);
}

/// A stage that sends half of each burst by its only output.
fn halve(name: &'static [&'static str]) -> impl Stage {
    branch(name, |burst, outputs| {
        for _ in 0..burst.len() / 2 {
            let packet = burst.pop().expect("there are some");
            assert!(outputs.push(0, packet).is_ok());
        }
    })
}

#[test]
fn outputs_of_a_row_are_those_of_its_stages() {
    let pool = pool();
    let sinks: [_; 3] = std::array::from_fn(|_| sink(64, true));
    let taken = sinks.each_ref().map(|(_, taken)| Arc::clone(taken));
    let [first, second, rest] = sinks.map(|(sink, _)| sink);
    let mut builder = Pipeline::builder();
    let input = builder.input("in", source(&pool, 64));
    let row = (PassThrough, halve(&["half"]), |_: &mut Burst| {}, halve(&["quarter"]), PassThrough);
    assert_eq!((row.output_count(), row.input_count()), (2, 1));
    let row = builder.stage("row", row);
    let first = builder.output("first", first);
    let (second, rest) = (builder.output("second", second), builder.output("rest", rest));
    builder.connect(input, row).connect((row, "half"), first).connect((row, "quarter"), second);
    let mut pipeline = builder.connect(row, rest).build().expect("it fits");
    run(&mut pipeline).expect("nothing breaks");
    assert_eq!(taken.map(|taken| taken.load(Ordering::Relaxed)), [32, 16, 16]);
    assert_eq!(pool.ledger().outstanding(), 0);
}

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
        let due = self.held.iter().take_while(|(poll, _)| *poll <= self.polls).count().min(burst.room());
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
        let count = self.held.len().min(burst.room());
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
        assert_eq!(taken.load(Ordering::Relaxed), 500);
        assert_eq!((graph.made(), seen.load(Ordering::Relaxed)), (500, if goes_on { 500 } else { 0 }));
        assert_eq!(pool.ledger().outstanding(), 0);
    }
}

#[test]
fn what_is_held_at_the_end_is_passed_on() {
    let pool = pool();
    let (sink, taken) = sink(256, true);
    let delay = Delay { held: Vec::new(), polls: 0, goes_on: true };
    let mut pipeline = Pipeline::new(source(&pool, usize::MAX), delay, sink);
    assert_eq!(pipeline.poll(), Poll::Worked(64));
    pipeline.stop();
    pipeline.finish().expect("nothing breaks");
    assert_eq!(taken.load(Ordering::Relaxed), 64);
    assert_eq!(pool.ledger().outstanding(), 0);
}

/// Sends each packet round once more, by its other input.
struct Round(Arc<AtomicU64>);

impl Stage for Round {
    fn process(&mut self, burst: &mut Burst, outputs: &mut Outputs<'_>) {
        for packet in burst.drain() {
            assert!(outputs.push(0, packet).is_ok());
        }
    }

    fn output_count(&self) -> usize {
        1
    }

    fn input_count(&self) -> usize {
        2
    }

    fn process_input(&mut self, input: usize, burst: &mut Burst, _outputs: &mut Outputs<'_>) {
        assert_eq!(input, 1);
        self.0.fetch_add(burst.len() as u64, Ordering::Relaxed);
    }
}

#[test]
fn packets_can_come_back_to_another_input_of_a_stage() {
    let pool = pool();
    let (sink, taken) = sink(64, true);
    let rounds = Arc::new(AtomicU64::new(0));
    let mut builder = Pipeline::builder();
    let input = builder.input("in", source(&pool, 1_000));
    let row = builder.stage("row", (PassThrough, Round(Arc::clone(&rounds)), PassThrough));
    let output = builder.output("out", sink);
    builder.connect(input, row).connect((row, "output0"), (row, "input1")).connect(row, output);
    let mut pipeline = builder.build().expect("it fits");
    run(&mut pipeline).expect("nothing breaks");
    assert_eq!((rounds.load(Ordering::Relaxed), taken.load(Ordering::Relaxed)), (1_000, 1_000));
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
fn one_pipeline_forwards_both_ways_and_one_blocked_way_leaves_the_other_open() {
    let pool = pool();
    let (stuck, none) = sink(0, true);
    let (free, taken) = sink(64, true);
    let mut builder = Pipeline::builder();
    let (west, east) =
        (builder.input("west", source(&pool, 1_000)), builder.input("east", source(&pool, 1_000)));
    let (to_east, to_west) = (builder.output("to east", stuck), builder.output("to west", free));
    builder.connect(west, to_east).connect(east, to_west);
    let mut pipeline = builder.build().expect("it fits");
    for _ in 0..1_000 {
        pipeline.poll();
    }
    assert_eq!((none.load(Ordering::Relaxed), taken.load(Ordering::Relaxed)), (0, 1_000));
    let graph = Arc::clone(pipeline.graph());
    assert_eq!((graph.inputs[0].received(), graph.drops().total()), (64, 0));
}

#[test]
fn several_tasks_run_on_one_lane() {
    let pool = pool();
    let (sender, receiver) = channel(256).expect("a power of two");
    let (sink, taken) = sink(64, true);
    let mut tasks = vec![
        Pipeline::new(source(&pool, 5_000), PassThrough, sender),
        Pipeline::new(receiver, PassThrough, sink),
    ];
    // The second ends once the first's sender is gone.
    let mut polls = 0;
    while taken.load(Ordering::Relaxed) < 5_000 {
        assert_ne!(tasks.poll(), Poll::Finished);
        polls += 1;
        assert!(polls < 1_000_000);
    }
    tasks.stop();
    tasks.finish().expect("nothing breaks");
    assert_eq!(tasks.graphs().len(), 2);
    drop(tasks);
    assert_eq!(pool.ledger().outstanding(), 0);
}

#[test]
fn what_does_not_fit_is_named() {
    let pool = pool();
    let error =
        |connect: fn(&mut warmlane_lane::PipelineBuilder, warmlane_lane::InputId, warmlane_lane::StageId)| {
            let mut builder = Pipeline::builder();
            let input = builder.input("in", source(&pool, 1));
            let stage = builder.stage("split", odd_ones_out());
            connect(&mut builder, input, stage);
            builder.build().map(|_| ()).expect_err("it does not fit")
        };
    let unknown = error(|builder, input, stage| {
        builder.connect(input, stage).connect((stage, "even"), stage);
    });
    assert_eq!(unknown.to_string(), "stage 'split' has no output 'even': it has odd");
    assert!(matches!(error(|_, _, _| ()), GraphError::UnconnectedInput { input } if input == "in"));
    let twice = error(|builder, input, stage| {
        builder.connect(input, stage).connect(input, stage);
    });
    assert!(matches!(twice, GraphError::ConnectedTwice { .. }), "{twice}");
    let name = error(|builder, input, stage| {
        builder.stage("split", PassThrough);
        builder.connect(input, stage);
    });
    assert!(matches!(name, GraphError::DuplicateName { .. }), "{name}");
}

#[test]
fn what_leads_nowhere_is_counted() {
    let pool = pool();
    let mut pipeline = Pipeline::sink(source(&pool, 100), PassThrough);
    let graph = Arc::clone(pipeline.graph());
    run(&mut pipeline).expect("nothing breaks");
    assert_eq!(graph.drops().get(LaneDrop::Unconnected), 100);
    assert_eq!(graph.name(Node::Stage(0)), "PassThrough");
    assert_eq!(pool.ledger().outstanding(), 0);
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
    assert_eq!((passed.load(Ordering::Relaxed), tapped.load(Ordering::Relaxed)), (3_000, 1_000));
    drop(hoard);

    // With no buffer for copies the packets pass all the same.
    let hoard: Vec<_> = std::iter::from_fn(|| copies.take()).collect();
    let (out, passed) = sink(64, true);
    let mut pipeline = Pipeline::new(source(&pool, 100), Tap::new(&copies), out);
    let starved = Arc::clone(pipeline.graph());
    run(&mut pipeline).expect("nothing breaks");
    assert_eq!(passed.load(Ordering::Relaxed), 100);
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
    assert_eq!((passed.load(Ordering::Relaxed), tapped.load(Ordering::Relaxed)), (1_000, 0));
}

/// What a lane before has sent is counted, though nothing can leave any more.
#[test]
fn packets_in_a_channel_whose_lane_broke_are_counted() {
    let pool = pool();
    let (mut sender, receiver) = channel(256).expect("a power of two");
    let (mut broken, _) = sink(0, true);
    broken.status = QueueStatus::Failed("no link".to_owned());
    let mut second = Pipeline::new(receiver, PassThrough, broken);
    let graph = Arc::clone(second.graph());
    let mut burst = Burst::with_limit(200);
    pool.take_burst(&mut burst, 200);
    assert_eq!(sender.send(&mut burst), 200);
    assert_eq!(run(&mut second), Err("no link".to_owned()));
    drop((second, sender));
    assert_eq!((graph.received(), graph.drops().total()), (200, 200));
    assert_eq!(pool.ledger().outstanding(), 0);
}

/// A stage that makes packets all the time, and doesn't know of stops.
struct Endless(Pool);

impl Stage for Endless {
    fn process(&mut self, _burst: &mut Burst, _outputs: &mut Outputs<'_>) {}

    fn is_polled(&self) -> bool {
        true
    }

    fn poll(&mut self, _now: u64, burst: &mut Burst, _outputs: &mut Outputs<'_>) -> usize {
        self.0.take_burst(burst, 8)
    }
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
    assert_eq!(taken.load(Ordering::Relaxed), 8);
}

/// Where a lossless output is the bottleneck, each input gets its turn.
#[test]
fn no_input_is_starved_by_another() {
    let pool = pool();
    let (slow, _) = sink(16, true);
    let mut builder = Pipeline::builder();
    let (a, b) =
        (builder.input("a", source(&pool, usize::MAX)), builder.input("b", source(&pool, usize::MAX)));
    let out = builder.output("out", slow);
    let mut pipeline = builder.connect(a, out).connect(b, out).build().expect("fits");
    for _ in 0..10_000 {
        pipeline.poll();
    }
    let graph = Arc::clone(pipeline.graph());
    let (a, b) = (graph.inputs[0].received(), graph.inputs[1].received());
    assert!(a.min(b) * 2 > a.max(b), "{a} and {b}");
    assert_eq!(graph.drops().total(), 0);
}

/// Several bursts are gathered for a queue that is costly to call, and only by inputs that lead there.
#[test]
fn only_inputs_in_front_of_a_costly_queue_gather() {
    let pool = pool();
    let mut costly = sink(256, false).0;
    costly.costly = true;
    let mut builder = Pipeline::builder();
    let sender = builder.stage("sender", Endless(pool.clone()));
    let receiver = builder.stage("receiver", |burst: &mut Burst| burst.clear());
    let (input, output) = (builder.input("in", source(&pool, usize::MAX)), builder.output("out", costly));
    let mut tester = builder.connect(input, receiver).connect(sender, output).build().expect("fits");
    assert_eq!(tester.poll(), Poll::Worked(8 + 64));

    let mut costly = sink(256, false).0;
    costly.costly = true;
    let mut forwarder = Pipeline::new(source(&pool, usize::MAX), PassThrough, costly);
    assert_eq!(forwarder.poll(), Poll::Worked(256));
}

/// What a stage has sent by the clock, at once, is not left in the queue for the next 64 polls.
#[test]
fn what_is_sent_by_the_clock_alone_is_flushed() {
    let pool = pool();
    let (out, taken) = sink(64, false);
    let flushes = Arc::clone(&out.flushes);
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
        while taken.load(Ordering::Relaxed) == sent {
            before = flushes.load(Ordering::Relaxed);
            pipeline.poll();
        }
        assert_eq!(flushes.load(Ordering::Relaxed), before + 1, "in the poll that sent it");
    }
}

/// Keeps all packets until the end, and is done at any time.
struct Hoard(Vec<Packet>);

impl Stage for Hoard {
    fn process(&mut self, burst: &mut Burst, _outputs: &mut Outputs<'_>) {
        self.0.extend(burst.drain());
    }

    fn finish(&mut self, burst: &mut Burst, _outputs: &mut Outputs<'_>) -> usize {
        let count = self.0.len().min(burst.room());
        self.0.drain(..count).for_each(|packet| assert!(burst.push(packet).is_ok()));
        count
    }
}

#[test]
fn what_stages_hold_at_the_end_is_not_lost_to_a_slow_queue() {
    let pool = pool();
    let (mut slow, taken) = sink(1, true);
    slow.halts = true;
    let mut pipeline = Pipeline::new(source(&pool, 1_000), Hoard(Vec::new()), slow);
    let graph = Arc::clone(pipeline.graph());
    run(&mut pipeline).expect("nothing breaks");
    assert_eq!((taken.load(Ordering::Relaxed), graph.drops().total()), (1_000, 0));
}

#[test]
fn what_a_stuck_queue_does_not_take_at_the_end_is_counted() {
    let pool = pool();
    let mut pipeline = Pipeline::new(source(&pool, usize::MAX), Hoard(Vec::new()), sink(0, true).0);
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

/// Sends all packets by its output, as a forwarder does.
struct Switch;

impl Stage for Switch {
    fn process(&mut self, burst: &mut Burst, outputs: &mut Outputs<'_>) {
        burst.drain().for_each(|packet| outputs.send(0, packet));
    }

    fn output_count(&self) -> usize {
        1
    }

    fn passes_on(&self) -> bool {
        false
    }
}

#[test]
fn a_stage_that_no_packet_gets_to_is_refused() {
    let build = |row: Box<dyn FnOnce(&mut warmlane_lane::PipelineBuilder) -> warmlane_lane::StageId>,
                 goes_on| {
        let pool = pool();
        let mut builder = Pipeline::builder();
        let row = row(&mut builder);
        let (input, output) =
            (builder.input("in", source(&pool, 1)), builder.output("out", sink(1, false).0));
        builder.connect(input, row);
        if goes_on {
            builder.connect(row, output)
        } else {
            builder.connect((row, "output0"), output)
        };
        builder.build().map(|_| ()).map_err(|error| error.to_string())
    };
    let refused = |name: &str, before: &str| {
        Err(format!(
            "no packet gets to '{name}': '{before}' sends them all by its outputs, so connect one of these with it"
        ))
    };
    assert_eq!(build(Box::new(|builder| builder.stage("row", (PassThrough, Switch))), false), Ok(()));
    let behind = build(Box::new(|builder| builder.stage("row", (Switch, PassThrough))), false);
    assert_eq!(behind, refused("PassThrough", "row"));
    let nested = build(Box::new(|builder| builder.stage("row", (PassThrough, (Switch, PassThrough)))), false);
    assert_eq!(nested, refused("PassThrough", "row"));
    let timed = build(
        Box::new(|builder| {
            let timed = Switch.every(Duration::from_secs(1), |_, _| ());
            builder.stage("row", (timed, PassThrough))
        }),
        false,
    );
    assert_eq!(timed, refused("PassThrough", "row"));
    assert_eq!(build(Box::new(|builder| builder.stage("switch", Switch)), true), refused("out", "switch"));
}
