//! Queues without a port, to run pipelines between: one that gives out made-up packets, and one that takes them as slowly
//! as it is told.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use warmlane_counters::{Counter, CounterView};
use warmlane_mem::{Burst, Packet, Pool};
use warmlane_port::watched::{DropWatcher, Watch, while_watched};
use warmlane_port::{
    DropReason, QueueCounters, QueueCountersView, QueueStatus, ReceiveQueue, TransmitOffloads, TransmitQueue,
};

type Make = Box<dyn FnMut(&mut Packet, u64) + Send>;

/// A dropped frame, as whoever captures drops is shown it: why, its bytes, and the number of the port that it came in by if the queue was
/// called for one.
pub type Shown = (&'static str, Vec<u8>, Option<u16>);

/// Collects what queues show of the packets that they drop.
#[derive(Default)]
pub struct ShownDrops(Mutex<Vec<Shown>>);

impl ShownDrops {
    /// What is shown while `work` calls queues.
    pub fn during<T>(port: Option<u16>, work: impl FnOnce() -> T) -> (T, Vec<Shown>) {
        let shown = Arc::new(Self::default());
        let done = while_watched(&Watch { watcher: shown.clone(), port }, work);
        let shown = std::mem::take(&mut *shown.lock());
        (done, shown)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Shown>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DropWatcher for ShownDrops {
    fn dropped(&self, reason: &'static DropReason, packets: &[Packet], port: Option<u16>) {
        let bytes = |packet: &Packet| packet.segment_data().flatten().copied().collect();
        self.lock().extend(packets.iter().map(|packet| (reason.name, bytes(packet), port)));
    }

    fn dropped_frame(&self, reason: &'static DropReason, frame: &[u8], port: Option<u16>) {
        self.lock().push((reason.name, frame.to_vec(), port));
    }
}

/// Gives out so many packets, then ends.
pub struct Source {
    /// How it ends.
    pub end: QueueStatus,
    /// What its packets may still need.
    pub leaves: TransmitOffloads,
    pool: Pool,
    next: u64,
    left: u64,
    make: Make,
    counters: QueueCounters,
}

impl Source {
    /// `make` is given each packet, empty, and its number, counted from 0.
    pub fn new(pool: &Pool, count: u64, make: impl FnMut(&mut Packet, u64) + Send + 'static) -> Self {
        Self {
            end: QueueStatus::Finished,
            leaves: TransmitOffloads::NONE,
            pool: pool.clone(),
            next: 0,
            left: count,
            make: Box::new(make),
            counters: QueueCounters::new(),
        }
    }

    /// Gives out these frames.
    ///
    /// # Panics
    /// When a frame doesn't fit the pool's buffers.
    pub fn of_frames(pool: &Pool, frames: Vec<Vec<u8>>) -> Self {
        Self::new(pool, frames.len() as u64, move |packet, number| {
            packet.fill(&frames[number as usize]).expect("the frame fits");
        })
    }
}

impl ReceiveQueue for Source {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        let before = burst.len();
        let count = self.pool.take_burst(burst, usize::try_from(self.left).unwrap_or(usize::MAX));
        for packet in &mut burst[before..] {
            (self.make)(packet, self.next);
            self.next += 1;
        }
        self.left -= count as u64;
        self.counters.packets().add(count as u64);
        count
    }

    fn leaves(&self) -> TransmitOffloads {
        self.leaves
    }

    fn status(&self) -> QueueStatus {
        if self.left > 0 { QueueStatus::Running } else { self.end.clone() }
    }

    fn counters(&self) -> QueueCountersView {
        self.counters.view()
    }
}

type Look = Box<dyn FnMut(&Packet) + Send>;

/// Frees what it takes: at most so many packets a call.
pub struct Sink {
    /// It takes something on every so many'th call only.
    pub every: u64,
    /// Whether it is to be waited for.
    pub is_lossless: bool,
    /// Whether bursts are to be gathered for it.
    pub is_costly: bool,
    /// What it says that it does for packets.
    pub offloads: TransmitOffloads,
    /// Unless it is running, it takes nothing.
    pub status: QueueStatus,
    most: usize,
    look: Look,
    calls: Counter,
    flushes: Counter,
    counters: QueueCounters,
}

impl Sink {
    /// Takes up to `most` packets a call.
    pub fn new(most: usize) -> Self {
        Self {
            every: 1,
            is_lossless: false,
            is_costly: false,
            offloads: TransmitOffloads::NONE,
            status: QueueStatus::Running,
            most,
            look: Box::new(|_| ()),
            calls: Counter::new(),
            flushes: Counter::new(),
            counters: QueueCounters::new(),
        }
    }

    /// Shows `look` each packet that it takes.
    #[must_use]
    pub fn with_look(self, look: impl FnMut(&Packet) + Send + 'static) -> Self {
        Self { look: Box::new(look), ..self }
    }

    /// How often packets were offered to it.
    pub fn calls(&self) -> CounterView {
        self.calls.view()
    }

    /// How often it was flushed.
    pub fn flushes(&self) -> CounterView {
        self.flushes.view()
    }
}

impl TransmitQueue for Sink {
    fn transmit(&mut self, burst: &mut Burst) -> usize {
        self.calls.add(1);
        if !self.calls.get().is_multiple_of(self.every) || self.status != QueueStatus::Running {
            return 0;
        }
        let count = burst.len().min(self.most);
        burst[..count].iter().for_each(&mut self.look);
        let before = burst.bytes();
        burst.free_front(count);
        self.counters.count(count as u64, before - burst.bytes());
        count
    }

    fn offloads(&self) -> TransmitOffloads {
        self.offloads
    }

    fn is_costly_to_call(&self) -> bool {
        self.is_costly
    }

    fn is_lossless(&self) -> bool {
        self.is_lossless
    }

    fn flush(&mut self) {
        self.flushes.add(1);
    }

    fn status(&self) -> QueueStatus {
        self.status.clone()
    }

    fn counters(&self) -> QueueCountersView {
        self.counters.view()
    }
}

/// The drops that happened: reasons' names and how many.
pub fn drops(counters: &QueueCountersView) -> Vec<(&'static str, u64)> {
    let happened = counters.drops().iter().filter(|(_, count)| *count > 0);
    happened.map(|(reason, count)| (reason.name, count)).collect()
}
