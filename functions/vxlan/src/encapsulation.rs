//! What is put around a frame on its way into a tunnel.

use warmlane_forward::control::{AroundFrame, Class};
use warmlane_mem::Packet;
use warmlane_wire::checksum::{Addresses, Sum};
use warmlane_wire::{EtherType, IpProtocol, Ipv4Fields, Ipv6Fields, ethernet, ipv4, ipv6, udp};

use crate::inner_frame::InnerFrame;
use crate::left::Left;
use crate::outer::{DATAGRAM, addresses};
use crate::reason::Reason;
use crate::sum::sum_completed;

const UDP_OVER_IPV4: usize = ethernet::HEADER_LENGTH + ipv4::HEADER_LENGTH;
const UDP_OVER_IPV6: usize = ethernet::HEADER_LENGTH + ipv6::HEADER_LENGTH;
/// Bytes in front of a frame in a tunnel over IPv4.
pub(crate) const OVER_IPV4: usize = UDP_OVER_IPV4 + DATAGRAM;
const OVER_IPV6: usize = UDP_OVER_IPV6 + DATAGRAM;

/// What [`Encapsulation::put`] can rely on: on nothing, on the usual tunnel, or on one over IPv4 without checksums, too, and a packet of
/// which nothing is left to be done.
const ANY: u8 = 0;
const USUAL: u8 = 1;
const PLAIN: u8 = 2;

/// The headers in front of frames to one tunnel end; what differs from frame to frame is zero.
#[derive(Debug, Clone)]
pub struct Encapsulation {
    headers: Headers,
    /// The tunnel's ends, if there are to be UDP checksums.
    checked: Option<Addresses>,
    /// What of the inner DSCP and ECN is outside as well, and what is there in any case.
    inherited: u8,
    fixed: u8,
    /// The first UDP port that frames come from, and how many there are.
    first_port: u16,
    ports: u32,
}

#[derive(Debug, Clone)]
enum Headers {
    /// And the sum of what is in the IPv4 header.
    Ipv4([u8; OVER_IPV4], u16),
    Ipv6([u8; OVER_IPV6]),
}

impl Encapsulation {
    /// What is in front of frames.
    pub fn new(around: &AroundFrame) -> Self {
        let ends = addresses(around.local, around.remote);
        let headers = match ends {
            Addresses::V4 { source, destination } => {
                let fields = Ipv4Fields {
                    dont_fragment: around.dont_fragment,
                    ttl: around.ttl,
                    ..Ipv4Fields::new(source, destination)
                };
                let mut header = fields.header(IpProtocol::UDP, 0);
                header[10..12].fill(0);
                let sum = Sum::new().bytes(&header).fold();
                Headers::Ipv4(in_front(around, EtherType::IPV4, &header), sum)
            }
            Addresses::V6 { source, destination } => {
                let fields = Ipv6Fields { hop_limit: around.ttl, ..Ipv6Fields::new(source, destination) };
                Headers::Ipv6(in_front(around, EtherType::IPV6, &fields.header(IpProtocol::UDP, 0)))
            }
        };
        let (inherited, fixed) = match around.class {
            Class::Inherited => (0xff, 0),
            Class::Fixed(class) => (0x03, class & 0xfc),
        };
        let (first_port, last_port) = around.source_ports;
        Self {
            headers,
            checked: around.udp_checksum.then_some(ends),
            inherited,
            fixed,
            first_port,
            ports: u32::from(last_port.saturating_sub(first_port)) + 1,
        }
    }

    /// Puts the headers in front of a frame; the Ethernet addresses are `own`, as if it had come in from a link. A checksum of
    /// the frame that is left to hardware still is, as one inside a tunnel, and so is a frame that is to be cut: whoever does makes a datagram of each
    /// segment. Of IPv4 packets that may be cut each needs another `identification` (RFC 6864 section 4.2).
    ///
    /// # Errors
    /// The frame is too long, or there is no space in front of it.
    #[inline]
    pub fn wrap(
        &self,
        packet: &mut Packet,
        inside: &InnerFrame,
        own: &[u8; 12],
        identification: u16,
    ) -> Result<(), Reason> {
        let hash = inside.flow_hash(packet.data());
        self.put::<ANY>(packet, inside, hash, own, identification)
    }

