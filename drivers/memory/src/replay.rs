//! Frames loaded beforehand and given out over and over.
//!
//! Frames are stored one behind the other, each padded to whole cache lines: reading them is a sequential walk
//! that the hardware prefetcher follows, and copying one has no tail to handle.

use std::sync::Arc;
use warmlane_mem::{Burst, LINE_BYTES, Line, Packet, Pool};
use warmlane_port::{Capabilities, Port, QueueCounters, QueueStatus, ReceiveQueue, drop_reasons};
use warmlane_sys::prefetch::prefetch_read;

/// How many lines behind the frame in hand are fetched into the cache.
const LINES_AHEAD: usize = 16;

/// Where a frame is stored, and how long it is.
#[derive(Clone, Copy, Debug)]
struct Entry {
    first_line: u32,
    length: u32,
}

impl Entry {
    #[inline(always)]
    const fn lines(self) -> std::ops::Range<usize> {
        let first = self.first_line as usize;
        first..first + (self.length as usize).div_ceil(LINE_BYTES)
    }
}

/// Frames to replay. Several ports can share one set.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    lines: Vec<Line>,
    entries: Vec<Entry>,
    bytes: u64,
}

/// A frame that cannot be stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// There is nothing to replay.
    #[error("no frames to replay: give at least one")]
    Empty,
    /// Lines are numbered with 32 bits.
    #[error("{frames} frames exceed the 256 GiB that can be replayed: give fewer")]
    TooLarge {
        /// Frames stored so far.
        frames: usize,
    },
    /// More segments than a chain has.
    #[error("a frame of {length} bytes needs more than 255 buffers of {room} bytes: give the pool more room")]
    FrameTooLong {
        /// The frame's bytes.
        length: usize,
        /// The bytes in one buffer.
        room: usize,
    },
}

impl Frames {
    /// No frames.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a frame: a whole Ethernet frame without its check sequence.
    ///
    /// # Errors
    /// [`ReplayError::TooLarge`], if the frames stored so far fill the space.
    pub fn push(&mut self, frame: &[u8]) -> Result<(), ReplayError> {
        let too_large = ReplayError::TooLarge { frames: self.entries.len() };
        let (Ok(first_line), Ok(length)) = (u32::try_from(self.lines.len()), u32::try_from(frame.len()))
        else {
            return Err(too_large);
        };
        for chunk in frame.chunks(LINE_BYTES) {
            let mut line = Line([0; LINE_BYTES]);
            line.0[..chunk.len()].copy_from_slice(chunk);
            self.lines.push(line);
        }
        self.entries.push(Entry { first_line, length });
        self.bytes += u64::from(length);
        Ok(())
    }

    /// How many frames there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of all frames together.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The longest frame's bytes.
    pub fn longest(&self) -> usize {
        self.entries.iter().map(|entry| entry.length as usize).max().unwrap_or(0)
    }
}

drop_reasons! {
    /// Why a replay loses a frame.
    pub enum ReplayDrop {
        /// The pool had a buffer for the frame's start and none for the rest.
        NoBuffer: "no-buffer", Loss, "the pool ran out of buffers in the middle of a chained frame";
    }
}

/// How to replay.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplayConfig {
    /// How often all frames are given out; `None` is for ever.
    pub rounds: Option<u64>,
    /// How many queues; each gives out all frames.
    pub queues: usize,
}

/// A port that replays `frames` into buffers of `pool`.
///
/// # Errors
/// [`ReplayError`], if there are no frames, or one is too long for a chain of the pool's buffers.
pub fn open(
    name: &str,
    frames: &Arc<Frames>,
    pool: &Pool,
    config: ReplayConfig,
) -> Result<Port, ReplayError> {
    if frames.is_empty() {
        return Err(ReplayError::Empty);
    }
    let room = pool.room();
    if frames.longest() > room * usize::from(u8::MAX) {
        return Err(ReplayError::FrameTooLong { length: frames.longest(), room });
    }
    let rounds = config.rounds.unwrap_or(u64::MAX);
    let queue = || {
        Box::new(Replay {
            frames: Arc::clone(frames),
            pool: pool.clone(),
            next: 0,
            left: rounds.saturating_mul(frames.len() as u64),
            counters: QueueCounters::new(ReplayDrop::ALL),
        }) as Box<dyn ReceiveQueue>
    };
    Ok(Port {
        name: name.to_owned(),
        driver: "replay",
        capabilities: Capabilities { maximum_frame: frames.longest() as u32, ..Capabilities::default() },
        receive: (0..config.queues.max(1)).map(|_| queue()).collect(),
        transmit: Vec::new(),
    })
}

struct Replay {
    frames: Arc<Frames>,
    pool: Pool,
    next: usize,
    /// Frames still to be given out.
    left: u64,
    counters: Arc<QueueCounters>,
}

impl ReceiveQueue for Replay {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        let before = burst.len();
        let wanted = burst.room().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let taken = self.pool.take_burst(burst, wanted);
        let frames = &*self.frames;
        let mut bytes = 0;
        let mut lost = 0;
        for packet in &mut burst[before..] {
            let entry = frames.entries[self.next];
            self.next += 1;
            if self.next == frames.entries.len() {
                self.next = 0;
            }
            bytes += u64::from(entry.length);
            let range = entry.lines();
            // The set is usually larger than the private caches; waiting for each frame in turn was two thirds of
            // the time spent here.
            if let Some(ahead) = frames.lines.get(range.end + LINES_AHEAD) {
                prefetch_read(ahead);
            }
            let lines = &frames.lines[range];
            if packet.fill_lines(lines, entry.length as usize).is_err()
                && !fill_chain(packet, lines, entry.length as usize, &self.pool)
            {
                bytes -= u64::from(entry.length);
                lost += 1;
            }
        }
        self.left -= taken as u64;
        if lost > 0 {
            // An incomplete frame must not be seen by anyone; `fill_chain` leaves it empty.
            burst.retain(|packet| packet.packet_length() > 0);
            self.counters.drops.count(ReplayDrop::NoBuffer.index(), lost);
        }
        let received = taken as u64 - lost;
        self.counters.packets.add(received);
        self.counters.bytes.add(bytes);
        received as usize
    }

    fn status(&self) -> QueueStatus {
        if self.left == 0 { QueueStatus::Finished } else { QueueStatus::Running }
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}

/// Spreads a frame over as many buffers as it needs; `false`, and an empty packet, if the pool has too few.
#[cold]
fn fill_chain(packet: &mut Packet, lines: &[Line], length: usize, pool: &Pool) -> bool {
    let lines_per_buffer = pool.room() / LINE_BYTES;
    if lines_per_buffer == 0 {
        return false;
    }
    let mut left = length;
    for (number, chunk) in lines.chunks(lines_per_buffer).enumerate() {
        let bytes = left.min(chunk.len() * LINE_BYTES);
        left -= bytes;
        let filled = if number == 0 {
            packet.fill_lines(chunk, bytes).is_ok()
        } else {
            pool.take().is_some_and(|mut segment| {
                segment.fill_lines(chunk, bytes).is_ok() && packet.chain(segment).is_ok()
            })
        };
        if !filled {
            packet.truncate(0);
            return false;
        }
    }
    true
}
