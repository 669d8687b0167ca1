//! Packets followed through pipelines: what is said of them is what happens, and the others go as always.

use super::{pool, run, sink, slow_sink, source, straight};
use std::borrow::Cow;
use std::sync::Arc;
use warmlane_counters::{DropCounters, Source};
use warmlane_lane::{
    Explanation, FilterDrop, LaneDrop, Node, Outputs, PassThrough, Pipeline, Rehearsed, Stage, Task,
    TraceConfig, TraceEnd, TraceReader, branch, per_packet,
};
use warmlane_mem::{Burst, Packet};
use warmlane_port::{QueueCountersView, Reason as _};

fn config(count: usize, wanted: impl Fn(u8) -> bool + Send + Sync + 'static) -> TraceConfig {
    let filter = move |data: &[u8], _: usize| wanted(data[0]);
    TraceConfig { filter: Some(Arc::new(filter)), inputs: Vec::new(), count }
}

fn all(reader: &mut TraceReader) -> Vec<warmlane_lane::Trace> {
    std::iter::from_fn(|| reader.read()).collect()
}

/// Adds one to the first byte, drops what was a multiple of ten, and sends what was one of seven by its output.
struct Sorter(DropCounters<FilterDrop>);

impl Sorter {
    fn new() -> Self {
        Self(DropCounters::new())
    }
}

impl Stage for Sorter {
    fn process(&mut self, burst: &mut Burst, outputs: &mut Outputs<'_>) {
        let mut rest = Burst::with_limit(burst.limit());
        burst.move_to(&mut rest);
        for mut packet in rest.drain() {
            let number = packet.data()[0];
            packet.data_mut()[0] = number.wrapping_add(1);
            if number.is_multiple_of(10) {
                self.0.count(FilterDrop::Filtered, 1);
            } else if number.is_multiple_of(7) {
                outputs.send(0, packet);
            } else {
                assert!(burst.push(packet).is_ok());
            }
        }
    }

    fn outputs(&self) -> &'static [&'static str] {
        &["sevens"]
    }

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("sorter")
    }

    fn counters(&self) -> Vec<Box<dyn Source>> {
        vec![Box::new(self.0.view())]
    }

    fn explain(&self, _input: usize, packet: &Packet, explanation: &mut Explanation) {
        explanation.note("number", packet.data()[0]);
    }

    fn rehearse(&mut self, _input: usize, burst: &mut Burst, outputs: &mut Outputs<'_>) -> Option<Rehearsed> {
        let mut twin = Self::new();
        twin.process(burst, outputs);
        Some(twin.counters())
    }
}

/// Two sorters one behind the other, with an output each, and one more.
fn sorters(count: u64, each: usize) -> (Pipeline, [warmlane_port::QueueCountersView; 3]) {
    let pool = pool();
    let mut builder = Pipeline::builder();
    let input = builder.port_input("in", 3, source(&pool, count));
    let (first, second) = (builder.stage("first", Sorter::new()), builder.stage("second", Sorter::new()));
    let mut taken = Vec::new();
    let [sevens, others, rest] = ["sevens", "others", "rest"].map(|name| {
        let (sink, counters) = sink(each, true);
        taken.push(counters);
        builder.output(name, sink)
    });
    builder.connect(input, first).connect((first, "sevens"), sevens).connect(first, second);
    builder.connect((second, "sevens"), others).connect(second, rest);
    let pipeline = builder.build().expect("names are told apart");
    (pipeline, taken.try_into().expect("three"))
}

