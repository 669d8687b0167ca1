//! Copies for who captures: of what came in, what a queue took, and what was dropped; and nothing is held up for them.

use super::{pool, run, sink, slow_sink, straight};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use warmlane_lane::{
    Filter, LaneDrop, Outputs, Pipeline, Point, ProbeConfig, ProbeReader, Stage, Task, TraceConfig, TraceEnd,
};
use warmlane_mem::{Burst, Checksum, Packet, Pool, Segmentation, SegmentationKind};
use warmlane_port::TransmitOffloads;
use warmlane_testkit::queues::{Sink, Source};

/// What a record says: the first byte of its packet, and why it was dropped.
fn read(reader: &mut ProbeReader) -> Vec<(u8, Option<String>)> {
    let mut all = Vec::new();
    reader.read(usize::MAX, |record| {
        assert_eq!((record.length, record.data.len()), (1, 1));
        all.push((record.data[0], record.reason.map(str::to_owned)));
    });
    all
}

fn config(one_in: u32, ring: usize) -> ProbeConfig {
    ProbeConfig { one_in, ring, ..ProbeConfig::default() }
}

/// What copies of packets come to that pass straight to the sink, where they come in and where they leave.
fn copied(pool: &Pool, packets: u64, sink: Box<Sink>, probe: &ProbeConfig) -> [ProbeReader; 2] {
    let (mut pipeline, graph) = straight(pool, packets, sink);
    let readers =
        [Point::Input(0), Point::Output(0)].map(|point| graph.probe(point, probe.clone()).expect("memory"));
    run(&mut pipeline).expect("nothing breaks");
    readers
}

fn bytes(range: std::ops::Range<u8>) -> Vec<(u8, Option<String>)> {
    range.map(|byte| (byte, None)).collect()
}

#[test]
fn packets_are_copied_once_where_they_come_in_and_once_when_a_queue_takes_them() {
    let pool = pool();
    // It takes three at a time, and is offered the others again.
    let (slow, taken) = sink(3, true);
    let (mut pipeline, graph) = straight(&pool, 100, slow);
    let mut readers = [Point::Input(0), Point::Output(0), Point::Output(0), Point::Drops]
        .map(|point| graph.probe(point, config(1, 1 << 16)).expect("memory"));
    run(&mut pipeline).expect("nothing breaks");
    assert_eq!(taken.packets(), 100);
    let [came, left, left_too, dropped] = &mut readers;
    assert_eq!(read(came), bytes(0..100));
    assert_eq!(read(left), bytes(0..100));
    assert_eq!(read(left_too), bytes(0..100));
    assert_eq!(read(dropped), []);
    assert_eq!((came.counters().copied(), came.counters().missed()), (100, 0));
    drop(pipeline);
    assert!(readers.iter().all(ProbeReader::is_over));
    assert!(graph.probe(Point::Input(0), config(1, 1 << 16)).expect("memory").is_over());
    assert_eq!(pool.ledger().outstanding(), 0);
}

#[test]
fn drops_are_shown_with_their_reason() {
    let pool = pool();
    let (slow, _) = slow_sink();
    let (mut pipeline, graph) = straight(&pool, 10_000, slow);
    let mut reader = graph.probe(Point::Drops, config(1, 1 << 20)).expect("memory");
    run(&mut pipeline).expect("nothing breaks");
    let lost = graph.drops().get(LaneDrop::OutputFull);
    let shown = read(&mut reader);
    assert!(lost > 0);
    assert_eq!(shown.len() as u64, lost);
    assert!(shown.iter().all(|(_, reason)| reason.as_deref() == Some("output-full")), "{:?}", shown[0]);
}

#[test]
fn the_filter_chooses_from_the_sample() {
    let pool = pool();
    let (free, _) = sink(64, true);
    let (mut pipeline, graph) = straight(&pool, 100, free);
    let looks = Arc::new(AtomicU64::new(0));
    let looked = Arc::clone(&looks);
    let filter = move |data: &[u8], length: usize| {
        looked.fetch_add(1, Ordering::Relaxed);
        length == 1 && data[0].is_multiple_of(2)
    };
    let wanted = ProbeConfig { filter: Some(Arc::new(filter)), ..config(5, 1 << 16) };
    let mut reader = graph.probe(Point::Input(0), wanted).expect("memory");
    run(&mut pipeline).expect("nothing breaks");
    // Of each fifth, 4, 9, 14, 19, ..., those that are even.
    let expected: Vec<(u8, Option<String>)> = (0..10).map(|number| (number * 10 + 4, None)).collect();
    assert_eq!(read(&mut reader), expected);
    assert_eq!(looks.load(Ordering::Relaxed), 20, "only the sample is looked at");
}

