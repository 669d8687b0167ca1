//! The files that the checks read, below a root that tests can furnish themselves.

use std::fs;
use std::path::{Path, PathBuf};

/// The highest CPU number that a list may name; the kernel's own limit (`CONFIG_NR_CPUS`) is 8192.
const HIGHEST_CPU: usize = 65_535;

/// A machine's files. Whatever is missing or malformed is `None`.
#[derive(Clone, Copy)]
pub(crate) struct Tree<'a> {
    root: &'a Path,
}

impl<'a> Tree<'a> {
    pub(crate) const fn new(root: &'a Path) -> Self {
        Self { root }
    }

    pub(crate) const fn root(&self) -> &'a Path {
        self.root
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// The file without the white space around it; empty if it is.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        Some(fs::read_to_string(self.path(path)).ok()?.trim().to_owned())
    }

    pub(crate) fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    pub(crate) fn cpus(&self, path: &str) -> Option<Vec<usize>> {
        parse_list(&self.text(path)?)
    }

    /// How many entries the directory has; `None` without the directory.
    pub(crate) fn entries(&self, path: &str) -> Option<usize> {
        Some(fs::read_dir(self.path(path)).ok()?.flatten().count())
    }

    /// The value of a `name: value` line, as `/proc/self/status`, `/proc/meminfo` and `/proc/cpuinfo` have them.
    pub(crate) fn field(&self, path: &str, name: &str) -> Option<String> {
        let text = self.text(path)?;
        text.lines().find_map(|line| {
            let (label, value) = line.split_once(':')?;
            (label.trim() == name).then(|| value.trim().to_owned())
        })
    }

    /// The bytes of a `name: 123 kB` line.
    pub(crate) fn bytes_field(&self, path: &str, name: &str) -> Option<u64> {
        self.field(path, name)?.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    }
}

/// A list such as `0-3,8`; an empty text is an empty list.
pub(crate) fn parse_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty() && *part != "(null)") {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last > HIGHEST_CPU {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// Bytes in the largest unit that leaves a number of at least 1, with one decimal place if it has any.
pub(crate) fn bytes(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0..1024 => return format!("{bytes} bytes"),
        1024..1_048_576 => (1 << 10, "KiB"),
        1_048_576..1_073_741_824 => (1 << 20, "MiB"),
        _ => (1_u64 << 30, "GiB"),
    };
    if bytes.is_multiple_of(unit) {
        format!("{} {name}", bytes / unit)
    } else {
        format!("{:.1} {name}", bytes as f64 / unit as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        assert_eq!(parse_list("0-2,8\n"), Some(vec![0, 1, 2, 8]));
        // What an empty mask is called in `nohz_full` on some kernels.
        assert_eq!(parse_list("(null)"), Some(vec![]));
        assert_eq!(parse_list("3-1"), None);
    }

    #[test]
    fn sizes() {
        assert_eq!(bytes(2 << 20), "2 MiB");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
        assert_eq!(bytes(12), "12 bytes");
    }
}