#[test]
fn each_step_is_what_happened() {
    let (mut pipeline, taken) = sorters(100, 3);
    let graph = Arc::clone(pipeline.graph());
    let mut reader = graph.trace(config(1_000, |number| number < 30));
    run(&mut pipeline).expect("nothing breaks");
    let mut traces = all(&mut reader);
    traces.sort_by_key(|trace| trace.frame[0]);
    assert_eq!(traces.len(), 30);
    for (number, trace) in (0..30_u8).zip(&traces) {
        assert_eq!((trace.frame.as_slice(), trace.length, trace.input), (&[number][..], 1, 0));
        let first = &trace.steps[0];
        assert_eq!(first.explanation.notes(), [("number", number.to_string())]);
        let (steps, end) = match (number, number + 1) {
            (0 | 10 | 20, _) => (1, TraceEnd::Dropped(FilterDrop::ALL[0])),
            (number, _) if number.is_multiple_of(7) => (1, TraceEnd::Sent(0)),
            (_, 10 | 20 | 30) => (2, TraceEnd::Dropped(FilterDrop::ALL[0])),
            (_, next) if next.is_multiple_of(7) => (2, TraceEnd::Sent(1)),
            _ => (2, TraceEnd::Sent(2)),
        };
        assert_eq!((trace.steps.len(), &trace.end), (steps, &end), "{trace:?}");
        if steps == 2 {
            assert_eq!((first.to, first.frame.as_slice()), (Some(Node::Stage(1)), &[number + 1][..]));
        }
        if let TraceEnd::Sent(output) = end {
            let last = &trace.steps[steps - 1];
            assert_eq!((last.to, last.frame[0]), (Some(Node::Output(output)), number + steps as u8));
            assert!(last.grown.is_empty() && last.others.is_empty());
        }
    }
    // Nothing else has changed: as many leave as without.
    let traced = taken.each_ref().map(QueueCountersView::packets);
    let (mut untraced, plain) = sorters(100, 3);
    run(&mut untraced).expect("nothing breaks");
    assert_eq!(traced, plain.each_ref().map(QueueCountersView::packets));
}

#[test]
fn it_ends_when_there_were_enough_or_nobody_reads() {
    let (mut pipeline, _) = sorters(20_000, 64);
    let graph = Arc::clone(pipeline.graph());
    let mut few = graph.trace(config(5, |_| true));
    let gone = graph.trace(config(1_000_000, |_| true));
    pipeline.poll();
    drop(gone);
    for _ in 0..20 {
        pipeline.poll();
    }
    assert_eq!(all(&mut few).len(), 5);
    // One that begins later sees later packets.
    let mut later = graph.trace(config(3, |_| true));
    for _ in 0..20 {
        pipeline.poll();
    }
    assert_eq!(all(&mut later).len(), 3);
    run(&mut pipeline).expect("nothing breaks");
    assert!(few.is_over() && all(&mut few).is_empty());
    drop(pipeline);
    assert!(graph.trace(config(1, |_| true)).is_over());
}

#[test]
fn what_the_lane_itself_drops_has_its_reason() {
    let pool = pool();
    let (slow, _) = slow_sink();
    let (mut pipeline, graph) = straight(&pool, 2_000, slow);
    // Few, as no more are followed at a time than find space in front of the queue.
    let is_wanted = |number: u8| number % 64 == 5;
    let count = (0..2_000_u32).filter(|number| is_wanted(*number as u8)).count();
    let mut reader = graph.trace(config(2_000, is_wanted));
    let mut traces = Vec::new();
    while graph.received() < 2_000 {
        pipeline.poll();
        traces.extend(all(&mut reader));
    }
    run(&mut pipeline).expect("nothing breaks");
    traces.extend(all(&mut reader));
    let lost = traces.iter().filter(|trace| trace.end == TraceEnd::Dropped(LaneDrop::ALL[2])).count();
    let sent = traces.iter().filter(|trace| trace.end == TraceEnd::Sent(0)).count();
    assert!(lost > 0 && sent > 0, "{lost}, {sent}");
    assert_eq!((traces.len(), lost + sent), (count, count));
    assert_eq!(pool.ledger().outstanding(), 0);
}

#[test]
fn others_that_a_stage_sends_are_told_and_what_it_keeps_is_kept() {
    let pool = pool();
    let copies = pool.clone();
    let mut kept: Vec<Packet> = Vec::new();
    let stage = branch(&["copies"], move |burst, outputs| {
        for packet in burst.drain() {
            for _ in 0..packet.data()[0] % 3 {
                outputs.send(0, packet.copy_in(&copies).expect("there are enough"));
            }
            if packet.data()[0].is_multiple_of(2) {
                kept.push(packet);
            }
        }
    });
    let mut builder = Pipeline::builder();
    let (input, stage) = (builder.input("in", source(&pool, 6)), builder.stage("copier", stage));
    let output = builder.output("out", sink(64, true).0);
    let mut pipeline = builder
        .connect(input, stage)
        .connect((stage, "copies"), output)
        .build()
        .expect("names are told apart");
    let mut reader = pipeline.graph().trace(config(6, |_| true));
    run(&mut pipeline).expect("nothing breaks");
    let told: Vec<_> = all(&mut reader)
        .into_iter()
        .map(|trace| (trace.frame[0], trace.steps[0].others.clone(), trace.end))
        .collect();
    let others = |count| vec![(Node::Output(0), count)];
    assert_eq!(
        told,
        [
            (0, vec![], TraceEnd::Kept),
            (1, others(1), TraceEnd::Replaced),
            (2, others(2), TraceEnd::Replaced),
            (3, vec![], TraceEnd::Kept),
            (4, others(1), TraceEnd::Replaced),
            (5, others(2), TraceEnd::Replaced),
        ]
    );
}

