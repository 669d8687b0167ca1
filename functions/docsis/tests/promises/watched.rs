//! What is seen of packets between the lanes, and where they are delivered.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use warmlane_docsis::Tag;
use warmlane_docsis::control::ServiceGroup;
use warmlane_mem::Burst;
use warmlane_port::channel::ChannelTransmit;
use warmlane_port::{QueueCounters, QueueCountersView, QueueStatus, TransmitQueue, queue_report};

use super::LONG;
use super::offered::Offer;

const SECOND: u64 = 1_000_000_000;
/// When the first second begins: queues have filled and bursts are spent.
const BEGIN: u64 = 300_000_000;
/// What passes at once beyond the peak rate (MULPI annex C.2.2.6.8).
const PEAK_BURST: u64 = 1_522;

/// A bucket as the specification puts it: what is in it, and since when.
struct Bucket {
    bytes_per_nanosecond: f64,
    burst: f64,
    level: f64,
    at: u64,
}

impl Bucket {
    fn new(rate: u64, burst: u64) -> Self {
        let bytes_per_nanosecond = rate as f64 / 8.0 / SECOND as f64;
        Self { bytes_per_nanosecond, burst: burst as f64, level: burst as f64, at: 0 }
    }

    /// Whether so many bytes were in it.
    fn take(&mut self, bytes: u64, now: u64) -> bool {
        let came = (now - self.at) as f64 * self.bytes_per_nanosecond;
        self.level = (self.level + came).min(self.burst) - bytes as f64;
        self.at = now;
        self.level > -0.01
    }
}

/// What has left the upper MAC, by its clock.
pub(crate) struct Departed {
    buckets: Vec<Vec<Bucket>>,
    /// Packets for which a bucket had too little.
    pub(crate) beyond: Vec<String>,
    /// Bytes of each flow, in each whole second.
    pub(crate) seconds: Vec<Vec<u64>>,
    bytes: Vec<u64>,
    second: Option<u64>,
}

impl Departed {
    pub(crate) fn new(group: &ServiceGroup) -> Self {
        let buckets = group.flows.iter().map(|flow| {
            let maximum = flow.maximum_rate.map(|rate| Bucket::new(rate, flow.maximum_burst));
            let peak = flow.peak_rate.map(|rate| Bucket::new(rate, PEAK_BURST));
            maximum.into_iter().chain(peak).collect()
        });
        Self {
            buckets: buckets.collect(),
            beyond: Vec::new(),
            seconds: Vec::new(),
            bytes: vec![0; group.flows.len()],
            second: None,
        }
    }

    /// Sees a packet; `is_loaded` if packets are still offered.
    fn see(&mut self, flow: usize, bytes: u64, now: u64, is_loaded: bool) {
        for bucket in &mut self.buckets[flow] {
            if !bucket.take(bytes, now) && self.beyond.len() < 10 {
                self.beyond.push(format!("flow {flow} at {now} ns: {} bytes too many", -bucket.level));
            }
        }
        let second = now.checked_sub(BEGIN).map(|since| since / SECOND);
        if second != self.second {
            let bytes = std::mem::replace(&mut self.bytes, vec![0; self.buckets.len()]);
            if self.second.is_some() && is_loaded {
                self.seconds.push(bytes);
            }
            self.second = second;
        }
        self.bytes[flow] += bytes;
    }
}

/// The channel between the lanes, which waits for space, so that packets leave when the upper MAC says so.
pub(crate) struct Transfer {
    channel: ChannelTransmit,
    time: Arc<AtomicU64>,
    departed: Arc<Mutex<Departed>>,
    offer: Arc<Offer>,
}

impl Transfer {
    pub(crate) fn new(
        channel: ChannelTransmit,
        time: Arc<AtomicU64>,
        departed: Arc<Mutex<Departed>>,
        offer: &Arc<Offer>,
    ) -> Self {
        Self { channel, time, departed, offer: Arc::clone(offer) }
    }
}

impl TransmitQueue for Transfer {
    fn transmit(&mut self, burst: &mut Burst) -> usize {
        let now = self.time.load(Ordering::Relaxed);
        let is_loaded = !self.offer.is_over();
        let mut departed = self.departed.lock().expect("a list");
        for packet in burst.iter() {
            let flow = packet.application::<Tag>().flow as usize;
            departed.see(flow, packet.len() as u64 + 4, now, is_loaded);
        }
        drop(departed);
        let (count, began) = (burst.len(), Instant::now());
        self.offer.left.fetch_add(count as u64, Ordering::Relaxed);
        while !burst.is_empty() {
            if self.channel.transmit(burst) == 0 {
                assert!(began.elapsed() < LONG, "the lower lane takes nothing");
                std::thread::yield_now();
            }
        }
        count
    }

    fn is_lossless(&self) -> bool {
        true
    }

    fn status(&self) -> QueueStatus {
        self.channel.status()
    }

    fn counters(&self) -> QueueCountersView {
        self.channel.counters()
    }
}

/// What has come, by flow.
pub(crate) struct Delivered {
    flows: Vec<Flow>,
    count: u64,
    pub(crate) wrong: Vec<String>,
}

#[derive(Clone, Default)]
struct Flow {
    count: u64,
    /// The least number that may come.
    next: u32,
}

impl Delivered {
    pub(crate) fn new(group: &ServiceGroup) -> Self {
        Self { flows: vec![Flow::default(); group.flows.len()], count: 0, wrong: Vec::new() }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn of_flow(&self, flow: usize) -> u64 {
        self.flows[flow].count
    }

    fn see(&mut self, frame: &[u8], offer: &Offer, expected: &mut Vec<u8>) -> Result<(), String> {
        self.count += 1;
        let (number, sequence) = offer.read(frame).ok_or("a packet of no flow")?;
        let flow = &mut self.flows[number];
        flow.count += 1;
        if sequence < flow.next {
            return Err(format!("flow {number}: {sequence} comes where {} is next", flow.next));
        }
        flow.next = sequence + 1;
        offer.write(number, sequence, expected);
        if frame == expected { Ok(()) } else { Err(format!("flow {number}: {sequence} is damaged")) }
    }
}

/// Where packets are delivered.
pub(crate) struct Modem {
    offer: Arc<Offer>,
    delivered: Arc<Mutex<Delivered>>,
    expected: Vec<u8>,
    counters: QueueCounters,
}

impl Modem {
    pub(crate) fn new(offer: Arc<Offer>, delivered: Arc<Mutex<Delivered>>) -> Self {
        Self { offer, delivered, expected: Vec::new(), counters: QueueCounters::new() }
    }
}

impl TransmitQueue for Modem {
    fn transmit(&mut self, burst: &mut Burst) -> usize {
        let mut delivered = self.delivered.lock().expect("a list");
        let count = burst.len();
        for packet in burst.drain() {
            let seen = delivered.see(packet.data(), &self.offer, &mut self.expected);
            if let Err(what) = seen
                && delivered.wrong.len() < 10
            {
                delivered.wrong.push(what);
            }
        }
        self.counters.packets().add(count as u64);
        count
    }

    queue_report!(always running, counters);
}
