//! The way of a burst: look at each packet, look up all addresses, rewrite each packet, hand out.
//!
//! Each pass does one thing to the whole burst, so that the misses of one packet are waited for while the next ones
//! are worked on, and the tables' own burst lookup has all addresses at hand.

use std::sync::Arc;

use warmlane_mem::{BURST_CAPACITY, Burst, Packet, Pool};
use warmlane_table::NextHopId;
use warmlane_wire::ethernet;
use warmlane_wire::ipv6::Ipv6Packet;

use super::counters::ForwardCounters;
use super::fast::{self, IPV4_HEADERS, IPV6_HEADERS};
use super::flow_hash;
use super::icmp_error::limiter;
use super::rate_limit::TokenBucket;
use super::reason::Reason;
use super::source_check::{self, Sources};
use super::validate::{Finding, validate};
use crate::control::config::IcmpLimits;
use crate::control::{ALWAYS_TOO_LARGE, Admission, Hops, LaneRoutes, Rewrite, TableNumber, Unresolved};

/// What became of a packet that isn't for the forwarder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Punted {
    /// Somebody has it.
    Taken,
    /// Nobody wants it: it is dropped for the reason that it is not for the forwarder.
    Unwanted,
    /// Somebody wants it, but has no room: [`Reason::PuntRefused`].
    Refused,
}

/// Where packets go: one burst for each port.
pub trait Outputs {
    /// Whether sources may have to be checked ([`SourceCheck`](crate::control::SourceCheck)). Else not even that is asked.
    const CHECKS_SOURCES: bool = false;

    /// The burst of packets that leave by this port; `None` if the lane doesn't send there.
    fn burst(&mut self, port: u16) -> Option<&mut Burst>;

    /// Called when the port's burst is full; says whether there is room now.
    fn make_room(&mut self, port: u16) -> bool {
        let _ = port;
        false
    }

    /// Takes a packet that isn't for the forwarder, as it came in; it would be looked up in `table`, or is of a VLAN that the
    /// port has no interface for.
    fn punt(&mut self, packet: Packet, table: Option<TableNumber>) -> Punted {
        let _ = (packet, table);
        Punted::Unwanted
    }

