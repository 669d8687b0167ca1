//! The forwarder as a lane's task: receive queues in front, transmit queues behind.

use std::sync::{Arc, Mutex, PoisonError};

use warmlane_lane::{Poll, Task};
use warmlane_mem::{BURST_CAPACITY, Burst, Packet};
use warmlane_port::{QueueStatus, ReceiveQueue, TransmitQueue};
use warmlane_sync::counter::Counter;

use crate::control::{TableNumber, Unresolved};
use crate::datapath::{Forwarder, Outputs, Punted};

/// Empty polls between two looks at whether an idle queue has ended, and at what transmit queues still hold: asking
/// costs a system call with some drivers.
const POLLS_PER_LOOK: u32 = 64;

/// The same for polls that moved packets: a queue may break while others are busy.
const BUSY_POLLS_PER_LOOK: u32 = 4_096;

/// One port's queues that this lane works.
#[derive(Default)]
pub struct TaskPort {
    /// Queues to receive from.
    pub receive: Vec<Box<dyn ReceiveQueue>>,
    /// The queue to send on; `None` if nothing is sent from this lane.
    pub transmit: Option<Box<dyn TransmitQueue>>,
    /// A queue that is full is waited for, and nothing received meanwhile: see `Capabilities::lossless`.
    pub lossless: bool,
}

/// What a lane notes besides the forwarder's books.
#[derive(Debug, Default)]
pub struct TaskNotes {
    /// Packets passed on to a port that never took them, because it broke or the lane was ended.
    pub unsent: Counter,
    failures: Mutex<Vec<String>>,
}

impl TaskNotes {
    /// What broke so far: one sentence for each queue that did.
    pub fn failures(&self) -> Vec<String> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes a failure, once. Only called when a queue breaks, so the lock costs no packet anything.
    #[cold]
    fn fail(&self, sentence: String) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if !failures.contains(&sentence) {
            failures.push(sentence);
        }
    }
}

/// A receive queue, and the number of the port that it belongs to.
struct Source {
    port: u16,
    queue: Box<dyn ReceiveQueue>,
}

/// What waits for a port, and the queue that takes it.
struct Sink {
    burst: Burst,
    queue: Option<Box<dyn TransmitQueue>>,
    lossless: bool,
    /// Something was sent since the last flush.
    unflushed: bool,
    /// The queue took nothing when asked in this poll, and is not asked again: that may cost a system call each time.
    refuses: bool,
}

impl Sink {
    /// Gives the queue what waits for it; returns how many packets it took.
    #[inline]
    fn transmit(&mut self) -> usize {
        let Some(queue) = &mut self.queue else { return 0 };
        let sent = queue.transmit(&mut self.burst);
        self.unflushed |= sent > 0;
        self.refuses = sent == 0;
        sent
    }
}

/// What becomes of packets that the forwarder can't send on by itself. By default: nothing.
pub trait Exceptions: Send {
    /// See [`Outputs::CHECKS_SOURCES`].
    const CHECKS_SOURCES: bool = false;

    /// Takes a packet that isn't for the forwarder; see [`Outputs::punt`].
    fn punt(&mut self, packet: Packet, table: Option<TableNumber>) -> Punted {
        let _ = (packet, table);
        Punted::Unwanted
    }

    /// Takes a packet whose next station's Ethernet address is to be found out; see [`Outputs::hold`].
    ///
    /// # Errors
    /// The packet, if it can't wait.
    fn hold(&mut self, packet: Packet, whom: Unresolved) -> Result<(), Packet> {
        let _ = whom;
        Err(packet)
    }

    /// Called in each poll, with the routes' version. Gives back packets that were held: in `again` those to try once
    /// more, in `lost` those to give up.
    #[inline]
    fn release(&mut self, version: u64, again: &mut Burst, lost: &mut Burst) {
        let _ = (version, again, lost);
    }

    /// Called when there is time: pushes out what waits.
    fn flush(&mut self) {}

    /// Called last: gives back in `lost` what is still held, as far as there is room. Called again until that's nothing.
    fn finish(&mut self, lost: &mut Burst) {
        let _ = lost;
    }
}

