//! The installed DPDK, and our programs on it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::bail;

use crate::workspace::run_quietly;

/// What to install where it is missing.
pub(crate) const MISSING: &str =
    "libdpdk is not installed: `apt-get install libdpdk-dev dpdk-dev pkg-config`";

/// What `pkg-config` knows as libdpdk.
pub(crate) struct Dpdk {
    version: String,
}

/// One of the programs in `peers/`, with the settings that serve it best (`peers/README.md`).
pub(crate) struct Program<'a> {
    /// What is shown of it, without the name and version of DPDK.
    pub(crate) name: String,
    /// Its file, without the suffix.
    pub(crate) file: &'static str,
    /// Huge-page memory that it is given.
    pub(crate) mebibytes: u64,
    /// More arguments for DPDK's environment layer.
    pub(crate) environment: &'a [&'a str],
    /// The program's own arguments.
    pub(crate) arguments: &'a [&'a str],
}

impl Dpdk {
    /// `None` if there is none to build against.
    pub(crate) fn installed() -> Option<Self> {
        let output = Command::new("pkg-config").args(["--modversion", "libdpdk"]).output().ok()?;
        let version = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (output.status.success() && !version.is_empty()).then_some(Self { version })
    }

    /// Its version.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Builds the peers and says where they are.
    pub(crate) fn build_peers(root: &Path, target: &Path) -> anyhow::Result<PathBuf> {
        let directory = target.join("peers");
        let mut make = Command::new("make");
        make.arg("-C").arg(root.join("peers")).arg(format!("BUILD={}", directory.display()));
        let status = run_quietly(&mut make)?;
        if !status.success() {
            bail!("the peers do not build ({status}); what make said is above");
        }
        Ok(directory)
    }

    /// How to start a program, on these CPUs (the first is the main one's), and the name to show.
    pub(crate) fn command(
        &self,
        peers: &Path,
        program: &Program<'_>,
        cpus: &[usize],
        huge: bool,
    ) -> (String, Command) {
        let list: Vec<String> = cpus.iter().map(usize::to_string).collect();
        let mut command = Command::new(peers.join(program.file));
        command
            .args(["-l", &list.join(","), "-m", &program.mebibytes.to_string()])
            .args(cpus.first().map(|cpu| format!("--main-lcore={cpu}")))
            .args(["--no-pci", "--no-telemetry", "--log-level=4"])
            .arg("--force-max-simd-bitwidth=512")
            .args(program.environment)
            // Normal pages and `--in-memory` exclude each other.
            .args(if huge { &["--in-memory"][..] } else { &["--no-huge", "--no-shconf"][..] })
            .arg("--")
            .args(program.arguments);
        (format!("DPDK {} {}", self.version, program.name), command)
    }
}
