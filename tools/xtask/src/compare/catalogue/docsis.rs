//! The CRC and the encryption of DOCSIS against libipsec-mb.

use super::{Comparison, Lanes};
use crate::compare::dpdk::Program;
use crate::compare::setting::{Setting, Sides};

const BOUND: &str = "ten rounds of AES for each 16 bytes of 16 frames side by side: the latency of a round times ten, or the rounds over what the processor begins \
                     in a cycle, four blocks on Zen 4; a tenth more for the CRC";

pub(super) const COMPARISONS: &[Comparison] = &[
    comparison("docsis-crypto", |setting| compare(setting, "docsis-crypto", "1518")),
    comparison("docsis-crypto-570", |setting| compare(setting, "docsis-crypto-570", "570")),
    comparison("docsis-crypto-64", |setting| compare(setting, "docsis-crypto-64", "64")),
];

const fn comparison(name: &'static str, prepare: fn(&Setting) -> anyhow::Result<Sides>) -> Comparison {
    Comparison { name, unit: "cycles/frame", promise: 1.0, bound: BOUND, lanes: Lanes::One, prepare }
}

fn compare(setting: &Setting, bench: &str, bytes: &str) -> anyhow::Result<Sides> {
    let (job, burst) = (["--bytes", bytes, "--api", "job"], ["--bytes", bytes, "--api", "burst"]);
    let program = |name: &str, arguments| Program {
        name: name.to_owned(),
        file: "docsis_crypto",
        mebibytes: 64,
        environment: &[],
        arguments,
    };
    let programs = [program("libipsec-mb, jobs", &job), program("libipsec-mb, bursts", &burst)];
    setting.against_dpdk(setting.bench(bench, &[])?, 0, &programs)
}
