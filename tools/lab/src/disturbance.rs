//! What the machine did to a round that neither side is to blame for.
//!
//! Three clocks run beside the time-stamp counter. Two are in `/proc/stat`: the time that the hypervisor took from the CPU
//! (steal), and the time that other CPUs worked. The third is the time that the side's threads were ready to run but did not
//! (the second field of `/proc/PID/task/TID/schedstat`, in nanoseconds). Threads that only run when a CPU is idle, or may not run
//! on the CPUs that are measured, don't count.
//! Documentation: the kernel's `filesystems/proc.rst` and `scheduler/sched-stats.rst`, and proc_pid_stat(5).

use std::fs;
use std::time::Duration;
use warmlane_sys::parse_list;

/// The largest part of a round that may be lost.
const TOLERATED: f64 = 0.02;
/// The largest share of one CPU's time that all other CPUs together may work. They share caches and memory with the
/// one that is measured, and the side that needs more of these would suffer more.
const TOLERATED_ELSEWHERE: f64 = 0.5;

/// Length of a tick in `/proc/stat` (USER_HZ, which is 100 on all machines that we run on).
const TICK: Duration = Duration::from_millis(10);

/// The clocks at one moment. Those that can't be read stand still.
#[derive(Clone, Copy, Debug, Default)]
pub struct Snapshot {
    stolen_ticks: u32,
    busy_ticks_elsewhere: u32,
    waited: Duration,
}

impl Snapshot {
    /// Reads them, for some CPUs and the threads of a process.
    pub fn take(cpus: &[usize], process: u32) -> Self {
        Self::take_beside(cpus, &[], process)
    }

    /// The same where other CPUs work as part of what is measured.
    pub(crate) fn take_beside(cpus: &[usize], others: &[usize], process: u32) -> Self {
        let statistics = fs::read_to_string("/proc/stat").unwrap_or_default();
        let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        let waited = threads
            .filter_map(|thread| {
                let read = |name| fs::read_to_string(thread.path().join(name)).ok();
                let counts = !runs_when_idle(&read("stat")?) && may_run_on(cpus, &read("status")?);
                if counts { waited(&read("schedstat")?) } else { None }
            })
            .sum();
        Self {
            stolen_ticks: cpus.iter().filter_map(|&cpu| stolen(&statistics, cpu)).sum(),
            busy_ticks_elsewhere: busy_elsewhere(&statistics, &[cpus, others].concat()),
            waited,
        }
    }
}

/// Ticks stolen from a CPU: the eighth number of its line.
fn stolen(statistics: &str, cpu: usize) -> Option<u32> {
    let name = format!("cpu{cpu}");
    let mut lines = statistics.lines().map(str::split_whitespace);
    let mut numbers = lines.find_map(|mut words| (words.next() == Some(&name)).then_some(words))?;
    numbers.nth(7)?.parse().ok()
}

/// Ticks that all CPUs but `own` have worked: user, nice, system, interrupts and soft interrupts.
fn busy_elsewhere(statistics: &str, own: &[usize]) -> u32 {
    const BUSY: [usize; 5] = [0, 1, 2, 5, 6];
    let own: Vec<String> = own.iter().map(|cpu| format!("cpu{cpu}")).collect();
    let others = statistics.lines().filter_map(|line| line.split_once(' ')).filter(|(name, _)| {
        // The line called "cpu" is the sum of all.
        name.len() > 3 && name.starts_with("cpu") && own.iter().all(|own| own != name)
    });
    others
        .map(|(_, numbers)| {
            let numbers: Vec<u32> = numbers.split_whitespace().map_while(|word| word.parse().ok()).collect();
            BUSY.iter().filter_map(|&field| numbers.get(field)).sum::<u32>()
        })
        .sum()
}

