//! ICMP for IPv4 (RFC 792), as far as a router sends and reads it (RFC 1812 section 4.3).

use std::net::Ipv4Addr;

use crate::checksum;
use crate::error::{IcmpError, WrongChecksum, take};
use crate::{IpProtocol, Ipv4Packet, martian};

/// Bytes of the header that all messages have.
pub const HEADER_LENGTH: usize = 8;

/// How much of a packet an error quotes: an error is at most 576 bytes long (RFC 1812 section 4.3.2.3), of which
/// 20 are its IPv4 header and 8 its ICMP header.
pub const MAXIMUM_QUOTE: usize = 576 - 20 - HEADER_LENGTH;

/// Codes of "destination unreachable" that a router uses (RFC 792, RFC 1812 section 5.2.7.1).
pub mod unreachable {
    /// No route.
    pub const NETWORK: u8 = 0;
    /// The last hop finds no neighbour.
    pub const HOST: u8 = 1;
    /// The host doesn't speak the protocol.
    pub const PROTOCOL: u8 = 2;
    /// Nobody listens at the port.
    pub const PORT: u8 = 3;
    /// Too large for the next link and must not be fragmented.
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// A source route failed.
    pub const SOURCE_ROUTE: u8 = 5;
    /// Filtered by the administrator (RFC 1812 section 5.2.7.1).
    pub const PROHIBITED: u8 = 13;
}

/// Codes of "time exceeded".
pub mod time_exceeded {
    /// The TTL ran out on the way.
    pub const IN_TRANSIT: u8 = 0;
    /// A fragment was missing for too long.
    pub const REASSEMBLY: u8 = 1;
}

/// Codes of "redirect".
pub mod redirect {
    /// For the whole network; not sent by routers today (RFC 1812 section 4.3.3.2).
    pub const NETWORK: u8 = 0;
    /// For one host.
    pub const HOST: u8 = 1;
}

/// The header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Icmpv4Message {
    /// The answer to `ping`; the data is the request's.
    EchoReply {
        /// Which sender.
        identifier: u16,
        /// Which request.
        sequence: u16,
    },
    /// A packet could not be delivered; the data quotes it.
    Unreachable {
        /// Why: see [`mod@unreachable`].
        code: u8,
        /// With [`unreachable::FRAGMENTATION_NEEDED`] the next link's MTU in bytes (RFC 1191 section 4), else 0.
        mtu: u16,
    },
    /// There is a better first hop; the data quotes the packet.
    Redirect {
        /// For what: see [`redirect`].
        code: u8,
        /// The better first hop.
        gateway: Ipv4Addr,
    },
    /// `ping`.
    EchoRequest {
        /// Which sender.
        identifier: u16,
        /// Which request.
        sequence: u16,
    },
    /// A packet took too long; the data quotes it.
    TimeExceeded {
        /// Where: see [`time_exceeded`].
        code: u8,
    },
    /// A header field is wrong; the data quotes the packet.
    ParameterProblem {
        /// 0: the pointer tells; 1: an option is missing; 2: bad length.
        code: u8,
        /// The offset of the wrong byte.
        pointer: u8,
    },
    /// Anything else.
    Other {
        /// The type field.
        kind: u8,
        /// The code field.
        code: u8,
        /// The four bytes after the checksum.
        rest: [u8; 4],
    },
}

