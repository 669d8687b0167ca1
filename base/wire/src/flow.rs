//! Flows: packets with the same addresses, protocol and ports.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::ipv6::Ipv6Packet;
use crate::layers::{IpVersion, Layers, LayersError};
use crate::{EtherType, IpProtocol, Ipv4Header, Ipv6Header, LinkLayer, flow_hash, ipv4, ipv6};

/// What the packets of a flow have in common: the five-tuple.
///
/// Fragments have no ports here, the first included, so that all fragments of a packet have the same flow.
///
/// ```
/// use warmlane_wire::{Flow, Frame, Ipv4Fields, MacAddress};
///
/// let frame = Frame::new()
///     .ethernet(MacAddress::BROADCAST, MacAddress([2, 0, 0, 0, 0, 1]))
///     .ipv4(Ipv4Fields::new([192, 0, 2, 1].into(), [198, 51, 100, 2].into()))
///     .udp(4242, 53)
///     .to_vec()?;
/// let flow = Flow::of_frame(&frame)?;
/// assert_eq!(flow.ports, Some((4242, 53)));
/// assert_ne!(flow.hash(7), flow.reversed().hash(7));
/// assert_eq!(flow.symmetric_hash(7), flow.reversed().symmetric_hash(7));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Where the packets come from.
    pub source: IpAddr,
    /// Where they go.
    pub destination: IpAddr,
    /// The transport protocol.
    pub protocol: IpProtocol,
    /// Source and destination port of TCP, UDP or SCTP.
    pub ports: Option<(u16, u16)>,
}

impl Flow {
    /// The flow of an Ethernet frame.
    ///
    /// # Errors
    /// [`LayersError`] if it doesn't carry IP, or a header is malformed.
    #[inline]
    pub fn of_frame(frame: &[u8]) -> Result<Self, LayersError> {
        let layers = Layers::find(frame)?;
        let packet = frame.get(layers.network..layers.end).unwrap_or_default();
        // The header was found whole, so the addresses are always there.
        let addresses: Option<(IpAddr, IpAddr)> = match layers.version {
            IpVersion::V4 => {
                packet.first_chunk().map(Ipv4Header).map(|h| (h.source().into(), h.destination().into()))
            }
            IpVersion::V6 => {
                packet.first_chunk().map(Ipv6Header).map(|h| (h.source().into(), h.destination().into()))
            }
        };
        let (source, destination) = addresses.unwrap_or((IpAddr::from([0; 4]), IpAddr::from([0; 4])));
        let transport = layers.transport.filter(|_| !layers.is_fragment);
        let ports = transport
            .and_then(|start| frame.get(start..layers.end))
            .and_then(|bytes| flow_hash::flow_ports(layers.protocol, bytes));
        Ok(Self { source, destination, protocol: layers.protocol, ports })
    }

    /// The flow of a frame whose headers are in `front`, as a network card finds it that looks no further: the rest may be elsewhere,
    /// and lengths are not checked against it. Also where the transport header starts in `front`, unless the packet is a fragment.
    ///
    /// `None` if it doesn't carry IP, or its IP headers don't end in `front`. If the ports are not in `front`, the flow has none.
    #[inline]
    pub fn of_front(front: &[u8]) -> Option<(Self, Option<usize>)> {
        let link = LinkLayer::parse(front).ok()?;
        let network = link.header_length();
        let (source, destination, protocol, length, transport): (IpAddr, IpAddr, _, _, _) = match link
            .ethertype
        {
            EtherType::IPV4 => {
                let header = Ipv4Header(link.payload.first_chunk()?);
                if header.version() != 4 || header.header_length() < ipv4::HEADER_LENGTH {
                    return None;
                }
                let transport = (!header.is_fragment()).then_some(header.header_length());
                let length = usize::from(header.total_length());
                (header.source().into(), header.destination().into(), header.protocol(), length, transport)
            }
            EtherType::IPV6 => {
                let (header, payload) = link.payload.split_first_chunk()?;
                let packet = Ipv6Packet { header: Ipv6Header(header), payload };
                let header = packet.header;
                if header.version() != 6 {
                    return None;
                }
                let upper = packet.upper_layer().ok()?;
                let transport = upper.fragment.is_none().then_some(upper.offset);
                let length = ipv6::HEADER_LENGTH + usize::from(header.payload_length());
                (header.source().into(), header.destination().into(), upper.protocol, length, transport)
            }
            _ => return None,
        };
        let transport = transport.map(|offset| network + offset);
        // What is behind the packet is padding.
        let ports = transport
            .and_then(|start| front.get(start..front.len().min(network + length)))
            .and_then(|bytes| flow_hash::flow_ports(protocol, bytes));
        Some((Self { source, destination, protocol, ports }, transport))
    }

