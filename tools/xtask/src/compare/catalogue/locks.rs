//! Locks against DPDK's and parking_lot's.

use super::{Comparison, Lanes};
use crate::compare::dpdk::Program;
use crate::compare::setting::{Setting, Sides};

/// The line with the lock and the count has to come from the other CPU and, for who comes next to learn of it, go back.
const CONTENDED: Lanes = Lanes::Two { lines: 1.0 };
const CONTENDED_BOUND: &str =
    "per lock one line from CPU to CPU, in a fair lock; an unfair one can keep it for some time";
const ALONE_BOUND: &str =
    "one locked instruction to lock and a plain store to unlock; for MCS two locked instructions";

pub(super) const COMPARISONS: &[Comparison] = &[
    Comparison {
        name: "locks",
        unit: "cycles/lock",
        promise: 1.0,
        bound: CONTENDED_BOUND,
        lanes: CONTENDED,
        prepare: |setting| contended(setting, "lock-ticket-two-lanes", "ticket"),
    },
    Comparison {
        name: "locks-mcs",
        unit: "cycles/lock",
        promise: 1.0,
        bound: CONTENDED_BOUND,
        lanes: CONTENDED,
        prepare: |setting| contended(setting, "lock-mcs-two-lanes", "mcs"),
    },
    Comparison {
        name: "locks-spin",
        unit: "cycles/lock",
        promise: 1.0,
        bound: CONTENDED_BOUND,
        lanes: Lanes::Two { lines: 0.0 },
        prepare: |setting| contended(setting, "lock-spin-two-lanes", "spin"),
    },
    Comparison {
        name: "locks-ticket-alone",
        unit: "cycles/lock",
        promise: 1.0,
        bound: ALONE_BOUND,
        lanes: Lanes::One,
        prepare: |setting| alone(setting, "lock-ticket", "ticket"),
    },
    Comparison {
        name: "locks-mcs-alone",
        unit: "cycles/lock",
        promise: 1.0,
        bound: ALONE_BOUND,
        lanes: Lanes::One,
        prepare: |setting| alone(setting, "lock-mcs", "mcs"),
    },
    Comparison {
        name: "locks-spin-alone",
        unit: "cycles/lock",
        promise: 1.0,
        bound: ALONE_BOUND,
        lanes: Lanes::One,
        prepare: |setting| alone(setting, "lock-spin", "spin"),
    },
    Comparison {
        name: "locks-spin-crates",
        unit: "cycles/lock",
        promise: 1.0,
        bound: CONTENDED_BOUND,
        lanes: Lanes::Two { lines: 0.0 },
        prepare: |setting| {
            let ours = setting.bench("lock-spin-two-lanes", &[])?;
            setting.against_crates(ours, 0, &[("parking_lot Mutex", "parking-lot-two-lanes", &[])])
        },
    },
    Comparison {
        name: "locks-spin-alone-crates",
        unit: "cycles/lock",
        promise: 1.0,
        bound: ALONE_BOUND,
        lanes: Lanes::One,
        prepare: |setting| {
            let ours = setting.bench("lock-spin", &[])?;
            setting.against_crates(ours, 0, &[("parking_lot Mutex", "parking-lot", &[])])
        },
    },
];

fn alone(setting: &Setting, bench: &str, lock: &'static str) -> anyhow::Result<Sides> {
    against(setting, bench, lock, &["--lock", lock])
}

fn contended(setting: &Setting, bench: &str, lock: &'static str) -> anyhow::Result<Sides> {
    against(setting, bench, lock, &["--lock", lock, "--contended"])
}

fn against(setting: &Setting, bench: &str, lock: &str, arguments: &[&str]) -> anyhow::Result<Sides> {
    let ours = setting.bench(bench, &[])?;
    let name = format!("rte_{lock}lock");
    let peer = Program { name, file: "locks", mebibytes: 32, environment: &[], arguments };
    setting.against_dpdk(ours, 0, &[peer])
}
