//! Stages that are timed: what is counted then, by which bursts, and that packets go as always.

use super::{Round, pool, run, sink, source, straight};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use warmlane_lane::{
    Graph, Outputs, Pipeline, Stage, TIMED_ONE_IN, Task, TraceConfig, TraceEnd, TraceReader,
};
use warmlane_mem::Burst;
use warmlane_sys::clock;

/// Polls until so many packets have come to the first stage.
fn run_until(pipeline: &mut Pipeline, graph: &Graph, packets: u64) {
    let polls = (0..1_000_000).take_while(|_| {
        let goes_on = graph.stages[0].processed() < packets;
        if goes_on {
            pipeline.poll();
        }
        goes_on
    });
    assert!(polls.count() < 1_000_000, "they never come");
}

/// Bursts, packets and cycles of the first stage that were timed.
fn timed(graph: &Graph) -> [u64; 3] {
    let timed = graph.stages[0].timed();
    [timed.bursts(), timed.packets(), timed.cycles()]
}

/// All bursts, of `each` packets, are in the histogram, where their cycles may have put them.
fn check_ranges(graph: &Graph, each: u64) {
    let ([bursts, _, cycles], ranges) = (timed(graph), graph.stages[0].timed().ranges());
    assert_eq!(ranges.iter().map(|(_, count)| count).sum::<u64>(), bursts, "{ranges:?}");
    let (mut least, mut most, mut lower) = (0, 0_u64, 0);
    for (bound, count) in ranges {
        least += count * lower * each;
        most = most.saturating_add(count.saturating_mul(bound).saturating_mul(each));
        lower = bound;
    }
    assert!((least..most).contains(&cycles), "{cycles} cycles, {ranges:?}");
}

/// Takes time: until the counter has another value, which on some machines ticks far slower than the core.
fn wait_for_the_clock(_burst: &mut Burst) {
    let then = clock::cycles();
    while clock::cycles() == then {
        std::hint::spin_loop();
    }
}

#[test]
fn stages_are_timed_while_somebody_asks() {
    let each = 8;
    let rounds = u64::from(TIMED_ONE_IN);
    let pool = pool();
    let (sink, taken) = sink(usize::MAX, true);
    let pipeline = Pipeline::new(source(&pool, 40 * rounds * each), wait_for_the_clock, sink);
    let mut pipeline = pipeline.with_burst(each as usize);
    let graph = Arc::clone(pipeline.graph());
    run_until(&mut pipeline, &graph, rounds * each);
    assert_eq!(timed(&graph), [0; 3], "nobody has asked");
    assert_eq!(graph.stages[0].timed().cycles_per_packet(), None);

    // The first burst, and then one in so many.
    let first = graph.time_stages();
    run_until(&mut pipeline, &graph, 4 * rounds * each);
    let [bursts, packets, cycles] = timed(&graph);
    assert_eq!((bursts, packets), (3, 3 * each));
    assert!(cycles > 0);
    check_ranges(&graph, each);

    // A second who asks changes nothing, and is enough.
    let second = graph.time_stages();
    run_until(&mut pipeline, &graph, 7 * rounds * each);
    assert_eq!(timed(&graph)[0], 6);
    drop(first);
    run_until(&mut pipeline, &graph, 10 * rounds * each);
    assert_eq!(timed(&graph)[0], 9);

    // Without one, what was counted stays, and is added to when somebody asks again.
    drop(second);
    run_until(&mut pipeline, &graph, 13 * rounds * each);
    let before = timed(&graph);
    assert_eq!(before[0], 9);
    let third = graph.time_stages();
    run_until(&mut pipeline, &graph, 14 * rounds * each);
    assert_eq!(timed(&graph)[..2], [10, 10 * each]);
    assert!(timed(&graph)[2] > before[2]);

    run(&mut pipeline).expect("nothing breaks");
    check_ranges(&graph, each);
    drop(third);
    assert_eq!(taken.packets(), 40 * rounds * each);
    // A lane that has ended is asked in vain.
    drop(pipeline);
    let _in_vain = graph.time_stages();
}

