//! The way of a burst: look at each packet, look up all addresses, rewrite each packet, hand out.
//!
//! Each pass does one thing to the whole burst, so that the misses of one packet are waited for while the next ones
//! are worked on, and the tables' own burst lookup has all addresses at hand.

use std::borrow::Cow;

use warmlane_counters::Source;
use warmlane_lane::{Explanation, Outputs, Rehearsed, Stage, WakeUps};
use warmlane_mem::{BURST_CAPACITY, Burst, Packet, Pool};
use warmlane_port::TransmitOffloads;
use warmlane_wire::ipv6::Ipv6Packet;
use warmlane_wire::{ipv4, ipv6};

use super::copies::Copies;
use super::counters::{ForwardCounters, ForwardCountersView};
use super::examine::{examine_slowly, gather_ipv4, gather_ipv6};
use super::fast::{IPV4_HEADERS, IPV6_HEADERS};
use super::flows::LaneFlows;
use super::icmp_error::limiter;
use super::rate_limit::TokenBucket;
use super::reason::Reason;
use super::rewrite::{Ipv4, Ipv6, rewrite_all};
use super::scratch::{Action, Gathered, SLOW, Scratch};
use super::source_check::Sources;
use super::tagged;
use crate::control::LaneRoutes;
use crate::control::config::IcmpLimits;

/// Forwards bursts. Each lane has one of its own.
///
/// Of its outputs, `port0`, `port1` … lead to the ports in the order of the routes, `punt` takes what isn't for the forwarder, and
/// `hold` what waits until a neighbour's Ethernet address is known. A punted packet's mark is [`mark_of_table`](crate::datapath::mark_of_table)'s, a held one's
/// the index of its next hop, [`NextHop::Unresolved`](crate::control::NextHop::Unresolved). Where `punt` isn't connected, packets
/// are dropped for the reason why they can't be forwarded, and the forwarder tells their senders; where it is, `punt` gets those,
/// too, as many as ICMP errors may be sent, and is to tell them. Where `hold` isn't connected, packets are dropped because their
/// neighbour isn't known.
///
/// Packets that were held come back by the input `resumed` once they may go on, or by `given-up`: then they are dropped, and
/// their senders are told. By `refused` come those that there was no space for, which are dropped without a word: their
/// neighbours may well be there.
pub struct Forwarder {
    pub(super) routes: LaneRoutes,
    pub(super) pool: Pool,
    pub(super) copies: Copies,
    pub(super) limits: IcmpLimits,
    pub(super) limiter: TokenBucket,
    pub(super) counters: ForwardCounters,
    /// The identification of the next IPv4 packet that we make ourselves.
    pub(super) identification: u16,
    pub(super) scratch: Box<Scratch>,
    pub(super) sources: Box<Sources>,
    pub(super) flows: Option<Box<LaneFlows>>,
    /// How many ports there are.
    ports: usize,
}

impl Forwarder {
    /// The output for what isn't for the forwarder.
    pub const PUNT: usize = 0;
    /// The output for packets whose neighbour's Ethernet address is to be found out.
    pub const HOLD: usize = 1;
    /// The output for the first port, behind which the others come.
    pub const FIRST_PORT: usize = 2;

    /// What packets may still need when they come.
    pub const ACCEPTS: TransmitOffloads = TransmitOffloads::WITHOUT_TAGS;

    /// A forwarder by these routes. ICMP errors and fragments come from `pool`, the former no faster than `limits`.
    pub fn new(routes: impl Into<LaneRoutes>, pool: Pool, limits: IcmpLimits) -> Self {
        let scratch = Scratch {
            ports: [SLOW; BURST_CAPACITY],
            actions: [Action::Arp; BURST_CAPACITY],
            table: 0,
            has_kernel: false,
            ipv4: Gathered::new(0, 0),
            ipv6: Gathered::new([0; 16], ()),
        };
        let routes = routes.into();
        Self {
            ports: routes.hops().ports().len(),
            flows: routes.fixed().and_then(|routes| LaneFlows::new(routes.flows())),
            routes,
            pool,
            copies: Copies::default(),
            limits,
            limiter: limiter(limits),
            counters: ForwardCounters::new(),
            identification: 0,
            scratch: Box::new(scratch),
            sources: Box::new(Sources::new()),
        }
    }

    /// The forwarder's accounting, to keep when it moves to its lane.
    pub fn view(&self) -> ForwardCountersView {
        self.counters.view()
    }

    /// What it forwards by.
    pub fn routes(&self) -> &LaneRoutes {
        &self.routes
    }

    /// Drops packets that were held in vain, and tells their senders. The kernel would wait for the neighbour once more before
    /// it did, so it gets only those whose senders can't be told from here.
    #[cold]
    fn give_up(&mut self, burst: &mut Burst, outputs: &mut Outputs<'_>) {
        for packet in burst.drain() {
            self.counters.resumed().add(1);
            self.showing_drops(packet, outputs, Self::give_up_one);
        }
    }

