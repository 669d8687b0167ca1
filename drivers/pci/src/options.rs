//! What a port should be like.

use crate::address::PciAddress;
use serde::{Deserialize, Serialize};

/// What a port should be like.
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PciOptions {
    /// Which device.
    pub address: PciAddress,
    /// Take it from the kernel's driver for as long as the port is open.
    #[serde(default)]
    pub take: bool,
    /// Descriptors of each ring, and buffers; fewer if the device has no more.
    #[serde(default = "ring_size")]
    pub ring_size: u16,
    /// Rings are packed; else split. Of virtio devices only.
    #[serde(default)]
    pub packed: bool,
    /// Leave checksums and segmentation to the device, and let it leave them to us.
    #[serde(default = "offloads")]
    pub offloads: bool,
    /// Receive what is for other stations, too. Virtio devices always do.
    #[serde(default)]
    pub promiscuous: bool,
    /// Have the device write to the pool's buffers and read from them: it can then write to any of them, at any time.
    #[serde(default)]
    pub zero_copy: bool,
}

const fn ring_size() -> u16 {
    256
}

const fn offloads() -> bool {
    true
}

impl PciOptions {
    /// The defaults, for this device.
    pub const fn new(address: PciAddress) -> Self {
        let (ring_size, offloads) = (ring_size(), offloads());
        Self {
            address,
            take: false,
            ring_size,
            packed: false,
            offloads,
            promiscuous: false,
            zero_copy: false,
        }
    }
}
