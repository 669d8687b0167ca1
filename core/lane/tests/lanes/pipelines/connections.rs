//! How stages are put together: named outputs, rows, ways back, and what is refused.

use super::{Round, pool, run, sink, source};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use warmlane_lane::{
    GraphError, InputId, Outputs, PassThrough, Pipeline, PipelineBuilder, Stage, StageId, branch, per_packet,
};
use warmlane_mem::Burst;

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
    assert_eq!((odds.packets(), evens.packets()), (expected_odds, expected_evens));
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
    let taken = sinks.each_ref().map(|(_, taken)| taken.clone());
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
    assert_eq!(taken.map(|taken| taken.packets()), [32, 16, 16]);
    assert_eq!(pool.ledger().outstanding(), 0);
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
    assert_eq!((rounds.load(Ordering::Relaxed), taken.packets()), (1_000, 1_000));
    assert_eq!(pool.ledger().outstanding(), 0);
}

#[test]
fn what_does_not_fit_is_named() {
    let pool = pool();
    let error = |connect: fn(&mut PipelineBuilder, InputId, StageId)| {
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
    let build = |row: Box<dyn FnOnce(&mut PipelineBuilder) -> StageId>, goes_on| {
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
