//! Internet checksums against rte_raw_cksum.

use super::{Comparison, Lanes};
use crate::compare::dpdk::Program;
use crate::compare::setting::{Setting, Sides};

const BOUND: &str = "64 bytes a core cycle, what the processor loads from its first level; small sizes: eight additions with carry for 64 bytes";

pub(super) const COMPARISONS: &[Comparison] = &[
    comparison("checksum", 1.2, |setting| compare(setting, "checksum", "1500")),
    comparison("checksum-64", 1.0, |setting| compare(setting, "checksum-64", "64")),
    // Here the peer, which is compiled for this very processor, gains from not having to ask what it is.
    comparison("checksum-256", 0.8, |setting| compare(setting, "checksum-256", "256")),
    comparison("checksum-9000", 1.2, |setting| compare(setting, "checksum-9000", "9000")),
];

const fn comparison(
    name: &'static str,
    promise: f64,
    prepare: fn(&Setting) -> anyhow::Result<Sides>,
) -> Comparison {
    Comparison { name, unit: "cycles/sum", promise, bound: BOUND, lanes: Lanes::One, prepare }
}

fn compare(setting: &Setting, bench: &str, bytes: &str) -> anyhow::Result<Sides> {
    let program = Program {
        name: "rte_raw_cksum".to_owned(),
        file: "checksum",
        mebibytes: 64,
        environment: &[],
        arguments: &["--bytes", bytes],
    };
    setting.against_dpdk(setting.bench(bench, &[])?, 0, &[program])
}
