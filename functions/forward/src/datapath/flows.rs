//! Packets of flows that have next hops of their own: all of a burst are looked up at once, and what is of no flow goes by its route.
//!
//! Forwarders without flows have nothing of this but one branch in each burst.

use std::net::IpAddr;

use warmlane_mem::{BURST_CAPACITY, Burst, Packet};
use warmlane_table::{ExactKey, ExactReader, NO_VALUE, NextHopId};
use warmlane_wire::{Flow, IpProtocol, Ipv4Header, ethernet, ipv4, ipv6};

use super::fast::{IPV4_HEADERS, IPV6_HEADERS, bytes_at};
use super::forward::{Forwarder, ipv6_packet};
use super::rewrite::layer_3;
use super::scratch::{Gathered, Scratch};
use crate::control::{Flows, Ipv4Key, Ipv6Key, TAGGED};

/// Bytes of both ports.
const PORTS: usize = 4;

/// "More fragments", and the offset of a fragment, in the order of the wire.
const FRAGMENT: u16 = u16::from_le_bytes([0x3f, 0xff]);

/// A lane's access to the flows.
pub(super) struct LaneFlows {
    ipv4: Matcher<Ipv4Key, u32>,
    ipv6: Matcher<Ipv6Key, [u8; 16]>,
}

impl LaneFlows {
    /// `None` if there are no flows.
    pub(super) fn new(flows: &Flows) -> Option<Box<Self>> {
        let new = || Self {
            ipv4: Matcher::new(flows.ipv4_reader(), Ipv4Key::NONE, 0),
            ipv6: Matcher::new(flows.ipv6_reader(), Ipv6Key::NONE, [0; 16]),
        };
        (!flows.is_empty()).then(|| Box::new(new()))
    }

    /// The flow that a packet belongs to, whose layer 3 offset is known and whose destination this is, and its next hop.
    pub(super) fn next_hop(&self, packet: &Packet, destination: IpAddr) -> Option<(Flow, NextHopId)> {
        let (flow, value) = match destination {
            IpAddr::V4(_) => {
                let key = ipv4_key(layer_3(packet));
                (key.flow(), self.ipv4.reader.as_ref()?.lookup(&key)?)
            }
            IpAddr::V6(_) => {
                let key = ipv6_key(layer_3(packet));
                (key.flow(), self.ipv6.reader.as_ref()?.lookup(&key)?)
            }
        };
        Some((flow, NextHopId::new(value)?))
    }
}

impl Forwarder {
    /// Pass two where there are flows: next hops by flow, or else by route.
    #[inline(never)]
    pub(super) fn look_up_flows(&mut self, burst: &Burst) {
        let Some(flows) = &mut self.flows else { return };
        let (routes, Scratch { ipv4, ipv6, table, .. }) = (&self.routes, &mut *self.scratch);
        let gathered = (ipv4.count + ipv6.count) as u64;
        let hits = flows
            .ipv4
            .look_up(burst, ipv4, |addresses, hops| routes.lookup_ipv4(*table, addresses, hops))
            + flows.ipv6.look_up(burst, ipv6, |addresses, hops| routes.lookup_ipv6(*table, addresses, hops));
        self.counters.flow_hits().add(hits);
        self.counters.flow_misses().add(gathered.saturating_sub(hits));
    }
}

/// What one family's flows are looked up with.
struct Matcher<K: ExactKey, A> {
    reader: Option<ExactReader<K>>,
    keys: [K; BURST_CAPACITY],
    values: [u32; BURST_CAPACITY],
    /// Packets of no flow, by their position in what was gathered.
    missed: [u8; BURST_CAPACITY],
    /// Their destinations.
    addresses: [A; BURST_CAPACITY],
    /// Their next hops, by route.
    hops: [NextHopId; BURST_CAPACITY],
}

impl<K: FlowKey, A: Copy> Matcher<K, A> {
    const fn new(reader: Option<ExactReader<K>>, key: K, address: A) -> Self {
        Self {
            reader,
            keys: [key; BURST_CAPACITY],
            values: [NO_VALUE; BURST_CAPACITY],
            missed: [0; BURST_CAPACITY],
            addresses: [address; BURST_CAPACITY],
            hops: [NextHopId::NONE; BURST_CAPACITY],
        }
    }

