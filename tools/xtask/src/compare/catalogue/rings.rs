//! Rings against rte_ring and crates.

use super::{Comparison, Lanes};
use crate::compare::dpdk::Program;
use crate::compare::setting::{Setting, Sides};

/// An element of 8 bytes goes to the other CPU in a line, and the line comes back to be filled again.
const LINES: f64 = 2.0 * 8.0 / 64.0;

const BOUND: &str = "each line of 8 elements moves twice: 0.25 lines per element; streamed, when neither side waits for the \
                     other, a line takes 5 to 7 cycles on a Zen 4 EPYC, so 1.5 to 2 cycles per element at most, less where \
                     both directions overlap";

pub(super) const COMPARISONS: &[Comparison] = &[
    between_lanes("ring-spsc", 1.5, |setting| two_lanes(setting, "ring-spsc", "sp-sc", "32")),
    between_lanes("ring-spsc-bulk-8", 1.5, |setting| two_lanes(setting, "ring-spsc-bulk-8", "sp-sc", "8")),
    between_lanes("ring-spsc-in-place", 1.2, |setting| {
        two_lanes(setting, "ring-spsc-in-place", "zero-copy", "32")
    }),
    Comparison {
        name: "ring-spsc-one-lane",
        unit: "cycles/element",
        promise: 1.2,
        bound: "in each direction one load and half a store of 16 bytes per element: 1 cycle with two loads a cycle",
        lanes: Lanes::One,
        prepare: one_lane,
    },
    between_lanes("ring-spsc-crates", 1.5, crates),
    between_lanes("ring-mpmc", 1.5, |setting| two_lanes(setting, "ring-mpmc", "mp-mc", "32")),
    between_lanes("ring-hts", 1.0, |setting| two_lanes(setting, "ring-hts", "hts", "32")),
    between_lanes("ring-rts", 1.0, |setting| two_lanes(setting, "ring-rts", "rts", "32")),
];

/// Elements that go from one lane to another.
const fn between_lanes(
    name: &'static str,
    promise: f64,
    prepare: fn(&Setting) -> anyhow::Result<Sides>,
) -> Comparison {
    let lanes = Lanes::Two { lines: LINES };
    Comparison { name, unit: "cycles/element", promise, bound: BOUND, lanes, prepare }
}

/// Memory of the peer: the ring is small, DPDK itself is not.
const MEBIBYTES: u64 = 64;

fn two_lanes(setting: &Setting, bench: &str, sync: &str, burst: &str) -> anyhow::Result<Sides> {
    let ours = setting.bench(bench, &[])?;
    // DPDK's own examples pause once when a ring is full or empty. As many times as ours does may suit it better.
    let peers = ["1", "16"].map(|pauses| {
        (
            format!("rte_ring {sync}, bulk {burst}, {pauses} pauses"),
            ["--sync", sync, "--burst", burst, "--pauses", pauses],
        )
    });
    let programs = peers.each_ref().map(|(name, arguments)| Program {
        name: name.clone(),
        file: "rings",
        mebibytes: MEBIBYTES,
        environment: &[],
        arguments,
    });
    setting.against_dpdk(ours, 0, &programs)
}

fn one_lane(setting: &Setting) -> anyhow::Result<Sides> {
    let ours = setting.bench("ring-spsc-one-lane", &[])?;
    let peer = Program {
        name: "rte_ring sp-sc, bulk 32, one lane".to_owned(),
        file: "rings",
        mebibytes: MEBIBYTES,
        environment: &[],
        arguments: &["--sync", "sp-sc", "--lanes", "1"],
    };
    setting.against_dpdk(ours, 0, &[peer])
}

fn crates(setting: &Setting) -> anyhow::Result<Sides> {
    let ours = setting.bench("ring-spsc", &[])?;
    setting.against_crates(
        ours,
        0,
        &[
            ("rtrb, chunks of 32", "ring-rtrb", &[]),
            ("crossbeam ArrayQueue, one by one", "ring-array-queue", &[]),
        ],
    )
}
