//! The registers of a device (virtio 1.2, sections 4.1.4.3 and 5.1.4).

use crate::vfio::Registers;

/// Offsets of `struct virtio_pci_common_cfg`.
mod common {
    pub(super) const DEVICE_FEATURE_SELECT: usize = 0;
    pub(super) const DEVICE_FEATURE: usize = 4;
    pub(super) const DRIVER_FEATURE_SELECT: usize = 8;
    pub(super) const DRIVER_FEATURE: usize = 12;
    pub(super) const CONFIG_VECTOR: usize = 16;
    pub(super) const QUEUES: usize = 18;
    pub(super) const STATUS: usize = 20;
    pub(super) const GENERATION: usize = 21;
    pub(super) const QUEUE_SELECT: usize = 22;
    pub(super) const QUEUE_SIZE: usize = 24;
    pub(super) const QUEUE_VECTOR: usize = 26;
    pub(super) const QUEUE_ENABLE: usize = 28;
    pub(super) const QUEUE_NOTIFY: usize = 30;
    pub(super) const QUEUE_DESCRIPTORS: usize = 32;
    pub(super) const QUEUE_DRIVER: usize = 40;
    pub(super) const QUEUE_DEVICE: usize = 48;
}

/// Bytes that [`Common`] needs.
pub(super) const COMMON_BYTES: u32 = 56;

/// Bits of the status (section 2.1).
pub(super) mod status {
    pub(in crate::virtio) const ACKNOWLEDGE: u8 = 1;
    pub(in crate::virtio) const DRIVER: u8 = 2;
    pub(in crate::virtio) const DRIVER_OK: u8 = 4;
    pub(in crate::virtio) const FEATURES_OK: u8 = 8;
    pub(in crate::virtio) const NEEDS_RESET: u8 = 64;
    pub(in crate::virtio) const FAILED: u8 = 128;
}

/// No interrupt; also what a vector reads as that the device could not take.
pub(super) const NO_VECTOR: u16 = 0xffff;

/// What all virtio devices have.
#[derive(Debug)]
pub(super) struct Common<R>(pub(super) R);

impl<R: Registers> Common<R> {
    pub(super) fn offered(&self) -> u64 {
        [0, 1].into_iter().fold(0, |features, half| {
            self.0.write32(common::DEVICE_FEATURE_SELECT, half);
            features | u64::from(self.0.read32(common::DEVICE_FEATURE)) << (32 * half)
        })
    }

    pub(super) fn accept(&self, features: u64) {
        for half in [0, 1] {
            self.0.write32(common::DRIVER_FEATURE_SELECT, half);
            self.0.write32(common::DRIVER_FEATURE, (features >> (32 * half)) as u32);
        }
    }

    pub(super) fn status(&self) -> u8 {
        self.0.read8(common::STATUS)
    }

    pub(super) fn set_status(&self, status: u8) {
        self.0.write8(common::STATUS, status);
    }

    pub(super) fn queues(&self) -> u16 {
        self.0.read16(common::QUEUES)
    }

    pub(super) fn generation(&self) -> u8 {
        self.0.read8(common::GENERATION)
    }

    /// Has changes of the configuration told by an interrupt; whether the device can.
    pub(super) fn set_config_vector(&self, vector: u16) -> bool {
        self.0.write16(common::CONFIG_VECTOR, vector);
        self.0.read16(common::CONFIG_VECTOR) == vector
    }

    pub(super) fn select(&self, queue: u16) {
        self.0.write16(common::QUEUE_SELECT, queue);
    }

    /// Of the selected queue: its longest size; 0 if there is none.
    pub(super) fn queue_size(&self) -> u16 {
        self.0.read16(common::QUEUE_SIZE)
    }

    pub(super) fn set_queue_size(&self, size: u16) {
        self.0.write16(common::QUEUE_SIZE, size);
    }

    /// Has used buffers told by an interrupt; whether the device can.
    pub(super) fn set_queue_vector(&self, vector: u16) -> bool {
        self.0.write16(common::QUEUE_VECTOR, vector);
        self.0.read16(common::QUEUE_VECTOR) == vector
    }

    /// Where the selected queue's place for notifications is, in units of the multiplier.
    pub(super) fn queue_notify(&self) -> u16 {
        self.0.read16(common::QUEUE_NOTIFY)
    }

    pub(super) fn set_areas(&self, descriptors: u64, driver: u64, device: u64) {
        self.0.write64(common::QUEUE_DESCRIPTORS, descriptors);
        self.0.write64(common::QUEUE_DRIVER, driver);
        self.0.write64(common::QUEUE_DEVICE, device);
    }

    pub(super) fn enable_queue(&self) {
        self.0.write16(common::QUEUE_ENABLE, 1);
    }
}

/// Offsets of `struct virtio_net_config` (section 5.1.4).
mod network {
    pub(super) const ADDRESS: usize = 0;
    pub(super) const STATUS: usize = 6;
    pub(super) const MOST_PAIRS: usize = 8;
    pub(super) const MTU: usize = 10;
    pub(super) const RSS_KEY_SIZE: usize = 17;
    pub(super) const RSS_TABLE_LENGTH: usize = 18;
    pub(super) const HASH_TYPES: usize = 20;
}

/// `VIRTIO_NET_S_LINK_UP`.
const LINK_UP: u16 = 1;

/// What network devices have besides.
#[derive(Debug)]
pub(super) struct Network<R>(pub(super) R);

impl<R: Registers> Network<R> {
    pub(super) fn address(&self) -> [u8; 6] {
        std::array::from_fn(|byte| self.0.read8(network::ADDRESS + byte))
    }

    pub(super) fn is_link_up(&self) -> bool {
        self.0.read16(network::STATUS) & LINK_UP != 0
    }

    pub(super) fn mtu(&self) -> u16 {
        self.0.read16(network::MTU)
    }

    /// Pairs of queues that it has, of several or with RSS.
    pub(super) fn most_pairs(&self) -> u16 {
        self.0.read16(network::MOST_PAIRS)
    }

    /// With RSS: bytes of the longest key, entries of the longest table, and kinds of packets whose hashes it can compute.
    pub(super) fn rss(&self) -> (u8, u16, u32) {
        let (key, table) = (self.0.read8(network::RSS_KEY_SIZE), self.0.read16(network::RSS_TABLE_LENGTH));
        (key, table, self.0.read32(network::HASH_TYPES))
    }
}
