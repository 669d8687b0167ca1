//! What the kernel does with the files of resctrl, as far as it matters: groups come with their files and go with them, their number is
//! limited, masks are checked, a thread is in one group, and those of a group that goes are in the default group again
//! (arch/x86/kernel/cpu/resctrl/rdtgroup.c and ctrlmondata.c).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use super::ROOT;
use super::files::Files;

/// Twelve ways, as the root group has them.
const FULL: u64 = 0xfff;
const CACHES: [&str; 2] = ["mon_L3_00", "mon_L3_01"];

#[derive(Debug)]
pub(super) struct Model(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// `None`: not mounted; whether the kernel has it.
    is_mounted: bool,
    is_known: bool,
    /// Groups with masks besides the root group, and groups that only watch, by their paths below the root; "" is the root group.
    groups: BTreeMap<String, Group>,
    most_masks: usize,
    most_watched: usize,
    tasks: BTreeMap<u32, String>,
    running: BTreeSet<u32>,
    last_status: String,
}

#[derive(Debug, Default)]
struct Group {
    schemata: String,
    occupancy: u64,
    bytes: u64,
    unavailable: bool,
}

impl Model {
    pub(super) fn new(most_masks: usize, most_watched: usize) -> Self {
        let root = Group { schemata: "L3:0=fff;1=fff\n".to_owned(), ..Group::default() };
        Self(Mutex::new(State {
            is_mounted: true,
            is_known: true,
            groups: BTreeMap::from([(String::new(), root)]),
            most_masks,
            most_watched,
            last_status: "ok\n".to_owned(),
            running: BTreeSet::from([std::process::id()]),
            ..State::default()
        }))
    }

