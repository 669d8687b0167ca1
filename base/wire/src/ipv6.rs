//! IPv6 headers and the chain of extension headers (RFC 8200).

use std::fmt;
use std::net::Ipv6Addr;

use thiserror::Error;

use crate::IpProtocol;
use crate::error::{Truncated, take};

/// Bytes of the fixed header.
pub const HEADER_LENGTH: usize = 40;

/// How many extension headers [`Ipv6Packet::upper_layer`] follows. RFC 8200 section 4.1 names six places for them; a longer
/// chain serves only to make routers work.
pub const MAXIMUM_EXTENSIONS: usize = 8;

/// What is wrong with an IPv6 packet. The order of the variants is the order of the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Ipv6Error {
    /// The fixed header or an extension header ends before it should.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// The version field isn't 6.
    #[error("IP version is {version}, IPv6 needs 6")]
    Version {
        /// The version field.
        version: u8,
    },
    /// The payload length is more than there is.
    #[error("IPv6 payload length is {length} bytes, only {available} are present after the header")]
    PayloadLength {
        /// The payload length field.
        length: u16,
        /// Bytes that were there after the fixed header.
        available: usize,
    },
    /// An extension header says that it is longer than the rest of the packet.
    #[error("IPv6 {protocol} at offset {offset} is {length} bytes long, only {available} are left")]
    ExtensionLength {
        /// Which extension header.
        protocol: IpProtocol,
        /// Where it starts, from the start of the fixed header.
        offset: usize,
        /// What its length field says, in bytes.
        length: usize,
        /// Bytes from its start to the packet's end.
        available: usize,
    },
    /// Hop-by-hop options that don't come first (RFC 8200 section 4.1).
    #[error("IPv6 hop-by-hop options at offset {offset}, they may stand only right after the header, at 40")]
    HopByHopMisplaced {
        /// Where they start, from the start of the fixed header.
        offset: usize,
    },
    /// More extension headers than [`MAXIMUM_EXTENSIONS`].
    #[error(
        "IPv6 packet has more than {MAXIMUM_EXTENSIONS} extension headers, the next one at offset {offset}"
    )]
    TooManyExtensions {
        /// Where the first header too many starts, from the start of the fixed header.
        offset: usize,
    },
}

/// A view of the fixed header.
#[derive(Clone, Copy)]
pub struct Ipv6Header<'a>(pub &'a [u8; HEADER_LENGTH]);

impl Ipv6Header<'_> {
    /// The IP version; 6 if this is IPv6.
    #[inline]
    pub const fn version(self) -> u8 {
        self.0[0] >> 4
    }

    /// The traffic class: DSCP and ECN, 8 bits.
    #[inline]
    pub const fn traffic_class(self) -> u8 {
        (self.0[0] << 4) | (self.0[1] >> 4)
    }

    /// The flow label (RFC 6437), 20 bits.
    #[inline]
    pub const fn flow_label(self) -> u32 {
        u32::from_be_bytes([0, self.0[1] & 0x0f, self.0[2], self.0[3]])
    }

    /// Bytes after the fixed header, extension headers included.
    #[inline]
    pub const fn payload_length(self) -> u16 {
        u16::from_be_bytes([self.0[4], self.0[5]])
    }

    /// What follows the fixed header: an extension header or the upper layer.
    #[inline]
    pub const fn next_header(self) -> IpProtocol {
        IpProtocol(self.0[6])
    }

    /// How many more hops the packet may take.
    #[inline]
    pub const fn hop_limit(self) -> u8 {
        self.0[7]
    }

    /// Where the packet comes from.
    #[inline]
    pub const fn source(self) -> Ipv6Addr {
        let [_, _, _, _, _, _, _, _, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ..] = *self.0;
        Ipv6Addr::from_bits(u128::from_be_bytes([a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]))
    }

    /// Where it goes.
    #[inline]
    pub const fn destination(self) -> Ipv6Addr {
        let [.., a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *self.0;
        Ipv6Addr::from_bits(u128::from_be_bytes([a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]))
    }
}

impl fmt::Debug for Ipv6Header<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "IPv6 {} > {}, {}, payload {}, hop limit {}",
            self.source(),
            self.destination(),
            self.next_header(),
            self.payload_length(),
            self.hop_limit()
        )
    }
}

/// A packet whose length was checked.
#[derive(Debug, Clone, Copy)]
pub struct Ipv6Packet<'a> {
    /// The fixed header.
    pub header: Ipv6Header<'a>,
    /// As many bytes after it as the payload length says: link-layer padding is cut off.
    pub payload: &'a [u8],
}

