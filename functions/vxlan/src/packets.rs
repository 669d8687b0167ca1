//! Tunnels over IPv4 that carry IP packets without frames: IP in IP (RFC 2003 for IPv4, RFC 4213 section 3 for IPv6), and GRE (RFC 2784).
//!
//! Lanes know frames only. So a packet that comes out of such a tunnel gets an Ethernet header, and one that goes in loses it.

use std::net::Ipv4Addr;

use warmlane_forward::control::{AroundPacket, Class, IpTunnel};
use warmlane_mem::Packet;
use warmlane_wire::{
    EtherType, IpProtocol, Ipv4Fields, Ipv4Header, LinkLayer, MacAddress, checksum, ethernet, gre, ipv4,
};

use crate::inner_frame::InnerFrame;
use crate::left::Left;
use crate::outer::uncover;
use crate::reason::Reason;

/// What is in front of an IP packet that comes in such a tunnel.
#[derive(Clone, Copy, Debug)]
pub struct OuterIpv4 {
    /// Where it comes from.
    pub source: Ipv4Addr,
    /// Where it goes to.
    pub destination: Ipv4Addr,
    /// The Ethernet address that it came to.
    pub destination_mac: MacAddress,
    /// What is between both IP headers.
    pub tunnel: IpTunnel,
    /// What is inside: IPv4 or IPv6.
    pub inside: EtherType,
    /// Bytes of all headers in front of the packet inside.
    pub start: usize,
    /// Bytes of the packet inside.
    length: usize,
    ecn: u8,
}

impl OuterIpv4 {
    /// The headers of a packet in a tunnel, of which the outer one has no options. `None` for all else: fragments, what is broken before the packet inside
    /// is reached, GRE with a checksum or a sequence number, and what carries something other than IP.
    #[inline]
    pub fn of(packet: &Packet, link: &LinkLayer<'_>) -> Option<Self> {
        if link.ethertype != EtherType::IPV4 {
            return None;
        }
        let (fixed, rest) = link.payload.split_first_chunk()?;
        let header = Ipv4Header(fixed);
        let total = usize::from(header.total_length());
        let is_plain = header.version() == 4
            && header.header_length() == ipv4::HEADER_LENGTH
            && !header.is_fragment()
            && link.header_length() + total <= packet.packet_length()
            && checksum::ipv4_header_sum20(fixed) == 0xffff;
        if !is_plain {
            return None;
        }
        let (tunnel, inside, more) = match header.protocol() {
            IpProtocol::IPV4 => (IpTunnel::Plain, EtherType::IPV4, 0),
            IpProtocol::IPV6 => (IpTunnel::Plain, EtherType::IPV6, 0),
            IpProtocol::GRE => {
                let (gre, behind) = gre::parse(rest).ok()?;
                let is_ip = matches!(gre.protocol, EtherType::IPV4 | EtherType::IPV6);
                if gre.has_checksum || gre.has_sequence || !is_ip {
                    return None;
                }
                (IpTunnel::Gre(gre.key), gre.protocol, rest.len() - behind.len())
            }
            _ => return None,
        };
        let headers = ipv4::HEADER_LENGTH + more;
        Some(Self {
            source: header.source(),
            destination: header.destination(),
            destination_mac: link.header.destination(),
            tunnel,
            inside,
            start: link.header_length() + headers,
            length: total.checked_sub(headers)?,
            ecn: fixed[1] & 3,
        })
    }

    /// Takes the headers off and puts an Ethernet header with these addresses, destination first, in front of the packet inside; what is behind it goes.
    /// Checks the packet, but for its transport checksum.
    ///
    /// # Errors
    /// What is wrong with it.
    #[inline]
    pub fn strip(&self, packet: &mut Packet, addresses: [u8; 12]) -> Result<InnerFrame, Reason> {
        let begin = self.start.checked_sub(ethernet::HEADER_LENGTH).ok_or(Reason::OuterLength)?;
        let space = packet.data_mut().get_mut(begin..self.start).ok_or(Reason::OuterLength)?;
        space[..12].copy_from_slice(&addresses);
        space[12..].copy_from_slice(&self.inside.0.to_be_bytes());
        uncover(packet, (begin, ethernet::HEADER_LENGTH + self.length), false, self.ecn)
    }
}