#[test]
fn bursts_of_all_inputs_are_timed_and_come_by_their_own() {
    let each = 8;
    let count = u64::from(TIMED_ONE_IN) * each;
    let pool = pool();
    let (sink, taken) = sink(usize::MAX, true);
    let rounds = Arc::new(AtomicU64::new(0));
    let mut builder = Pipeline::builder();
    let input = builder.input("in", source(&pool, count));
    let round = builder.stage("round", Round(Arc::clone(&rounds)));
    let output = builder.output("out", sink);
    builder.connect(input, round).connect((round, "output0"), (round, "input1")).connect(round, output);
    let mut pipeline = builder.build().expect("it fits").with_burst(each as usize);
    let graph = Arc::clone(pipeline.graph());
    let _timing = graph.time_stages();
    run(&mut pipeline).expect("nothing breaks");
    assert_eq!((rounds.load(Ordering::Relaxed), taken.packets()), (count, count));
    // The first burst, and the one so many behind it, which is odd: as the inputs take turns, that came by the other.
    assert_eq!(timed(&graph)[..2], [2, 2 * each]);
}

/// Makes a packet at every other call.
struct Maker(warmlane_mem::Pool, u64);

impl Stage for Maker {
    fn process(&mut self, _burst: &mut Burst, _outputs: &mut Outputs<'_>) {}

    fn is_polled(&self) -> bool {
        true
    }

    fn is_done(&self) -> bool {
        self.1 == 0
    }

    fn poll(&mut self, _now: u64, burst: &mut Burst, _outputs: &mut Outputs<'_>) -> usize {
        self.1 = self.1.saturating_sub(1);
        if self.1.is_multiple_of(2) {
            return 0;
        }
        let packet = self.0.take().expect("a buffer");
        usize::from(burst.push(packet).is_ok())
    }
}

#[test]
fn bursts_that_stages_make_are_timed_too() {
    let pool = pool();
    let (sink, taken) = sink(usize::MAX, true);
    let bursts = 3 * u64::from(TIMED_ONE_IN);
    let mut builder = Pipeline::builder();
    let (stage, output) = (builder.stage("maker", Maker(pool, 2 * bursts)), builder.output("out", sink));
    let mut pipeline = builder.connect(stage, output).build().expect("names are told apart");
    let graph = Arc::clone(pipeline.graph());
    let _timing = graph.time_stages();
    run(&mut pipeline).expect("nothing breaks");
    assert_eq!(taken.packets(), bursts);
    // Of the six calls that were timed, every other one made something.
    assert_eq!(timed(&graph)[..2], [3, 3], "calls that make nothing are no bursts");
}

fn trace(graph: &Arc<Graph>) -> TraceReader {
    graph.trace(TraceConfig { filter: None, inputs: Vec::new(), count: 2 })
}

#[test]
fn packets_are_followed_through_timed_stages_whoever_asks_first() {
    let each = 4;
    for traces_first in [false, true] {
        let pool = pool();
        let (sink, taken) = sink(usize::MAX, true);
        let count = 20 * each * u64::from(TIMED_ONE_IN);
        let (pipeline, graph) = straight(&pool, count, sink);
        let mut pipeline = pipeline.with_burst(each as usize);
        let early = traces_first.then(|| trace(&graph));
        let timing = graph.time_stages();
        let mut reader = early.unwrap_or_else(|| trace(&graph));
        run_until(&mut pipeline, &graph, each);
        for _ in 0..2 {
            let trace = reader.read().expect("two were followed");
            assert_eq!((trace.steps.len(), trace.end), (1, TraceEnd::Sent(0)));
        }
        // Each goes when nobody asks for it, and the other stays.
        drop(reader);
        run_until(&mut pipeline, &graph, 4 * each * u64::from(TIMED_ONE_IN));
        let before = timed(&graph)[0];
        assert!(before >= 3, "{before}");
        let mut reader = trace(&graph);
        drop(timing);
        run_until(&mut pipeline, &graph, 12 * each * u64::from(TIMED_ONE_IN));
        assert!(reader.read().is_some());
        assert_eq!(timed(&graph)[0], before, "it is no longer timed");
        run(&mut pipeline).expect("nothing breaks");
        assert_eq!(taken.packets(), count);
    }
}
