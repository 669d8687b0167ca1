//! Changes to an IPv4 header.

use std::net::Ipv4Addr;

use crate::Ipv4Header;
use crate::checksum::Difference;
use crate::ipv4::{self, HEADER_LENGTH};

/// The fixed part of an IPv4 header, to change. Each method keeps the header checksum right, with options too.
///
/// ```
/// use warmlane_wire::edit::Ipv4HeaderMut;
/// use warmlane_wire::{Frame, Ipv4Fields, ipv4};
///
/// let fields = Ipv4Fields::new([192, 0, 2, 1].into(), [198, 51, 100, 2].into());
/// let mut packet = Frame::new().ipv4(fields).to_vec()?;
/// let header = packet.first_chunk_mut().ok_or("short")?;
/// Ipv4HeaderMut(header).set_dscp(46);
/// assert_eq!(ipv4::check(&packet)?.header.dscp(), 46);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Ipv4HeaderMut<'a>(pub &'a mut [u8; HEADER_LENGTH]);

impl Ipv4HeaderMut<'_> {
    /// The same header, to read.
    #[inline(always)]
    pub const fn as_view(&self) -> Ipv4Header<'_> {
        Ipv4Header(self.0)
    }

    /// Sets the source address. The checksum of TCP or UDP covers it too: see [`PacketMut`](super::PacketMut).
    #[inline]
    pub fn set_source(&mut self, address: Ipv4Addr) {
        let difference = Difference::u32(self.as_view().source().to_bits(), address.to_bits());
        self.0[12..16].copy_from_slice(&address.octets());
        self.update_checksum(difference);
    }

    /// Sets the destination address. The checksum of TCP or UDP covers it too: see [`PacketMut`](super::PacketMut).
    #[inline]
    pub fn set_destination(&mut self, address: Ipv4Addr) {
        let difference = Difference::u32(self.as_view().destination().to_bits(), address.to_bits());
        self.0[16..20].copy_from_slice(&address.octets());
        self.update_checksum(difference);
    }

    /// Sets the time to live, in hops.
    #[inline]
    pub fn set_ttl(&mut self, ttl: u8) {
        self.set_byte(8, ttl);
    }

    /// Takes one off the TTL; leaves 0 as it is.
    #[inline]
    pub fn decrement_ttl(&mut self) {
        ipv4::decrement_ttl(self.0);
    }

    /// Sets the differentiated services code point (RFC 2474); only the low 6 bits count.
    #[inline]
    pub fn set_dscp(&mut self, dscp: u8) {
        self.set_byte(1, dscp << 2 | self.as_view().ecn());
    }

    /// Sets the explicit congestion notification field (RFC 3168); only the low 2 bits count.
    #[inline]
    pub fn set_ecn(&mut self, ecn: u8) {
        self.set_byte(1, self.as_view().dscp() << 2 | ecn & 0x03);
    }

    /// Sets the identification.
    #[inline]
    pub fn set_identification(&mut self, identification: u16) {
        let difference = Difference::u16(self.as_view().identification(), identification);
        self.0[4..6].copy_from_slice(&identification.to_be_bytes());
        self.update_checksum(difference);
    }

    /// Sets the DF flag.
    #[inline]
    pub fn set_dont_fragment(&mut self, dont_fragment: bool) {
        self.set_byte(6, self.0[6] & !0x40 | u8::from(dont_fragment) << 6);
    }

    #[inline(always)]
    fn set_byte(&mut self, index: usize, value: u8) {
        // A byte at an even offset is the high half of its word.
        let shift = if index.is_multiple_of(2) { 8 } else { 0 };
        let difference = Difference::u16(u16::from(self.0[index]) << shift, u16::from(value) << shift);
        self.0[index] = value;
        self.update_checksum(difference);
    }

    #[inline(always)]
    fn update_checksum(&mut self, difference: Difference) {
        let checksum = difference.apply(self.as_view().checksum());
        [self.0[10], self.0[11]] = checksum.to_be_bytes();
    }
}
