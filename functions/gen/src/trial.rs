//! One trial: send for a while, wait for the last packets, compare.

use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;
use warmlane_counters::Registry;
use warmlane_lane::{IdlePolicy, LaneConfig, LaneError, LaneView, Lanes, Node};
use warmlane_mem::Pool;
use warmlane_port::{QueueCountersView, ReceiveQueue, TransmitQueue};
use warmlane_sys::clock::Clock;
use warmlane_sys::priority;

use crate::datapath::{
    Pattern, Plan, ReceiveOrder, ReceiveOrders, ReceiveProgress, Receiver, TrackConfig, TransmitOrder,
    TransmitOrders, TransmitReport,
};
use crate::lane::{ReceivingSide, SendingSide, pipeline};
use crate::result::TrialResult;
use crate::samples::{SAMPLE, Sample, Sampler};

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
    /// How long to leave the device alone before this trial if there was one before, so that its queues are as empty as they
    /// were then (RFC 2544 section 23 wants 5 seconds).
    pub settle: Duration,
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
            settle: Duration::ZERO,
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
    #[error("frames of {length} bytes don't fit buffers of {data_size}: give the pool larger ones")]
    FrameTooLong {
        /// The longest frame's bytes, rounded up to whole cache lines.
        length: usize,
        /// Bytes in a buffer.
        data_size: usize,
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
    transmit_counters: QueueCountersView,
    receive: Option<(Arc<ReceiveOrders>, ReceiveProgress)>,
    lanes: Lanes,
    /// The number of the last trial, which goes round past 0.
    trials: u8,
    has_run: bool,
    data_size: usize,
}

/// How often progress is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// How long a lane may take to answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Sequence numbers that are remembered, of all streams together.
const MEMORY_BITS: usize = 1 << 29;

impl Tester {
    /// Starts the lanes: two if there are two CPUs in `cpus`, else one that sends and receives in turn. They go before
    /// other threads on their CPUs, if this process may ask for that.
    ///
    /// # Errors
    /// [`LaneError`], if a lane can't be started.
    pub fn start(
        transmit: Box<dyn TransmitQueue>,
        receive: Vec<Box<dyn ReceiveQueue>>,
        pool: &Pool,
        cpus: &[usize],
    ) -> Result<Self, LaneError> {
        priority::first_in_line(|| Self::start_lanes(transmit, receive, pool, cpus)).0
    }

    fn start_lanes(
        transmit: Box<dyn TransmitQueue>,
        receive: Vec<Box<dyn ReceiveQueue>>,
        pool: &Pool,
        cpus: &[usize],
    ) -> Result<Self, LaneError> {
        let transmit_counters = transmit.counters();
        let transmit_orders = Arc::new(TransmitOrders::default());
        let orders = Arc::clone(&transmit_orders);
        let sender = SendingSide { queue: transmit, pool: pool.clone(), orders };
        let mut lanes = Lanes::new();
        let lane = |name: &str, cpu: Option<usize>| LaneConfig {
            name: name.to_owned(),
            cpu,
            idle: IdlePolicy::Spin,
            ..LaneConfig::default()
        };
        let mut receive_side = None;
        if receive.is_empty() {
            lanes.spawn(lane("transmit", cpus.first().copied()), pipeline(Some(sender), None)?)?;
        } else {
            let orders = Arc::new(ReceiveOrders::default());
            let receiver = Receiver::new(Arc::clone(&orders));
            receive_side = Some((orders, receiver.progress()));
            let receiver = ReceivingSide { queues: receive, receiver };
            if let [first, second, ..] = cpus {
                lanes.spawn(lane("transmit", Some(*first)), pipeline(Some(sender), None)?)?;
                lanes.spawn(lane("receive", Some(*second)), pipeline(None, Some(receiver))?)?;
            } else {
                let both = pipeline(Some(sender), Some(receiver))?;
                lanes.spawn(lane("transmit and receive", cpus.first().copied()), both)?;
            }
        }
        Ok(Self {
            transmit: transmit_orders,
            transmit_counters,
            receive: receive_side,
            lanes,
            trials: 0,
            has_run: false,
            data_size: pool.data_size(),
        })
    }

    /// Shows what the lanes and their stages count.
    pub fn register(&self, registry: &Registry) {
        self.lanes.register(registry);
    }

    /// The lanes that send and receive.
    pub fn lanes(&self) -> &[LaneView] {
        self.lanes.views()
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
        self.run_with_drops(config, progress, &|| 0)
    }

