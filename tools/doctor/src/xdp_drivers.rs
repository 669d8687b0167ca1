//! Which drivers of the mainline kernel run XDP programs themselves, and which of them let AF_XDP sockets use the
//! device's own buffers, since when.
//!
//! The commits are listed in docs.ebpf.io, "Program type BPF_PROG_TYPE_XDP", Driver support, and in iovisor/bcc,
//! docs/kernel-versions.md; what the words mean is in the kernel's Documentation/networking/af_xdp.rst. Since Linux
//! 6.3 a kernel can be asked for the features of each interface (Documentation/netlink/specs/netdev.yaml), which
//! also knows about firmware and queue settings; this table speaks without privilege and for older kernels.

use crate::kernel::Version;

/// What a driver supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct XdpDriver {
    /// As `ethtool -i` calls it.
    pub(crate) name: &'static str,
    /// The kernel in which it learned to run XDP programs.
    pub(crate) native: Version,
    /// The kernel in which it learned zero copy for AF_XDP.
    pub(crate) zero_copy: Option<Version>,
}

const fn native(name: &'static str, native: Version) -> XdpDriver {
    XdpDriver { name, native, zero_copy: None }
}

const fn zero_copy(name: &'static str, native: Version, zero_copy: Version) -> XdpDriver {
    XdpDriver { name, native, zero_copy: Some(zero_copy) }
}

/// By name.
const DRIVERS: &[XdpDriver] = &[
    native("am65-cpsw-nuss", (6, 10)),
    native("atlantic", (5, 19)),
    native("bnxt_en", (4, 11)),
    native("bonding", (5, 15)),
    native("cpsw", (5, 3)),
    native("ena", (5, 6)),
    native("fec", (6, 2)),
    native("fsl_dpa", (5, 11)),
    zero_copy("fsl_dpaa2_eth", (5, 0), (6, 2)),
    native("fsl_enetc", (5, 13)),
    native("funeth", (5, 18)),
    zero_copy("gve", (6, 4), (6, 4)),
    native("hv_netvsc", (5, 6)),
    zero_copy("i40e", (4, 13), (4, 20)),
    zero_copy("ice", (5, 5), (5, 5)),
    zero_copy("igb", (5, 10), (6, 14)),
    zero_copy("igc", (5, 13), (5, 14)),
    native("ionic", (6, 9)),
    zero_copy("ixgbe", (4, 12), (4, 20)),
    native("ixgbevf", (4, 17)),
    native("lan966x-switch", (6, 2)),
    native("mana", (5, 17)),
    native("mlx4_en", (4, 8)),
    zero_copy("mlx5_core", (4, 9), (5, 3)),
    native("mtk_soc_eth", (6, 0)),
    native("mvneta", (5, 5)),
    native("mvpp2", (5, 9)),
    native("netsec", (5, 3)),
    zero_copy("nfp", (4, 10), (5, 18)),
    native("nicvf", (4, 12)),
    native("qede", (4, 10)),
    native("rvu_nicpf", (5, 16)),
    native("sfc", (5, 5)),
    // stmmac calls itself after the core that it drives.
    zero_copy("st_gmac", (5, 13), (5, 13)),
    zero_copy("st_xgmac", (5, 13), (5, 13)),
    zero_copy("stmmac", (5, 13), (5, 13)),
    zero_copy("tsnep", (6, 3), (6, 4)),
    native("tun", (4, 14)),
    native("veth", (4, 19)),
    zero_copy("virtio_net", (4, 10), (6, 11)),
    native("vmxnet3", (6, 6)),
    // xen-netfront's name.
    native("vif", (5, 9)),
];

/// The driver of this name, if it runs XDP programs at all.
pub(crate) fn find(name: &str) -> Option<&'static XdpDriver> {
    DRIVERS.iter().find(|driver| driver.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_stands_once_and_zero_copy_never_comes_first() {
        for (index, driver) in DRIVERS.iter().enumerate() {
            assert!(DRIVERS[..index].iter().all(|other| other.name != driver.name), "{}", driver.name);
            assert!(driver.zero_copy.is_none_or(|since| since >= driver.native), "{}", driver.name);
        }
        assert_eq!(find("e1000e"), None);
    }
}
