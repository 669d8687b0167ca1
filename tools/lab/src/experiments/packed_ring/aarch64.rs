//! What rustc makes of the ring's orderings for AArch64.

/// The functions of `probe.rs`, as they were emitted (`WARMLANE_BLESS=1 cargo test -p warmlane-lab emitted` writes it anew).
pub(super) const LISTING: &str = include_str!("aarch64.s");

/// The instructions of a function in a listing that order others: barriers, and loads and stores that acquire or release.
pub(super) fn orderings(listing: &str, function: &str) -> Vec<String> {
    let label = format!("{function}:");
    let lines = listing.lines().skip_while(|line| **line != label).skip(1);
    let body = lines.take_while(|line| line.starts_with(char::is_whitespace) || line.starts_with('.'));
    let orders = body.filter_map(|line| {
        let mut words = line.split_whitespace();
        let instruction = words.next()?;
        match instruction {
            "dmb" => Some(format!("dmb {}", words.next()?)),
            _ if ["ldar", "ldapr", "stlr"].iter().any(|start| instruction.starts_with(start)) => {
                Some(instruction.to_owned())
            }
            _ => None,
        }
    });
    orders.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    const FUNCTIONS: [&str; 8] = [
        "packed_take",
        "packed_take_with_full_fence",
        "packed_publish",
        "packed_publish_with_full_fence",
        "split_take",
        "split_take_with_full_fence",
        "split_publish",
        "split_publish_with_full_fence",
    ];

    fn here() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("src/experiments/packed_ring")
    }

    /// What rustc emits now; `None` without the standard library for that processor.
    fn emitted() -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("probe.s");
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let libraries = Command::new(&rustc)
            .args(["--print", "target-libdir", "--target", "aarch64-unknown-linux-gnu"])
            .output()
            .unwrap();
        if !Path::new(String::from_utf8(libraries.stdout).unwrap().trim()).exists() {
            warmlane_testkit::requirements::skip("rustup target add aarch64-unknown-linux-gnu");
            return None;
        }
        // The probe's module `ring` is the driver's.
        let status = Command::new(rustc)
            .args(["--edition", "2024", "--target", "aarch64-unknown-linux-gnu", "--emit", "asm"])
            .args(["-C", "opt-level=3", "-o"])
            .arg(&output)
            .arg("-")
            .stdin(File::open(here().join("probe.rs")).unwrap())
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../drivers/virtio/src"))
            .status()
            .unwrap();
        assert!(status.success());
        let listing = std::fs::read_to_string(output).unwrap();
        let mut wanted = String::new();
        for function in FUNCTIONS {
            let label = format!("{function}:");
            let lines = listing.lines().skip_while(|line| **line != label);
            for line in lines.take_while(|line| !line.starts_with(".Lfunc_end")) {
                // Neither directives nor what is not jumped to.
                if !line.trim_start().starts_with('.') || line.starts_with(".LBB") {
                    wanted.push_str(line);
                    wanted.push('\n');
                }
            }
        }
        Some(wanted)
    }

    #[test]
    fn what_is_shown_is_what_is_emitted() {
        let Some(now) = emitted() else { return };
        if std::env::var_os("WARMLANE_BLESS").is_some() {
            std::fs::write(here().join("aarch64.s"), &now).unwrap();
            return;
        }
        for function in FUNCTIONS {
            let shown = orderings(LISTING, function);
            assert_eq!(orderings(&now, function), shown, "{function}");
            assert!(!shown.is_empty(), "{function}");
        }
    }
}
