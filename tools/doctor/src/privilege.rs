//! What this process may do: capabilities, limits, device nodes.

use crate::finding::Finding;
use crate::tree::{Tree, bytes};

/// Capability numbers (`include/uapi/linux/capability.h`).
const NET_ADMIN: u32 = 12;
const NET_RAW: u32 = 13;
pub(crate) const IPC_LOCK: u32 = 14;
const SYS_ADMIN: u32 = 21;
const BPF: u32 = 39;

/// Pools are files in memory, and setrlimit(2) makes no difference between these and those on a disk.
const ENOUGH_FILE_BYTES: u64 = 64 << 20;
/// A queue has one or two descriptors, a pool one.
const ENOUGH_FILES: u64 = 1_024;

/// Does this process hold the capability? `None` if the kernel doesn't say.
pub(crate) fn holds(tree: Tree, capability: u32) -> Option<bool> {
    let set = u64::from_str_radix(&tree.field("proc/self/status", "CapEff")?, 16).ok()?;
    Some(set >> capability & 1 == 1)
}

/// A limit of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Unlimited,
    At(u64),
}

/// The soft limit called `name` in `/proc/self/limits`.
pub(crate) fn limit(tree: Tree, name: &str) -> Option<Limit> {
    let text = tree.text("proc/self/limits")?;
    let soft = text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next())?;
    if soft == "unlimited" { Some(Limit::Unlimited) } else { soft.parse().ok().map(Limit::At) }
}

pub(crate) fn capabilities(tree: Tree) -> Finding {
    let name = "capabilities";
    let (Some(admin), Some(raw), Some(system)) =
        (holds(tree, NET_ADMIN), holds(tree, NET_RAW), holds(tree, SYS_ADMIN))
    else {
        return Finding::not_known(name, "/proc/self/status does not list this process's capabilities");
    };
    // CAP_BPF was split off from CAP_SYS_ADMIN in Linux 5.8 (capabilities(7)).
    let bpf = system || holds(tree, BPF) == Some(true);
    let needs = [
        (raw, "CAP_NET_RAW", "cap_net_raw", "packet sockets and AF_XDP sockets"),
        (admin, "CAP_NET_ADMIN", "cap_net_admin", "TAP devices, routes, attaching XDP programs"),
        (bpf, "CAP_BPF", "cap_bpf", "loading XDP programs"),
    ];
    let lost: Vec<_> = needs.iter().filter(|(held, ..)| !held).collect();
    if lost.is_empty() {
        return Finding::good(name, "this process may open every kind of port");
    }
    let lacks =
        lost.iter().map(|(_, name, _, use_)| format!("{name} ({use_})")).collect::<Vec<_>>().join(", ");
    // All of them, because setcap(8) takes away what it is not told.
    let set = needs.iter().map(|(_, _, name, _)| *name).collect::<Vec<_>>().join(",");
    Finding::problem(
        name,
        format!("this process lacks {lacks}"),
        format!("run it as root, or `setcap {set},cap_ipc_lock+ep $(command -v warmlane)`"),
    )
    .worth("ports over the kernel's interfaces; ports in memory and over capture files need no privilege")
}

pub(crate) fn tun(tree: Tree) -> Finding {
    let name = "tun";
    if tree.exists("dev/net/tun") {
        return Finding::good(name, "/dev/net/tun is there");
    }
    Finding::problem(
        name,
        "there is no /dev/net/tun",
        "`modprobe tun`; in a container `--device /dev/net/tun`",
    )
    .worth("TAP ports, through which packets for this machine itself reach the kernel")
}

pub(crate) fn file_size(tree: Tree) -> Finding {
    let name = "file-size-limit";
    match limit(tree, "Max file size") {
        None => Finding::not_known(name, "/proc/self/limits does not say how large files may become"),
        Some(Limit::Unlimited) => Finding::good(name, "unlimited"),
        Some(Limit::At(limit)) if limit >= ENOUGH_FILE_BYTES => {
            Finding::good(name, format!("pools of up to {} can be made", bytes(limit)))
        }
        Some(Limit::At(limit)) => Finding::problem(
            name,
            format!("files, also those in memory, may have {} at most", bytes(limit)),
            "`ulimit -f unlimited` in the shell that starts it, `LimitFSIZE=infinity` in its systemd unit",
        )
        .worth("a pool is a file in memory, so that other processes can share it: above the limit the kernel ends \
                the process (SIGXFSZ)")
        .preventing(),
    }
}

pub(crate) fn open_files(tree: Tree) -> Finding {
    let name = "open-files-limit";
    match limit(tree, "Max open files") {
        None => Finding::not_known(name, "/proc/self/limits does not say how many files may be open"),
        Some(Limit::Unlimited) => Finding::good(name, "unlimited"),
        Some(Limit::At(limit)) if limit >= ENOUGH_FILES => Finding::good(name, format!("{limit} files may be open")),
        Some(Limit::At(limit)) => Finding::better(
            name,
            format!("only {limit} files may be open"),
            "`ulimit -n 4096` in the shell that starts it, `LimitNOFILE=4096` in its systemd unit",
        )
        .worth("each queue of a port over the kernel takes one or two descriptors; beyond the limit it can't be opened"),
    }
}

