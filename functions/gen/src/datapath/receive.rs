//! The lane that receives and checks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use warmlane_counters::{Source, counters};
use warmlane_lane::{Outputs, Stage, polled_stage};
use warmlane_mem::{Burst, Packet};
use warmlane_sys::clock;
use warmlane_wire::{
    Addresses, EtherType, Icmpv4Message, Icmpv6Message, IpProtocol, LinkLayer, ipv4, ipv6, tcp, udp, vxlan,
};

use super::histogram::Histogram;
use super::orders::Orders;
use super::signature::{self, Signature};
use super::track::{StreamTrack, TrackConfig};

/// What to expect.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveOrder {
    /// The number that this trial's signatures carry.
    pub trial: u8,
    /// How many streams there are.
    pub streams: usize,
    /// Whether packets carry a signature. Without, every packet counts as received.
    pub signed: bool,
    /// Whether the checksums of IP, UDP, TCP and ICMP are checked too, so that damage outside the signature is found.
    pub check_packets: bool,
    /// How much to remember and measure of each stream.
    pub track: TrackConfig,
}

/// What was received.
#[derive(Clone, Debug)]
pub struct ReceiveReport {
    /// By stream.
    pub streams: Vec<StreamTrack>,
    /// Packets that look like the trial's and whose signature is damaged.
    pub unreadable: u64,
    /// Packets of another trial.
    pub stale: u64,
    /// Packets that are none of ours.
    pub foreign: u64,
    /// Packets of unsigned streams.
    pub unsigned: u64,
    /// Their bytes.
    pub unsigned_bytes: u64,
    /// Cycles from building to reception of all streams together, if there is no histogram for each.
    pub latency: Option<Histogram>,
}

/// Orders for a [`Receiver`].
pub type ReceiveOrders = Orders<ReceiveOrder, ReceiveReport>;

counters! {
    /// What can be seen while a trial runs.
    pub struct ReceiveCounters => ReceiveCountersView {
        /// Packets of the trials so far, intact or damaged, each counted once. Those of others count only where packets
        /// carry no signature.
        packets: Note, "packets";
        /// Those of them whose latency is known.
        timed: Note, "packets";
        /// Cycles that these took, all together.
        latency: Note, "cycles";
    }
}

/// The slowest packet since somebody asked, in cycles.
#[derive(Clone, Debug, Default)]
pub struct Slowest(Arc<AtomicU64>);

impl Slowest {
    /// Cycles that it took. The next to ask hears of those after it.
    pub fn take(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }

    #[inline]
    fn add(&self, cycles: u64) {
        if cycles > self.0.load(Ordering::Relaxed) {
            self.0.fetch_max(cycles, Ordering::Relaxed);
        }
    }
}

/// What others can see of a receiver while a trial runs.
#[derive(Clone, Debug)]
pub struct ReceiveProgress {
    /// What it counts.
    pub counters: ReceiveCountersView,
    /// The slowest packet.
    pub slowest: Slowest,
}

/// A stage that checks what comes, and keeps nothing; between orders it only drops it.
pub struct Receiver {
    orders: Arc<ReceiveOrders>,
    counters: ReceiveCounters,
    slowest: Slowest,
    seen: u64,
    /// Packets that came since the last poll.
    arrived: usize,
    trial: Option<Trial>,
    stopping: bool,
}

struct Trial {
    order: ReceiveOrder,
    begin: u64,
    report: ReceiveReport,
    /// Where packets of several buffers are put together.
    whole: Vec<u8>,
    /// Polls that may still find packets once the trial is to end.
    polls_left: u32,
}

/// Polls after which a trial ends though packets keep coming: enough for what waits in a port.
const LAST_POLLS: u32 = 1_024;

/// What a packet was.
enum Arrival {
    /// The trial's, intact, for the first time; the cycles that it took are known if it carries its time.
    Intact(Option<u64>),
    /// The trial's, damaged, for the first time as far as one can tell.
    Damaged,
    /// A copy, or not the trial's.
    Other,
}

/// What a burst brought.
#[derive(Default)]
struct Sums {
    packets: u64,
    timed: u64,
    latency: u64,
    worst: u64,
}

impl Sums {
    #[inline]
    fn add(&mut self, arrival: &Arrival) {
        match arrival {
            Arrival::Intact(Some(transit)) => {
                self.packets += 1;
                self.timed += 1;
                self.latency += transit;
                self.worst = self.worst.max(*transit);
            }
            Arrival::Intact(None) | Arrival::Damaged => self.packets += 1,
            Arrival::Other => {}
        }
    }
}

