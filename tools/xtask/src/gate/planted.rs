//! The proof that the gate closes: a copy of the sources with one needless load per packet.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use super::baseline::Cost;
use super::{PATHS, build, count, read};

/// Where the load is planted, and before which line: where a sink takes its packets.
const FILE: &str = "drivers/memory/src/null.rs";
const BEFORE: &str = "        let bytes = burst.bytes();\n";
const LOAD: &str =
    "        for packet in burst.iter() {\n            std::hint::black_box(packet.len());\n        }\n";
/// The function that it is in, and the path that this lies on.
const FUNCTION: &str = "null::Sink as ";
const BENCH: &str = "replay-drop";

/// Counts the copy against the baseline, and fails unless the gate does.
pub(super) fn run(root: &Path, target: &Path) -> anyhow::Result<()> {
    let copy = target.join("gate-planted");
    if copy.exists() {
        fs::remove_dir_all(&copy).with_context(|| format!("cannot remove {}", copy.display()))?;
    }
    fs::create_dir_all(&copy).with_context(|| format!("cannot make {}", copy.display()))?;
    copy_sources(root, &copy)?;
    plant(&copy.join(FILE))?;
    // A target directory of its own, which is kept: the next time only the planted crate is built again.
    let program = build(&copy, &target.join("gate-planted-target"))?;
    let baseline = read(&root.join(super::FILE))?;
    for path in PATHS.iter().filter(|path| path.bench == BENCH) {
        let name = path.name();
        let before = baseline.paths.get(&name).with_context(|| format!("{name} has no baseline"))?;
        let now = count(&program, target, path)?;
        if !seen(&now, before) {
            bail!("one needless load per packet went through the gate of {name}");
        }
        println!("{name}: {}", now.complaint(before).unwrap_or_default());
    }
    println!("the gate has seen the needless load, where it is");
    Ok(())
}

/// Whether the gate closes, and says that it was the planted function.
fn seen(now: &Cost, before: &Cost) -> bool {
    now.rose(before) && now.risen(before).first().is_some_and(|(function, ..)| function.contains(FUNCTION))
}

fn plant(file: &Path) -> anyhow::Result<()> {
    let source = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let planted = source.replacen(BEFORE, &format!("{LOAD}{BEFORE}"), 1);
    if planted == source {
        bail!("{} has no line '{}' any more: choose another place", file.display(), BEFORE.trim());
    }
    fs::write(file, planted).with_context(|| format!("cannot write {}", file.display()))
}

/// Copies what git knows of or would, changed or not.
fn copy_sources(root: &Path, copy: &Path) -> anyhow::Result<()> {
    let listed = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output();
    let listed = listed.context("git does not start")?;
    if !listed.status.success() {
        bail!("git does not list the sources: {}", String::from_utf8_lossy(&listed.stderr));
    }
    for name in String::from_utf8_lossy(&listed.stdout).split_terminator('\0') {
        let (from, to) = (root.join(name), copy.join(name));
        // A file that was removed and not yet committed is listed too.
        if !from.is_file() {
            continue;
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        fs::copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_rise_in_the_planted_function_is_proof() {
        let cost = |sink: f64, other: f64| Cost {
            instructions: sink + other,
            functions: [
                (format!("<warmlane_memory::{FUNCTION}T>::transmit"), sink),
                ("other".to_owned(), other),
            ]
            .into(),
            ..Cost::default()
        };
        let before = cost(4.0, 16.0);
        assert!(seen(&cost(6.0, 16.0), &before));
        assert!(!seen(&cost(4.0, 18.0), &before), "another function");
        assert!(!seen(&cost(2.0, 16.0), &before), "better");
        assert!(!seen(&cost(4.0, 16.0), &before));
    }
}
