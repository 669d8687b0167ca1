//! Memory of whole cache lines, for loops of the lab's own.

use crate::error::LabError;
use warmlane_sys::pages::{HUGE_2M_BYTES, TableEntry, TableMemory};

/// Zeroed lines, at least `count`. They fill huge pages where the kernel grants them, so that neither the translation cache
/// nor the kernel's choice of pages has a part in what is measured.
pub(super) fn lines<L: TableEntry>(count: usize) -> Result<TableMemory<L>, LabError> {
    const { assert!(size_of::<L>() == 64 && align_of::<L>() <= 64, "it is a line") };
    let count = count.next_multiple_of(HUGE_2M_BYTES / size_of::<L>());
    let lines = TableMemory::zeroed(count).map_err(LabError::setup)?;
    lines.commit(0..count).map_err(LabError::setup)?;
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_lines() {
        let lines = lines::<[u64; 8]>(100).unwrap();
        assert_eq!(lines.len(), HUGE_2M_BYTES / 64);
        assert!(std::ptr::from_ref(&lines[1]).addr().is_multiple_of(64) && lines[99] == [0; 8]);
    }
}
