//! VXLAN tunnel ends against one on DPDK.

use super::{Comparison, Lanes};
use crate::compare::dpdk::Program;
use crate::compare::setting::{Setting, Sides};

pub(super) const COMPARISONS: &[Comparison] = &[
    Comparison {
        name: "vxlan",
        unit: "cycles/packet",
        promise: 1.5,
        bound: "per packet two places of stations, and three lines written: the headers in front, and the frame behind them",
        lanes: Lanes::One,
        prepare: |setting| compare(setting, "vxlan", "encapsulate"),
    },
    Comparison {
        name: "vxlan-decapsulate",
        unit: "cycles/packet",
        promise: 1.5,
        bound: "per packet two places of stations, and 40 bytes of headers to be summed up",
        lanes: Lanes::One,
        prepare: |setting| compare(setting, "vxlan-decapsulate", "decapsulate"),
    },
];

fn compare(setting: &Setting, bench: &str, way: &str) -> anyhow::Result<Sides> {
    let program = Program {
        name: "rte_hash, rte_pktmbuf_prepend and rte_pktmbuf_adj".to_owned(),
        file: "vxlan",
        mebibytes: 64,
        environment: &[],
        arguments: &["--way", way],
    };
    setting.against_dpdk(setting.bench(bench, &[])?, 256, &[program])
}
