//! Lanes that are sent packets at a rate: what they take of their CPU, and what packets wait for them.

use crate::error::LabError;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use warmlane_gen::datapath::Histogram;
use warmlane_lane::{LaneConfig, Lanes, Outputs, Pipeline, Stage};
use warmlane_mem::{Burst, LaneCache, PacketSender, Pool, PoolConfig, channel};
use warmlane_sys::clock::{self, Clock};
use warmlane_sys::cpu_time;

/// Bits of a delay that count: it is known to within a sixteenth.
const BITS: u32 = 4;

/// A packet that is due in more than this is slept for, in nanoseconds: less than a sleeper is late.
const SLEEP_UNTIL: u64 = 500_000;

/// Takes packets in: looks how long each has waited, works on it for some cycles, and frees it.
struct Receive {
    cycles_of_work: u64,
    delays: Histogram,
    result: Arc<Mutex<Histogram>>,
}

impl Stage for Receive {
    fn process(&mut self, burst: &mut Burst, _outputs: &mut Outputs<'_>) {
        for packet in burst.iter() {
            let now = clock::cycles();
            if let Some(sent) = packet.data().first_chunk::<8>() {
                self.delays.record(now.saturating_sub(u64::from_ne_bytes(*sent)));
            }
            while clock::cycles().saturating_sub(now) < self.cycles_of_work {
                std::hint::spin_loop();
            }
        }
        burst.clear();
    }
}

impl Drop for Receive {
    fn drop(&mut self) {
        self.result.lock().unwrap_or_else(PoisonError::into_inner).add(&self.delays);
    }
}

/// One lane and what sends to it.
pub(crate) struct Receiver {
    pub(crate) sender: PacketSender,
    /// Packets that found no space.
    pub(crate) lost: u64,
    pub(crate) sent: u64,
}

/// Some lanes, and the calling thread, which sends to them.
pub(crate) struct Paced {
    lanes: Lanes,
    pub(crate) receivers: Vec<Receiver>,
    delays: Arc<Mutex<Histogram>>,
    pool: Pool,
    _lane: LaneCache,
    burst: Burst,
}

/// What one lane is like, besides its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Packets that wait for it at most, a power of two.
    pub(crate) ring: usize,
    /// What it does with each.
    pub(crate) cycles_of_work: u64,
}

/// What came of it.
pub(crate) struct Ran {
    /// What the lanes had of their CPUs.
    pub(crate) used: Duration,
    pub(crate) elapsed: Duration,
    /// By lane: what it took in.
    pub(crate) received: Vec<u64>,
    /// How long packets waited, in cycles.
    pub(crate) delays: Histogram,
}

impl Paced {
    /// Starts a lane for each of these, all alike.
    pub(crate) fn start(configs: Vec<LaneConfig>, shape: Shape) -> Result<Self, LabError> {
        let packets = (shape.ring * configs.len()).max(1_024) * 2;
        let buffers = u32::try_from(packets).map_err(LabError::setup)?;
        let pool = Pool::new(&PoolConfig { name: "paced".to_owned(), buffers, ..PoolConfig::default() })
            .map_err(LabError::setup)?;
        let lane = pool.attach().map_err(LabError::setup)?;
        let delays = Arc::new(Mutex::new(Histogram::new(BITS)));
        let (mut lanes, mut receivers) = (Lanes::new(), Vec::new());
        for config in configs {
            let (sender, receiver) = channel(shape.ring).map_err(LabError::setup)?;
            let stage = Receive {
                cycles_of_work: shape.cycles_of_work,
                delays: Histogram::new(BITS),
                result: Arc::clone(&delays),
            };
            lanes.spawn(config, Pipeline::sink(receiver, stage)).map_err(LabError::setup)?;
            receivers.push(Receiver { sender, lost: 0, sent: 0 });
        }
        Ok(Self { lanes, receivers, delays, pool, _lane: lane, burst: Burst::new() })
    }

