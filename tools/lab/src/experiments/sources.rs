//! Who made the claims that more than one experiment repeats.

pub(super) const ARM: &str =
    "Joyce Kong and Arm's DPDK team, article on the internal principles of DPDK optimization on Arm";
pub(super) const INTEL_POOLS: &str = "Conor Walsh (Intel), \"Optimize Memory Usage in Multithreaded Data Plane Development Kit (DPDK) Applications\"";
pub(super) const INTEL_TALK: &str = "Liang Cunming (Intel), \"Practices for Building Core/Efficient Applications\", China DPDK Summit, 2015-04-21";