    /// The same of a tunnel with the [usual ports](AroundFrame::USUAL_SOURCE_PORTS), whose DSCP is inherited, and whose packets must not be cut.
    // A function of its own: inside the gateway's loop it leaves fewer registers to either (18 instructions a packet). And what most
    // packets don't have is in another one, which needs more registers.
    #[inline(never)]
    pub(crate) fn wrap_usual(
        &self,
        packet: &mut Packet,
        inside: &InnerFrame,
        own: &[u8; 12],
    ) -> Result<(), Reason> {
        let is_plain = matches!(self.headers, Headers::Ipv4(..)) && self.checked.is_none();
        match inside.plain_flow_hash(packet.data()) {
            Some(hash) if is_plain && !packet.has_work_left() => {
                // What is not cut is not told apart (RFC 6864 section 4.1).
                self.put::<PLAIN>(packet, inside, hash, own, 0)
            }
            _ => self.wrap_unusual(packet, inside, own),
        }
    }

    #[inline(never)]
    fn wrap_unusual(&self, packet: &mut Packet, inside: &InnerFrame, own: &[u8; 12]) -> Result<(), Reason> {
        let hash = inside.flow_hash(packet.data());
        self.put::<USUAL>(packet, inside, hash, own, 0)
    }

    #[inline(always)]
    fn put<const KIND: u8>(
        &self,
        packet: &mut Packet,
        inside: &InnerFrame,
        hash: u32,
        own: &[u8; 12],
        identification: u16,
    ) -> Result<(), Reason> {
        let left = if KIND == PLAIN { None } else { Left::of(packet) };
        let port = if KIND == ANY {
            self.first_port + ((u64::from(hash) * u64::from(self.ports)) >> 32) as u16
        } else {
            AroundFrame::USUAL_SOURCE_PORTS.0 | (hash >> 18) as u16
        };
        // What the packet inside says, outside as well (RFC 6040 section 4.1, RFC 2983 section 3).
        let class = if KIND == ANY { inside.class & self.inherited | self.fixed } else { inside.class };
        let length = DATAGRAM + packet.packet_length();
        let datagram = u16::try_from(length).map_err(|_| Reason::TooLong)?;
        let (udp, space) = match &self.headers {
            Headers::Ipv4(headers, sum) => {
                let total = u16::try_from(ipv4::HEADER_LENGTH + length).map_err(|_| Reason::TooLong)?;
                let space = prepend(packet, headers, own)?;
                let word = 0x4500_0000 | u32::from(class) << 16 | u32::from(total);
                space[14..18].copy_from_slice(&word.to_be_bytes());
                let mut sum = Sum::new().word(*sum).word(class.into()).word(total);
                if KIND == ANY {
                    space[18..20].copy_from_slice(&identification.to_be_bytes());
                    sum = sum.word(identification);
                }
                space[24..26].copy_from_slice(&sum.checksum().to_be_bytes());
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
        packet.forget_contents();
        if let Some(left) = left {
            left.note_around(packet, udp, udp + DATAGRAM)?;
        }
        if let Some(ends) = self.checked.filter(|_| KIND != PLAIN) {
            write_checksum(packet, ends, udp, datagram);
        }
        Ok(())
    }
}

/// The headers around a frame, without Ethernet addresses.
fn in_front<const N: usize>(around: &AroundFrame, ethertype: EtherType, ip: &[u8]) -> [u8; N] {
    let datagram = udp::header(0, around.udp_port, 0, 0);
    let parts =
        [&[0; 12][..], &ethertype.0.to_be_bytes(), ip, &datagram, &around.protocol.header(around.identifier)];
    let mut headers = [0; N];
    // Lanes make some, too, and don't allocate.
    for (byte, value) in headers.iter_mut().zip(parts.iter().copied().flatten()) {
        *byte = *value;
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

fn write_checksum(packet: &mut Packet, ends: Addresses, udp: usize, length: u16) {
    let pseudo_header = ends.pseudo_header(IpProtocol::UDP, length.into());
    let sum = sum_completed(packet, udp, length.into());
    let checksum = udp::sendable(pseudo_header.then(sum).checksum());
    packet.data_mut()[udp + 6..udp + 8].copy_from_slice(&checksum.to_be_bytes());
}
