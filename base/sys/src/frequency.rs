//! How fast CPUs run, as far as the kernel lets a program say: cpufreq's governor and energy preference for a CPU, and for a thread the
//! least and the most of a CPU's speed that the scheduler takes it to need (uclamp).
//!
//! Documentation/admin-guide/pm/cpufreq.rst and intel_pstate.rst, and Documentation/scheduler/sched-util-clamp.rst of the kernel. What is changed for a CPU is everybody's who runs
//! there, so [`CpuFrequency`] puts it back when it is dropped.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::scheduling::Attributes;
use crate::text::read_text;

/// Why a CPU can't have it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrequencyError {
    /// The kernel has no control of it.
    #[error(
        "CPU {cpu} has no {file}: the kernel doesn't control its frequency (a virtual machine, or firmware does)"
    )]
    None {
        /// Which CPU.
        cpu: usize,
        /// Which file is missing.
        file: &'static str,
    },
    /// There is no such choice.
    #[error("CPU {cpu} knows no {file} `{value}`: it has {known}")]
    Unknown {
        /// Which CPU.
        cpu: usize,
        /// Which file it was for.
        file: &'static str,
        /// What was asked for.
        value: String,
        /// What there is.
        known: String,
    },
    /// It may not be written.
    #[error("{path} may not be written ({source}): be root, or leave it out")]
    Write {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// A setting of a CPU: its file, and the one that lists the choices.
struct Setting {
    file: &'static str,
    choices: &'static str,
}

const GOVERNOR: Setting = Setting { file: "scaling_governor", choices: "scaling_available_governors" };
const PREFERENCE: Setting =
    Setting { file: "energy_performance_preference", choices: "energy_performance_available_preferences" };

/// Settings of CPUs that were changed, and are put back when this is dropped.
#[derive(Debug, Default)]
pub struct CpuFrequency {
    /// In the order they were written.
    before: Vec<(PathBuf, String)>,
}

impl CpuFrequency {
    /// Gives CPUs a governor, an energy preference, or both.
    ///
    /// # Errors
    /// [`FrequencyError`] for the first that can't have it; those before have been put back then.
    pub fn set(
        cpus: &[usize],
        governor: Option<&str>,
        preference: Option<&str>,
    ) -> Result<Self, FrequencyError> {
        Self::set_at(Path::new("/"), cpus, governor, preference)
    }

    /// The same on a machine whose `/sys` is below this root.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub fn set_at(
        root: &Path,
        cpus: &[usize],
        governor: Option<&str>,
        preference: Option<&str>,
    ) -> Result<Self, FrequencyError> {
        let mut changed = Self::default();
        for &cpu in cpus {
            let directory = root.join(format!("sys/devices/system/cpu/cpu{cpu}/cpufreq"));
            // The governor first: under some there is no preference.
            for (setting, value) in [(GOVERNOR, governor), (PREFERENCE, preference)] {
                if let Some(value) = value {
                    changed.write(cpu, &directory, &setting, value)?;
                }
            }
        }
        Ok(changed)
    }

    fn write(
        &mut self,
        cpu: usize,
        directory: &Path,
        setting: &Setting,
        value: &str,
    ) -> Result<(), FrequencyError> {
        let Setting { file, choices } = *setting;
        let path = directory.join(file);
        let now = read_text(&path).ok_or(FrequencyError::None { cpu, file })?;
        if now == value {
            return Ok(());
        }
        if let Some(known) = read_text(&directory.join(choices))
            && !known.split_whitespace().any(|word| word == value)
        {
            return Err(FrequencyError::Unknown { cpu, file, value: value.to_owned(), known });
        }
        overwrite(&path, value).map_err(|source| FrequencyError::Write { path: path.clone(), source })?;
        self.before.push((path, now));
        Ok(())
    }
}

impl Drop for CpuFrequency {
    fn drop(&mut self) {
        // Backwards: a preference belongs to the governor that was set before. What can't be put back stays.
        for (path, value) in self.before.iter().rev() {
            let _ = overwrite(path, value);
        }
    }
}

/// Writes to a file that is there.
fn overwrite(path: &Path, value: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).truncate(true).open(path)?;
    io::Write::write_all(&mut file, value.as_bytes())
}

