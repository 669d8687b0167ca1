//! The way of a burst: look at each packet, look up all addresses, rewrite each packet, hand out.
//!
//! Each pass does one thing to the whole burst, so that the misses of one packet are waited for while the next ones
//! are worked on, and the tables' own burst lookup has all addresses at hand.

use std::sync::Arc;

use warmlane_mem::{BURST_CAPACITY, Burst, Packet, Pool};
use warmlane_sys::clock::Clock;
use warmlane_table::NextHopId;
use warmlane_wire::ethernet;
use warmlane_wire::ipv6::Ipv6Packet;

use super::counters::ForwardCounters;
use super::fast::{self, IPV4_HEADERS, IPV6_HEADERS};
use super::flow_hash;
use super::rate_limit::TokenBucket;
use super::reason::Reason;
use super::validate::{Finding, validate};
use crate::control::config::IcmpLimits;
use crate::control::{ALWAYS_TOO_LARGE, Rewrite, Routes};

/// How many packets ahead of the one in hand are fetched into the cache.
const PREFETCH_DISTANCE: usize = 6;

/// Where packets go: one burst for each port.
pub trait Outputs {
    /// The burst of packets that leave by this port; `None` if the lane doesn't send there.
    fn burst(&mut self, port: u16) -> Option<&mut Burst>;

    /// Called when the port's burst is full; says whether there is room now.
    fn make_room(&mut self, port: u16) -> bool {
        let _ = port;
        false
    }

    /// Takes a packet that isn't for the forwarder, as it came in.
    ///
    /// # Errors
    /// The packet, if nobody wants it; it is then dropped and counted.
    fn punt(&mut self, packet: Packet) -> Result<(), Packet> {
        Err(packet)
    }
}

impl Outputs for [Burst] {
    #[inline]
    fn burst(&mut self, port: u16) -> Option<&mut Burst> {
        self.get_mut(usize::from(port))
    }
}

/// What is to be done with a packet.
#[derive(Debug, Clone, Copy)]
pub(super) enum Verdict {
    /// It is ready to leave by this port.
    Send(u16),
    /// IPv4 with this next hop, and something about it that takes longer.
    Ipv4(NextHopId),
    /// IPv6 with this next hop, and something about it that takes longer.
    Ipv6(NextHopId),
    /// ARP.
    Arp,
    /// IPv6 that stays on its link.
    Ipv6OnLink(Reason),
    /// For someone else here, or to be dropped.
    Punt(Reason),
    /// To be dropped.
    Drop(Reason),
}

/// The packets of one family in a burst, gathered for the lookup.
struct Gathered<A> {
    count: usize,
    /// The packet's place in the burst.
    places: [u8; BURST_CAPACITY],
    /// Bytes of the IP packet, or [`ALWAYS_TOO_LARGE`] if it takes the long way whatever its next hop.
    lengths: [u16; BURST_CAPACITY],
    addresses: [A; BURST_CAPACITY],
    hops: [NextHopId; BURST_CAPACITY],
}

impl<A: Copy> Gathered<A> {
    const fn new(zero: A) -> Self {
        Self {
            count: 0,
            places: [0; BURST_CAPACITY],
            lengths: [0; BURST_CAPACITY],
            addresses: [zero; BURST_CAPACITY],
            hops: [NextHopId::NONE; BURST_CAPACITY],
        }
    }

    #[inline(always)]
    fn push(&mut self, place: usize, address: A, length: u16) {
        // The count stays below the burst's length, which is at most the capacity: the mask changes nothing but the
        // compiler's mind.
        let index = self.count % BURST_CAPACITY;
        self.places[index] = place as u8;
        self.addresses[index] = address;
        self.lengths[index] = length;
        self.count += 1;
    }
}

const _: () = assert!(BURST_CAPACITY == 256, "places are bytes");

/// What the passes tell each other about one burst.
struct Scratch {
    verdicts: [Verdict; BURST_CAPACITY],
    ipv4: Gathered<u32>,
    ipv6: Gathered<[u8; 16]>,
}

/// The packets that pass three made ready.
#[derive(Default)]
struct Ready {
    /// How many.
    count: usize,
    /// The port of one of them.
    port: u16,
    /// A bit is set if any two ports differ.
    difference: u16,
}

impl Ready {
    #[inline(always)]
    fn add(&mut self, port: u16) {
        if self.count == 0 {
            self.port = port;
        }
        self.difference |= port ^ self.port;
        self.count += 1;
    }
}

/// Forwards bursts. Each lane has one of its own.
pub struct Forwarder {
    pub(super) routes: Arc<Routes>,
    pub(super) pool: Pool,
    pub(super) limiter: TokenBucket,
    pub(super) counters: Arc<ForwardCounters>,
    /// The identification of the next IPv4 packet that we make ourselves.
    pub(super) identification: u16,
    scratch: Box<Scratch>,
}

