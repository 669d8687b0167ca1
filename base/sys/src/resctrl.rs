//! Shares of the last-level cache: how much of it a thread occupies, how much memory bandwidth it takes, and which ways it may fill.
//!
//! Intel's RDT (CMT, MBM, CAT) and AMD's QoS, by the kernel's resctrl file system (Documentation/arch/x86/resctrl.rst). A group is a
//! directory, and a thread is in one group: making, filling and removing our own is all that is done here. Nothing is mounted, and
//! neither the root group's masks nor any group of others is changed; all that others had stays as it was. A group's name has the number of the process that made it, so
//! that one left behind by a crash is found and removed by the next.

mod files;
#[cfg(test)]
mod model;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use files::{Disk, Files};

/// Where it is mounted, usually.
const ROOT: &str = "/sys/fs/resctrl";
/// What our groups' names begin with.
const OURS: &str = "warmlane-";
/// The cache that masks are of.
const CACHE: &str = "L3";

/// Why there are no cache shares here, in a line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoShares {
    /// The kernel or the processor has none.
    #[error(
        "this machine shows no cache monitoring or allocation (resctrl): the kernel was built without, the processor has none, or this is a virtual machine"
    )]
    None,
    /// It is there and not mounted.
    #[error("the kernel has resctrl, but it isn't mounted: `mount -t resctrl resctrl /sys/fs/resctrl`")]
    NotMounted,
    /// It is mounted, but the cache can't be divided.
    #[error("the last-level cache can't be divided here (no L3 in /sys/fs/resctrl/info): leave the mask out")]
    NoAllocation,
    /// All groups are in use.
    #[error(
        "no group for '{name}' is left: the processor has {most}, and others use them ({others}); they were left alone"
    )]
    Exhausted {
        /// Which group it was to be.
        name: String,
        /// How many the processor has.
        most: String,
        /// Whose there are.
        others: String,
    },
    /// The kernel refuses a mask.
    #[error("the cache mask {mask} is refused: {reason}")]
    Mask {
        /// The mask.
        mask: Mask,
        /// What the kernel says (info/last_cmd_status).
        reason: String,
    },
    /// Something else.
    #[error("{path}: {source}")]
    Io {
        /// Of which file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// Ways of the cache that may be filled, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mask(u64);

impl Mask {
    /// The ways whose bits are set.
    ///
    /// # Errors
    /// A sentence for people, if there is none. Which are possible otherwise is the processor's to say.
    pub fn parse(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        match u64::from_str_radix(digits, 16) {
            Ok(0) => {
                Err("a lane can't do without any way of the cache: set some bits of the mask".to_owned())
            }
            Ok(bits) => Ok(Self(bits)),
            Err(_) => Err(format!("`{text}` is no mask of cache ways: say a hexadecimal number, as in 0xf")),
        }
    }
}

impl fmt::Display for Mask {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:x}", self.0)
    }
}

/// The file system, mounted.
#[derive(Clone, Debug)]
pub struct Resctrl {
    files: Arc<dyn Files>,
    root: PathBuf,
}

impl Resctrl {
    /// That of this machine. Groups that processes of this program left behind as they crashed are removed.
    ///
    /// # Errors
    /// [`NoShares`], in one line.
    pub fn open() -> Result<Self, NoShares> {
        Self::open_with(Arc::new(Disk), Path::new(ROOT))
    }

    fn open_with(files: Arc<dyn Files>, root: &Path) -> Result<Self, NoShares> {
        if files.read(&root.join("schemata")).is_err() {
            let known = files.read(Path::new("/proc/filesystems")).unwrap_or_default();
            let has_it = known.lines().any(|line| line.split_whitespace().last() == Some("resctrl"));
            return Err(if has_it { NoShares::NotMounted } else { NoShares::None });
        }
        let found = Self { files, root: root.to_owned() };
        found.remove_left_behind();
        Ok(found)
    }

    /// A group for one thread, which is in it afterwards. With a mask the thread fills only these ways of the cache, without one it is only
    /// watched. The group goes, and the thread is where it was, when what is returned is dropped.
    ///
    /// # Errors
    /// [`NoShares`]; nothing is left behind then.
    pub fn group(&self, name: &str, thread: u32, mask: Option<Mask>) -> Result<CacheGroup, NoShares> {
        let full_name = format!("{OURS}{}-{name}", std::process::id());
        let path = match mask {
            Some(_) => self.root.join(full_name),
            // Of those that only watch there are more.
            None => self.root.join("mon_groups").join(full_name),
        };
        self.files.make(&path).map_err(|source| match source.kind() {
            io::ErrorKind::StorageFull => self.exhausted(name, mask.is_some()),
            _ => NoShares::Io { path: path.clone(), source },
        })?;
        let group = CacheGroup { files: Arc::clone(&self.files), path };
        if let Some(mask) = mask {
            self.set_mask(&group, mask)?;
        }
        let tasks = group.path.join("tasks");
        self.files
            .write(&tasks, &thread.to_string())
            .map_err(|source| NoShares::Io { path: tasks, source })?;
        Ok(group)
    }

