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

mod error;

pub use error::BuildError;

use crate::checksum::Addresses;
use crate::vlan::TAG_LENGTH;
use crate::{
    ArpPacket, EtherType, Icmpv4Message, Icmpv6Message, IpProtocol, Ipv4Fields, Ipv6Fields, MacAddress,
    NeighbourMessage, TcpFields, VlanTag,
};
use crate::{arp, ethernet, icmpv4, icmpv6, ipv4, ipv6, tcp, udp};

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
        let no_space = BuildError::NoSpace { needed, available };
        let frame = buffer.get_mut(..needed).ok_or(no_space)?;
        let mut writer = Writer { rest: frame };
        // The length was summed from the same parts, so they fit.
        self.write_layers(&mut writer).ok_or(no_space)?;
        writer.rest.fill(0);
        Ok(needed)
    }

    /// The frame as a vector of its own.
    ///
    /// # Errors
    /// [`BuildError`] if the layers don't fit together; never [`BuildError::NoSpace`].
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
mod tests;
