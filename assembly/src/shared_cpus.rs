//! Whether lanes of another process are pinned to the CPUs of ours: both would poll there in turns.

use std::fs;
use std::path::Path;

/// A CPU that another process has a lane on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedCpu {
    /// Its number.
    pub cpu: usize,
    /// The other process.
    pub process: u32,
}

/// Which of these CPUs are pinned to by lanes of other processes of this command, as far as the system shows processes (`hidepid` of proc(5)
/// hides those of other users).
pub fn shared_cpus(cpus: &[usize]) -> Vec<SharedCpu> {
    let own = std::process::id();
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let others = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|id| *id != own);
    let mut found = Vec::new();
    for process in others {
        for cpu in pinned(process) {
            if cpus.contains(&cpu) {
                found.push(SharedCpu { cpu, process });
            }
        }
    }
    found
}

/// The CPUs that lanes of a process are pinned to; none if it isn't of this command, or ends meanwhile.
fn pinned(process: u32) -> Vec<usize> {
    let directory = format!("/proc/{process}");
    if !fs::read_to_string(format!("{directory}/comm")).is_ok_and(|name| name.trim() == "warmlane") {
        return Vec::new();
    }
    let tasks = fs::read_dir(format!("{directory}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| lane_cpu(&task.path())).collect()
}

/// The CPU of a thread that is a pinned lane.
fn lane_cpu(task: &Path) -> Option<usize> {
    let status = fs::read_to_string(task.join("status")).ok()?;
    let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    // `Assembly::start` names them so. What may run on one CPU only is pinned, or the machine has no other.
    value("Name:")?.strip_prefix("lane")?;
    value("Cpus_allowed_list:")?.parse().ok()
}