/// Nobody takes exceptions.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoExceptions;

impl Exceptions for NoExceptions {}

struct Sinks<E> {
    ports: Vec<Sink>,
    exceptions: E,
}

impl<E: Exceptions> Outputs for Sinks<E> {
    const CHECKS_SOURCES: bool = E::CHECKS_SOURCES;

    fn punt(&mut self, packet: Packet, table: Option<TableNumber>) -> Punted {
        self.exceptions.punt(packet, table)
    }

    fn hold(&mut self, packet: Packet, whom: Unresolved) -> Result<(), Packet> {
        self.exceptions.hold(packet, whom)
    }

    #[inline]
    fn burst(&mut self, port: u16) -> Option<&mut Burst> {
        self.ports.get_mut(usize::from(port)).filter(|sink| sink.queue.is_some()).map(|sink| &mut sink.burst)
    }

    #[cold]
    fn make_room(&mut self, port: u16) -> bool {
        self.ports.get_mut(usize::from(port)).is_some_and(|sink| !sink.refuses && sink.transmit() > 0)
    }
}

/// Polls receive queues in turn, forwards what they give, and sends it.
///
/// What a port does not take at once waits in front of it, up to a burst of 256 packets; what comes on top is dropped
/// under its reason, unless the port is lossless: then nothing is received until it has taken what waits.
pub struct ForwardTask<E: Exceptions = NoExceptions> {
    forwarder: Forwarder,
    sources: Vec<Source>,
    sinks: Sinks<E>,
    burst: Burst,
    /// Bursts that a poll takes from a queue at most, as long as they are full.
    bursts: usize,
    /// Packets that were held, and are given up.
    lost: Burst,
    /// Empty polls in a row.
    idle: u32,
    /// Polls that moved packets since the last look round.
    busy: u32,
    stopping: bool,
    notes: Arc<TaskNotes>,
}

impl ForwardTask {
    /// A task that forwards between `ports`, in the order of the configuration, up to `burst` packets at a time.
    pub fn new(forwarder: Forwarder, ports: Vec<TaskPort>, burst: usize) -> Self {
        Self::with_exceptions(forwarder, ports, burst, NoExceptions)
    }
}

impl<E: Exceptions> ForwardTask<E> {
    /// The same, with somebody who takes what the forwarder can't send on.
    pub fn with_exceptions(forwarder: Forwarder, ports: Vec<TaskPort>, burst: usize, exceptions: E) -> Self {
        let mut sources = Vec::new();
        let mut sinks = Vec::new();
        for (number, port) in ports.into_iter().enumerate() {
            sources.extend(port.receive.into_iter().map(|queue| Source { port: number as u16, queue }));
            sinks.push(Sink {
                burst: Burst::with_limit(BURST_CAPACITY),
                queue: port.transmit,
                lossless: port.lossless,
                unflushed: false,
                refuses: false,
            });
        }
        let burst = Burst::with_limit(burst);
        let limit = burst.limit();
        let is_costly = |sink: &Sink| sink.queue.as_ref().is_some_and(|queue| queue.is_costly_to_call());
        // What a port's burst holds. Where calls cost little, fewer packets under way leave more room in the cache; and a port
        // that loses nothing must have room for what all sources give.
        let gathers = sinks.iter().any(is_costly) && !sinks.iter().any(|sink| sink.lossless);
        let bursts = if gathers { BURST_CAPACITY / limit } else { 1 };
        Self {
            forwarder,
            sources,
            sinks: Sinks { ports: sinks, exceptions },
            burst,
            bursts,
            lost: Burst::with_limit(limit),
            idle: 0,
            busy: 0,
            stopping: false,
            notes: Arc::default(),
        }
    }

    /// What the lane notes, to keep when the task moves to it.
    pub fn notes(&self) -> &Arc<TaskNotes> {
        &self.notes
    }

