//! What we promise to do better than others, subject by subject.

mod checksum;
mod copy;
mod docsis;
mod exact;
mod forward;
mod generate;
mod locks;
mod lpm;
mod memif;
mod pool;
mod rcu;
mod rings;
mod router;
mod toeplitz;
mod virtio;
mod vxlan;

use anyhow::Context;

use super::setting::{Setting, Sides};

/// Something that we promise to do better than a peer.
pub(crate) struct Comparison {
    /// Its name on the command line, most often that of the bench that is our side.
    pub(crate) name: &'static str,
    /// What both sides count, such as "cycles/packet"; fewer are better.
    pub(crate) unit: &'static str,
    /// The ratio that we promise to the best of the peers.
    pub(crate) promise: f64,
    /// What physics allows at best, in words.
    pub(crate) bound: &'static str,
    pub(crate) lanes: Lanes,
    /// Builds what is needed and says how to start it.
    pub(crate) prepare: fn(&Setting) -> anyhow::Result<Sides>,
}

/// How many CPUs each side keeps busy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Lanes {
    One,
    /// One, to which a program on another CPU sends.
    Fed,
    /// Two, between which so many cache lines must move for each unit, however it is done.
    Two {
        lines: f64,
    },
}

/// Comparisons of one kind of thing, and what they are built of, for records to tell when that has changed.
pub(crate) struct Subject {
    /// The name of its file in this folder.
    pub(crate) name: &'static str,
    comparisons: &'static [Comparison],
    /// The crates that are measured; those that they depend on count, too.
    pub(crate) crates: &'static [&'static str],
    /// Our benches and the peers' programs.
    pub(crate) files: &'static [&'static str],
}

const PEERS_CRATES: &str = "peers/crates";

const SUBJECTS: &[Subject] = &[
    Subject {
        name: "forward",
        comparisons: forward::COMPARISONS,
        crates: &["warmlane-forward", "warmlane-memory"],
        files: &[
            "peers/l3_forward.c",
            "tools/lab/src/benches/fixture.rs",
            "tools/lab/src/benches/forward.rs",
            "tools/xtask/src/compare/traffic.rs",
        ],
    },
    Subject {
        name: "generate",
        comparisons: generate::COMPARISONS,
        crates: &["warmlane-gen", "warmlane-memory"],
        files: &[
            "peers/testpmd_txonly.c",
            "tools/lab/src/benches/fixture.rs",
            "tools/lab/src/benches/generate.rs",
        ],
    },
    Subject {
        name: "pool",
        comparisons: pool::COMPARISONS,
        crates: &["warmlane-memory"],
        files: &[
            "peers/pool.c",
            "tools/lab/src/benches/fixture.rs",
            "tools/lab/src/benches/pool.rs",
            "tools/lab/src/partner.rs",
            "tools/lab/src/two_lanes.rs",
        ],
    },
    Subject {
        name: "rings",
        comparisons: rings::COMPARISONS,
        crates: &["warmlane-sync"],
        files: &["peers/rings.c", PEERS_CRATES, "tools/lab/src/benches/rings.rs", "tools/lab/src/partner.rs"],
    },
    Subject {
        name: "locks",
        comparisons: locks::COMPARISONS,
        crates: &["warmlane-sync"],
        files: &["peers/locks.c", PEERS_CRATES, "tools/lab/src/benches/locks.rs", "tools/lab/src/locked.rs"],
    },
    Subject {
        name: "rcu",
        comparisons: rcu::COMPARISONS,
        crates: &["warmlane-sync"],
        files: &["peers/rcu.c", "tools/lab/src/benches/rcu.rs"],
    },
    Subject {
        name: "lpm",
        comparisons: lpm::COMPARISONS,
        crates: &["warmlane-table"],
        files: &["peers/lpm.c", PEERS_CRATES, "tools/lab/src/benches/lpm.rs", "tools/lab/src/routes.rs"],
    },
    Subject {
        name: "exact",
        comparisons: exact::COMPARISONS,
        crates: &["warmlane-table"],
        files: &["peers/exact.c", PEERS_CRATES, "tools/lab/src/benches/exact.rs"],
    },
    Subject {
        name: "copy",
        comparisons: copy::COMPARISONS,
        crates: &["warmlane-sys"],
        files: &["peers/copy.c", "tools/lab/src/benches/copy.rs"],
    },
    Subject {
        name: "checksum",
        comparisons: checksum::COMPARISONS,
        crates: &["warmlane-wire"],
        files: &["peers/checksum.c", "tools/lab/src/benches/checksum.rs"],
    },
    Subject {
        name: "toeplitz",
        comparisons: toeplitz::COMPARISONS,
        crates: &["warmlane-wire"],
        files: &["peers/toeplitz.c", "tools/lab/src/benches/toeplitz.rs"],
    },
    Subject {
        name: "vxlan",
        comparisons: vxlan::COMPARISONS,
        crates: &["warmlane-vxlan", "warmlane-memory"],
        files: &["peers/vxlan.c", "tools/lab/src/benches/fixture.rs", "tools/lab/src/benches/vxlan.rs"],
    },
    Subject {
        name: "docsis",
        comparisons: docsis::COMPARISONS,
        crates: &["warmlane-crypto"],
        files: &["peers/docsis_crypto.c", "tools/lab/src/benches/docsis_crypto.rs"],
    },
    Subject {
        name: "memif",
        comparisons: memif::COMPARISONS,
        crates: &["warmlane-memif"],
        files: &["peers/pair_side.py", "tools/lab/src/benches/fixture.rs", "tools/lab/src/benches/ports.rs"],
    },
    Subject {
        name: "virtio",
        comparisons: virtio::COMPARISONS,
        crates: &["warmlane-virtio"],
        files: &["peers/pair_side.py", "tools/lab/src/benches/fixture.rs", "tools/lab/src/benches/ports.rs"],
    },
    Subject {
        name: "router",
        comparisons: router::COMPARISONS,
        crates: &["warmlane-assembly", "warmlane-gen"],
        files: &[
            "peers/bpf.py",
            "peers/gen_veth.sh",
            "peers/l3_forward.c",
            "peers/lookup_side.py",
            "peers/router_side.sh",
            "peers/router_tcp_side.sh",
            "peers/xdp_drop.py",
            "peers/xdp_send.py",
        ],
    },
];