pub(crate) fn devices(tree: Tree) -> Finding {
    let name = "vfio";
    let worth = "only drivers that take the network card away from the kernel need it; ports over the kernel, AF_XDP, \
                 memory and capture files don't";
    let groups = tree.entries("sys/kernel/iommu_groups").unwrap_or(0);
    let node = tree.exists("dev/vfio/vfio");
    let unsafe_mode = "sys/module/vfio/parameters/enable_unsafe_noiommu_mode";
    if groups == 0 && tree.text(unsafe_mode).as_deref() == Some("Y") {
        return Finding::better(
            name,
            "there is no IOMMU, and VFIO hands devices out all the same",
            "turn the IOMMU on in the firmware and boot with `intel_iommu=on iommu=pt`, then `echo N > \
             /sys/module/vfio/parameters/enable_unsafe_noiommu_mode`",
        )
        .worth("without an IOMMU a device may write to any memory, and a wrong address in a descriptor destroys it");
    }
    if groups == 0 {
        return Finding::better(
            name,
            "there is no IOMMU in use",
            "turn it on in the firmware (VT-d, AMD-Vi, SMMU) and boot with `intel_iommu=on iommu=pt`; AMD's and Arm's \
             need no `intel_iommu`; a virtual machine needs a virtual one from its host",
        )
        .worth(worth);
    }
    if !node {
        return Finding::better(
            name,
            format!("{groups} IOMMU groups, but no /dev/vfio/vfio"),
            "`modprobe vfio-pci`",
        )
        .worth(worth);
    }
    Finding::good(name, format!("{groups} IOMMU groups, and VFIO is loaded"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Status;
    use crate::fixture::Fixture;

    fn limits(line: &str) -> Fixture {
        let header = "Limit                     Soft Limit           Hard Limit           Units";
        Fixture::with(&[("proc/self/limits", &format!("{header}\n{line}\n"))])
    }

    #[test]
    fn capabilities_name_what_they_open() {
        let fixture = Fixture::with(&[("proc/self/status", "CapEff:\t000001fffeffffff\n")]);
        assert_eq!(capabilities(fixture.tree()).status, Status::Good);
        // CAP_NET_RAW alone, as containers have it.
        fixture.write("proc/self/status", "CapEff:\t0000000000002000\n");
        let finding = capabilities(fixture.tree());
        assert_eq!(finding.status, Status::Problem);
        assert!(!finding.prevents_running);
        assert!(
            !finding.found.contains("CAP_NET_RAW") && finding.found.contains("TAP devices"),
            "{finding:?}"
        );
        assert!(finding.remedy.unwrap().contains("setcap cap_net_raw,cap_net_admin,cap_bpf,cap_ipc_lock+ep"));
        // Before Linux 5.8 the administrator's capability was the one for BPF.
        fixture.expect("proc/self/status", "CapEff:\t0000000000203000\n", capabilities, Status::Good);
    }

    #[test]
    fn a_file_size_limit_prevents_running() {
        let finding = file_size(
            limits("Max file size             1048576              unlimited            bytes").tree(),
        );
        assert!(finding.prevents_running && finding.found.contains("1 MiB"), "{finding:?}");
        let finding = file_size(
            limits("Max file size             unlimited            unlimited            bytes").tree(),
        );
        assert_eq!(finding.status, Status::Good);
    }

    #[test]
    fn too_few_open_files() {
        let finding = open_files(
            limits("Max open files            256                  524288               files").tree(),
        );
        assert_eq!((finding.status, &*finding.found), (Status::CouldBeBetter, "only 256 files may be open"));
        let finding = open_files(
            limits("Max open files            1024                 524288               files").tree(),
        );
        assert_eq!(finding.status, Status::Good);
    }

    #[test]
    fn device_nodes() {
        let fixture = Fixture::new();
        assert!(tun(fixture.tree()).remedy.unwrap().contains("modprobe tun"));
        fixture.expect("dev/net/tun", "", tun, Status::Good);

        assert_eq!(devices(fixture.tree()).found, "there is no IOMMU in use");
        fixture.write("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n");
        assert!(devices(fixture.tree()).worth.unwrap().contains("any memory"));
        fixture.write("sys/kernel/iommu_groups/0/type", "DMA\n");
        fixture.write("sys/kernel/iommu_groups/1/type", "DMA\n");
        assert!(devices(fixture.tree()).remedy.unwrap().contains("modprobe vfio-pci"));
        fixture.write("dev/vfio/vfio", "");
        assert_eq!(devices(fixture.tree()).found, "2 IOMMU groups, and VFIO is loaded");
    }
}
