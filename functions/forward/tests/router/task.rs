//! A whole lane: queues in, queues out, and where each packet went.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::bench::{Bench, ipv4, udp4};
use warmlane_forward::control::config::IcmpLimits;
use warmlane_forward::datapath::{ForwardCountersView, Forwarder, Reason};
use warmlane_forward::{connect_ports_through, pipeline};
use warmlane_lane::{LanePort, Pipeline, Poll, Task as _, per_packet};
use warmlane_port::{QueueStatus, ReceiveQueue, TransmitQueue as _};
use warmlane_testkit::queues::{Sink, Source};

fn between(forwarder: Forwarder, source: impl ReceiveQueue + 'static, sink: Sink) -> Pipeline {
    let left = LanePort { name: "left".to_owned(), receive: vec![Box::new(source)], transmit: None };
    let right = LanePort { name: "right".to_owned(), receive: Vec::new(), transmit: Some(Box::new(sink)) };
    pipeline(forwarder, vec![left, right]).unwrap().with_burst(32)
}

/// A router with the source on its left and the sink on its right.
fn task(frames: Vec<Vec<u8>>, mut sink: Sink, lossless: bool) -> (Bench, ForwardCountersView, Pipeline) {
    sink.is_lossless = lossless;
    let bench = Bench::new();
    let source = Source::of_frames(&bench.pool, frames);
    let forwarder = Forwarder::new(Arc::clone(&bench.routes), bench.pool.clone(), IcmpLimits::default());
    let counters = forwarder.view();
    (bench, counters, between(forwarder, source, sink))
}

/// Polls the task to its end; gives how many packets the sink took and how many were dropped for lack of space.
fn run(frames: Vec<Vec<u8>>, sink: Sink, lossless: bool) -> (u64, u64) {
    let taken = sink.counters();
    let (bench, counters, mut task) = task(frames, sink, lossless);
    let polls = (0..100_000).take_while(|_| task.poll() != Poll::Finished).count();
    assert!(polls < 100_000);
    let graph = Arc::clone(task.graph());
    // The sink may have been made to break.
    let _ = task.finish();
    assert_eq!(counters.balance(), 0);
    assert_eq!(counters.sent(), taken.packets() + graph.drops().total());
    assert_eq!(bench.pool.ledger().outstanding(), 0);
    (taken.packets(), counters.drops().get(Reason::OutputQueueFull))
}

/// Takes up to `most` packets a call, on every so many'th call.
fn sink(most: usize, every: u64) -> Sink {
    let mut sink = Sink::new(most);
    sink.every = every;
    sink
}

fn costly_sink(most: usize) -> Sink {
    let mut sink = Sink::new(most);
    sink.is_costly = true;
    sink
}

#[test]
fn everything_arrives_where_there_is_space() {
    let frames = vec![udp4(ipv4("203.0.113.5"), b""); 500];
    assert_eq!(run(frames.clone(), sink(256, 1), false), (500, 0));
    assert_eq!(run(frames, sink(7, 3), true), (500, 0));
}

/// Stages before and behind the forwarder see its packets: as they came, and as they leave.
#[test]
fn stages_stand_before_and_behind_the_forwarder() {
    let frames = vec![udp4(ipv4("203.0.113.5"), b""); 500];
    let bench = Bench::new();
    let source = Source::of_frames(&bench.pool, frames);
    let forwarder = Forwarder::new(Arc::clone(&bench.routes), bench.pool.clone(), IcmpLimits::default());
    let (counters, out) = (forwarder.view(), sink(256, 1));
    let taken = out.counters();
    let ports = vec![
        LanePort { name: "left".to_owned(), receive: vec![Box::new(source)], transmit: None },
        LanePort { name: "right".to_owned(), receive: Vec::new(), transmit: Some(Box::new(out)) },
    ];
    // Bytes 22 of Ethernet frames is IPv4's time to live.
    let lifetimes = |of: &Arc<[AtomicU64; 256]>| {
        let of = Arc::clone(of);
        per_packet(move |packet| of[usize::from(packet.data()[22])].fetch_add(1, Ordering::Relaxed) % 5 != 4)
    };
    let [before, behind] = [(); 2].map(|()| Arc::new([const { AtomicU64::new(0) }; 256]));
    let mut builder = Pipeline::builder();
    let row = builder.stage("row", (lifetimes(&before), forwarder));
    connect_ports_through(&mut builder, row, ports, |builder, port, output| {
        let egress = builder.stage(format!("egress {port}"), lifetimes(&behind));
        builder.connect(egress, output);
        egress.into()
    });
    let mut task = builder.build().unwrap();
    while task.poll() != Poll::Finished {}
    task.finish().unwrap();
    assert_eq!((before[64].load(Ordering::Relaxed), behind[63].load(Ordering::Relaxed)), (500, 400));
    assert_eq!((counters.forwarded(), taken.packets()), (400, 320));
    assert_eq!(bench.pool.ledger().outstanding(), 0);

    // In a row behind it no stage would see anything.
    let forwarder = Forwarder::new(Arc::clone(&bench.routes), bench.pool.clone(), IcmpLimits::default());
    let refused = pipeline((forwarder, per_packet(|_| true)), Vec::new()).map(|_| ()).unwrap_err();
    assert!(refused.to_string().starts_with("no packet gets to 'filter'"), "{refused}");
}

