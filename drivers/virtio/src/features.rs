//! Features: what a device offers and its driver accepts (virtio 1.2, sections 5.1.3 and 6; `include/uapi/linux/virtio_net.h`).

/// A feature by its bit.
const fn bit(number: u32) -> u64 {
    1 << number
}

/// The device takes packets with partial checksums.
pub const CHECKSUM: u64 = bit(0);
/// The driver takes packets with partial checksums.
pub const GUEST_CHECKSUM: u64 = bit(1);
/// The driver takes TCP packets over IPv4 that are not segmented.
pub const GUEST_TSO4: u64 = bit(7);
/// The driver takes TCP packets over IPv6 that are not segmented.
pub const GUEST_TSO6: u64 = bit(8);
/// The driver takes such packets with congestion experienced.
pub const GUEST_ECN: u64 = bit(9);
/// The device segments TCP over IPv4.
pub const HOST_TSO4: u64 = bit(11);
/// The device segments TCP over IPv6.
pub const HOST_TSO6: u64 = bit(12);
/// The device segments packets with congestion experienced.
pub const HOST_ECN: u64 = bit(13);
/// The device says the MTU.
pub const MTU: u64 = bit(3);
/// The device has an Ethernet address.
pub const MAC: u64 = bit(5);
/// Packets for the driver may be spread over several buffers.
pub const MERGEABLE: u64 = bit(15);
/// The device says whether its link is up.
pub const STATUS: u64 = bit(16);
/// There is a control queue. A vhost-user front end keeps it to itself.
pub const CONTROL_QUEUE: u64 = bit(17);
/// By the control queue, receive modes can be set.
pub const CONTROL_RECEIVE: u64 = bit(18);
/// The driver can announce itself after a migration.
pub const GUEST_ANNOUNCE: u64 = bit(21);
/// There are several pairs of queues.
pub const MULTIQUEUE: u64 = bit(22);
/// Of vhost: which pages are written is logged.
pub const LOG_ALL: u64 = bit(26);
/// The header and the packet need no descriptors of their own.
pub const ANY_LAYOUT: u64 = bit(27);
/// A descriptor can point at a table of descriptors.
pub const INDIRECT: u64 = bit(28);
/// Both sides can say at which index they want to be told.
pub const EVENT_INDEX: u64 = bit(29);
/// Of vhost-user: there are [protocol features](protocol), and rings can be enabled one by one.
pub const PROTOCOL_FEATURES: u64 = bit(30);
/// Virtio 1.0 and later.
pub const VERSION_1: u64 = bit(32);
/// Rings are packed.
pub const PACKED: u64 = bit(34);
/// The device's addresses go through the machine's IOMMU, if there is one; else they are those of its memory.
pub const ACCESS_PLATFORM: u64 = bit(33);
/// Buffers are used in the order in which they were made available.
pub const IN_ORDER: u64 = bit(35);
/// The device's accesses to memory are in the order of a device on a bus.
pub const ORDER_PLATFORM: u64 = bit(36);
/// The driver takes UDP packets over IPv4 that are not segmented.
pub const GUEST_USO4: u64 = bit(54);
/// The driver takes UDP packets over IPv6 that are not segmented.
pub const GUEST_USO6: u64 = bit(55);
/// The device segments UDP.
pub const HOST_USO: u64 = bit(56);
/// The device reports hashes of packets, behind a longer header.
pub const HASH_REPORT: u64 = bit(57);
/// The device spreads flows over its queues as the driver says: by receive-side scaling.
pub const RSS: u64 = bit(60);

/// What has to do with rings and buffers.
pub const RINGS: u64 = MERGEABLE
    | ANY_LAYOUT
    | INDIRECT
    | EVENT_INDEX
    | VERSION_1
    | PACKED
    | IN_ORDER
    | MULTIQUEUE
    | CONTROL_QUEUE
    | CONTROL_RECEIVE
    | GUEST_ANNOUNCE;

/// What packets from the driver may leave to the device.
pub const DEVICE_OFFLOADS: u64 = CHECKSUM | HOST_TSO4 | HOST_TSO6 | HOST_ECN | HOST_USO;

/// What packets for the driver may leave to it.
pub const DRIVER_OFFLOADS: u64 =
    GUEST_CHECKSUM | GUEST_TSO4 | GUEST_TSO6 | GUEST_ECN | GUEST_USO4 | GUEST_USO6;

/// Bytes of the header in front of each packet: the number of buffers is at its end from virtio 1.0 on, or if they can be merged, and
/// behind that the report of a hash (section 5.1.6.1).
pub const fn header_length(features: u64) -> usize {
    if features & HASH_REPORT != 0 {
        20
    } else if features & (VERSION_1 | MERGEABLE) != 0 {
        12
    } else {
        10
    }
}

/// Features of the vhost-user protocol itself (its specification, "Protocol features").
pub mod protocol {
    use super::bit;

    /// Several pairs of queues.
    pub const MULTIQUEUE: u64 = bit(0);
    /// A log of written pages in shared memory.
    pub const LOG_MEMORY: u64 = bit(1);
    /// Each message is acknowledged if that is wanted.
    pub const REPLY_ACK: u64 = bit(3);
    /// The front end says the MTU.
    pub const MTU: u64 = bit(4);
    /// Which buffers are under way is noted in shared memory.
    pub const INFLIGHT: u64 = bit(12);
    /// The device can be reset.
    pub const RESET_DEVICE: u64 = bit(13);
    /// Regions of memory come and go one by one.
    pub const MEMORY_SLOTS: u64 = bit(15);
    /// The front end says the device's status.
    pub const STATUS: u64 = bit(16);
}