impl Forwarder {
    /// A forwarder by these routes. ICMP errors and fragments come from `pool`, the former no faster than `limits`.
    pub fn new(routes: Arc<Routes>, pool: Pool, limits: IcmpLimits) -> Self {
        let scratch = Scratch {
            verdicts: [Verdict::Arp; BURST_CAPACITY],
            ipv4: Gathered::new(0),
            ipv6: Gathered::new([0; 16]),
        };
        Self {
            routes,
            pool,
            limiter: TokenBucket::new(limits.rate, limits.burst, Clock::calibrated().cycles_per_second()),
            counters: ForwardCounters::new(),
            identification: 0,
            scratch: Box::new(scratch),
        }
    }

    /// The forwarder's books, to keep when it moves to its lane.
    pub fn counters(&self) -> &Arc<ForwardCounters> {
        &self.counters
    }

    /// Goes on by other routes, from the next burst.
    pub fn set_routes(&mut self, routes: Arc<Routes>) {
        self.routes = routes;
    }

    /// Forwards all packets of `burst`, which is empty afterwards. [`Packet::port`] is the port that each came in by.
    pub fn process<O: Outputs + ?Sized>(&mut self, burst: &mut Burst, outputs: &mut O) {
        self.examine(burst);
        let Scratch { ipv4, ipv6, .. } = &mut *self.scratch;
        if let (Some(addresses), Some(hops)) =
            (ipv4.addresses.get(..ipv4.count), ipv4.hops.get_mut(..ipv4.count))
        {
            self.routes.ipv4().lookup_burst(addresses, hops);
        }
        if let (Some(addresses), Some(hops)) =
            (ipv6.addresses.get(..ipv6.count), ipv6.hops.get_mut(..ipv6.count))
        {
            self.routes.ipv6().lookup_burst(addresses, hops);
        }
        let mut ready = Ready::default();
        self.rewrite_ipv4(burst, &mut ready);
        self.rewrite_ipv6(burst, &mut ready);
        self.hand_out(burst, &ready, outputs);
    }

    /// Pass one: gathers addresses of packets to be routed, and the verdict on others.
    #[inline(always)]
    fn examine(&mut self, burst: &mut Burst) {
        let Scratch { verdicts, ipv4, ipv6 } = &mut *self.scratch;
        (ipv4.count, ipv6.count) = (0, 0);
        let count = burst.len();
        for packet in burst.iter().take(PREFETCH_DISTANCE) {
            packet.prefetch();
        }
        for place in 0..count {
            if let Some(ahead) = burst.get(place + PREFETCH_DISTANCE) {
                ahead.prefetch();
            }
            let Some(packet) = burst.get_mut(place) else { break };
            let admission = self.routes.admission(packet.port());
            let (frame, length) = (packet.data(), packet.packet_length());
            // Of a chain, the first buffer is shorter than the packet.
            if frame.len() == length {
                if let Some(headers) = frame.first_chunk::<IPV4_HEADERS>()
                    && let Some((address, length)) = fast::plain_ipv4(headers, length, admission)
                {
                    ipv4.push(place, address, length);
                    continue;
                }
                if let Some(headers) = frame.first_chunk::<IPV6_HEADERS>()
                    && let Some((address, length)) = fast::plain_ipv6(headers, length, admission)
                {
                    ipv6.push(place, address, length);
                    continue;
                }
            }
            let known = usize::from(packet.port()) < self.routes.ports().len();
            let verdict = match validate(packet, known.then_some(admission)) {
                Finding::Ipv4(address) => {
                    ipv4.push(place, address.to_bits(), ALWAYS_TOO_LARGE);
                    continue;
                }
                Finding::Ipv6(address) => {
                    ipv6.push(place, address.octets(), ALWAYS_TOO_LARGE);
                    continue;
                }
                Finding::Arp => Verdict::Arp,
                Finding::Ipv6OnLink(reason) => Verdict::Ipv6OnLink(reason),
                Finding::Punt(reason) => Verdict::Punt(reason),
                Finding::Drop(reason) => Verdict::Drop(reason),
            };
            verdicts[place % BURST_CAPACITY] = verdict;
        }
    }

    /// Pass three for IPv4: rewrites what is plain and fits the next link.
    #[inline(always)]
    fn rewrite_ipv4(&mut self, burst: &mut Burst, ready: &mut Ready) {
        let Scratch { verdicts, ipv4, .. } = &mut *self.scratch;
        let rewrites = self.routes.rewrites();
        let gathered = ipv4.places.iter().zip(&ipv4.lengths).zip(&ipv4.hops).take(ipv4.count);
        for ((&place, &length), &hop) in gathered {
            let Some(packet) = burst.get_mut(usize::from(place)) else { break };
            let mut hop = hop;
            let mut rewrite = rewrites.get(hop.index());
            if rewrite.is_none_or(|rewrite| length > rewrite.largest) {
                if length != ALWAYS_TOO_LARGE {
                    packet.set_l3_offset(ethernet::HEADER_LENGTH as u8);
                }
                hop = member_ipv4(&self.routes, hop, packet);
                rewrite = rewrites.get(hop.index());
            }
            verdicts[usize::from(place)] = match (rewrite, packet.data_mut().first_chunk_mut()) {
                (Some(rewrite), Some(headers)) if length <= rewrite.largest => {
                    fast::rewrite_ipv4(headers, rewrite);
                    ready.add(rewrite.port);
                    Verdict::Send(rewrite.port)
                }
                _ => Verdict::Ipv4(hop),
            };
        }
    }

