//! Copies for who captures: of what came in, what a queue took, and what was dropped; and nothing is held up for them.

use super::{pool, run, sink, slow_sink, straight};
use std::sync::Arc;
use warmlane_lane::{LaneDrop, Point, ProbeConfig, ProbeReader, Task};
use warmlane_mem::Pool;
use warmlane_testkit::queues::Sink;

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
fn what_is_wanted_is_chosen_and_counted_also_where_a_queue_refuses() {
    let pool = pool();
    let (slow, _) = sink(3, true);
    let (mut pipeline, graph) = straight(&pool, 100, slow);
    let filter = |data: &[u8], length: usize| length == 1 && data[0].is_multiple_of(2);
    let wanted = ProbeConfig { filter: Some(Arc::new(filter)), ..config(5, 1 << 16) };
    let mut reader = graph.probe(Point::Output(0), wanted).expect("memory");
    run(&mut pipeline).expect("nothing breaks");
    // Of 0, 2, 4, 6, 8, 10, ... each fifth.
    let expected: Vec<(u8, Option<String>)> = (0..10).map(|number| (number * 10 + 8, None)).collect();
    assert_eq!(read(&mut reader), expected);
}

#[test]
fn a_sample_of_all_is_the_same_where_a_queue_refuses() {
    let pool = pool();
    let (slow, _) = sink(3, true);
    let readers = copied(&pool, 100, slow, &config(7, 1 << 16));
    let expected: Vec<(u8, Option<String>)> = (0..14).map(|number| (number * 7 + 6, None)).collect();
    for mut reader in readers {
        assert_eq!(read(&mut reader), expected);
        assert_eq!((reader.counters().copied(), reader.counters().missed()), (14, 0));
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
