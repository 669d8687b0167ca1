//! Builds whole frames with right lengths and checksums, for tests, generators and ICMP errors.
//!
//! ```
//! use warmlane_wire::{Frame, Ipv4Fields, LinkLayer, MacAddress, VlanTag, ipv4};
//!
//! let frame = Frame::new()
//!     .ethernet(MacAddress::BROADCAST, MacAddress([2, 0, 0, 0, 0, 1]))
//!     .vlan(VlanTag::customer(100))
//!     .ipv4(Ipv4Fields::new([192, 0, 2, 1].into(), [198, 51, 100, 2].into()))
//!     .udp(4242, 53)
//!     .payload(b"question");
//! let mut buffer = [0; 128];
//! let length = frame.write(&mut buffer)?;
//! let link = LinkLayer::parse(&buffer[..length])?;
//! let packet = ipv4::check(link.payload)?;
//! assert_eq!(packet.payload.len(), 8 + 8);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use thiserror::Error;

use crate::checksum::Addresses;
use crate::vlan::TAG_LENGTH;
use crate::{
    ArpPacket, EtherType, Icmpv4Message, Icmpv6Message, IpProtocol, Ipv4Fields, Ipv6Fields, MacAddress,
    NeighbourMessage, TcpFields, VlanTag,
};
use crate::{arp, ethernet, icmpv4, icmpv6, ipv4, ipv6, tcp, udp};

/// Why a frame can't be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BuildError {
    /// The caller's slice is too short; nothing was written.
    #[error("frame is {needed} bytes long, there is room for {available}: give a longer buffer")]
    NoRoom {
        /// Bytes of the frame.
        needed: usize,
        /// Bytes of the slice.
        available: usize,
    },
    /// A length field can't hold the length.
    #[error("{what} is {length} bytes long, at most {maximum} fit its length field: shorten the payload")]
    TooLong {
        /// Which packet.
        what: &'static str,
        /// Its length.
        length: usize,
        /// The most that fits.
        maximum: usize,
    },
    /// IPv4 or TCP options of a length that the header can't express.
    #[error("{header} options are {length} bytes long, must be a multiple of 4 and at most 40: pad them")]
    OptionLength {
        /// Which header.
        header: &'static str,
        /// Their length.
        length: usize,
    },
    /// An IPv6 extension header that no length field can express.
    #[error(
        "IPv6 {protocol} is {length} bytes long, must be a multiple of {unit}, at least 8, at most {maximum}: pad it"
    )]
    ExtensionLength {
        /// Which extension header.
        protocol: IpProtocol,
        /// Its length.
        length: usize,
        /// What it must be a multiple of.
        unit: usize,
        /// The most it may be.
        maximum: usize,
    },
    /// More than two VLAN tags.
    #[error("frame has {tags} VLAN tags, at most 2 are built")]
    TooManyTags {
        /// How many were asked for.
        tags: usize,
    },
    /// A layer on top of one that doesn't carry it.
    #[error("{upper} cannot go over {lower}: give the frame {remedy}")]
    Mismatch {
        /// The layer on top.
        upper: &'static str,
        /// The layer below.
        lower: &'static str,
        /// What would carry it.
        remedy: &'static str,
    },
}

#[derive(Debug, Clone, Copy)]
enum Network<'a> {
    None,
    Arp(ArpPacket),
    Ipv4(Ipv4Fields<'a>),
    Ipv6(Ipv6Fields<'a>),
}

#[derive(Debug, Clone, Copy)]
enum Upper<'a> {
    None,
    Protocol(IpProtocol),
    Udp { source_port: u16, destination_port: u16 },
    Tcp(TcpFields<'a>),
    Icmpv4(Icmpv4Message),
    Icmpv6(Icmpv6Message),
    Neighbour(NeighbourMessage),
}

/// A description of a frame, outermost layer first; nothing is written before [`Frame::write`].
///
/// Without [`Frame::ethernet`] it is the bare network packet. A layer given twice replaces the first.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct Frame<'a> {
    addresses: Option<(MacAddress, MacAddress)>,
    ethertype: EtherType,
    tags: [Option<VlanTag>; 2],
    tag_count: usize,
    network: Network<'a>,
    upper: Upper<'a>,
    payload: &'a [u8],
    minimum: usize,
}

