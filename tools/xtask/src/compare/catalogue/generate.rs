//! Generating packets against testpmd.

use super::pool::transmitting;
use super::{Comparison, Lanes};
use crate::compare::dpdk::Program;
use crate::compare::setting::{Setting, Sides};

pub(super) const COMPARISONS: &[Comparison] = &[
    Comparison {
        name: "gen-null",
        unit: "cycles/packet",
        promise: 1.5,
        bound: "two lines written a packet, header and frame, both in the first-level cache: some 60 instructions (a random \
                number, two checksums, a signature) over issue width",
        lanes: Lanes::One,
        prepare: |setting| {
            against(setting, "gen-null", &["--signed", "1"], "random, signed, right checksums")
        },
    },
    Comparison {
        name: "gen-null-counted",
        unit: "cycles/packet",
        promise: 1.5,
        bound: "two lines written a packet, header and frame, both in the first-level cache: instructions over issue width",
        lanes: Lanes::One,
        prepare: |setting| {
            against(setting, "gen-null-counted", &["--multi-flow", "1"], "as testpmd txonly, multi-flow")
        },
    },
];

/// testpmd itself, with bursts of the size that serves it best, and a program that prepares packets without `net_null`, which frees
/// them one by one: as `prepared` says, which is `what`.
fn against(setting: &Setting, bench: &str, prepared: &[&str], what: &str) -> anyhow::Result<Sides> {
    let options = |burst: &'static str| {
        [
            "-i",
            "--forward-mode=txonly",
            "--txonly-multi-flow",
            "--txpkts=60",
            burst,
            "--mbcache=512",
            "--total-num-mbufs=16383",
        ]
    };
    let (small, large) = (options("--burst=64"), options("--burst=256"));
    let peer = |arguments: &'static str, options| Program {
        name: format!("testpmd txonly, multi-flow, net_null, {arguments}"),
        file: "testpmd_txonly",
        mebibytes: 64,
        environment: &["--vdev=net_null0"],
        arguments: options,
    };
    let packets = |sink, burst| [&transmitting(sink, burst)[..], prepared].concat();
    let (freed, returned) = (packets("free", "64"), packets("return", "64"));
    let without_driver = |how, arguments| Program {
        name: format!("{what}, {how}"),
        file: "pool",
        mebibytes: 64,
        environment: &[],
        arguments,
    };
    let peers = [
        peer("bursts of 64", &small),
        peer("bursts of 256", &large),
        without_driver("rte_pktmbuf_free_bulk", &freed),
        without_driver("rte_mempool_put_bulk", &returned),
    ];
    setting.against_dpdk(setting.bench(bench, &[])?, 64, &peers)
}
