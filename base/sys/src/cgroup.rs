//! What control groups let a process have of the CPUs: its weight against others, and a quota for each period.
//!
//! Both versions are read: the hierarchy of version 1 that has the `cpu` controller, if there is one, else version 2
//! (Documentation/admin-guide/cgroup-v1/ and cgroup-v2.rst of the kernel). Files are read anew at each question, since a process may
//! be moved to another group, and a group be given other limits, at any time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::text::{read_number, read_text};

/// The weight of a group that nobody gave one.
const USUAL_SHARES: f64 = 1_024.0;
const USUAL_WEIGHT: f64 = 100.0;

/// What the kernel puts behind the path of a group that was removed.
const DELETED: &str = " (deleted)";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The group that a process is in, and those around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuGroup {
    name: String,
    version: Version,
    /// The directories of the group and of all around it that are visible, its own first.
    levels: Vec<PathBuf>,
}

/// So much time of CPUs in each period; when it is used up, all threads of the group stop until the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Of all CPUs together.
    pub time: Duration,
    /// How long a period is.
    pub period: Duration,
}

/// What a quota did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttled {
    /// Periods in which the time was used up before the end.
    pub periods: u64,
    /// For how long runnable threads were stopped, all CPUs together.
    pub time: Duration,
}

impl Quota {
    /// How many CPUs it comes to.
    pub fn cpus(&self) -> f64 {
        self.time.as_secs_f64() / self.period.as_secs_f64()
    }

    /// For how long of each period so many threads that never sleep are stopped; `None` if they never are.
    pub fn stopped(&self, threads: usize) -> Option<Duration> {
        let used_up_after = self.time.div_f64(threads.max(1) as f64);
        (used_up_after < self.period).then(|| self.period.saturating_sub(used_up_after))
    }
}

impl CpuGroup {
    /// The group of this process. `None` where groups don't count CPU time.
    pub fn of_this_process() -> Option<Self> {
        Self::at(Path::new("/"))
    }

    /// The same on a machine whose `/proc` and `/sys` are below this root.
    pub fn at(root: &Path) -> Option<Self> {
        let membership = read_text(&root.join("proc/self/cgroup"))?;
        let mounts = read_text(&root.join("proc/self/mountinfo")).unwrap_or_default();
        let [first, second] = [Version::One, Version::Two].map(|version| {
            let path = group_path(&membership, version)?;
            let mount = mount_point(&mounts, version).unwrap_or_else(|| usual_mount_point(version));
            let mount = root.join(mount.strip_prefix('/').unwrap_or(mount));
            let visible = path.trim_end_matches(DELETED).trim_start_matches('/');
            // A container often sees its own group as the root, whatever its path says.
            let levels = Path::new(visible).ancestors().map(|group| mount.join(group));
            let levels: Vec<PathBuf> = levels.filter(|level| level.is_dir()).collect();
            (!levels.is_empty()).then(|| Self { name: path.to_owned(), version, levels })
        });
        first.or(second)
    }

    /// Its path in the hierarchy.
    pub fn name(&self) -> &str {
        self.name.trim_end_matches(DELETED)
    }

    /// Its directory. `None` where it isn't visible.
    pub fn directory(&self) -> Option<&Path> {
        self.levels.first().map(PathBuf::as_path)
    }

    /// Whether it was removed. What it had is not known any more.
    pub fn is_gone(&self) -> bool {
        self.name.ends_with(DELETED) || self.levels.first().is_none_or(|level| !level.is_dir())
    }

    /// Its weight among its siblings, 1 for a usual one. `None` if it isn't told (the root has none).
    pub fn weight(&self) -> Option<f64> {
        let (file, usual) = match self.version {
            Version::One => ("cpu.shares", USUAL_SHARES),
            Version::Two => ("cpu.weight", USUAL_WEIGHT),
        };
        Some(read_number(&self.levels.first()?.join(file))? as f64 / usual)
    }

    /// The tightest quota that it or a group around it has.
    pub fn quota(&self) -> Option<Quota> {
        let tighter = |a: &&PathBuf, b: &&PathBuf| {
            let cpus = |level: &Path| self.quota_of(level).map_or(f64::INFINITY, |quota| quota.cpus());
            cpus(a).total_cmp(&cpus(b))
        };
        self.quota_of(self.levels.iter().min_by(tighter)?)
    }

    fn quota_of(&self, level: &Path) -> Option<Quota> {
        let (time, period) = match self.version {
            // −1, which is no number here, is no limit.
            Version::One => (
                read_number(&level.join("cpu.cfs_quota_us"))?,
                read_number(&level.join("cpu.cfs_period_us"))?,
            ),
            Version::Two => {
                let text = read_text(&level.join("cpu.max"))?;
                let (time, period) = text.split_once(' ')?;
                // "max" is no number: no limit at this level.
                (time.parse().ok()?, period.parse().ok()?)
            }
        };
        let (time, period) = (Duration::from_micros(time), Duration::from_micros(period));
        (!period.is_zero()).then_some(Quota { time, period })
    }

    /// How often and how long quotas stopped it, since the groups were made: at the level where that was most.
    pub fn throttled(&self) -> Throttled {
        let of_level = |level: &PathBuf| {
            let text = read_text(&level.join("cpu.stat"))?;
            let value = |key: &str| {
                let found = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
                found?.trim().parse::<u64>().ok()
            };
            let time = match self.version {
                Version::One => Duration::from_nanos(value("throttled_time")?),
                Version::Two => Duration::from_micros(value("throttled_usec")?),
            };
            Some(Throttled { periods: value("nr_throttled")?, time })
        };
        self.levels.iter().filter_map(of_level).max_by_key(|throttled| throttled.time).unwrap_or_default()
    }
}

