//! What moves between memory and the threads that measure, as the kernel's resctrl counts it (MBM): where memory's controllers can't be asked, or beside them.

use warmlane_sys::affinity;
use warmlane_sys::resctrl::{CacheGroup, Resctrl};

/// What tables call it.
pub(crate) const NAME: &str = "memory bytes (MBM)";

/// The traffic of this thread, and of those that it starts from now on, which are born into its group.
pub(super) struct MemoryTraffic {
    group: CacheGroup,
    before: Option<u64>,
}

impl MemoryTraffic {
    /// Makes the group; it goes again with this. What is wrong, if it can't be had.
    pub(super) fn open() -> Result<Self, String> {
        let thread = affinity::current_thread();
        let group = Resctrl::open().and_then(|resctrl| resctrl.group("lab", thread, None));
        let group = group.map_err(|error| error.to_string())?;
        if group.usage().memory_bytes.is_none() {
            return Err(
                "the processor tells what threads occupy of the cache, and not what they move".to_owned()
            );
        }
        Ok(Self { group, before: None })
    }

    pub(super) fn start(&mut self) {
        self.before = self.group.usage().memory_bytes;
    }

    /// Bytes since the start; `None` if one of both counts was not to be had.
    pub(super) fn stop(&mut self) -> Option<f64> {
        let before = self.before.take()?;
        Some(self.group.usage().memory_bytes?.wrapping_sub(before) as f64)
    }
}
