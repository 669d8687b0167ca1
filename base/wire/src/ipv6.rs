//! IPv6 headers and the chain of extension headers (RFC 8200).

use std::fmt;
use std::net::Ipv6Addr;

use crate::IpProtocol;
use crate::error::{header_errors, take};

/// Bytes of the fixed header.
pub const HEADER_LENGTH: usize = 40;

/// How many extension headers [`Ipv6Packet::upper_layer`] follows. RFC 8200 section 4.1 names six positions for them; a longer
/// chain serves only to make routers work.
pub const MAXIMUM_EXTENSIONS: usize = 8;

header_errors! {
    /// What is wrong with an IPv6 packet. The order of the variants is the order of the checks.
    pub enum Ipv6Error {
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
    /// The last routing header's Segments Left: hops still to be visited before the packet reaches its destination.
    pub segments_left: u8,
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
        Ok(UpperLayer {
            protocol: first,
            offset: HEADER_LENGTH,
            extensions: 0,
            segments_left: 0,
            fragment: None,
        })
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
    let mut segments_left = 0;
    for extensions in 0..=MAXIMUM_EXTENSIONS {
        let offset = HEADER_LENGTH + (payload.len() - rest.len());
        // Behind the header of a later fragment come the original's data, not more headers.
        let later_fragment = fragment.is_some_and(|fragment: Fragment| fragment.offset != 0);
        if later_fragment || !is_extension(protocol) {
            return Ok(UpperLayer { protocol, offset, extensions, segments_left, fragment });
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
        if protocol == IpProtocol::ROUTING {
            segments_left = header[3];
        }
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
    pub fn header(&self, upper: IpProtocol, payload_length: u16) -> [u8; HEADER_LENGTH] {
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
mod tests;
