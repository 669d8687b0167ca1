//! Frames loaded beforehand and given out over and over, each copied into a fresh buffer.

use std::sync::Arc;
use warmlane_mem::{Burst, Copied, Cursor, LINE_BYTES, Line, Packet, Pool};
use warmlane_port::{
    Capabilities, CountDropped as _, Port, QueueCounters, QueueCountersView, QueueStatus, ReceiveQueue,
    drop_reasons,
};

pub use warmlane_mem::{Frames, TooManyFrames};

/// Frames that cannot be replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// There is nothing to replay.
    #[error("no frames to replay: give at least one")]
    Empty,
    /// More segments than a chain has.
    #[error(
        "a frame of {length} bytes needs more than 255 buffers of {data_size} bytes: give the pool larger ones"
    )]
    FrameTooLong {
        /// The frame's bytes.
        length: usize,
        /// The bytes in one buffer.
        data_size: usize,
    },
}

drop_reasons! {
    /// Why a replay loses a frame.
    pub enum ReplayDrop {
        /// The pool ran out of buffers in the middle of a chained frame.
        NoBuffer: "no-buffer", Loss;
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
    let data_size = pool.data_size();
    if frames.longest() > data_size * usize::from(u8::MAX) {
        return Err(ReplayError::FrameTooLong { length: frames.longest(), data_size });
    }
    let rounds = config.rounds.unwrap_or(u64::MAX);
    let queue = || {
        Box::new(Replay {
            frames: Arc::clone(frames),
            pool: pool.clone(),
            cursor: Cursor::default(),
            chains: frames.longest().next_multiple_of(LINE_BYTES) > pool.data_size(),
            left: rounds.saturating_mul(frames.len() as u64),
            counters: QueueCounters::new(),
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
    cursor: Cursor,
    /// Some frames need more than one buffer.
    chains: bool,
    /// Frames still to be given out.
    left: u64,
    counters: QueueCounters<ReplayDrop>,
}

impl ReceiveQueue for Replay {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        let (before, first) = (burst.len(), self.cursor);
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX);
        let mut copied = self.pool.take_copies(burst, &self.frames, &mut self.cursor, wanted);
        self.left -= copied.packets as u64;
        if self.chains {
            self.chain(burst, before, first, &mut copied);
        }
        self.counters.count(copied.packets as u64, copied.bytes);
        copied.packets
    }

    fn status(&self) -> QueueStatus {
        if self.left == 0 { QueueStatus::Finished } else { QueueStatus::Running }
    }

    fn counters(&self) -> QueueCountersView {
        self.counters.view()
    }
}

impl Replay {
    /// Makes chains of the frames from `first` on that one buffer was too small for.
    #[cold]
    fn chain(&self, burst: &mut Burst, before: usize, first: Cursor, copied: &mut Copied) {
        let (mut cursor, mut seen) = (first, 0);
        burst.retain(|packet| {
            seen += 1;
            if seen <= before {
                return true;
            }
            let frame = self.frames.get(cursor.next());
            cursor.advance(self.frames.len());
            let Some((lines, length)) = frame else { return true };
            if packet.len() == length || fill_chain(packet, lines, length, &self.pool) {
                return true;
            }
            // An incomplete frame must not be seen by anyone.
            copied.packets -= 1;
            copied.bytes -= length as u64;
            self.counters.drops().count_packet(ReplayDrop::NoBuffer, packet);
            false
        });
    }
}

/// Spreads a frame over as many buffers as it needs; `false` if the pool has too few.
#[cold]
fn fill_chain(packet: &mut Packet, lines: &[Line], length: usize, pool: &Pool) -> bool {
    let lines_per_buffer = pool.data_size() / LINE_BYTES;
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
            return false;
        }
    }
    true
}
