//! Changes to transport headers.

use crate::checksum::Difference;
use crate::{IpProtocol, TcpHeader, UdpHeader, flow_hash, icmpv4, icmpv6, tcp, udp};

macro_rules! port_setters {
    () => {
        /// Sets the sender's port.
        #[inline]
        pub fn set_source_port(&mut self, port: u16) {
            let difference = replace(&mut self.0[..2], port);
            self.update_checksum(difference);
        }

        /// Sets the receiver's port.
        #[inline]
        pub fn set_destination_port(&mut self, port: u16) {
            let difference = replace(&mut self.0[2..4], port);
            self.update_checksum(difference);
        }
    };
}

/// A UDP header, to change. Each method keeps the checksum right, and 0 ("none") as it is.
#[derive(Debug)]
pub struct UdpHeaderMut<'a>(pub &'a mut [u8; udp::HEADER_LENGTH]);

impl UdpHeaderMut<'_> {
    /// The same header, to read.
    #[inline(always)]
    pub const fn as_view(&self) -> UdpHeader<'_> {
        UdpHeader(self.0)
    }

    port_setters!();

    #[inline(always)]
    fn update_checksum(&mut self, difference: Difference) {
        update(&mut self.0[6..8], difference, true);
    }
}

/// The fixed part of a TCP header, to change. Each method keeps the checksum right.
#[derive(Debug)]
pub struct TcpHeaderMut<'a>(pub &'a mut [u8; tcp::HEADER_LENGTH]);

impl TcpHeaderMut<'_> {
    /// The same header, to read.
    #[inline(always)]
    pub const fn as_view(&self) -> TcpHeader<'_> {
        TcpHeader(self.0)
    }

    port_setters!();

    /// Sets the window, before scaling.
    #[inline]
    pub fn set_window(&mut self, window: u16) {
        let difference = replace(&mut self.0[14..16], window);
        self.update_checksum(difference);
    }

    #[inline(always)]
    fn update_checksum(&mut self, difference: Difference) {
        update(&mut self.0[16..18], difference, false);
    }
}

/// Writes a big-endian field of two bytes at an even offset, and tells what that does to a sum.
#[inline(always)]
fn replace(field: &mut [u8], new: u16) -> Difference {
    let old = word(field);
    field.copy_from_slice(&new.to_be_bytes());
    Difference::u16(old, new)
}

#[inline(always)]
fn word(field: &[u8]) -> u16 {
    field.first_chunk().map_or(0, |bytes| u16::from_be_bytes(*bytes))
}

/// Applies `difference` to a checksum; 0 stays 0 if that means "none" (RFC 768).
#[inline(always)]
fn update(checksum: &mut [u8], difference: Difference, zero_is_none: bool) {
    let old = word(checksum);
    if zero_is_none && old == 0 {
        return;
    }
    let new = difference.apply(old);
    let new = if zero_is_none { udp::sendable(new) } else { new };
    checksum.copy_from_slice(&new.to_be_bytes());
}

