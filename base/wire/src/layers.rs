//! Where the headers of a frame begin: Ethernet, up to two VLAN tags, IP with its options or extension headers, transport.

use thiserror::Error;

use crate::error::Truncated;
use crate::ipv4::{self, Ipv4Error};
use crate::ipv6::{self, Ipv6Error};
use crate::{EtherType, IpProtocol, LinkLayer};

/// Why the layers of a frame can't be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum LayersError {
    /// The frame ends within the Ethernet header or a VLAN tag.
    #[error(transparent)]
    Link(#[from] Truncated),
    /// It carries something else than IP, or a third VLAN tag.
    #[error("the frame carries {ethertype}, neither IPv4 nor IPv6")]
    NotIp {
        /// What it carries.
        ethertype: EtherType,
    },
    /// The IPv4 header is malformed.
    #[error(transparent)]
    Ipv4(#[from] Ipv4Error),
    /// The IPv6 header or the chain of extension headers is malformed.
    #[error(transparent)]
    Ipv6(#[from] Ipv6Error),
}

/// Which IP it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IpVersion {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// The layers of an Ethernet frame that carries IP. All offsets are in bytes from the frame's start.
///
/// ```
/// use warmlane_wire::{Frame, IpProtocol, Ipv4Fields, Layers, MacAddress, VlanTag};
///
/// let frame = Frame::new()
///     .ethernet(MacAddress::BROADCAST, MacAddress([2, 0, 0, 0, 0, 1]))
///     .vlan(VlanTag::customer(7))
///     .ipv4(Ipv4Fields::new([192, 0, 2, 1].into(), [198, 51, 100, 2].into()))
///     .udp(4242, 53)
///     .to_vec()?;
/// let layers = Layers::find(&frame)?;
/// assert_eq!((layers.network, layers.transport, layers.protocol), (18, Some(38), IpProtocol::UDP));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layers {
    /// Which IP it is.
    pub version: IpVersion,
    /// Where the IP header starts.
    pub network: usize,
    /// Where the transport header starts; `None` in a fragment other than the first.
    pub transport: Option<usize>,
    /// Where the IP packet ends: what follows is padding of the link.
    pub end: usize,
    /// The transport protocol.
    pub protocol: IpProtocol,
    /// Whether the packet is a fragment, the first included.
    pub is_fragment: bool,
    /// Whether an IPv6 routing header has segments left: then the transport's checksum covers the last of its addresses,
    /// not the destination in the IPv6 header (RFC 8200 section 8.1).
    pub is_source_routed: bool,
}

impl Layers {
    /// Checks the lengths of all headers up to the transport's, and no checksum.
    ///
    /// # Errors
    /// [`LayersError`] for the outermost header that is malformed.
    #[inline]
    pub fn find(frame: &[u8]) -> Result<Self, LayersError> {
        let link = LinkLayer::parse(frame)?;
        let network = link.header_length();
        match link.ethertype {
            EtherType::IPV4 => Self::ipv4(network, link.payload),
            EtherType::IPV6 => Self::ipv6(network, link.payload),
            ethertype => Err(LayersError::NotIp { ethertype }),
        }
    }

    fn ipv4(network: usize, bytes: &[u8]) -> Result<Self, LayersError> {
        let header = ipv4::check_lengths(bytes)?.header;
        Ok(Self {
            version: IpVersion::V4,
            network,
            transport: (header.fragment_offset() == 0).then_some(network + header.header_length()),
            end: network + usize::from(header.total_length()),
            protocol: header.protocol(),
            is_fragment: header.is_fragment(),
            is_source_routed: false,
        })
    }

    fn ipv6(network: usize, bytes: &[u8]) -> Result<Self, LayersError> {
        let packet = ipv6::check(bytes)?;
        let upper = packet.upper_layer()?;
        Ok(Self {
            version: IpVersion::V6,
            network,
            transport: upper.is_present().then_some(network + upper.offset),
            end: network + ipv6::HEADER_LENGTH + packet.payload.len(),
            protocol: upper.protocol,
            is_fragment: upper.fragment.is_some(),
            is_source_routed: upper.segments_left != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Frame, Ipv6Fields, MacAddress, VlanTag};
    use proptest::prelude::*;

    #[test]
    fn extension_headers_are_passed() {
        let routing = [0, 2, 0, 1].into_iter().chain([0; 20]).collect::<Vec<_>>();
        let fragment = [0, 0, 0x00, 0x09, 1, 2, 3, 4];
        let extensions = [(IpProtocol::ROUTING, &routing[..]), (IpProtocol::FRAGMENT, &fragment[..])];
        let fields = Ipv6Fields { extensions: &extensions, ..Ipv6Fields::new(1.into(), 2.into()) };
        let frame = Frame::new()
            .ethernet(MacAddress::BROADCAST, MacAddress([2, 0, 0, 0, 0, 1]))
            .vlan(VlanTag::service(1))
            .vlan(VlanTag::customer(2))
            .ipv6(fields)
            .udp(1, 2)
            .padded(120)
            .to_vec()
            .unwrap();
        let expected = Layers {
            version: IpVersion::V6,
            network: 22,
            transport: None,
            end: 22 + 40 + 32 + 8,
            protocol: IpProtocol::UDP,
            is_fragment: true,
            is_source_routed: true,
        };
        assert_eq!(Layers::find(&frame), Ok(expected));
    }

    #[test]
    fn what_is_not_ip_says_so() {
        let frame = Frame::new()
            .ethernet(MacAddress::BROADCAST, MacAddress([2, 0, 0, 0, 0, 1]))
            .ethertype(EtherType::ARP)
            .to_vec()
            .unwrap();
        assert_eq!(Layers::find(&frame), Err(LayersError::NotIp { ethertype: EtherType::ARP }));
        assert!(matches!(Layers::find(&frame[..13]), Err(LayersError::Link(_))));
    }

    proptest! {
        #[test]
        fn any_bytes_are_found_or_refused(
            mut bytes in prop::collection::vec(any::<u8>(), 0..120), version in 0..3_u8,
        ) {
            if version != 0 && bytes.len() > 20 {
                let (ethertype, first) = if version == 1 { (0x0800_u16, 0x45) } else { (0x86dd, 0x60) };
                bytes[12..14].copy_from_slice(&ethertype.to_be_bytes());
                bytes[14] = first;
                bytes[16] = 0;
                bytes[18] = 0;
            }
            if let Ok(layers) = Layers::find(&bytes) {
                prop_assert!(layers.network < layers.end && layers.end <= bytes.len());
                prop_assert!(layers.transport.is_none_or(|start| layers.network < start && start <= layers.end));
            }
        }
    }
}
