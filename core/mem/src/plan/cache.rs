//! The caches that a layout is planned for.

use super::PlanError;
use crate::header::HEADER_BYTES;
use warmlane_sys::topology::{CacheKind, Topology};

/// From this level on, a cache is shared and cut into slices, and which slice a line goes to is a hash of its physical
/// address that makers don't publish (Maurice et al., "Reverse Engineering Intel Last-Level Cache Complex Addressing
/// Using Performance Counters", RAID 2015).
const HASHED_LEVEL: u8 = 3;
/// More than any cache has, and little enough that planning for it takes no time to speak of.
const LARGEST_BYTES: usize = 1 << 30;

/// The geometry of one cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheShape {
    /// 1 for the first level.
    pub level: u8,
    /// Number of sets.
    pub sets: usize,
    /// Lines per set.
    pub ways: usize,
    /// Bytes per line.
    pub line: usize,
}

impl CacheShape {
    /// Lines in the cache.
    pub const fn lines(&self) -> usize {
        self.sets * self.ways
    }

    /// Bytes in the cache.
    pub const fn bytes(&self) -> usize {
        self.lines() * self.line
    }

    /// Bytes after which the sets repeat. If pages are smaller, the kernel's choice of pages decides about sets along
    /// with the stride.
    pub const fn way_bytes(&self) -> usize {
        self.sets * self.line
    }

    /// Whether the set of a line is some bits of its address, and not a hash of it: then the spread can be computed.
    pub const fn is_indexed(&self) -> bool {
        self.level < HASHED_LEVEL
    }

    /// The data caches of this machine's first CPU, nearest first; those that make no sense are left out, because a
    /// virtual machine may be told anything. Empty if the machine does not tell.
    pub fn of_this_machine() -> Vec<Self> {
        let Ok(topology) = Topology::read() else { return Vec::new() };
        let Some(cpu) = topology.online().next() else { return Vec::new() };
        let mut shapes: Vec<Self> = Vec::new();
        for cache in cpu.caches.iter().filter(|cache| cache.kind != CacheKind::Instruction) {
            let (Some(sets), Some(ways)) = (cache.sets, cache.ways) else { continue };
            shapes.push(Self {
                level: cache.level,
                sets: sets as usize,
                ways: ways as usize,
                line: cache.line_bytes as usize,
            });
            if Self::check_all(&shapes).is_err() {
                shapes.pop();
            }
        }
        shapes
    }

    /// # Errors
    /// [`PlanError::Cache`] for a cache that can't be.
    fn check(&self) -> Result<(), PlanError> {
        let nonsense = |reason| Err(PlanError::Cache { level: self.level, reason });
        if !(1..=4).contains(&self.level) {
            return nonsense("levels are 1 to 4");
        }
        if self.sets == 0 || self.ways == 0 {
            return nonsense("it needs at least one set of at least one way");
        }
        if !(16..=1_024).contains(&self.line) || !self.line.is_power_of_two() {
            return nonsense("a line is a power of two of 16 to 1024 bytes");
        }
        let bytes = self.sets.checked_mul(self.ways).and_then(|lines| lines.checked_mul(self.line));
        if bytes.is_none_or(|bytes| bytes > LARGEST_BYTES) {
            return nonsense("it is larger than 1 GiB");
        }
        Ok(())
    }

    /// Whether these can be the caches of one machine.
    ///
    /// # Errors
    /// [`PlanError::Cache`].
    pub(super) fn check_all(shapes: &[Self]) -> Result<(), PlanError> {
        for (number, shape) in shapes.iter().enumerate() {
            shape.check()?;
            for other in &shapes[..number] {
                let (near, far) = if other.level < shape.level { (other, shape) } else { (shape, other) };
                let reason = if near.level == far.level {
                    "it is given twice"
                } else if near.line != far.line {
                    "its lines are of another length than those of the other levels"
                } else if near.bytes() >= far.bytes() {
                    "it is not larger than the level before it"
                } else {
                    continue;
                };
                return Err(PlanError::Cache { level: far.level, reason });
            }
        }
        Ok(())
    }

    /// The line that all these caches have; that of the header if there are none.
    pub(super) fn common_line(shapes: &[Self]) -> usize {
        shapes.iter().map(|shape| shape.line).fold(HEADER_BYTES, usize::max)
    }
}