    /// Pass three for IPv6.
    #[inline(always)]
    fn rewrite_ipv6(&mut self, burst: &mut Burst, ready: &mut Ready) {
        let Scratch { verdicts, ipv6, .. } = &mut *self.scratch;
        let rewrites = self.routes.rewrites();
        let gathered = ipv6.places.iter().zip(&ipv6.lengths).zip(&ipv6.hops).take(ipv6.count);
        for ((&place, &length), &hop) in gathered {
            let Some(packet) = burst.get_mut(usize::from(place)) else { break };
            let mut hop = hop;
            let mut rewrite: Option<&Rewrite> = rewrites.get(hop.index());
            if rewrite.is_none_or(|rewrite| length > rewrite.largest) {
                if length != ALWAYS_TOO_LARGE {
                    packet.set_l3_offset(ethernet::HEADER_LENGTH as u8);
                }
                hop = member_ipv6(&self.routes, hop, packet);
                rewrite = rewrites.get(hop.index());
            }
            verdicts[usize::from(place)] = match (rewrite, packet.data_mut().first_chunk_mut()) {
                (Some(rewrite), Some(headers)) if length <= rewrite.largest => {
                    fast::rewrite_ipv6(headers, rewrite);
                    ready.add(rewrite.port);
                    Verdict::Send(rewrite.port)
                }
                _ => Verdict::Ipv6(hop),
            };
        }
    }

    /// Pass four: moves each packet to its port's burst, and takes the long way with those that need it.
    #[inline(always)]
    fn hand_out<O: Outputs + ?Sized>(&mut self, burst: &mut Burst, ready: &Ready, outputs: &mut O) {
        let count = burst.len();
        self.counters.received.add(count as u64);
        let alike = ready.count == count && ready.difference == 0;
        if alike
            && let Some(output) = outputs.burst(ready.port)
            && output.room() >= count
        {
            self.counters.forwarded.add(count as u64);
            burst.move_to(output);
            return;
        }
        let mut forwarded = 0;
        for (place, packet) in burst.drain().enumerate() {
            let verdict = self.scratch.verdicts[place % BURST_CAPACITY];
            let Verdict::Send(port) = verdict else {
                self.finish_odd(packet, verdict, outputs);
                continue;
            };
            let left = match outputs.burst(port) {
                Some(output) => output.push(packet).err(),
                None => Some(packet),
            };
            forwarded += u64::from(left.is_none());
            if let Some(packet) = left {
                forwarded += u64::from(self.send(packet, port, outputs));
            }
        }
        self.counters.forwarded.add(forwarded);
    }

    /// Hands a packet to a port. Counts it as dropped if the port doesn't take it, and then returns `false`.
    pub(super) fn send<O: Outputs + ?Sized>(&mut self, packet: Packet, port: u16, outputs: &mut O) -> bool {
        match offer(packet, port, outputs) {
            Ok(()) => true,
            Err(reason) => {
                self.counters.drop_one(reason);
                false
            }
        }
    }
}

/// Hands a packet to a port, or drops it and says why.
pub(super) fn offer<O: Outputs + ?Sized>(
    mut packet: Packet,
    port: u16,
    outputs: &mut O,
) -> Result<(), Reason> {
    loop {
        match outputs.burst(port) {
            Some(output) => match output.push(packet) {
                Ok(()) => return Ok(()),
                Err(back) => packet = back,
            },
            None => return Err(Reason::NoPort),
        }
        if !outputs.make_room(port) {
            return Err(Reason::OutputQueueFull);
        }
    }
}

/// The member of a group that a packet's flow belongs to; other next hops are themselves.
#[inline(never)]
fn member_ipv4(routes: &Routes, hop: NextHopId, packet: &Packet) -> NextHopId {
    routes.member(hop, |seed| {
        let ip = packet.data().get(usize::from(packet.l3_offset())..);
        ip.map_or(0, |ip| flow_hash::ipv4(seed, ip))
    })
}

/// The member of a group that a packet's flow belongs to; other next hops are themselves.
#[inline(never)]
fn member_ipv6(routes: &Routes, hop: NextHopId, packet: &Packet) -> NextHopId {
    routes.member(hop, |seed| {
        let ip = packet.data().get(usize::from(packet.l3_offset())..);
        ip.and_then(ipv6_packet).map_or(0, |packet| flow_hash::ipv6(seed, &packet))
    })
}

/// A view of an IPv6 packet that may be cut short, as the first buffer of a chain is.
pub(super) fn ipv6_packet(bytes: &[u8]) -> Option<Ipv6Packet<'_>> {
    let (header, rest) = bytes.split_first_chunk()?;
    let header = warmlane_wire::Ipv6Header(header);
    let payload = rest.get(..usize::from(header.payload_length())).unwrap_or(rest);
    Some(Ipv6Packet { header, payload })
}

impl std::fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forwarder").field("counters", &self.counters).finish_non_exhaustive()
    }
}