impl Icmpv4Message {
    /// Reads a message whose checksum is right; gives its header and its data. `bytes` is exactly what the IPv4
    /// header leaves, without link-layer padding.
    ///
    /// # Errors
    /// The first rule that is broken, as [`IcmpError`].
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), IcmpError> {
        let ([kind, code, c0, c1, rest @ ..], data) = take::<HEADER_LENGTH>(bytes, "ICMP header")?;
        let sum = checksum::sum(bytes);
        WrongChecksum::check_message("ICMP", u16::from_be_bytes([*c0, *c1]), sum)?;
        Ok((Self::from_fields(*kind, *code, *rest), data))
    }

    fn from_fields(kind: u8, code: u8, rest: [u8; 4]) -> Self {
        let [a, b, c, d] = rest;
        let (first, second) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        match (kind, code) {
            (0, 0) => Self::EchoReply { identifier: first, sequence: second },
            // The other half is unused, or tells an extension's length (RFC 4884).
            (3, _) => Self::Unreachable { code, mtu: second },
            (5, _) => Self::Redirect { code, gateway: rest.into() },
            (8, 0) => Self::EchoRequest { identifier: first, sequence: second },
            (11, _) => Self::TimeExceeded { code },
            (12, _) => Self::ParameterProblem { code, pointer: a },
            _ => Self::Other { kind, code, rest },
        }
    }

    /// Whether the message reports an error, so that no error may answer it (RFC 1812 section 4.3.2.7).
    pub fn is_error(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::Redirect { .. }
            | Self::TimeExceeded { .. }
            | Self::ParameterProblem { .. } => true,
            Self::EchoReply { .. } | Self::EchoRequest { .. } => false,
            // 4 is the old source quench.
            Self::Other { kind, .. } => *kind == 4,
        }
    }

    /// The header with a checksum over it and `data`.
    pub fn header(&self, data: &[u8]) -> [u8; HEADER_LENGTH] {
        let pair = |first: u16, second: u16| {
            let ([a, b], [c, d]) = (first.to_be_bytes(), second.to_be_bytes());
            [a, b, c, d]
        };
        let (kind, code, [a, b, c, d]) = match *self {
            Self::EchoReply { identifier, sequence } => (0, 0, pair(identifier, sequence)),
            Self::Unreachable { code, mtu } => (3, code, pair(0, mtu)),
            Self::Redirect { code, gateway } => (5, code, gateway.octets()),
            Self::EchoRequest { identifier, sequence } => (8, 0, pair(identifier, sequence)),
            Self::TimeExceeded { code } => (11, code, [0; 4]),
            Self::ParameterProblem { code, pointer } => (12, code, [pointer, 0, 0, 0]),
            Self::Other { kind, code, rest } => (kind, code, rest),
        };
        let sum = checksum::Sum::new().bytes(&[kind, code, 0, 0, a, b, c, d]).bytes(data);
        let [c0, c1] = sum.checksum().to_be_bytes();
        [kind, code, c0, c1, a, b, c, d]
    }
}

/// The part of a packet that an error quotes. `packet` starts at its IPv4 header.
#[inline]
pub fn quote(packet: &[u8]) -> &[u8] {
    packet.get(..MAXIMUM_QUOTE).unwrap_or(packet)
}

