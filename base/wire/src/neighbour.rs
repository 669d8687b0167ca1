//! Neighbour discovery: solicitations and advertisements (RFC 4861 sections 4.3, 4.4 and 7.1).

use std::net::Ipv6Addr;

use thiserror::Error;

use crate::error::{Truncated, WrongChecksum, take};
use crate::{IpProtocol, Ipv6Header, MacAddress, checksum, icmpv6};

/// The hop limit of every neighbour discovery packet: one that came through a router has a lower one.
pub const HOP_LIMIT: u8 = 255;

/// Bytes of a solicitation or advertisement without options.
const FIXED_LENGTH: usize = 24;

/// Bytes of a solicitation or advertisement with a link-layer address.
pub const MAXIMUM_LENGTH: usize = FIXED_LENGTH + 8;

const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const SOURCE_LINK_LAYER: u8 = 1;
const TARGET_LINK_LAYER: u8 = 2;

/// Why a packet is no valid neighbour solicitation or advertisement (RFC 4861 sections 7.1.1 and 7.1.2). The order of
/// the variants is the order of the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NeighbourError {
    /// It was sent from beyond the link.
    #[error(
        "neighbour discovery packet has hop limit {hop_limit}, must be 255: it did not come from this link"
    )]
    HopLimit {
        /// The hop limit.
        hop_limit: u8,
    },
    /// Fewer than 24 bytes.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// Neither solicitation nor advertisement.
    #[error("ICMPv6 type is {kind}, a neighbour solicitation has 135 and an advertisement 136")]
    Type {
        /// The type field.
        kind: u8,
    },
    /// The checksum doesn't fit pseudo header and message.
    #[error(transparent)]
    Checksum(#[from] WrongChecksum),
    /// The code isn't 0.
    #[error("neighbour discovery code is {code}, must be 0")]
    Code {
        /// The code field.
        code: u8,
    },
    /// The target is a group.
    #[error("neighbour discovery target {target} is a multicast address, must be a node's")]
    MulticastTarget {
        /// The target field.
        target: Ipv6Addr,
    },
    /// An option of length 0, or one longer than the rest of the message.
    #[error(
        "neighbour discovery option {option} is {length} bytes long, must be 8 to {available} (the bytes left)"
    )]
    OptionLength {
        /// The option's type.
        option: u8,
        /// What its length field says, in bytes.
        length: usize,
        /// Bytes from its start to the message's end.
        available: usize,
    },
    /// A solicitation from `::` that isn't for a solicited-node group.
    #[error(
        "neighbour solicitation from :: goes to {destination}, must go to a solicited-node group (ff02::1:ff00:0/104)"
    )]
    DestinationNotSolicitedNode {
        /// Where it went.
        destination: Ipv6Addr,
    },
    /// A solicitation from `::` that tells a link-layer address.
    #[error("neighbour solicitation from :: tells the source link-layer address {address}, must not")]
    LinkLayerOfUnspecified {
        /// The address in the option.
        address: MacAddress,
    },
    /// An advertisement that claims to be solicited but goes to a group.
    #[error("neighbour advertisement to the group {destination} has the solicited flag, must not")]
    SolicitedByGroup {
        /// Where it went.
        destination: Ipv6Addr,
    },
}

/// A solicitation or an advertisement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeighbourMessage {
    /// Who has the target address?
    Solicitation {
        /// The address that is looked for.
        target: Ipv6Addr,
        /// Where the sender is; absent when it checks for duplicates (RFC 4862 section 5.4.2).
        source_link_layer: Option<MacAddress>,
    },
    /// The sender has the target address.
    Advertisement {
        /// The address in question.
        target: Ipv6Addr,
        /// Where it is.
        target_link_layer: Option<MacAddress>,
        /// The sender is a router.
        router: bool,
        /// This answers a solicitation.
        solicited: bool,
        /// What the receiver has cached is to be replaced.
        replace: bool,
    },
}

