//! Longest-prefix match against rte_fib and rte_fib6.
//!
//! rte_lpm is slower than rte_fib and takes most of a minute to load the full table, so it is left to
//! `peers/README.md`.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use anyhow::Context;
use warmlane_forward::control::full_table;
use warmlane_lab::table_inputs::evenly;
use warmlane_sys::simd::{self, Level};

use super::{Comparison, Lanes};
use crate::compare::dpdk::Program;
use crate::compare::setting::{Setting, Sides};

const IPV4_BOUND: &str = "two random lines per lookup, of a root of 4 MiB and hops of 1 MiB, which L2 does not hold: the latency of \
                          L3 over the misses that a core has under way at once";

const IPV6_BOUND: &str = "up to four lines per lookup: the root's from L1, a field's, then of three in five a branch's and a leaf's, of \
                          12 MiB of which 4 MiB are in use: the latency of L3 over the misses under way at once; about 35 \
                          instructions";

pub(super) const COMPARISONS: &[Comparison] = &[
    Comparison {
        name: "lpm4",
        unit: "cycles/lookup",
        promise: 1.4,
        bound: IPV4_BOUND,
        lanes: Lanes::One,
        prepare: |setting| compare(setting, "lpm4", "inside", &["fib-avx512", "fib-scalar"]),
    },
    Comparison {
        name: "lpm4-uniform",
        unit: "cycles/lookup",
        promise: 1.4,
        bound: IPV4_BOUND,
        lanes: Lanes::One,
        prepare: |setting| compare(setting, "lpm4-uniform", "uniform", &["fib-avx512", "fib-scalar"]),
    },
    Comparison {
        name: "lpm4-portable",
        unit: "cycles/lookup",
        promise: 1.1,
        bound: IPV4_BOUND,
        lanes: Lanes::One,
        prepare: |setting| compare(setting, "lpm4-portable", "inside", &["fib-scalar"]),
    },
    Comparison {
        name: "lpm4-live",
        unit: "cycles/lookup",
        // A twentieth may be lost.
        promise: 0.95,
        bound: "a batch of 64 neighbouring changes writes some ten lines that lookups read: 0.2 a change, a hop each less what \
                overlaps, at a million changes a second and some 300 million lookups",
        lanes: Lanes::Two { lines: 0.0006 },
        prepare: |setting| {
            let ours = setting.bench("lpm4-live", &[])?;
            setting.against_ours(ours, &[("the same lookups, nothing changed", "lpm4-live-idle")])
        },
    },
    Comparison {
        name: "lpm4-poptrie",
        unit: "cycles/lookup",
        promise: 2.0,
        bound: IPV4_BOUND,
        lanes: Lanes::One,
        prepare: |setting| against_poptrie(setting, "lpm4", "inside", "poptrie"),
    },
    Comparison {
        name: "lpm4-uniform-poptrie",
        unit: "cycles/lookup",
        promise: 2.0,
        bound: IPV4_BOUND,
        lanes: Lanes::One,
        prepare: |setting| against_poptrie(setting, "lpm4-uniform", "uniform", "poptrie"),
    },
    Comparison {
        name: "lpm6-poptrie",
        unit: "cycles/lookup",
        promise: 2.0,
        bound: IPV6_BOUND,
        lanes: Lanes::One,
        prepare: |setting| against_poptrie(setting, "lpm6", "inside", "poptrie6"),
    },
    Comparison {
        name: "lpm4-crates",
        unit: "cycles/lookup",
        promise: 5.0,
        bound: IPV4_BOUND,
        lanes: Lanes::One,
        prepare: |setting| against_crates(setting, "lpm4"),
    },
    Comparison {
        name: "lpm6-crates",
        unit: "cycles/lookup",
        promise: 5.0,
        bound: IPV6_BOUND,
        lanes: Lanes::One,
        prepare: |setting| against_crates(setting, "lpm6"),
    },
    Comparison {
        name: "lpm6",
        unit: "cycles/lookup",
        promise: 1.5,
        bound: IPV6_BOUND,
        lanes: Lanes::One,
        prepare: |setting| compare(setting, "lpm6", "inside", &["fib6-avx512", "fib6-scalar"]),
    },
    Comparison {
        name: "lpm6-uniform",
        unit: "cycles/lookup",
        // Most addresses have no route, and both sides say so after one line: as fast as the peer, give or take a tenth.
        promise: 0.9,
        bound: "one line of the root for nearly all addresses: some 20 instructions over issue width",
        lanes: Lanes::One,
        prepare: |setting| compare(setting, "lpm6-uniform", "uniform", &["fib6-avx512", "fib6-scalar"]),
    },
    of_size("lpm4-1000", IPV4, |setting| compare_some(setting, IPV4, 1_000)),
    of_size("lpm4-10000", IPV4, |setting| compare_some(setting, IPV4, 10_000)),
    of_size("lpm4-100000", IPV4, |setting| compare_some(setting, IPV4, 100_000)),
    of_size("lpm4-900000", IPV4, |setting| compare_some(setting, IPV4, 900_000)),
    of_size("lpm6-1000", IPV6, |setting| compare_some(setting, IPV6, 1_000)),
    of_size("lpm6-10000", IPV6, |setting| compare_some(setting, IPV6, 10_000)),
    of_size("lpm6-100000", IPV6, |setting| compare_some(setting, IPV6, 100_000)),
    of_size("lpm6-200000", IPV6, |setting| compare_some(setting, IPV6, 200_000)),
];

