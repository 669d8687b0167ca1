//! Where a comparison takes place, and how its sides are started.

use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use warmlane_sys::clock::Clock;

use super::dpdk::{self, Dpdk, Program};
use super::huge_pages::Pages;
use crate::workspace::{self, Metadata};

/// How many peers take turns with ours. Where there are more, those are chosen that are fastest alone.
pub(crate) const FINALISTS: usize = 6;

/// A sender and a receiver in two processes, as `peers/pair_side.py` knows them.
#[derive(Clone, Copy)]
pub(crate) struct Pair {
    /// How the two are joined: `memif`, or `vhost` if the receiver is the device of a virtio ring, or `virtio` if the sender is; with `-packed` if the rings are.
    pub(crate) link: &'static str,
    pub(crate) sender: &'static str,
    pub(crate) receiver: &'static str,
}

/// What two programs take that have a pool each, of which one may be testpmd.
const PAIR_BYTES: u64 = 2 * (128 << 20);

/// What the router and its generator take, or testpmd and that generator.
const ROUTER_BYTES: u64 = 320 << 20;

/// Where a comparison takes place.
pub(crate) struct Setting {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    /// Holds the files that both sides read.
    pub(crate) directory: PathBuf,
    /// The CPUs of the sides' lanes: one or two.
    pub(crate) cpus: Vec<usize>,
    /// Where another DPDK than the distribution's was installed, if that is to be the peers'.
    pub(crate) dpdk: Option<PathBuf>,
    /// Where our command is, once it is built.
    ours: OnceCell<PathBuf>,
    /// Where the peers on DPDK are, once they are built.
    peers: OnceCell<PathBuf>,
    /// Where the peers made of crates are, once they are built.
    crates: OnceCell<PathBuf>,
}

/// The programs that take turns.
pub(crate) struct Sides {
    pub(crate) ours: Command,
    /// The peers, with the names to show.
    pub(crate) peers: Vec<(String, Command)>,
    /// Why there are none, if so.
    pub(crate) missing: Option<String>,
    pub(crate) pages: Pages,
    /// Which DPDK the peers are built on, if any is.
    pub(crate) dpdk: Option<String>,
}

impl Setting {
    /// In the workspace, with nothing built yet.
    pub(crate) fn of(workspace: Metadata) -> anyhow::Result<Self> {
        let Metadata { root, target_directory: target, .. } = workspace;
        let directory = target.join("compare");
        fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let (ours, peers, crates) = Default::default();
        Ok(Self { root, target, directory, cpus: Vec::new(), dpdk: None, ours, peers, crates })
    }

    /// Builds the peers on the DPDK that was installed with this prefix from now on. Returns its description.
    pub(crate) fn use_dpdk(&mut self, prefix: &Path) -> anyhow::Result<String> {
        let dpdk = Dpdk::installed(Some(prefix))
            .with_context(|| format!("no DPDK was installed with the prefix {}", prefix.display()))?;
        self.dpdk = Some(prefix.to_owned());
        Ok(dpdk.description())
    }

    /// `warmlane bench NAME --serve` with more arguments, on the CPUs of the comparison.
    pub(crate) fn bench(&self, name: &str, arguments: &[&str]) -> anyhow::Result<Command> {
        let mut command = Command::new(self.ours()?);
        command.args(["bench", name, "--serve"]).args(self.cpu_flags()).args(arguments);
        Ok(command)
    }

    /// Our command.
    pub(crate) fn ours(&self) -> anyhow::Result<&PathBuf> {
        once(&self.ours, || {
            built(
                &mut workspace::command_build(&self.root),
                "warmlane",
                &self.target.join("release/warmlane"),
            )
        })
    }

    /// One side of `peers/router_side.sh` against others: each of these a name to show, and the one that is known there. `how`
    /// says what is counted.
    pub(crate) fn router(&self, one: &str, how: &str, others: &[(&str, &str)]) -> anyhow::Result<Sides> {
        let [cpu, generator_cpu] = self.cpus[..] else {
            bail!("the router and who sends to it need two CPUs")
        };
        let ours = self.ours()?;
        // What lies across the border of smaller pages would be copied once more. One side runs at a time.
        let pages = Pages::provide(ROUTER_BYTES);
        let needs_dpdk = |side: &str| ["testpmd", "l3_forward"].contains(&side);
        let peers = match Dpdk::installed(self.dpdk.as_deref()) {
            Some(dpdk) => once(&self.peers, || dpdk.build_peers(&self.root, &self.target))?.clone(),
            None => PathBuf::new(),
        };
        let clock = Clock::calibrated().cycles_per_second();
        let start = |side: &str| {
            let mut command = Command::new(self.root.join("peers/router_side.sh"));
            command
                .args([side, how])
                .args([cpu as u64, generator_cpu as u64, clock].map(|number| number.to_string()));
            command.arg(ours).arg(peers.join("l3_forward"));
            command
        };
        self.by_script(one, others, needs_dpdk, start, pages)
    }

