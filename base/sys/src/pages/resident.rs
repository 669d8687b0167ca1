//! What a mapping's pages have turned out to be.

use std::fs;

use super::AddressRange;
use crate::text::kilobyte_line;

/// Bytes of the range that are mapped by huge entries now; `None` if the kernel doesn't tell.
pub(super) fn huge_bytes(range: &AddressRange) -> Option<usize> {
    let start = range.start().addr().get();
    huge_bytes_in(&fs::read_to_string("/proc/self/smaps").ok()?, start, start + range.length())
}

/// Adds up the areas of an smaps text (proc_pid_smaps(5)) that lie inside `start..end`: each begins with a line
/// `address-address permissions ..`, followed by its fields.
fn huge_bytes_in(smaps: &str, start: usize, end: usize) -> Option<usize> {
    let mut inside = false;
    let mut told = false;
    let mut bytes = 0;
    for line in smaps.lines() {
        if let Some((from, to)) = area(line) {
            inside = start <= from && to <= end;
        } else if inside
            && let Some(huge) =
                kilobyte_line(line, "ShmemPmdMapped").or_else(|| kilobyte_line(line, "AnonHugePages"))
        {
            told = true;
            bytes += usize::try_from(huge).ok()?;
        }
    }
    told.then_some(bytes)
}

fn area(line: &str) -> Option<(usize, usize)> {
    let (from, to) = line.split_whitespace().next()?.split_once('-')?;
    Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
7f0000000000-7f0000200000 rw-s 00000000 00:01 1 /memfd:a (deleted)
Size:               2048 kB
ShmemPmdMapped:     2048 kB
7f0000200000-7f0000600000 rw-s 00000000 00:01 2 /memfd:b (deleted)
AnonHugePages:         0 kB
ShmemPmdMapped:     2048 kB
VmFlags: rd wr sh
7f0000600000-7f0000800000 rw-s 00400000 00:01 2 /memfd:b (deleted)
ShmemPmdMapped:      0 kB
";

    #[test]
    fn only_the_ranges_own_areas_count() {
        assert_eq!(huge_bytes_in(SMAPS, 0x7f00_0020_0000, 0x7f00_0080_0000), Some(2 << 20));
        assert_eq!(huge_bytes_in(SMAPS, 0x7f00_0000_0000, 0x7f00_0080_0000), Some(4 << 20));
        assert_eq!(huge_bytes_in(SMAPS, 0x1000, 0x2000), None);
        assert_eq!(huge_bytes_in("", 0, usize::MAX), None);
    }
}
