//! What is put around a frame on its way into a tunnel.

use std::net::IpAddr;

use warmlane_forward::control::config::VxlanConfig;
use warmlane_mem::{Checksum, LayerOffsets, Packet};
use warmlane_wire::checksum::{Addresses, Sum};
use warmlane_wire::{EtherType, IpProtocol, Ipv4Fields, Ipv6Fields, ethernet, ipv4, ipv6, udp, vxlan};

use crate::inner_frame::InnerFrame;
use crate::outer::{DATAGRAM, addresses};
use crate::reason::Reason;
use crate::sum::sum_completed;

const UDP_OVER_IPV4: usize = ethernet::HEADER_LENGTH + ipv4::HEADER_LENGTH;
const UDP_OVER_IPV6: usize = ethernet::HEADER_LENGTH + ipv6::HEADER_LENGTH;
/// Bytes in front of a frame in a tunnel over IPv4.
pub(crate) const OVER_IPV4: usize = UDP_OVER_IPV4 + DATAGRAM;
const OVER_IPV6: usize = UDP_OVER_IPV6 + DATAGRAM;

/// The headers in front of frames to one tunnel end; what differs from frame to frame is zero.
#[derive(Debug)]
pub(crate) struct Encapsulation {
    headers: Headers,
    /// The tunnel's ends, if there are to be UDP checksums.
    checked: Option<Addresses>,
}

#[derive(Debug)]
enum Headers {
    /// And the sum of what is in the IPv4 header.
    Ipv4([u8; OVER_IPV4], u16),
    Ipv6([u8; OVER_IPV6]),
}

impl Encapsulation {
    /// What is in front of frames of `network` to the tunnel end `remote`.
    pub(crate) fn new(network: &VxlanConfig, remote: IpAddr) -> Self {
        let ends = addresses(network.local, remote);
        let headers = match ends {
            Addresses::V4 { source, destination } => {
                let fields = Ipv4Fields {
                    dont_fragment: true,
                    ttl: network.ttl,
                    ..Ipv4Fields::new(source, destination)
                };
                let mut header = fields.header(IpProtocol::UDP, 0);
                header[10..12].fill(0);
                let sum = Sum::new().bytes(&header).fold();
                Headers::Ipv4(around(network, EtherType::IPV4, &header), sum)
            }
            Addresses::V6 { source, destination } => {
                let fields = Ipv6Fields { hop_limit: network.ttl, ..Ipv6Fields::new(source, destination) };
                Headers::Ipv6(around(network, EtherType::IPV6, &fields.header(IpProtocol::UDP, 0)))
            }
        };
        Self { headers, checked: network.udp_checksum.then_some(ends) }
    }

    /// Puts the headers in front of a frame; the Ethernet addresses are `own`, as if it had come in from a link. A checksum of
    /// the frame that is left to hardware still is, as one inside a tunnel.
    #[inline]
    pub(crate) fn wrap(
        &self,
        packet: &mut Packet,
        inside: &InnerFrame,
        own: &[u8; 12],
    ) -> Result<(), Reason> {
        let port = inside.source_port(packet.data());
        // What the packet inside says, outside as well (RFC 6040 section 4.1, RFC 2983 section 3).
        let class = inside.class;
        let length = DATAGRAM + packet.packet_length();
        let datagram = u16::try_from(length).map_err(|_| Reason::TooLong)?;
        let (udp, space) = match &self.headers {
            Headers::Ipv4(headers, sum) => {
                let total = u16::try_from(ipv4::HEADER_LENGTH + length).map_err(|_| Reason::TooLong)?;
                let space = prepend(packet, headers, own)?;
                let word = 0x4500_0000 | u32::from(class) << 16 | u32::from(total);
                space[14..18].copy_from_slice(&word.to_be_bytes());
                let checksum = Sum::new().word(*sum).word(class.into()).word(total).checksum();
                space[24..26].copy_from_slice(&checksum.to_be_bytes());
                (UDP_OVER_IPV4, &mut space[UDP_OVER_IPV4..])
            }
            Headers::Ipv6(headers) => {
                let space = prepend(packet, headers, own)?;
                let word = 0x6000_0000 | u32::from(class) << 20 | u32::from(port);
                space[14..18].copy_from_slice(&word.to_be_bytes());
                space[18..20].copy_from_slice(&datagram.to_be_bytes());
                (UDP_OVER_IPV6, &mut space[UDP_OVER_IPV6..])
            }
        };
        space[..2].copy_from_slice(&port.to_be_bytes());
        space[4..6].copy_from_slice(&datagram.to_be_bytes());
        let known = packet.checksum();
        packet.forget_contents();
        if let Checksum::Partial { start, offset } = known {
            note_partial(packet, udp, start, offset)?;
        }
        if let Some(ends) = self.checked {
            write_checksum(packet, ends, udp, datagram);
        }
        Ok(())
    }
}

/// The headers around a frame, without Ethernet addresses.
fn around<const N: usize>(network: &VxlanConfig, ethertype: EtherType, ip: &[u8]) -> [u8; N] {
    let datagram = udp::header(0, network.udp_port, 0, 0);
    let parts = [&[0; 12][..], &ethertype.0.to_be_bytes(), ip, &datagram, &vxlan::header(network.identifier)];
    let mut headers = [0; N];
    for (byte, value) in headers.iter_mut().zip(parts.concat()) {
        *byte = value;
    }
    headers
}

#[inline(always)]
fn prepend<'a, const N: usize>(
    packet: &'a mut Packet,
    headers: &[u8; N],
    own: &[u8; 12],
) -> Result<&'a mut [u8; N], Reason> {
    let space = packet.prepend(N).ok().and_then(|space| space.first_chunk_mut());
    let space = space.ok_or(Reason::NoHeadroom)?;
    *space = *headers;
    space[..12].copy_from_slice(own);
    Ok(space)
}

/// Notes where the checksum is that hardware is to complete, of a frame that now has `udp` bytes and a tunnel's headers in front.
#[cold]
fn note_partial(packet: &mut Packet, udp: usize, start: u16, offset: u8) -> Result<(), Reason> {
    let around = udp + DATAGRAM;
    let start = start.checked_add(around as u16).ok_or(Reason::TooLong)?;
    packet.set_checksum(Checksum::Partial { start, offset });
    packet.set_layer_offsets(LayerOffsets {
        l3: ethernet::HEADER_LENGTH as u16,
        l4: udp as u16,
        inner_l3: (around + ethernet::HEADER_LENGTH) as u16,
        ..LayerOffsets::default()
    });
    Ok(())
}

fn write_checksum(packet: &mut Packet, ends: Addresses, udp: usize, length: u16) {
    let pseudo_header = ends.pseudo_header(IpProtocol::UDP, length.into());
    let sum = sum_completed(packet, udp, length.into());
    let checksum = udp::sendable(pseudo_header.then(sum).checksum());
    packet.data_mut()[udp + 6..udp + 8].copy_from_slice(&checksum.to_be_bytes());
}
