//! Cutting packets for a link, and merging what was cut, against DPDK's libraries.

use super::{Comparison, Lanes};
use crate::compare::dpdk::Program;
use crate::compare::setting::{Setting, Sides};

pub(super) const COMPARISONS: &[Comparison] = &[
    Comparison {
        name: "gso",
        unit: "cycles/segment",
        promise: 1.2,
        bound: "per segment 1,514 bytes are read and summed up, and written if there are no devices that gather them; a line takes a cycle or two each way in the second level",
        lanes: Lanes::One,
        prepare: |setting| compare(setting, "gso", "cut", "rte_gso_segment, rte_ipv4_udptcp_cksum_mbuf"),
    },
    Comparison {
        name: "gro",
        unit: "cycles/segment",
        promise: 1.2,
        bound: "per segment two lines: the buffer's header and the first one of the frame",
        lanes: Lanes::One,
        prepare: |setting| compare(setting, "gro", "merge", "rte_gro_reassemble_burst"),
    },
];

fn compare(setting: &Setting, bench: &str, way: &str, name: &str) -> anyhow::Result<Sides> {
    let program = Program {
        name: name.to_owned(),
        file: "segments",
        mebibytes: 64,
        environment: &[],
        arguments: &["--way", way],
    };
    setting.against_dpdk(setting.bench(bench, &[])?, 64, &[program])
}
