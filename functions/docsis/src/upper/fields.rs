//! What classifiers and filters look at, collected once a packet.

use std::net::IpAddr;

use warmlane_wire::{EtherType, IpProtocol, LinkLayer, MacAddress, ipv4, ipv6};

/// The DSAP of what has a SNAP header, which a DSAP criterion is never for.
pub(crate) const SNAP: u8 = 0xaa;

/// The largest number in the EtherType's place that is a length (IEEE 802.3 clause 3.2.6).
const LONGEST_LLC: u16 = 1_500;

/// A packet's fields. What a packet doesn't have, no rule that asks for it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fields {
    pub(crate) destination_mac: MacAddress,
    pub(crate) source_mac: MacAddress,
    /// The EtherType behind the tags, or in a SNAP header behind them; for other LLC frames a length, which is below 1536.
    pub(crate) ethertype: EtherType,
    /// The destination service access point of an LLC frame without SNAP.
    pub(crate) dsap: Option<u8>,
    /// Priority and number of the outer VLAN tag.
    pub(crate) vlan: Option<(u8, u16)>,
    pub(crate) ip: Option<IpFields>,
}

/// What is known of an IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IpFields {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) traffic_class: u8,
    pub(crate) protocol: IpProtocol,
    /// Source and destination ports of TCP and UDP, unless it is a fragment without them.
    pub(crate) ports: Option<(u16, u16)>,
}

impl Fields {
    /// `None` if the frame ends within its Ethernet header or tags. Bad IP headers count as none: it isn't for us to judge them.
    #[inline]
    pub(crate) fn of(frame: &[u8]) -> Option<Self> {
        let link = LinkLayer::parse(frame).ok()?;
        let (ethertype, dsap, payload) = if link.ethertype.0 <= LONGEST_LLC {
            behind_llc(link.ethertype, link.payload)
        } else {
            (link.ethertype, None, link.payload)
        };
        let ip = match ethertype {
            EtherType::IPV4 => of_ipv4(payload),
            EtherType::IPV6 => of_ipv6(payload),
            _ => None,
        };
        Some(Self {
            destination_mac: link.header.destination(),
            source_mac: link.header.source(),
            ethertype,
            dsap,
            vlan: link.outer.map(|tag| (tag.priority(), tag.id())),
            ip,
        })
    }
}

/// EtherType, DSAP and payload of a frame that has a length in place of an EtherType.
#[cold]
fn behind_llc(length: EtherType, payload: &[u8]) -> (EtherType, Option<u8>, &[u8]) {
    match payload {
        // RFC 1042 and, for bridges, IEEE 802.1H.
        [SNAP, SNAP, 3, 0, 0, 0 | 0xf8, a, b, payload @ ..] => {
            (EtherType(u16::from_be_bytes([*a, *b])), None, payload)
        }
        [dsap, ..] if *dsap != SNAP => (length, Some(*dsap), payload),
        _ => (length, None, payload),
    }
}

#[inline]
fn of_ipv4(bytes: &[u8]) -> Option<IpFields> {
    let packet = ipv4::check_lengths(bytes).ok()?;
    let header = packet.header;
    let ports = if header.fragment_offset() == 0 { ports(header.protocol(), packet.payload) } else { None };
    Some(IpFields {
        source: header.source().into(),
        destination: header.destination().into(),
        traffic_class: header.dscp() << 2 | header.ecn(),
        protocol: header.protocol(),
        ports,
    })
}

#[inline]
fn of_ipv6(bytes: &[u8]) -> Option<IpFields> {
    let packet = ipv6::check(bytes).ok()?;
    let upper = packet.upper_layer().ok()?;
    let payload = bytes.get(upper.offset..).filter(|_| upper.is_present());
    Some(IpFields {
        source: packet.header.source().into(),
        destination: packet.header.destination().into(),
        traffic_class: packet.header.traffic_class(),
        protocol: upper.protocol,
        ports: payload.and_then(|payload| ports(upper.protocol, payload)),
    })
}

#[inline]
fn ports(protocol: IpProtocol, payload: &[u8]) -> Option<(u16, u16)> {
    let [a, b, c, d] = *payload.first_chunk()?;
    let has_ports = matches!(protocol, IpProtocol::TCP | IpProtocol::UDP);
    has_ports.then_some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
}