/// Checks enough bytes, version and payload length, in this order. `bytes` starts at the IPv6 header and may end in
/// link-layer padding. A jumbogram (RFC 2675, payload length 0) appears as a packet without payload.
///
/// # Errors
/// The first rule that is broken, as [`Ipv6Error`].
#[inline]
pub fn check(bytes: &[u8]) -> Result<Ipv6Packet<'_>, Ipv6Error> {
    let (fixed, rest) = take(bytes, "IPv6 header")?;
    let header = Ipv6Header(fixed);
    if header.version() != 6 {
        return Err(Ipv6Error::Version { version: header.version() });
    }
    let Some(payload) = rest.get(..usize::from(header.payload_length())) else {
        return Err(Ipv6Error::PayloadLength { length: header.payload_length(), available: rest.len() });
    };
    Ok(Ipv6Packet { header, payload })
}

/// Takes one off the hop limit; leaves 0 as it is. There is no header checksum to correct.
#[inline(always)]
pub fn decrement_hop_limit(header: &mut [u8; HEADER_LENGTH]) {
    header[7] = header[7].saturating_sub(1);
}

/// What a fragment header says (RFC 8200 section 4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// What all fragments of one packet have in common.
    pub identification: u32,
    /// Where this fragment's data belongs in the original's fragmentable part, in bytes.
    pub offset: u16,
    /// Whether more fragments follow.
    pub more: bool,
}

/// Where the chain of extension headers ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpperLayer {
    /// The upper-layer protocol; ESP and "no next header" count as one.
    pub protocol: IpProtocol,
    /// Where its header starts, from the start of the fixed header. In a fragment that isn't the first, the
    /// upper-layer header isn't there: what stands here is data from the original's middle.
    pub offset: usize,
    /// How many extension headers were passed.
    pub extensions: usize,
    /// What the fragment header says, if there is one.
    pub fragment: Option<Fragment>,
}

impl UpperLayer {
    /// Whether the bytes at `offset` are the start of the upper-layer header.
    #[inline]
    pub fn is_present(&self) -> bool {
        self.fragment.is_none_or(|fragment| fragment.offset == 0)
    }
}

impl Ipv6Packet<'_> {
    /// Follows the extension headers to the upper layer. Hop-by-hop options, routing, fragment, authentication and
    /// destination options headers are passed; anything else is the upper layer.
    ///
    /// # Errors
    /// [`Ipv6Error`] if a header doesn't fit in the payload, hop-by-hop options don't come first, or there are more
    /// headers than [`MAXIMUM_EXTENSIONS`].
    #[inline]
    pub fn upper_layer(&self) -> Result<UpperLayer, Ipv6Error> {
        let first = self.header.next_header();
        if is_extension(first) {
            return walk(first, self.payload);
        }
        Ok(UpperLayer { protocol: first, offset: HEADER_LENGTH, extensions: 0, fragment: None })
    }
}

/// Whether the number stands for an extension header that [`Ipv6Packet::upper_layer`] passes.
#[inline]
pub const fn is_extension(protocol: IpProtocol) -> bool {
    matches!(
        protocol,
        IpProtocol::HOP_BY_HOP
            | IpProtocol::ROUTING
            | IpProtocol::FRAGMENT
            | IpProtocol::AUTHENTICATION
            | IpProtocol::DESTINATION_OPTIONS
    )
}

fn walk(first: IpProtocol, payload: &[u8]) -> Result<UpperLayer, Ipv6Error> {
    let mut protocol = first;
    let mut rest = payload;
    let mut fragment = None;
    for extensions in 0..=MAXIMUM_EXTENSIONS {
        let offset = HEADER_LENGTH + (payload.len() - rest.len());
        // Behind the header of a later fragment come the original's data, not more headers.
        let later_fragment = fragment.is_some_and(|fragment: Fragment| fragment.offset != 0);
        if later_fragment || !is_extension(protocol) {
            return Ok(UpperLayer { protocol, offset, extensions, fragment });
        }
        if protocol == IpProtocol::HOP_BY_HOP && extensions != 0 {
            return Err(Ipv6Error::HopByHopMisplaced { offset });
        }
        if extensions == MAXIMUM_EXTENSIONS {
            break;
        }
        let (header, _) = take::<8>(rest, "IPv6 extension header")?;
        let length = match protocol {
            IpProtocol::FRAGMENT => {
                let [_, _, offset_high, offset_low, identification @ ..] = *header;
                fragment = Some(Fragment {
                    identification: u32::from_be_bytes(identification),
                    offset: u16::from_be_bytes([offset_high, offset_low]) & 0xfff8,
                    more: offset_low & 0x01 != 0,
                });
                8
            }
            // RFC 4302 section 2.2: the length in units of 4 bytes, minus 2.
            IpProtocol::AUTHENTICATION => (usize::from(header[1]) + 2) * 4,
            // RFC 8200 section 4.3: the length in units of 8 bytes, not counting the first 8.
            _ => (usize::from(header[1]) + 1) * 8,
        };
        let Some(after) = rest.get(length..) else {
            return Err(Ipv6Error::ExtensionLength { protocol, offset, length, available: rest.len() });
        };
        protocol = IpProtocol(header[0]);
        rest = after;
    }
    Err(Ipv6Error::TooManyExtensions { offset: HEADER_LENGTH + (payload.len() - rest.len()) })
}

