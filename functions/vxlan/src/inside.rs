//! A frame that is or will be in a tunnel, as far as its way hangs on it.

use std::net::IpAddr;

use warmlane_wire::{
    EtherType, EthernetHeader, Ipv4Header, Ipv6Header, LinkLayer, MacAddress, flow_hash, ipv4, ipv6,
};

use crate::reason::Reason;

/// What is looked at in a frame, read once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inside {
    pub(crate) destination: MacAddress,
    pub(crate) source: MacAddress,
    pub(crate) ip: Option<Ip>,
}

/// What is looked at in the header of an IP packet, be it behind tags.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ip {
    pub(crate) source: IpAddr,
    /// DSCP and ECN.
    pub(crate) class: u8,
    /// Where it begins in the frame.
    start: usize,
}

impl Inside {
    #[inline]
    pub(crate) fn of(frame: &[u8]) -> Result<Self, Reason> {
        let (header, _) = EthernetHeader::parse(frame).map_err(|_| Reason::BadSource)?;
        Ok(match LinkLayer::parse(frame) {
            Ok(link) => Self::behind(&link),
            Err(_) => Self { destination: header.destination(), source: header.source(), ip: None },
        })
    }

    /// A frame whose link layer is known already.
    #[inline]
    pub(crate) fn behind(link: &LinkLayer<'_>) -> Self {
        let start = link.header_length();
        let ip = match link.ethertype {
            EtherType::IPV4 => link.payload.first_chunk().map(|fixed: &[u8; ipv4::HEADER_LENGTH]| {
                let header = Ipv4Header(fixed);
                Ip { source: header.source().into(), class: fixed[1], start }
            }),
            EtherType::IPV6 => link.payload.first_chunk().map(|fixed| {
                let header = Ipv6Header(fixed);
                Ip { source: header.source().into(), class: header.traffic_class(), start }
            }),
            _ => None,
        };
        Self { destination: link.header.destination(), source: link.header.source(), ip }
    }

    /// A port that is one for each flow inside, from the range that RFC 7348 section 5 recommends: so routers spread a tunnel's flows.
    #[inline]
    pub(crate) fn source_port(&self, frame: &[u8]) -> u16 {
        let packet = self.ip.and_then(|ip| frame.get(ip.start..));
        let hash = match (self.ip, packet) {
            (Some(Ip { source: IpAddr::V4(_), .. }), Some(packet)) => flow_hash::ipv4(0, packet),
            (Some(_), Some(packet)) => match ipv6::check(packet) {
                Ok(packet) => flow_hash::ipv6(0, &packet),
                Err(_) => self.hash_of_addresses(),
            },
            _ => self.hash_of_addresses(),
        };
        0xc000 | (hash >> 18) as u16
    }

    /// FNV-1a of both Ethernet addresses.
    fn hash_of_addresses(&self) -> u32 {
        let bytes = self.destination.0.into_iter().chain(self.source.0);
        bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
    }
}