impl NeighbourMessage {
    /// Reads a message and applies all rules of RFC 4861 sections 7.1.1 and 7.1.2. `message` is exactly what the IPv6
    /// headers leave; unknown options are skipped, and so are link-layer addresses that aren't 6 bytes long.
    ///
    /// # Errors
    /// The first rule that is broken, as [`NeighbourError`].
    pub fn parse(header: Ipv6Header<'_>, message: &[u8]) -> Result<Self, NeighbourError> {
        if header.hop_limit() != HOP_LIMIT {
            return Err(NeighbourError::HopLimit { hop_limit: header.hop_limit() });
        }
        let (fixed, options) = take::<FIXED_LENGTH>(message, "neighbour discovery message")?;
        let [kind, code, c0, c1, flags, _, _, _, target @ ..] = *fixed;
        if kind != SOLICITATION && kind != ADVERTISEMENT {
            return Err(NeighbourError::Type { kind });
        }
        let (source, destination) = (header.source(), header.destination());
        let sum = icmpv6::sum(source, destination, message);
        WrongChecksum::check_with_pseudo_header("ICMPv6", u16::from_be_bytes([c0, c1]), sum)?;
        if code != 0 {
            return Err(NeighbourError::Code { code });
        }
        let target = Ipv6Addr::from(target);
        if target.is_multicast() {
            return Err(NeighbourError::MulticastTarget { target });
        }
        if kind == SOLICITATION {
            let source_link_layer = link_layer_option(options, SOURCE_LINK_LAYER)?;
            if source.is_unspecified() {
                if !is_solicited_node(destination) {
                    return Err(NeighbourError::DestinationNotSolicitedNode { destination });
                }
                if let Some(address) = source_link_layer {
                    return Err(NeighbourError::LinkLayerOfUnspecified { address });
                }
            }
            return Ok(Self::Solicitation { target, source_link_layer });
        }
        let target_link_layer = link_layer_option(options, TARGET_LINK_LAYER)?;
        let solicited = flags & 0x40 != 0;
        if solicited && destination.is_multicast() {
            return Err(NeighbourError::SolicitedByGroup { destination });
        }
        let (router, replace) = (flags & 0x80 != 0, flags & 0x20 != 0);
        Ok(Self::Advertisement { target, target_link_layer, router, solicited, replace })
    }

    /// Bytes of the message: 24, or 32 with a link-layer address.
    pub fn length(&self) -> usize {
        let (Self::Solicitation { source_link_layer: address, .. }
        | Self::Advertisement { target_link_layer: address, .. }) = self;
        if address.is_some() { MAXIMUM_LENGTH } else { FIXED_LENGTH }
    }

    /// The message, of which the first [`NeighbourMessage::length`] bytes count, with its checksum.
    pub fn to_bytes(&self, source: Ipv6Addr, destination: Ipv6Addr) -> [u8; MAXIMUM_LENGTH] {
        let (kind, flags, target, option, address) = match *self {
            Self::Solicitation { target, source_link_layer } => {
                (SOLICITATION, 0, target, SOURCE_LINK_LAYER, source_link_layer)
            }
            Self::Advertisement { target, target_link_layer, router, solicited, replace } => {
                let flags = u8::from(router) << 7 | u8::from(solicited) << 6 | u8::from(replace) << 5;
                (ADVERTISEMENT, flags, target, TARGET_LINK_LAYER, target_link_layer)
            }
        };
        let option = address.map_or([0; 8], |MacAddress([a, b, c, d, e, f])| [option, 1, a, b, c, d, e, f]);
        // What lies behind the length is zero and adds nothing to the sum.
        let sum = checksum::pseudo_ipv6(source, destination, IpProtocol::ICMPV6, self.length() as u32)
            .bytes(&[kind, 0, 0, 0, flags, 0, 0, 0])
            .bytes(&target.octets())
            .bytes(&option);
        let [c0, c1] = sum.checksum().to_be_bytes();
        let mut bytes = [0; MAXIMUM_LENGTH];
        let parts = [kind, 0, c0, c1, flags, 0, 0, 0].into_iter().chain(target.octets()).chain(option);
        for (byte, part) in bytes.iter_mut().zip(parts) {
            *byte = part;
        }
        bytes
    }
}

/// The group that the owner of `address` listens to for solicitations (RFC 4291 section 2.7.1).
#[inline]
pub const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    Ipv6Addr::from_bits(0xff02_0000_0000_0000_0000_0001_ff00_0000 | (address.to_bits() & 0x00ff_ffff))
}

/// Whether `address` is in ff02::1:ff00:0/104.
#[inline]
pub const fn is_solicited_node(address: Ipv6Addr) -> bool {
    address.to_bits() >> 24 == 0xff02_0000_0000_0000_0000_0001_ff00_0000 >> 24
}