    /// Finds the next hops of gathered packets; `by_route` those of no flow. Returns how many were of flows.
    #[inline(always)]
    fn look_up<L>(
        &mut self,
        packets: &[Packet],
        gathered: &mut Gathered<A, L>,
        by_route: impl Fn(&[A], &mut [NextHopId]),
    ) -> u64 {
        let count = gathered.count.min(BURST_CAPACITY);
        if count == 0 {
            return 0;
        }
        let Some(reader) = &self.reader else {
            by_route(&gathered.addresses[..count], &mut gathered.hops[..count]);
            return 0;
        };
        let (keys, values) = (&mut self.keys[..count], &mut self.values[..count]);
        let of_packets = gathered.indices.iter().zip(&gathered.lengths);
        for (key, (&index, &length)) in keys.iter_mut().zip(of_packets) {
            *key = packets.get(usize::from(index)).map_or(K::NONE, |packet| K::of(packet, length));
        }
        reader.lookup_burst(keys, values);
        // Two loops that vectors do, and a third for bursts that aren't of flows only.
        for (hop, &value) in gathered.hops.iter_mut().zip(&*values) {
            *hop = NextHopId::new(value).unwrap_or(NextHopId::NONE);
        }
        if values.iter().filter(|&&value| value == NO_VALUE).count() == 0 {
            return count as u64;
        }
        let mut missed = 0;
        // Without a branch for each: nobody can foresee which packets belong to flows.
        for (slot, (&value, &address)) in values.iter().zip(&gathered.addresses).enumerate() {
            self.missed[missed % BURST_CAPACITY] = slot as u8;
            self.addresses[missed % BURST_CAPACITY] = address;
            missed += usize::from(value == NO_VALUE);
        }
        by_route(&self.addresses[..missed], &mut self.hops[..missed]);
        for (&slot, &hop) in self.missed[..missed].iter().zip(&self.hops) {
            gathered.hops[usize::from(slot)] = hop;
        }
        (count - missed) as u64
    }
}

/// What flows of one family are found by.
trait FlowKey: ExactKey {
    /// That of packets which belong to no flow.
    const NONE: Self;

    /// That of a gathered packet; `length` is its IP packet's, or at least [`TAGGED`] if it isn't plain.
    fn of(packet: &Packet, length: u16) -> Self;
}

impl FlowKey for Ipv4Key {
    const NONE: Self = Self::NONE;

    #[inline(always)]
    fn of(packet: &Packet, length: u16) -> Self {
        if length >= TAGGED {
            return ipv4_key(layer_3(packet));
        }
        let Some(headers) = packet.data().first_chunk::<{ IPV4_HEADERS + PORTS }>() else {
            return Self::NONE;
        };
        let is_fragment = u16::from_le_bytes(bytes_at::<20, 2>(headers)) & FRAGMENT != 0;
        // What a shorter packet has there is padding.
        if is_fragment || usize::from(length) < ipv4::HEADER_LENGTH + PORTS {
            return Self::NONE;
        }
        Self::new(bytes_at::<26, 8>(headers), bytes_at::<34, PORTS>(headers), IpProtocol(headers[23]))
    }
}

impl FlowKey for Ipv6Key {
    const NONE: Self = Self::NONE;

    #[inline(always)]
    fn of(packet: &Packet, length: u16) -> Self {
        if length >= TAGGED {
            return ipv6_key(layer_3(packet));
        }
        let Some(headers) = packet.data().first_chunk::<{ IPV6_HEADERS + PORTS }>() else {
            return Self::NONE;
        };
        let protocol = IpProtocol(headers[20]);
        if ipv6::is_extension(protocol) {
            return ipv6_key(packet.data().get(ethernet::HEADER_LENGTH..).unwrap_or_default());
        }
        if usize::from(length) < ipv6::HEADER_LENGTH + PORTS {
            return Self::NONE;
        }
        Self::new(bytes_at::<22, 32>(headers), bytes_at::<54, PORTS>(headers), protocol)
    }
}

/// The key of an IPv4 packet, of which at least the header was checked.
#[cold]
fn ipv4_key(packet: &[u8]) -> Ipv4Key {
    let Some((fixed, rest)) = packet.split_first_chunk() else { return Ipv4Key::NONE };
    let header = Ipv4Header(fixed);
    let start = header.header_length().saturating_sub(ipv4::HEADER_LENGTH);
    let ports = rest.get(start..).and_then(|transport| transport.first_chunk());
    let is_there = header.header_length() + PORTS <= usize::from(header.total_length());
    match ports {
        Some(&ports) if is_there && !header.is_fragment() => {
            Ipv4Key::new(bytes_at::<12, 8>(fixed), ports, header.protocol())
        }
        _ => Ipv4Key::NONE,
    }
}

/// The key of an IPv6 packet, of which at least the fixed header was checked.
#[cold]
fn ipv6_key(packet: &[u8]) -> Ipv6Key {
    let Some(ipv6) = ipv6_packet(packet) else { return Ipv6Key::NONE };
    let Ok(upper) = ipv6.upper_layer() else { return Ipv6Key::NONE };
    let start = upper.offset.saturating_sub(ipv6::HEADER_LENGTH);
    let ports = ipv6.payload.get(start..).and_then(|transport| transport.first_chunk());
    match ports {
        Some(&ports) if upper.fragment.is_none() => {
            Ipv6Key::new(bytes_at::<8, 32>(packet), ports, upper.protocol)
        }
        _ => Ipv6Key::NONE,
    }
}