/// A transport header whose checksum a packet edit has to keep right.
#[derive(Debug)]
pub(super) enum Transport<'a> {
    Tcp(&'a mut [u8; tcp::HEADER_LENGTH]),
    Udp(&'a mut [u8; udp::HEADER_LENGTH]),
    Icmpv4(&'a mut [u8; icmpv4::HEADER_LENGTH]),
    Icmpv6(&'a mut [u8; icmpv6::HEADER_LENGTH]),
    /// Another protocol, a header that is cut off, or none: a fragment other than the first. With the ports of the flow, if
    /// these are there.
    Opaque(Option<(u16, u16)>),
}

impl<'a> Transport<'a> {
    pub(super) fn new(protocol: IpProtocol, bytes: &'a mut [u8]) -> Self {
        let opaque = Self::Opaque(flow_hash::flow_ports(protocol, bytes));
        let found = match protocol {
            IpProtocol::TCP => bytes.first_chunk_mut().map(Self::Tcp),
            IpProtocol::UDP => bytes.first_chunk_mut().map(Self::Udp),
            IpProtocol::ICMP => bytes.first_chunk_mut().map(Self::Icmpv4),
            IpProtocol::ICMPV6 => bytes.first_chunk_mut().map(Self::Icmpv6),
            _ => None,
        };
        found.unwrap_or(opaque)
    }

    /// The source port's field and the destination port's.
    pub(super) fn ports(&self) -> Option<(u16, u16)> {
        match self {
            Self::Tcp(bytes) => Some((word(&bytes[..2]), word(&bytes[2..4]))),
            Self::Udp(bytes) => Some((word(&bytes[..2]), word(&bytes[2..4]))),
            _ => None,
        }
    }

    /// The ports that belong to the flow: also those of other protocols and of headers that are cut off behind them.
    pub(super) fn flow_ports(&self) -> Option<(u16, u16)> {
        if let Self::Opaque(ports) = self { *ports } else { self.ports() }
    }

    /// The identifier of an ICMP echo request or reply.
    pub(super) fn echo_identifier(&self) -> Option<u16> {
        match self {
            // RFC 792, "Echo or Echo Reply Message".
            Self::Icmpv4(bytes) if matches!(bytes[0], 0 | 8) => Some(word(&bytes[4..6])),
            // RFC 4443 sections 4.1 and 4.2.
            Self::Icmpv6(bytes) if matches!(bytes[0], 128 | 129) => Some(word(&bytes[4..6])),
            _ => None,
        }
    }

    /// Sets the port at this offset, 0 or 2. `false` if there are no ports.
    pub(super) fn set_port(&mut self, offset: usize, port: u16, partial: bool) -> bool {
        let field = match self {
            Self::Tcp(bytes) => &mut bytes[offset..offset + 2],
            Self::Udp(bytes) => &mut bytes[offset..offset + 2],
            _ => return false,
        };
        let difference = replace(field, port);
        self.header_changed(difference, partial);
        true
    }

    /// Sets the identifier of an echo message. `false` if it is none.
    pub(super) fn set_echo_identifier(&mut self, identifier: u16, partial: bool) -> bool {
        if self.echo_identifier().is_none() {
            return false;
        }
        if let Self::Icmpv4(bytes) | Self::Icmpv6(bytes) = self {
            let difference = replace(&mut bytes[4..6], identifier);
            self.header_changed(difference, partial);
        }
        true
    }

    /// An address changed by `difference`.
    pub(super) fn address_changed(&mut self, difference: Difference, partial: bool) {
        // The checksum of ICMP for IPv4 doesn't cover the addresses (RFC 792).
        if matches!(self, Self::Icmpv4(_)) {
            return;
        }
        let Some((field, zero_is_none)) = self.checksum() else { return };
        if partial {
            // A partial checksum is the sum of the pseudo header, not its complement.
            let sum = difference.apply_to_sum(word(field));
            field.copy_from_slice(&sum.to_be_bytes());
        } else {
            update(field, difference, zero_is_none);
        }
    }

    /// A field of the header itself changed by `difference`.
    fn header_changed(&mut self, difference: Difference, partial: bool) {
        // Whoever completes a partial checksum sums up the header as it is then.
        if partial {
            return;
        }
        if let Some((field, zero_is_none)) = self.checksum() {
            update(field, difference, zero_is_none);
        }
    }

    /// The checksum field, and whether 0 in it means "none" (RFC 768).
    fn checksum(&mut self) -> Option<(&mut [u8], bool)> {
        match self {
            Self::Tcp(bytes) => Some((&mut bytes[16..18], false)),
            Self::Udp(bytes) => Some((&mut bytes[6..8], true)),
            Self::Icmpv4(bytes) | Self::Icmpv6(bytes) => Some((&mut bytes[2..4], false)),
            Self::Opaque(_) => None,
        }
    }
}
