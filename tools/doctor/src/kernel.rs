//! The kernel: what its version brings, and whether AF_XDP is built in.

use crate::finding::Finding;
use crate::tree::Tree;

/// A kernel's version: major and minor number.
pub(crate) type Version = (u32, u32);

/// Without memfd_create(2) no pool can be mapped.
const OLDEST: Version = (3, 17);
/// From here on nothing that a data plane uses is missing for want of age.
const RECOMMENDED: Version = (6, 6);

/// What AF_XDP learned when (Documentation/networking/af_xdp.rst and xsk-tx-metadata.rst, and the kernel's history).
const AF_XDP: &[(Version, &str)] = &[
    ((4, 18), "AF_XDP sockets"),
    ((4, 20), "zero copy"),
    ((5, 4), "need-wakeup, buffers at any stride"),
    ((5, 10), "one memory for several queues and interfaces"),
    ((5, 11), "busy polling"),
    ((6, 6), "packets in several buffers"),
    ((6, 8), "checksums and timestamps left to the NIC on transmit"),
];

pub(crate) fn release(tree: Tree) -> Option<(String, Version)> {
    let release = tree.text("proc/sys/kernel/osrelease")?;
    let mut numbers = release.split(|character: char| !character.is_ascii_digit());
    let version = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
    Some((release, version))
}

pub(crate) fn version(tree: Tree) -> Finding {
    let name = "kernel";
    let Some((release, version)) = release(tree) else {
        return Finding::not_known(name, "the kernel does not name its release");
    };
    let told = |old: bool| {
        let names: Vec<_> =
            AF_XDP.iter().filter(|(since, _)| (*since <= version) == old).map(|(_, name)| *name).collect();
        if names.is_empty() { "nothing".to_owned() } else { names.join("; ") }
    };
    let found = format!("Linux {release}: {}", told(true));
    if version < OLDEST {
        return Finding::problem(name, found, "use Linux 3.17 or later; 6.6 or later has all that is used")
            .worth("memory for packets is a memfd, which older kernels don't have")
            .preventing();
    }
    if version >= RECOMMENDED {
        return Finding::good(name, found);
    }
    Finding::better(
        name,
        format!("{found}; missing: {}", told(false)),
        "install Linux 6.6 or later (Debian 12: `apt install -t bookworm-backports linux-image-amd64`; Ubuntu 22.04: \
         `apt install linux-generic-hwe-22.04`)",
    )
    .worth(
        "only ports over AF_XDP gain: need-wakeup alone took Open vSwitch from 6.1 to 7.3 Mpps on one queue, busy \
         polling serves the interface on the lane's own CPU, several buffers a packet are what jumbo frames need",
    )
}

pub(crate) fn af_xdp(tree: Tree) -> Finding {
    let name = "af-xdp";
    let Some(protocols) = tree.text("proc/net/protocols") else {
        return Finding::not_known(name, "the kernel does not list its protocols");
    };
    if protocols.lines().any(|line| line.split_whitespace().next() == Some("XDP")) {
        return Finding::good(name, "the kernel has AF_XDP sockets");
    }
    Finding::problem(
        name,
        "the kernel has no AF_XDP sockets",
        "use a kernel that is built with `CONFIG_XDP_SOCKETS=y`; those of Debian, Ubuntu, Fedora and RHEL are",
    )
    .worth(
        "packet sockets work, but each packet passes the kernel's receive path: one core dropped 4.8 Mpps there at \
         best and 24 Mpps in XDP (Høiland-Jørgensen et al., CoNEXT 2018); zero copy exceeds 20 Mpps a core",
    )
}

pub(crate) fn bpf_compiler(tree: Tree) -> Finding {
    let name = "bpf-compiler";
    match tree.number("proc/sys/net/core/bpf_jit_enable") {
        // A kernel that always compiles (CONFIG_BPF_JIT_ALWAYS_ON) shows 1.
        Some(1..) => Finding::good(name, "XDP programs are compiled to machine code"),
        Some(0) => Finding::better(
            name,
            "XDP programs are interpreted",
            "`sysctl net.core.bpf_jit_enable=1`",
        )
        .worth("the program that hands packets to AF_XDP runs once per packet; interpreted, each of its instructions \
                is a dispatch"),
        None => Finding::not_known(name, "the setting can't be read from here: it is root's, in the first network namespace"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Status;
    use crate::fixture::Fixture;

    fn linux(release: &str) -> Finding {
        version(Fixture::with(&[("proc/sys/kernel/osrelease", release)]).tree())
    }

    #[test]
    fn what_the_version_brings() {
        let finding = linux("5.10.0-28-amd64\n");
        assert_eq!(finding.status, Status::CouldBeBetter);
        let (has, lacks) = finding.found.split_once("missing: ").unwrap();
        assert!(has.contains("need-wakeup") && has.contains("several queues"), "{finding:?}");
        assert!(lacks.starts_with("busy polling; packets in several buffers"), "{finding:?}");
        assert_eq!(linux("6.12.1").status, Status::Good);
        assert_eq!(linux("10.0").status, Status::Good, "10 is later than 6");
        assert_eq!(linux("unknown").status, Status::NotKnown);
    }

    #[test]
    fn a_kernel_without_memfd_prevents_running() {
        let finding = linux("3.10.0-1160.el7.x86_64");
        assert!(finding.prevents_running);
        assert!(finding.found.ends_with(": nothing"));
    }

    #[test]
    fn sockets_are_in_the_list_of_protocols() {
        let fixture = Fixture::with(&[("proc/net/protocols", "protocol  size\nXDP       1152\nTCP 2432\n")]);
        assert_eq!(af_xdp(fixture.tree()).status, Status::Good);
        fixture.expect("proc/net/protocols", "protocol  size\nTCP 2432\n", af_xdp, Status::Problem);
    }

    #[test]
    fn the_compiler_may_be_off() {
        let fixture = Fixture::with(&[("proc/sys/net/core/bpf_jit_enable", "0\n")]);
        assert_eq!(bpf_compiler(fixture.tree()).status, Status::CouldBeBetter);
        fixture.expect("proc/sys/net/core/bpf_jit_enable", "1\n", bpf_compiler, Status::Good);
    }
}