    /// Sends what waits; `true` if a lossless port still has some.
    #[inline]
    fn transmit(&mut self) -> bool {
        let mut waits = false;
        for sink in self.sinks.ports.iter_mut().filter(|sink| !sink.burst.is_empty()) {
            sink.transmit();
            waits |= sink.lossless && !sink.burst.is_empty();
        }
        waits
    }

    /// Looks for queues that have ended or broken, and flushes. `true`: there is nothing left to do, ever.
    #[cold]
    fn look_round(&mut self) -> bool {
        let notes = &self.notes;
        self.sources.retain(|source| match source.queue.status() {
            QueueStatus::Running => true,
            QueueStatus::Finished => false,
            QueueStatus::Failed(sentence) => {
                notes.fail(sentence);
                false
            }
        });
        self.sinks.exceptions.flush();
        for sink in &mut self.sinks.ports {
            let Some(queue) = &mut sink.queue else { continue };
            queue.flush();
            sink.unflushed = false;
            let ended = match queue.status() {
                QueueStatus::Running => false,
                QueueStatus::Finished => true,
                QueueStatus::Failed(sentence) => {
                    notes.fail(sentence);
                    true
                }
            };
            if ended {
                // From now on the forwarder finds no output there, and drops with that reason at once.
                sink.queue = None;
                notes.unsent.add(sink.burst.len() as u64);
                sink.burst.clear();
            }
        }
        let done = self.sources.is_empty() || self.stopping;
        done && self.sinks.ports.iter().all(|sink| sink.burst.is_empty())
    }

    fn rest(&mut self) -> Poll {
        self.idle = self.idle.saturating_add(1);
        let unflushed = self.idle == 1 && self.sinks.ports.iter().any(|sink| sink.unflushed);
        let look =
            unflushed || self.stopping || self.sources.is_empty() || self.idle.is_multiple_of(POLLS_PER_LOOK);
        if look && self.look_round() { Poll::Finished } else { Poll::Idle }
    }
}

impl<E: Exceptions> Task for ForwardTask<E> {
    fn poll(&mut self) -> Poll {
        self.forwarder.rest();
        for sink in &mut self.sinks.ports {
            sink.refuses = false;
        }
        let waiting: usize = self.sinks.ports.iter().map(|sink| sink.burst.len()).sum();
        if waiting > 0 && self.transmit() {
            // A lossless port is full: whether it moved decides whether this was work.
            let left: usize = self.sinks.ports.iter().map(|sink| sink.burst.len()).sum();
            return if left < waiting { Poll::Worked(0) } else { self.rest() };
        }
        let version = self.forwarder.routes().version();
        self.sinks.exceptions.release(version, &mut self.burst, &mut self.lost);
        if !self.burst.is_empty() {
            self.forwarder.resume(&mut self.burst, &mut self.sinks);
        }
        if !self.lost.is_empty() {
            self.forwarder.give_up(&mut self.lost, &mut self.sinks);
        }
        let mut received = 0;
        if !self.stopping {
            for source in &mut self.sources {
                for _ in 0..self.bursts {
                    let count = source.queue.receive(&mut self.burst);
                    if count == 0 {
                        break;
                    }
                    for packet in self.burst.iter_mut() {
                        packet.set_port(source.port);
                    }
                    received += count;
                    self.forwarder.process(&mut self.burst, &mut self.sinks);
                    if count < self.burst.limit() {
                        break;
                    }
                }
            }
        }
        if received == 0 {
            return self.rest();
        }
        self.idle = 0;
        self.transmit();
        self.busy += 1;
        if self.busy == BUSY_POLLS_PER_LOOK {
            self.busy = 0;
            self.look_round();
        }
        Poll::Worked(received)
    }

    fn stop(&mut self) {
        self.stopping = true;
    }

    fn finish(&mut self) {
        loop {
            self.sinks.exceptions.finish(&mut self.lost);
            if self.lost.is_empty() {
                break;
            }
            self.forwarder.give_up(&mut self.lost, &mut self.sinks);
        }
        self.transmit();
        self.look_round();
        for sink in &mut self.sinks.ports {
            self.notes.unsent.add(sink.burst.len() as u64);
            sink.burst.clear();
        }
    }
}