#[test]
fn what_would_become_of_packets_is_told_and_does_not_happen() {
    let (mut pipeline, taken) = sorters(0, 64);
    let graph = Arc::clone(pipeline.graph());
    let pool = pool();
    let packets: Vec<(usize, Packet)> = (0..40_u8)
        .map(|number| {
            let mut packet = pool.take().expect("there are enough");
            packet.fill(&[number]).expect("fits");
            (0, packet)
        })
        .collect();
    let mut reader = graph.rehearse(packets);
    run(&mut pipeline).expect("nothing breaks");
    assert!(reader.is_over());
    let rehearsed = all(&mut reader);
    assert_eq!((graph.received(), graph.sent()), (0, 0));
    assert!(taken.iter().all(|counters| counters.packets() == 0));
    assert!(graph.stages.iter().all(|stage| stage.drops().is_empty() && stage.processed() == 0));
    assert_eq!(pool.ledger().outstanding(), 0);
    // As with packets that come.
    let (mut real, _) = sorters(40, 64);
    let mut reader = real.graph().trace(config(40, |_| true));
    run(&mut real).expect("nothing breaks");
    let mut traced = all(&mut reader);
    traced.sort_by_key(|trace| trace.frame[0]);
    for (rehearsed, traced) in rehearsed.iter().zip(&traced) {
        assert_eq!((&rehearsed.steps, &rehearsed.end), (&traced.steps, &traced.end));
    }
    assert_eq!((rehearsed.len(), traced.len()), (40, 40));
}

/// A stage behind one that makes another packet of it would explain what it never gets.
#[test]
fn nobody_is_asked_behind_a_stage_that_closes_the_explanation() {
    struct Last(Sorter);

    impl Stage for Last {
        fn process(&mut self, burst: &mut Burst, outputs: &mut Outputs<'_>) {
            self.0.process(burst, outputs);
        }

        fn explain(&self, input: usize, packet: &Packet, explanation: &mut Explanation) {
            self.0.explain(input, packet, explanation);
            explanation.close();
        }
    }

    let packet = pool().take().expect("there are enough");
    let notes = |row: &dyn Stage| {
        let mut packet = packet.copy_in(&pool()).expect("there are enough");
        packet.fill(&[3]).expect("fits");
        let mut explanation = Explanation::default();
        row.explain(0, &packet, &mut explanation);
        explanation.notes().len()
    };
    assert_eq!(notes(&(Sorter::new(), Sorter::new(), Sorter::new())), 3);
    assert_eq!(notes(&(Sorter::new(), Last(Sorter::new()), Sorter::new())), 2);
}

#[test]
fn a_stage_that_can_not_rehearse_ends_it() {
    let pool = pool();
    let row = (PassThrough, per_packet(|_| true));
    let mut pipeline = Pipeline::new(source(&pool, 0), row, sink(64, true).0);
    let packet = |number: u8| {
        let mut packet = pool.take().expect("there are enough");
        packet.fill(&[number]).expect("fits");
        packet
    };
    assert_eq!(pipeline.rehearse(0, packet(1)).end, TraceEnd::Unknown);
    assert_eq!(pipeline.rehearse(7, packet(1)).end, TraceEnd::Unknown);
    let mut pipeline =
        Pipeline::new(source(&pool, 0), (PassThrough, Sorter::new(), PassThrough), sink(64, true).0);
    let trace = pipeline.rehearse(0, packet(1));
    assert_eq!((trace.end, trace.steps[0].frame[0]), (TraceEnd::Sent(0), 2));
    assert_eq!(pipeline.rehearse(0, packet(7)).end, TraceEnd::Dropped(LaneDrop::ALL[0]));
    assert_eq!(pool.ledger().outstanding(), 0);
}
