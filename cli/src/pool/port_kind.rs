//! Kinds of ports, for what they demand of memory.

use warmlane::mem::plan::{Demands, PlanError};

/// Ports that memory can be shared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum PortKind {
    /// AF_XDP, chunks anywhere (Linux 5.4).
    Xdp,
    /// AF_XDP, chunks of 2,048 bytes at their multiples.
    #[value(name = "xdp-aligned-2048")]
    XdpAligned2048,
    /// AF_XDP, chunks of 4,096 bytes at their multiples.
    #[value(name = "xdp-aligned-4096")]
    XdpAligned4096,
    /// Memif.
    Memif,
    /// Vhost-user or virtio-user.
    VhostUser,
}

impl PortKind {
    /// What it demands.
    pub(super) fn demands(self) -> Result<Demands, PlanError> {
        Ok(match self {
            Self::Xdp => Demands::XDP_UNALIGNED,
            Self::XdpAligned2048 => Demands::xdp_aligned(2_048)?,
            Self::XdpAligned4096 => Demands::xdp_aligned(4_096)?,
            Self::Memif => Demands::MEMIF,
            Self::VhostUser => Demands::VHOST_USER,
        })
    }
}
