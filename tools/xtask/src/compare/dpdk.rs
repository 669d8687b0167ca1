//! The installed DPDK, and our programs on it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::bail;

use crate::workspace::{self, run_quietly};

/// What to install where it is missing.
pub(crate) const MISSING: &str =
    "libdpdk is not installed: `apt-get install libdpdk-dev dpdk-dev pkg-config`";

/// Where the distribution's is, in descriptions.
pub(crate) const OF_THE_DISTRIBUTION: &str = "(installed;";

/// What `pkg-config` knows as libdpdk.
pub(crate) struct Dpdk {
    /// Where it was installed, if it is another than the distribution's.
    prefix: Option<PathBuf>,
    version: String,
}

/// Below a prefix, where there may be libraries, and below that what `pkg-config` reads.
const LIBRARIES: [&str; 3] = ["lib/x86_64-linux-gnu", "lib64", "lib"];
const PKG_CONFIG: &str = "pkgconfig";

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

fn libraries(prefix: &Path) -> [PathBuf; 3] {
    LIBRARIES.map(|folder| prefix.join(folder))
}

impl Dpdk {
    /// The distribution's, or the one that was installed with this prefix; `None` if there is none to build against.
    pub(crate) fn installed(prefix: Option<&Path>) -> Option<Self> {
        // Without it, pkg-config would answer for the distribution's.
        let described = |prefix: &Path| {
            libraries(prefix).iter().any(|folder| folder.join(PKG_CONFIG).join("libdpdk.pc").exists())
        };
        if prefix.is_some_and(|prefix| !described(prefix)) {
            return None;
        }
        let mut dpdk = Self { prefix: prefix.map(Path::to_owned), version: String::new() };
        dpdk.version = dpdk.pkg_config("--modversion").filter(|version| !version.is_empty())?;
        Some(dpdk)
    }

    fn pkg_config(&self, question: &str) -> Option<String> {
        let mut command = Command::new("pkg-config");
        let text = workspace::output(self.choose(&mut command).args([question, "libdpdk"])).ok()?;
        Some(text.trim().to_owned())
    }

    /// Makes a program find this DPDK, and testpmd of the same build.
    pub(crate) fn choose<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        if let Some(prefix) = &self.prefix {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let path = [prefix.join("bin")].into_iter().chain(std::env::split_paths(&path));
            // A path that can't be joined was none before.
            command.env("PATH", std::env::join_paths(path).unwrap_or_default());
            let folders = libraries(prefix);
            let found = std::env::join_paths(folders.each_ref().map(|folder| folder.join(PKG_CONFIG)));
            command.env("PKG_CONFIG_PATH", found.unwrap_or_default());
            // The path that is built into a program isn't that by which its libraries find each other.
            command.env("LD_LIBRARY_PATH", std::env::join_paths(folders).unwrap_or_default());
        }
        command
    }

    /// Its version.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Its version, where it is, and how programs are compiled for it, which has the processor that it was built for.
    pub(crate) fn description(&self) -> String {
        let of = match &self.prefix {
            Some(prefix) => format!("({};", prefix.display()),
            None => OF_THE_DISTRIBUTION.to_owned(),
        };
        format!("{} {of} {})", self.version, self.pkg_config("--cflags").unwrap_or_default())
    }

    /// Builds the peers and says where they are.
    pub(crate) fn build_peers(&self, root: &Path, target: &Path) -> anyhow::Result<PathBuf> {
        let directory = match &self.prefix {
            Some(_) => target.join(format!("peers-{}", self.version)),
            None => target.join("peers"),
        };
        let mut make = Command::new("make");
        self.choose(&mut make)
            .arg("-C")
            .arg(root.join("peers"))
            .arg(format!("BUILD={}", directory.display()));
        // Another build of the same version may have been there.
        make.args(self.prefix.as_ref().map(|_| "--always-make"));
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
        self.choose(&mut command)
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
