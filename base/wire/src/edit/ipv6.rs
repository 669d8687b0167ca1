//! Changes to an IPv6 header.

use std::net::Ipv6Addr;

use crate::Ipv6Header;
use crate::ipv6::{self, HEADER_LENGTH};

/// The fixed header of IPv6, to change. It has no checksum of its own.
#[derive(Debug)]
pub struct Ipv6HeaderMut<'a>(pub &'a mut [u8; HEADER_LENGTH]);

impl Ipv6HeaderMut<'_> {
    /// The same header, to read.
    #[inline(always)]
    pub const fn as_view(&self) -> Ipv6Header<'_> {
        Ipv6Header(self.0)
    }

    /// Sets the source address. The transport's checksum covers it: see [`PacketMut`](super::PacketMut).
    #[inline]
    pub fn set_source(&mut self, address: Ipv6Addr) {
        self.0[8..24].copy_from_slice(&address.octets());
    }

    /// Sets the destination address. The transport's checksum covers it: see [`PacketMut`](super::PacketMut).
    #[inline]
    pub fn set_destination(&mut self, address: Ipv6Addr) {
        self.0[24..40].copy_from_slice(&address.octets());
    }

    /// Sets the hop limit.
    #[inline]
    pub fn set_hop_limit(&mut self, hop_limit: u8) {
        self.0[7] = hop_limit;
    }

    /// Takes one off the hop limit; leaves 0 as it is.
    #[inline]
    pub fn decrement_hop_limit(&mut self) {
        ipv6::decrement_hop_limit(self.0);
    }

    /// Sets the traffic class: DSCP and ECN.
    #[inline]
    pub fn set_traffic_class(&mut self, class: u8) {
        self.0[0] = self.0[0] & 0xf0 | class >> 4;
        self.0[1] = self.0[1] & 0x0f | class << 4;
    }

    /// Sets the differentiated services code point (RFC 2474); only the low 6 bits count.
    #[inline]
    pub fn set_dscp(&mut self, dscp: u8) {
        self.set_traffic_class(dscp << 2 | self.as_view().traffic_class() & 0x03);
    }

    /// Sets the explicit congestion notification field (RFC 3168); only the low 2 bits count.
    #[inline]
    pub fn set_ecn(&mut self, ecn: u8) {
        self.set_traffic_class(self.as_view().traffic_class() & !0x03 | ecn & 0x03);
    }

    /// Sets the flow label (RFC 6437); only the low 20 bits count.
    #[inline]
    pub fn set_flow_label(&mut self, label: u32) {
        let [_, high, middle, low] = label.to_be_bytes();
        self.0[1] = self.0[1] & 0xf0 | high & 0x0f;
        [self.0[2], self.0[3]] = [middle, low];
    }
}
