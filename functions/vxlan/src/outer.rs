//! What is around a frame in a tunnel: its headers found and checked, and written.

use std::net::IpAddr;

use warmlane_forward::control::config::VxlanConfig;
use warmlane_mem::{Checksum, InnerChecksum, LayerOffsets, Packet};
use warmlane_wire::checksum::{Addresses, Sum};
use warmlane_wire::{
    EtherType, Flow, IpProtocol, Ipv4Fields, Ipv4Header, Ipv6Fields, Ipv6Header, LinkLayer, MacAddress,
    checksum, ethernet, ipv4, ipv6, udp, vxlan,
};

use crate::inner;
use crate::reason::Reason;
use crate::sum::sum_completed;

/// Congestion experienced (RFC 3168 section 5).
const CONGESTION: u8 = 3;

/// The headers in front of a UDP datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outer {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) destination_port: u16,
    pub(crate) destination_mac: MacAddress,
    ecn: u8,
    /// Where the UDP header is.
    udp: usize,
    /// Bytes of the IP packet from there on.
    available: usize,
    /// It is a part of the datagram only, where ports need not be.
    pub(crate) is_fragment: bool,
}

impl Outer {
    /// The headers of a UDP datagram, or of a fragment of one, in an IP packet without options. `None` for all else, and for what is
    /// broken before UDP is reached: a forwarder has names for that.
    pub(crate) fn of(packet: &Packet) -> Option<Self> {
        let data = packet.data();
        let link = LinkLayer::parse(data).ok()?;
        let at = link.header_length();
        let bytes = data.get(at..)?;
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

    fn pseudo_header(&self, length: u16) -> Sum {
        addresses(self.source, self.destination).pseudo_header(IpProtocol::UDP, u32::from(length))
    }

    /// Checks the datagram and gives the network's identifier. A checksum of zero is none, over IPv6 too (RFC 6935 section 5).
    pub(crate) fn check(&self, packet: &Packet) -> Result<u32, Reason> {
        if self.is_fragment {
            return Err(Reason::Fragment);
        }
        let bytes = packet.data().get(self.udp..).unwrap_or_default();
        let (header, rest) =
            bytes.split_first_chunk::<{ udp::HEADER_LENGTH }>().ok_or(Reason::OuterLength)?;
        let [_, _, _, _, l0, l1, c0, c1] = *header;
        let length = u16::from_be_bytes([l0, l1]);
        let least = udp::HEADER_LENGTH + vxlan::HEADER_LENGTH + ethernet::HEADER_LENGTH;
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
        match vxlan::parse(rest) {
            Ok((identifier, _)) => Ok(identifier),
            Err(_) => Err(Reason::NoIdentifier),
        }
    }

    /// Takes the headers off a packet that [`check`](Self::check) found right, and what padding is behind the frame. Checks the frame, and
    /// its transport checksum if nobody has yet and `transport` says so.
    pub(crate) fn strip(&self, packet: &mut Packet, transport: bool) -> Result<(), Reason> {
        let length = packet.data().get(self.udp + 4..).and_then(|bytes| bytes.first_chunk()).copied();
        let length = usize::from(length.map_or(0, u16::from_be_bytes));
        let headers = udp::HEADER_LENGTH + vxlan::HEADER_LENGTH;
        let frame = length.checked_sub(headers).ok_or(Reason::OuterLength)?;
        packet.trim_front(self.udp + headers).map_err(|_| Reason::OuterLength)?;
        if !packet.truncate(frame) {
            return Err(Reason::NoBuffer);
        }
        let known = inside(packet, self.udp + headers)?;
        packet.forget_contents();
        packet.set_checksum(known);
        inner::check(packet, transport)?;
        decapsulate_congestion(packet.data_mut(), self.ecn)
    }
}

/// What is known of the transport checksum inside, once `around` bytes in front of it are gone.
fn inside(packet: &Packet, around: usize) -> Result<Checksum, Reason> {
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

fn addresses(source: IpAddr, destination: IpAddr) -> Addresses {
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
fn decapsulate_congestion(frame: &mut [u8], outer: u8) -> Result<(), Reason> {
    const CAPABLE_0: u8 = 2;
    const CAPABLE_1: u8 = 1;
    let Some(class) = traffic_class(frame) else { return Ok(()) };
    let inner = class & 3;
    match (inner, outer) {
        (0, CONGESTION) => Err(Reason::CongestionNotCapable),
        (CAPABLE_0 | CAPABLE_1, CONGESTION) => {
            set_congestion(frame, CONGESTION);
            Ok(())
        }
        (CAPABLE_0, CAPABLE_1) => {
            set_congestion(frame, CAPABLE_1);
            Ok(())
        }
        _ => Ok(()),
    }
}

fn set_congestion(frame: &mut [u8], congestion: u8) {
    // Partial checksums don't concern it, and it is in no pseudo header.
    if let Ok(mut packet) = warmlane_wire::PacketMut::parse(frame) {
        packet.set_ecn(congestion);
    }
}

/// DSCP and ECN of the IP packet in an untagged frame.
fn traffic_class(frame: &[u8]) -> Option<u8> {
    let link = LinkLayer::parse(frame).ok()?;
    match link.ethertype {
        EtherType::IPV4 => link.payload.first_chunk().map(|fixed: &[u8; ipv4::HEADER_LENGTH]| fixed[1]),
        EtherType::IPV6 => link.payload.first_chunk().map(|fixed| Ipv6Header(fixed).traffic_class()),
        _ => None,
    }
}

/// The address that the IP packet in an untagged frame comes from.
pub(crate) fn source(frame: &[u8]) -> Option<IpAddr> {
    let link = LinkLayer::parse(frame).ok()?;
    match link.ethertype {
        EtherType::IPV4 => link.payload.first_chunk().map(|fixed| Ipv4Header(fixed).source().into()),
        EtherType::IPV6 => link.payload.first_chunk().map(|fixed| Ipv6Header(fixed).source().into()),
        _ => None,
    }
}

/// A port that is one for each flow inside, from the range that RFC 7348 section 5 recommends: so routers spread a tunnel's flows.
fn source_port(frame: &[u8]) -> u16 {
    let hash = match Flow::of_frame(frame) {
        Ok(flow) => flow.hash(0),
        Err(_) => frame.first_chunk::<12>().map_or(0, |macs| {
            macs.iter().fold(0_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
        }),
    };
    0xc000 | (hash >> 18) as u16
}

/// Puts the headers to the tunnel end `remote` in front of a frame that the network's MTU allows; the Ethernet header is addressed to `own`, as
/// if it had come in from a link. A checksum of the frame that is left to hardware still is, as one inside a tunnel.
pub(crate) fn wrap(
    packet: &mut Packet,
    network: &VxlanConfig,
    remote: IpAddr,
    own: MacAddress,
) -> Result<(), Reason> {
    let length = udp::HEADER_LENGTH + vxlan::HEADER_LENGTH + packet.packet_length();
    let length = u16::try_from(length).map_err(|_| Reason::TooLong)?;
    // What the packet inside says, outside as well (RFC 6040 section 4.1, RFC 2983 section 3).
    let class = traffic_class(packet.data()).unwrap_or(0);
    let port = source_port(packet.data());
    let mut headers = [0; ethernet::HEADER_LENGTH + ipv6::HEADER_LENGTH];
    let (ethertype, ip) = match (network.local, remote) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let total = u16::try_from(ipv4::HEADER_LENGTH).ok().and_then(|header| header.checked_add(length));
            let total = total.ok_or(Reason::TooLong)?;
            let fields = Ipv4Fields {
                traffic_class: class,
                dont_fragment: true,
                ttl: network.ttl,
                ..Ipv4Fields::new(source, destination)
            };
            let header = fields.header(IpProtocol::UDP, total);
            headers[ethernet::HEADER_LENGTH..][..ipv4::HEADER_LENGTH].copy_from_slice(&header);
            (EtherType::IPV4, ipv4::HEADER_LENGTH)
        }
        (source, destination) => {
            let fields = Ipv6Fields {
                traffic_class: class,
                hop_limit: network.ttl,
                flow_label: u32::from(port),
                ..Ipv6Fields::new(bits(source).into(), bits(destination).into())
            };
            headers[ethernet::HEADER_LENGTH..].copy_from_slice(&fields.header(IpProtocol::UDP, length));
            (EtherType::IPV6, ipv6::HEADER_LENGTH)
        }
    };
    headers[..6].copy_from_slice(&own.0);
    headers[6..12].copy_from_slice(&own.0);
    headers[12..14].copy_from_slice(&ethertype.0.to_be_bytes());
    let udp = ethernet::HEADER_LENGTH + ip;
    let around = udp + udp::HEADER_LENGTH + vxlan::HEADER_LENGTH;
    let space = packet.prepend(around).map_err(|_| Reason::NoHeadroom)?;
    let (front, rest) = space.split_at_mut(udp);
    front.copy_from_slice(&headers[..udp]);
    let (datagram, tunnel) = rest.split_at_mut(udp::HEADER_LENGTH);
    datagram.copy_from_slice(&udp::header(port, network.udp_port, length, 0));
    tunnel.copy_from_slice(&vxlan::header(network.identifier));
    let known = packet.checksum();
    packet.forget_contents();
    if let Checksum::Partial { start, offset } = known {
        let start = start.checked_add(around as u16).ok_or(Reason::TooLong)?;
        packet.set_checksum(Checksum::Partial { start, offset });
        packet.set_layer_offsets(LayerOffsets {
            l3: ethernet::HEADER_LENGTH as u16,
            l4: udp as u16,
            inner_l3: (around + ethernet::HEADER_LENGTH) as u16,
            ..LayerOffsets::default()
        });
    }
    if network.udp_checksum {
        let pseudo = addresses(network.local, remote).pseudo_header(IpProtocol::UDP, u32::from(length));
        let sum = sum_completed(packet, udp, length.into());
        let checksum = udp::sendable(pseudo.then(sum).checksum());
        packet.data_mut()[udp + 6..udp + 8].copy_from_slice(&checksum.to_be_bytes());
    }
    Ok(())
}
