//! What the programs of kernel paths have counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use warmlane_bpf::PerCpuArrayMap;
use warmlane_counters::{Description, Entry, Labels, Role, Source};

use super::choice::Path;
use super::copies::{CopyError, CopySource, PathCopies};
use super::layout::Counters;
use super::reason::{Action, ActionReason};

/// What came in by an interface on a kernel path: `received = forwarded + passed + dropped`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PathReport {
    /// The interface.
    pub interface: String,
    /// Its path.
    pub path: String,
    /// Packets that the program saw; a super-frame is one.
    pub received: u64,
    /// Their bytes, with Ethernet headers.
    pub bytes: u64,
    /// Packets that left by another interface.
    pub forwarded: u64,
    /// Those of them that left past netfilter, as they are of established flows.
    pub established: u64,
    /// Packets that the kernel got.
    pub passed: u64,
    /// Packets that nobody got.
    pub dropped: u64,
    /// What was passed, by reason.
    pub passes: BTreeMap<&'static str, u64>,
    /// What was dropped, by reason.
    pub drops: BTreeMap<&'static str, u64>,
}

/// Reads what the program of an interface counts, also when it has ended.
#[derive(Clone, Debug)]
pub struct PathView {
    pub(super) interface: String,
    pub(super) path: Path,
    pub(super) counters: Arc<PerCpuArrayMap<Counters>>,
    pub(super) reasons: Arc<PerCpuArrayMap<u64>>,
    pub(super) copies: CopySource,
}

impl PathView {
    /// What was counted so far.
    pub fn report(&self) -> PathReport {
        let counters = self.sum();
        let mut report = PathReport {
            interface: self.interface.clone(),
            path: self.path.to_string(),
            received: counters.received,
            bytes: counters.bytes,
            ..PathReport::default()
        };
        for (reason, count) in self.reasons().filter(|(_, count)| *count > 0) {
            match reason.action {
                Action::Forwarded => {
                    report.forwarded += count;
                    if reason.name == "established" {
                        report.established = count;
                    }
                }
                Action::Passed => {
                    report.passed += count;
                    report.passes.insert(reason.name, count);
                }
                Action::Dropped => {
                    report.dropped += count;
                    report.drops.insert(reason.name, count);
                }
            }
        }
        report
    }

    /// The interface's name.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Its path.
    pub const fn path(&self) -> Path {
        self.path
    }

    /// Has one packet in so many copied that comes in from now on, as it comes, and no more than so many bytes of it, nor more than 2,016.
    /// Who calls it needs `CAP_BPF`, and so does who reads, before Linux 5.19.
    ///
    /// # Errors
    /// [`CopyError`]: somebody else has them copied, or the kernel refuses.
    pub fn copies(&self, one_in: u32, snap_length: u32) -> Result<PathCopies, CopyError> {
        self.copies.begin(&self.interface, one_in, snap_length)
    }

    /// What the registry knows it by.
    pub fn labels(&self) -> Labels {
        Labels::new().with("interface", &self.interface).with("path", self.path)
    }

    /// Packets by reason, of all CPUs.
    fn reasons(&self) -> impl Iterator<Item = (&'static ActionReason, u64)> {
        (0..)
            .zip(&ActionReason::ALL)
            .map(|(index, reason)| (reason, self.reasons.get(index).unwrap_or_default().into_iter().sum()))
    }

    /// Of all CPUs. The map has this one element, so reading it can't fail.
    fn sum(&self) -> Counters {
        let mut sum = Counters::default();
        for counters in self.counters.get(0).unwrap_or_default() {
            sum.received += counters.received;
            sum.bytes += counters.bytes;
        }
        sum
    }
}

impl Source for PathView {
    fn read(&self, each: &mut dyn FnMut(Entry)) {
        let counters = self.sum();
        let of = |name, unit, help, role| Description { set: "path", name, unit, help, role };
        let packets =
            of("received", "packets", "Packets that the program saw; a super-frame is one", Role::In);
        each(Entry::of(packets, counters.received));
        let bytes = of("received-bytes", "bytes", "Their bytes, with Ethernet headers", Role::Note);
        each(Entry::of(bytes, counters.bytes));
        for (reason, count) in self.reasons() {
            each(Entry::of(of(reason.name, "packets", reason.help, Role::Out), count));
        }
    }
}
