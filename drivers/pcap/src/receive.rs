//! The queue that reads a file.

use std::{fs::File, path::Path};

use warmlane_mem::{Burst, Packet, Pool};
use warmlane_port::{CountDropped as _, QueueCounters, QueueCountersView, QueueStatus, ReceiveQueue};

use crate::{Frame, LinkType, PcapError, Reader, ReceiveDrop};

/// Segments that a packet can have at most.
const MAXIMUM_SEGMENTS: usize = 255;

/// Copies the frames of a capture into packets.
pub(crate) struct FileReceive {
    reader: Reader<File>,
    pool: Pool,
    /// Passes over the file still to be begun; `None`: without end.
    passes_left: Option<u64>,
    /// The reader's current frame has not been delivered yet.
    held: bool,
    status: QueueStatus,
    counters: QueueCounters<ReceiveDrop>,
}

/// What became of a frame.
enum Placed {
    /// All its bytes, so many, are in the packet.
    Whole(usize),
    /// There were not enough buffers just now.
    Wait,
    /// It can never be a packet.
    Dropped(ReceiveDrop),
}

impl FileReceive {
    /// Opens the file and looks at its first frame, so that what cannot be read at all is known at once.
    pub(crate) fn open(path: &Path, passes: u64, pool: &Pool) -> Result<Self, PcapError> {
        let mut reader = Reader::open(path)?;
        let held = reader.advance()?;
        let first = reader.current().map(|frame| frame.link_type).or(reader.link_type());
        if let Some(link_type) = first
            && link_type != LinkType::ETHERNET
        {
            return Err(PcapError::NotEthernet { position: reader.position(), link_type });
        }
        Ok(Self {
            reader,
            pool: pool.clone(),
            passes_left: passes.checked_sub(1),
            held,
            status: if held { QueueStatus::Running } else { QueueStatus::Finished },
            counters: QueueCounters::new(),
        })
    }

    pub(crate) fn format(&self) -> crate::Format {
        self.reader.format()
    }

    /// Moves on to the next frame, over the end of the file if another pass is due. `false`: there is none, and
    /// the status says why.
    fn next_frame(&mut self) -> bool {
        loop {
            match self.reader.advance() {
                Ok(true) => {
                    self.held = true;
                    return true;
                }
                Ok(false) if self.begin_pass() => {}
                Ok(false) => return false,
                Err(error) => {
                    self.status = QueueStatus::Failed(error.to_string());
                    return false;
                }
            }
        }
    }

    /// Starts again at the beginning, if that is wanted and the file has anything to give.
    #[cold]
    fn begin_pass(&mut self) -> bool {
        if self.passes_left == Some(0) || self.reader.frames() == 0 {
            self.status = QueueStatus::Finished;
            return false;
        }
        self.passes_left = self.passes_left.map(|passes| passes - 1);
        if let Err(error) = self.reader.rewind() {
            self.status = QueueStatus::Failed(error.to_string());
            return false;
        }
        true
    }
}

/// Copies `frame` into the packet at `index`, and into as many more behind it as it needs: empty ones from the
/// burst's end, then from the pool.
#[inline]
fn place(frame: &Frame<'_>, burst: &mut Burst, index: usize, pool: &Pool) -> Placed {
    if frame.is_snapped() {
        return Placed::Dropped(ReceiveDrop::Snapped);
    }
    if frame.link_type != LinkType::ETHERNET {
        return Placed::Dropped(ReceiveDrop::NotEthernet);
    }
    let data = frame.without_fcs();
    let Some(packet) = burst.get_mut(index) else { return Placed::Wait };
    packet.set_timestamp(frame.timestamp_nanoseconds);
    if packet.fill(data).is_ok() { Placed::Whole(data.len()) } else { place_chain(data, burst, index, pool) }
}

#[cold]
fn place_chain(data: &[u8], burst: &mut Burst, index: usize, pool: &Pool) -> Placed {
    let data_size = pool.data_size().max(1);
    let wanted = data.len().div_ceil(data_size);
    if wanted > MAXIMUM_SEGMENTS || wanted > pool.buffers() as usize {
        return Placed::Dropped(ReceiveDrop::TooLarge);
    }
    for (number, part) in data.chunks(data_size).enumerate() {
        if number == 0 {
            if burst[index].fill(part).is_err() {
                return Placed::Dropped(ReceiveDrop::TooLarge);
            }
            continue;
        }
        let spare = if burst.len() > index + 1 { burst.pop() } else { pool.take() };
        let Some(mut segment) = spare else { return Placed::Wait };
        let chained = segment.fill(part).is_ok() && Packet::chain(&mut burst[index], segment).is_ok();
        if !chained {
            return Placed::Dropped(ReceiveDrop::TooLarge);
        }
    }
    Placed::Whole(data.len())
}

impl ReceiveQueue for FileReceive {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        if self.status != QueueStatus::Running {
            return 0;
        }
        let before = burst.len();
        // A burst of frames that are all dropped ends the call too: the lane has other things to do.
        let looks = burst.space();
        self.pool.take_burst(burst, looks);
        let (mut next, mut bytes) = (before, 0);
        for _ in 0..looks {
            if next == burst.len() || !(self.held || self.next_frame()) {
                break;
            }
            let Some(frame) = self.reader.current() else { break };
            match place(&frame, burst, next, &self.pool) {
                Placed::Whole(length) => {
                    bytes += length as u64;
                    next += 1;
                }
                Placed::Wait => break,
                Placed::Dropped(reason @ ReceiveDrop::NotEthernet) => self.counters.drops().count(reason, 1),
                Placed::Dropped(reason) => self.counters.drops().count_frame(reason, frame.data),
            }
            self.held = false;
        }
        // Buffers without a frame go back, also those of a chain that came out too short.
        burst.truncate(next);
        let received = next - before;
        self.counters.count(received as u64, bytes);
        received
    }

    fn status(&self) -> QueueStatus {
        self.status.clone()
    }

    fn counters(&self) -> QueueCountersView {
        self.counters.view()
    }
}
