//! Where and from which sources something was measured.

use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Command;
use warmlane_sys::machine::MachineFacts;

/// The machine and the sources, for results.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: Option<String>,
    /// Its microcode's revision.
    pub microcode: Option<String>,
    /// How many CPUs there are.
    pub cpus: Option<usize>,
    /// Whether cores run two threads.
    #[serde(default)]
    pub simultaneous_threads: Option<bool>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// The hypervisor's name, if this is a virtual machine.
    pub hypervisor: Option<String>,
    /// Maker and model of the computer.
    #[serde(default)]
    pub product: Option<String>,
    /// The frequency governor.
    pub governor: Option<String>,
    /// Whether the frequency may rise above the nominal one.
    #[serde(default)]
    pub boost: Option<bool>,
    /// Bytes of memory.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// Huge pages that are set aside.
    #[serde(default)]
    pub huge_pages: Vec<HugePages>,
    /// When the kernel uses huge pages by itself: `always`, `madvise` or `never`.
    #[serde(default)]
    pub transparent_huge_pages: Option<String>,
    /// Time-stamp-counter cycles per second.
    pub cycles_per_second: u64,
    /// The CPUs that were measured on.
    #[serde(default)]
    pub measured_on_cpus: Vec<usize>,
    /// The sources' commit, where they were built in a repository that is still there.
    #[serde(default)]
    pub commit: Option<String>,
    /// Whether they had changed since.
    #[serde(default)]
    pub changed_since_commit: Option<bool>,
}

/// Huge pages of one size.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct HugePages {
    /// Bytes of one.
    pub page_bytes: u64,
    /// How many are set aside.
    pub total: u64,
}

impl Machine {
    /// This machine.
    pub fn this() -> Self {
        let facts = MachineFacts::read();
        Self {
            cpu: facts.cpu_model,
            microcode: facts.microcode,
            cpus: facts.cpus,
            simultaneous_threads: facts.simultaneous_threads,
            kernel: facts.kernel,
            hypervisor: facts.hypervisor,
            product: facts.product,
            governor: facts.governor,
            boost: facts.boost,
            memory_bytes: facts.memory,
            huge_pages: facts
                .huge_pages
                .iter()
                .map(|pool| HugePages { page_bytes: pool.page_bytes, total: pool.total })
                .collect(),
            transparent_huge_pages: facts.transparent.private,
            cycles_per_second: facts.cycles_per_second,
            ..Self::default()
        }
    }

    /// This machine, with these of its CPUs and the sources that this was built from, for a record.
    pub fn measuring(cpus: &[usize]) -> Self {
        let mut machine = Self { measured_on_cpus: cpus.to_vec(), ..Self::this() };
        machine.add_sources(Path::new(env!("CARGO_MANIFEST_DIR")));
        machine
    }

    fn add_sources(&mut self, folder: &Path) {
        let git = |arguments: &[&str]| {
            let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().ok()?;
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        self.commit = git(&["rev-parse", "HEAD"]);
        // Records are no sources: the one before this would make all others look like changed sources.
        let changed =
            git(&["status", "--porcelain", "--untracked-files=no", "--", ":/", ":(exclude,top)perf/figures"]);
        self.changed_since_commit = changed.map(|files| !files.is_empty());
    }

    /// The sources, shortened, and whether they had changed since that commit.
    pub fn sources(&self) -> Option<String> {
        let commit = self.commit.as_ref()?;
        let short = commit.get(..12).unwrap_or(commit);
        Some(if self.changed_since_commit == Some(true) {
            format!("{short} and changes")
        } else {
            short.to_owned()
        })
    }
}

/// One line for people.
impl std::fmt::Display for Machine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known =
            |text: &Option<String>, name: &str| text.clone().unwrap_or_else(|| format!("unknown {name}"));
        write!(
            formatter,
            "{}, {:.2} GHz counter, Linux {}, {}",
            known(&self.cpu, "processor"),
            self.cycles_per_second as f64 / 1e9,
            known(&self.kernel, "release"),
            self.hypervisor
                .as_ref()
                .map_or_else(|| "no hypervisor".to_owned(), |name| format!("under {name}")),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_s_machine_has_all_that_a_figure_depends_on() {
        let machine = Machine::measuring(&[0]);
        assert!(machine.cpu.is_some() && machine.kernel.is_some() && machine.cycles_per_second > 0);
        assert_eq!(
            (machine.measured_on_cpus.as_slice(), machine.commit.is_some()),
            (&[0][..], machine.changed_since_commit.is_some())
        );
        let mut elsewhere = Machine::default();
        elsewhere.add_sources(tempfile::tempdir().unwrap().path());
        assert_eq!(elsewhere.sources(), None);
        let changed = Some(true);
        let machine = Machine {
            commit: Some("0123456789abcdef".to_owned()),
            changed_since_commit: changed,
            ..elsewhere
        };
        assert_eq!(machine.sources().unwrap(), "0123456789ab and changes");
    }
}
