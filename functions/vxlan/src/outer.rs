//! What is around a frame that comes out of a tunnel: its headers found, checked and taken off.

use std::net::IpAddr;

use warmlane_forward::control::TunnelProtocol;
use warmlane_mem::{Checksum, InnerChecksum, Packet};
use warmlane_wire::checksum::{Addresses, Sum};
use warmlane_wire::{
    EtherType, EthernetHeader, GeneveError, IpProtocol, Ipv4Header, Ipv6Header, LinkLayer, MacAddress,
    checksum, ethernet, geneve, ipv4, ipv6, udp, vxlan,
};

use crate::inner;
use crate::inner_frame::InnerFrame;
use crate::left::Left;
use crate::reason::Reason;
use crate::sum::sum_completed;

/// Congestion experienced (RFC 3168 section 5).
const CONGESTION: u8 = 3;

/// Bytes of the headers of a datagram in a tunnel, without options.
pub(crate) const DATAGRAM: usize = udp::HEADER_LENGTH + TunnelProtocol::HEADER_LENGTH;

/// Where the frame is in a datagram that was found right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inside {
    /// The identifier of the frame's network.
    pub identifier: u32,
    /// Bytes of all headers in front of the frame.
    pub start: usize,
    /// Bytes of the frame.
    pub length: usize,
}

/// The headers in front of a UDP datagram.
#[derive(Clone, Copy, Debug)]
pub struct Outer {
    /// Where it comes from.
    pub source: IpAddr,
    /// Where it goes to.
    pub destination: IpAddr,
    /// The UDP port there; 0 of a fragment.
    pub destination_port: u16,
    /// The Ethernet address that it came to.
    pub destination_mac: MacAddress,
    ecn: u8,
    /// Where the UDP header is.
    udp: usize,
    /// Bytes of the IP packet from there on.
    available: usize,
    /// It is a part of the datagram only, where ports need not be.
    pub is_fragment: bool,
}

impl Outer {
    /// The headers of a UDP datagram, or of a fragment of one, in an IP packet without options. `None` for all else, and for what is
    /// broken before UDP is reached: a forwarder has names for that.
    #[inline]
    pub fn of(packet: &Packet, link: &LinkLayer<'_>) -> Option<Self> {
        let (at, bytes) = (link.header_length(), link.payload);
        let is_fragment;
        let (source, destination, class, length, end) = match link.ethertype {
            EtherType::IPV4 => {
                let fixed = bytes.first_chunk()?;
                let header = Ipv4Header(fixed);
                is_fragment = header.is_fragment();
                if header.version() != 4
                    || header.header_length() != ipv4::HEADER_LENGTH
                    || header.protocol() != IpProtocol::UDP
                    || checksum::ipv4_header_sum20(fixed) != 0xffff
                {
                    return None;
                }
                let (source, destination) = (header.source().into(), header.destination().into());
                (source, destination, fixed[1], ipv4::HEADER_LENGTH, usize::from(header.total_length()))
            }
            EtherType::IPV6 => {
                let header = Ipv6Header(bytes.first_chunk()?);
                is_fragment = header.next_header() == IpProtocol::FRAGMENT
                    && bytes.get(ipv6::HEADER_LENGTH) == Some(&IpProtocol::UDP.0);
                if header.version() != 6 || !(is_fragment || header.next_header() == IpProtocol::UDP) {
                    return None;
                }
                let (source, destination) = (header.source().into(), header.destination().into());
                let end = ipv6::HEADER_LENGTH + usize::from(header.payload_length());
                (source, destination, header.traffic_class(), ipv6::HEADER_LENGTH, end)
            }
            _ => return None,
        };
        if at + end > packet.packet_length() {
            return None;
        }
        let ports = bytes.get(length..).and_then(|bytes| bytes.first_chunk::<{ udp::HEADER_LENGTH }>());
        let [_, _, high, low, ..] = if is_fragment { [0; udp::HEADER_LENGTH] } else { *ports? };
        Some(Self {
            source,
            destination,
            destination_port: u16::from_be_bytes([high, low]),
            destination_mac: link.header.destination(),
            ecn: class & 3,
            udp: at + length,
            available: end.checked_sub(length)?,
            is_fragment,
        })
    }