/// What is put around packets on their way into such a tunnel.
#[derive(Debug, Clone)]
pub struct PacketEncapsulation {
    around: AroundPacket,
    /// What of the inner DSCP and ECN is outside as well, and what is there in any case.
    inherited: u8,
    fixed: u8,
}

impl PacketEncapsulation {
    /// What is in front of packets.
    pub const fn new(around: &AroundPacket) -> Self {
        let (inherited, fixed) = match around.class {
            Class::Inherited => (0xff, 0),
            Class::Fixed(class) => (0x03, class & 0xfc),
        };
        Self { around: *around, inherited, fixed }
    }

    /// Takes the Ethernet header off a frame and puts the headers in front of its IP packet; the Ethernet addresses are `own`, as if it had come in
    /// from a link. Its packets must not be cut.
    ///
    /// # Errors
    /// The packet is too long, it is none of IP, or there is no space in front of it.
    #[inline]
    pub fn wrap(&self, packet: &mut Packet, own: &[u8; 12]) -> Result<(), Reason> {
        let inside = InnerFrame::of(packet.data())?;
        let (protocol, ethertype, ttl) = match packet.data().get(ethernet::HEADER_LENGTH..) {
            Some([0x40..=0x4f, _, _, _, _, _, _, _, ttl, ..]) => (IpProtocol::IPV4, EtherType::IPV4, *ttl),
            Some([0x60..=0x6f, _, _, _, _, _, _, ttl, ..]) => (IpProtocol::IPV6, EtherType::IPV6, *ttl),
            _ => return Err(Reason::InnerLength),
        };
        if !self.around.carries[usize::from(ethertype == EtherType::IPV6)] {
            return Err(Reason::NotCarried);
        }
        let mut gre_header = [0; gre::LENGTH_WITH_KEY];
        let (protocol, more) = match self.around.tunnel {
            IpTunnel::Plain => (protocol, 0),
            IpTunnel::Gre(None) => {
                gre_header[..gre::HEADER_LENGTH].copy_from_slice(&gre::header(ethertype));
                (IpProtocol::GRE, gre::HEADER_LENGTH)
            }
            IpTunnel::Gre(Some(key)) => {
                gre_header = gre::header_with_key(ethertype, key);
                (IpProtocol::GRE, gre::LENGTH_WITH_KEY)
            }
        };
        let total = packet.packet_length() - ethernet::HEADER_LENGTH + more + ipv4::HEADER_LENGTH;
        let total = u16::try_from(total).map_err(|_| Reason::TooLong)?;
        let fields = Ipv4Fields {
            // What the packet inside says, outside as well (RFC 6040 section 4.1, RFC 2983 section 3).
            traffic_class: inside.class & self.inherited | self.fixed,
            dont_fragment: true,
            // The packet is routed as if it had come in from somewhere, and loses one on its way out.
            ttl: self.around.ttl.unwrap_or(ttl).saturating_add(1),
            ..Ipv4Fields::new(self.around.local, self.around.remote)
        };
        let ip = fields.header(protocol, total);
        packet.trim_front(ethernet::HEADER_LENGTH).map_err(|_| Reason::InnerLength)?;
        let headers = ethernet::HEADER_LENGTH + ipv4::HEADER_LENGTH + more;
        let space = packet.prepend(headers).map_err(|_| Reason::NoHeadroom)?;
        let (link, rest) = space.split_at_mut(ethernet::HEADER_LENGTH);
        link[..12].copy_from_slice(own);
        link[12..].copy_from_slice(&EtherType::IPV4.0.to_be_bytes());
        let (space, rest) = rest.split_at_mut(ipv4::HEADER_LENGTH);
        space.copy_from_slice(&ip);
        rest[..more].copy_from_slice(&gre_header[..more]);
        let left = Left::of(packet);
        packet.forget_contents();
        match left {
            Some(left) => left.note_around(packet, OVER_IPV4, more + ipv4::HEADER_LENGTH),
            None => Ok(()),
        }
    }
}

/// Bytes in front of what the outer IP packet carries.
const OVER_IPV4: usize = ethernet::HEADER_LENGTH + ipv4::HEADER_LENGTH;
