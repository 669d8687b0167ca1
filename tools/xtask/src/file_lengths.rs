//! Sources that are longer than a file that does one thing.

use std::path::Path;

use anyhow::{Context, bail};

use crate::workspace;

/// Lines up to which nobody asks.
const USUAL: usize = 500;

/// Lines from which on a file needs a reason. Between both it is only named: who mends a line need not split a file the same day.
const MOST: usize = 600;

/// Files that may be longer, and why.
const REASONS: &[(&str, &str)] = &[
    ("peers/l3_forward.c", "a program for one call of the compiler, as all peers in C are"),
    ("tests/forward/check.py", "a second router, which has to stand alone to know nothing of ours"),
];

/// A file, its lines, and whether it may have them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Long {
    pub(crate) file: String,
    pub(crate) lines: usize,
    pub(crate) is_refused: bool,
}

/// Those that git knows of, or could, with more than the usual lines and no reason.
///
/// Fails if git doesn't run, a file can't be read, or a reason is for nothing.
pub(crate) fn check(root: &Path) -> anyhow::Result<Vec<Long>> {
    let listed = ["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"];
    let names = workspace::git(root, &[&listed[..], &["*.rs", "*.c", "*.h", "*.py"]].concat())?;
    let mut lengths = Vec::new();
    for file in names.split_terminator('\0') {
        let path = root.join(file);
        // Git also lists what was deleted and not committed yet.
        if path.is_file() {
            let text =
                std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            lengths.push((file, text.lines().count()));
        }
    }
    judge(&lengths, REASONS)
}

fn judge(lengths: &[(&str, usize)], reasons: &[(&str, &str)]) -> anyhow::Result<Vec<Long>> {
    let is_long = |wanted: &str| lengths.iter().any(|(file, lines)| *file == wanted && *lines > USUAL);
    if let Some((file, _)) = reasons.iter().find(|(file, _)| !is_long(file)) {
        bail!("{file} has {USUAL} lines at most: take it from REASONS in tools/xtask/src/file_lengths.rs");
    }
    let has_reason = |wanted: &str| reasons.iter().any(|(file, _)| *file == wanted);
    let long = lengths.iter().filter(|(file, lines)| *lines > USUAL && !has_reason(file));
    Ok(long.map(|&(file, lines)| Long { file: file.to_owned(), lines, is_refused: lines > MOST }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_are_named_and_longer_ones_refused() {
        let lengths = [("a.rs", 500), ("b.rs", 501), ("c.rs", 601), ("d.rs", 900)];
        let found = judge(&lengths, &[("d.rs", "it is long")]).unwrap();
        let long = |file: &str, lines, is_refused| Long { file: file.to_owned(), lines, is_refused };
        assert_eq!(found, [long("b.rs", 501, false), long("c.rs", 601, true)]);
    }

    #[test]
    fn a_reason_for_nothing_goes() {
        for file in ["a.rs", "gone.rs"] {
            let error = judge(&[("a.rs", 500)], &[(file, "it was long")]).unwrap_err().to_string();
            assert!(error.contains(file) && error.contains("REASONS"), "{error}");
        }
    }
}