    /// Bytes of all headers in front of a frame without options.
    #[inline]
    pub fn length(&self) -> usize {
        self.udp + DATAGRAM
    }

    /// The UDP checksum, the VXLAN header and the Ethernet header of the frame, before anything is known to be right; `None` if they aren't
    /// all in the packet's first buffer, or of a fragment.
    #[inline]
    pub fn look<'a>(
        &self,
        packet: &'a Packet,
    ) -> Option<(u16, [u8; vxlan::HEADER_LENGTH], EthernetHeader<'a>)> {
        if self.is_fragment {
            return None;
        }
        let (udp, rest) = packet.data().get(self.udp..)?.split_first_chunk::<{ udp::HEADER_LENGTH }>()?;
        let (header, frame) = rest.split_first_chunk()?;
        let [.., high, low] = *udp;
        Some((u16::from_be_bytes([high, low]), *header, EthernetHeader(frame.first_chunk()?)))
    }

    fn pseudo_header(&self, length: u16) -> Sum {
        addresses(self.source, self.destination).pseudo_header(IpProtocol::UDP, u32::from(length))
    }

    /// Checks the datagram and says where the frame is. A checksum of zero is none, over IPv6 too (RFC 6935 section 5).
    ///
    /// # Errors
    /// What is wrong with it.
    #[inline]
    pub fn check(&self, packet: &Packet, protocol: TunnelProtocol) -> Result<Inside, Reason> {
        if self.is_fragment {
            return Err(Reason::Fragment);
        }
        let bytes = packet.data().get(self.udp..).unwrap_or_default();
        let (header, rest) =
            bytes.split_first_chunk::<{ udp::HEADER_LENGTH }>().ok_or(Reason::OuterLength)?;
        let [_, _, _, _, l0, l1, c0, c1] = *header;
        let length = u16::from_be_bytes([l0, l1]);
        let least = DATAGRAM + ethernet::HEADER_LENGTH;
        // The headers have to be in the first buffer of a chain: nobody sends them in pieces.
        if usize::from(length) < least || usize::from(length) > self.available || bytes.len() < least {
            return Err(Reason::OuterLength);
        }
        match packet.checksum() {
            Checksum::Bad => return Err(Reason::OuterChecksum),
            Checksum::Good => {}
            // It is the outer one that a sender on this machine has left to hardware.
            Checksum::Partial { start, .. } if usize::from(start) == self.udp => {}
            Checksum::Unknown | Checksum::Partial { .. } => {
                let sum = || sum_completed(packet, self.udp, length.into());
                if [c0, c1] != [0, 0] && !self.pseudo_header(length).then(sum()).is_valid() {
                    return Err(Reason::OuterChecksum);
                }
            }
        }
        let (identifier, options) = match protocol {
            TunnelProtocol::Vxlan => (vxlan::parse(rest).map_err(|_| Reason::NoIdentifier)?.0, 0),
            TunnelProtocol::Geneve => check_geneve(rest)?,
        };
        match usize::from(length).checked_sub(DATAGRAM + options) {
            Some(frame) if frame >= ethernet::HEADER_LENGTH => {
                Ok(Inside { identifier, start: self.udp + DATAGRAM + options, length: frame })
            }
            _ => Err(Reason::OuterLength),
        }
    }

    /// Takes the headers off a packet that [`check`](Self::check) found right, and what padding is behind the frame. Checks the
    /// frame, and its transport checksum if nobody has yet and `transport` says so.
    ///
    /// # Errors
    /// What is wrong with the frame.
    #[inline]
    pub fn strip(&self, packet: &mut Packet, frame: &Inside, transport: bool) -> Result<InnerFrame, Reason> {
        uncover(packet, (frame.start, frame.length), transport, self.ecn)
    }
}