impl Default for Frame<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> Frame<'a> {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self {
            addresses: None,
            // "Local experimental EtherType 1" (IEEE 802, RFC 9542 appendix B.1).
            ethertype: EtherType(0x88b5),
            tags: [None; 2],
            tag_count: 0,
            network: Network::None,
            upper: Upper::None,
            payload: &[],
            minimum: 0,
        }
    }

    /// Puts an Ethernet header in front.
    pub const fn ethernet(self, destination: MacAddress, source: MacAddress) -> Self {
        Self { addresses: Some((destination, source)), ..self }
    }

    /// The EtherType of a frame without ARP, IPv4 or IPv6; those set their own.
    pub const fn ethertype(self, ethertype: EtherType) -> Self {
        Self { ethertype, ..self }
    }

    /// Adds a tag, the outer one first. They need [`Frame::ethernet`]; at most two.
    pub fn vlan(mut self, tag: VlanTag) -> Self {
        if let Some(slot) = self.tags.get_mut(self.tag_count) {
            *slot = Some(tag);
        }
        self.tag_count += 1;
        self
    }

    /// Carries an ARP packet.
    pub const fn arp(self, packet: ArpPacket) -> Self {
        Self { network: Network::Arp(packet), ..self }
    }

    /// Carries an IPv4 packet.
    pub const fn ipv4(self, fields: Ipv4Fields<'a>) -> Self {
        Self { network: Network::Ipv4(fields), ..self }
    }

    /// Carries an IPv6 packet.
    pub const fn ipv6(self, fields: Ipv6Fields<'a>) -> Self {
        Self { network: Network::Ipv6(fields), ..self }
    }

    /// The payload belongs to `protocol` and goes straight behind the IP header, as it is.
    pub const fn protocol(self, protocol: IpProtocol) -> Self {
        Self { upper: Upper::Protocol(protocol), ..self }
    }

    /// The payload goes in a UDP datagram.
    pub const fn udp(self, source_port: u16, destination_port: u16) -> Self {
        Self { upper: Upper::Udp { source_port, destination_port }, ..self }
    }

    /// The payload goes in a TCP segment.
    pub const fn tcp(self, fields: TcpFields<'a>) -> Self {
        Self { upper: Upper::Tcp(fields), ..self }
    }

    /// The payload is the data of an ICMP message: over IPv4 only. For an error it is [`icmpv4::quote`].
    pub const fn icmpv4(self, message: Icmpv4Message) -> Self {
        Self { upper: Upper::Icmpv4(message), ..self }
    }

    /// The payload is the data of an ICMPv6 message: over IPv6 only. For an error it is [`icmpv6::quote`].
    pub const fn icmpv6(self, message: Icmpv6Message) -> Self {
        Self { upper: Upper::Icmpv6(message), ..self }
    }

    /// Neighbour discovery: over IPv6 only, which needs the hop limit [`crate::neighbour::HOP_LIMIT`]; carries no payload.
    pub const fn neighbour(self, message: NeighbourMessage) -> Self {
        Self { upper: Upper::Neighbour(message), ..self }
    }

    /// The innermost bytes.
    pub const fn payload(self, payload: &'a [u8]) -> Self {
        Self { payload, ..self }
    }

    /// Pads with zeros behind the packet to `minimum` bytes, such as [`ethernet::MINIMUM_FRAME`]. No length field
    /// counts the padding.
    pub const fn padded(self, minimum: usize) -> Self {
        Self { minimum, ..self }
    }

    /// Bytes that [`Frame::write`] will write.
    pub fn length(&self) -> usize {
        let link = match self.addresses {
            Some(_) => ethernet::HEADER_LENGTH + self.tag_count * TAG_LENGTH,
            None => 0,
        };
        let network = match &self.network {
            Network::None => 0,
            Network::Arp(_) => arp::PACKET_LENGTH,
            Network::Ipv4(fields) => ipv4::HEADER_LENGTH + fields.options.len(),
            Network::Ipv6(fields) => ipv6::HEADER_LENGTH + fields.extension_length(),
        };
        (link + network + self.upper_length()).max(self.minimum)
    }

    /// Bytes behind the IP header and its extension headers, without padding.
    fn upper_length(&self) -> usize {
        let header = match &self.upper {
            Upper::None | Upper::Protocol(_) => 0,
            Upper::Udp { .. } => udp::HEADER_LENGTH,
            Upper::Tcp(fields) => tcp::HEADER_LENGTH + fields.options.len(),
            Upper::Icmpv4(_) => icmpv4::HEADER_LENGTH,
            Upper::Icmpv6(_) => icmpv6::HEADER_LENGTH,
            Upper::Neighbour(message) => message.length(),
        };
        header + self.payload.len()
    }

    /// Writes the frame to the front of `buffer` and gives its length.
    ///
    /// # Errors
    /// [`BuildError`] if `buffer` is too short (then nothing was written) or the layers don't fit together.
    pub fn write(&self, buffer: &mut [u8]) -> Result<usize, BuildError> {
        self.check()?;
        let (needed, available) = (self.length(), buffer.len());
        let no_room = BuildError::NoRoom { needed, available };
        let frame = buffer.get_mut(..needed).ok_or(no_room)?;
        let mut writer = Writer { rest: frame };
        // The length was summed from the same parts, so they fit.
        self.write_layers(&mut writer).ok_or(no_room)?;
        writer.rest.fill(0);
        Ok(needed)
    }

    /// The frame as a vector of its own.
    ///
    /// # Errors
    /// [`BuildError`] if the layers don't fit together; never [`BuildError::NoRoom`].
    pub fn to_vec(&self) -> Result<Vec<u8>, BuildError> {
        self.check()?;
        let mut bytes = vec![0; self.length()];
        self.write(&mut bytes)?;
        Ok(bytes)
    }

    /// Whether the layers fit together and their lengths fit their fields.
    fn check(&self) -> Result<(), BuildError> {
        if self.tag_count > self.tags.len() {
            return Err(BuildError::TooManyTags { tags: self.tag_count });
        }
        if self.tag_count != 0 && self.addresses.is_none() {
            let (upper, lower, remedy) = ("a VLAN tag", "nothing", "an Ethernet header");
            return Err(BuildError::Mismatch { upper, lower, remedy });
        }
        if let Upper::Tcp(fields) = &self.upper {
            check_options("TCP", fields.options)?;
        }
        let lower = match &self.network {
            Network::None => "Ethernet alone",
            Network::Arp(_) => "ARP",
            Network::Ipv4(fields) => {
                check_options("IPv4", fields.options)?;
                let length = ipv4::HEADER_LENGTH + fields.options.len() + self.upper_length();
                check_length("IPv4 packet", length)?;
                "IPv4"
            }
            Network::Ipv6(fields) => {
                fields
                    .extensions
                    .iter()
                    .try_for_each(|(protocol, bytes)| check_extension(*protocol, bytes))?;
                check_length("IPv6 payload", fields.extension_length() + self.upper_length())?;
                "IPv6"
            }
        };
        let (upper, remedy) = match (&self.upper, &self.network) {
            (Upper::None, Network::Arp(_)) if !self.payload.is_empty() => {
                ("a payload", "padding instead, or another network layer")
            }
            (Upper::Neighbour(_), Network::Ipv6(_)) if !self.payload.is_empty() => {
                return Err(BuildError::Mismatch {
                    upper: "a payload",
                    lower: "neighbour discovery",
                    remedy: "no payload",
                });
            }
            (Upper::Icmpv4(_), Network::None | Network::Arp(_) | Network::Ipv6(_)) => {
                ("ICMP", "an IPv4 layer")
            }
            (Upper::Icmpv6(_) | Upper::Neighbour(_), Network::None | Network::Arp(_) | Network::Ipv4(_)) => {
                ("ICMPv6", "an IPv6 layer")
            }
            (Upper::Udp { .. }, Network::None | Network::Arp(_)) => ("UDP", "an IPv4 or IPv6 layer"),
            (Upper::Tcp(_), Network::None | Network::Arp(_)) => ("TCP", "an IPv4 or IPv6 layer"),
            (Upper::Protocol(_), Network::None | Network::Arp(_)) => {
                ("an IP protocol", "an IPv4 or IPv6 layer")
            }
            _ => return Ok(()),
        };
        Err(BuildError::Mismatch { upper, lower, remedy })
    }

    fn write_layers(&self, writer: &mut Writer<'_>) -> Option<()> {
        if let Some((destination, source)) = self.addresses {
            let inner = match self.network {
                Network::None => self.ethertype,
                Network::Arp(_) => EtherType::ARP,
                Network::Ipv4(_) => EtherType::IPV4,
                Network::Ipv6(_) => EtherType::IPV6,
            };
            writer.put(&destination.0)?;
            writer.put(&source.0)?;
            for tag in self.tags.iter().flatten() {
                writer.put(&tag.protocol.0.to_be_bytes())?;
                writer.put(&tag.control.to_be_bytes())?;
            }
            writer.put(&inner.0.to_be_bytes())?;
        }
        let upper_length = self.upper_length();
        match &self.network {
            Network::None => writer.put(self.payload),
            Network::Arp(packet) => writer.put(&packet.to_bytes()),
            Network::Ipv4(fields) => {
                let length = ipv4::HEADER_LENGTH + fields.options.len() + upper_length;
                writer.put(&fields.header(self.upper_protocol(), length as u16))?;
                writer.put(fields.options)?;
                self.write_upper(
                    Addresses::V4 { source: fields.source, destination: fields.destination },
                    writer,
                )
            }
            Network::Ipv6(fields) => {
                let upper = self.upper_protocol();
                let length = fields.extension_length() + upper_length;
                writer.put(&fields.header(upper, length as u16))?;
                for (next, extension) in fields.chained_extensions(upper) {
                    writer.put(&[next.0])?;
                    writer.put(extension.get(1..)?)?;
                }
                self.write_upper(
                    Addresses::V6 { source: fields.source, destination: fields.destination },
                    writer,
                )
            }
        }
    }

    fn write_upper(&self, addresses: Addresses, writer: &mut Writer<'_>) -> Option<()> {
        let payload = self.payload;
        let length = self.upper_length();
        let pseudo_header = || addresses.pseudo_header(self.upper_protocol(), length as u32);
        match (&self.upper, addresses) {
            (Upper::Udp { source_port, destination_port }, _) => {
                let header = |checksum| udp::header(*source_port, *destination_port, length as u16, checksum);
                let sum = pseudo_header().bytes(&header(0)).bytes(payload);
                writer.put(&header(udp::sendable(sum.checksum())))?;
            }
            (Upper::Tcp(fields), _) => {
                let sum = pseudo_header().bytes(&fields.header(0)).bytes(fields.options).bytes(payload);
                writer.put(&fields.header(sum.checksum()))?;
                writer.put(fields.options)?;
            }
            (Upper::Icmpv4(message), _) => writer.put(&message.header(payload))?,
            (Upper::Icmpv6(message), Addresses::V6 { source, destination }) => {
                writer.put(&message.header(source, destination, payload))?;
            }
            (Upper::Neighbour(message), Addresses::V6 { source, destination }) => {
                writer.put(message.to_bytes(source, destination).get(..message.length())?)?;
            }
            // ICMPv6 over IPv4 was refused by `check`.
            (Upper::Icmpv6(_) | Upper::Neighbour(_), Addresses::V4 { .. }) => return None,
            (Upper::None | Upper::Protocol(_), _) => {}
        }
        writer.put(payload)
    }

    fn upper_protocol(&self) -> IpProtocol {
        match self.upper {
            // "For experimentation and testing" (RFC 3692).
            Upper::None => IpProtocol(253),
            Upper::Protocol(protocol) => protocol,
            Upper::Udp { .. } => IpProtocol::UDP,
            Upper::Tcp(_) => IpProtocol::TCP,
            Upper::Icmpv4(_) => IpProtocol::ICMP,
            Upper::Icmpv6(_) | Upper::Neighbour(_) => IpProtocol::ICMPV6,
        }
    }
}

