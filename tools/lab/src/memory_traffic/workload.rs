//! The DOCSIS downstream as a program to be watched: which lines of memory it touches.
//!
//! Both lanes take turns on one thread, and before each part of the work a line of its own is written to: whoever watches the accesses
//! sees by it who makes those that follow.

use crate::cable;
use crate::error::LabError;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use warmlane_docsis::{Queues, downstream};
use warmlane_lane::Task as _;
use warmlane_mem::{Burst, Packet, Pool, PoolConfig};
use warmlane_port::{QueueCounters, ReceiveQueue, TransmitQueue, queue_report};

/// Packets of a burst.
pub(super) const BURST: u32 = 32;

/// Bytes from one buffer to the next, and in front of a frame: header and headroom.
pub(super) const STRIDE: u64 = 2_240;
pub(super) const BEFORE_FRAME: u64 = 64 + 128;

/// Bursts before the first that is watched: each modem has had packets then.
pub(super) const WARM_UP: u32 = 40;

/// Bursts that are watched: enough for each modem to have some.
pub(super) const WATCHED: u32 = 40;

/// Frames in all.
pub(super) const fn frames() -> u64 {
    (BURST * (WARM_UP + WATCHED)) as u64
}

/// Parts of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// None: the card's own work, and what is only there for this.
    Nothing,
    /// The receive queue takes buffers.
    Take,
    /// The upper MAC's lane.
    Upper,
    /// The lower MAC's lane.
    Lower,
    /// The transmit queue frees buffers.
    Free,
}

impl Part {
    pub(super) const ALL: [Self; 5] = [Self::Nothing, Self::Take, Self::Upper, Self::Lower, Self::Free];

    /// Those who watch see that this begins.
    pub(super) fn begin(self) {
        MARKS[self as usize].0.store(1, Ordering::SeqCst);
    }
}

/// A line for each part.
#[repr(align(64))]
struct Mark(AtomicU64);

static MARKS: [Mark; 5] = [const { Mark(AtomicU64::new(0)) }; 5];

/// Where the first part's line is; the others' follow.
pub(super) fn marks() -> u64 {
    std::ptr::from_ref(&MARKS).addr() as u64
}

/// Where is what, for those who watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    /// The first mark's address; the others follow, a line each.
    pub(super) marks: u64,
    /// The first buffer's address, of what is received, and of what is sent.
    pub(super) received: u64,
    pub(super) sent: u64,
    /// Buffers in each pool.
    pub(super) buffers: u64,
}

impl Places {
    /// From the line that [`run`] writes first.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut numbers = line.strip_prefix("places ")?.split_whitespace().map(|word| word.parse().ok());
        let mut next = || numbers.next().flatten();
        let places = Self { marks: next()?, received: next()?, sent: next()?, buffers: next()? };
        // Buffers end where addresses do at the latest.
        places.buffers.checked_mul(STRIDE)?;
        Some(places)
    }
}

/// Frames of one length, over and over.
pub(super) struct Card {
    pool: Pool,
    frames: Vec<Vec<u8>>,
    next: usize,
    /// Packets that it may still give out.
    due: Arc<AtomicU32>,
    counters: QueueCounters,
}

impl Card {
    /// It gives out so many of them as `due` says.
    pub(super) fn new(pool: Pool, frames: Vec<Vec<u8>>, due: &Arc<AtomicU32>) -> Self {
        Self { pool, frames, next: 0, due: Arc::clone(due), counters: QueueCounters::new() }
    }
}

impl ReceiveQueue for Card {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        Part::Nothing.begin();
        let due = self.due.swap(0, Ordering::Relaxed) as usize;
        let before = burst.len();
        Part::Take.begin();
        let count = self.pool.take_burst(burst, due);
        Part::Nothing.begin();
        for packet in &mut burst[before..] {
            // Frames are shorter than buffers.
            let _ = packet.fill(&self.frames[self.next]);
            self.next = (self.next + 1) % self.frames.len();
        }
        self.counters.packets().add(count as u64);
        Part::Upper.begin();
        count
    }

    queue_report!(always running, counters);
}

/// Frees what it is given.
pub(super) struct Wire(pub(super) QueueCounters);

impl TransmitQueue for Wire {
    fn transmit(&mut self, burst: &mut Burst) -> usize {
        let count = burst.len();
        Part::Free.begin();
        burst.clear();
        Part::Lower.begin();
        self.0.packets().add(count as u64);
        count
    }

    fn is_lossless(&self) -> bool {
        true
    }

    queue_report!(always running, 0);
}

/// Sends frames of so many bytes through both MACs, and writes to `output` where what is.
///
/// # Errors
/// [`LabError`].
pub fn run(bytes: u32, crc: bool, mut output: impl Write) -> Result<(), LabError> {
    if !(64..=1_520).contains(&bytes) {
        return Err(LabError::setup(format!("frames of {bytes} bytes: there are from 64 to 1520 here")));
    }
    let mut group = cable::service_group(crc, true).map_err(LabError::setup)?;
    // Whoever watches makes all much slower; packets to the remote PHY are full all the same.
    group.limits.flush = Duration::from_secs(1 << 20);
    let [received, sent] = pools(&mut output)?;
    let _lane = received.attach().map_err(LabError::setup)?;
    let _other_lane = sent.attach().map_err(LabError::setup)?;
    let due = Arc::<AtomicU32>::default();
    let frames = (0..cable::MODEMS).map(|place| cable::frame(place, bytes));
    let frames = frames.collect::<Result<_, _>>().map_err(LabError::setup)?;
    let card = Card::new(received, frames, &due);
    let wire = Box::new(Wire(QueueCounters::new()));
    let queues = Queues { receive: vec![Box::new(card)], transmit: wire };
    let mut made = downstream(&group, &sent, queues, None).map_err(LabError::setup)?;
    let mut whole = 0;
    for _ in 0..WARM_UP + WATCHED {
        whole += u64::from(BURST);
        due.store(BURST, Ordering::Relaxed);
        while made.views.upper.transferred() < whole {
            Part::Upper.begin();
            made.upper.poll();
            Part::Nothing.begin();
            if made.views.upper.drops().total() > 0 {
                return Err(LabError::setup("the upper MAC dropped a packet"));
            }
        }
        while made.views.lower.framed() < whole {
            Part::Lower.begin();
            made.lower.poll();
            Part::Nothing.begin();
            if made.views.lower.drops().total() > 0 {
                return Err(LabError::setup("the lower MAC dropped a packet"));
            }
        }
    }
    Ok(())
}

/// The pools of what is received and of what is sent; writes to `output` where what is.
pub(super) fn pools(mut output: impl Write) -> Result<[Pool; 2], LabError> {
    let config = |name: &str| PoolConfig {
        name: name.to_owned(),
        buffers: 4_096,
        magazine: Some(256),
        stride: Some(STRIDE as usize),
        ..PoolConfig::default()
    };
    let pool = |name| Pool::new(&config(name)).map_err(LabError::setup);
    let (received, sent) = (pool("received")?, pool("sent")?);
    let first = |pool: &Pool| {
        let packet = pool.take().ok_or_else(|| LabError::setup("a pool without buffers"))?;
        Ok::<_, LabError>(start(&packet) - u64::from(packet.id().index()) * STRIDE)
    };
    let marks = marks();
    writeln!(output, "places {marks} {} {} {}", first(&received)?, first(&sent)?, received.buffers())?;
    output.flush()?;
    Ok([received, sent])
}

/// Where a packet's buffer begins.
fn start(packet: &Packet) -> u64 {
    packet.data().as_ptr().addr() as u64 - BEFORE_FRAME
}
