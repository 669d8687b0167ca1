//! What DPDK's pools touch besides buffers: their rings and stacks, lanes' caches, locks. Recorded from their running code.
//!
//! `peers/pool_order` runs under valgrind, whose tool lackey prints each access. Before and after DPDK's code the program writes to marks of its
//! own, so that nothing else counts. What a pool touches in each burst stays in the caches; the rest is mostly a walk along the array in which it keeps its
//! buffers. That is less than a line a frame, where a ring's buffers are 28 and more: it is told, and not replayed.

use super::trace::{TraceError, parse};
use crate::cache_model::LINE_BYTES;
use crate::error::LabError;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};

/// What a kind of pool touches of its own, of both pools of an instance together.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PoolTouches {
    /// DPDK's name of the kind.
    pub kind: String,
    /// Buffers in the cache of a lane.
    pub cache: u32,
    /// Lines that most bursts touch.
    pub hot: u32,
    /// Other lines that a frame touches, on average.
    pub touched: f64,
    /// Those of them that it writes.
    pub written: f64,
}

/// All that were recorded.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedPools {
    /// Of each kind.
    pub pool: Vec<PoolTouches>,
}

/// Recorded by `warmlane lab memory-traffic --record-pools`.
const RECORDED: &str = include_str!("pools.toml");

impl RecordedPools {
    /// Those that came with the program.
    ///
    /// # Errors
    /// [`LabError::Setup`], if they are damaged.
    pub fn recorded() -> Result<Self, LabError> {
        toml::from_str(RECORDED).map_err(LabError::setup)
    }

    /// As a text.
    ///
    /// # Errors
    /// [`LabError::Setup`].
    pub fn to_text(&self) -> Result<String, LabError> {
        toml::to_string(self).map_err(LabError::setup)
    }

    /// What a kind touches, if it was recorded with such caches.
    pub fn find(&self, kind: &str, cache: u32) -> Option<&PoolTouches> {
        self.pool.iter().find(|pool| pool.kind == kind && pool.cache == cache)
    }
}

/// The kinds that are recorded, with their caches: as in the paper.
pub const KINDS: [(&str, u32); 2] = [("ring_mp_mc", 256), ("stack", 0)];

/// Bursts before the first that is watched, when both rings are full, and those that are.
const WARM_UP: u64 = 64;
const WATCHED: u64 = 256;

const BURST: u64 = super::orders::BURST as u64;

/// The program's marks, in the order of their lines.
const BURST_BEGINS: u64 = 0;
const POOL_BEGINS: u64 = 1;
const POOL_ENDS: u64 = 2;

/// In how many bursts a line was touched and written, and the last that did.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    touched: u64,
    written: u64,
    last: u64,
    last_written: u64,
}

/// Adds up accesses.
#[derive(Debug, Default)]
struct Watcher {
    marks: u64,
    in_pool: bool,
    bursts: u64,
    lines: HashMap<u64, Use>,
}

impl Watcher {
    fn access(&mut self, address: u64, bytes: u64, written: bool) {
        match address.checked_sub(self.marks).map(|offset| offset / LINE_BYTES) {
            Some(BURST_BEGINS) => self.bursts += 1,
            Some(POOL_BEGINS) => self.in_pool = true,
            Some(POOL_ENDS) => self.in_pool = false,
            _ if self.in_pool && self.bursts > WARM_UP => {
                for line in address / LINE_BYTES..=(address + bytes - 1) / LINE_BYTES {
                    let found = self.lines.entry(line).or_default();
                    found.touched += u64::from(found.last != self.bursts);
                    found.last = self.bursts;
                    found.written += u64::from(written && found.last_written != self.bursts);
                    found.last_written = if written { self.bursts } else { found.last_written };
                }
            }
            _ => {}
        }
    }

    fn finish(self, kind: &str, cache: u32) -> Result<PoolTouches, TraceError> {
        let (frames, wanted) = (self.bursts * BURST, (WARM_UP + WATCHED) * BURST);
        if frames < wanted {
            return Err(TraceError::CutOff { frames, wanted });
        }
        let bursts = self.bursts - WARM_UP;
        let mut found = PoolTouches { kind: kind.to_owned(), cache, ..PoolTouches::default() };
        let frames = (bursts * BURST) as f64;
        for line in self.lines.values() {
            if line.touched * 2 >= bursts {
                found.hot += 1;
            } else {
                found.touched += line.touched as f64 / frames;
                found.written += line.written as f64 / frames;
            }
        }
        let three_digits = |value: f64| (value * 1e3).round() / 1e3;
        (found.touched, found.written) = (three_digits(found.touched), three_digits(found.written));
        Ok(found)
    }
}

