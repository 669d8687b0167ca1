//! What is in a tunnel: whether a frame is whole and intact.

use warmlane_mem::{Checksum, Packet};
use warmlane_port::software_offload::is_sctp_intact;
use warmlane_wire::checksum::{Addresses, Sum};
use warmlane_wire::{
    EtherType, IpProtocol, Ipv4Header, Ipv6Header, Ipv6Packet, LinkLayer, checksum, ethernet, ipv4, ipv6,
    tcp, udp,
};

use crate::inner_frame::InnerFrame;
use crate::reason::Reason;
use crate::sum::sum;

/// A frame that came through a tunnel: no tag, and an IP packet that is no longer than the frame and has an intact header. Its transport
/// checksum, of which `known` is known, is looked at if nobody has and `transport` says so, and then known to be good.
#[inline]
pub(crate) fn check(packet: &mut Packet, known: Checksum, transport: bool) -> Result<InnerFrame, Reason> {
    let Ok(link) = LinkLayer::parse(packet.data()) else { return Err(Reason::InnerLength) };
    if link.outer.is_some() {
        return Err(Reason::InnerTag);
    }
    let inside = InnerFrame::behind(&link);
    let available = packet.packet_length() - ethernet::HEADER_LENGTH;
    match link.ethertype {
        EtherType::IPV4 => check_ipv4(link.payload, available)?,
        EtherType::IPV6 => check_ipv6(link.payload, available)?,
        _ => {}
    }
    match known {
        Checksum::Bad => return Err(Reason::InnerChecksum),
        Checksum::Unknown if transport => check_transport(packet)?,
        // Left to hardware, it is whatever comes of it.
        Checksum::Unknown | Checksum::Good | Checksum::Partial { .. } => {}
    }
    Ok(inside)
}

/// Of a frame whose IP packet is as it should be.
fn check_transport(packet: &mut Packet) -> Result<(), Reason> {
    let Ok(link) = LinkLayer::parse(packet.data()) else { return Err(Reason::InnerLength) };
    let transport = match link.ethertype {
        EtherType::IPV4 => over_ipv4(link.payload),
        EtherType::IPV6 => over_ipv6(link.payload)?,
        _ => None,
    };
    match transport.map(|transport| transport.is_intact(packet)) {
        None => {}
        Some(false) => return Err(Reason::InnerChecksum),
        Some(true) => packet.set_checksum(Checksum::Good),
    }
    Ok(())
}

/// A transport header and all behind it.
struct Transport {
    /// Where it is in the frame.
    start: usize,
    length: usize,
    protocol: IpProtocol,
    addresses: Addresses,
}

impl Transport {
    /// Whether its checksum is right, of a header that is whole; of UDP, none is as good.
    fn is_intact(&self, packet: &Packet) -> bool {
        let mut length = self.length;
        match self.protocol {
            IpProtocol::UDP => {
                let Some([_, _, _, _, l0, l1, c0, c1]) = self.udp_header(packet) else { return false };
                let told = usize::from(u16::from_be_bytes([l0, l1]));
                if told < udp::HEADER_LENGTH || told > length {
                    return false;
                }
                if [c0, c1] == [0, 0] {
                    return true;
                }
                // What is behind the datagram is no part of it.
                length = told;
            }
            IpProtocol::TCP if length < tcp::HEADER_LENGTH => return false,
            IpProtocol::SCTP => return is_sctp_intact(packet, self.start..self.start + length),
            _ => {}
        }
        let pseudo_header = match self.protocol {
            IpProtocol::ICMP => Sum::new(),
            _ => self.addresses.pseudo_header(self.protocol, length as u32),
        };
        pseudo_header.then(sum(packet, self.start, length)).is_valid()
    }

    /// It may begin in any of the packet's buffers.
    fn udp_header(&self, packet: &Packet) -> Option<[u8; udp::HEADER_LENGTH]> {
        if self.length < udp::HEADER_LENGTH {
            return None;
        }
        let mut header = [0; udp::HEADER_LENGTH];
        let mut bytes = packet.segment_data().flatten().skip(self.start);
        for byte in &mut header {
            *byte = *bytes.next()?;
        }
        Some(header)
    }
}

/// Whether this protocol is one whose checksum is known here, over this version of IP.
fn has_checksum(protocol: IpProtocol, own_icmp: IpProtocol) -> bool {
    [IpProtocol::TCP, IpProtocol::UDP, IpProtocol::SCTP, own_icmp].contains(&protocol)
}

#[inline]
fn check_ipv4(bytes: &[u8], available: usize) -> Result<(), Reason> {
    let fixed: &[u8; ipv4::HEADER_LENGTH] = bytes.first_chunk().ok_or(Reason::InnerLength)?;
    let header = Ipv4Header(fixed);
    let (length, total) = (header.header_length(), usize::from(header.total_length()));
    if header.version() != 4 || length < ipv4::HEADER_LENGTH || total < length || total > available {
        return Err(Reason::InnerLength);
    }
    let sum = if length == ipv4::HEADER_LENGTH {
        checksum::ipv4_header_sum20(fixed)
    } else {
        checksum::sum(bytes.get(..length).ok_or(Reason::InnerLength)?)
    };
    if sum == 0xffff { Ok(()) } else { Err(Reason::InnerChecksum) }
}

#[inline]
fn check_ipv6(bytes: &[u8], available: usize) -> Result<(), Reason> {
    let header = Ipv6Header(bytes.first_chunk().ok_or(Reason::InnerLength)?);
    let end = ipv6::HEADER_LENGTH + usize::from(header.payload_length());
    if header.version() == 6 && end <= available { Ok(()) } else { Err(Reason::InnerLength) }
}

/// The transport if it is not in several fragments, and has a checksum that can be checked.
fn over_ipv4(bytes: &[u8]) -> Option<Transport> {
    let header = Ipv4Header(bytes.first_chunk()?);
    let length = header.header_length();
    if header.is_fragment() || !has_checksum(header.protocol(), IpProtocol::ICMP) {
        return None;
    }
    Some(Transport {
        start: ethernet::HEADER_LENGTH + length,
        length: usize::from(header.total_length()).checked_sub(length)?,
        protocol: header.protocol(),
        addresses: Addresses::V4 { source: header.source(), destination: header.destination() },
    })
}

/// The same over IPv6. A source route that isn't at its end covers another address than the header's.
fn over_ipv6(bytes: &[u8]) -> Result<Option<Transport>, Reason> {
    let (fixed, payload) = bytes.split_first_chunk().ok_or(Reason::InnerLength)?;
    let header = Ipv6Header(fixed);
    let end = ipv6::HEADER_LENGTH + usize::from(header.payload_length());
    let Ok(upper) = (Ipv6Packet { header, payload }).upper_layer() else { return Err(Reason::InnerLength) };
    let has_checksum = has_checksum(upper.protocol, IpProtocol::ICMPV6);
    if upper.fragment.is_some() || upper.segments_left > 0 || !has_checksum {
        return Ok(None);
    }
    Ok(Some(Transport {
        start: ethernet::HEADER_LENGTH + upper.offset,
        length: end.checked_sub(upper.offset).ok_or(Reason::InnerLength)?,
        protocol: upper.protocol,
        addresses: Addresses::V6 { source: header.source(), destination: header.destination() },
    }))
}