/// Walks all options, so that a bad length anywhere is found, and gives the first link-layer address of kind `wanted`.
fn link_layer_option(options: &[u8], wanted: u8) -> Result<Option<MacAddress>, NeighbourError> {
    let mut rest = options;
    let mut found = None;
    while let [option, units, ..] = *rest {
        let length = usize::from(units) * 8;
        let (Some((body, after)), 1..) = (rest.split_at_checked(length), units) else {
            return Err(NeighbourError::OptionLength { option, length, available: rest.len() });
        };
        if let ([_, _, address @ ..], true, None) = (body, option == wanted, found) {
            found = <[u8; 6]>::try_from(address).ok().map(MacAddress);
        }
        rest = after;
    }
    match *rest {
        [] => Ok(found),
        // One byte: an option without a length.
        [option, ..] => Err(NeighbourError::OptionLength { option, length: 0, available: 1 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Frame, Ipv6Fields, ipv6};
    use proptest::prelude::*;

    const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 7]);

    fn address(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    fn fields(source: &str, destination: &str) -> Ipv6Fields<'static> {
        Ipv6Fields { hop_limit: HOP_LIMIT, ..Ipv6Fields::new(address(source), address(destination)) }
    }

    fn solicitation(source_link_layer: Option<MacAddress>) -> NeighbourMessage {
        NeighbourMessage::Solicitation { target: address("fe80::12:3456"), source_link_layer }
    }

    fn advertisement(solicited: bool) -> NeighbourMessage {
        NeighbourMessage::Advertisement {
            target: address("fe80::12:3456"),
            target_link_layer: Some(MAC),
            router: true,
            solicited,
            replace: false,
        }
    }

    fn parse(packet: &[u8]) -> Result<NeighbourMessage, NeighbourError> {
        let packet = ipv6::check(packet).unwrap();
        NeighbourMessage::parse(packet.header, packet.payload)
    }

    fn sent(fields: Ipv6Fields<'_>, message: NeighbourMessage) -> Vec<u8> {
        Frame::new().ipv6(fields).neighbour(message).to_vec().unwrap()
    }

    /// A message of our own making, its checksum corrected.
    fn raw(fields: Ipv6Fields<'_>, message: &[u8]) -> Vec<u8> {
        let mut message = message.to_vec();
        message[2..4].fill(0);
        let sum = icmpv6::sum(fields.source, fields.destination, &message);
        message[2..4].copy_from_slice(&(!sum).to_be_bytes());
        Frame::new().ipv6(fields).protocol(IpProtocol::ICMPV6).payload(&message).to_vec().unwrap()
    }

    #[test]
    fn solicited_node_groups() {
        let group = solicited_node(address("2001:db8::ab12:3456"));
        assert_eq!(group, address("ff02::1:ff12:3456"));
        assert!(is_solicited_node(group));
        assert!(!is_solicited_node(address("ff02::1")) && !is_solicited_node(address("ff02::1:fe12:3456")));
    }

    #[test]
    fn a_solicitation_byte_for_byte() {
        let group = "ff02::1:ff12:3456";
        let bytes = sent(fields("fe80::1", group), solicitation(Some(MAC)));
        assert_eq!(bytes.len(), 40 + 32);
        assert_eq!(bytes[40..42], [135, 0]);
        assert_eq!(bytes[44..48], [0; 4]);
        assert_eq!(bytes[48..64], address("fe80::12:3456").octets());
        assert_eq!(bytes[64..], [1, 1, 2, 0, 0, 0, 0, 7]);
        assert_eq!(parse(&bytes), Ok(solicitation(Some(MAC))));
        // Duplicate address detection.
        let bytes = sent(fields("::", group), solicitation(None));
        assert_eq!(bytes.len(), 40 + 24);
        assert_eq!(parse(&bytes), Ok(solicitation(None)));
    }

    #[test]
    fn advertisement_flags_are_told_apart() {
        for bits in 0..8_u8 {
            let message = NeighbourMessage::Advertisement {
                target: address("2001:db8::1"),
                target_link_layer: (bits & 1 == 0).then_some(MAC),
                router: bits & 4 != 0,
                solicited: bits & 2 != 0,
                replace: bits & 1 != 0,
            };
            let bytes = sent(fields("2001:db8::1", "2001:db8::2"), message);
            assert_eq!(bytes[44], bits << 5);
            assert_eq!(parse(&bytes), Ok(message));
        }
    }

    #[test]
    fn each_rule_has_its_error() {
        let unicast = fields("fe80::1", "fe80::2");
        let valid = sent(unicast, solicitation(None))[40..].to_vec();
        let with = |at: usize, value: u8| {
            let mut message = valid.clone();
            message[at] = value;
            parse(&raw(unicast, &message))
        };

        let far = sent(Ipv6Fields { hop_limit: 254, ..unicast }, solicitation(None));
        assert_eq!(parse(&far), Err(NeighbourError::HopLimit { hop_limit: 254 }));

        let truncated = Truncated { header: "neighbour discovery message", needed: 24, available: 23 };
        assert_eq!(parse(&raw(unicast, &valid[..23])), Err(NeighbourError::Truncated(truncated)));

        assert_eq!(with(0, 134), Err(NeighbourError::Type { kind: 134 }));
        assert_eq!(with(0, 137), Err(NeighbourError::Type { kind: 137 }));

        let mut damaged = sent(unicast, solicitation(None));
        let found = u16::from_be_bytes([damaged[42], damaged[43]]);
        damaged[63] ^= 1;
        assert!(
            matches!(parse(&damaged), Err(NeighbourError::Checksum(wrong)) if wrong.found == found && wrong.sum != 0xffff)
        );

        assert_eq!(with(1, 3), Err(NeighbourError::Code { code: 3 }));
        let target = address("ff80::12:3456");
        assert_eq!(with(8, 0xff), Err(NeighbourError::MulticastTarget { target }));

        let duplicate = sent(fields("::", "fe80::2"), solicitation(None));
        let destination = address("fe80::2");
        assert_eq!(parse(&duplicate), Err(NeighbourError::DestinationNotSolicitedNode { destination }));
        let telling = sent(fields("::", "ff02::1:ff12:3456"), solicitation(Some(MAC)));
        assert_eq!(parse(&telling), Err(NeighbourError::LinkLayerOfUnspecified { address: MAC }));

        let destination = address("ff02::1");
        assert!(parse(&sent(fields("fe80::1", "ff02::1"), advertisement(false))).is_ok());
        let solicited = sent(fields("fe80::1", "ff02::1"), advertisement(true));
        assert_eq!(parse(&solicited), Err(NeighbourError::SolicitedByGroup { destination }));
    }

    #[test]
    fn options_are_walked_to_the_end() {
        let unicast = fields("fe80::1", "fe80::2");
        let valid = sent(unicast, solicitation(None))[40..].to_vec();
        let with = |options: &[u8]| parse(&raw(unicast, &[&valid[..], options].concat()));
        let nonce = [14, 1, 9, 9, 9, 9, 9, 9];
        let link_layer = [1, 1, 2, 0, 0, 0, 0, 7];
        assert_eq!(with(&[nonce, link_layer].concat()), Ok(solicitation(Some(MAC))));
        assert_eq!(with(&[[2, 1, 0, 0, 0, 0, 0, 0], nonce].concat()), Ok(solicitation(None)));
        // Not an Ethernet address.
        assert_eq!(with(&[&[1, 2][..], &[5; 14]].concat()), Ok(solicitation(None)));

        let bad = |option, length, available| Err(NeighbourError::OptionLength { option, length, available });
        assert_eq!(with(&[&link_layer[..], &[14, 0, 0, 0, 0, 0, 0, 0]].concat()), bad(14, 0, 8));
        assert_eq!(with(&[1, 2, 0, 0, 0, 0, 0, 0]), bad(1, 16, 8));
        assert_eq!(with(&[&link_layer[..], &[3]].concat()), bad(3, 0, 1));
    }

    proptest! {
        #[test]
        fn any_message_parses_or_fails(
            mut message in prop::collection::vec(any::<u8>(), 4..80),
            kind in prop::sample::select(vec![135_u8, 136]),
            small: bool,
        ) {
            (message[0], message[1]) = (kind, 0);
            if small {
                message.iter_mut().skip(24).for_each(|byte| *byte %= 3);
            }
            let _ = parse(&raw(fields("fe80::1", "fe80::2"), &message));
        }
    }
}