    /// Takes a packet whose next station's Ethernet address is to be found out, and asks for that. It comes back by
    /// [`Forwarder::resume`] or [`Forwarder::give_up`].
    ///
    /// # Errors
    /// The packet, if it can't wait; it is then dropped and counted, and its sender is told.
    fn hold(&mut self, packet: Packet, whom: Unresolved) -> Result<(), Packet> {
        let _ = whom;
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
pub(super) struct Gathered<A> {
    pub(super) count: usize,
    /// The packet's place in the burst.
    pub(super) places: [u8; BURST_CAPACITY],
    /// Bytes of the IP packet, or [`ALWAYS_TOO_LARGE`] if it takes the long way whatever its next hop.
    pub(super) lengths: [u16; BURST_CAPACITY],
    pub(super) addresses: [A; BURST_CAPACITY],
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
    fn put(&mut self, index: usize, place: usize, address: A, length: u16) {
        // An index stays below the burst's length, which is at most the capacity: the remainder changes nothing but
        // the compiler's mind.
        let index = index % BURST_CAPACITY;
        self.places[index] = place as u8;
        self.addresses[index] = address;
        self.lengths[index] = length;
    }
}

const _: () = assert!(BURST_CAPACITY == 256, "places are bytes");

/// Stands for "not ready to leave" where a port is expected.
pub(super) const ODD: u16 = u16::MAX;

/// What the passes tell each other about one burst.
pub(super) struct Scratch {
    /// The port by which the packet at each place is ready to leave, or [`ODD`].
    pub(super) ports: [u16; BURST_CAPACITY],
    /// What to do with packets that aren't ready.
    pub(super) verdicts: [Verdict; BURST_CAPACITY],
    /// Which table the gathered addresses are looked up in.
    pub(super) table: TableNumber,
    pub(super) ipv4: Gathered<u32>,
    pub(super) ipv6: Gathered<[u8; 16]>,
}

impl Scratch {
    /// The port by which all of the first `count` packets leave, if there is one.
    #[inline(always)]
    fn common_port(&self, count: usize) -> Option<u16> {
        let ports = self.ports.get(..count)?;
        let first = *ports.first()?;
        // No early end: this way it is a few vector instructions.
        let difference = ports.iter().fold(0, |difference, port| difference | (port ^ first));
        (difference == 0 && first != ODD).then_some(first)
    }
}

/// Forwards bursts. Each lane has one of its own.
pub struct Forwarder {
    pub(super) routes: LaneRoutes,
    pub(super) pool: Pool,
    pub(super) limits: IcmpLimits,
    pub(super) limiter: TokenBucket,
    pub(super) counters: Arc<ForwardCounters>,
    /// The identification of the next IPv4 packet that we make ourselves.
    pub(super) identification: u16,
    pub(super) scratch: Box<Scratch>,
    pub(super) sources: Box<Sources>,
}

impl Forwarder {
    /// A forwarder by these routes. ICMP errors and fragments come from `pool`, the former no faster than `limits`.
    pub fn new(routes: impl Into<LaneRoutes>, pool: Pool, limits: IcmpLimits) -> Self {
        let scratch = Scratch {
            ports: [ODD; BURST_CAPACITY],
            verdicts: [Verdict::Arp; BURST_CAPACITY],
            table: 0,
            ipv4: Gathered::new(0),
            ipv6: Gathered::new([0; 16]),
        };
        Self {
            routes: routes.into(),
            pool,
            limits,
            limiter: limiter(limits),
            counters: ForwardCounters::new(),
            identification: 0,
            scratch: Box::new(scratch),
            sources: Box::new(Sources::new()),
        }
    }

    /// The forwarder's books, to keep when it moves to its lane.
    pub fn counters(&self) -> &Arc<ForwardCounters> {
        &self.counters
    }

    /// Goes on by other routes, from the next burst.
    pub fn set_routes(&mut self, routes: impl Into<LaneRoutes>) {
        self.routes = routes.into();
    }

    /// What it forwards by.
    pub fn routes(&self) -> &LaneRoutes {
        &self.routes
    }

    /// To be called once a poll, when no burst is at work: routes that were used until now may go.
    #[inline]
    pub fn rest(&mut self) {
        self.routes.rest();
    }

    /// Forwards all packets of `burst`, which is empty afterwards. [`Packet::port`] is the port that each came in by.
    #[inline]
    pub fn process<O: Outputs + ?Sized>(&mut self, burst: &mut Burst, outputs: &mut O) {
        self.counters.received.add(burst.len() as u64);
        self.forward(burst, outputs);
    }

    /// The same for packets that were held: perhaps they can go on now.
    #[cold]
    pub fn resume<O: Outputs + ?Sized>(&mut self, burst: &mut Burst, outputs: &mut O) {
        self.counters.resumed.add(burst.len() as u64);
        self.forward(burst, outputs);
    }

    /// Drops packets that were held in vain, and tells their senders.
    #[cold]
    pub fn give_up<O: Outputs + ?Sized>(&mut self, burst: &mut Burst, outputs: &mut O) {
        for packet in burst.drain() {
            self.counters.resumed.add(1);
            self.counters.drop_one(Reason::NoNeighbour);
            self.report_unreachable(&packet, outputs);
        }
    }

    fn forward<O: Outputs + ?Sized>(&mut self, burst: &mut Burst, outputs: &mut O) {
        self.examine(burst);
        if O::CHECKS_SOURCES && self.routes.hops().checks_sources() {
            self.check_sources(burst);
        }
        let Scratch { ipv4, ipv6, table, .. } = &mut *self.scratch;
        if let (Some(addresses), Some(hops)) =
            (ipv4.addresses.get(..ipv4.count), ipv4.hops.get_mut(..ipv4.count))
            && !addresses.is_empty()
        {
            self.routes.lookup_ipv4(*table, addresses, hops);
        }
        if let (Some(addresses), Some(hops)) =
            (ipv6.addresses.get(..ipv6.count), ipv6.hops.get_mut(..ipv6.count))
            && !addresses.is_empty()
        {
            self.routes.lookup_ipv6(*table, addresses, hops);
        }
        self.rewrite(burst);
        self.hand_out(burst, outputs);
    }

    /// Pass one: gathers addresses of packets to be routed, and the verdict on others.
    #[inline(always)]
    fn examine(&mut self, burst: &mut Burst) {
        for packet in burst.iter() {
            packet.prefetch();
        }
        let (scratch, routes) = (&mut *self.scratch, &self.routes);
        let hops = routes.hops();
        (scratch.ipv4.count, scratch.ipv6.count) = (0, 0);
        // Packets of one lane's poll came in by one port. Those that are for another table than the first are odd.
        let first = burst.first().and_then(|packet| hops.port(packet.port()));
        scratch.table = first.map_or(0, |port| port.table);
        let mut place = 0;
        // Packets of one kind come in runs: one loop for each kind, as long as its run lasts.
        while let Some(packet) = burst.get(place) {
            let port = packet.port();
            let start = place;
            if hops.port(port).is_some_and(|known| known.table == scratch.table) {
                let admission = hops.admission(port);
                place = gather_ipv4(burst, place, port, admission, &mut scratch.ipv4);
                place = gather_ipv6(burst, place, port, admission, &mut scratch.ipv6);
            }
            if place == start
                && let Some(packet) = burst.get_mut(place)
            {
                examine_odd(packet, place, routes, scratch);
                place += 1;
            }
        }
    }

    /// Pass three: rewrites what is plain and fits the next link.
    #[inline(always)]
    fn rewrite(&mut self, burst: &mut Burst) {
        let Scratch { ports, verdicts, ipv4, ipv6, .. } = &mut *self.scratch;
        // After the lookups: what they found is in there.
        let hops = self.routes.hops();
        rewrite_all::<Ipv4, _, IPV4_HEADERS>(burst, hops, ipv4, ports, verdicts);
        rewrite_all::<Ipv6, _, IPV6_HEADERS>(burst, hops, ipv6, ports, verdicts);
    }

    /// Pass four: moves each packet to its port's burst, and takes the long way with those that need it.
    #[inline(always)]
    fn hand_out<O: Outputs + ?Sized>(&mut self, burst: &mut Burst, outputs: &mut O) {
        let count = burst.len();
        if let Some(port) = self.scratch.common_port(count)
            && let Some(output) = outputs.burst(port)
            && output.room() >= count
        {
            self.counters.forwarded.add(count as u64);
            burst.move_to(output);
            return;
        }
        let mut forwarded = 0;
        for (place, packet) in burst.drain().enumerate() {
            let port = self.scratch.ports[place % BURST_CAPACITY];
            if port == ODD {
                let verdict = self.scratch.verdicts[place % BURST_CAPACITY];
                self.finish_odd(packet, verdict, outputs);
                continue;
            }
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

/// Gathers plain IPv4 packets that came in by `port`, from a place on. Returns the place of the first other packet.
#[inline(never)]
fn gather_ipv4(
    packets: &[Packet],
    start: usize,
    port: u16,
    admission: Admission,
    gathered: &mut Gathered<u32>,
) -> usize {
    let (mut place, mut count) = (start, gathered.count);
    for packet in packets.get(start..).unwrap_or_default() {
        let (frame, length) = (packet.data(), packet.packet_length());
        // Of a chain, the first buffer is shorter than the packet.
        if packet.port() == port
            && frame.len() == length
            && let Some(headers) = frame.first_chunk()
            && let Some((address, length)) = fast::plain_ipv4(headers, length, admission)
        {
            gathered.put(count, place, address, length);
            (place, count) = (place + 1, count + 1);
        } else {
            break;
        }
    }
    gathered.count = count;
    place
}

/// The same for IPv6.
#[inline(never)]
fn gather_ipv6(
    packets: &[Packet],
    start: usize,
    port: u16,
    admission: Admission,
    gathered: &mut Gathered<[u8; 16]>,
) -> usize {
    let (mut place, mut count) = (start, gathered.count);
    for packet in packets.get(start..).unwrap_or_default() {
        let (frame, length) = (packet.data(), packet.packet_length());
        if packet.port() == port
            && frame.len() == length
            && let Some(headers) = frame.first_chunk()
            && let Some((address, length)) = fast::plain_ipv6(headers, length, admission)
        {
            gathered.put(count, place, address, length);
            (place, count) = (place + 1, count + 1);
        } else {
            break;
        }
    }
    gathered.count = count;
    place
}

/// Looks closely at one packet that isn't plain.
#[cold]
#[inline(never)]
fn examine_odd(packet: &mut Packet, place: usize, routes: &LaneRoutes, scratch: &mut Scratch) {
    let hops = routes.hops();
    let known = hops.port(packet.port()).is_some();
    let admission = known.then(|| hops.admission(packet.port()));
    let finding = validate(packet, admission);
    let table = hops.place(packet).map(|place| place.table);
    let verdict = match (finding, table) {
        (Finding::Drop(reason @ (Reason::Truncated | Reason::UnknownPort | Reason::OtherHost)), None) => {
            Verdict::Drop(reason)
        }
        // Somebody else's VLAN, whatever is in the packet: a bridge's, or another network namespace's.
        (_, None) => Verdict::Punt(Reason::UnknownVlan),
        (Finding::Ipv4(address), Some(table)) if table == scratch.table => {
            scratch.ipv4.put(scratch.ipv4.count, place, address.to_bits(), ALWAYS_TOO_LARGE);
            scratch.ipv4.count += 1;
            return;
        }
        (Finding::Ipv6(address), Some(table)) if table == scratch.table => {
            scratch.ipv6.put(scratch.ipv6.count, place, address.octets(), ALWAYS_TOO_LARGE);
            scratch.ipv6.count += 1;
            return;
        }
        (Finding::Ipv4(_), Some(table)) if !source_check::accepts_ipv4(routes, packet, table) => {
            Verdict::Drop(Reason::Ipv4ReversePath)
        }
        (Finding::Ipv6(_), Some(table)) if !source_check::accepts_ipv6(routes, packet, table) => {
            Verdict::Drop(Reason::Ipv6ReversePath)
        }
        (Finding::Ipv4(address), Some(table)) => {
            let mut found = [NextHopId::NONE];
            routes.lookup_ipv4(table, &[address.to_bits()], &mut found);
            member_of::<Ipv4, IPV4_HEADERS>(packet, routes, found[0])
        }
        (Finding::Ipv6(address), Some(table)) => {
            let mut found = [NextHopId::NONE];
            routes.lookup_ipv6(table, &[address.octets()], &mut found);
            member_of::<Ipv6, IPV6_HEADERS>(packet, routes, found[0])
        }
        (Finding::Arp, _) => Verdict::Arp,
        (Finding::Ipv6OnLink(reason), _) => Verdict::Ipv6OnLink(reason),
        (Finding::Punt(reason), _) => Verdict::Punt(reason),
        (Finding::Drop(reason), _) => Verdict::Drop(reason),
    };
    scratch.ports[place % BURST_CAPACITY] = ODD;
    scratch.verdicts[place % BURST_CAPACITY] = verdict;
}

/// The verdict on a packet whose layer 3 offset and next hop, or group of next hops, are known.
fn member_of<F: Family<N>, const N: usize>(packet: &Packet, routes: &LaneRoutes, hop: NextHopId) -> Verdict {
    F::verdict(routes.hops().member(hop, |seed| {
        F::flow_hash(seed, packet.data().get(usize::from(packet.l3_offset())..).unwrap_or_default())
    }))
}

/// What pass three does differently for the two families; `N` is the length of their headers.
trait Family<const N: usize> {
    fn rewrite(headers: &mut [u8; N], rewrite: &Rewrite);
    fn verdict(hop: NextHopId) -> Verdict;
    fn flow_hash(seed: u64, packet: &[u8]) -> u32;
}

struct Ipv4;

impl Family<IPV4_HEADERS> for Ipv4 {
    #[inline(always)]
    fn rewrite(headers: &mut [u8; IPV4_HEADERS], rewrite: &Rewrite) {
        fast::rewrite_ipv4(headers, rewrite);
    }

    fn verdict(hop: NextHopId) -> Verdict {
        Verdict::Ipv4(hop)
    }

    fn flow_hash(seed: u64, packet: &[u8]) -> u32 {
        flow_hash::ipv4(seed, packet)
    }
}

struct Ipv6;

impl Family<IPV6_HEADERS> for Ipv6 {
    #[inline(always)]
    fn rewrite(headers: &mut [u8; IPV6_HEADERS], rewrite: &Rewrite) {
        fast::rewrite_ipv6(headers, rewrite);
    }

    fn verdict(hop: NextHopId) -> Verdict {
        Verdict::Ipv6(hop)
    }

    fn flow_hash(seed: u64, packet: &[u8]) -> u32 {
        ipv6_packet(packet).map_or(0, |packet| flow_hash::ipv6(seed, &packet))
    }
}

/// Pass three for one family.
#[inline(never)]
fn rewrite_all<F: Family<N>, A, const N: usize>(
    packets: &mut [Packet],
    routes: &Hops,
    gathered: &Gathered<A>,
    ports: &mut [u16; BURST_CAPACITY],
    verdicts: &mut [Verdict; BURST_CAPACITY],
) {
    let rewrites = routes.rewrites();
    let Some(places) = gathered.places.get(..gathered.count) else { return };
    let of_packets = gathered.lengths.iter().zip(&gathered.hops);
    for (&place, (&length, &hop)) in places.iter().zip(of_packets) {
        let Some(packet) = packets.get_mut(usize::from(place)) else { break };
        ports[usize::from(place)] = match (rewrites.get(hop.index()), packet.data_mut().first_chunk_mut()) {
            (Some(rewrite), Some(headers)) if length <= rewrite.largest => {
                F::rewrite(headers, rewrite);
                rewrite.port
            }
            _ => match rewrite_member::<F, N>(packet, routes, hop, length) {
                Ok(port) => port,
                Err(verdict) => {
                    verdicts[usize::from(place)] = verdict;
                    ODD
                }
            },
        };
    }
}

/// Rewrites a packet whose next hop is a group for the member that its flow belongs to. Gives the verdict on a packet
/// that needs more.
#[inline(never)]
fn rewrite_member<F: Family<N>, const N: usize>(
    packet: &mut Packet,
    routes: &Hops,
    hop: NextHopId,
    length: u16,
) -> Result<u16, Verdict> {
    if length != ALWAYS_TOO_LARGE {
        packet.set_l3_offset(ethernet::HEADER_LENGTH as u8);
    }
    let hop = routes.member(hop, |seed| {
        F::flow_hash(seed, packet.data().get(usize::from(packet.l3_offset())..).unwrap_or_default())
    });
    match (routes.rewrites().get(hop.index()), packet.data_mut().first_chunk_mut()) {
        (Some(rewrite), Some(headers)) if length <= rewrite.largest => {
            F::rewrite(headers, rewrite);
            Ok(rewrite.port)
        }
        _ => Err(F::verdict(hop)),
    }
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