    /// Sides that a script is, one of which is ours, and some of which need DPDK.
    fn by_script<S: Copy>(
        &self,
        ours: S,
        others: &[(&str, S)],
        needs_dpdk: impl Fn(S) -> bool,
        start: impl Fn(S) -> Command,
        pages: Pages,
    ) -> anyhow::Result<Sides> {
        let dpdk = Dpdk::installed(self.dpdk.as_deref());
        let is_needed = others.iter().map(|(_, side)| *side).chain([ours]).any(&needs_dpdk);
        if dpdk.is_none() && is_needed {
            bail!(dpdk::MISSING);
        }
        let start = |side| {
            let mut command = start(side);
            if let Some(dpdk) = &dpdk {
                dpdk.choose(&mut command);
            }
            command
        };
        let peers = others.iter().map(|&(name, side)| {
            let version = dpdk.as_ref().filter(|_| needs_dpdk(side));
            let name =
                version.map_or_else(|| name.to_owned(), |dpdk| format!("DPDK {} {name}", dpdk.version()));
            (name, start(side))
        });
        let dpdk_used = dpdk.as_ref().filter(|_| is_needed).map(Dpdk::description);
        Ok(Sides { ours: start(ours), peers: peers.collect(), missing: None, pages, dpdk: dpdk_used })
    }

    /// Two processes with a port each, against other such pairs, with frames of so many bytes without check sequence.
    pub(crate) fn pair(&self, ours: Pair, bytes: u32, others: &[(&str, Pair)]) -> anyhow::Result<Sides> {
        let [cpu, second_cpu] = self.cpus[..] else { bail!("two processes need two CPUs") };
        let warmlane = self.ours()?;
        // One pair runs at a time, but all are there.
        let pages = Pages::provide(PAIR_BYTES * (1 + others.len() as u64));
        let needs_dpdk =
            |pair: Pair| [pair.sender, pair.receiver].iter().any(|side| side.starts_with("testpmd"));
        let clock = Clock::calibrated().cycles_per_second();
        let kind = if pages.huge() { "huge" } else { "normal" };
        let start = |pair: Pair| {
            let mut command = Command::new(self.root.join("peers/pair_side.py"));
            command.args([pair.link, pair.sender, pair.receiver, &bytes.to_string()]);
            command.args([cpu as u64, second_cpu as u64, clock].map(|number| number.to_string()));
            command.arg(kind).arg(warmlane);
            command
        };
        self.by_script(ours, others, needs_dpdk, start, pages)
    }