/// Whether an ICMP error may answer `packet`: it doesn't if the packet is an ICMP error itself, goes to a group or
/// to everybody, is a fragment but the first, or has a source that isn't one host (RFC 1812 section 4.3.2.7).
/// That it came as a link-layer broadcast, and directed broadcasts, only the caller can see.
pub fn may_answer(packet: &Ipv4Packet<'_>) -> bool {
    let header = packet.header;
    let destination = header.destination();
    if header.fragment_offset() != 0
        || martian::ipv4_source_is_martian(header.source())
        || destination.is_multicast()
        || destination.is_broadcast()
    {
        return false;
    }
    if header.protocol() != IpProtocol::ICMP {
        return true;
    }
    // The checksum doesn't matter here: a damaged error is no reason for another one.
    match packet.payload.first_chunk::<HEADER_LENGTH>() {
        Some([kind, code, _, _, rest @ ..]) => !Icmpv4Message::from_fields(*kind, *code, *rest).is_error(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Frame, Ipv4Fields, Truncated, ipv4};
    use proptest::prelude::*;

    #[test]
    fn an_echo_request_byte_for_byte() {
        let message = Icmpv4Message::EchoRequest { identifier: 0x0102, sequence: 3 };
        // 0800 + 0102 + 0003 + 6162 + 6300 = cd67, whose complement is 3298.
        assert_eq!(message.header(b"abc"), [8, 0, 0x32, 0x98, 1, 2, 0, 3]);
    }

    #[test]
    fn each_rule_has_its_error() {
        let truncated = Truncated { header: "ICMP header", needed: 8, available: 7 };
        assert_eq!(Icmpv4Message::parse(&[8; 7]), Err(IcmpError::Truncated(truncated)));
        let bytes = [8, 0, 0x32, 0x98, 1, 2, 0, 4, b'a', b'b', b'c'];
        let wrong = WrongChecksum::check_message("ICMP", 0x3298, 0x0001).unwrap_err();
        assert_eq!(
            wrong.to_string(),
            "ICMP checksum 0x3298 is wrong: the message adds up to 0x0001 instead of 0xffff"
        );
        assert_eq!(Icmpv4Message::parse(&bytes), Err(IcmpError::Checksum(wrong)));
    }

    #[test]
    fn every_message_is_read_as_it_was_written() {
        let messages = [
            (0, Icmpv4Message::EchoReply { identifier: 1, sequence: 2 }),
            (3, Icmpv4Message::Unreachable { code: unreachable::FRAGMENTATION_NEEDED, mtu: 1400 }),
            (5, Icmpv4Message::Redirect { code: redirect::HOST, gateway: [192, 0, 2, 7].into() }),
            (8, Icmpv4Message::EchoRequest { identifier: 3, sequence: 4 }),
            (11, Icmpv4Message::TimeExceeded { code: time_exceeded::IN_TRANSIT }),
            (12, Icmpv4Message::ParameterProblem { code: 0, pointer: 20 }),
            (13, Icmpv4Message::Other { kind: 13, code: 0, rest: [1, 2, 3, 4] }),
        ];
        for (kind, message) in messages {
            let bytes = [&message.header(b"odd")[..], b"odd"].concat();
            assert_eq!(bytes[0], kind);
            assert_eq!(Icmpv4Message::parse(&bytes), Ok((message, &b"odd"[..])));
        }
    }

    #[test]
    fn no_answer_to_errors_groups_fragments_and_nobody() {
        let source = Ipv4Addr::new(192, 0, 2, 1);
        let fields = Ipv4Fields::new(source, [198, 51, 100, 2].into());
        let answered = |frame: Frame<'_>| may_answer(&ipv4::check(&frame.to_vec().unwrap()).unwrap());
        let udp = |fields: Ipv4Fields<'static>| answered(Frame::new().ipv4(fields).udp(1, 2));
        let icmp = |message| answered(Frame::new().ipv4(fields).icmpv4(message));
        assert!(udp(fields));
        assert!(udp(Ipv4Fields { more_fragments: true, ..fields }));
        assert!(!udp(Ipv4Fields { fragment_offset: 8, ..fields }));
        assert!(!udp(Ipv4Fields::new(source, [224, 0, 0, 5].into())));
        assert!(!udp(Ipv4Fields::new(source, Ipv4Addr::BROADCAST)));
        assert!(!udp(Ipv4Fields::new([224, 0, 0, 5].into(), source)));
        assert!(!udp(Ipv4Fields::new(Ipv4Addr::UNSPECIFIED, source)));
        assert!(icmp(Icmpv4Message::EchoRequest { identifier: 1, sequence: 1 }));
        assert!(icmp(Icmpv4Message::Other { kind: 13, code: 0, rest: [0; 4] }));
        assert!(!icmp(Icmpv4Message::Other { kind: 4, code: 0, rest: [0; 4] }));
        assert!(!icmp(Icmpv4Message::TimeExceeded { code: 0 }));
        assert!(!answered(Frame::new().ipv4(fields).protocol(IpProtocol::ICMP).payload(&[3])));
    }

    #[test]
    fn quotes_end_at_576_bytes() {
        assert_eq!(quote(&[0; 100]).len(), 100);
        assert_eq!(quote(&[0; 1500]).len() + 28, 576);
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_fail(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = Icmpv4Message::parse(&bytes);
        }
    }
}