/// Reads accesses; what else is said is kept, for the case that the program fails.
fn read(accesses: impl BufRead, marks: &OnceLock<u64>) -> std::io::Result<(Watcher, String)> {
    const MOST_SAID: usize = 4_096;
    let (mut watcher, mut said) = (Watcher::default(), String::new());
    for line in accesses.lines() {
        let line = line?;
        if let Some((address, bytes, written)) = parse(&line) {
            if watcher.marks == 0 {
                watcher.marks = marks.get().copied().unwrap_or(0);
            }
            if watcher.marks > 0 {
                watcher.access(address, bytes, written);
            }
        } else if !line.starts_with(['I', ' ']) && said.len() < MOST_SAID {
            said.push_str(&line);
            said.push('\n');
        }
    }
    Ok((watcher, said))
}

/// Records what DPDK's pools of a kind touch.
///
/// # Errors
/// [`LabError::Setup`], if DPDK's program or valgrind isn't there, or ends before its time.
pub fn record(kind: &str, cache: u32) -> Result<PoolTouches, LabError> {
    let file = crate::peer::file("pool_order").map_err(LabError::setup)?;
    let frames = (WARM_UP + WATCHED + 1) * BURST;
    let mut process = Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes", "--log-fd=2"])
        .arg(file)
        .args(super::orders::EAL)
        .args([
            "--marks",
            "--buffers=4096",
            "--posted=288",
            "--queued=64",
            "--held=288",
            "--sent-per-thousand=1050",
        ])
        .args([format!("--kind={kind}"), format!("--cache={cache}"), format!("--frames={frames}")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(LabError::setup)?;
    let marks = Arc::<OnceLock<u64>>::default();
    let (output, errors) = (process.stdout.take(), process.stderr.take());
    let (Some(output), Some(errors)) = (output, errors) else {
        return Err(LabError::setup("valgrind without output"));
    };
    let told = Arc::clone(&marks);
    let listener = std::thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = String::new();
        if output.read_line(&mut line).is_ok()
            && let Some(address) = line.trim().strip_prefix("marks ").and_then(|word| word.parse().ok())
        {
            let _ = told.set(address);
        }
        let _ = output.read_to_end(&mut Vec::new());
    });
    let reading = read(BufReader::with_capacity(1 << 20, errors), &marks);
    let status = process.wait().map_err(LabError::setup)?;
    let _ = listener.join();
    let (watcher, said) = reading.map_err(LabError::setup)?;
    if !status.success() {
        return Err(LabError::setup(TraceError::Ended { status, said }));
    }
    watcher.finish(kind, cache).map_err(LabError::setup)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    /// A pool that touches one line in each burst, and walks along others, of which it writes each second one; and what is not the pool's.
    fn trace(bursts: u64) -> String {
        let mut text = String::from("==1== a line of valgrind's\nI  0400,4\n");
        for burst in 0..bursts {
            let _ = writeln!(text, " S 1000,8\n L 9000,8\n S 1040,8\n M 2000,8\n L 2010,8");
            for line in [2 * burst, 2 * burst + 1] {
                let kind = if line % 2 == 0 { "S" } else { "L" };
                let _ = writeln!(text, " {kind} {:x},8", 0x10_0000 + line * LINE_BYTES);
            }
            let _ = writeln!(text, " S 1080,8\n S {:x},8", 0x90_0000 + burst * LINE_BYTES);
        }
        text
    }

    #[test]
    fn only_what_pools_touch_counts() {
        let marks = OnceLock::from(0x1000);
        let (watcher, said) = read(trace(WARM_UP + WATCHED).as_bytes(), &marks).unwrap();
        assert!(said.contains("valgrind's"), "{said}");
        let found = watcher.finish("ring", 1).unwrap();
        assert_eq!((found.hot, found.touched, found.written), (1, 0.063, 0.031));
        let (watcher, _) = read(trace(100).as_bytes(), &marks).unwrap();
        let error = watcher.finish("ring", 1).unwrap_err().to_string();
        assert!(error.contains("cut off: 3200 frames are in it, of 10240"), "{error}");
    }

    #[test]
    fn a_ring_walks_and_a_stack_stays() {
        let recorded = RecordedPools::recorded().unwrap();
        let [ring, stack] = KINDS.map(|(kind, cache)| recorded.find(kind, cache).unwrap());
        // Each buffer's place of 8 bytes is read once and written once, of what is received and of what is sent: half a line; the lanes' caches, whose
        // upper ends not each burst reaches, are the rest.
        assert!((0.5..1.0).contains(&ring.touched) && ring.written > 0.2, "{ring:?}");
        assert!(stack.touched < 0.1 && stack.hot > 0, "{stack:?}");
        assert_eq!(recorded.find("stack", 256), None);
        assert_eq!(toml::from_str::<RecordedPools>(&recorded.to_text().unwrap()).unwrap(), recorded);
    }
}