    fn give_up_one(&mut self, mut packet: Packet, outputs: &mut Outputs<'_>) {
        // It had been let through, and waited on the far side.
        decrement_lifetime(&mut packet);
        let told = self.report_unreachable(&packet, outputs);
        if told || self.refer(packet, Reason::NoNeighbour, outputs).is_some() {
            self.counters.drop_one(Reason::NoNeighbour);
            self.counters.errors_unsent().add(u64::from(!told));
        }
    }

    fn forward(&mut self, burst: &mut Burst, outputs: &mut Outputs<'_>) {
        // Whether there is anyone who knows more of packets than we do.
        self.scratch.has_kernel = outputs.is_connected(Self::PUNT);
        self.examine(burst);
        if !self.routes.hops().claimed_sources().is_empty() {
            self.check_claimed_sources(burst);
        }
        if self.routes.hops().checks_sources() {
            self.check_sources(burst);
        }
        if self.flows.is_some() {
            self.look_up_flows(burst);
        } else {
            self.look_up_routes();
        }
        self.rewrite(burst);
        self.dispatch(burst, outputs);
    }

    /// Pass two: next hops by route.
    #[inline(always)]
    fn look_up_routes(&mut self) {
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
    }

    /// Pass one: gathers addresses of packets to be routed, and the action on others.
    #[inline(always)]
    fn examine(&mut self, burst: &mut Burst) {
        for packet in burst.iter() {
            packet.prefetch();
        }
        let (scratch, routes) = (&mut *self.scratch, &self.routes);
        let hops = routes.hops();
        (scratch.ipv4.count, scratch.ipv6.count) = (0, 0);
        // Packets of one lane's poll came in by one port. Those that are for another table than the first take the slow path.
        let table = |packet: &Packet| {
            hops.table_of(packet).or_else(|| hops.port(packet.port()).map(|port| port.table))
        };
        scratch.table = burst.first().and_then(table).unwrap_or(0);
        let mut index = 0;
        // Packets of one kind come in runs: one loop for each kind, as long as its run lasts.
        while let Some(packet) = burst.get(index) {
            let port = packet.port();
            let start = index;
            if hops.port(port).is_some_and(|known| known.table == scratch.table) {
                let admission = hops.admission(port);
                index = gather_ipv4(burst, index, port, admission, &mut scratch.ipv4);
                index = gather_ipv6(burst, index, port, admission, &mut scratch.ipv6);
            }
            if index == start {
                index = tagged::gather(burst, index, hops, scratch);
            }
            if index == start
                && let Some(packet) = burst.get_mut(index)
            {
                examine_slowly(packet, index, routes, scratch);
                index += 1;
            }
        }
    }

    /// Pass three: rewrites what is plain and fits the next link.
    #[inline(always)]
    fn rewrite(&mut self, burst: &mut Burst) {
        let Scratch { ports, actions, ipv4, ipv6, .. } = &mut *self.scratch;
        // After the lookups: what they found is in there.
        let hops = self.routes.hops();
        rewrite_all::<Ipv4, IPV4_HEADERS>(burst, hops, ipv4, ports, actions);
        rewrite_all::<Ipv6, IPV6_HEADERS>(burst, hops, ipv6, ports, actions);
    }

    /// Pass four: moves each packet to its port's burst, and takes the long way with those that need it.
    #[inline(always)]
    fn dispatch(&mut self, burst: &mut Burst, outputs: &mut Outputs<'_>) {
        let count = burst.len();
        if let Some(port) = self.scratch.common_port(count)
            && let Some(output) = outputs.burst(Forwarder::FIRST_PORT + usize::from(port))
            && output.space() >= count
        {
            self.counters.forwarded().add(count as u64);
            burst.move_to(output);
            return;
        }
        let mut forwarded = 0;
        for (index, packet) in burst.drain().enumerate() {
            let port = self.scratch.ports[index % BURST_CAPACITY];
            if port == SLOW {
                let action = self.scratch.actions[index % BURST_CAPACITY];
                self.take_slow_path(packet, action, outputs);
                continue;
            }
            let left = match outputs.burst(Forwarder::FIRST_PORT + usize::from(port)) {
                Some(output) => output.push(packet).err(),
                None => Some(packet),
            };
            forwarded += u64::from(left.is_none());
            if let Some(packet) = left {
                forwarded += u64::from(self.send_again(packet, port, outputs));
            }
        }
        self.counters.forwarded().add(forwarded);
    }

    /// Hands a packet to a port. Counts it as dropped if the port doesn't take it, and then returns `false`.
    pub(super) fn send(&mut self, packet: Packet, port: u16, outputs: &mut Outputs<'_>) -> bool {
        match offer(packet, port, outputs) {
            Ok(()) => true,
            Err((reason, _)) => {
                self.counters.drop_one(reason);
                false
            }
        }
    }