    /// The flow of the answers.
    #[inline]
    #[must_use]
    pub fn reversed(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            ports: self.ports.map(|(source, destination)| (destination, source)),
            ..self
        }
    }

    /// A hash of all fields, evenly spread over its 32 bits: that of [`flow_hash::ipv4`] and [`flow_hash::ipv6`], which are
    /// faster if the packet's layers are known.
    ///
    /// Another `seed` gives an unrelated hash. The same seed gives the same hash on every machine. It is no secret: who
    /// knows the seed can choose flows that collide.
    #[inline]
    pub fn hash(&self, seed: u64) -> u32 {
        let (source, destination) = self.ports.unwrap_or_default();
        let ports = u32::from(source) << 16 | u32::from(destination);
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                flow_hash::of_ipv4(seed, source, destination, self.protocol, ports)
            }
            (source, destination) => {
                flow_hash::of_ipv6(seed, to_bits(source), to_bits(destination), self.protocol, ports)
            }
        }
    }

    /// The same for both directions: that of the direction whose source has the lower address, and port if these are equal.
    #[inline]
    pub fn symmetric_hash(&self, seed: u64) -> u32 {
        let (source, destination) = self.ports.unwrap_or_default();
        let in_order = (self.source, source) <= (self.destination, destination);
        if in_order { self.hash(seed) } else { self.reversed().hash(seed) }
    }
}

impl fmt::Display for Flow {
    /// As in `TCP 192.0.2.1:4242 to 198.51.100.2:53`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, destination, protocol, ports } = *self;
        match ports {
            Some((from, to)) => {
                let (from, to) = (SocketAddr::new(source, from), SocketAddr::new(destination, to));
                write!(f, "{protocol} {from} to {to}")
            }
            None => write!(f, "{protocol} {source} to {destination}"),
        }
    }
}