/// Parts of the fastest CPU's full speed, in 1,024ths, that the scheduler takes a thread to need at least and at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clamp {
    /// At least.
    pub least: u32,
    /// At most.
    pub most: u32,
}

impl Clamp {
    /// Full speed.
    pub const FULL: u32 = 1_024;

    /// Tells the scheduler of a thread of this process.
    ///
    /// # Errors
    /// The system's: `EOPNOTSUPP` or `EINVAL` where the kernel was built without (CONFIG_UCLAMP_TASK), `EPERM`.
    pub fn set(self, thread: u32) -> io::Result<()> {
        // include/uapi/linux/sched.h
        const KEEP_POLICY: u64 = 0x08;
        const KEEP_PARAMETERS: u64 = 0x10;
        const UTIL_CLAMP_MIN: u64 = 0x20;
        const UTIL_CLAMP_MAX: u64 = 0x40;
        Attributes {
            flags: KEEP_POLICY | KEEP_PARAMETERS | UTIL_CLAMP_MIN | UTIL_CLAMP_MAX,
            util_min: self.least,
            util_max: self.most,
            ..Attributes::default()
        }
        .give(thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skipped::skipped;

    /// A machine with a CPU of this number.
    fn add_cpu(root: &Path, cpu: usize) -> PathBuf {
        let directory = root.join(format!("sys/devices/system/cpu/cpu{cpu}/cpufreq"));
        fs::create_dir_all(&directory).unwrap();
        for (file, text) in [
            ("scaling_governor", "schedutil\n"),
            ("scaling_available_governors", "performance schedutil powersave\n"),
            ("energy_performance_preference", "balance_performance\n"),
            ("energy_performance_available_preferences", "default performance balance_performance power\n"),
        ] {
            fs::write(directory.join(file), text).unwrap();
        }
        directory
    }

    fn governor_of(directory: &Path) -> String {
        read_text(&directory.join("scaling_governor")).unwrap()
    }

    #[test]
    fn what_was_changed_is_put_back() {
        let root = tempfile::tempdir().unwrap();
        let directories = [0, 1].map(|cpu| add_cpu(root.path(), cpu));
        let changed = CpuFrequency::set_at(root.path(), &[0], Some("performance"), Some("power")).unwrap();
        let preference = || read_text(&directories[0].join("energy_performance_preference")).unwrap();
        assert_eq!((governor_of(&directories[0]).as_str(), preference().as_str()), ("performance", "power"));
        // Others keep theirs.
        assert_eq!(governor_of(&directories[1]), "schedutil");
        drop(changed);
        assert_eq!(
            (governor_of(&directories[0]).as_str(), preference().as_str()),
            ("schedutil", "balance_performance")
        );
    }

    #[test]
    fn what_can_not_be_had_leaves_nothing_changed() {
        let root = tempfile::tempdir().unwrap();
        let first = add_cpu(root.path(), 0);
        let refused = |cpus: &[usize], governor: &str| {
            CpuFrequency::set_at(root.path(), cpus, Some(governor), None).unwrap_err().to_string()
        };
        // The first has it, the second isn't there.
        let error = refused(&[0, 1], "performance");
        assert!(error.contains("CPU 1 has no scaling_governor"), "{error}");
        assert_eq!(governor_of(&first), "schedutil");
        let error = refused(&[0], "fastest");
        assert!(error.contains("`fastest`") && error.contains("performance schedutil powersave"), "{error}");
        // A governor that nobody may write, not even root.
        let governor = add_cpu(root.path(), 1).join("scaling_governor");
        fs::remove_file(&governor).unwrap();
        std::os::unix::fs::symlink("/proc/version", governor).unwrap();
        let error = refused(&[1], "performance");
        assert!(error.contains("may not be written") && error.contains("leave it out"), "{error}");
    }

    #[test]
    fn a_thread_is_clamped_or_the_kernel_says_why_not() {
        let thread = crate::affinity::current_thread();
        let clamp = Clamp { least: 0, most: Clamp::FULL };
        match clamp.set(thread) {
            Ok(()) => assert!(Clamp { least: 900, most: 100 }.set(thread).is_err()),
            Err(error) => skipped(&format!("no uclamp here: {error}")),
        }
        assert!(clamp.set(u32::MAX >> 1).is_err(), "there is no such thread");
    }
}