#[test]
fn a_sample_is_the_same_where_a_queue_refuses() {
    let pool = pool();
    let odd = |data: &[u8], _: usize| !data[0].is_multiple_of(2);
    for (filter, step, count) in [(None, 7, 14), (Some(Arc::new(odd) as Filter), 14, 7)] {
        let first = if filter.is_some() { 13 } else { 6 };
        let (slow, _) = sink(3, true);
        let readers = copied(&pool, 100, slow, &ProbeConfig { filter, ..config(7, 1 << 16) });
        let expected: Vec<(u8, Option<String>)> =
            (0..count).map(|number| (number * step + first, None)).collect();
        for mut reader in readers {
            assert_eq!(read(&mut reader), expected);
            assert_eq!((reader.counters().copied(), reader.counters().missed()), (u64::from(count), 0));
        }
    }
}

/// Gives out packets that are to be sent by hardware, of which `spoil` makes what no software can send.
#[expect(clippy::unnecessary_box_returns, reason = "pipelines take boxed queues")]
fn spoilt(pool: &Pool, spoil: fn(&mut Packet)) -> Box<Source> {
    let mut source = Source::new(pool, 3, move |packet, number| {
        packet.fill(&[number as u8; 60]).expect("space");
        if number == 1 {
            spoil(packet);
        }
    });
    source.leaves = TransmitOffloads::NO_TUNNEL;
    Box::new(source)
}

#[test]
fn what_software_offload_drops_is_shown_with_the_port_that_it_came_in_by() {
    let segments_of_one: fn(&mut Packet) = |packet| {
        let segmentation = Segmentation { kind: SegmentationKind::Tcp4, size: 1, congestion: false };
        packet.set_segmentation(Some(segmentation));
    };
    let outside: fn(&mut Packet) = |packet| packet.set_checksum(Checksum::Partial { start: 50, offset: 16 });
    for (spoil, reason) in [(segments_of_one, "gso-unknown"), (outside, "checksum-unknown")] {
        // Behind the input, as the stage can't deal with it, and in front of the output.
        for accepts in [TransmitOffloads::NONE, TransmitOffloads::ALL] {
            let pool = pool();
            let (free, taken) = sink(64, true);
            let mut builder = Pipeline::builder();
            let input = builder.port_input("west", 3, spoilt(&pool, spoil));
            let stage = builder.stage("stage", Accepts(accepts));
            let output = builder.output("east", free);
            let mut pipeline =
                builder.connect(input, stage).connect(stage, output).build().expect("all is connected");
            let graph = Arc::clone(pipeline.graph());
            let mut shown = graph.probe(Point::Drops, config(1, 1 << 16)).expect("memory");
            let mut traces = graph.trace(TraceConfig { filter: None, inputs: Vec::new(), count: 3 });
            run(&mut pipeline).expect("nothing breaks");
            let mut all = Vec::new();
            shown.read(usize::MAX, |record| {
                all.push((record.port, record.reason.map(str::to_owned), record.data.to_vec()));
            });
            assert_eq!(all, [(3, Some(reason.to_owned()), vec![1; 60])], "{reason}");
            assert_eq!(taken.packets(), 2);
            // What came through the stage was followed until it was dropped.
            let ends = std::iter::from_fn(|| traces.read()).map(|trace| trace.end);
            let dropped =
                ends.filter(|end| matches!(end, TraceEnd::Dropped(why) if why.name == reason)).count();
            assert_eq!(dropped, usize::from(accepts == TransmitOffloads::ALL));
        }
    }
}

/// Passes packets on, and accepts what it is told to.
struct Accepts(TransmitOffloads);

impl Stage for Accepts {
    fn process(&mut self, _burst: &mut Burst, _outputs: &mut Outputs<'_>) {}

    fn accepts(&self) -> TransmitOffloads {
        self.0
    }
}

#[test]
fn a_full_ring_misses_packets_and_holds_none_up() {
    let pool = pool();
    let (free, taken) = sink(64, true);
    let readers = copied(&pool, 1_000, free, &config(1, 1 << 10));
    assert_eq!(taken.packets(), 1_000);
    for mut reader in readers {
        let (copied, missed) = (reader.counters().copied(), reader.counters().missed());
        assert_eq!((copied + missed, read(&mut reader).len() as u64), (1_000, copied));
        assert!(copied > 0 && missed > 0, "{copied}, {missed}");
    }
}

#[test]
fn probes_come_and_go_while_packets_pass() {
    let pool = pool();
    let (free, taken) = sink(64, true);
    let (mut pipeline, graph) = straight(&pool, 100_000, free);
    let mut seen = 0;
    for round in 0..100 {
        let mut readers = [Point::Input(0), Point::Output(0), Point::Input(7), Point::Output(7)]
            .map(|point| graph.probe(point, config(1, 1 << 16)).expect("memory"));
        for _ in 0..3 {
            pipeline.poll();
        }
        let [came, left, nowhere, nor_there] = &mut readers;
        let came = read(came);
        assert!(!came.is_empty() && came == read(left), "round {round}");
        assert!(nowhere.is_over() && nor_there.is_over());
        seen += came.len() as u64;
        drop(readers);
        // Unseen.
        pipeline.poll();
    }
    assert!(seen < graph.received());
    run(&mut pipeline).expect("nothing breaks");
    assert_eq!(taken.packets(), 100_000);
}