#[inline]
fn to_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Frame, Ipv4Fields, Ipv6Fields, MacAddress, TcpFields, VlanTag, ipv6};
    use proptest::prelude::*;

    fn frame<'a>() -> Frame<'a> {
        let link = Frame::new().ethernet(MacAddress::BROADCAST, MacAddress([2, 0, 0, 0, 0, 1]));
        link.vlan(VlanTag::customer(7))
    }

    #[test]
    fn flows_are_shown_with_their_ports() {
        let address = |text: &str| -> IpAddr { text.parse().unwrap() };
        let (source, destination) = (address("192.0.2.1"), address("198.51.100.2"));
        let flow = Flow { source, destination, protocol: IpProtocol::TCP, ports: Some((4242, 53)) };
        assert_eq!(flow.to_string(), "TCP 192.0.2.1:4242 to 198.51.100.2:53");
        let flow = Flow { protocol: IpProtocol::ICMP, ports: None, ..flow };
        assert_eq!(flow.to_string(), "ICMP 192.0.2.1 to 198.51.100.2");
        let flow = Flow {
            source: address("2001:db8::1"),
            destination: address("2001:db8::2"),
            ports: Some((1, 2)),
            protocol: IpProtocol::UDP,
        };
        assert_eq!(flow.to_string(), "UDP [2001:db8::1]:1 to [2001:db8::2]:2");
    }

    proptest! {
        #[test]
        fn a_flow_has_the_hash_of_its_packets(
            seed: u64, source: u128, destination: u128, ports: (u16, u16), fragment: bool, extended: bool,
        ) {
            let fields = Ipv4Fields {
                more_fragments: fragment,
                options: if extended { &[1; 8] } else { &[] },
                ..Ipv4Fields::new((source as u32).into(), (destination as u32).into())
            };
            let bytes = frame().ipv4(fields).udp(ports.0, ports.1).to_vec().unwrap();
            let flow = Flow::of_frame(&bytes).unwrap();
            prop_assert_eq!(flow.ports, (!fragment).then_some(ports));
            prop_assert_eq!(flow.hash(seed), flow_hash::ipv4(seed, &bytes[18..]));
            let (front, transport) = Flow::of_front(&bytes).unwrap();
            prop_assert_eq!((front, transport.is_some()), (flow, !fragment));

            let fragment_header = [0, 0, 0, u8::from(fragment), 1, 2, 3, 4];
            let extensions = [(IpProtocol::DESTINATION_OPTIONS, &[0, 0, 1, 4, 0, 0, 0, 0][..]), (IpProtocol::FRAGMENT, &fragment_header)];
            let used = if fragment { &extensions[..] } else { &extensions[..usize::from(extended)] };
            let fields = Ipv6Fields { extensions: used, ..Ipv6Fields::new(source.into(), destination.into()) };
            let bytes = frame().ipv6(fields).tcp(TcpFields::new(ports.0, ports.1)).to_vec().unwrap();
            let flow = Flow::of_frame(&bytes).unwrap();
            prop_assert_eq!(flow.ports, (!fragment).then_some(ports));
            prop_assert_eq!(flow.hash(seed), flow_hash::ipv6(seed, &ipv6::check(&bytes[18..]).unwrap()));
            // What is behind the headers may be elsewhere.
            let extra = [0; 30];
            let long = frame().ipv6(fields).tcp(TcpFields::new(ports.0, ports.1)).payload(&extra).to_vec().unwrap();
            let (front, transport) = Flow::of_front(&long[..bytes.len()]).unwrap();
            prop_assert_eq!((front, transport), (flow, (!fragment).then_some(bytes.len() - 20)));
        }

        #[test]
        fn any_front_is_read_or_not(bytes in prop::collection::vec(any::<u8>(), 0..120), version in 0..3_u8) {
            let mut bytes = bytes;
            if version != 0 && bytes.len() > 20 {
                let (ethertype, first) = if version == 1 { (0x0800_u16, 0x45) } else { (0x86dd, 0x60) };
                bytes[12..14].copy_from_slice(&ethertype.to_be_bytes());
                bytes[14] = first;
            }
            if let Ok(flow) = Flow::of_frame(&bytes) {
                prop_assert_eq!(Flow::of_front(&bytes).map(|(front, _)| front), Some(flow));
            } else {
                // It must not panic, whatever it says.
                let _ = Flow::of_front(&bytes);
            }
        }

        #[test]
        fn both_directions_have_one_symmetric_hash(
            seed: u64, ends: [u128; 2], same_host: bool, ports: Option<(u16, u16)>, ipv6: bool,
        ) {
            let address = |bits: u128| -> IpAddr {
                if ipv6 { std::net::Ipv6Addr::from_bits(bits).into() } else { std::net::Ipv4Addr::from_bits(bits as u32).into() }
            };
            let source = address(ends[0]);
            let destination = if same_host { source } else { address(ends[1]) };
            let flow = Flow { source, destination, protocol: IpProtocol::TCP, ports };
            prop_assert_eq!(flow.symmetric_hash(seed), flow.reversed().symmetric_hash(seed));
            prop_assert_eq!(flow.reversed().reversed(), flow);
        }
    }
}
