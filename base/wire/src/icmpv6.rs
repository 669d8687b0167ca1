//! ICMP for IPv6 (RFC 4443), as far as a router sends and reads it.

use std::net::Ipv6Addr;

use crate::checksum::pseudo_ipv6;
use crate::error::{IcmpError, WrongChecksum, take};
use crate::{IpProtocol, Ipv6Packet, martian};

/// Bytes of the header that all messages have, the four bytes after the checksum included.
pub const HEADER_LENGTH: usize = 8;

/// How much of a packet an error quotes: an error is at most 1,280 bytes long (RFC 4443 section 2.4 (c)), of which
/// 40 are its IPv6 header and 8 its ICMPv6 header.
pub const MAXIMUM_QUOTE: usize = 1280 - 40 - HEADER_LENGTH;

/// Codes of "destination unreachable" (RFC 4443 section 3.1).
pub mod unreachable {
    /// No route.
    pub const NO_ROUTE: u8 = 0;
    /// Filtered by the administrator.
    pub const PROHIBITED: u8 = 1;
    /// The destination is out of the source address' scope.
    pub const BEYOND_SCOPE: u8 = 2;
    /// The neighbour doesn't answer, or any other reason.
    pub const ADDRESS: u8 = 3;
    /// Nobody listens at the port.
    pub const PORT: u8 = 4;
    /// The source address fails the ingress policy.
    pub const SOURCE_POLICY: u8 = 5;
    /// A reject route.
    pub const REJECT_ROUTE: u8 = 6;
}

/// Codes of "time exceeded" (RFC 4443 section 3.3).
pub mod time_exceeded {
    /// The hop limit ran out on the way.
    pub const IN_TRANSIT: u8 = 0;
    /// A fragment was missing for too long.
    pub const REASSEMBLY: u8 = 1;
}

/// Codes of "parameter problem" (RFC 4443 section 3.4).
pub mod parameter_problem {
    /// A header field is wrong.
    pub const HEADER_FIELD: u8 = 0;
    /// The Next Header is unknown.
    pub const NEXT_HEADER: u8 = 1;
    /// An option is unknown.
    pub const OPTION: u8 = 2;
}

