//! A whole lane: queues in, queues out, and where each packet went.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::bench::{Bench, ipv4, udp4};
use warmlane_forward::control::config::IcmpLimits;
use warmlane_forward::datapath::{ForwardCounters, Forwarder, Reason};
use warmlane_forward::{ForwardTask, TaskPort};
use warmlane_lane::{Poll, Task};
use warmlane_mem::Burst;
use warmlane_port::{QueueCounters, QueueStatus, ReceiveQueue, TransmitQueue};

/// Gives out frames, then ends.
struct Source {
    frames: Vec<Vec<u8>>,
    pool: warmlane_mem::Pool,
    counters: Arc<QueueCounters>,
}

impl ReceiveQueue for Source {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        let before = burst.len();
        while burst.room() > 0
            && let Some(frame) = self.frames.pop()
        {
            let mut packet = self.pool.take().unwrap();
            packet.fill(&frame).unwrap();
            burst.push(packet).unwrap();
        }
        burst.len() - before
    }

    fn status(&self) -> QueueStatus {
        if self.frames.is_empty() { QueueStatus::Finished } else { QueueStatus::Running }
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}

/// Gives out frames, and may have more later.
struct Endless(Source);

impl ReceiveQueue for Endless {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        self.0.receive(burst)
    }

    fn status(&self) -> QueueStatus {
        QueueStatus::Running
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        self.0.counters()
    }
}

/// Takes up to `each` packets a call, on every `pause`th call.
struct Sink {
    each: usize,
    pause: u64,
    costly: bool,
    calls: Arc<AtomicU64>,
    status: QueueStatus,
    counters: Arc<QueueCounters>,
    flushed: Arc<AtomicU64>,
}

impl TransmitQueue for Sink {
    fn transmit(&mut self, burst: &mut Burst) -> usize {
        let calls = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if !calls.is_multiple_of(self.pause) || self.status != QueueStatus::Running {
            return 0;
        }
        let count = burst.len().min(self.each);
        burst.free_front(count);
        self.counters.packets.add(count as u64);
        count
    }

    fn is_costly_to_call(&self) -> bool {
        self.costly
    }

    fn flush(&mut self) {
        self.flushed.fetch_add(1, Ordering::Relaxed);
    }