fn waited(schedstat: &str) -> Option<Duration> {
    schedstat.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

/// How long the calling thread was ready to run and did not, so far: what [`Snapshot`]s don't see of threads that end in a round.
pub(crate) fn waited_by_this_thread() -> Duration {
    fs::read_to_string("/proc/thread-self/schedstat").ok().and_then(|text| waited(&text)).unwrap_or_default()
}

/// Whether a thread runs only when nobody else wants its CPU: the policy, 41st field, counted from after the name, is
/// `SCHED_IDLE`.
fn runs_when_idle(stat: &str) -> bool {
    stat.rsplit_once(") ").and_then(|(_, fields)| fields.split_whitespace().nth(41 - 3)) == Some("5")
}

/// Whether a thread may run on one of these CPUs.
fn may_run_on(cpus: &[usize], status: &str) -> bool {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.and_then(parse_list).is_none_or(|allowed| allowed.iter().any(|cpu| cpus.contains(cpu)))
}

/// Why a round between two moments doesn't count, if so. Of one that is shorter than a tick nothing can be said.
pub fn between(before: &Snapshot, after: &Snapshot, length: Duration) -> Option<String> {
    if length < TICK {
        return None;
    }
    let share = |time: Duration| time.as_secs_f64() / length.as_secs_f64();
    let stolen = share(TICK * after.stolen_ticks.saturating_sub(before.stolen_ticks));
    let waited = share(after.waited.saturating_sub(before.waited));
    if stolen > TOLERATED {
        return Some(format!("the hypervisor took the CPU for {:.0} % of a round", 100.0 * stolen));
    }
    let elsewhere = share(TICK * after.busy_ticks_elsewhere.saturating_sub(before.busy_ticks_elsewhere));
    if elsewhere > TOLERATED_ELSEWHERE {
        return Some(format!(
            "other CPUs, which share caches and memory, worked for {:.0} % of a round",
            100.0 * elsewhere
        ));
    }
    (waited > TOLERATED).then(|| format!("other programs had the CPU for {:.0} % of a round", 100.0 * waited))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATISTICS: &str = "cpu  20 0 2 2 0 0 0 9 5 0\n\
                              cpu1 100 1 10 40 2 3 4 7 50 0\n\
                              cpu10 1 1 1 1 1 1 1 1 0 0\n\
                              intr 5 6\n";

    #[test]
    fn the_kernel_s_files_are_read() {
        assert_eq!(stolen(STATISTICS, 1), Some(7));
        assert_eq!(stolen(STATISTICS, 10), Some(1));
        assert_eq!(stolen(STATISTICS, 0), None);
        assert_eq!(stolen("cpu0 1 2 3", 0), None);
        assert_eq!(busy_elsewhere(STATISTICS, &[1]), 5);
        assert_eq!(busy_elsewhere(STATISTICS, &[10]), 118);
        assert_eq!(busy_elsewhere(STATISTICS, &[5]), 123);
        assert_eq!(busy_elsewhere(STATISTICS, &[1, 10]), 0);
        assert_eq!(waited("83152107 154665842 217\n"), Some(Duration::from_nanos(154_665_842)));
        assert_eq!(waited("0"), None);
        let stat = |policy| format!("7 (a) b) S{} {policy} 0 0", " 1".repeat(37));
        assert!(runs_when_idle(&stat("5")) && !runs_when_idle(&stat("0")) && !runs_when_idle(""));
        let status = "Name:\tlane0\nCpus_allowed_list:\t0,4-6\nMems_allowed_list:\t1\n";
        assert!(may_run_on(&[1, 5], status) && !may_run_on(&[1, 7], status) && may_run_on(&[1], ""));
    }

    #[test]
    fn a_fiftieth_may_be_lost() {
        let length = Duration::from_secs(1);
        let at = |stolen_ticks, waited| Snapshot {
            stolen_ticks,
            busy_ticks_elsewhere: 20,
            waited: Duration::from_millis(waited),
        };
        let before = at(5, 700);
        assert_eq!(between(&before, &before, length), None);
        assert_eq!(between(&before, &at(7, 720), length), None);
        let stolen = between(&before, &at(8, 700), length).unwrap();
        assert_eq!(stolen, "the hypervisor took the CPU for 3 % of a round");
        let waited = between(&before, &at(5, 1_000), length).unwrap();
        assert_eq!(waited, "other programs had the CPU for 30 % of a round");
        let elsewhere =
            |busy_ticks_elsewhere| between(&before, &Snapshot { busy_ticks_elsewhere, ..before }, length);
        assert_eq!(elsewhere(70), None);
        assert!(elsewhere(71).unwrap().ends_with("worked for 51 % of a round"));
        assert_eq!(between(&before, &at(8, 1_000), Duration::from_millis(1)), None);
        // An ended process has no threads.
        assert_eq!(between(&before, &Snapshot::default(), length), None);
    }

    #[test]
    fn waiting_for_the_cpu_is_seen() {
        let cpu = warmlane_sys::affinity::allowed_cpus().unwrap()[0];
        let busy = || {
            let mut command = std::process::Command::new("taskset");
            command.args(["--cpu-list", &cpu.to_string(), "sh", "-c", "while :; do :; done"]).spawn().unwrap()
        };
        // Two that never rest, on one CPU: each waits half of the time.
        let mut rivals = [busy(), busy()];
        std::thread::sleep(Duration::from_millis(200));
        let snapshot = Snapshot::take(&[cpu], rivals[0].id());
        for rival in &mut rivals {
            rival.kill().unwrap();
            rival.wait().unwrap();
        }
        assert!(snapshot.waited > Duration::from_millis(10), "{snapshot:?}");
    }
}
