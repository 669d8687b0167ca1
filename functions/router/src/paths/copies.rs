//! Copies of packets on kernel paths, for whoever captures there.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::time::{ClockId, clock_gettime};
use warmlane_bpf::{ArrayMap, BpfError, Object, PerCpuArrayMap, QueueMap, QueuePlace};

use super::layout::{Capture, Copy, CopyCounts};
use super::reason::ActionReason;

/// Packets that wait to be read, of each interface.
const QUEUE: u32 = 1_024;

/// The Ethernet addresses, behind which a VLAN tag belongs.
const ADDRESSES: usize = 12;

/// Why packets of an interface are not copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// Somebody else has them copied.
    #[error(
        "what comes in by interface '{0}' is captured already, on the kernel's paths by one at a time: name other interfaces with --port, or end that capture"
    )]
    Taken(String),
    /// The kernel refuses.
    #[error(transparent)]
    Bpf(#[from] BpfError),
}

/// What an interface's programs are asked for copies by.
struct Maps {
    capture: ArrayMap<Capture>,
    place: QueuePlace<Copy>,
    counts: PerCpuArrayMap<CopyCounts>,
    /// What is in the place while nobody captures: the smallest queue that there is.
    nothing: QueueMap<Copy>,
    is_taken: bool,
}

impl Maps {
    fn missed(&self) -> u64 {
        self.counts.get(0).unwrap_or_default().iter().map(|counts| counts.missed).sum()
    }
}

/// Where copies of one interface's packets can be had, by one reader at a time.
#[derive(Clone)]
pub(super) struct CopySource(Arc<Mutex<Maps>>);

impl CopySource {
    pub(super) fn new(object: &mut Object) -> Result<Self, BpfError> {
        let maps = Maps {
            capture: object.array("capture")?,
            place: object.queue_place("copies")?,
            counts: object.per_cpu_array("copy_counts")?,
            nothing: QueueMap::new("copies", 1)?,
            is_taken: false,
        };
        Ok(Self(Arc::new(Mutex::new(maps))))
    }

    fn lock(&self) -> MutexGuard<'_, Maps> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the programs copy one packet in so many.
    pub(super) fn begin(&self, name: &str, one_in: u32, snap_length: u32) -> Result<PathCopies, CopyError> {
        let mut maps = self.lock();
        if maps.is_taken {
            return Err(CopyError::Taken(name.to_owned()));
        }
        let queue = QueueMap::new("copies", QUEUE)?;
        maps.place.set(&queue)?;
        let (missed_before, snap_length) = (maps.missed(), snap_length.clamp(1, Copy::BYTES as u32));
        maps.capture.set(0, Capture { one_in: one_in.max(1), snap_length })?;
        maps.is_taken = true;
        let (source, ahead) = (self.clone(), ahead());
        Ok(PathCopies { source, queue, missed_before, bytes: Vec::new(), ahead })
    }

    fn end(&self) {
        let mut maps = self.lock();
        // Where the kernel refuses, the next one begins anew.
        let _ = maps.capture.set(0, Capture::default());
        let Maps { place, nothing, .. } = &mut *maps;
        let _ = place.set(nothing);
        maps.is_taken = false;
    }
}

impl fmt::Debug for CopySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopySource").finish_non_exhaustive()
    }
}

/// How many nanoseconds the clock since 1970 is ahead of that of copies.
fn ahead() -> i128 {
    let nanoseconds = |clock| {
        let now = clock_gettime(clock);
        i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
    };
    nanoseconds(ClockId::Realtime) - nanoseconds(ClockId::Monotonic)
}

/// A packet that came in by an interface on a kernel path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathCopy<'a> {
    /// When, in nanoseconds since 1970.
    pub time: u64,
    /// Bytes that the frame has.
    pub length: usize,
    /// The first of them, as it came.
    pub data: &'a [u8],
    /// What became of it.
    pub reason: &'static ActionReason,
}

/// Copies of packets that come in by an interface on a kernel path. Dropping it ends them.
pub struct PathCopies {
    source: CopySource,
    queue: QueueMap<Copy>,
    missed_before: u64,
    bytes: Vec<u8>,
    ahead: i128,
}

impl PathCopies {
    /// Calls `each` for packets that have been copied since, up to so many; says how many there were.
    pub fn read(&mut self, most: usize, mut each: impl FnMut(PathCopy<'_>)) -> usize {
        for count in 0..most {
            // A kernel that refuses has none.
            let Ok(Some(copy)) = self.queue.pop() else { return count };
            let captured = copy.data.get(..copy.captured as usize).unwrap_or(&copy.data);
            self.bytes.clear();
            let (addresses, rest) = captured.split_at(captured.len().min(ADDRESSES));
            self.bytes.extend_from_slice(addresses);
            let mut length = copy.length as usize;
            if copy.tag_protocol != [0; 2] && !rest.is_empty() {
                self.bytes.extend_from_slice(&copy.tag_protocol);
                self.bytes.extend_from_slice(&copy.tag_control.to_be_bytes());
                length += 4;
            }
            self.bytes.extend_from_slice(rest);
            let Some(reason) = ActionReason::ALL.get(copy.reason as usize) else { continue };
            let time = u64::try_from(i128::from(copy.time) + self.ahead).unwrap_or(0);
            each(PathCopy { time, length, data: &self.bytes, reason });
        }
        most
    }

    /// Packets that found no space.
    pub fn missed(&self) -> u64 {
        self.source.lock().missed().saturating_sub(self.missed_before)
    }
}

impl Drop for PathCopies {
    fn drop(&mut self) {
        self.source.end();
    }
}

impl fmt::Debug for PathCopies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PathCopies").finish_non_exhaustive()
    }
}
