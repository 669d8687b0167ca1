//! Control groups with weights, and threads of this process in them.
//!
//! They are inside the group that the process is in, so what limits that one limits them. Version 1 has a list of threads anyway; of
//! version 2 they are threaded groups (Documentation/admin-guide/cgroup-v2.rst of the kernel, "Threads"). Nothing of others' groups is changed,
//! but that in version 2 the process's own group lends weights to those inside it for that time: somebody else who comes to rely on
//! them meanwhile loses them afterwards.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use warmlane_sys::cgroup::CpuGroup;

/// What names of groups begin with; the number of the process follows.
const OURS: &str = "warmlane-lab-";
/// A thread that has ended is in its group for a moment longer; on a busy machine, for a long one.
const EMPTY_WITHIN: Duration = Duration::from_secs(60);

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GroupError {
    #[error("this process is in no control group for CPU time")]
    None,
    #[error("the control group's file {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
}

/// How a version names what is needed here, and the weight that groups usually have.
#[derive(Debug)]
struct Version {
    threads: &'static str,
    weight: &'static str,
    usual: u64,
}

const FIRST: Version = Version { threads: "tasks", weight: "cpu.shares", usual: 1_024 };
const SECOND: Version = Version { threads: "cgroup.threads", weight: "cpu.weight", usual: 100 };

/// Which controllers the groups inside another one have, in version 2.
const CONTROLLERS: &str = "cgroup.subtree_control";

/// Groups side by side, until this is dropped. Threads in them are then where they were.
#[derive(Debug)]
pub(crate) struct ControlGroups {
    version: Version,
    home: PathBuf,
    groups: Vec<PathBuf>,
    /// Groups inside the process's had no weights before.
    switched_on: bool,
}

impl ControlGroups {
    /// Some of these weights, of which 1 is usual.
    ///
    /// # Errors
    /// [`GroupError`], where there are no groups for CPU time, or none may be made. Nothing is left behind then.
    pub(crate) fn new(weights: &[u64]) -> Result<Self, GroupError> {
        let group = CpuGroup::of_this_process().ok_or(GroupError::None)?;
        Self::inside(group.directory().ok_or(GroupError::None)?, weights)
    }

    fn inside(home: &Path, weights: &[u64]) -> Result<Self, GroupError> {
        remove_left_behind(home);
        let is_second = home.join("cgroup.controllers").exists();
        let mut made = Self {
            version: if is_second { SECOND } else { FIRST },
            home: home.to_owned(),
            groups: Vec::new(),
            switched_on: false,
        };
        for weight in weights {
            let group = made.make_one()?;
            if is_second {
                write(&group.join("cgroup.type"), "threaded")?;
                made.switch_on()?;
            }
            write(&group.join(made.version.weight), &(weight * made.version.usual).to_string())?;
        }
        Ok(made)
    }

    fn make_one(&mut self) -> Result<PathBuf, GroupError> {
        let mut number = 0_u32;
        loop {
            let path = self.home.join(format!("{OURS}{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => {
                    self.groups.push(path.clone());
                    return Ok(path);
                }
                // One of another experiment of this process.
                Err(source) if source.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(source) => return Err(GroupError::File { path, source }),
            }
        }
    }

    /// Lets groups inside the process's have weights.
    fn switch_on(&mut self) -> Result<(), GroupError> {
        let path = self.home.join(CONTROLLERS);
        let on =
            fs::read_to_string(&path).map_err(|source| GroupError::File { path: path.clone(), source })?;
        if !on.split_whitespace().any(|controller| controller == "cpu") {
            write(&path, "+cpu")?;
            self.switched_on = true;
        }
        Ok(())
    }

    /// Puts a thread of this process into the group with this index.
    ///
    /// # Errors
    /// [`GroupError::File`], if there is no such thread, or the group is gone.
    pub(crate) fn add(&self, group: usize, thread: u32) -> Result<(), GroupError> {
        write(&self.groups[group].join(self.version.threads), &thread.to_string())
    }

    /// Removes them.
    ///
    /// # Errors
    /// [`GroupError::File`] for one that stays.
    pub(crate) fn remove(mut self) -> Result<(), GroupError> {
        self.remove_all()
    }

