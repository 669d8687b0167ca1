//! Exact match against rte_hash.

use super::{Comparison, Lanes};
use crate::compare::dpdk::Program;
use crate::compare::setting::{Setting, Sides};

pub(super) const COMPARISONS: &[Comparison] = &[
    Comparison {
        name: "exact",
        unit: "cycles/lookup",
        promise: 1.5,
        bound: "per lookup 1.15 random lines of 29 MiB (three keys in twenty are in their second bucket), at the rate at which the \
                second-level cache can wait for lines: latency over 24 to 32 of them at once; rte_hash reads two and more",
        lanes: Lanes::One,
        prepare: lookup,
    },
    Comparison {
        name: "exact-concurrent",
        unit: "cycles/lookup",
        promise: 1.5,
        bound: "as for exact, and for each of 100,000 flows a second that a second lane replaces the lines that it has written; the peer with \
                RTE_HASH_EXTRA_FLAGS_RW_CONCURRENCY_LF, which ours always has",
        lanes: Lanes::Two { lines: 0.0 },
        prepare: concurrent_lookup,
    },
    Comparison {
        name: "exact-insert",
        unit: "cycles/insertion",
        promise: 1.5,
        bound: "one line of 29 MiB that nothing can ask for early: its latency over the five or six insertions that a core has room \
                to begin before the first ends",
        lanes: Lanes::One,
        prepare: insert,
    },
    Comparison {
        name: "exact-insert-burst",
        unit: "cycles/insertion",
        promise: 1.5,
        bound: "as for exact-insert, the lines of 64 insertions asked for at once; the peer has no such call",
        lanes: Lanes::One,
        prepare: insert_burst,
    },
    Comparison {
        name: "exact-crates",
        unit: "cycles/lookup",
        promise: 1.5,
        bound: "as for exact; the peer has no bulk lookup and can't be read while it changes",
        lanes: Lanes::One,
        prepare: crate_lookup,
    },
    Comparison {
        name: "exact-insert-crates",
        unit: "cycles/insertion",
        promise: 0.5,
        bound: "as for exact-insert; the peer has no readers to be told, so ours may take twice as long",
        lanes: Lanes::One,
        prepare: crate_insert,
    },
    of_size("exact-1000", |setting| lookup_among(setting, 1_000)),
    of_size("exact-10000", |setting| lookup_among(setting, 10_000)),
    of_size("exact-100000", |setting| lookup_among(setting, 100_000)),
    of_size("exact-1000000", |setting| lookup_among(setting, 1_000_000)),
    of_size("exact-10000000", |setting| lookup_among(setting, 10_000_000)),
];

/// `exact` with another number of flows, for the plot of what they cost as they grow.
const fn of_size(name: &'static str, prepare: fn(&Setting) -> anyhow::Result<Sides>) -> Comparison {
    Comparison {
        name,
        unit: "cycles/lookup",
        promise: 1.5,
        bound: "as for exact, at the latency of the level that holds the table",
        lanes: Lanes::One,
        prepare,
    }
}

fn crate_lookup(setting: &Setting) -> anyhow::Result<Sides> {
    setting.against_crates(
        setting.bench("exact", &[])?,
        OUR_MEBIBYTES,
        &[("hashbrown", "exact-hashbrown", &[])],
    )
}

fn crate_insert(setting: &Setting) -> anyhow::Result<Sides> {
    let peers: &[(&str, &str, &[&str])] = &[("hashbrown", "exact-insert-hashbrown", &[])];
    setting.against_crates(setting.bench("exact-insert", &[])?, OUR_MEBIBYTES, peers)
}

/// For a table of a million slots, its key store, and the keys.
const PEER_MEBIBYTES: u64 = 192;
/// Tables ask for transparent huge pages, not for reserved ones.
const OUR_MEBIBYTES: u64 = 0;

fn lookup(setting: &Setting) -> anyhow::Result<Sides> {
    let ours = setting.bench("exact", &[])?;
    let peers = [
        peer("lookup_bulk", &["--operation", "lookup"]),
        peer("lookup_bulk_data", &["--operation", "lookup-data"]),
        peer("lookup_bulk, half full", &["--operation", "lookup", "--slots", "2097152"]),
    ];
    setting.against_dpdk(ours, OUR_MEBIBYTES, &peers)
}

fn lookup_among(setting: &Setting, flows: u32) -> anyhow::Result<Sides> {
    // The smallest table that takes so many for certain, and a roomy one.
    let slots = (flows + flows / 20).next_power_of_two();
    let [flows, full, roomy] = [flows, slots, 2 * slots].map(|number| number.to_string());
    let ours = setting.bench("exact", &["--entries", &flows])?;
    let arguments = |slots| ["--operation", "lookup", "--flows", &flows, "--slots", slots];
    let [full, roomy] = [arguments(&full), arguments(&roomy)];
    let peers = [peer("lookup_bulk", &full), peer("lookup_bulk, half as full", &roomy)];
    // Buckets, keys and their order of at most 2^25 slots.
    let mebibytes = PEER_MEBIBYTES.max((u64::from(slots) * 2 * 80) >> 20);
    setting.against_dpdk(ours, OUR_MEBIBYTES, &peers.map(|peer| Program { mebibytes, ..peer }))
}

fn concurrent_lookup(setting: &Setting) -> anyhow::Result<Sides> {
    let ours = setting.bench("exact-concurrent", &[])?;
    let beside = ["--operation", "lookup-data", "--concurrent", "1", "--writer", "1"];
    let roomy = [&beside[..], &["--slots", "2097152"]].concat();
    let peers = [
        peer("lookup_bulk_data, lock-free", &beside),
        peer("lookup_bulk_data, lock-free, half full", &roomy),
    ];
    setting.against_dpdk(ours, OUR_MEBIBYTES, &peers)
}

fn insert(setting: &Setting) -> anyhow::Result<Sides> {
    insert_against(setting, "exact-insert")
}

fn insert_burst(setting: &Setting) -> anyhow::Result<Sides> {
    insert_against(setting, "exact-insert-burst")
}

fn insert_against(setting: &Setting, bench: &str) -> anyhow::Result<Sides> {
    let ours = setting.bench(bench, &[])?;
    let peers = [
        peer("add_key_data", &["--operation", "insert"]),
        // With room to spare it seldom has to move a key; ours has three tenths of its slots to spare.
        peer("add_key_data, half full", &["--operation", "insert", "--slots", "2097152"]),
        peer("add_key_data, lock-free", &["--operation", "insert", "--concurrent", "1"]),
    ];
    setting.against_dpdk(ours, OUR_MEBIBYTES, &peers)
}

fn peer<'a>(what: &str, arguments: &'a [&'a str]) -> Program<'a> {
    Program {
        name: format!("rte_hash {what}"),
        file: "exact",
        mebibytes: PEER_MEBIBYTES,
        environment: &[],
        arguments,
    }
}
