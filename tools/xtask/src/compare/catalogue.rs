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
mod pci;
mod pool;
mod rcu;
mod rings;
mod router;
mod segments;
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
    /// The page in `docs` that explains what was measured.
    pub(crate) page: &'static str,
    comparisons: &'static [Comparison],
    /// The crates that are measured; those that they depend on count, too.
    pub(crate) crates: &'static [&'static str],
    /// Our benches and the peers' programs.
    pub(crate) files: &'static [&'static str],
}

const PEERS_CRATES: &str = "peers/crates";
/// What `peers/pool.c` signs packets with.
const SIGNER: &str = "peers/signer.h";

const SUBJECTS: &[Subject] = &[
    Subject {
        name: "forward",
        page: "performance-forwarding.md",
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
        page: "performance-generator.md",
        comparisons: generate::COMPARISONS,
        crates: &["warmlane-gen", "warmlane-memory"],
        files: &[
            "peers/pool.c",
            SIGNER,
            "peers/testpmd_txonly.c",
            "tools/lab/src/benches/fixture.rs",
            "tools/lab/src/benches/generate.rs",
        ],
    },
    Subject {
        name: "pool",
        page: "performance-pools.md",
        comparisons: pool::COMPARISONS,
        crates: &["warmlane-memory"],
        files: &[
            "peers/pool.c",
            SIGNER,
            "tools/lab/src/benches/fixture.rs",
            "tools/lab/src/benches/pool.rs",
            "tools/lab/src/partner.rs",
            "tools/lab/src/two_lanes.rs",
        ],
    },
    Subject {
        name: "rings",
        page: "performance-lanes.md",
        comparisons: rings::COMPARISONS,
        crates: &["warmlane-sync"],
        files: &["peers/rings.c", PEERS_CRATES, "tools/lab/src/benches/rings.rs", "tools/lab/src/partner.rs"],
    },
    Subject {
        name: "locks",
        page: "performance-lanes.md",
        comparisons: locks::COMPARISONS,
        crates: &["warmlane-sync"],
        files: &["peers/locks.c", PEERS_CRATES, "tools/lab/src/benches/locks.rs", "tools/lab/src/locked.rs"],
    },
    Subject {
        name: "rcu",
        page: "performance-lanes.md",
        comparisons: rcu::COMPARISONS,
        crates: &["warmlane-sync"],
        files: &["peers/rcu.c", "tools/lab/src/benches/rcu.rs"],
    },
    Subject {
        name: "lpm",
        page: "performance-tables.md",
        comparisons: lpm::COMPARISONS,
        crates: &["warmlane-table"],
        files: &["peers/lpm.c", PEERS_CRATES, "tools/lab/src/benches/lpm.rs", "tools/lab/src/routes.rs"],
    },
    Subject {
        name: "exact",
        page: "performance-tables.md",
        comparisons: exact::COMPARISONS,
        crates: &["warmlane-table"],
        files: &["peers/exact.c", PEERS_CRATES, "tools/lab/src/benches/exact.rs"],
    },
    Subject {
        name: "copy",
        page: "performance-copies.md",
        comparisons: copy::COMPARISONS,
        crates: &["warmlane-sys"],
        files: &["peers/copy.c", "tools/lab/src/benches/copy.rs"],
    },
    Subject {
        name: "checksum",
        page: "performance-copies.md",
        comparisons: checksum::COMPARISONS,
        crates: &["warmlane-wire"],
        files: &["peers/checksum.c", "tools/lab/src/benches/checksum.rs"],
    },
    Subject {
        name: "segments",
        page: "performance-forwarding.md",
        comparisons: segments::COMPARISONS,
        crates: &["warmlane-port"],
        files: &["peers/segments.c", "tools/lab/src/benches/fixture.rs", "tools/lab/src/benches/segments.rs"],
    },
    Subject {
        name: "toeplitz",
        page: "performance-copies.md",
        comparisons: toeplitz::COMPARISONS,
        crates: &["warmlane-wire"],
        files: &["peers/toeplitz.c", "tools/lab/src/benches/toeplitz.rs"],
    },
    Subject {
        name: "vxlan",
        page: "performance-forwarding.md",
        comparisons: vxlan::COMPARISONS,
        crates: &["warmlane-vxlan", "warmlane-memory"],
        files: &["peers/vxlan.c", "tools/lab/src/benches/fixture.rs", "tools/lab/src/benches/vxlan.rs"],
    },
    Subject {
        name: "docsis",
        page: "docsis.md",
        comparisons: docsis::COMPARISONS,
        crates: &["warmlane-crypto"],
        files: &["peers/docsis_crypto.c", "tools/lab/src/benches/docsis_crypto.rs"],
    },
    Subject {
        name: "memif",
        page: "memif.md",
        comparisons: memif::COMPARISONS,
        crates: &["warmlane-memif"],
        files: &["peers/pair_side.py", "tools/lab/src/benches/fixture.rs", "tools/lab/src/benches/ports.rs"],
    },
    Subject {
        name: "virtio",
        page: "vhost.md",
        comparisons: virtio::COMPARISONS,
        crates: &["warmlane-virtio"],
        files: &["peers/pair_side.py", "tools/lab/src/benches/fixture.rs", "tools/lab/src/benches/ports.rs"],
    },
    Subject {
        name: "pci",
        page: "pci.md",
        comparisons: pci::COMPARISONS,
        crates: &["warmlane-pci"],
        files: &[
            "tests/src/bin/guest_side.rs",
            "tests/src/guest.rs",
            "tools/lab/src/benches/fixture.rs",
            "tools/lab/src/benches/ports.rs",
        ],
    },
    Subject {
        name: "router",
        page: "performance-router.md",
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

/// A comparison that the documents lead with.
pub(crate) struct Headline {
    /// The comparison's.
    pub(crate) name: &'static str,
    /// How many programs take turns in it, by which the time is estimated that nobody has measured yet.
    pub(crate) sides: u32,
    /// What is done, in a few words for people.
    pub(crate) what: &'static str,
    /// Whether README has it, too.
    pub(crate) leads: bool,
}

const fn headline(name: &'static str, sides: u32, what: &'static str) -> Headline {
    Headline { name, sides, what, leads: false }
}

const fn leading(name: &'static str, sides: u32, what: &'static str) -> Headline {
    Headline { name, sides, what, leads: true }
}

/// What `cargo xtask record --all` measures.
pub(crate) const HEADLINES: &[Headline] = &[
    leading("l3-forward", 3, "forward IPv4 by the full table, one lane"),
    leading("gen-null", 5, "generate signed UDP with random addresses to a null port"),
    headline("gen-null-counted", 5, "the same as testpmd does: addresses in turn, no signature"),
    leading("tx-null", 4, "take a buffer, write 64 bytes, send to a null port"),
    headline("pool-one-lane", 2, "take and free packets, one lane"),
    leading("pool-two-lanes", 7, "take and write 1,520 bytes on one lane, read and free on another"),
    headline("pool-two-lanes-8191", 7, "the same with 8,191 buffers"),
    headline("pool-two-lanes-held", 7, "the same with 20,000 packets held"),
    headline("pool-two-lanes-header", 7, "the same with 64 bytes"),
    headline("pool-two-lanes-header-8191", 7, "64 bytes, 8,191 buffers"),
    headline("pool-two-lanes-header-held", 7, "64 bytes, 20,000 packets held"),
    leading("ring-spsc", 3, "ring, one producer and one consumer, one by one"),
    headline("ring-spsc-bulk-8", 3, "the same, eight at once"),
    headline("ring-spsc-one-lane", 2, "the same on one lane"),
    headline("ring-mpmc", 3, "ring, two producers and consumers"),
    headline("locks", 2, "ticket lock, two lanes"),
    headline("locks-mcs", 2, "MCS lock, two lanes"),
    headline("locks-spin-alone", 2, "spin lock, one lane"),
    headline("locks-ticket-alone", 2, "ticket lock, one lane"),
    headline("locks-mcs-alone", 2, "MCS lock, one lane"),
    headline("rcu", 2, "report a quiescent state"),
    leading("lpm4", 3, "look up IPv4 in the full table"),
    headline("lpm4-portable", 2, "the same without vectors on either side"),
    headline("lpm4-live", 2, "the same beside a million changes a second, against none"),
    leading("lpm6", 3, "look up IPv6 in the full table"),
    leading("exact", 4, "look up flows among a million"),
    headline("exact-concurrent", 3, "the same beside a writer"),
    headline("exact-insert", 4, "insert a million flows, one by one"),
    headline("exact-insert-burst", 4, "insert them 64 at once"),
    headline("copy", 3, "copy 1 to 8,192 bytes in the cache"),
    headline("copy-to-memory", 3, "copy from the cache to memory"),
    headline("copy-from-memory", 3, "copy from memory to the cache"),
    headline("copy-in-memory", 3, "copy in memory"),
    headline("docsis-crypto", 3, "encrypt DOCSIS frames of 1,518 bytes, with CRC"),
    headline("docsis-crypto-570", 3, "the same of 570 bytes"),
    headline("docsis-crypto-64", 3, "the same of 64 bytes"),
    headline("router-kernel", 3, "route between virtual links, fed by our generator"),
    leading("router-kernel-flooded", 3, "route between virtual links, fed by an XDP program"),
    headline("router-dpdk", 3, "the same against DPDK's forwarders"),
    leading("router-xdp", 3, "route in XDP programs, against the kernel"),
    headline("router-tc", 3, "route in tc programs, against the kernel"),
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
            let page = format!("docs/{}", subject.page);
            for file in subject.files.iter().copied().chain([settings.as_str(), page.as_str()]) {
                assert!(root.join(file).exists(), "{}: {file}", subject.name);
            }
        }
        assert!(HEADLINES.iter().all(|headline| find(headline.name).is_ok()));
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