    /// The numbers of the lanes' threads.
    pub(crate) fn threads(&self) -> Vec<u32> {
        self.lanes.views().iter().map(|lane| lane.thread).collect()
    }

    /// Sends so many packets to a lane at once. What finds no space is lost.
    pub(crate) fn send(&mut self, lane: usize, count: usize) -> usize {
        let taken = self.pool.take_burst(&mut self.burst, count);
        let now = clock::cycles().to_ne_bytes();
        for packet in self.burst.iter_mut() {
            // A packet has space for eight bytes.
            let _ = packet.fill(&now);
        }
        let receiver = &mut self.receivers[lane];
        let sent = receiver.sender.send(&mut self.burst);
        self.burst.clear();
        receiver.sent += sent as u64;
        receiver.lost += (taken - sent) as u64;
        sent
    }

    /// Sends one packet after the other to the first lane, at this rate, for this long.
    pub(crate) fn send_at(&mut self, packets_per_second: f64, length: Duration) {
        let clock = Clock::calibrated();
        let (begin, length) = (clock::cycles(), clock.cycles_for(length.as_nanos() as u64));
        // At a rate of 0 there is none before the end.
        let interval = Duration::try_from_secs_f64(1.0 / packets_per_second)
            .map_or(length, |interval| clock.cycles_for(interval.as_nanos() as u64));
        let (mut number, sleep_until) = (1_u64, clock.cycles_for(SLEEP_UNTIL));
        loop {
            let due = number.saturating_mul(interval).min(length);
            loop {
                let left = due.saturating_sub(clock::cycles().saturating_sub(begin));
                if left == 0 {
                    break;
                }
                if left > sleep_until {
                    std::thread::sleep(Duration::from_nanos(clock.nanoseconds(left - sleep_until)));
                } else {
                    std::hint::spin_loop();
                }
            }
            if due >= length {
                return;
            }
            self.send(0, 1);
            number += 1;
        }
    }

    /// Calls `work`, which sends, and says what lanes did meanwhile. Then they end.
    pub(crate) fn run(mut self, work: impl FnOnce(&mut Self)) -> Result<(Ran, Vec<Receiver>), LabError> {
        let threads = self.threads();
        let used = || {
            let of_each = threads.iter().map(|thread| cpu_time::of_thread(*thread));
            of_each.sum::<Option<Duration>>().ok_or_else(|| LabError::setup("a lane has ended"))
        };
        let received = |lanes: &Lanes| -> Vec<u64> {
            lanes.views().iter().map(|lane| lane.counters.packets()).collect()
        };
        let (begin, before, had) = (clock::cycles(), used()?, received(&self.lanes));
        work(&mut self);
        let (now, after, have) = (clock::cycles(), used()?, received(&self.lanes));
        self.lanes.stop();
        self.lanes.join().map_err(LabError::setup)?;
        let delays = self.delays.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let ran = Ran {
            used: after.saturating_sub(before),
            elapsed: Duration::from_nanos(Clock::calibrated().nanoseconds(now.saturating_sub(begin))),
            received: have.iter().zip(had).map(|(have, had)| have - had).collect(),
            delays,
        };
        Ok((ran, self.receivers))
    }
}

impl Ran {
    /// What the lanes had of a CPU, in percent.
    pub(crate) fn percent(&self) -> f64 {
        100.0 * self.used.as_secs_f64() / self.elapsed.as_secs_f64()
    }

    /// So many of a hundred waited less than this, in microseconds; not a number without packets.
    pub(crate) fn delay(&self, part: f64) -> f64 {
        let cycles = self.delays.quantile(part);
        cycles.map_or(f64::NAN, |cycles| Clock::calibrated().nanoseconds(cycles) as f64 / 1e3)
    }

    /// Millions of packets a second, of all lanes.
    pub(crate) fn rate(&self) -> f64 {
        self.received.iter().sum::<u64>() as f64 / self.elapsed.as_secs_f64() / 1e6
    }
}
