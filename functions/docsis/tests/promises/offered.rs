//! What is offered: frames that can be made again from their flow and number, so that each can be compared.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use warmlane_docsis::control::ServiceGroup;
use warmlane_docsis::upper::UpperCountersView;
use warmlane_mem::{Burst, Pool};
use warmlane_port::{QueueCounters, ReceiveQueue, queue_report};
use warmlane_wire::{Frame, Ipv4Fields, Ipv6Fields, MacAddress};

/// Nanoseconds by which the clock moves at a time.
const STEP: u64 = 50_000;

/// One packet in so many is one that the upper MAC is to drop.
const BAD: u64 = 199;

/// Bytes of frames without CRC, taken in turns.
const LENGTHS: [usize; 5] = [90, 1_514, 576, 1_300, 1_514];

const SOURCE: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);
const EXPEDITED: u8 = 46 << 2;

/// What a packet is to be dropped for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Truncated,
    ToNobody,
    Unlisted,
    Filtered,
    TooLong,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] =
        [Self::Truncated, Self::ToNobody, Self::Unlisted, Self::Filtered, Self::TooLong];
}

/// The headers of a flow's packets, one for each length, and where their payload begins.
struct Template {
    frames: [Vec<u8>; LENGTHS.len()],
    payload: usize,
}

/// All that is offered, and how far it has come.
pub(crate) struct Offer {
    templates: Vec<Template>,
    bad: [Vec<u8>; Kind::ALL.len()],
    /// Nanoseconds from one packet of a flow to its next.
    intervals: Vec<u64>,
    packets: u64,
    count: AtomicU64,
    allowed: AtomicU64,
    flows: Vec<AtomicU64>,
    kinds: [AtomicU64; Kind::ALL.len()],
    /// Packets that have left the upper MAC.
    pub(crate) left: AtomicU64,
}

impl Offer {
    pub(crate) fn new(group: &ServiceGroup, packets: u64, rate: impl Fn(usize, u64) -> u64) -> Self {
        let mean = LENGTHS.iter().map(|length| length + 4).sum::<usize>() as u64 / LENGTHS.len() as u64;
        let interval = |(number, flow): (usize, &warmlane_docsis::control::ServiceFlow)| {
            mean * 8 * 1_000_000_000 / rate(number, flow.maximum_rate.expect("a rate"))
        };
        let mut unlisted = frame(0, 0, 5, 200);
        unlisted[30] ^= 0x80;
        Self {
            templates: (0..group.flows.len()).map(template).collect(),
            bad: [vec![1; 13], frame(5_000, 0, 5, 64), unlisted, frame(7, 0, 23, 64), frame(8, 0, 5, 1_999)],
            intervals: group.flows.iter().enumerate().map(interval).collect(),
            packets,
            count: AtomicU64::new(0),
            allowed: AtomicU64::new(packets / 33),
            flows: group.flows.iter().map(|_| AtomicU64::new(0)).collect(),
            kinds: Default::default(),
            left: AtomicU64::new(0),
        }
    }

    /// Packets offered so far.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether all are offered.
    pub(crate) fn is_over(&self) -> bool {
        self.count() == self.packets
    }

    /// Lets so many packets in all be offered.
    pub(crate) fn allow(&self, packets: u64) {
        self.allowed.store(packets, Ordering::Relaxed);
    }

    pub(crate) fn of_flow(&self, flow: usize) -> u64 {
        self.flows[flow].load(Ordering::Relaxed)
    }

    pub(crate) fn of_kind(&self, kind: Kind) -> u64 {
        self.kinds[kind as usize].load(Ordering::Relaxed)
    }

    /// The packet of this number of a flow.
    pub(crate) fn write(&self, flow: usize, number: u32, into: &mut Vec<u8>) {
        let template = &self.templates[flow];
        into.clear();
        into.extend_from_slice(&template.frames[(number as usize + flow) % LENGTHS.len()]);
        let payload = &mut into[template.payload..];
        payload[..4].copy_from_slice(&(flow as u32).to_be_bytes());
        payload[4..8].copy_from_slice(&number.to_be_bytes());
        payload[8..].fill((number ^ (number >> 8)) as u8);
    }

    /// Which flow's packet this is, and its number in it.
    pub(crate) fn read(&self, frame: &[u8]) -> Option<(usize, u32)> {
        let payload = if frame.get(12..14)? == [0x86, 0xdd] { 62 } else { 42 };
        let word = |at: usize| Some(u32::from_be_bytes(*frame.get(at..)?.first_chunk()?));
        let flow = word(payload)? as usize;
        (flow < self.templates.len()).then_some((flow, word(payload + 4)?))
    }
}