    /// The same for one of the fast path that found no space at once.
    #[cold]
    fn send_again(&mut self, packet: Packet, port: u16, outputs: &mut Outputs<'_>) -> bool {
        match offer(packet, port, outputs) {
            Ok(()) => true,
            Err((reason, packet)) => {
                self.counters.drop_one(reason);
                outputs.show_dropped(reason, &packet);
                false
            }
        }
    }
}

/// Hands a packet to a port, or gives it back and says why it is dropped.
pub(super) fn offer(packet: Packet, port: u16, outputs: &mut Outputs<'_>) -> Result<(), (Reason, Packet)> {
    let port = Forwarder::FIRST_PORT + usize::from(port);
    outputs.push(port, packet).map_err(|packet| {
        let reason = if outputs.is_connected(port) { Reason::OutputQueueFull } else { Reason::NoPort };
        (reason, packet)
    })
}

/// Takes one off the TTL or hop limit of a packet whose layer 3 offset is known, and that has one to spare.
fn decrement_lifetime(packet: &mut Packet) {
    let offset = usize::from(packet.l3_offset());
    let Some(ip) = packet.data_mut().get_mut(offset..) else { return };
    match ip.first().map(|first| first >> 4) {
        Some(4) => ip.first_chunk_mut().map(ipv4::decrement_ttl),
        Some(6) => ip.first_chunk_mut().map(ipv6::decrement_hop_limit),
        _ => None,
    };
}

/// A view of an IPv6 packet that may be cut short, as the first buffer of a chain is.
pub(super) fn ipv6_packet(bytes: &[u8]) -> Option<Ipv6Packet<'_>> {
    let (header, rest) = bytes.split_first_chunk()?;
    let header = warmlane_wire::Ipv6Header(header);
    let payload = rest.get(..usize::from(header.payload_length())).unwrap_or(rest);
    Some(Ipv6Packet { header, payload })
}

/// The forwarder's inputs besides the first.
const RESUMED: usize = 1;
const GIVEN_UP: usize = 2;
const REFUSED: usize = 3;

impl Stage for Forwarder {
    /// Forwards all packets, so that the burst is empty afterwards. [`Packet::port`] is the port that each came in by.
    #[inline]
    fn process(&mut self, burst: &mut Burst, outputs: &mut Outputs<'_>) {
        self.counters.received().add(burst.len() as u64);
        self.forward(burst, outputs);
    }

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("forwarder")
    }

    fn accepts(&self) -> TransmitOffloads {
        Self::ACCEPTS
    }

    fn output_count(&self) -> usize {
        Self::FIRST_PORT + self.ports
    }

    fn output_name(&self, output: usize) -> Cow<'static, str> {
        match output.checked_sub(Self::FIRST_PORT) {
            Some(port) => Cow::Owned(format!("port{port}")),
            None if output == Self::PUNT => Cow::Borrowed("punt"),
            None => Cow::Borrowed("hold"),
        }
    }

    fn passes_on(&self) -> bool {
        false
    }

    fn input_count(&self) -> usize {
        4
    }

    fn input_name(&self, input: usize) -> Cow<'static, str> {
        Cow::Borrowed(match input {
            RESUMED => "resumed",
            GIVEN_UP => "given-up",
            REFUSED => "refused",
            _ => "in",
        })
    }

    #[cold]
    fn process_input(&mut self, input: usize, burst: &mut Burst, outputs: &mut Outputs<'_>) {
        match input {
            RESUMED => {
                self.counters.resumed().add(burst.len() as u64);
                self.forward(burst, outputs);
            }
            GIVEN_UP => self.give_up(burst, outputs),
            REFUSED => {
                let count = burst.len() as u64;
                for packet in burst.drain() {
                    outputs.show_dropped(Reason::NeighbourQueueFull, &packet);
                }
                self.counters.resumed().add(count);
                self.counters.drops().count(Reason::NeighbourQueueFull, count);
            }
            _ => self.process(burst, outputs),
        }
    }

    fn counters(&self) -> Vec<Box<dyn Source>> {
        vec![Box::new(self.view())]
    }

    fn explain(&self, input: usize, packet: &Packet, explanation: &mut Explanation) {
        if matches!(input, 0 | RESUMED) {
            self.note_lookups(packet, explanation);
        }
    }

    fn rehearse(&mut self, input: usize, burst: &mut Burst, outputs: &mut Outputs<'_>) -> Option<Rehearsed> {
        Some(self.rehearsing(burst, outputs, |forwarder, burst, outputs| {
            forwarder.process_input(input, burst, outputs);
        }))
    }

    fn is_polled(&self) -> bool {
        self.routes.can_change()
    }

    /// Routes that were used until now may go: no burst is at work.
    #[inline]
    fn poll(&mut self, _now: u64, _burst: &mut Burst, _outputs: &mut Outputs<'_>) -> usize {
        self.routes.quiescent();
        0
    }

    fn sleep(&mut self, wake_ups: WakeUps<'_>, then: &mut dyn FnMut(WakeUps<'_>)) {
        self.routes.offline(|| then(wake_ups));
    }
}

impl std::fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forwarder").field("counters", &self.counters).finish_non_exhaustive()
    }
}