fn check_options(header: &'static str, options: &[u8]) -> Result<(), BuildError> {
    let length = options.len();
    if length.is_multiple_of(4) && length <= 40 {
        Ok(())
    } else {
        Err(BuildError::OptionLength { header, length })
    }
}

fn check_length(what: &'static str, length: usize) -> Result<(), BuildError> {
    let maximum = usize::from(u16::MAX);
    if length <= maximum { Ok(()) } else { Err(BuildError::TooLong { what, length, maximum }) }
}

/// The length field itself is the caller's, who may want it wrong; only what no field could say is refused.
fn check_extension(protocol: IpProtocol, bytes: &[u8]) -> Result<(), BuildError> {
    let (unit, maximum) = match protocol {
        IpProtocol::AUTHENTICATION => (4, (255 + 2) * 4),
        IpProtocol::FRAGMENT => (8, 8),
        _ => (8, 256 * 8),
    };
    let length = bytes.len();
    if length.is_multiple_of(unit) && (8..=maximum).contains(&length) {
        Ok(())
    } else {
        Err(BuildError::ExtensionLength { protocol, length, unit, maximum })
    }
}

/// The part of the caller's slice that isn't written yet.
struct Writer<'b> {
    rest: &'b mut [u8],
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let (front, rest) = std::mem::take(&mut self.rest).split_at_mut_checked(bytes.len())?;
        front.copy_from_slice(bytes);
        self.rest = rest;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LinkLayer, TcpFlags, Truncated};
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    const HERE: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
    const THERE: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
    const V4: Ipv4Fields<'static> =
        Ipv4Fields::new(Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 2));
    const V6: Ipv6Fields<'static> = Ipv6Fields::new(
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
        Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 2),
    );

    fn v4() -> Addresses {
        Addresses::V4 { source: V4.source, destination: V4.destination }
    }

    fn v6() -> Addresses {
        Addresses::V6 { source: V6.source, destination: V6.destination }
    }

    #[test]
    fn layers_stand_in_their_order() {
        let bytes = Frame::new()
            .ethernet(THERE, HERE)
            .vlan(VlanTag::service(7))
            .vlan(VlanTag::customer(8))
            .ipv4(V4)
            .udp(1, 2)
            .payload(b"abc")
            .to_vec()
            .unwrap();
        assert_eq!(bytes.len(), 14 + 8 + 20 + 8 + 3);
        let link = LinkLayer::parse(&bytes).unwrap();
        assert_eq!((link.header.destination(), link.header.source()), (THERE, HERE));
        assert_eq!((link.outer, link.inner), (Some(VlanTag::service(7)), Some(VlanTag::customer(8))));
        assert_eq!(link.ethertype, EtherType::IPV4);
        let packet = ipv4::check(link.payload).unwrap();
        assert_eq!((packet.header.source(), packet.header.ttl()), (V4.source, 64));
        assert_eq!(packet.header.protocol(), IpProtocol::UDP);
        let (header, data) = udp::check(v4(), packet.payload).unwrap();
        assert_eq!((header.source_port(), header.destination_port(), data), (1, 2, &b"abc"[..]));
    }

    #[test]
    fn arp_is_padded_with_zeros() {
        let request = ArpPacket::request(HERE, V4.source, V4.destination);
        let frame =
            Frame::new().ethernet(MacAddress::BROADCAST, HERE).arp(request).padded(ethernet::MINIMUM_FRAME);
        let mut buffer = [0xee; 64];
        assert_eq!(frame.write(&mut buffer), Ok(60));
        let link = LinkLayer::parse(&buffer).unwrap();
        assert_eq!((link.ethertype, ArpPacket::parse(link.payload)), (EtherType::ARP, Ok(request)));
        assert_eq!(buffer[42..], [[0; 18].as_slice(), &[0xee; 4]].concat());
    }

    #[test]
    fn padding_is_outside_of_all_lengths() {
        let bytes = Frame::new().ethernet(THERE, HERE).ipv6(V6).udp(1, 2).padded(100).to_vec().unwrap();
        assert_eq!(bytes.len(), 100);
        let packet = ipv6::check(&bytes[14..]).unwrap();
        assert!(udp::check(v6(), packet.payload).unwrap().1.is_empty());
    }

    #[test]
    fn any_ethertype_and_protocol() {
        let bytes =
            Frame::new().ethernet(THERE, HERE).ethertype(EtherType::LLDP).payload(&[1, 2]).to_vec().unwrap();
        assert_eq!(bytes[12..], [0x88, 0xcc, 1, 2]);
        let bytes = Frame::new().ipv4(V4).protocol(IpProtocol::OSPF).payload(&[1, 2]).to_vec().unwrap();
        let packet = ipv4::check(&bytes).unwrap();
        assert_eq!((packet.header.protocol(), packet.payload), (IpProtocol::OSPF, &[1, 2][..]));
    }

    #[test]
    fn an_error_quotes_what_it_answers() {
        let original = Frame::new().ipv4(V4).udp(1, 2).payload(&[7; 1000]).to_vec().unwrap();
        let error = Frame::new()
            .ipv4(Ipv4Fields::new([203, 0, 113, 1].into(), V4.source))
            .icmpv4(Icmpv4Message::TimeExceeded { code: icmpv4::time_exceeded::IN_TRANSIT })
            .payload(icmpv4::quote(&original));
        let mut buffer = [0; 576];
        assert_eq!(error.write(&mut buffer), Ok(576));
        let packet = ipv4::check(&buffer).unwrap();
        let (message, data) = Icmpv4Message::parse(packet.payload).unwrap();
        assert_eq!((message, data), (Icmpv4Message::TimeExceeded { code: 0 }, &original[..548]));

        let original = Frame::new().ipv6(V6).udp(1, 2).payload(&[7; 1400]).to_vec().unwrap();
        let error = Frame::new()
            .ipv6(Ipv6Fields::new("2001:db8::ffff".parse().unwrap(), V6.source))
            .icmpv6(Icmpv6Message::PacketTooBig { mtu: 1400 })
            .payload(icmpv6::quote(&original));
        let bytes = error.to_vec().unwrap();
        assert_eq!(bytes.len(), 1280);
        let packet = ipv6::check(&bytes).unwrap();
        let read = Icmpv6Message::parse(packet.header.source(), packet.header.destination(), packet.payload);
        assert_eq!(read, Ok((Icmpv6Message::PacketTooBig { mtu: 1400 }, &original[..1232])));
    }

    #[test]
    fn no_room_leaves_the_buffer_alone() {
        let frame = Frame::new().ethernet(THERE, HERE).ipv4(V4).udp(1, 2).payload(b"abc");
        let mut buffer = [0xee; 44];
        assert_eq!(frame.write(&mut buffer), Err(BuildError::NoRoom { needed: 45, available: 44 }));
        assert_eq!(buffer, [0xee; 44]);
    }

    #[test]
    fn lengths_that_no_field_holds() {
        let payload = vec![0; 65536];
        let most = |frame: Frame<'_>| frame.to_vec().map(|bytes| bytes.len());
        assert_eq!(most(Frame::new().ipv4(V4).udp(1, 2).payload(&payload[..65507])), Ok(65535));
        assert_eq!(
            most(Frame::new().ipv4(V4).udp(1, 2).payload(&payload[..65508])),
            Err(BuildError::TooLong { what: "IPv4 packet", length: 65536, maximum: 65535 })
        );
        assert_eq!(most(Frame::new().ipv6(V6).udp(1, 2).payload(&payload[..65527])), Ok(65575));
        assert_eq!(
            most(Frame::new().ipv6(V6).udp(1, 2).payload(&payload[..65528])),
            Err(BuildError::TooLong { what: "IPv6 payload", length: 65536, maximum: 65535 })
        );
    }

    #[test]
    fn options_and_extensions_of_impossible_length() {
        for length in [3, 44] {
            let options = vec![1; length];
            let frame = Frame::new().ipv4(Ipv4Fields { options: &options, ..V4 });
            assert_eq!(frame.to_vec(), Err(BuildError::OptionLength { header: "IPv4", length }));
            let frame = Frame::new().ipv4(V4).tcp(TcpFields { options: &options, ..TcpFields::default() });
            assert_eq!(frame.to_vec(), Err(BuildError::OptionLength { header: "TCP", length }));
        }
        for (protocol, length, unit, maximum) in [
            (IpProtocol::DESTINATION_OPTIONS, 0, 8, 2048),
            (IpProtocol::ROUTING, 12, 8, 2048),
            (IpProtocol::AUTHENTICATION, 10, 4, 1028),
            (IpProtocol::FRAGMENT, 16, 8, 8),
        ] {
            let body = vec![0; length];
            let extensions = [(protocol, &body[..])];
            let frame = Frame::new().ipv6(Ipv6Fields { extensions: &extensions, ..V6 });
            assert_eq!(frame.to_vec(), Err(BuildError::ExtensionLength { protocol, length, unit, maximum }));
        }
    }

    #[test]
    fn layers_that_do_not_fit_together() {
        let tag = VlanTag::customer(1);
        let frame = Frame::new().ethernet(THERE, HERE).vlan(tag).vlan(tag).vlan(tag);
        assert_eq!(frame.to_vec(), Err(BuildError::TooManyTags { tags: 3 }));

        let echo4 = Icmpv4Message::EchoRequest { identifier: 1, sequence: 1 };
        let echo6 = Icmpv6Message::EchoRequest { identifier: 1, sequence: 1 };
        let discovery = NeighbourMessage::Solicitation { target: V6.destination, source_link_layer: None };
        let arp = ArpPacket::request(HERE, V4.source, V4.destination);
        for (frame, upper, lower) in [
            (Frame::new().vlan(tag).ipv4(V4), "a VLAN tag", "nothing"),
            (Frame::new().arp(arp).payload(&[1]), "a payload", "ARP"),
            (Frame::new().ipv6(V6).neighbour(discovery).payload(&[1]), "a payload", "neighbour discovery"),
            (Frame::new().ipv6(V6).icmpv4(echo4), "ICMP", "IPv6"),
            (Frame::new().ipv4(V4).icmpv6(echo6), "ICMPv6", "IPv4"),
            (Frame::new().ipv4(V4).neighbour(discovery), "ICMPv6", "IPv4"),
            (Frame::new().ethernet(THERE, HERE).udp(1, 2), "UDP", "Ethernet alone"),
            (Frame::new().arp(arp).tcp(TcpFields::default()), "TCP", "ARP"),
            (Frame::new().arp(arp).protocol(IpProtocol::TCP), "an IP protocol", "ARP"),
        ] {
            let error = frame.to_vec().unwrap_err();
            assert!(
                matches!(error, BuildError::Mismatch { upper: u, lower: l, .. } if (u, l) == (upper, lower)),
                "{error}"
            );
        }
        assert_eq!(
            Frame::new().arp(arp).udp(1, 2).to_vec().unwrap_err().to_string(),
            "UDP cannot go over ARP: give the frame an IPv4 or IPv6 layer"
        );
    }

    #[test]
    fn a_udp_checksum_of_zero_is_sent_as_ones() {
        // The payload word brings the sum to 0xffff, whose complement is 0.
        let blank = Frame::new().ipv4(V4).udp(1, 2).payload(&[0, 0]).to_vec().unwrap();
        let word = [blank[26], blank[27]];
        let bytes = Frame::new().ipv4(V4).udp(1, 2).payload(&word).to_vec().unwrap();
        assert_eq!(bytes[26..28], [0xff, 0xff]);
        assert!(udp::check(v4(), &bytes[20..]).is_ok());
    }

    proptest! {
        #[test]
        fn what_is_built_passes_every_check(
            payload in prop::collection::vec(any::<u8>(), 0..100),
            words in 0..=10_usize,
            ports: (u16, u16),
            flags: u8,
            fill in any::<u8>(),
        ) {
            let options = vec![fill; words * 4];
            let udp = Frame::new().udp(ports.0, ports.1).payload(&payload);
            let tcp = TcpFields {
                source_port: ports.0, destination_port: ports.1, flags: TcpFlags(flags), options: &options,
                ..TcpFields::default()
            };
            let tcp = Frame::new().tcp(tcp).payload(&payload);
            let extensions = [(IpProtocol::DESTINATION_OPTIONS, &[0, 0, 1, 4, 0, 0, 0, 0][..])];
            let (fields4, fields6) = (Ipv4Fields { options: &options, ..V4 }, Ipv6Fields { extensions: &extensions, ..V6 });

            let bytes = udp.ipv4(fields4).to_vec().unwrap();
            let packet = ipv4::check(&bytes).unwrap();
            prop_assert_eq!(packet.options, &options[..]);
            prop_assert_eq!(udp::check(v4(), packet.payload).unwrap().1, &payload[..]);

            let bytes = tcp.ipv4(V4).to_vec().unwrap();
            let segment = tcp::check(v4(), ipv4::check(&bytes).unwrap().payload).unwrap();
            prop_assert_eq!((segment.options, segment.payload), (&options[..], &payload[..]));
            prop_assert_eq!(segment.header.flags(), TcpFlags(flags));

            for (frame, protocol) in [(udp, IpProtocol::UDP), (tcp, IpProtocol::TCP)] {
                let bytes = frame.ipv6(fields6).to_vec().unwrap();
                let upper = ipv6::check(&bytes).unwrap().upper_layer().unwrap();
                prop_assert_eq!((upper.protocol, upper.offset), (protocol, 48));
                let message = &bytes[48..];
                let read = match protocol {
                    IpProtocol::UDP => udp::check(v6(), message).is_ok(),
                    _ => tcp::check(v6(), message).is_ok(),
                };
                prop_assert!(read);
            }
        }

        #[test]
        fn a_cut_frame_is_found_out(payload in prop::collection::vec(any::<u8>(), 0..40), cut: prop::sample::Index) {
            let bytes = Frame::new().ethernet(THERE, HERE).ipv4(V4).udp(1, 2).payload(&payload).to_vec().unwrap();
            let cut = cut.index(bytes.len());
            match LinkLayer::parse(&bytes[..cut]) {
                Ok(link) => prop_assert!(ipv4::check(link.payload).is_err()),
                Err(Truncated { available, .. }) => prop_assert_eq!(available, cut),
            }
        }
    }
}
