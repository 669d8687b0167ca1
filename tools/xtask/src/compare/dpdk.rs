//! The installed DPDK, and our programs on it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use warmlane_sys::simd::{self, Level};

use super::huge_pages::Pages;
use super::traffic;
use crate::workspace::run_quietly;

/// Huge-page memory that the forwarder is given, in MiB: the builder of the table takes most.
pub(crate) const MEMORY: u64 = 768;

/// What `pkg-config` knows as libdpdk.
pub(crate) struct Dpdk {
    version: String,
}

impl Dpdk {
    /// `None` if there is none to build against.
    pub(crate) fn installed() -> Option<Self> {
        let output = Command::new("pkg-config").args(["--modversion", "libdpdk"]).output().ok()?;
        let version = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (output.status.success() && !version.is_empty()).then_some(Self { version })
    }

    /// Builds the peers and says where they are.
    pub(crate) fn build_peers(root: &Path, target: &Path) -> anyhow::Result<PathBuf> {
        let directory = target.join("peers");
        let mut make = Command::new("make");
        make.arg("-C").arg(root.join("peers")).arg(format!("BUILD={}", directory.display()));
        let status = run_quietly(&mut make)?;
        if !status.success() {
            bail!("the peers do not build ({status}); what make said stands above");
        }
        Ok(directory)
    }

    /// The forwarder with the settings that serve it best (`peers/README.md`), and a name that tells them.
    pub(crate) fn l3_forward(
        &self,
        peers: &Path,
        capture: &Path,
        routes: &Path,
        cpu: usize,
        pages: &Pages,
    ) -> anyhow::Result<(String, Command)> {
        let (lookup, lookup_name) = match simd::detected() {
            Level::Avx512 => ("fib-avx512", "rte_fib AVX-512"),
            _ => ("fib-scalar", "rte_fib scalar"),
        };
        // Commas and equals signs would end the value inside a device's arguments.
        let capture = capture.to_str().filter(|path| !path.contains([',', '=']));
        let capture = capture.context("the target directory's path must be UTF-8 without ',' and '='")?;
        let mut command = Command::new(peers.join("l3_forward"));
        command
            .args(["-l", &cpu.to_string(), "-m", &MEMORY.to_string()])
            .args(["--no-pci", "--no-telemetry", "--in-memory", "--log-level=4"])
            .arg("--force-max-simd-bitwidth=512")
            .arg(format!("--vdev=net_pcap0,rx_pcap={capture},infinite_rx=1"))
            .args(if pages.huge() { &[][..] } else { &["--no-huge"][..] })
            .args(["--", "--lookup", lookup, "--routes"])
            .arg(routes)
            .args(["--hops", &traffic::HOPS.to_string(), "--stored", &traffic::FRAMES.to_string()]);
        Ok((format!("DPDK {} l3_forward ({lookup_name}, net_pcap infinite_rx)", self.version), command))
    }
}