/// Takes off what is in front of a frame and behind it, which begins there and is so long. Checks the frame, and its transport checksum if nobody
/// has yet and `transport` says so; `outer` is what the header around it says of congestion.
#[inline]
pub(crate) fn uncover(
    packet: &mut Packet,
    (start, length): (usize, usize),
    transport: bool,
    outer: u8,
) -> Result<InnerFrame, Reason> {
    packet.trim_front(start).map_err(|_| Reason::OuterLength)?;
    if packet.packet_length() > length && !packet.truncate(length) {
        return Err(Reason::NoBuffer);
    }
    let known = known_inside(packet, start)?;
    let left = Left::of(packet);
    packet.forget_contents();
    if known != Checksum::Unknown {
        packet.set_checksum(known);
    }
    if let Some(left) = left {
        left.note_inside(packet, start)?;
    }
    let inside = inner::check(packet, known, transport)?;
    if inside.is_ip() {
        decapsulate_congestion(packet, inside.class, outer)?;
    }
    Ok(inside)
}

/// The identifier in a GENEVE header that a frame follows, and how many bytes of options it has.
fn check_geneve(bytes: &[u8]) -> Result<(u32, usize), Reason> {
    let (header, _) = geneve::parse(bytes).map_err(|error| match error {
        GeneveError::Version { .. } => Reason::Version,
        GeneveError::CriticalOption => Reason::CriticalOption,
        GeneveError::Truncated(_) | GeneveError::OptionLength { .. } => Reason::OuterLength,
    })?;
    if header.is_control() {
        return Err(Reason::ControlMessage);
    }
    if header.protocol() != EtherType::BRIDGED {
        return Err(Reason::NotEthernet);
    }
    Ok((header.identifier(), header.options_length()))
}

/// What is known of the transport checksum inside, once `around` bytes in front of it are gone.
#[inline]
fn known_inside(packet: &Packet, around: usize) -> Result<Checksum, Reason> {
    let Checksum::Partial { start, offset } = packet.checksum() else {
        return Ok(match packet.inner_checksum() {
            InnerChecksum::Unknown => Checksum::Unknown,
            InnerChecksum::Good => Checksum::Good,
            InnerChecksum::Bad => Checksum::Bad,
        });
    };
    match usize::from(start).checked_sub(around) {
        // It was the outer one.
        None => Ok(Checksum::Unknown),
        Some(start) if start + usize::from(offset) + 2 <= packet.len() => {
            Ok(Checksum::Partial { start: start as u16, offset })
        }
        Some(_) => Err(Reason::InnerLength),
    }
}

pub(crate) fn addresses(source: IpAddr, destination: IpAddr) -> Addresses {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Addresses::V4 { source, destination },
        (source, destination) => {
            Addresses::V6 { source: bits(source).into(), destination: bits(destination).into() }
        }
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// RFC 6040 figure 4: what the packet inside says of congestion, once the header around it is gone.
#[inline]
fn decapsulate_congestion(packet: &mut Packet, class: u8, outer: u8) -> Result<(), Reason> {
    const CAPABLE_0: u8 = 2;
    const CAPABLE_1: u8 = 1;
    match (class & 3, outer) {
        (0, CONGESTION) => return Err(Reason::CongestionNotCapable),
        (CAPABLE_0 | CAPABLE_1, CONGESTION) => set_congestion(packet.data_mut(), CONGESTION),
        (CAPABLE_0, CAPABLE_1) => set_congestion(packet.data_mut(), CAPABLE_1),
        _ => {}
    }
    Ok(())
}

#[cold]
fn set_congestion(frame: &mut [u8], congestion: u8) {
    // Partial checksums don't concern it, and it is in no pseudo header.
    if let Ok(mut packet) = warmlane_wire::PacketMut::parse(frame) {
        packet.set_ecn(congestion);
    }
}
