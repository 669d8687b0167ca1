//! A frame that is or will be in a tunnel, as far as its way hangs on it.

use std::net::IpAddr;

use warmlane_wire::{
    EtherType, EthernetHeader, Ipv4Header, Ipv6Header, Ipv6Packet, LinkLayer, ethernet, flow_hash, ipv4,
};

use crate::reason::Reason;
use crate::stations::Station;

/// What is looked at in a frame, read once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InnerFrame {
    pub(crate) destination: Station,
    pub(crate) source: Station,
    ip: Ip,
    /// DSCP and ECN as the IP packet came, if there is one; else zero.
    pub(crate) class: u8,
    /// Where the IP packet begins.
    start: u8,
}

/// Where an IP packet comes from; it may be behind tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ip {
    None,
    V4(u32),
    V6(u128),
}

impl InnerFrame {
    /// Of this frame.
    ///
    /// # Errors
    /// It ends within its Ethernet header.
    #[inline]
    pub fn of(frame: &[u8]) -> Result<Self, Reason> {
        let (header, _) = EthernetHeader::parse(frame).map_err(|_| Reason::BadSource)?;
        Ok(match LinkLayer::parse(frame) {
            Ok(link) => Self::behind(&link),
            Err(_) => Self::without_ip(header),
        })
    }

    fn without_ip(header: EthernetHeader<'_>) -> Self {
        let (destination, source) = Station::both(header.0);
        Self { destination, source, ip: Ip::None, class: 0, start: 0 }
    }

    /// A frame whose link layer is known already.
    #[inline(always)]
    pub(crate) fn behind(link: &LinkLayer<'_>) -> Self {
        let start = link.header_length() as u8;
        let (ip, class) = match link.ethertype {
            EtherType::IPV4 if let Some(fixed) = link.payload.first_chunk::<{ ipv4::HEADER_LENGTH }>() => {
                (Ip::V4(Ipv4Header(fixed).source().to_bits()), fixed[1])
            }
            EtherType::IPV6 if let Some(fixed) = link.payload.first_chunk() => {
                let header = Ipv6Header(fixed);
                (Ip::V6(header.source().to_bits()), header.traffic_class())
            }
            _ => (Ip::None, 0),
        };
        let (destination, source) = Station::both(link.header.0);
        Self { destination, source, ip, class, start }
    }

    /// A frame with this Ethernet header, no tag and an IPv4 packet from `source` of this class.
    #[inline(always)]
    pub(crate) fn with_ipv4(header: &[u8; ethernet::HEADER_LENGTH], source: u32, class: u8) -> Self {
        let ((destination, sender), start) = (Station::both(header), ethernet::HEADER_LENGTH as u8);
        Self { destination, source: sender, ip: Ip::V4(source), class, start }
    }

    /// A frame that begins with an Ethernet header, no tag and an IPv4 header, which most do.
    #[inline(always)]
    pub fn of_ipv4(frame: &[u8]) -> Option<Self> {
        let (header, rest) = frame.split_first_chunk::<{ ethernet::HEADER_LENGTH }>()?;
        let fixed: &[u8; ipv4::HEADER_LENGTH] = rest.first_chunk()?;
        let is_ipv4 = EthernetHeader(header).ethertype() == EtherType::IPV4;
        is_ipv4.then(|| Self::with_ipv4(header, Ipv4Header(fixed).source().to_bits(), fixed[1]))
    }

    /// Whether there is an IP packet in it.
    #[inline]
    pub(crate) fn is_ip(&self) -> bool {
        !matches!(self.ip, Ip::None)
    }

    /// Whether its IP packet comes from this address.
    #[inline]
    pub(crate) fn is_from(&self, address: IpAddr) -> bool {
        match (self.ip, address) {
            (Ip::V4(bits), IpAddr::V4(address)) => bits == address.to_bits(),
            (Ip::V6(bits), IpAddr::V6(address)) => bits == address.to_bits(),
            _ => false,
        }
    }

    /// The [hash](Self::flow_hash) of an IPv4 packet without options that is no fragment.
    #[inline(always)]
    pub(crate) fn plain_flow_hash(&self, frame: &[u8]) -> Option<u32> {
        let packet = frame.get(usize::from(self.start)..)?;
        if matches!(self.ip, Ip::V4(_)) { flow_hash::plain_ipv4(0, packet) } else { None }
    }

    /// A hash that is one for each flow inside: by a port made of it routers spread a tunnel's flows (RFC 7348 section 5).
    #[inline(always)]
    pub(crate) fn flow_hash(&self, frame: &[u8]) -> u32 {
        let packet = frame.get(usize::from(self.start)..).unwrap_or_default();
        match self.ip {
            Ip::V4(_) => flow_hash::ipv4(0, packet),
            // Of a packet in several buffers the ports are in the first one.
            Ip::V6(_) => match packet.split_first_chunk() {
                Some((header, payload)) => {
                    flow_hash::ipv6(0, &Ipv6Packet { header: Ipv6Header(header), payload })
                }
                None => self.hash_of_addresses(),
            },
            Ip::None => self.hash_of_addresses(),
        }
    }

    /// FNV-1a of both Ethernet addresses.
    fn hash_of_addresses(&self) -> u32 {
        let bytes = self.destination.bytes().into_iter().chain(self.source.bytes());
        bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
    }
}