#[test]
fn a_slow_output_loses_packets_and_says_so() {
    let frames = vec![udp4(ipv4("203.0.113.5"), b""); 5000];
    let (sent, lost) = run(frames, sink(1, 2), false);
    assert!(lost > 0);
    assert_eq!(sent + lost, 5000);
}

#[test]
fn an_output_that_broke_holds_nothing_up() {
    let frames = vec![udp4(ipv4("203.0.113.5"), b""); 500];
    let mut broken = sink(64, 1);
    broken.status = QueueStatus::Failed("gone".to_owned());
    assert_eq!(run(frames, broken, true).0, 0);
}

#[test]
fn a_stopped_lane_takes_nothing_new() {
    let frames = vec![udp4(ipv4("203.0.113.5"), b""); 500];
    let (bench, counters, mut task) = task(frames, sink(20, 2), true);
    assert_eq!(task.poll(), Poll::Worked(32));
    task.stop();
    let polls = (0..100).take_while(|_| task.poll() != Poll::Finished).count();
    assert!(polls < 100);
    assert_eq!((counters.received(), counters.sent()), (32, 32));
    assert_eq!(bench.pool.ledger().outstanding(), 0);
}

#[test]
fn a_costly_output_is_given_several_bursts_at_once() {
    let frames = vec![udp4(ipv4("203.0.113.5"), b""); 300];
    let costly = costly_sink(256);
    let taken = costly.counters();
    let (_bench, _counters, mut task) = task(frames, costly, false);
    // As many full bursts of 32 as the output's has space for, and then the rest, which ends with one that isn't full.
    assert_eq!((task.poll(), taken.packets()), (Poll::Worked(256), 256));
    assert_eq!((task.poll(), taken.packets()), (Poll::Worked(44), 300));
    let frames = vec![udp4(ipv4("203.0.113.5"), b""); 300];
    assert_eq!(self::task(frames, sink(256, 1), false).2.poll(), Poll::Worked(32));
}

#[test]
fn an_output_that_takes_nothing_is_asked_once_a_poll() {
    let frames = vec![udp4(ipv4("203.0.113.5"), b""); 1000];
    let full = costly_sink(0);
    let calls = full.calls();
    let (_bench, counters, mut task) = task(frames, full, false);
    // The first 256 wait, and are offered once in each poll; the next find no space.
    assert_eq!((task.poll(), calls.get()), (Poll::Worked(256), 1));
    assert_eq!((task.poll(), calls.get()), (Poll::Worked(256), 2));
    assert_eq!(counters.drops().get(Reason::OutputQueueFull), 256);
}

#[test]
fn for_a_port_that_loses_nothing_no_bursts_are_gathered() {
    let frames = vec![udp4(ipv4("203.0.113.5"), b""); 300];
    let costly = costly_sink(256);
    assert_eq!(task(frames, costly, true).2.poll(), Poll::Worked(32));
}

/// A driver such as AF_XDP's gives buffers back that the hardware has sent when it is flushed: a lane that has nothing to do
/// must not sit on them.
#[test]
fn what_was_sent_is_reclaimed_when_the_lane_is_idle() {
    let frames = vec![udp4(ipv4("203.0.113.5"), b"")];
    let sink = sink(256, 1);
    let flushed = sink.flushes();
    let bench = Bench::new();
    let mut source = Source::of_frames(&bench.pool, frames);
    source.end = QueueStatus::Running;
    let forwarder = Forwarder::new(Arc::clone(&bench.routes), bench.pool.clone(), IcmpLimits::default());
    let mut task = between(forwarder, source, sink);
    assert_eq!(task.poll(), Poll::Worked(1));
    assert_eq!(flushed.get(), 0);
    // At the first idle poll, and not again and again.
    assert_eq!(task.poll(), Poll::Idle);
    assert_eq!(flushed.get(), 1);
    assert_eq!(task.poll(), Poll::Idle);
    assert_eq!(flushed.get(), 1);
}