/// The header of a message. Neighbour discovery is in [`crate::neighbour`] and appears as `Other` here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Icmpv6Message {
    /// A packet could not be delivered; the data quotes it.
    Unreachable {
        /// Why: see [`mod@unreachable`].
        code: u8,
    },
    /// A packet is too large for the next link; the data quotes it.
    PacketTooBig {
        /// The next link's MTU in bytes.
        mtu: u32,
    },
    /// A packet took too long; the data quotes it.
    TimeExceeded {
        /// Where: see [`time_exceeded`].
        code: u8,
    },
    /// A header is wrong; the data quotes the packet.
    ParameterProblem {
        /// What: see [`parameter_problem`].
        code: u8,
        /// The offset of the wrong byte.
        pointer: u32,
    },
    /// `ping`.
    EchoRequest {
        /// Which sender.
        identifier: u16,
        /// Which request.
        sequence: u16,
    },
    /// The answer to `ping`; the data is the request's.
    EchoReply {
        /// Which sender.
        identifier: u16,
        /// Which request.
        sequence: u16,
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

impl Icmpv6Message {
    /// Reads a message whose checksum is right; gives its header and its data. `bytes` is exactly what the IPv6
    /// headers leave, without link-layer padding.
    ///
    /// # Errors
    /// The first rule that is broken, as [`IcmpError`].
    pub fn parse(source: Ipv6Addr, destination: Ipv6Addr, bytes: &[u8]) -> Result<(Self, &[u8]), IcmpError> {
        let ([kind, code, c0, c1, rest @ ..], data) = take::<HEADER_LENGTH>(bytes, "ICMPv6 header")?;
        let sum = sum(source, destination, bytes);
        WrongChecksum::check_with_pseudo_header("ICMPv6", u16::from_be_bytes([*c0, *c1]), sum)?;
        let [a, b, c, d] = *rest;
        let (first, second) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let word = u32::from_be_bytes(*rest);
        let message = match (*kind, *code) {
            (1, code) => Self::Unreachable { code },
            // The code is sent as 0 and ignored by the receiver (RFC 4443 section 3.2).
            (2, _) => Self::PacketTooBig { mtu: word },
            (3, code) => Self::TimeExceeded { code },
            (4, code) => Self::ParameterProblem { code, pointer: word },
            (128, 0) => Self::EchoRequest { identifier: first, sequence: second },
            (129, 0) => Self::EchoReply { identifier: first, sequence: second },
            (kind, code) => Self::Other { kind, code, rest: *rest },
        };
        Ok((message, data))
    }

    /// The header with a checksum over pseudo header, header and `data`.
    pub fn header(&self, source: Ipv6Addr, destination: Ipv6Addr, data: &[u8]) -> [u8; HEADER_LENGTH] {
        let pair = |first: u16, second: u16| {
            let ([a, b], [c, d]) = (first.to_be_bytes(), second.to_be_bytes());
            [a, b, c, d]
        };
        let (kind, code, [a, b, c, d]) = match *self {
            Self::Unreachable { code } => (1, code, [0; 4]),
            Self::PacketTooBig { mtu } => (2, 0, mtu.to_be_bytes()),
            Self::TimeExceeded { code } => (3, code, [0; 4]),
            Self::ParameterProblem { code, pointer } => (4, code, pointer.to_be_bytes()),
            Self::EchoRequest { identifier, sequence } => (128, 0, pair(identifier, sequence)),
            Self::EchoReply { identifier, sequence } => (129, 0, pair(identifier, sequence)),
            Self::Other { kind, code, rest } => (kind, code, rest),
        };
        let length = (HEADER_LENGTH + data.len()) as u32;
        let sum = pseudo_ipv6(source, destination, IpProtocol::ICMPV6, length)
            .bytes(&[kind, code, 0, 0, a, b, c, d])
            .bytes(data);
        let [c0, c1] = sum.checksum().to_be_bytes();
        [kind, code, c0, c1, a, b, c, d]
    }
}

/// The ones' complement sum of pseudo header and message.
pub(crate) fn sum(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> u16 {
    pseudo_ipv6(source, destination, IpProtocol::ICMPV6, message.len() as u32).bytes(message).fold()
}

/// Whether a type field stands for an error (RFC 4443 section 2.1).
#[inline]
pub const fn is_error(kind: u8) -> bool {
    kind < 128
}

/// The part of a packet that an error quotes. `packet` starts at its IPv6 header.
#[inline]
pub fn quote(packet: &[u8]) -> &[u8] {
    packet.get(..MAXIMUM_QUOTE).unwrap_or(packet)
}

/// Whether `error` may answer `packet`: it doesn't if the packet is an ICMPv6 error or redirect itself, has a source
/// that isn't one node, or goes to a group, except that "packet too big" and "parameter problem, unknown option" go
/// out for multicast as well (RFC 4443 section 2.4 (e)). A later fragment is answered, as path MTU discovery wants;
/// a chain of extension headers that can't be read only by "parameter problem". That the packet came as a link-layer
/// broadcast only the caller can see.
pub fn may_answer(packet: &Ipv6Packet<'_>, error: &Icmpv6Message) -> bool {
    // Redirect (RFC 4861 section 4.5).
    const REDIRECT: u8 = 137;
    let to_groups_too = matches!(
        error,
        Icmpv6Message::PacketTooBig { .. }
            | Icmpv6Message::ParameterProblem { code: parameter_problem::OPTION, .. }
    );
    if martian::ipv6_source_is_martian(packet.header.source())
        || (packet.header.destination().is_multicast() && !to_groups_too)
    {
        return false;
    }
    match packet.upper_layer() {
        Ok(upper) if upper.is_present() && upper.protocol == IpProtocol::ICMPV6 => {
            let kind = packet.payload.get(upper.offset - crate::ipv6::HEADER_LENGTH);
            kind.is_some_and(|kind| !is_error(*kind) && *kind != REDIRECT)
        }
        Ok(_) => true,
        // A malformed chain may still be worth a "parameter problem", as it isn't known to carry an error.
        Err(_) => matches!(error, Icmpv6Message::ParameterProblem { .. }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Frame, Ipv6Fields, Truncated, ipv6};
    use proptest::prelude::*;

    fn ends() -> (Ipv6Addr, Ipv6Addr) {
        ("2001:db8::1".parse().unwrap(), "2001:db8:ffff::2".parse().unwrap())
    }

    #[test]
    fn each_rule_has_its_error() {
        let (source, destination) = ends();
        let truncated = Truncated { header: "ICMPv6 header", needed: 8, available: 7 };
        let error = Icmpv6Message::parse(source, destination, &[128; 7]);
        assert_eq!(error, Err(IcmpError::Truncated(truncated)));
        let mut bytes = Icmpv6Message::PacketTooBig { mtu: 1280 }.header(source, destination, &[]);
        let found = u16::from_be_bytes([bytes[2], bytes[3]]);
        bytes[7] += 1;
        let error = Icmpv6Message::parse(source, destination, &bytes);
        let wrong = WrongChecksum::check_with_pseudo_header("ICMPv6", found, 1).unwrap_err();
        assert_eq!(error, Err(IcmpError::Checksum(wrong)));
    }

    #[test]
    fn every_message_is_read_as_it_was_written() {
        let (source, destination) = ends();
        let messages = [
            (1, Icmpv6Message::Unreachable { code: unreachable::ADDRESS }),
            (2, Icmpv6Message::PacketTooBig { mtu: 1480 }),
            (3, Icmpv6Message::TimeExceeded { code: time_exceeded::IN_TRANSIT }),
            (
                4,
                Icmpv6Message::ParameterProblem {
                    code: parameter_problem::NEXT_HEADER,
                    pointer: 0x0102_0304,
                },
            ),
            (128, Icmpv6Message::EchoRequest { identifier: 1, sequence: 2 }),
            (129, Icmpv6Message::EchoReply { identifier: 3, sequence: 4 }),
            (133, Icmpv6Message::Other { kind: 133, code: 9, rest: [1, 2, 3, 4] }),
        ];
        for (kind, message) in messages {
            let bytes = [&message.header(source, destination, b"odd")[..], b"odd"].concat();
            assert_eq!(bytes[0], kind);
            assert_eq!(Icmpv6Message::parse(source, destination, &bytes), Ok((message, &b"odd"[..])));
        }
    }

    #[test]
    fn no_answer_to_errors_groups_and_nobody() {
        let (source, destination) = ends();
        let fields = Ipv6Fields::new(source, destination);
        let exceeded = Icmpv6Message::TimeExceeded { code: 0 };
        let too_big = Icmpv6Message::PacketTooBig { mtu: 1280 };
        let answered =
            |frame: Frame<'_>, error| may_answer(&ipv6::check(&frame.to_vec().unwrap()).unwrap(), &error);
        let udp = |fields, error| answered(Frame::new().ipv6(fields).udp(1, 2), error);
        let icmp = |message| answered(Frame::new().ipv6(fields).icmpv6(message), exceeded);
        assert!(udp(fields, exceeded));
        let group = Ipv6Fields::new(source, "ff0e::1".parse().unwrap());
        assert!(!udp(group, exceeded) && udp(group, too_big));
        assert!(!udp(Ipv6Fields::new(Ipv6Addr::UNSPECIFIED, destination), exceeded));
        assert!(!udp(Ipv6Fields::new("ff02::1".parse().unwrap(), destination), exceeded));
        assert!(icmp(Icmpv6Message::EchoRequest { identifier: 1, sequence: 1 }));
        assert!(!icmp(Icmpv6Message::Unreachable { code: 0 }));
        assert!(!icmp(Icmpv6Message::Other { kind: 127, code: 0, rest: [0; 4] }));
        assert!(!icmp(Icmpv6Message::Other { kind: 137, code: 0, rest: [0; 4] }));
        let later = [(IpProtocol::FRAGMENT, &[0, 0, 0, 8, 0, 0, 0, 1][..])];
        let later = Ipv6Fields { extensions: &later, ..fields };
        assert!(answered(Frame::new().ipv6(later).protocol(IpProtocol::ICMPV6).payload(&[1]), too_big));
        // An error behind an extension header is an error still.
        let options = [(IpProtocol::DESTINATION_OPTIONS, &[0, 0, 1, 4, 0, 0, 0, 0][..])];
        let fields = Ipv6Fields { extensions: &options, ..fields };
        assert!(udp(fields, exceeded));
        assert!(!answered(Frame::new().ipv6(fields).icmpv6(exceeded), exceeded));
        // A header that can't be read is reported, but nothing else about the packet is.
        let broken = [(IpProtocol::DESTINATION_OPTIONS, &[0, 9, 1, 4, 0, 0, 0, 0][..])];
        let fields = Ipv6Fields { extensions: &broken, ..fields };
        assert!(!udp(fields, exceeded));
        assert!(udp(fields, Icmpv6Message::ParameterProblem { code: 0, pointer: 41 }));
    }

    #[test]
    fn quotes_end_at_1280_bytes() {
        assert_eq!(quote(&[0; 100]).len(), 100);
        assert_eq!(quote(&[0; 1500]).len() + 48, 1280);
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_fail(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let (source, destination) = ends();
            let _ = Icmpv6Message::parse(source, destination, &bytes);
        }
    }
}
