//! Reading the small text files of `/sys` and `/proc`: a missing or malformed one is `None`.

use std::fmt::Write;
use std::fs;
use std::path::Path;

/// The highest CPU or node number that a list may name; the kernel's own limit (`CONFIG_NR_CPUS`) is 8192.
const HIGHEST_NUMBER: usize = 65_535;

/// The file's text without the white space around it; `None` if it can't be read or is empty.
pub(crate) fn read_text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The decimal number that the file holds.
pub(crate) fn read_number(path: &Path) -> Option<u64> {
    read_text(path)?.parse().ok()
}

/// A list of CPUs or nodes such as `0-3,8,10-11`, in ascending order. An empty text is an empty list; `None` if the text is no list.
pub fn parse_list(text: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last > HIGHEST_NUMBER {
            return None;
        }
        numbers.extend(first..=last);
    }
    numbers.sort_unstable();
    numbers.dedup();
    Some(numbers)
}

/// The list in the file; a file that is there but empty is an empty list (`isolated` on most machines).
pub(crate) fn read_list(path: &Path) -> Option<Vec<usize>> {
    parse_list(&fs::read_to_string(path).ok()?)
}

/// A sorted list of CPUs or the like as the kernel writes it: `[0, 1, 2, 8]` is `0-2,8`; "none" if it is empty.
pub fn format_list(numbers: &[usize]) -> String {
    if numbers.is_empty() {
        return "none".to_owned();
    }
    let mut text = String::new();
    for run in numbers.chunk_by(|a, b| a + 1 == *b) {
        let separator = if text.is_empty() { "" } else { "," };
        // Writing to a String can't fail.
        let _ = match run {
            [only] => write!(text, "{separator}{only}"),
            [first, .., last] => write!(text, "{separator}{first}-{last}"),
            [] => Ok(()),
        };
    }
    text
}

/// A size as the kernel writes it: `32K`, `1024K`, `32M`, `1G`, or plain bytes.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, unit) = match text.char_indices().next_back()? {
        (at, 'K' | 'k') => (&text[..at], 1 << 10),
        (at, 'M' | 'm') => (&text[..at], 1 << 20),
        (at, 'G' | 'g') => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    digits.trim().parse::<u64>().ok()?.checked_mul(unit)
}

/// The bytes of a `name:  123 kB` line, as `/proc/meminfo`, a node's `meminfo` and `smaps` have them.
pub(crate) fn kilobyte_field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| kilobyte_line(line, name))
}

/// The bytes of this line, if it is the one called `name`.
pub(crate) fn kilobyte_line(line: &str, name: &str) -> Option<u64> {
    let (label, value) = line.split_once(':')?;
    if label.split_whitespace().next_back()? != name {
        return None;
    }
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The word in brackets of a file such as `always [madvise] never`.
pub(crate) fn chosen_word(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word)
}

/// Bytes in the largest binary unit that keeps them exact: `2 MiB`, `1536 KiB`, `7 bytes`.
pub(crate) fn format_bytes(bytes: u64) -> String {
    for (unit, name) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes >= unit && bytes.is_multiple_of(unit) {
            return format!("{} {name}", bytes / unit);
        }
    }
    format!("{bytes} bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written() {
        assert_eq!(parse_list("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(parse_list("\n"), Some(vec![]));
        assert_eq!(parse_list("5,1,1-2"), Some(vec![1, 2, 5]));
        for bad in ["3-1", "a", "0-", "0-4294967295"] {
            assert_eq!(parse_list(bad), None, "{bad}");
        }
        assert_eq!(format_list(&[0, 1, 2, 8, 10, 11]), "0-2,8,10-11");
        assert_eq!(format_list(&[]), "none");
    }

    #[test]
    fn sizes_are_read_and_written() {
        assert_eq!(parse_size("32K"), Some(32_768));
        assert_eq!(parse_size("1024K\n"), Some(1 << 20));
        assert_eq!(parse_size("32M"), Some(32 << 20));
        assert_eq!(parse_size("1G"), Some(1 << 30));
        assert_eq!(parse_size("512"), Some(512));
        for bad in ["", "K", "-1K", "99999999999999999999G", "17179869184G", "32KB"] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
        assert_eq!(format_bytes(2 << 20), "2 MiB");
        assert_eq!(format_bytes(1536 << 10), "1536 KiB");
        assert_eq!(format_bytes(7), "7 bytes");
    }

    #[test]
    fn kilobyte_lines_of_both_files() {
        let machine = "MemTotal:       24683520 kB\nHugePages_Total:       3\n";
        assert_eq!(kilobyte_field(machine, "MemTotal"), Some(24_683_520 * 1024));
        assert_eq!(kilobyte_field(machine, "HugePages_Total"), None, "a count, not bytes");
        assert_eq!(kilobyte_field("Node 0 MemFree:  12 kB", "MemFree"), Some(12 * 1024));
    }

    #[test]
    fn the_word_in_brackets() {
        assert_eq!(chosen_word("always [madvise] never"), Some("madvise"));
        assert_eq!(chosen_word("always"), None);
    }
}