/// The path in the hierarchy, of lines like `4:cpu,cpuacct:/path` (version 1) and `0::/path` (version 2).
fn group_path(membership: &str, version: Version) -> Option<&str> {
    membership.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let is_it = match version {
            Version::One => controllers.split(',').any(|controller| controller == "cpu"),
            Version::Two => number == "0" && controllers.is_empty(),
        };
        is_it.then_some(path)
    })
}

/// Where the hierarchy is mounted, by mountinfo of proc(5).
fn mount_point(mounts: &str, version: Version) -> Option<&str> {
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let (kind, _, options) = (after.next()?, after.next()?, after.next()?);
        let is_it = match version {
            Version::One => kind == "cgroup" && options.split(',').any(|option| option == "cpu"),
            Version::Two => kind == "cgroup2",
        };
        is_it.then(|| before.split(' ').nth(4)).flatten()
    })
}

const fn usual_mount_point(version: Version) -> &'static str {
    match version {
        Version::One => "/sys/fs/cgroup/cpu",
        Version::Two => "/sys/fs/cgroup",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const MILLIS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn version_two_with_a_quota_further_up() {
        let root = machine(&[
            ("proc/self/cgroup", "0::/pods/one\n"),
            ("sys/fs/cgroup/pods/cpu.max", "150000 100000\n"),
            (
                "sys/fs/cgroup/pods/cpu.stat",
                "usage_usec 9\nnr_periods 5\nnr_throttled 3\nthrottled_usec 2500\n",
            ),
            ("sys/fs/cgroup/pods/one/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/pods/one/cpu.weight", "300\n"),
            ("sys/fs/cgroup/pods/one/cpu.stat", "nr_throttled 0\nthrottled_usec 0\n"),
        ]);
        let group = CpuGroup::at(root.path()).unwrap();
        assert_eq!((group.name(), group.weight()), ("/pods/one", Some(3.0)));
        assert_eq!(group.quota(), Some(Quota { time: MILLIS(150), period: MILLIS(100) }));
        assert_eq!(group.throttled(), Throttled { periods: 3, time: Duration::from_micros(2_500) });
        // It vanishes: nothing is known of it, and that is told.
        fs::remove_dir_all(root.path().join("sys/fs/cgroup/pods")).unwrap();
        assert!(group.is_gone());
        assert_eq!((group.quota(), group.weight(), group.throttled()), (None, None, Throttled::default()));
    }

    #[test]
    fn version_one_where_it_has_the_controller() {
        let root = machine(&[
            ("proc/self/cgroup", "4:cpuset:/other\n3:cpu,cpuacct:/box\n0::/ignored\n"),
            (
                "proc/self/mountinfo",
                "32 31 0:29 / /groups/cpu rw - cgroup cgroup rw,cpu,cpuacct\n41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
            ),
            ("groups/cpu/box/cpu.shares", "512\n"),
            ("groups/cpu/box/cpu.cfs_quota_us", "25000\n"),
            ("groups/cpu/box/cpu.cfs_period_us", "50000\n"),
            ("groups/cpu/box/cpu.stat", "nr_periods 8\nnr_throttled 2\nthrottled_time 7000000\n"),
            ("groups/cpu/cpu.cfs_quota_us", "-1\n"),
            ("groups/cpu/cpu.cfs_period_us", "100000\n"),
        ]);
        let group = CpuGroup::at(root.path()).unwrap();
        assert_eq!((group.name(), group.weight()), ("/box", Some(0.5)));
        assert_eq!(group.quota(), Some(Quota { time: MILLIS(25), period: MILLIS(50) }));
        assert_eq!(group.throttled(), Throttled { periods: 2, time: MILLIS(7) });
        fs::write(root.path().join("groups/cpu/box/cpu.cfs_quota_us"), "-1\n").unwrap();
        assert_eq!(group.quota(), None);
    }

    #[test]
    fn a_removed_group_is_told() {
        let root = machine(&[
            ("proc/self/cgroup", "0::/old (deleted)\n"),
            ("sys/fs/cgroup/cpu.stat", "usage_usec 9\n"),
        ]);
        let group = CpuGroup::at(root.path()).unwrap();
        assert!(group.is_gone());
        assert_eq!((group.name(), group.quota()), ("/old", None));
        assert_eq!(CpuGroup::at(machine(&[]).path()), None);
    }

    #[test]
    fn what_a_quota_does_to_threads_that_never_sleep() {
        let half = Quota { time: MILLIS(50), period: MILLIS(100) };
        assert_eq!(half.stopped(1), Some(MILLIS(50)));
        assert_eq!(half.stopped(2), Some(MILLIS(75)));
        let three = Quota { time: MILLIS(300), period: MILLIS(100) };
        assert_eq!((three.stopped(3), three.stopped(4)), (None, Some(MILLIS(25))));
    }

    /// The real thing: this process is in some group, wherever groups count.
    #[test]
    fn this_machine_answers() {
        if let Some(group) = CpuGroup::of_this_process() {
            assert!(!group.is_gone() && group.name().starts_with('/'), "{group:?}");
            assert!(group.weight().is_none_or(|weight| weight > 0.0), "{group:?}");
        }
    }
}