/// What `cargo xtask record --all` measures: the comparisons that the documents lead with. Beside each, how many programs take turns in
/// it, by which the time is estimated that nobody has measured yet.
pub(crate) const HEADLINES: &[(&str, u32)] = &[
    ("l3-forward", 3),
    ("gen-null", 5),
    ("tx-null", 4),
    ("pool-one-lane", 2),
    ("pool-two-lanes", 7),
    ("pool-two-lanes-8191", 7),
    ("pool-two-lanes-held", 7),
    ("pool-two-lanes-header", 7),
    ("pool-two-lanes-header-8191", 7),
    ("pool-two-lanes-header-held", 7),
    ("ring-spsc", 3),
    ("ring-spsc-bulk-8", 3),
    ("ring-spsc-one-lane", 2),
    ("ring-mpmc", 3),
    ("locks", 2),
    ("locks-mcs", 2),
    ("locks-spin-alone", 2),
    ("locks-ticket-alone", 2),
    ("locks-mcs-alone", 2),
    ("rcu", 2),
    ("lpm4", 3),
    ("lpm4-portable", 2),
    ("lpm4-live", 2),
    ("lpm6", 3),
    ("exact", 4),
    ("exact-concurrent", 3),
    ("exact-insert", 4),
    ("exact-insert-burst", 4),
    ("copy", 3),
    ("copy-to-memory", 3),
    ("copy-from-memory", 3),
    ("copy-in-memory", 3),
    ("docsis-crypto", 3),
    ("docsis-crypto-570", 3),
    ("docsis-crypto-64", 3),
    ("router-kernel", 3),
    ("router-kernel-flooded", 3),
    ("router-dpdk", 3),
    ("router-xdp", 3),
    ("router-tc", 3),
];

/// All comparisons.
pub(crate) fn all() -> impl Iterator<Item = &'static Comparison> {
    SUBJECTS.iter().flat_map(|subject| subject.comparisons)
}

/// The subject that the comparison called `name` belongs to.
pub(crate) fn subject(name: &str) -> Option<&'static Subject> {
    SUBJECTS.iter().find(|subject| subject.comparisons.iter().any(|comparison| comparison.name == name))
}

/// The comparison called `name`.
pub(crate) fn find(name: &str) -> anyhow::Result<&'static Comparison> {
    let known = || all().map(|comparison| comparison.name).collect::<Vec<_>>().join(", ");
    all()
        .find(|comparison| comparison.name == name)
        .with_context(|| format!("there is no comparison '{name}': known are {}", known()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn unknown_names_are_told_what_is_known() {
        let error = find("warp-drive").err().unwrap().to_string();
        assert!(error.starts_with("there is no comparison 'warp-drive': known are l3-forward"), "{error}");
        assert!(find("l3-forward").is_ok());
    }

    #[test]
    fn what_is_built_of_is_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for subject in SUBJECTS {
            let settings = format!("tools/xtask/src/compare/catalogue/{}.rs", subject.name);
            for file in subject.files.iter().copied().chain([settings.as_str()]) {
                assert!(root.join(file).exists(), "{}: {file}", subject.name);
            }
        }
        assert!(HEADLINES.iter().all(|(name, _)| find(name).is_ok()));
        assert_eq!(subject("pool-two-lanes").unwrap().name, "pool");
    }

    #[test]
    fn names_are_unique_and_units_start_with_cycles() {
        let mut names: Vec<_> = all().map(|comparison| comparison.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        for comparison in all() {
            assert!(comparison.unit.starts_with("cycles/"), "{}", comparison.name);
        }
    }
}