    fn status(&self) -> QueueStatus {
        self.status.clone()
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}

/// A router with the source on its left and the sink on its right.
fn task(frames: Vec<Vec<u8>>, sink: Sink, lossless: bool) -> (Bench, Arc<ForwardCounters>, ForwardTask) {
    let bench = Bench::new();
    let source = Source { frames, pool: bench.pool.clone(), counters: QueueCounters::new(&[]) };
    let forwarder = Forwarder::new(Arc::clone(&bench.routes), bench.pool.clone(), IcmpLimits::default());
    let counters = Arc::clone(forwarder.counters());
    let left = TaskPort { receive: vec![Box::new(source)], ..TaskPort::default() };
    let right = TaskPort { transmit: Some(Box::new(sink)), lossless, ..TaskPort::default() };
    (bench, counters, ForwardTask::new(forwarder, vec![left, right], 32))
}

/// Polls the task to its end; gives how many packets the sink took and how many were dropped for lack of room.
fn run(frames: Vec<Vec<u8>>, sink: Sink, lossless: bool) -> (u64, u64) {
    let taken = Arc::clone(&sink.counters);
    let (bench, counters, mut task) = task(frames, sink, lossless);
    let polls = (0..100_000).take_while(|_| task.poll() != Poll::Finished).count();
    assert!(polls < 100_000);
    let notes = Arc::clone(task.notes());
    task.finish();
    assert!(counters.balanced());
    assert_eq!(counters.sent(), taken.packets.get() + notes.unsent.get());
    assert_eq!(bench.pool.ledger().outstanding(), 0);
    (taken.packets.get(), counters.dropped(Reason::OutputQueueFull))
}

fn sink(each: usize, pause: u64) -> Sink {
    let (counters, flushed) = (QueueCounters::new(&[]), Arc::default());
    Sink {
        each,
        pause,
        costly: false,
        calls: Arc::default(),
        status: QueueStatus::Running,
        counters,
        flushed,
    }
}

#[test]
fn everything_arrives_where_there_is_room() {
    let frames = vec![udp4(ipv4("203.0.113.5"), b""); 500];
    assert_eq!(run(frames.clone(), sink(256, 1), false), (500, 0));
    assert_eq!(run(frames, sink(7, 3), true), (500, 0));
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
    let broken = Sink { status: QueueStatus::Failed("gone".to_owned()), ..sink(64, 1) };
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
    assert_eq!((counters.received.get(), counters.sent()), (32, 32));
    assert_eq!(bench.pool.ledger().outstanding(), 0);
}

#[test]
fn a_costly_output_is_given_several_bursts_at_once() {
    let frames = vec![udp4(ipv4("203.0.113.5"), b""); 300];
    let costly = Sink { costly: true, ..sink(256, 1) };
    let taken = Arc::clone(&costly.counters);
    let (_bench, _counters, mut task) = task(frames, costly, false);
    // As many full bursts of 32 as the output's has room for, and then the rest, which ends with one that isn't full.
    assert_eq!((task.poll(), taken.packets.get()), (Poll::Worked(256), 256));
    assert_eq!((task.poll(), taken.packets.get()), (Poll::Worked(44), 300));
    let frames = vec![udp4(ipv4("203.0.113.5"), b""); 300];
    assert_eq!(self::task(frames, sink(256, 1), false).2.poll(), Poll::Worked(32));
}

#[test]
fn an_output_that_takes_nothing_is_asked_once_a_poll() {
    let frames = vec![udp4(ipv4("203.0.113.5"), b""); 1000];
    let full = Sink { costly: true, ..sink(0, 1) };
    let calls = Arc::clone(&full.calls);
    let (_bench, counters, mut task) = task(frames, full, false);
    // The first 256 wait, and are offered once; the next find no room before and after they are received.
    assert_eq!((task.poll(), calls.load(Ordering::Relaxed)), (Poll::Worked(256), 1));
    assert_eq!((task.poll(), calls.load(Ordering::Relaxed)), (Poll::Worked(256), 3));
    assert_eq!(counters.dropped(Reason::OutputQueueFull), 256);
}

#[test]
fn for_a_port_that_loses_nothing_no_bursts_are_gathered() {
    let frames = vec![udp4(ipv4("203.0.113.5"), b""); 300];
    let costly = Sink { costly: true, ..sink(256, 1) };
    assert_eq!(task(frames, costly, true).2.poll(), Poll::Worked(32));
}

/// A driver such as AF_XDP's gives buffers back that the hardware has sent when it is flushed: a lane that has nothing to do
/// must not sit on them.
#[test]
fn what_was_sent_is_reclaimed_when_the_lane_is_idle() {
    let frames = vec![udp4(ipv4("203.0.113.5"), b"")];
    let sink = sink(256, 1);
    let flushed = Arc::clone(&sink.flushed);
    let bench = Bench::new();
    let source = Endless(Source { frames, pool: bench.pool.clone(), counters: QueueCounters::new(&[]) });
    let forwarder = Forwarder::new(Arc::clone(&bench.routes), bench.pool.clone(), IcmpLimits::default());
    let left = TaskPort { receive: vec![Box::new(source)], ..TaskPort::default() };
    let right = TaskPort { transmit: Some(Box::new(sink)), ..TaskPort::default() };
    let mut task = ForwardTask::new(forwarder, vec![left, right], 32);
    assert_eq!(task.poll(), Poll::Worked(1));
    assert_eq!(flushed.load(Ordering::Relaxed), 0);
    // At the first idle poll, and not again and again.
    assert_eq!(task.poll(), Poll::Idle);
    assert_eq!(flushed.load(Ordering::Relaxed), 1);
    assert_eq!(task.poll(), Poll::Idle);
    assert_eq!(flushed.load(Ordering::Relaxed), 1);
}
