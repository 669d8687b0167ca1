//! What a port can do for packets so that software need not.
//!
//! Each corresponds to something that packets carry (`warmlane_mem::offload`): a port that can do a thing on receiving
//! notes it in the packet, and one that can do it on transmitting does what the packet asks for. What the next stage or port
//! can't deal with, [software does](crate::software_offload) before.

use warmlane_mem::HashKind;

/// Transport protocols, by the IP version that carries them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "a set")]
pub struct Transports {
    /// TCP over IPv4.
    pub tcp4: bool,
    /// TCP over IPv6.
    pub tcp6: bool,
    /// UDP over IPv4.
    pub udp4: bool,
    /// UDP over IPv6.
    pub udp6: bool,
}

impl Transports {
    /// None of them.
    pub const NONE: Self = Self { tcp4: false, tcp6: false, udp4: false, udp6: false };
    /// All of them.
    pub const ALL: Self = Self { tcp4: true, tcp6: true, udp4: true, udp6: true };

    const fn or(self, other: Self) -> Self {
        Self {
            tcp4: self.tcp4 || other.tcp4,
            tcp6: self.tcp6 || other.tcp6,
            udp4: self.udp4 || other.udp4,
            udp6: self.udp6 || other.udp6,
        }
    }

    const fn without(self, other: Self) -> Self {
        Self {
            tcp4: self.tcp4 && !other.tcp4,
            tcp6: self.tcp6 && !other.tcp6,
            udp4: self.udp4 && !other.udp4,
            udp6: self.udp6 && !other.udp6,
        }
    }
}

/// The same for packets that are in no tunnel, or of whose tunnel only the outer headers count, and for headers inside a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layered {
    /// The outer headers.
    pub outer: Transports,
    /// The headers inside a tunnel.
    pub inner: Transports,
}

impl Layered {
    /// Neither.
    pub const NONE: Self = Self { outer: Transports::NONE, inner: Transports::NONE };
    /// Both.
    pub const ALL: Self = Self { outer: Transports::ALL, inner: Transports::ALL };
    /// Packets in no tunnel only.
    pub const OUTER: Self = Self { outer: Transports::ALL, inner: Transports::NONE };

    const fn or(self, other: Self) -> Self {
        Self { outer: self.outer.or(other.outer), inner: self.inner.or(other.inner) }
    }

    const fn without(self, other: Self) -> Self {
        Self { outer: self.outer.without(other.outer), inner: self.inner.without(other.inner) }
    }
}

/// Work on a packet that is left to who transmits it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransmitOffloads {
    /// Completing partial checksums ([`Checksum::Partial`](warmlane_mem::Checksum::Partial)).
    pub checksums: Layered,
    /// Cutting packets that are to be segmented (TCP: TSO; UDP: USO), which includes the checksums of the segments.
    pub segmentation: Layered,
    /// Putting VLAN tags on ([`Vlan::Insert`](warmlane_mem::Vlan::Insert)).
    pub vlan_insert: bool,
}

impl TransmitOffloads {
    /// Nothing.
    pub const NONE: Self = Self { checksums: Layered::NONE, segmentation: Layered::NONE, vlan_insert: false };
    /// All there is.
    pub const ALL: Self = Self { checksums: Layered::ALL, segmentation: Layered::ALL, vlan_insert: true };
    /// All but tags.
    pub const WITHOUT_TAGS: Self = Self { vlan_insert: false, ..Self::ALL };
    /// Checksums and segmentation of packets that are in no tunnel.
    pub const NO_TUNNEL: Self =
        Self { checksums: Layered::OUTER, segmentation: Layered::OUTER, vlan_insert: false };

    /// Whether it is nothing.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// What is in one or the other.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self {
            checksums: self.checksums.or(other.checksums),
            segmentation: self.segmentation.or(other.segmentation),
            vlan_insert: self.vlan_insert || other.vlan_insert,
        }
    }

    /// What is in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        self.without(Self::ALL.without(other))
    }

    /// What is in this one only.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self {
            checksums: self.checksums.without(other.checksums),
            segmentation: self.segmentation.without(other.segmentation),
            vlan_insert: self.vlan_insert && !other.vlan_insert,
        }
    }
}

/// What a port does by itself. By default: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// Says of received packets whether their transport checksum is right.
    pub receive_checksums: Layered,
    /// What received packets may still need when they are sent on: who sent them to the port left it to hardware.
    pub leaves: TransmitOffloads,
    /// What it does for packets to be sent.
    pub transmit: TransmitOffloads,
    /// What software does on receiving, since whoever opened the port wanted it.
    pub in_software: InSoftware,
    /// Takes VLAN tags off received packets, and notes them.
    pub vlan_strip: bool,
    /// Gives received packets a hash of this kind.
    pub hash: Option<HashKind>,
}

/// What may be done in software behind a port's receive queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InSoftware {
    /// Frames of a flow that are received together are [merged](crate::software_offload::merge_received).
    pub merges: bool,
    /// Queues that the device itself has, if software has made more of them.
    pub device_queues: Option<usize>,
    /// Flows are spread over lanes by their hash ([`steering`](crate::steering)).
    pub spreads: bool,
    /// Rules say which lane packets are for, or drop them.
    pub steers: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_joined_and_subtracted() {
        let all = TransmitOffloads::ALL;
        let tcp = Transports { tcp4: true, tcp6: true, ..Transports::NONE };
        let tso = TransmitOffloads {
            segmentation: Layered { outer: tcp, inner: Transports::NONE },
            ..TransmitOffloads::NONE
        };
        assert!(all.without(all).is_none() && TransmitOffloads::NONE.without(all).is_none());
        assert_eq!((all.and(tso), tso.and(all), tso.or(tso)), (tso, tso, tso));
        let rest = TransmitOffloads::NO_TUNNEL.without(tso);
        assert!(rest.segmentation.outer.udp4 && !rest.segmentation.outer.tcp4 && rest.checksums.outer.tcp4);
        assert_eq!(rest.or(tso), TransmitOffloads::NO_TUNNEL);
        assert!(rest.and(tso).is_none());
    }
}