    /// The same where what is tested says how many packets it has dropped since the trial began: the wait for the last packets ends when all
    /// are accounted for.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_with_drops(
        &mut self,
        config: &TrialConfig,
        progress: &mut dyn FnMut(&Sample) -> bool,
        dropped: &dyn Fn() -> u64,
    ) -> Result<TrialResult, TrialError> {
        let length = config.plan.longest().next_multiple_of(warmlane_mem::LINE_BYTES);
        if length > self.data_size {
            return Err(TrialError::FrameTooLong { length, data_size: self.data_size });
        }
        if self.has_run {
            rest(config.settle, progress);
        }
        self.has_run = true;
        self.trials = next_trial(self.trials);
        let clock = Clock::calibrated();
        let cycles = |time: Duration| clock.cycles_for(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        if let Some((orders, _)) = &self.receive {
            orders.give(self.receive_order(config, cycles(config.late_after)));
            wait("receive", || orders.is_taken().then_some(()))?;
        }
        let before = self.counts();
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
        let mut sampler = Sampler::new();
        let (sent, elapsed) = self.watch(config, &before, &mut sampler, progress)?;
        self.drain(config, sent.sent, before.received, dropped);
        let samples = sampler.finish(&self.sample(elapsed, &before));
        let received = self.receive.as_ref().map(|(orders, _)| {
            orders.end();
            wait("receive", || orders.report())
        });
        let mut result = TrialResult::new(config, &sent, received.transpose()?.as_ref(), samples, clock);
        if let Some(why) = self.receive_failure() {
            result.void.get_or_insert(format!("the receiving port failed: {why}"));
        }
        Ok(result)
    }

    /// Why nothing more can come, if a receive queue broke.
    fn receive_failure(&self) -> Option<String> {
        let mut graphs = self.lanes.views().iter().flat_map(|lane| &lane.graphs);
        graphs.find_map(|graph| {
            let mut failures = graph.failures().into_iter();
            failures.find(|failure| matches!(failure.node, Node::Input(_))).map(|failure| failure.reason)
        })
    }

    fn receive_order(&self, config: &TrialConfig, late_after: u64) -> ReceiveOrder {
        let streams = config.plan.streams();
        // A fixed memory for all streams together: each remembers as much as its share of it, up to 2^21 packets.
        let words = (MEMORY_BITS / streams.max(1) / 64).clamp(16, 1 << 15);
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

    /// What both sides have counted so far.
    fn counts(&self) -> Sample {
        let mut counts = Sample { sent: self.transmit_counters.packets(), ..Sample::default() };
        if let Some((_, progress)) = &self.receive {
            counts.received = progress.counters.packets();
            counts.timed = progress.counters.timed();
            counts.latency = progress.counters.latency();
            counts.worst = progress.slowest.take();
        }
        counts
    }

    /// What they have counted since `before`, in a trial that is so old.
    fn sample(&self, elapsed: Duration, before: &Sample) -> Sample {
        let now = self.counts();
        let clock = Clock::calibrated();
        Sample {
            seconds: elapsed.as_secs_f64(),
            sent: now.sent - before.sent,
            received: now.received - before.received,
            timed: now.timed - before.timed,
            latency: clock.nanoseconds(now.latency - before.latency),
            worst: clock.nanoseconds(now.worst),
        }
    }

    /// Waits until everything is sent; says how long that took.
    fn watch(
        &self,
        config: &TrialConfig,
        before: &Sample,
        sampler: &mut Sampler,
        progress: &mut dyn FnMut(&Sample) -> bool,
    ) -> Result<(TransmitReport, Duration), TrialError> {
        let begin = Instant::now();
        let patience = config.duration.saturating_add(config.patience).saturating_add(ANSWER);
        let mut last = Duration::ZERO;
        loop {
            if let Some(report) = self.transmit.report() {
                return Ok((report, begin.elapsed()));
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
            let sample = self.sample(elapsed, before);
            sampler.look(&sample);
            if !progress(&sample) {
                self.transmit.end();
            }
        }
    }

    fn received(&self) -> u64 {
        self.receive.as_ref().map_or(0, |(_, progress)| progress.counters.packets())
    }

    /// Waits until everything has arrived, intact or not, or was dropped, or the time is up.
    fn drain(&self, config: &TrialConfig, sent: u64, before: u64, dropped: &dyn Fn() -> u64) {
        let begin = Instant::now();
        while self.receive.is_some() && begin.elapsed() < config.drain {
            // A moment longer shows most copies that come behind.
            if self.received() - before + dropped() >= sent {
                std::thread::sleep(LOOK.min(config.drain));
                return;
            }
            std::thread::sleep(Duration::from_millis(1).min(config.drain));
        }
    }
}

/// Lets the device come to rest, unless `progress` wants to end.
fn rest(settle: Duration, progress: &mut dyn FnMut(&Sample) -> bool) {
    let begin = Instant::now();
    while let Some(left) = settle.checked_sub(begin.elapsed()).filter(|left| !left.is_zero()) {
        if !progress(&Sample::default()) {
            return;
        }
        std::thread::sleep(left.min(SAMPLE));
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

/// The number after `last`. 0 is what plans' frames carry before they are sent.
const fn next_trial(last: u8) -> u8 {
    last % u8::MAX + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_trial_has_the_number_of_a_plan() {
        assert_eq!((next_trial(0), next_trial(254), next_trial(255)), (1, 255, 1));
    }
}
