//! The proof that the gate closes: a copy of the sources with one needless load for each packet, and with one needless cache
//! line, which takes no instruction more.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use super::baseline::Cost;
use super::{PATHS, build, count, read};
use crate::workspace;

/// A fault that is planted in the copy, and how the gate must say it.
struct Fault {
    what: &'static str,
    file: &'static str,
    /// A piece of that file, and what takes its place.
    from: &'static str,
    to: &'static str,
    /// The path that it lies on.
    bench: &'static str,
    /// Whether the gate closes, for the right reason.
    seen: fn(now: &Cost, before: &Cost) -> bool,
}

const FAULTS: [Fault; 2] = [
    Fault {
        what: "load",
        file: "drivers/memory/src/replay.rs",
        from: "        self.counters.count(copied.packets as u64, copied.bytes);\n",
        to: "        for packet in &burst[before..] {\n            std::hint::black_box(packet.len());\n        }\n        \
             self.counters.count(copied.packets as u64, copied.bytes);\n",
        bench: "replay-drop",
        seen: |now, before| {
            let risen = now.risen(before);
            now.rose(before) && risen.first().is_some_and(|(function, ..)| function.contains(RECEIVE))
        },
    },
    // A length that lies in the line behind the header instead of in the header, as DPDK's second line of a packet buffer once was
    // read by transmit: https://doc.dpdk.org/guides/prog_guide/mbuf_lib.html says what belongs there.
    Fault {
        what: "cache line",
        file: "core/mem/src/burst.rs",
        from: "packet.packet_length() as u64",
        // SAFETY: no code of this program but a text, which is compiled in a copy that is thrown away; behind a header lies its buffer, so that
        // what is read there belongs to the pool.
        to: "u64::from(unsafe { packet.as_header().as_ptr().cast::<u32>().add(17).read() })",
        bench: "tx-held",
        seen: |now, before| !now.rose(before) && now.misses_rose(before),
    },
];

/// The function that takes the planted load.
const RECEIVE: &str = "replay::Replay as ";

/// Counts the copy against the baseline, and fails unless the gate does.
pub(super) fn run(root: &Path, target: &Path) -> anyhow::Result<()> {
    let copy = target.join("gate-planted");
    if copy.exists() {
        fs::remove_dir_all(&copy).with_context(|| format!("cannot remove {}", copy.display()))?;
    }
    fs::create_dir_all(&copy).with_context(|| format!("cannot make {}", copy.display()))?;
    copy_sources(root, &copy)?;
    for fault in &FAULTS {
        fault.plant(&copy.join(fault.file))?;
    }
    // A target directory of its own, which is kept: the next time only the planted crates are built again. The first time it
    // begins with what the sources themselves were built to.
    let own_target = target.join("gate-planted-target");
    if !own_target.exists() {
        copy_built(&build(root, target)?, &own_target)?;
    }
    let program = build_pieces(&copy, &own_target)?;
    let baseline = read(&root.join(super::FILE))?;
    for fault in &FAULTS {
        for path in PATHS.iter().filter(|path| path.bench == fault.bench) {
            let name = path.name();
            let before = baseline.paths.get(&name).with_context(|| format!("{name} has no baseline"))?;
            let now = count(&program, target, path, 0)?;
            if !(fault.seen)(&now, before) {
                bail!("one needless {} for each packet went through the gate of {name}", fault.what);
            }
            println!("{name}: {}", now.complaint(before).unwrap_or_default());
        }
        println!("the gate has seen the needless {}", fault.what);
    }
    Ok(())
}

impl Fault {
    fn plant(&self, file: &Path) -> anyhow::Result<()> {
        let source = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let planted = source.replacen(self.from, self.to, 1);
        if planted == source {
            bail!("{} has no '{}' any more: choose another place", file.display(), self.from.trim());
        }
        fs::write(file, planted).with_context(|| format!("cannot write {}", file.display()))
    }
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
        copy_with_time(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    Ok(())
}

/// Builds only the benches, which are a part of the command, and says where they are.
fn build_pieces(root: &Path, target: &Path) -> anyhow::Result<PathBuf> {
    let mut build = workspace::release_build();
    // As for the command, of no named package: see `command_build`.
    build.current_dir(root).args(["--quiet", "--example", "pieces"]).env("CARGO_TARGET_DIR", target);
    let status = workspace::run_quietly(&mut build)?;
    anyhow::ensure!(
        status.success(),
        "the planted sources do not build ({status}); what cargo said is above"
    );
    Ok(target.join("release/examples/pieces"))
}

/// So that cargo builds only what was changed later.
fn copy_with_time(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::copy(from, to)?;
    fs::File::options().write(true).open(to)?.set_modified(fs::metadata(from)?.modified()?)
}

/// Copies the directory that the program was built in, into a new target directory.
fn copy_built(program: &Path, target: &Path) -> anyhow::Result<()> {
    let built = program.parent().context("the program lies in no directory")?;
    fs::create_dir_all(target).with_context(|| format!("cannot make {}", target.display()))?;
    let status = Command::new("cp").args(["--archive", "--"]).arg(built).arg(target).status();
    let status = status.context("cp does not start")?;
    anyhow::ensure!(status.success(), "cp does not copy {} ({status})", built.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_rise_in_the_planted_function_is_proof_of_the_load() {
        let cost = |receive: f64, other: f64| Cost {
            instructions: receive + other,
            functions: [
                (format!("<warmlane_memory::{RECEIVE}T>::receive"), receive),
                ("other".to_owned(), other),
            ]
            .into(),
            ..Cost::default()
        };
        let (before, seen) = (cost(4.0, 16.0), FAULTS[0].seen);
        assert!(seen(&cost(6.0, 16.0), &before));
        assert!(!seen(&cost(4.0, 18.0), &before), "another function");
        assert!(!seen(&cost(2.0, 16.0), &before), "better");
        assert!(!seen(&cost(4.0, 16.0), &before));
    }

    #[test]
    fn only_misses_without_instructions_are_proof_of_the_line() {
        let cost = |instructions: f64, misses: f64| Cost {
            instructions,
            first_level_misses: misses,
            ..Cost::default()
        };
        let (before, seen) = (cost(70.0, 2.0), FAULTS[1].seen);
        assert!(seen(&cost(70.0, 3.0), &before));
        assert!(!seen(&cost(72.0, 3.0), &before), "instructions would have told it, too");
        assert!(!seen(&cost(70.0, 2.1), &before));
    }
}