impl Receiver {
    /// Checks packets, as `orders` say.
    pub fn new(orders: Arc<ReceiveOrders>) -> Self {
        Self {
            orders,
            counters: ReceiveCounters::new(),
            slowest: Slowest::default(),
            seen: 0,
            arrived: 0,
            trial: None,
            stopping: false,
        }
    }

    /// What others can see of it, to keep when it moves to its lane.
    pub fn progress(&self) -> ReceiveProgress {
        ReceiveProgress { counters: self.counters.view(), slowest: self.slowest.clone() }
    }

    #[cold]
    fn begin(&mut self, order: ReceiveOrder) {
        let streams = if order.signed { order.streams } else { 0 };
        let has_one_latency = order.signed && order.track.latency_bits.is_none();
        let report = ReceiveReport {
            streams: (0..streams).map(|_| StreamTrack::new(&order.track)).collect(),
            unreadable: 0,
            stale: 0,
            foreign: 0,
            unsigned: 0,
            unsigned_bytes: 0,
            latency: has_one_latency.then(|| Histogram::new(7)),
        };
        self.trial = Some(Trial {
            order,
            begin: clock::cycles(),
            report,
            whole: vec![0; 1 << 16],
            polls_left: LAST_POLLS,
        });
    }

    #[cold]
    fn end(&mut self) {
        let Some(trial) = self.trial.take() else { return };
        self.orders.hand_in(self.seen, trial.report);
    }
}

impl Trial {
    #[inline]
    fn packet(&mut self, packet: &Packet, now: u64) -> Arrival {
        if packet.segments() > 1 {
            self.chain(packet, now)
        } else {
            check(&self.order, &mut self.report, self.begin, packet.data(), now)
        }
    }

    #[cold]
    fn chain(&mut self, packet: &Packet, now: u64) -> Arrival {
        let length = packet.copy_to(&mut self.whole);
        check(&self.order, &mut self.report, self.begin, &self.whole[..length], now)
    }
}

/// Counts one packet.
#[inline]
fn check(order: &ReceiveOrder, report: &mut ReceiveReport, begin: u64, data: &[u8], now: u64) -> Arrival {
    if !order.signed {
        report.unsigned += 1;
        report.unsigned_bytes += data.len() as u64;
        return Arrival::Intact(None);
    }
    let signature = data.last_chunk().and_then(Signature::parse);
    let Some(signature) = signature.or_else(|| inside_padding(data)) else {
        return unsigned(order, report, begin, data, now);
    };
    if signature.trial != order.trial {
        report.stale += 1;
        return Arrival::Other;
    }
    let Some(track) = report.streams.get_mut(usize::from(signature.stream)) else {
        report.foreign += 1;
        return Arrival::Other;
    };
    if order.check_packets && !is_intact(data) {
        return if track.arrived_damaged(&signature) { Arrival::Damaged } else { Arrival::Other };
    }
    let Some(transit) = track.arrived(&signature, now, data.len(), order.track.late_after) else {
        return Arrival::Other;
    };
    if let Some(all) = &mut report.latency {
        all.record(transit);
    }
    Arrival::Intact(Some(transit))
}

/// The signature in front of bytes that a link has padded a short frame with.
#[cold]
fn inside_padding(data: &[u8]) -> Option<Signature> {
    let link = LinkLayer::parse(data).ok()?;
    let packet = match link.ethertype {
        EtherType::IPV4 => {
            let packet = ipv4::check_lengths(link.payload).ok()?;
            packet.payload
        }
        EtherType::IPV6 => ipv6::check(link.payload).ok()?.payload,
        _ => return None,
    };
    packet.last_chunk().and_then(Signature::parse)
}

/// A packet without a right signature: one of ours that was damaged, if most of the signature fits this trial.
#[cold]
fn unsigned(order: &ReceiveOrder, report: &mut ReceiveReport, begin: u64, data: &[u8], now: u64) -> Arrival {
    let fits = data.last_chunk().map(Signature::read).is_some_and(|found| {
        let age = signature::cycles_between(found.time, now);
        let in_time = age > 0 && age <= now.saturating_sub(begin);
        let known_stream = usize::from(found.stream) < order.streams;
        [found.trial == order.trial, known_stream, in_time].iter().filter(|fits| **fits).count() >= 2
    });
    if fits {
        report.unreadable += 1;
        Arrival::Damaged
    } else {
        report.foreign += 1;
        Arrival::Other
    }
}

/// Whether the checksums that the packet has are right; of what is no IP packet nothing is known.
#[inline]
fn is_intact(data: &[u8]) -> bool {
    match layer(data) {
        Layer::Intact => true,
        Layer::Damaged => false,
        Layer::Tunnel(frame) => inner_is_intact(frame),
    }
}