    fn remove_all(&mut self) -> Result<(), GroupError> {
        let until = Instant::now() + EMPTY_WITHIN;
        let mut failed = Ok(());
        for path in std::mem::take(&mut self.groups) {
            while let Err(source) = self.remove_one(&path) {
                if Instant::now() > until {
                    failed = Err(GroupError::File { path, source });
                    break;
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
        if std::mem::take(&mut self.switched_on) {
            failed = failed.and(write(&self.home.join(CONTROLLERS), "-cpu"));
        }
        failed
    }

    fn remove_one(&self, path: &Path) -> io::Result<()> {
        let threads = fs::read_to_string(path.join(self.version.threads)).unwrap_or_default();
        for thread in threads.lines() {
            // It may have ended meanwhile.
            let _ = write(&self.home.join(self.version.threads), thread);
        }
        match fs::remove_dir(path) {
            // Somebody else has removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }
}

impl Drop for ControlGroups {
    fn drop(&mut self) {
        // Whoever wants to know calls `remove`.
        let _ = self.remove_all();
    }
}

/// Removes groups of processes that were killed: they have no threads any more, and one that has can't be removed.
fn remove_left_behind(home: &Path) {
    for entry in fs::read_dir(home).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(OURS)?.split('-').next());
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Writes to a file that is there.
fn write(path: &Path, text: &str) -> Result<(), GroupError> {
    let written = fs::OpenOptions::new().write(true).open(path).and_then(|mut file| {
        // In one piece, as the kernel takes it.
        io::Write::write_all(&mut file, text.as_bytes())
    });
    written.map_err(|source| GroupError::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_sys::affinity::current_thread;
    use warmlane_testkit::requirements;

    /// Where the kernel says that a thread is.
    fn membership(thread: u32) -> String {
        fs::read_to_string(format!("/proc/self/task/{thread}/cgroup")).unwrap()
    }

    #[test]
    fn a_thread_is_in_its_group_until_that_is_removed() {
        let groups = match ControlGroups::new(&[3, 1]) {
            Ok(groups) => groups,
            Err(error) => return requirements::missing(&format!("control groups: {error}")),
        };
        let (paths, before) = (groups.groups.clone(), membership(current_thread()));
        let weights = [0, 1].map(|group| {
            let text = fs::read_to_string(paths[group].join(groups.version.weight)).unwrap();
            text.trim().parse::<u64>().unwrap()
        });
        assert_eq!(weights, [3, 1].map(|weight| weight * groups.version.usual));
        groups.add(1, current_thread()).unwrap();
        let name = paths[1].file_name().unwrap().to_str().unwrap();
        assert!(membership(current_thread()).contains(name), "{}", membership(current_thread()));
        // There is no such thread.
        assert!(groups.add(0, u32::MAX >> 1).is_err());
        groups.remove().unwrap();
        assert_eq!(membership(current_thread()), before);
        assert!(paths.iter().all(|path| !path.exists()));
    }

    #[test]
    fn a_group_that_somebody_removes_is_told_and_no_trouble_in_the_end() {
        let groups = match ControlGroups::new(&[1]) {
            Ok(groups) => groups,
            Err(error) => return requirements::missing(&format!("control groups: {error}")),
        };
        fs::remove_dir(&groups.groups[0]).unwrap();
        let error = groups.add(0, current_thread()).unwrap_err().to_string();
        assert!(error.contains(OURS) && error.contains("No such file"), "{error}");
        groups.remove().unwrap();
    }

    /// What can be seen of it without the kernel: what is written where.
    #[test]
    fn of_version_two_groups_are_threaded_and_the_controller_is_put_back() {
        let home = tempfile::tempdir().unwrap();
        let file = |name: &str| home.path().join(name);
        fs::write(file("cgroup.controllers"), "cpu memory\n").unwrap();
        fs::write(file(CONTROLLERS), "memory\n").unwrap();
        let mut groups = ControlGroups {
            version: SECOND,
            home: home.path().to_owned(),
            groups: Vec::new(),
            switched_on: false,
        };
        groups.switch_on().unwrap();
        assert!(fs::read_to_string(file(CONTROLLERS)).unwrap().starts_with("+cpu"));
        groups.remove().unwrap();
        assert!(fs::read_to_string(file(CONTROLLERS)).unwrap().starts_with("-cpu"));
        // A directory that is none of the kernel's has no files to write to: said, and nothing stays.
        let error = ControlGroups::inside(home.path(), &[1]).unwrap_err().to_string();
        assert!(error.contains("cgroup.type"), "{error}");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2);
    }

    #[test]
    fn those_of_a_process_that_is_gone_are_removed() {
        let home = tempfile::tempdir().unwrap();
        let own = format!("{OURS}{}-7", std::process::id());
        // No process has this number: the kernel's limit is 4,194,304.
        for name in ["warmlane-lab-4194305-0", &own, "others"] {
            fs::create_dir(home.path().join(name)).unwrap();
        }
        remove_left_behind(home.path());
        let mut left: Vec<_> =
            fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["others", &own]);
    }
}
