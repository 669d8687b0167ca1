//! Copies of what goes from stage to stage, told apart where several lead to one place.

use super::{pool, run, sink, source, straight};
use std::sync::Arc;
use warmlane_lane::{
    Graph, Node, Outputs, PassThrough, Pipeline, Point, ProbeConfig, ProbeReader, Task, TraceConfig, branch,
};
use warmlane_mem::Burst;

fn config() -> ProbeConfig {
    ProbeConfig { ring: 1 << 20, ..ProbeConfig::default() }
}

/// The first bytes of what was seen.
fn read(reader: &mut ProbeReader) -> Vec<u8> {
    let mut all = Vec::new();
    reader.read(usize::MAX, |record| all.push(record.data[0]));
    all
}

/// Looks at the edge that leads from the stage of this name, by this output of it.
fn edge(graph: &Arc<Graph>, from: &str, output: Option<&str>) -> ProbeReader {
    let is_it = |edge: &warmlane_lane::Edge| {
        matches!(edge.from, Node::Stage(_))
            && graph.name(edge.from) == from
            && edge.output.as_deref() == output
    };
    let edge = graph.edges.iter().position(is_it).expect("there is such an edge");
    graph.probe(Point::Edge(edge), config()).expect("memory")
}

/// Even numbers straight to the output, odd ones to another stage in front of it.
fn forked(packets: u64, each: usize) -> (Pipeline, warmlane_port::QueueCountersView) {
    let pool = pool();
    let (sink, taken) = sink(each, true);
    let mut builder = Pipeline::builder();
    let input = builder.input("in", source(&pool, packets));
    let fork = branch(&["even", "odd"], |burst: &mut Burst, outputs: &mut Outputs<'_>| {
        for packet in burst.drain() {
            let output = usize::from(packet.data()[0] % 2);
            outputs.send(output, packet);
        }
    });
    let fork = builder.stage("fork", fork);
    let wire = builder.stage("wire", PassThrough);
    let output = builder.output("out", sink);
    builder.connect(input, fork).connect((fork, "even"), output);
    builder.connect((fork, "odd"), wire).connect(wire, output);
    (builder.build().expect("it fits"), taken)
}

#[test]
fn edges_that_lead_to_one_place_are_told_apart() {
    for each in [3, 64] {
        let (mut pipeline, taken) = forked(200, each);
        let graph = Arc::clone(pipeline.graph());
        let mut even = edge(&graph, "fork", Some("even"));
        let mut odd = edge(&graph, "fork", Some("odd"));
        let mut behind = edge(&graph, "wire", None);
        run(&mut pipeline).expect("nothing breaks");
        assert_eq!(taken.packets(), 200);
        assert_eq!(read(&mut even), (0..200).step_by(2).collect::<Vec<u8>>());
        let odds: Vec<u8> = (1..200).step_by(2).collect();
        assert_eq!((read(&mut odd), read(&mut behind)), (odds.clone(), odds));
    }
}

#[test]
fn what_leaves_while_the_stage_is_at_work_is_seen_once() {
    let pool = pool();
    // It has more than the line holds; some goes at once, past the line.
    for at_once in [false, true] {
        let (sink, taken) = sink(100, false);
        let copies = pool.clone();
        let many = branch(&["many"], move |burst: &mut Burst, outputs: &mut Outputs<'_>| {
            for packet in burst.drain() {
                for _ in 0..9 {
                    outputs.send(0, packet.copy_in(&copies).expect("a buffer"));
                }
                let mut one = Burst::new();
                assert!(one.push(packet).is_ok());
                if !at_once || outputs.transmit(0, &mut one) == 0 {
                    one.drain().for_each(|packet| outputs.send(0, packet));
                }
            }
        });
        let mut builder = Pipeline::builder();
        let input = builder.input("in", source(&pool, 128));
        let many = builder.stage("many", many);
        let output = builder.output("out", sink);
        builder.connect(input, many).connect((many, "many"), output);
        let mut pipeline = builder.build().expect("it fits");
        let graph = Arc::clone(pipeline.graph());
        let mut seen = edge(&graph, "many", Some("many"));
        let mut left = graph.probe(Point::Output(0), config()).expect("memory");
        run(&mut pipeline).expect("nothing breaks");
        assert_eq!((taken.packets(), graph.drops().total()), (1_280, 0));
        assert_eq!(read(&mut seen), read(&mut left), "{at_once}");
    }
}

#[test]
fn probes_of_edges_come_and_go_beside_traces_and_times() {
    let pool = pool();
    let (free, taken) = sink(64, true);
    let (mut pipeline, graph) = straight(&pool, 50_000, free);
    for round in 0..100 {
        let timing = (round % 3 > 0).then(|| graph.time_stages());
        let trace =
            (round % 5 > 0).then(|| graph.trace(TraceConfig { filter: None, inputs: Vec::new(), count: 3 }));
        let name = graph.stages[0].name.clone();
        let mut seen = edge(&graph, &name, None);
        let mut left = graph.probe(Point::Output(0), config()).expect("memory");
        pipeline.poll();
        let later = (round % 2 > 0).then(|| edge(&graph, &name, None));
        // In one order or the other.
        if round % 7 > 3 {
            drop(timing);
            pipeline.poll();
            drop(trace);
        } else {
            drop(trace);
            pipeline.poll();
            drop(timing);
        }
        pipeline.poll();
        let seen_now = read(&mut seen);
        assert!(!seen_now.is_empty() && seen_now == read(&mut left), "round {round}");
        drop(seen);
        pipeline.poll();
        if let Some(mut later) = later {
            assert!(!read(&mut later).is_empty());
        }
    }
    run(&mut pipeline).expect("nothing breaks");
    assert_eq!(taken.packets(), 50_000);
}

#[test]
fn an_edge_that_is_not_there_or_comes_from_an_input_has_no_probe() {
    let (mut pipeline, _) = forked(10, 64);
    let graph = Arc::clone(pipeline.graph());
    let input = graph.edges.iter().position(|edge| matches!(edge.from, Node::Input(_))).expect("one");
    let readers =
        [input, graph.edges.len()].map(|edge| graph.probe(Point::Edge(edge), config()).expect("memory"));
    pipeline.poll();
    assert!(readers.iter().all(ProbeReader::is_over));
}
