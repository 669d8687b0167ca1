//! Flows that go another way than their routes: found by exact match on the five-tuple, before any prefix.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use thiserror::Error;
use warmlane_table::{ExactError, ExactKey, ExactReader, ExactTable, NextHopId};
use warmlane_wire::{Flow, IpProtocol};

use super::routes::RoutesError;

/// Why a flow can't be matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FlowError {
    /// A protocol without ports.
    #[error("{protocol} has no ports that tell flows apart: give TCP, UDP or SCTP")]
    Protocol {
        /// The protocol.
        protocol: IpProtocol,
    },
    /// An IPv4 and an IPv6 address.
    #[error("a flow from {from} to {to} can't be: give two addresses of the same version of IP")]
    Families {
        /// Where it would come from.
        from: SocketAddr,
        /// Where it would go.
        to: SocketAddr,
    },
}

/// The flow of packets between these ends.
///
/// # Errors
/// [`FlowError`].
pub fn flow(protocol: IpProtocol, from: SocketAddr, to: SocketAddr) -> Result<Flow, FlowError> {
    if !matches!(protocol, IpProtocol::TCP | IpProtocol::UDP | IpProtocol::SCTP) {
        return Err(FlowError::Protocol { protocol });
    }
    if from.is_ipv4() != to.is_ipv4() {
        return Err(FlowError::Families { from, to });
    }
    let ports = Some((from.port(), to.port()));
    Ok(Flow { source: from.ip(), destination: to.ip(), protocol, ports })
}

/// Which next hops flows lead to. Lanes look up what they find in packets; fragments belong to no flow.
#[derive(Debug, Default)]
pub struct Flows {
    ipv4: Option<ExactTable<Ipv4Key>>,
    ipv6: Option<ExactTable<Ipv6Key>>,
}

impl Flows {
    /// These flows, if each is one that [`flow`] could have made. Of several that are equal the last one counts.
    pub(super) fn new(flows: impl IntoIterator<Item = (Flow, NextHopId)>) -> Result<Self, RoutesError> {
        let (mut ipv4, mut ipv6) = (Vec::new(), Vec::new());
        for (known, hop) in flows {
            let (from, to) = known.ports.ok_or(FlowError::Protocol { protocol: known.protocol })?;
            let (from, to) = (SocketAddr::new(known.source, from), SocketAddr::new(known.destination, to));
            match Key::of(&flow(known.protocol, from, to)?) {
                Some(Key::V4(key)) => ipv4.push((key, hop)),
                Some(Key::V6(key)) => ipv6.push((key, hop)),
                None => {}
            }
        }
        Ok(Self { ipv4: table(&ipv4)?, ipv6: table(&ipv6)? })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ipv4.as_ref().map_or(0, ExactTable::len) + self.ipv6.as_ref().map_or(0, ExactTable::len)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ipv4.is_none() && self.ipv6.is_none()
    }

    /// Where a flow leads; [`NextHopId::NONE`] if it is none of these.
    pub fn next_hop(&self, flow: &Flow) -> NextHopId {
        let value = match Key::of(flow) {
            Some(Key::V4(key)) => self.ipv4.as_ref().and_then(|table| table.get(&key)),
            Some(Key::V6(key)) => self.ipv6.as_ref().and_then(|table| table.get(&key)),
            None => None,
        };
        value.and_then(NextHopId::new).unwrap_or_default()
    }

    /// What a lane looks IPv4 flows up with, if there are any.
    pub(crate) fn ipv4_reader(&self) -> Option<ExactReader<Ipv4Key>> {
        self.ipv4.as_ref().map(ExactTable::reader)
    }

    /// What a lane looks IPv6 flows up with, if there are any.
    pub(crate) fn ipv6_reader(&self) -> Option<ExactReader<Ipv6Key>> {
        self.ipv6.as_ref().map(ExactTable::reader)
    }
}

fn table<K: ExactKey>(entries: &[(K, NextHopId)]) -> Result<Option<ExactTable<K>>, ExactError> {
    if entries.is_empty() {
        return Ok(None);
    }
    let mut table = ExactTable::new(entries.len())?;
    for (key, hop) in entries {
        // A next hop's number has 16 bits.
        table.insert(key, hop.index() as u32)?;
    }
    Ok(Some(table))
}

enum Key {
    V4(Ipv4Key),
    V6(Ipv6Key),
}

impl Key {
    /// `None` for a flow that no table can have.
    fn of(flow: &Flow) -> Option<Self> {
        let (from, to) = flow.ports?;
        let ([a, b], [c, d]) = (from.to_be_bytes(), to.to_be_bytes());
        let ports = [a, b, c, d];
        match (flow.source, flow.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let addresses = u64::from(source.to_bits()) << 32 | u64::from(destination.to_bits());
                Some(Self::V4(Ipv4Key::new(addresses.to_be_bytes(), ports, flow.protocol)))
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let mut addresses = [0; 32];
                addresses[..16].copy_from_slice(&source.octets());
                addresses[16..].copy_from_slice(&destination.octets());
                Some(Self::V6(Ipv6Key::new(addresses, ports, flow.protocol)))
            }
            _ => None,
        }
    }
}

/// Ports, as they stand in a packet, and the protocol beside them.
#[inline(always)]
fn transport(ports: [u8; 4], protocol: IpProtocol) -> u64 {
    u64::from(u32::from_le_bytes(ports)) | u64::from(protocol.0) << 32
}

