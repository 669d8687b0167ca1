//! The hash of receive-side scaling against DPDK's.

use super::{Comparison, Lanes};
use crate::compare::dpdk::Program;
use crate::compare::setting::{Setting, Sides};

pub(super) const COMPARISONS: &[Comparison] = &[
    Comparison {
        name: "toeplitz",
        unit: "cycles/hash",
        promise: 1.2,
        bound: "for 16 hashes 12 multiplications of matrices of bits, and 29 steps that bring the same bytes of all together; without GFNI, two loads for each of 12 bytes",
        lanes: Lanes::One,
        prepare: |setting| compare(setting, "toeplitz", "12"),
    },
    Comparison {
        name: "toeplitz-ipv6",
        unit: "cycles/hash",
        promise: 1.2,
        bound: "for 16 hashes 36 multiplications of matrices of bits, and 96 steps that bring the same bytes of all together; without GFNI, two loads for each of 36 bytes",
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