/// One tunnel deep: what a tunnel in a tunnel carries is left to that one's own receiver.
#[cold]
fn inner_is_intact(frame: &[u8]) -> bool {
    !matches!(layer(frame), Layer::Damaged)
}

enum Layer<'a> {
    Intact,
    Damaged,
    /// Intact so far, and this frame is inside.
    Tunnel(&'a [u8]),
}

impl Layer<'_> {
    fn of(is_intact: bool) -> Self {
        if is_intact { Self::Intact } else { Self::Damaged }
    }
}

#[inline]
fn layer(data: &[u8]) -> Layer<'_> {
    let Ok(link) = LinkLayer::parse(data) else { return Layer::Damaged };
    match link.ethertype {
        EtherType::IPV4 => {
            let Ok(packet) = ipv4::check(link.payload) else { return Layer::Damaged };
            let (source, destination) = (packet.header.source(), packet.header.destination());
            let addresses = Addresses::V4 { source, destination };
            match packet.header.protocol() {
                _ if packet.header.is_fragment() => Layer::Intact,
                IpProtocol::UDP => datagram(addresses, packet.payload),
                IpProtocol::TCP => Layer::of(tcp::check(addresses, packet.payload).is_ok()),
                IpProtocol::ICMP => Layer::of(Icmpv4Message::parse(packet.payload).is_ok()),
                _ => Layer::Intact,
            }
        }
        EtherType::IPV6 => {
            let Ok(packet) = ipv6::check(link.payload) else { return Layer::Damaged };
            let (source, destination) = (packet.header.source(), packet.header.destination());
            let addresses = Addresses::V6 { source, destination };
            match packet.header.next_header() {
                IpProtocol::UDP => datagram(addresses, packet.payload),
                IpProtocol::TCP => Layer::of(tcp::check(addresses, packet.payload).is_ok()),
                IpProtocol::ICMPV6 => {
                    Layer::of(Icmpv6Message::parse(source, destination, packet.payload).is_ok())
                }
                _ => Layer::Intact,
            }
        }
        _ => Layer::Intact,
    }
}

#[inline]
fn datagram(addresses: Addresses, bytes: &[u8]) -> Layer<'_> {
    let Ok((header, data)) = udp::parse(bytes) else { return Layer::Damaged };
    let is_tunnel = header.destination_port() == vxlan::PORT;
    // A tunnel may do without a checksum over IPv6 too (RFC 6935 section 5).
    let has_none = header.checksum() == 0 && is_tunnel;
    if !has_none && udp::check(addresses, bytes).is_err() {
        return Layer::Damaged;
    }
    match vxlan::parse(data) {
        _ if !is_tunnel => Layer::Intact,
        Ok((_, frame)) => Layer::Tunnel(frame),
        Err(_) => Layer::Damaged,
    }
}

impl Stage for Receiver {
    polled_stage!("receiver", outputs: &[]);

    #[inline]
    fn process(&mut self, burst: &mut Burst, _outputs: &mut Outputs<'_>) {
        self.arrived += burst.len();
        if let Some(trial) = &mut self.trial {
            let now = clock::cycles();
            let mut sums = Sums::default();
            for packet in burst.iter() {
                sums.add(&trial.packet(packet, now));
            }
            self.counters.packets().add(sums.packets);
            self.counters.timed().add(sums.timed);
            self.counters.latency().add(sums.latency);
            self.slowest.add(sums.worst);
        }
        burst.clear();
    }

    fn counters(&self) -> Vec<Box<dyn Source>> {
        vec![Box::new(self.counters.view())]
    }

    #[inline]
    fn poll(&mut self, _now: u64, _burst: &mut Burst, _outputs: &mut Outputs<'_>) -> usize {
        let arrived = std::mem::take(&mut self.arrived);
        if let Some(order) = self.orders.newer(&mut self.seen) {
            self.begin(order);
            self.orders.started(self.seen);
        } else if let Some(trial) = &mut self.trial
            && self.orders.is_ended()
        {
            // Others may keep sending for ever.
            trial.polls_left = trial.polls_left.saturating_sub(1);
            if arrived == 0 || trial.polls_left == 0 {
                self.end();
            }
        }
        0
    }

    fn stop(&mut self) {
        self.stopping = true;
        self.end();
    }

    fn is_done(&self) -> bool {
        self.stopping
    }

    fn finish(&mut self, _burst: &mut Burst, _outputs: &mut Outputs<'_>) -> usize {
        self.end();
        0
    }
}