    /// Writes the mask for each cache that there is.
    fn set_mask(&self, group: &CacheGroup, mask: Mask) -> Result<(), NoShares> {
        let path = group.path.join("schemata");
        let now = self.files.read(&path).map_err(|source| NoShares::Io { path: path.clone(), source })?;
        let line = now.lines().find_map(|line| line.trim_start().strip_prefix(CACHE)?.strip_prefix(':'));
        let domains = line.ok_or(NoShares::NoAllocation)?.split(';');
        let masked: Vec<String> = domains
            .filter_map(|domain| Some(format!("{}={mask}", domain.split_once('=')?.0.trim())))
            .collect();
        self.files.write(&path, &format!("{CACHE}:{}\n", masked.join(";"))).map_err(|source| {
            let status = self.files.read(&self.root.join("info/last_cmd_status")).unwrap_or_default();
            let reason = match status.trim() {
                "" | "ok" => source.to_string(),
                said => said.to_owned(),
            };
            NoShares::Mask { mask, reason }
        })
    }

    fn exhausted(&self, name: &str, with_mask: bool) -> NoShares {
        let (directory, limit) = if with_mask {
            (self.root.clone(), "info/L3/num_closids")
        } else {
            (self.root.join("mon_groups"), "info/L3_MON/num_rmids")
        };
        let others: Vec<String> = self
            .files
            .directories(&directory)
            .into_iter()
            .filter(|group| !["info", "mon_data", "mon_groups"].contains(&group.as_str()))
            .take(5)
            .collect();
        NoShares::Exhausted {
            name: name.to_owned(),
            most: self
                .files
                .read(&self.root.join(limit))
                .map_or_else(|_| "few".to_owned(), |most| most.trim().to_owned()),
            others: if others.is_empty() { "all without names".to_owned() } else { others.join(", ") },
        }
    }

    /// Removes groups of processes of this program that are gone.
    fn remove_left_behind(&self) {
        for directory in [self.root.clone(), self.root.join("mon_groups")] {
            for name in self.files.directories(&directory) {
                let process =
                    name.strip_prefix(OURS).and_then(|rest| rest.split_once('-')?.0.parse::<u32>().ok());
                // What has another name is somebody else's.
                let Some(process) = process else { continue };
                if !self.files.is_running(process) {
                    // If it can't be removed, it only wastes a number.
                    let _ = self.files.remove(&directory.join(name));
                }
            }
        }
    }
}

/// A group of ours with one thread in it. Dropped, it is removed.
#[derive(Debug)]
pub struct CacheGroup {
    files: Arc<dyn Files>,
    path: PathBuf,
}

/// What a group took, all caches of the machine together. `None` where the processor doesn't count it, or not now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUse {
    /// Bytes of the last-level cache that it occupies (CMT).
    pub occupancy: Option<u64>,
    /// Bytes that it moved from and to memory since the group was made (MBM).
    pub memory_bytes: Option<u64>,
}

impl CacheGroup {
    /// What it took so far.
    pub fn usage(&self) -> CacheUse {
        let data = self.path.join("mon_data");
        let caches = self.files.directories(&data);
        let sum = |file: &str| {
            let of_cache = |cache: &String| {
                // "Unavailable" and "Error" are no numbers.
                self.files.read(&data.join(cache).join(file)).ok()?.trim().parse::<u64>().ok()
            };
            caches.iter().filter_map(of_cache).reduce(u64::wrapping_add)
        };
        CacheUse { occupancy: sum("llc_occupancy"), memory_bytes: sum("mbm_total_bytes") }
    }
}

