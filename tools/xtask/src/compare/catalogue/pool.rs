//! Pools against rte_mempool and rte_mbuf.

use super::{Comparison, Lanes};
use crate::compare::dpdk::Program;
use crate::compare::setting::{Setting, Sides};

const TWO_LANES_BOUND: &str = "the header's line and the frame's (24 or 1) each move to the second lane and back, and 12 bytes \
                               of indices: lines over what the cores' path to the shared cache carries";

/// Lines that move per packet: header and frame to the second lane and back; names in the ring and in the magazines.
const fn lines(frame: f64) -> f64 {
    2.0 * (1.0 + frame) + 12.0 / 64.0
}

/// Whole frames, 20,000 of which stay between the lanes.
const HELD: &[&str] = &["--bytes", "1520", "--held", "20000", "--ring", "32768"];

const WHOLE: Lanes = Lanes::Two { lines: lines(24.0) };
const HEADER: Lanes = Lanes::Two { lines: lines(1.0) };

pub(super) const COMPARISONS: &[Comparison] = &[
    Comparison {
        name: "pool-one-lane",
        unit: "cycles/packet",
        promise: 2.0,
        bound: "instructions a packet over issue width; nothing leaves the first-level cache",
        lanes: Lanes::One,
        prepare: one_lane,
    },
    two_lanes("pool-two-lanes", 1.2, WHOLE, |setting| {
        against_all(setting, "pool-two-lanes", &["--bytes", "1520"])
    }),
    two_lanes("pool-two-lanes-ring", 3.0, WHOLE, |setting| {
        let ours = setting.bench("pool-two-lanes", &[])?;
        setting.against_dpdk(
            ours,
            OURS,
            &[pool("ring_mp_mc, cache 256", &["--kind", "ring_mp_mc", "--cache", "256"])],
        )
    }),
    two_lanes("pool-two-lanes-ring-held", 3.0, WHOLE, |setting| {
        let ours = setting.bench("pool-two-lanes-held", &[])?;
        let ring = ["--kind", "ring_mp_mc", "--cache", "256"];
        let arguments = [&ring[..], HELD].concat();
        setting.against_dpdk(ours, OURS, &[pool("ring_mp_mc, cache 256", &arguments)])
    }),
    two_lanes("pool-two-lanes-8191", 1.2, WHOLE, |setting| {
        against_all(setting, "pool-two-lanes-8191", &["--bytes", "1520", "--buffers", "8191"])
    }),
    two_lanes("pool-two-lanes-held", 1.2, WHOLE, |setting| against_all(setting, "pool-two-lanes-held", HELD)),
    two_lanes("pool-two-lanes-header", 1.1, HEADER, |setting| {
        against_all(setting, "pool-two-lanes-header", &["--bytes", "64"])
    }),
    two_lanes("pool-two-lanes-header-8191", 1.1, HEADER, |setting| {
        against_all(setting, "pool-two-lanes-header-8191", &["--bytes", "64", "--buffers", "8191"])
    }),
    two_lanes("pool-two-lanes-header-held", 1.1, HEADER, |setting| {
        against_all(
            setting,
            "pool-two-lanes-header-held",
            &["--bytes", "64", "--held", "20000", "--ring", "32768"],
        )
    }),
    Comparison {
        name: "tx-null",
        unit: "cycles/packet",
        promise: 1.5,
        bound: "two lines written a packet, header and frame, both in the first-level cache: instructions over issue width",
        lanes: Lanes::One,
        prepare: tx_null,
    },
];

/// Huge-page memory of ours for the largest pool, and of each peer.
const OURS: u64 = 160;
const THEIRS: u64 = 224;

const fn two_lanes(
    name: &'static str,
    promise: f64,
    lanes: Lanes,
    prepare: fn(&Setting) -> anyhow::Result<Sides>,
) -> Comparison {
    Comparison { name, unit: "cycles/packet", promise, bound: TWO_LANES_BOUND, lanes, prepare }
}

fn pool<'a>(what: &str, arguments: &'a [&'a str]) -> Program<'a> {
    Program { name: format!("pool ({what})"), file: "pool", mebibytes: THEIRS, environment: &[], arguments }
}

/// Against every kind of pool that DPDK has, with small and large lane caches and bursts, and with lanes that ask for the lines of packets
/// in several distances ahead. A pool without lane caches is slower however it is used, so one way will do.
fn against_all(setting: &Setting, name: &str, arguments: &[&str]) -> anyhow::Result<Sides> {
    const WITH_CACHE: &[(&str, &str, &str)] = &[
        ("256", "32", "0"),
        ("256", "32", "8"),
        ("256", "32", "32"),
        ("256", "64", "8"),
        ("256", "64", "64"),
        ("512", "32", "0"),
        ("512", "32", "8"),
        ("512", "32", "32"),
        ("512", "64", "8"),
        ("512", "64", "64"),
    ];
    let ways = |kind| WITH_CACHE.iter().chain(&[("0", "32", "32")]).map(move |&way| (kind, way));
    let ways: Vec<_> = ["ring_mp_mc", "stack", "lf_stack"].into_iter().flat_map(ways).collect();
    let all: Vec<Vec<&str>> = ways
        .iter()
        .map(|&(kind, (cache, burst, ahead))| {
            let way = ["--kind", kind, "--cache", cache, "--burst", burst, "--ahead", ahead];
            [&way[..], arguments].concat()
        })
        .collect();
    let programs: Vec<_> = ways
        .iter()
        .zip(&all)
        .map(|((kind, (cache, burst, ahead)), arguments)| {
            pool(&format!("{kind}, cache {cache}, bursts of {burst}, asks {ahead} ahead"), arguments)
        })
        .collect();
    setting.against_dpdk(setting.bench(name, &[])?, OURS, &programs)
}

fn one_lane(setting: &Setting) -> anyhow::Result<Sides> {
    let arguments = ["--mode", "one-lane", "--cache", "512", "--buffers", "16383"];
    let peer = pool("rte_pktmbuf_alloc_bulk, free_bulk, cache 512", &arguments);
    setting.against_dpdk(setting.bench("pool-one-lane", &[])?, 64, &[peer])
}

/// What prepares packets as testpmd's txonly does: transmitted to its `net_null`, which frees them one by one and counts with a locked
/// addition, and without that driver, freed in bulk.
fn tx_null(setting: &Setting) -> anyhow::Result<Sides> {
    let arguments = |sink| transmitting(sink, "32");
    let (port, free, put) = (arguments("port"), arguments("free"), arguments("return"));
    let mut null = pool("as testpmd txonly, net_null", &port);
    null.environment = &["--vdev=net_null0"];
    let freed = pool("as testpmd txonly, rte_pktmbuf_free_bulk", &free);
    let returned = pool("as testpmd txonly, rte_mempool_put_bulk", &put);
    setting.against_dpdk(setting.bench("tx-null", &[])?, 64, &[null, freed, returned])
}

/// Options of `peers/pool.c` that prepares packets of 64 bytes.
pub(super) fn transmitting<'a>(sink: &'a str, burst: &'a str) -> Vec<&'a str> {
    let shape = ["--mode", "transmit", "--bytes", "64", "--cache", "512", "--buffers", "16383"];
    [&shape[..], &["--sink", sink, "--burst", burst]].concat()
}