/// What to write in a header; the payload length is the builder's.
#[derive(Debug, Clone, Copy)]
pub struct Ipv6Fields<'a> {
    /// Where the packet comes from.
    pub source: Ipv6Addr,
    /// Where it goes.
    pub destination: Ipv6Addr,
    /// DSCP (upper 6 bits) and ECN (lower 2).
    pub traffic_class: u8,
    /// The flow label; only the low 20 bits count.
    pub flow_label: u32,
    /// The hop limit.
    pub hop_limit: u8,
    /// Extension headers in their order: which one, and all its bytes. The first byte is written over with the
    /// next header's number. Upper-layer checksums are computed for `destination`, so a routing header that still
    /// has segments left isn't for here.
    pub extensions: &'a [(IpProtocol, &'a [u8])],
}

impl Ipv6Fields<'_> {
    /// A packet between two addresses: hop limit 64, no extension headers.
    pub const fn new(source: Ipv6Addr, destination: Ipv6Addr) -> Self {
        Self { source, destination, traffic_class: 0, flow_label: 0, hop_limit: 64, extensions: &[] }
    }

    /// Bytes of all extension headers.
    pub(crate) fn extension_length(&self) -> usize {
        self.extensions.iter().map(|(_, bytes)| bytes.len()).sum()
    }

    /// The fixed header. `upper` is the upper layer's protocol, `payload_length` counts extension headers too.
    pub(crate) fn header(&self, upper: IpProtocol, payload_length: u16) -> [u8; HEADER_LENGTH] {
        let first = self.extensions.first().map_or(upper, |(protocol, _)| *protocol);
        let word = 0x6000_0000 | (u32::from(self.traffic_class) << 20) | (self.flow_label & 0x000f_ffff);
        let [l0, l1] = payload_length.to_be_bytes();
        let mut header = [0; HEADER_LENGTH];
        for (byte, value) in header.iter_mut().zip(
            (word.to_be_bytes().into_iter())
                .chain([l0, l1, first.0, self.hop_limit])
                .chain(self.source.octets())
                .chain(self.destination.octets()),
        ) {
            *byte = value;
        }
        header
    }

    /// Each extension header with the number that belongs in its first byte.
    pub(crate) fn chained_extensions(&self, upper: IpProtocol) -> impl Iterator<Item = (IpProtocol, &[u8])> {
        let next = self.extensions.iter().skip(1).map(|(protocol, _)| *protocol).chain([upper]);
        next.zip(self.extensions.iter().map(|(_, bytes)| *bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOP_BY_HOP: (IpProtocol, &[u8]) = (IpProtocol::HOP_BY_HOP, &[0, 0, 5, 2, 0, 0, 1, 0]);
    const ROUTING: (IpProtocol, &[u8]) =
        (IpProtocol::ROUTING, &[0, 2, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    const OPTIONS: (IpProtocol, &[u8]) = (IpProtocol::DESTINATION_OPTIONS, &[0, 0, 1, 4, 0, 0, 0, 0]);
    const AUTHENTICATION: (IpProtocol, &[u8]) = (
        IpProtocol::AUTHENTICATION,
        &[0, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9],
    );
    const FIRST_FRAGMENT: (IpProtocol, &[u8]) = (IpProtocol::FRAGMENT, &[0, 0, 0, 1, 0xde, 0xad, 0xbe, 0xef]);
    const LAST_FRAGMENT: (IpProtocol, &[u8]) = (IpProtocol::FRAGMENT, &[0, 0, 0x05, 0xa8, 0, 0, 0, 7]);

    fn packet(extensions: &[(IpProtocol, &[u8])], upper: IpProtocol, payload: &[u8]) -> Vec<u8> {
        let source = "2001:db8::1".parse().unwrap();
        let destination = "2001:db8:ffff::2".parse().unwrap();
        let fields = Ipv6Fields { extensions, ..Ipv6Fields::new(source, destination) };
        let length = fields.extension_length() + payload.len();
        let mut bytes = fields.header(upper, length as u16).to_vec();
        for (next, extension) in fields.chained_extensions(upper) {
            bytes.push(next.0);
            bytes.extend_from_slice(&extension[1..]);
        }
        bytes.extend_from_slice(payload);
        bytes
    }

    fn upper_layer(bytes: &[u8]) -> Result<UpperLayer, Ipv6Error> {
        check(bytes).unwrap().upper_layer()
    }

    #[test]
    fn every_field_is_where_rfc_8200_puts_it() {
        let mut header = [0; 40];
        header[..8].copy_from_slice(&[0x6a, 0xbc, 0xde, 0xf1, 0x12, 0x34, 17, 63]);
        (header[8], header[23], header[24], header[39]) = (0x20, 1, 0x30, 2);
        let view = Ipv6Header(&header);
        assert_eq!((view.version(), view.traffic_class(), view.flow_label()), (6, 0xab, 0xcdef1));
        assert_eq!(
            (view.payload_length(), view.next_header(), view.hop_limit()),
            (0x1234, IpProtocol::UDP, 63)
        );
        assert_eq!(view.source().to_string(), "2000::1");
        assert_eq!(view.destination().to_string(), "3000::2");
    }

    #[test]
    fn padding_is_cut() {
        let mut bytes = packet(&[], IpProtocol::UDP, b"payload");
        bytes.extend([0xee; 5]);
        assert_eq!(check(&bytes).unwrap().payload, b"payload");
        let expected = UpperLayer { protocol: IpProtocol::UDP, offset: 40, extensions: 0, fragment: None };
        assert_eq!(upper_layer(&bytes), Ok(expected));
    }

    #[test]
    fn truncated() {
        let error = check(&packet(&[], IpProtocol::UDP, &[])[..39]).unwrap_err();
        assert_eq!(
            error,
            Ipv6Error::Truncated(Truncated { header: "IPv6 header", needed: 40, available: 39 })
        );
    }

    #[test]
    fn version() {
        let mut bytes = packet(&[], IpProtocol::UDP, &[]);
        bytes[0] = 0x45;
        assert_eq!(check(&bytes).unwrap_err(), Ipv6Error::Version { version: 4 });
    }

    #[test]
    fn payload_length_beyond_the_bytes() {
        let bytes = packet(&[], IpProtocol::UDP, b"payload");
        let error = check(&bytes[..46]).unwrap_err();
        assert_eq!(error, Ipv6Error::PayloadLength { length: 7, available: 6 });
    }

    #[test]
    fn each_extension_header_is_passed() {
        let all = [HOP_BY_HOP, ROUTING, FIRST_FRAGMENT, AUTHENTICATION, OPTIONS];
        let bytes = packet(&all, IpProtocol::TCP, b"upper");
        let upper = upper_layer(&bytes).unwrap();
        assert_eq!((upper.protocol, upper.extensions), (IpProtocol::TCP, 5));
        assert_eq!(&bytes[upper.offset..], b"upper");
        let fragment = Fragment { identification: 0xdead_beef, offset: 0, more: true };
        assert_eq!(upper.fragment, Some(fragment));
        assert!(upper.is_present());
    }

    #[test]
    fn a_later_fragment_ends_the_walk() {
        // The original goes on with destination options, whose bytes went with the first fragment.
        let bytes = packet(&[HOP_BY_HOP, LAST_FRAGMENT], IpProtocol::DESTINATION_OPTIONS, &[0xff; 3]);
        let upper = upper_layer(&bytes).unwrap();
        assert_eq!((upper.protocol, upper.offset), (IpProtocol::DESTINATION_OPTIONS, 56));
        assert_eq!(upper.fragment, Some(Fragment { identification: 7, offset: 0x05a8, more: false }));
        assert!(!upper.is_present());
    }

    #[test]
    fn what_cannot_be_passed_is_the_upper_layer() {
        for protocol in [IpProtocol::ESP, IpProtocol::NO_NEXT_HEADER, IpProtocol(200)] {
            let upper = upper_layer(&packet(&[OPTIONS], protocol, &[])).unwrap();
            assert_eq!((upper.protocol, upper.offset, upper.extensions), (protocol, 48, 1));
        }
    }

    #[test]
    fn an_extension_header_cut_short() {
        let bytes = packet(&[HOP_BY_HOP], IpProtocol::ROUTING, &[6, 0, 0, 0, 0, 0, 0]);
        let expected = Truncated { header: "IPv6 extension header", needed: 8, available: 7 };
        assert_eq!(upper_layer(&bytes), Err(Ipv6Error::Truncated(expected)));
    }

    #[test]
    fn an_extension_header_longer_than_the_packet() {
        let bytes = packet(&[HOP_BY_HOP], IpProtocol::ROUTING, &[6, 1, 0, 0, 0, 0, 0, 0, 1]);
        let expected = Ipv6Error::ExtensionLength {
            protocol: IpProtocol::ROUTING,
            offset: 48,
            length: 16,
            available: 9,
        };
        assert_eq!(upper_layer(&bytes), Err(expected));
        let bytes = packet(&[], IpProtocol::AUTHENTICATION, &[6, 2, 0, 0, 0, 0, 0, 0]);
        let expected = Ipv6Error::ExtensionLength {
            protocol: IpProtocol::AUTHENTICATION,
            offset: 40,
            length: 16,
            available: 8,
        };
        assert_eq!(upper_layer(&bytes), Err(expected));
    }

    #[test]
    fn hop_by_hop_options_must_come_first() {
        let bytes = packet(&[OPTIONS, HOP_BY_HOP], IpProtocol::TCP, &[]);
        assert_eq!(upper_layer(&bytes), Err(Ipv6Error::HopByHopMisplaced { offset: 48 }));
    }

    #[test]
    fn long_chains_end() {
        let bytes = packet(&[OPTIONS; MAXIMUM_EXTENSIONS], IpProtocol::UDP, b"upper");
        let upper = upper_layer(&bytes).unwrap();
        assert_eq!((upper.protocol, upper.offset, upper.extensions), (IpProtocol::UDP, 104, 8));
        let bytes = packet(&[OPTIONS; MAXIMUM_EXTENSIONS + 1], IpProtocol::UDP, b"upper");
        assert_eq!(upper_layer(&bytes), Err(Ipv6Error::TooManyExtensions { offset: 104 }));
    }

    #[test]
    fn hop_limit_at_its_ends() {
        for (before, after) in [(255, 254), (1, 0), (0, 0)] {
            let mut header = [before; 40];
            decrement_hop_limit(&mut header);
            assert_eq!((header[6], header[7], header[8]), (before, after, before));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_fail(
            mut bytes in prop::collection::vec(prop::sample::select(vec![0_u8, 1, 2, 8, 43, 44, 51, 60, 255]), 0..300),
        ) {
            if let [first, _, _, _, high, low, ..] = &mut bytes[..] {
                (*first, *high) = (0x60, 0);
                *low = low.saturating_mul(100);
            }
            if let Ok(packet) = check(&bytes) && let Ok(upper) = packet.upper_layer() {
                prop_assert!(upper.offset <= 40 + packet.payload.len());
                prop_assert!(upper.extensions <= MAXIMUM_EXTENSIONS);
            }
        }

        #[test]
        fn chains_are_walked_to_the_end(
            hop_by_hop: bool,
            chain in prop::collection::vec((0..5_usize, 0..6_u8), 0..MAXIMUM_EXTENSIONS),
            upper in prop::sample::select(vec![6_u8, 17, 50, 58, 59, 132]),
            payload in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            // Bodies of random length whose length field says so.
            let bodies: Vec<(IpProtocol, Vec<u8>)> = chain.iter().map(|(kind, size)| match kind {
                0 => (IpProtocol::ROUTING, [&[0, *size][..], &vec![7; 6 + 8 * usize::from(*size)]].concat()),
                1 => (IpProtocol::DESTINATION_OPTIONS, [&[0, *size][..], &vec![7; 6 + 8 * usize::from(*size)]].concat()),
                2 => (IpProtocol::AUTHENTICATION, [&[0, *size][..], &vec![7; 6 + 4 * usize::from(*size)]].concat()),
                _ => (IpProtocol::FRAGMENT, vec![0, 0, 0, *size & 1, 0, 0, 0, *size]),
            }).collect();
            let mut extensions: Vec<(IpProtocol, &[u8])> = bodies.iter().map(|(kind, body)| (*kind, &body[..])).collect();
            if hop_by_hop {
                extensions.insert(0, HOP_BY_HOP);
            }
            let bytes = packet(&extensions, IpProtocol(upper), &payload);
            let found = upper_layer(&bytes).unwrap();
            prop_assert_eq!((found.protocol.0, found.extensions), (upper, extensions.len()));
            prop_assert_eq!(&bytes[found.offset..], &payload[..]);
        }
    }
}