impl Drop for CacheGroup {
    fn drop(&mut self) {
        // Its thread is in the default group again. If somebody else has removed it already, so much the better.
        let _ = self.files.remove(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::model::Model;
    use super::*;
    use crate::skipped::skipped;

    fn open(model: &Arc<Model>) -> Result<Resctrl, NoShares> {
        Resctrl::open_with(Arc::clone(model) as Arc<dyn Files>, Path::new(ROOT))
    }

    #[test]
    fn a_lane_is_watched_and_its_group_goes_with_it() {
        let model = Arc::new(Model::new(4, 8));
        let resctrl = open(&model).unwrap();
        let group = resctrl.group("lane0", 77, None).unwrap();
        let name = format!("mon_groups/warmlane-{}-lane0", std::process::id());
        assert_eq!(model.group_of(77), name);
        assert_eq!(group.usage(), CacheUse { occupancy: Some(0), memory_bytes: Some(0) });
        model.count(&name, 1_000_000, 5_000);
        // Two caches, each of which counts.
        assert_eq!(group.usage(), CacheUse { occupancy: Some(2_000_000), memory_bytes: Some(10_000) });
        model.make_unavailable(&name);
        assert_eq!(group.usage(), CacheUse::default());
        drop(group);
        assert_eq!(model.group_of(77), "");
        assert_eq!(model.groups(), Vec::<String>::new());
    }

    #[test]
    fn a_mask_is_written_for_each_cache_and_other_groups_keep_theirs() {
        let model = Arc::new(Model::new(4, 8));
        model.make_others("database", "L3:0=ff0;1=ff0\n");
        let resctrl = open(&model).unwrap();
        let group = resctrl.group("lane0", 77, Some(Mask::parse("0xf").unwrap())).unwrap();
        let name = format!("warmlane-{}-lane0", std::process::id());
        assert_eq!(model.schemata(&name), "L3:0=f;1=f\n");
        assert_eq!(model.group_of(77), name);
        drop(group);
        assert_eq!(model.groups(), ["database"]);
        assert_eq!(model.schemata("database"), "L3:0=ff0;1=ff0\n");
        assert_eq!(model.schemata(""), "L3:0=fff;1=fff\n");
    }

    #[test]
    fn a_mask_that_the_processor_lacks_is_refused_in_its_words_and_leaves_nothing() {
        let model = Arc::new(Model::new(4, 8));
        let resctrl = open(&model).unwrap();
        for (mask, reason) in [("5", "non-consecutive"), ("fffff", "out of range")] {
            let error = resctrl.group("lane0", 77, Some(Mask::parse(mask).unwrap())).unwrap_err().to_string();
            assert!(error.contains(mask) && error.contains(reason), "{error}");
            assert_eq!(model.groups(), Vec::<String>::new());
        }
        for text in ["0", "ways", ""] {
            assert!(Mask::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn where_others_use_all_groups_that_is_told_and_nothing_of_theirs_touched() {
        let model = Arc::new(Model::new(3, 8));
        model.make_others("database", "L3:0=f;1=f\n");
        model.make_others("web", "L3:0=f0;1=f0\n");
        let before = model.groups();
        let resctrl = open(&model).unwrap();
        let error = resctrl.group("lane0", 77, Some(Mask::parse("f").unwrap())).unwrap_err().to_string();
        assert!(error.contains("the processor has 3") && error.contains("database, web"), "{error}");
        assert_eq!(model.groups(), before);
        // To be watched takes no group of that kind.
        drop(resctrl.group("lane0", 77, None).unwrap());
        assert_eq!(model.groups(), before);
    }

    #[test]
    fn what_a_crash_left_is_removed_and_what_runs_or_is_foreign_is_not() {
        let model = Arc::new(Model::new(8, 8));
        model.set_running(41);
        let left = ["warmlane-40-lane0", "warmlane-41-lane0", "warmlane", "warmlane-old", "database"];
        for name in left {
            model.make_others(name, "L3:0=f;1=f\n");
        }
        model.make_others("mon_groups/warmlane-40-lane1", "");
        open(&model).unwrap();
        assert_eq!(model.groups(), ["database", "warmlane", "warmlane-41-lane0", "warmlane-old"]);
    }

    #[test]
    fn a_group_that_somebody_removes_counts_nothing_any_more() {
        let model = Arc::new(Model::new(4, 8));
        let group = open(&model).unwrap().group("lane0", 77, None).unwrap();
        model.remove_as_others(&format!("mon_groups/warmlane-{}-lane0", std::process::id()));
        assert_eq!(group.usage(), CacheUse::default());
        drop(group);
    }

    #[test]
    fn why_there_is_none_is_one_line() {
        let model = Arc::new(Model::unmounted(true));
        let error = open(&model).unwrap_err().to_string();
        assert!(error.contains("mount -t resctrl") && !error.contains('\n'), "{error}");
        let error = open(&Arc::new(Model::unmounted(false))).unwrap_err().to_string();
        assert!(error.contains("no cache monitoring") && !error.contains('\n'), "{error}");
    }

    /// The real thing, where there is one.
    #[test]
    fn this_machine_answers() {
        match Resctrl::open() {
            Ok(resctrl) => {
                let thread = crate::affinity::current_thread();
                match resctrl.group("test", thread, None) {
                    Ok(group) => eprintln!("{:?}", group.usage()),
                    Err(error) => skipped(&error.to_string()),
                }
            }
            Err(error) => skipped(&error.to_string()),
        }
    }
}