/// The flow between these addresses with such ports and protocol.
fn flow_of(source: IpAddr, destination: IpAddr, transport: u64) -> Flow {
    let [a, b, c, d, protocol, ..] = transport.to_le_bytes();
    let ports = Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])));
    Flow { source, destination, protocol: IpProtocol(protocol), ports }
}

/// An IPv4 flow as tables have it: in the order of the wire, so that a packet's is read by three loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ipv4Key([u64; 2]);

impl Ipv4Key {
    /// No flow's: none has protocol 0.
    pub(crate) const NONE: Self = Self([0; 2]);

    /// Of source and destination address, source and destination port.
    #[inline(always)]
    pub(crate) fn new(addresses: [u8; 8], ports: [u8; 4], protocol: IpProtocol) -> Self {
        Self([u64::from_le_bytes(addresses), transport(ports, protocol)])
    }

    /// The flow that this is the key of.
    pub(crate) fn flow(self) -> Flow {
        let [addresses, transport] = self.0;
        let [a, b, c, d, e, f, g, h] = addresses.to_le_bytes();
        flow_of([a, b, c, d].into(), [e, f, g, h].into(), transport)
    }
}

impl ExactKey for Ipv4Key {
    type Words = [u64; 2];

    #[inline(always)]
    fn to_words(&self) -> [u64; 2] {
        self.0
    }

    #[inline(always)]
    fn from_words(words: &[u64; 2]) -> Self {
        Self(*words)
    }
}

/// The same for IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ipv6Key([u64; 5]);

impl Ipv6Key {
    /// No flow's: none has protocol 0.
    pub(crate) const NONE: Self = Self([0; 5]);

    /// Of source and destination address, source and destination port.
    #[inline(always)]
    pub(crate) fn new(addresses: [u8; 32], ports: [u8; 4], protocol: IpProtocol) -> Self {
        let word = |word: usize| u64::from_le_bytes(std::array::from_fn(|byte| addresses[word * 8 + byte]));
        Self([word(0), word(1), word(2), word(3), transport(ports, protocol)])
    }

    /// The flow that this is the key of.
    pub(crate) fn flow(self) -> Flow {
        let [a, b, c, d, transport] = self.0;
        let address = |first: u64, second: u64| {
            let bits = u128::from(first.swap_bytes()) << 64 | u128::from(second.swap_bytes());
            IpAddr::from(Ipv6Addr::from_bits(bits))
        };
        flow_of(address(a, b), address(c, d), transport)
    }
}

impl ExactKey for Ipv6Key {
    type Words = [u64; 5];

    #[inline(always)]
    fn to_words(&self) -> [u64; 5] {
        self.0
    }

    #[inline(always)]
    fn from_words(words: &[u64; 5]) -> Self {
        Self(*words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn udp(from: &str, to: &str) -> Flow {
        flow(IpProtocol::UDP, from.parse().unwrap(), to.parse().unwrap()).unwrap()
    }

    #[test]
    fn every_field_tells_flows_apart() {
        let hop = |number| NextHopId::new(number).unwrap();
        for [from, other, to, elsewhere] in [
            ["192.0.2.1:5", "192.0.2.2:5", "198.51.100.1:6", "198.51.100.2:6"],
            ["[2001:db8::1]:5", "[2001:db8::2]:5", "[2001:db8::3]:6", "[2001:db8::4]:6"],
        ] {
            let known = udp(from, to);
            let flows = Flows::new([(known, hop(7))]).unwrap();
            assert_eq!((flows.next_hop(&known), flows.len()), (hop(7), 1));
            let others = [
                udp(other, to),
                udp(from, elsewhere),
                Flow { protocol: IpProtocol::TCP, ..known },
                Flow { ports: Some((5, 7)), ..known },
                Flow { ports: Some((4, 6)), ..known },
                Flow { ports: None, ..known },
                known.reversed(),
            ];
            for flow in others {
                assert_eq!(flows.next_hop(&flow), NextHopId::NONE, "{flow}");
            }
            // The last of two counts.
            let flows = Flows::new([(known, hop(7)), (known, hop(8))]).unwrap();
            assert_eq!((flows.next_hop(&known), flows.len()), (hop(8), 1));
        }
        assert!(Flows::new([]).unwrap().is_empty());
    }

    #[test]
    fn flows_that_nobody_checked_are_checked() {
        let known = udp("192.0.2.1:5", "198.51.100.1:6");
        let ipv6 = udp("[2001:db8::1]:5", "[2001:db8::3]:6");
        let wrong = [
            Flow { protocol: IpProtocol::ICMP, ..known },
            Flow { ports: None, ..known },
            Flow { destination: ipv6.destination, ..known },
        ];
        for flow in wrong {
            let result = Flows::new([(flow, NextHopId::new(7).unwrap())]);
            assert!(matches!(result, Err(RoutesError::Flow(_))), "{flow}: {result:?}");
        }
    }

    #[test]
    fn what_is_no_flow_is_refused() {
        let said = |protocol, from: &str, to: &str| {
            flow(protocol, from.parse().unwrap(), to.parse().unwrap()).unwrap_err().to_string()
        };
        assert!(said(IpProtocol::ICMP, "192.0.2.1:5", "192.0.2.2:5").starts_with("ICMP has no ports"));
        assert!(said(IpProtocol::UDP, "192.0.2.1:5", "[::2]:5").contains("same version of IP"));
        assert!(said(IpProtocol::UDP, "[::2]:5", "192.0.2.1:5").contains("same version of IP"));
    }
}
