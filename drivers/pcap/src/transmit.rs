//! The queue that writes a file.

use std::{
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use warmlane_mem::{Burst, Packet};
use warmlane_port::{CountDropped as _, QueueCounters, QueueCountersView, QueueStatus, TransmitQueue};

use crate::{Format, PcapError, TransmitDrop, Writer, Written};

/// Appends packets to a capture. Counts them as transmitted when the kernel has taken them, so that a full disk
/// makes no packet both sent and lost.
pub(crate) struct FileTransmit {
    writer: Writer,
    /// What the counters already include.
    counted: Written,
    status: QueueStatus,
    /// Whether a lane ever worked the queue; they all flush before they end.
    used: bool,
    counters: QueueCounters<TransmitDrop>,
}

impl FileTransmit {
    pub(crate) fn create(path: &Path, format: Format, snap_length: u32) -> Result<Self, PcapError> {
        Ok(Self {
            writer: Writer::with_snap_length(path, format, snap_length)?,
            counted: Written::default(),
            status: QueueStatus::Running,
            used: false,
            counters: QueueCounters::new(),
        })
    }

    /// Writes one packet. An error is that of the writer: the file takes no more.
    #[inline]
    fn write(&mut self, packet: &mut Packet, now: u64) -> Result<(), PcapError> {
        let timestamp = match packet.timestamp() {
            0 => now,
            timestamp => timestamp,
        };
        self.writer.write_segments(timestamp, packet.packet_length(), packet.segment_data())
    }

    /// Brings the counters up to what the kernel has taken.
    fn count_written(&mut self) {
        let written = self.writer.written();
        self.counters.count(written.frames - self.counted.frames, written.bytes - self.counted.bytes);
        self.counted = written;
    }

    #[cold]
    fn fail(&mut self, error: &PcapError) {
        if let PcapError::Write { lost, .. } = error {
            self.counters.drops().count(TransmitDrop::WriteFailed, *lost);
        }
        self.status = QueueStatus::Failed(error.to_string());
    }
}

impl TransmitQueue for FileTransmit {
    fn transmit(&mut self, burst: &mut Burst) -> usize {
        let count = burst.len();
        if count == 0 {
            return 0;
        }
        self.used = true;
        let now = now_nanoseconds();
        let mut taken = 0;
        if self.status == QueueStatus::Running {
            for packet in burst.iter_mut() {
                if let Err(error) = self.write(packet, now) {
                    self.fail(&error);
                    break;
                }
                taken += 1;
            }
            self.count_written();
        }
        self.counters.drops().count_packets(TransmitDrop::WriteFailed, &burst[taken..]);
        burst.clear();
        count
    }

    fn flush(&mut self) {
        self.used = true;
        if self.status == QueueStatus::Running {
            if let Err(error) = self.writer.flush() {
                self.fail(&error);
            }
            self.count_written();
        }
    }

    fn is_lossless(&self) -> bool {
        true
    }

    fn status(&self) -> QueueStatus {
        self.status.clone()
    }

    fn counters(&self) -> QueueCountersView {
        self.counters.view()
    }
}

impl Drop for FileTransmit {
    /// The counters outlive the queue, so they get the last packets too; then the writer gives the file its name. A
    /// queue that no lane ever worked belongs to a start that failed, which leaves what has the name alone.
    fn drop(&mut self) {
        if self.used {
            self.flush();
        } else {
            self.writer.abandon();
        }
    }
}

/// The wall clock, for packets that carry no time: one reading for a burst. 0 before 1970.
fn now_nanoseconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}
