//! Copies against rte_memcpy and the C library's memcpy.

use super::{Comparison, Lanes};
use crate::compare::dpdk::Program;
use crate::compare::setting::{Setting, Sides};

pub(super) const COMPARISONS: &[Comparison] = &[
    Comparison {
        name: "copy",
        unit: "cycles/copy",
        promise: 1.0,
        bound: "32 bytes a core cycle, what Zen 4 stores to its first level; small sizes: one store and the loop around it",
        lanes: Lanes::One,
        prepare: |setting| compare(setting, "copy", "cache-cache"),
    },
    Comparison {
        name: "copy-to-memory",
        unit: "cycles/copy",
        promise: 1.0,
        bound: "lines written, each read before and written back after: the bandwidth of memory over the lines under way at once",
        lanes: Lanes::One,
        prepare: |setting| compare(setting, "copy-to-memory", "cache-memory"),
    },
    Comparison {
        name: "copy-from-memory",
        unit: "cycles/copy",
        promise: 1.0,
        bound: "lines read: the latency of memory over the misses that a core has under way at once",
        lanes: Lanes::One,
        prepare: |setting| compare(setting, "copy-from-memory", "memory-cache"),
    },
    Comparison {
        name: "copy-in-memory",
        unit: "cycles/copy",
        promise: 1.0,
        bound: "lines read and written, each of the latter read before and written back after: the bandwidth of memory",
        lanes: Lanes::One,
        prepare: |setting| compare(setting, "copy-in-memory", "memory-memory"),
    },
];

/// All sides work on transparent huge pages, so that DPDK needs no others.
fn compare(setting: &Setting, bench: &str, place: &str) -> anyhow::Result<Sides> {
    let program = |name: &str, arguments| Program {
        name: name.to_owned(),
        file: "copy",
        mebibytes: 64,
        environment: &[],
        arguments,
    };
    let (rte, library) = (["rte", place], ["library", place]);
    let programs = [program("rte_memcpy", &rte), program("with glibc's memcpy", &library)];
    setting.against_dpdk(setting.bench(bench, &[])?, 0, &programs)
}
