//! Flows: packets with the same addresses, protocol and ports.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::layers::{IpVersion, Layers, LayersError};
use crate::{IpProtocol, Ipv4Header, Ipv6Header, flow_hash};

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

            let fragment_header = [0, 0, 0, u8::from(fragment), 1, 2, 3, 4];
            let extensions = [(IpProtocol::DESTINATION_OPTIONS, &[0, 0, 1, 4, 0, 0, 0, 0][..]), (IpProtocol::FRAGMENT, &fragment_header)];
            let used = if fragment { &extensions[..] } else { &extensions[..usize::from(extended)] };
            let fields = Ipv6Fields { extensions: used, ..Ipv6Fields::new(source.into(), destination.into()) };
            let bytes = frame().ipv6(fields).tcp(TcpFields::new(ports.0, ports.1)).to_vec().unwrap();
            let flow = Flow::of_frame(&bytes).unwrap();
            prop_assert_eq!(flow.ports, (!fragment).then_some(ports));
            prop_assert_eq!(flow.hash(seed), flow_hash::ipv6(seed, &ipv6::check(&bytes[18..]).unwrap()));
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
