//! One trial: send for a while, wait for the last packets, compare.

use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;
use warmlane_lane::{IdlePolicy, LaneConfig, LaneError, Lanes, Poll, Task};
use warmlane_mem::Pool;
use warmlane_port::{QueueCounters, ReceiveQueue, TransmitQueue};
use warmlane_sys::clock::Clock;

use crate::datapath::{
    Pattern, Plan, ReceiveOrder, ReceiveOrders, ReceiveProgress, ReceiveReport, Receiver, TrackConfig,
    TransmitOrder, TransmitOrders, TransmitReport, Transmitter,
};
use crate::result::{Sample, TrialResult};

/// How a trial goes.
#[derive(Clone, Debug)]
pub struct TrialConfig {
    /// The packets.
    pub plan: Arc<Plan>,
    /// When they leave.
    pub pattern: Pattern,
    /// Packets a second, for patterns that have a rate.
    pub packets_per_second: f64,
    /// How long to send.
    pub duration: Duration,
    /// Packets after which to end, if that comes first.
    pub count: Option<u64>,
    /// Packets that are handed to the port at once, at most; 1 to 256.
    pub burst: usize,
    /// Delays of the sending lane that are made up for by sending faster. Packets that were due longer ago are not sent,
    /// and counted as unsent: a burst of them would not be the traffic that was asked for.
    pub patience: Duration,
    /// How long to wait for packets under way after the last was sent (RFC 2544 section 23 wants 2 seconds).
    pub drain: Duration,
    /// Latency from which on a packet is late.
    pub late_after: Duration,
    /// The part of the offered packets that may be unsent; with more the trial is void.
    pub tolerance: f64,
    /// Whether checksums of arriving packets are checked, not only their signature.
    pub check_packets: bool,
    /// Where random numbers start.
    pub seed: u64,
}

impl TrialConfig {
    /// Ten seconds of `plan`, as fast as can be.
    pub fn new(plan: Arc<Plan>) -> Self {
        Self {
            plan,
            pattern: Pattern::Unpaced,
            packets_per_second: 0.0,
            duration: Duration::from_secs(10),
            count: None,
            burst: 64,
            patience: Duration::from_millis(1),
            drain: Duration::from_secs(2),
            late_after: Duration::from_secs(1),
            tolerance: 0.001,
            check_packets: true,
            seed: 1,
        }
    }
}

/// Why there is no result.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TrialError {
    /// A frame that no buffer holds.
    #[error("frames of {length} bytes don't fit buffers of {room}: give the pool more room")]
    FrameTooLong {
        /// The longest frame's bytes, rounded up to whole cache lines.
        length: usize,
        /// Bytes in a buffer.
        room: usize,
    },
    /// A lane has ended or hangs.
    #[error("the {lane} lane doesn't answer: it ended, or its port hangs")]
    NoAnswer {
        /// Which.
        lane: &'static str,
    },
}

/// A sending and a receiving lane that run one trial after the other.
pub struct Tester {
    transmit: Arc<TransmitOrders>,
    transmit_counters: Arc<QueueCounters>,
    receive: Option<(Arc<ReceiveOrders>, Arc<ReceiveProgress>)>,
    lanes: Lanes,
    trials: u8,
    room: usize,
}

/// How often progress is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// How often it is noted.
const SAMPLE: Duration = Duration::from_millis(100);
/// How long a lane may take to answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Sequence numbers that are remembered, of all streams together.
const MEMORY_BITS: usize = 1 << 29;

impl Tester {
    /// Starts the lanes: two if there are two CPUs in `cpus`, else one that sends and receives in turn.
    ///
    /// # Errors
    /// [`LaneError`], if a lane can't be started.
    pub fn start(
        transmit: Box<dyn TransmitQueue>,
        receive: Vec<Box<dyn ReceiveQueue>>,
        pool: &Pool,
        cpus: &[usize],
    ) -> Result<Self, LaneError> {
        let transmit_counters = Arc::clone(transmit.counters());
        let transmit_orders = Arc::new(TransmitOrders::default());
        let sender = Transmitter::new(transmit, pool.clone(), Arc::clone(&transmit_orders));
        let mut lanes = Lanes::new();
        let lane = |name: &str, cpu: Option<usize>| LaneConfig {
            name: name.to_owned(),
            cpu,
            idle: IdlePolicy::Spin,
            pools: vec![pool.clone()],
        };
        let mut receive_side = None;
        if receive.is_empty() {
            lanes.spawn(lane("transmit", cpus.first().copied()), sender)?;
        } else {
            let orders = Arc::new(ReceiveOrders::default());
            let progress = Arc::new(ReceiveProgress::default());
            let receiver = Receiver::new(receive, Arc::clone(&orders), Arc::clone(&progress));
            receive_side = Some((orders, progress));
            if let [first, second, ..] = cpus {
                lanes.spawn(lane("transmit", Some(*first)), sender)?;
                lanes.spawn(lane("receive", Some(*second)), receiver)?;
            } else {
                let both = Both { sender, receiver };
                lanes.spawn(lane("transmit and receive", cpus.first().copied()), both)?;
            }
        }
        Ok(Self {
            transmit: transmit_orders,
            transmit_counters,
            receive: receive_side,
            lanes,
            trials: 0,
            room: pool.room(),
        })
    }

    /// Whether there is a receiving side.
    pub const fn receives(&self) -> bool {
        self.receive.is_some()
    }

