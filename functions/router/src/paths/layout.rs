//! What the programs and user space share, as `bpf/forward.h` lays it out.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// `struct ingress`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Ingress {
    pub(super) link: u32,
    pub(super) flags: u32,
}

impl Ingress {
    pub(super) const FORWARDS_IPV4: u32 = 1;
    pub(super) const FORWARDS_IPV6: u32 = 2;
    pub(super) const SOURCE_HAS_ROUTE: u32 = 4;
    pub(super) const SOURCE_IS_THERE: u32 = 8;
    pub(super) const SENDS_REDIRECTS: u32 = 16;
    pub(super) const ESTABLISHED_ONLY_IPV4: u32 = 32;
    pub(super) const ESTABLISHED_ONLY_IPV6: u32 = 64;
}

/// `struct settings`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Settings {
    pub(super) untagged: Ingress,
    pub(super) mac: [u8; 8],
    /// Nanoseconds of the coarse monotonic clock.
    pub(super) led_until: u64,
    /// By the same clock.
    pub(super) rules_since: u64,
    pub(super) checksums_left: u32,
    pub(super) least_route_mtu_ipv4: u32,
    pub(super) least_route_mtu_ipv6: u32,
    pub(super) offloads_established: u32,
    pub(super) ipv4_goes_by_destination: u32,
    pub(super) ipv6_goes_by_destination: u32,
    pub(super) own_address_bits: u64,
}

/// `struct egress`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Egress {
    pub(super) device: u32,
    pub(super) vlan: u16,
    pub(super) flags: u16,
}

impl Egress {
    pub(super) const TAKES_FRAMES: u16 = 1;
    pub(super) const IS_ETHERNET: u16 = 2;
}

/// `struct counters`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Counters {
    pub(super) received: u64,
    pub(super) bytes: u64,
    pub(super) noted: u64,
}

/// `struct decision`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Decision {
    pub(super) decided: u64,
    pub(super) source: [u8; 16],
    pub(super) destination: [u8; 16],
    pub(super) next_hop: [u8; 16],
    pub(super) flow_info: [u8; 4],
    pub(super) ingress: u32,
    pub(super) egress: u32,
    pub(super) result: u32,
    pub(super) ports: [[u8; 2]; 2],
    pub(super) length: u16,
    pub(super) protocol: u8,
    pub(super) family: u8,
    pub(super) next_hop_family: u8,
    pub(super) padding: [u8; 7],
}

impl Decision {
    /// How many each CPU keeps.
    pub(super) const COUNT: u32 = 64;

    /// What lookups say (`include/uapi/linux/bpf.h: BPF_FIB_LKUP_RET_*`).
    pub(super) const SUCCESS: u32 = 0;
    pub(super) const BLACKHOLE: u32 = 1;
    pub(super) const NO_NEIGHBOUR: u32 = 7;
}

/// `struct capture`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Capture {
    pub(super) one_in: u32,
    pub(super) snap_length: u32,
}

/// `struct copy`
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Copy {
    pub(super) time: u64,
    pub(super) length: u32,
    pub(super) captured: u32,
    pub(super) reason: u32,
    pub(super) tag_protocol: [u8; 2],
    pub(super) tag_control: u16,
    pub(super) unused: u64,
    pub(super) data: [u8; Self::BYTES],
}

impl Copy {
    /// Of a packet, at most.
    pub(super) const BYTES: usize = 2_016;
}

/// `struct copy_counts`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct CopyCounts {
    pub(super) passed: u64,
    pub(super) missed: u64,
}

/// `struct ipv4_tuple`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Ipv4Tuple {
    pub(super) source: [u8; 4],
    pub(super) destination: [u8; 4],
    pub(super) ports: [[u8; 2]; 2],
    pub(super) protocol: u32,
}

/// `struct ipv6_tuple`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Ipv6Tuple {
    pub(super) source: [u8; 16],
    pub(super) destination: [u8; 16],
    pub(super) ports: [[u8; 2]; 2],
    pub(super) protocol: u32,
}

/// `struct flow`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Flow {
    pub(super) source: [u8; 16],
    pub(super) destination: [u8; 16],
    pub(super) ports: [[u8; 2]; 2],
    pub(super) address_difference: u32,
    pub(super) port_difference: u32,
    pub(super) is_closing: u32,
    pub(super) ingress: u32,
    pub(super) egress: u32,
    pub(super) mac: [u8; 8],
    pub(super) sampled: u64,
    pub(super) confirmed: u64,
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) looked_at: u64,
}

/// `struct question`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Question {
    pub(super) source: [u8; 16],
    pub(super) destination: [u8; 16],
    pub(super) ports: [[u8; 2]; 2],
    pub(super) protocol: u8,
    pub(super) family: u8,
    pub(super) padding: u16,
}