    /// A program of ours that sends back what comes by a card of a virtual machine, against others there (a name to show, and the one that it has for
    /// `tests/src/bin/guest_side.rs`), with frames of so many bytes without check sequence.
    pub(crate) fn guest(&self, card: &str, bytes: u32, others: &[(&str, &str)]) -> anyhow::Result<Sides> {
        let [cpu, second_cpu] = self.cpus[..] else { bail!("a machine and who sends to it need two CPUs") };
        let warmlane = self.ours()?;
        let mut build = workspace::cargo();
        build.args(["build", "--package", "warmlane-system-tests", "--bin", "guest_side"]);
        build.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target);
        let side = built(&mut build, "tests/src/bin/guest_side.rs", &self.target.join("debug/guest_side"))?;
        let start = |program: &str| {
            let mut command = Command::new(&side);
            command.args([card, program, &bytes.to_string(), &cpu.to_string(), &second_cpu.to_string()]);
            command.arg(warmlane);
            command
        };
        // Memory of a machine isn't on huge pages here.
        self.by_script("warmlane", others, |side| side.starts_with("testpmd"), start, Pages::provide(0))
    }

    /// TCP through or to a path of the router against the kernel alone, by `peers/router_tcp_side.sh`.
    pub(crate) fn router_tcp(&self, path: &str, how: &str) -> anyhow::Result<Sides> {
        self.tcp(path, how, ("the kernel", "kernel"))
    }

    /// TCP by a way of the same script, against another one that has a name for readers, too.
    pub(crate) fn tcp(&self, way: &str, how: &str, peer: (&str, &str)) -> anyhow::Result<Sides> {
        let (ours, clock) = (self.ours()?, Clock::calibrated().cycles_per_second());
        let start = |who: &str| {
            let mut command = Command::new(self.root.join("peers/router_tcp_side.sh"));
            command.args([who, how, &clock.to_string()]).arg(ours);
            command
        };
        let peers = vec![(peer.0.to_owned(), start(peer.1))];
        Ok(Sides { ours: start(way), peers, missing: None, pages: Pages::provide(ROUTER_BYTES), dpdk: None })
    }

    /// What a BPF program takes to find out where a packet goes, by `peers/lookup_side.py`: from the kernel against a map.
    pub(crate) fn router_lookup(&self) -> anyhow::Result<Sides> {
        let [cpu, ..] = self.cpus[..] else { bail!("a lookup needs a CPU") };
        let clock = Clock::calibrated().cycles_per_second();
        let start = |who: &str| {
            let mut command = Command::new("taskset");
            command.args(["--cpu-list", &cpu.to_string()]).arg(self.root.join("peers/lookup_side.py"));
            command.args([who, &clock.to_string()]).arg(self.root.join("functions/forward/data/ipv4.table"));
            command
        };
        let peers = vec![("BPF_MAP_TYPE_LPM_TRIE".to_owned(), start("trie"))];
        Ok(Sides { ours: start("kernel"), peers, missing: None, pages: Pages::provide(0), dpdk: None })
    }

    /// Ours, which takes so much huge-page memory, against programs on DPDK.
    pub(crate) fn against_dpdk(
        &self,
        ours: Command,
        our_mebibytes: u64,
        programs: &[Program<'_>],
    ) -> anyhow::Result<Sides> {
        // Of many, only the fastest few run at once.
        let mut theirs: Vec<u64> = programs.iter().map(|program| program.mebibytes).collect();
        theirs.sort_unstable();
        let theirs: u64 = theirs.iter().rev().take(FINALISTS).sum();
        let pages = Pages::provide((our_mebibytes + theirs) << 20);
        let Some(dpdk) = Dpdk::installed(self.dpdk.as_deref()) else {
            let missing = Some(dpdk::MISSING.to_owned());
            return Ok(Sides { ours, peers: Vec::new(), missing, pages, dpdk: None });
        };
        let directory = once(&self.peers, || dpdk.build_peers(&self.root, &self.target))?;
        if let Some(program) = programs.iter().find(|program| !directory.join(program.file).exists()) {
            let missing =
                Some(format!("{} is built from sources of others: peers/README.md says how", program.file));
            return Ok(Sides { ours, peers: Vec::new(), missing, pages, dpdk: None });
        }
        let start = |program| dpdk.command(directory, program, &self.cpus, pages.huge());
        let peers = programs.iter().map(start).collect();
        Ok(Sides { ours, peers, missing: None, pages, dpdk: Some(dpdk.description()) })
    }

    /// Ours against other benches of ours, to find out what a difference between them costs: each a name to show and the
    /// bench's name.
    pub(crate) fn against_ours(&self, ours: Command, benches: &[(&str, &str)]) -> anyhow::Result<Sides> {
        let bench = |&(shown, name): &(&str, &str)| Ok((shown.to_owned(), self.bench(name, &[])?));
        let peers = benches.iter().map(bench).collect::<anyhow::Result<_>>()?;
        Ok(Sides { ours, peers, missing: None, pages: Pages::provide(0), dpdk: None })
    }

    /// Ours, which takes so much huge-page memory, against benches of `peers/crates`: each a name to show, the bench's
    /// name, and more arguments.
    pub(crate) fn against_crates(
        &self,
        ours: Command,
        our_mebibytes: u64,
        benches: &[(&str, &str, &[&str])],
    ) -> anyhow::Result<Sides> {
        let pages = Pages::provide(our_mebibytes << 20);
        let file = once(&self.crates, || {
            let target = self.target.join("peers/crates");
            let mut build = workspace::release_build();
            build
                .args(["--locked", "--manifest-path"])
                .arg(self.root.join("peers/crates/Cargo.toml"))
                .arg("--target-dir")
                .arg(&target);
            built(&mut build, "peers/crates", &target.join("release/warmlane-peers"))
        })?;
        let peers = benches.iter().map(|&(shown, name, arguments)| {
            let mut command = Command::new(file);
            command.arg(name).args(self.cpu_flags()).args(arguments);
            (shown.to_owned(), command)
        });
        Ok(Sides { ours, peers: peers.collect(), missing: None, pages, dpdk: None })
    }

    fn cpu_flags(&self) -> impl Iterator<Item = String> {
        ["--cpu", "--second-cpu"].iter().zip(&self.cpus).map(|(flag, cpu)| format!("{flag}={cpu}"))
    }
}

fn built(build: &mut Command, what: &str, file: &Path) -> anyhow::Result<PathBuf> {
    let status = workspace::run_quietly(build)?;
    if !status.success() {
        bail!("{what} does not build ({status}); what cargo said is above");
    }
    Ok(file.to_owned())
}

fn once(
    cell: &OnceCell<PathBuf>,
    make: impl FnOnce() -> anyhow::Result<PathBuf>,
) -> anyhow::Result<&PathBuf> {
    if let Some(made) = cell.get() {
        return Ok(made);
    }
    let made = make()?;
    Ok(cell.get_or_init(|| made))
}
