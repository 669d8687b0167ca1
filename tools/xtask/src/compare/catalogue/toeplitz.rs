//! The hash of receive-side scaling against DPDK's.

use super::{Comparison, Lanes};
use crate::compare::dpdk::Program;
use crate::compare::setting::{Setting, Sides};

/// Twelve times as fast as bit by bit; but where the processor multiplies matrices, that is faster than tables.
pub(super) const COMPARISONS: &[Comparison] = &[
    Comparison {
        name: "toeplitz",
        unit: "cycles/hash",
        promise: 0.7,
        bound: "two loads for each of 12 bytes, three in a core cycle",
        lanes: Lanes::One,
        prepare: |setting| compare(setting, "toeplitz", "12"),
    },
    Comparison {
        name: "toeplitz-ipv6",
        unit: "cycles/hash",
        promise: 0.4,
        bound: "two loads for each of 36 bytes, three in a core cycle; a part of the tables is in the second level",
        lanes: Lanes::One,
        prepare: |setting| compare(setting, "toeplitz-ipv6", "36"),
    },
];

fn compare(setting: &Setting, bench: &str, bytes: &str) -> anyhow::Result<Sides> {
    let ways = [
        ("rte_softrss_be", ["--bytes", bytes, "--way", "bits"]),
        ("rte_thash_gfni", ["--bytes", bytes, "--way", "gfni"]),
        ("rte_thash_gfni_bulk", ["--bytes", bytes, "--way", "gfni-bulk"]),
    ];
    let matrices = has_matrices();
    let programs: Vec<_> = ways[..if matrices { 3 } else { 1 }]
        .iter()
        .map(|(name, arguments)| Program {
            name: (*name).to_owned(),
            file: "toeplitz",
            mebibytes: 64,
            environment: &[],
            arguments,
        })
        .collect();
    setting.against_dpdk(setting.bench(bench, &[])?, 0, &programs)
}

/// Whether the processor has what the latter two need.
fn has_matrices() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        is_x86_feature_detected!("gfni")
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vbmi")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}