/// What is compared of a family: the bench, the peer's lookups, the promise and its bound.
#[derive(Clone, Copy)]
struct Family {
    bench: &'static str,
    lookups: [&'static str; 2],
    promise: f64,
    bound: &'static str,
}

const IPV4: Family =
    Family { bench: "lpm4", lookups: ["fib-avx512", "fib-scalar"], promise: 1.4, bound: IPV4_BOUND };

const IPV6: Family =
    Family { bench: "lpm6", lookups: ["fib6-avx512", "fib6-scalar"], promise: 1.5, bound: IPV6_BOUND };

/// `lpm4` or `lpm6` with fewer routes, for the plot of what they cost as they grow.
const fn of_size(
    name: &'static str,
    family: Family,
    prepare: fn(&Setting) -> anyhow::Result<Sides>,
) -> Comparison {
    let Family { promise, bound, .. } = family;
    Comparison { name, unit: "cycles/lookup", promise, bound, lanes: Lanes::One, prepare }
}

fn compare_some(setting: &Setting, family: Family, routes: usize) -> anyhow::Result<Sides> {
    let table = write_table(setting, Some(routes))?;
    let ours = setting.bench(family.bench, &["--entries", &routes.to_string()])?;
    against(setting, ours, &table, "inside", &family.lookups)
}

fn against_crates(setting: &Setting, bench: &str) -> anyhow::Result<Sides> {
    let names = ["ip_network_table", "prefix-trie"].map(|name| (name, format!("{bench}-{name}")));
    let peers = names.each_ref().map(|(shown, name)| (*shown, name.as_str(), &[] as &[&str]));
    setting.against_crates(setting.bench(bench, &[])?, 0, &peers)
}

/// Its program only has the rounds and the memory from DPDK.
fn against_poptrie(
    setting: &Setting,
    bench: &str,
    addresses: &'static str,
    lookup: &'static str,
) -> anyhow::Result<Sides> {
    let table = write_table(setting, None)?;
    let program = Program {
        name: lookup.to_owned(),
        file: "lpm_poptrie",
        mebibytes: 64,
        environment: &[],
        arguments: &["--table", &table, "--lookup", lookup, "--addresses", addresses],
    };
    let mut sides = setting.against_dpdk(setting.bench(bench, &[])?, 0, &[program])?;
    sides.peers.iter_mut().for_each(|(shown, _)| "poptrie".clone_into(shown));
    Ok(sides)
}

/// Writes the full tables of both families, or so many routes of each, to a file, and says which.
fn write_table(setting: &Setting, routes: Option<usize>) -> anyhow::Result<String> {
    let table = setting.directory.join("lpm.prefixes");
    let routes = routes.unwrap_or(usize::MAX);
    let mut text = String::new();
    for prefix in evenly(&full_table::ipv4()?, routes) {
        writeln!(text, "{prefix}")?;
    }
    for prefix in evenly(&full_table::ipv6()?, routes) {
        writeln!(text, "{prefix}")?;
    }
    fs::write(&table, text).with_context(|| format!("cannot write {}", table.display()))?;
    Ok(table.to_str().context("the target directory's path must be UTF-8")?.to_owned())
}

fn compare(setting: &Setting, bench: &str, addresses: &str, lookups: &[&str]) -> anyhow::Result<Sides> {
    against(setting, setting.bench(bench, &[])?, &write_table(setting, None)?, addresses, lookups)
}

/// Ours against the peer with these prefixes.
fn against(
    setting: &Setting,
    ours: Command,
    table: &str,
    addresses: &str,
    lookups: &[&str],
) -> anyhow::Result<Sides> {
    // The peer ends with an error where the processor hasn't what its kernel needs.
    let vector = simd::detected() == Level::Avx512;
    let lookups: Vec<_> = lookups.iter().filter(|lookup| vector || !lookup.ends_with("avx512")).collect();
    let arguments: Vec<_> = lookups
        .iter()
        .map(|lookup| ["--table", table, "--lookup", **lookup, "--addresses", addresses])
        .collect();
    let programs: Vec<_> = lookups
        .iter()
        .zip(&arguments)
        .map(|(lookup, arguments)| Program {
            name: format!("rte_{}", lookup.replace('-', " ").replace("avx512", "AVX-512")),
            file: "lpm",
            mebibytes: if lookup.starts_with("fib6") { 1024 } else { 512 },
            environment: &[],
            arguments,
        })
        .collect();
    setting.against_dpdk(ours, 0, &programs)
}
