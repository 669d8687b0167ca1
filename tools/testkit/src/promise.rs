//! Promises about time, which only a machine can keep that has nothing else to do.
//!
//! A busy machine makes a test slow, but not red: a promise that is broken while others took the CPUs is said to be unchecked.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use crate::requirements::skip;

/// How much of one CPU others may take on average before the machine counts as busy.
const OTHERS: f64 = 0.25;

/// Ticks in a second in `/proc`, on all of Linux's architectures that we run on (proc(5), `USER_HZ`).
const TICKS: f64 = 100.0;

/// Watches from its making on what others than this test program and its children take of the CPUs. What other tests of the program take can't
/// be told from what this one does: each is taken to have its share.
#[derive(Debug, Clone)]
pub struct Watch {
    begin: Instant,
    by_others: u64,
    own: u64,
    /// How many other tests of this program were under way as it began.
    tests: u64,
}

impl Watch {
    /// Begins now.
    pub fn start() -> Self {
        Self { begin: Instant::now(), by_others: ticks_of_others(), own: own_ticks(), tests: other_tests() }
    }

    /// Since when it watches.
    pub fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Checks a promise about the time since the beginning. On a busy machine a broken one is said to be unchecked.
    ///
    /// # Panics
    /// If it is broken, and others hardly took any of the CPUs meanwhile.
    #[track_caller]
    pub fn check(&self, is_kept: bool, what: impl FnOnce() -> String) {
        if is_kept {
            return;
        }
        let what = what();
        let busy = self.busy();
        assert!(busy > OTHERS, "{what}, and others took but {busy:.2} CPUs meanwhile");
        skip(&format!("{what}; a promise, but others took {busy:.1} CPUs meanwhile"));
    }

    /// Whether others took so much of the CPUs that a result which is void for want of time says nothing; tells of it.
    #[track_caller]
    pub fn is_busy(&self, what: &str) -> bool {
        let busy = self.busy();
        if busy > OTHERS {
            skip(&format!("{what}; others took {busy:.1} CPUs meanwhile"));
        }
        busy > OTHERS
    }

    /// How many CPUs others took on average.
    fn busy(&self) -> f64 {
        let own = own_ticks().saturating_sub(self.own);
        let tests = self.tests.max(other_tests());
        let ticks = ticks_of_others().saturating_sub(self.by_others) + own * tests / (tests + 1);
        ticks as f64 / TICKS / self.begin.elapsed().as_secs_f64().max(0.1)
    }
}

/// Tests that this program runs beside the one that asks. Their threads have their names, of which a path of modules tells them from others; the
/// kernel keeps 15 letters.
fn other_tests() -> u64 {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let names = threads.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
    (names.filter(|name| name.contains("::")).count() as u64).saturating_sub(1)
}

/// The time of CPUs that neither was idle nor went to this process and its descendants. Interrupts count for nobody: much of that
/// is packets of ours.
fn ticks_of_others() -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    // "cpu", then: user, nice, system, idle, waiting, interrupts, soft interrupts, stolen by another machine.
    let ticks: Vec<u64> = stat.lines().next().map_or_else(Vec::new, |line| {
        line.split_whitespace().skip(1).map(|word| word.parse().unwrap_or(0)).collect()
    });
    let all: u64 = [0, 1, 2, 7].iter().filter_map(|&at| ticks.get(at)).sum();
    all.saturating_sub(own_ticks())
}

/// What this process and its descendants took, with those that have ended and were waited for.
fn own_ticks() -> u64 {
    let mut children = BTreeMap::<u32, Vec<u32>>::new();
    let mut ticks = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Some(stat) = Stat::read(process) else { continue };
        children.entry(stat.parent).or_default().push(process);
        ticks.insert(process, stat.ticks + stat.ticks_of_children);
    }
    let mut own = vec![std::process::id()];
    let mut total = 0;
    while let Some(process) = own.pop() {
        total += ticks.get(&process).unwrap_or(&0);
        own.extend(children.remove(&process).unwrap_or_default());
    }
    total
}

/// What `/proc/PID/stat` says (proc(5)).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stat {
    parent: u32,
    ticks: u64,
    ticks_of_children: u64,
}

impl Stat {
    pub(crate) fn read(process: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The name, in parentheses, may contain anything. Behind it the third field begins.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            parent: u32::try_from(number(4)?).ok()?,
            ticks: number(14)? + number(15)?,
            ticks_of_children: number(16)? + number(17)?,
        })
    }

    /// The time of CPUs that the process itself took.
    pub(crate) fn cpu_time(self) -> Duration {
        Duration::from_secs_f64(self.ticks as f64 / TICKS)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::process::Process;

    /// Longer than a fifth of a second of a CPU takes on any machine; it is ended before.
    const SPIN: [&str; 2] = ["-c", "end=$((SECONDS + 300)); while [ $SECONDS -lt $end ]; do :; done"];

    /// A busy child takes nothing from us: it is our own.
    #[test]
    fn what_children_take_is_not_taken_by_others() {
        let (watch, own) = (Watch::start(), own_ticks());
        let mut child = Process::spawn(Command::new("bash").args(SPIN));
        while !child.has_ended() && own_ticks() < own + 20 {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(own_ticks() >= own + 20);
        drop(child);
        // Nor once it has ended: its time is our children's now.
        assert!(own_ticks() >= own + 20);
        watch.check(true, || unreachable!("kept promises need no words"));
    }

    #[test]
    #[should_panic(expected = "too slow, and others took but")]
    fn broken_promises_fail_where_nobody_else_is() {
        // As if others had taken all that there will ever be before.
        let all = u64::MAX;
        Watch { begin: Instant::now(), by_others: all, own: all, tests: 0 }
            .check(false, || "too slow".to_owned());
    }

    #[test]
    fn broken_promises_are_skipped_where_others_are() {
        // As if all that others took since the machine started had been in this moment; which is enough on any machine that has
        // compiled this.
        Watch { begin: Instant::now(), by_others: 0, own: u64::MAX, tests: 0 }
            .check(false, || "too slow".to_owned());
    }

    /// A test beside this one, which takes a CPU: half of what both take is another's.
    #[test]
    fn tests_beside_this_one_are_others() {
        let (send, receive) = std::sync::mpsc::channel::<()>();
        let beside = std::thread::Builder::new().name("beside::a_test".to_owned());
        let beside = beside.spawn(move || {
            while receive.try_recv().is_err() {
                std::hint::spin_loop();
            }
        });
        let watch = Watch { by_others: u64::MAX, ..Watch::start() };
        assert!(watch.tests >= 1);
        while own_ticks() < watch.own + 100 {
            std::thread::sleep(Duration::from_millis(10));
        }
        let busy = watch.busy();
        send.send(()).unwrap();
        beside.unwrap().join().unwrap();
        assert!(busy > 0.0, "{busy}");
    }
}