    /// Runs a trial. `progress` is called ten times a second; when it returns `false`, the trial ends early.
    ///
    /// # Errors
    /// [`TrialError`]. A trial that went wrong in another way gives a result that is void and says why.
    pub fn run(
        &mut self,
        config: &TrialConfig,
        progress: &mut dyn FnMut(&Sample) -> bool,
    ) -> Result<TrialResult, TrialError> {
        let length = config.plan.longest().next_multiple_of(warmlane_mem::LINE_BYTES);
        if length > self.room {
            return Err(TrialError::FrameTooLong { length, room: self.room });
        }
        self.trials = self.trials.wrapping_add(1);
        let clock = Clock::calibrated();
        let cycles = |time: Duration| clock.cycles_for(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        if let Some((orders, _)) = &self.receive {
            orders.give(self.receive_order(config, cycles(config.late_after)));
            wait("receive", || orders.is_taken().then_some(()))?;
        }
        let received_before = self.received();
        let sent_before = self.transmit_counters.packets.get();
        self.transmit.give(TransmitOrder {
            plan: Arc::clone(&config.plan),
            trial: self.trials,
            pattern: config.pattern.clone(),
            packets_per_cycle: config.packets_per_second / clock.cycles_per_second() as f64,
            duration: cycles(config.duration),
            count: config.count.unwrap_or(u64::MAX),
            burst: config.burst,
            patience: cycles(config.patience),
            seed: config.seed,
        });
        let mut samples = Vec::new();
        let sent = self.watch(config, (sent_before, received_before), &mut samples, progress)?;
        self.drain(config, sent.sent, received_before);
        let received = self.receive.as_ref().map(|(orders, _)| {
            orders.end();
            wait("receive", || orders.report())
        });
        Ok(TrialResult::new(config, &sent, received.transpose()?.as_ref(), samples, clock))
    }

    fn receive_order(&self, config: &TrialConfig, late_after: u64) -> ReceiveOrder {
        let streams = config.plan.streams();
        // A fixed memory for all streams together: each remembers as much as its share of it, up to 65,536 packets.
        let words = (MEMORY_BITS / streams.max(1) / 64).clamp(16, 1024);
        let words = 1 << words.ilog2();
        let latency_bits = match streams {
            0..=256 => Some(7),
            257..=4096 => Some(5),
            _ => None,
        };
        ReceiveOrder {
            trial: self.trials,
            streams,
            signed: config.plan.is_signed(),
            check_packets: config.check_packets,
            track: TrackConfig { words, latency_bits, late_after },
        }
    }

    fn received(&self) -> u64 {
        self.receive.as_ref().map_or(0, |(_, progress)| progress.packets.get())
    }

    /// Waits until everything is sent.
    fn watch(
        &self,
        config: &TrialConfig,
        before: (u64, u64),
        samples: &mut Vec<Sample>,
        progress: &mut dyn FnMut(&Sample) -> bool,
    ) -> Result<TransmitReport, TrialError> {
        let begin = Instant::now();
        let patience = config.duration.saturating_add(config.patience).saturating_add(ANSWER);
        let mut last = Duration::ZERO;
        loop {
            if let Some(report) = self.transmit.report() {
                return Ok(report);
            }
            std::thread::sleep(LOOK.min(config.duration / 4).max(Duration::from_micros(100)));
            let elapsed = begin.elapsed();
            if self.lanes.are_finished() || elapsed > patience {
                return Err(TrialError::NoAnswer { lane: "transmit" });
            }
            if elapsed < last + SAMPLE {
                continue;
            }
            last = elapsed;
            let sample = Sample {
                seconds: elapsed.as_secs_f64(),
                sent: self.transmit_counters.packets.get() - before.0,
                received: self.received() - before.1,
            };
            samples.push(sample);
            if !progress(&sample) {
                self.transmit.end();
            }
        }
    }

    /// Waits until everything has arrived, or the time is up.
    fn drain(&self, config: &TrialConfig, sent: u64, before: u64) {
        let begin = Instant::now();
        while self.receive.is_some() && begin.elapsed() < config.drain {
            // Duplicates can make up for losses here; a moment longer for stragglers shows most of them.
            if self.received() - before >= sent {
                std::thread::sleep(LOOK.min(config.drain));
                return;
            }
            std::thread::sleep(Duration::from_millis(1).min(config.drain));
        }
    }
}

/// Waits for an answer of a lane.
fn wait<T>(lane: &'static str, mut answer: impl FnMut() -> Option<T>) -> Result<T, TrialError> {
    let begin = Instant::now();
    while begin.elapsed() < ANSWER {
        if let Some(answer) = answer() {
            return Ok(answer);
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    Err(TrialError::NoAnswer { lane })
}

/// A sender and a receiver that take turns on one lane.
struct Both {
    sender: Transmitter,
    receiver: Receiver,
}

impl Task for Both {
    fn poll(&mut self) -> Poll {
        match (self.sender.poll(), self.receiver.poll()) {
            (Poll::Worked(sent), Poll::Worked(received)) => Poll::Worked(sent + received),
            (Poll::Worked(packets), _) | (_, Poll::Worked(packets)) => Poll::Worked(packets),
            (Poll::Finished, Poll::Finished) => Poll::Finished,
            _ => Poll::Idle,
        }
    }

    fn stop(&mut self) {
        self.sender.stop();
        self.receiver.stop();
    }

    fn finish(&mut self) {
        self.sender.finish();
        self.receiver.finish();
    }
}

/// What the receiving side said, summed up over streams.
pub(crate) fn intact(report: &ReceiveReport) -> u64 {
    report.unsigned + report.streams.iter().map(|stream| stream.received).sum::<u64>()
}