    pub(super) fn unmounted(is_known: bool) -> Self {
        Self(Mutex::new(State { is_known, ..State::default() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Where a thread is, by path below the root.
    pub(super) fn group_of(&self, thread: u32) -> String {
        self.state().tasks.get(&thread).cloned().unwrap_or_default()
    }

    /// All but the root group.
    pub(super) fn groups(&self) -> Vec<String> {
        self.state().groups.keys().filter(|name| !name.is_empty()).cloned().collect()
    }

    pub(super) fn schemata(&self, group: &str) -> String {
        self.state().groups[group].schemata.clone()
    }

    /// A group that was there before.
    pub(super) fn make_others(&self, name: &str, schemata: &str) {
        self.make(&Path::new(ROOT).join(name)).unwrap();
        self.state().groups.get_mut(name).unwrap().schemata = schemata.to_owned();
    }

    pub(super) fn remove_as_others(&self, name: &str) {
        self.remove(&Path::new(ROOT).join(name)).unwrap();
    }

    pub(super) fn set_running(&self, process: u32) {
        self.state().running.insert(process);
    }

    /// In each cache.
    pub(super) fn count(&self, group: &str, occupancy: u64, bytes: u64) {
        let mut state = self.state();
        let group = state.groups.get_mut(group).unwrap();
        (group.occupancy, group.bytes) = (occupancy, bytes);
    }

    pub(super) fn make_unavailable(&self, group: &str) {
        self.state().groups.get_mut(group).unwrap().unavailable = true;
    }
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

/// The group, and what is in it.
fn split(path: &Path) -> Option<(String, String)> {
    let below = path.strip_prefix(ROOT).ok()?.to_str()?;
    for start in ["info/", "schemata", "tasks", "mon_data"] {
        if below.starts_with(start) {
            return Some((String::new(), below.to_owned()));
        }
    }
    let depth = if below.starts_with("mon_groups/") { 2 } else { 1 };
    let parts: Vec<&str> = below.split('/').collect();
    (parts.len() >= depth).then(|| (parts[..depth].join("/"), parts[depth..].join("/")))
}

impl Files for Model {
    fn read(&self, path: &Path) -> io::Result<String> {
        let state = self.state();
        if path == Path::new("/proc/filesystems") {
            return Ok(format!("nodev\tsysfs\n{}", if state.is_known { "nodev\tresctrl\n" } else { "" }));
        }
        let (name, file) = split(path).filter(|_| state.is_mounted).ok_or_else(not_found)?;
        let group = state.groups.get(&name).ok_or_else(not_found)?;
        let counted =
            |value: u64| if group.unavailable { "Unavailable\n".to_owned() } else { format!("{value}\n") };
        Ok(match file.as_str() {
            "info/last_cmd_status" => state.last_status.clone(),
            "info/L3/num_closids" => format!("{}\n", state.most_masks),
            "info/L3_MON/num_rmids" => format!("{}\n", state.most_watched),
            // A group that only watches has none of its own.
            "schemata" if !name.starts_with("mon_groups/") => group.schemata.clone(),
            _ => match file.strip_prefix("mon_data/").and_then(|rest| rest.split_once('/')) {
                Some((cache, "llc_occupancy")) if CACHES.contains(&cache) => counted(group.occupancy),
                Some((cache, "mbm_total_bytes")) if CACHES.contains(&cache) => counted(group.bytes),
                _ => return Err(not_found()),
            },
        })
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        let mut state = self.state();
        let (name, file) = split(path).ok_or_else(not_found)?;
        if !state.groups.contains_key(&name) {
            return Err(not_found());
        }
        match file.as_str() {
            "tasks" => {
                let thread = text.trim().parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
                state.tasks.insert(thread, name);
                Ok(())
            }
            "schemata" => {
                let domains = text.strip_prefix("L3:").and_then(|rest| rest.strip_suffix('\n'));
                for domain in domains.unwrap_or_default().split(';') {
                    let (_, mask) = domain.split_once('=').ok_or(io::ErrorKind::InvalidInput)?;
                    let mask = u64::from_str_radix(mask, 16).map_err(|_| io::ErrorKind::InvalidInput)?;
                    // cbm_validate_intel().
                    let refused = if mask > FULL {
                        Some("Mask out of range\n".to_owned())
                    } else if (mask >> mask.trailing_zeros()).count_ones()
                        != 64 - (mask >> mask.trailing_zeros()).leading_zeros()
                    {
                        Some(format!("The mask {mask:x} has non-consecutive 1-bits\n"))
                    } else {
                        None
                    };
                    if let Some(reason) = refused {
                        state.last_status = reason;
                        return Err(io::ErrorKind::InvalidInput.into());
                    }
                }
                state.groups.entry(name).or_default().schemata = text.to_owned();
                state.last_status = "ok\n".to_owned();
                Ok(())
            }
            _ => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    fn make(&self, directory: &Path) -> io::Result<()> {
        let mut state = self.state();
        let (name, _) = split(directory).ok_or_else(not_found)?;
        let is_watched = |name: &str| name.starts_with("mon_groups/");
        let so_many = state.groups.keys().filter(|other| is_watched(other) == is_watched(&name)).count();
        // The root group has one of the masks, and is counted among those.
        let most = if is_watched(&name) { state.most_watched } else { state.most_masks };
        if so_many >= most {
            state.last_status = "Out of CLOSIDs\n".to_owned();
            return Err(io::ErrorKind::StorageFull.into());
        }
        if state.groups.contains_key(&name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let schemata = if is_watched(&name) { String::new() } else { "L3:0=fff;1=fff\n".to_owned() };
        state.groups.insert(name, Group { schemata, ..Group::default() });
        Ok(())
    }

    fn remove(&self, directory: &Path) -> io::Result<()> {
        let mut state = self.state();
        let (name, _) = split(directory).ok_or_else(not_found)?;
        state.groups.remove(&name).filter(|_| !name.is_empty()).ok_or_else(not_found)?;
        state.tasks.retain(|_, group| *group != name);
        Ok(())
    }

    fn directories(&self, directory: &Path) -> Vec<String> {
        let state = self.state();
        if !state.is_mounted {
            return Vec::new();
        }
        if directory == Path::new(ROOT) {
            let groups = state.groups.keys().filter(|name| !name.is_empty() && !name.contains('/')).cloned();
            return groups.chain(["info", "mon_data", "mon_groups"].map(str::to_owned)).collect();
        }
        if directory == Path::new(ROOT).join("mon_groups") {
            return state
                .groups
                .keys()
                .filter_map(|name| name.strip_prefix("mon_groups/"))
                .map(str::to_owned)
                .collect();
        }
        let has_data = split(directory)
            .is_some_and(|(name, rest)| rest == "mon_data" && state.groups.contains_key(&name));
        if has_data { CACHES.map(str::to_owned).to_vec() } else { Vec::new() }
    }

    fn is_running(&self, process: u32) -> bool {
        self.state().running.contains(&process)
    }
}