fn frame(modem: usize, traffic_class: u8, port: u16, length: usize) -> Vec<u8> {
    let [_, a, b, c] = (modem as u32 + 1).to_be_bytes();
    let addresses = Ipv4Fields::new(Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(10, a, b, c));
    Frame::new()
        .ethernet(MacAddress([2, 0xca, 0xb1, a, b, c]), SOURCE)
        .ipv4(Ipv4Fields { traffic_class, ..addresses })
        .udp(5, port)
        .payload(&vec![7; length - 42])
        .to_vec()
        .expect("a frame")
}

/// Flows with even numbers are their modem's primary one; every third modem has IPv6.
fn template(flow: usize) -> Template {
    let (modem, traffic_class) = (flow / 2, if flow % 2 == 1 { EXPEDITED } else { 0 });
    if modem % 3 != 2 {
        return Template {
            frames: LENGTHS.map(|length| frame(modem, traffic_class, 5, length)),
            payload: 42,
        };
    }
    let [_, a, b, c] = (modem as u32 + 1).to_be_bytes();
    let to = format!("fd00:ca:b1:{a:x}:{b:x}:{c:x}:0:1").parse().expect("an address");
    let addresses = Ipv6Fields::new("2001:db8::1".parse().expect("an address"), to);
    let frames = LENGTHS.map(|length| {
        Frame::new()
            .ethernet(MacAddress([2, 0xca, 0xb1, a, b, c]), SOURCE)
            .ipv6(Ipv6Fields { traffic_class, ..addresses })
            .udp(5, 5)
            .payload(&vec![7; length - 62])
            .to_vec()
            .expect("a frame")
    });
    Template { frames, payload: 62 }
}

/// Offers them, and moves the clock.
pub(crate) struct Source {
    pool: Pool,
    offer: Arc<Offer>,
    time: Arc<AtomicU64>,
    upper: UpperCountersView,
    due: BinaryHeap<Reverse<(u64, usize)>>,
    numbers: Vec<u32>,
    bytes: Vec<u8>,
    counters: QueueCounters,
}

impl Source {
    pub(crate) fn new(
        pool: &Pool,
        offer: Arc<Offer>,
        time: Arc<AtomicU64>,
        upper: UpperCountersView,
    ) -> Self {
        let due = offer.intervals.iter().enumerate();
        let due = due.map(|(flow, interval)| Reverse((flow as u64 * 7_919_777 % interval, flow))).collect();
        let numbers = vec![0; offer.intervals.len()];
        Self {
            pool: pool.clone(),
            offer,
            time,
            upper,
            due,
            numbers,
            bytes: Vec::new(),
            counters: QueueCounters::new(),
        }
    }

    /// The next packet, which is due.
    fn next(&mut self, count: u64, flow: usize) -> &[u8] {
        let add = |count: &AtomicU64| count.fetch_add(1, Ordering::Relaxed);
        if count % BAD == BAD - 1 {
            let kind = (count / BAD) as usize % Kind::ALL.len();
            add(&self.offer.kinds[kind]);
            return &self.offer.bad[kind];
        }
        add(&self.offer.flows[flow]);
        self.offer.write(flow, self.numbers[flow], &mut self.bytes);
        self.numbers[flow] += 1;
        &self.bytes
    }
}

impl ReceiveQueue for Source {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        let mut count = self.offer.count();
        let allowed = self.offer.allowed.load(Ordering::Relaxed).min(self.offer.packets);
        let is_held_up = count >= allowed && count < self.offer.packets;
        // The clock waits for what was sent, so that its time can be seen.
        if is_held_up || self.offer.left.load(Ordering::Relaxed) != self.upper.transferred() {
            return 0;
        }
        let now = self.time.load(Ordering::Relaxed) + STEP;
        self.time.store(now, Ordering::Relaxed);
        let before = burst.len();
        while count < self.offer.packets
            && burst.space() > 0
            && let Some(Reverse((due, flow))) = self.due.peek().copied()
            && due <= now
            && let Some(mut packet) = self.pool.take()
        {
            self.due.pop();
            self.due.push(Reverse((due + self.offer.intervals[flow], flow)));
            packet.fill(self.next(count, flow)).expect("space for a frame");
            burst.push(packet).expect("space in the burst");
            count += 1;
        }
        self.offer.count.store(count, Ordering::Relaxed);
        self.counters.packets().add((burst.len() - before) as u64);
        burst.len() - before
    }

    queue_report!(always running, counters);
}
