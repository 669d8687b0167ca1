//! What stages take, for whoever asks what packets cost.
//!
//! A [`StageTiming`] is asked for by any thread ([`Graph::time_stages`]). The lane then puts a stage of its own around each of its
//! stages, which reads the clock before and behind one burst, and one poll, in [`TIMED_ONE_IN`]. While nobody asks, there is nothing in
//! the way of packets.

use crate::graph::Graph;
use crate::inner::as_inner_stage;
use crate::outputs::Outputs;
use crate::pipeline::Pipeline;
use crate::probe::Reminder;
use crate::stage::{PassThrough, Stage};
use crate::trace::behind_followers;
use std::any::Any;
use std::fmt;
use std::sync::{Arc, Weak};
use warmlane_counters::counters;
use warmlane_mem::Burst;
use warmlane_sys::clock;

/// Of so many bursts of a stage, one is timed. A prime, so that what goes round in a stage, such as its inputs, has its turn.
pub const TIMED_ONE_IN: u32 = 61;

counters! {
    /// What a stage takes, of the bursts that were timed. Cycles are those of the time-stamp counter.
    pub struct StageTimedCounters => StageTimedCountersView {
        /// Bursts that were timed while somebody asked, one in so many: those that the stage was given, and those that it made.
        bursts: Note, "bursts";
        /// Packets in the bursts that were timed.
        packets: Note, "packets";
        /// Cycles that these bursts took, with what had to leave meanwhile.
        cycles: Note, "cycles";
        /// Timed bursts that took less than 16 cycles a packet.
        below_16: Note, "bursts";
        /// Timed bursts that took less than 32 cycles a packet, and not less than 16.
        below_32: Note, "bursts";
        /// Timed bursts that took less than 64 cycles a packet, and not less than 32.
        below_64: Note, "bursts";
        /// Timed bursts that took less than 128 cycles a packet, and not less than 64.
        below_128: Note, "bursts";
        /// Timed bursts that took less than 256 cycles a packet, and not less than 128.
        below_256: Note, "bursts";
        /// Timed bursts that took less than 512 cycles a packet, and not less than 256.
        below_512: Note, "bursts";
        /// Timed bursts that took less than 1024 cycles a packet, and not less than 512.
        below_1024: Note, "bursts";
        /// Timed bursts that took less than 2048 cycles a packet, and not less than 1024.
        below_2048: Note, "bursts";
        /// Timed bursts that took less than 4096 cycles a packet, and not less than 2048.
        below_4096: Note, "bursts";
        /// Timed bursts that took 4096 cycles a packet or more: the lane was interrupted, or had to wait.
        longer: Note, "bursts";
    }
}

impl StageTimedCountersView {
    /// Cycles of a packet; `None` before the first.
    pub fn cycles_per_packet(&self) -> Option<f64> {
        let packets = self.packets();
        (packets > 0).then(|| self.cycles() as f64 / packets as f64)
    }

    /// How many bursts took fewer cycles a packet than each bound, and not fewer than the bound before; the last has none. What several
    /// stages or lanes counted can be added up.
    pub fn ranges(&self) -> [(u64, u64); 10] {
        [
            (16, self.below_16()),
            (32, self.below_32()),
            (64, self.below_64()),
            (128, self.below_128()),
            (256, self.below_256()),
            (512, self.below_512()),
            (1024, self.below_1024()),
            (2048, self.below_2048()),
            (4096, self.below_4096()),
            (u64::MAX, self.longer()),
        ]
    }
}

/// The stages of a lane are timed as long as this is kept.
pub struct StageTiming {
    /// The lane sees by this whether anybody asks. In front of the reminder: gone when that is.
    _alive: Arc<()>,
    _reminder: Reminder,
}

impl fmt::Debug for StageTiming {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("StageTiming").finish_non_exhaustive()
    }
}

impl StageTiming {
    /// With what the lane is to keep.
    pub(crate) fn new(graph: &Arc<Graph>) -> (Weak<()>, Self) {
        let alive = Arc::new(());
        (Arc::downgrade(&alive), Self { _alive: alive, _reminder: Reminder(Arc::clone(graph)) })
    }
}

/// One that is timed.
struct TimedStage {
    stage: Box<dyn Stage>,
    /// Who asks.
    askers: Vec<Weak<()>>,
    /// Of the bursts that it is given.
    bursts: Countdown,
    /// Of the polls. Most may make nothing; the clock is read for one in so many all the same.
    polls: Countdown,
    counters: StageTimedCounters,
}

/// How many there are until the next one that is timed, itself included.
struct Countdown(u32);

impl Countdown {
    /// When the next one began, if it is timed.
    fn begin(&mut self) -> Option<u64> {
        if self.0 > 1 {
            self.0 -= 1;
            return None;
        }
        self.0 = TIMED_ONE_IN;
        Some(clock::cycles())
    }
}

/// Gives `change` the stage, or what is inside of it while it is timed.
pub(crate) fn behind_timing<T>(
    stage: &mut Box<dyn Stage>,
    change: impl FnOnce(&mut Box<dyn Stage>) -> T,
) -> T {
    if let Some(timed) = stage.as_any().and_then(|any| any.downcast_mut::<TimedStage>()) {
        return change(&mut timed.stage);
    }
    change(stage)
}

impl TimedStage {
    /// Counts a burst that began then, if it was timed.
    fn count(&self, begin: Option<u64>, packets: usize) {
        let Some(begin) = begin else { return };
        let cycles = clock::cycles().saturating_sub(begin);
        self.counters.bursts().add(1);
        self.counters.packets().add(packets as u64);
        self.counters.cycles().add(cycles);
        self.count_range(cycles / (packets as u64).max(1));
    }

    /// Counts a burst where its cycles a packet lie.
    fn count_range(&self, cycles: u64) {
        let counters = &self.counters;
        let range = match cycles {
            0..16 => counters.below_16(),
            16..32 => counters.below_32(),
            32..64 => counters.below_64(),
            64..128 => counters.below_128(),
            128..256 => counters.below_256(),
            256..512 => counters.below_512(),
            512..1024 => counters.below_1024(),
            1024..2048 => counters.below_2048(),
            2048..4096 => counters.below_4096(),
            _ => counters.longer(),
        };
        range.add(1);
    }
}

#[deny(clippy::missing_trait_methods)]
impl Stage for TimedStage {
    fn process(&mut self, burst: &mut Burst, outputs: &mut Outputs<'_>) {
        let (begin, packets) = (self.bursts.begin(), burst.len());
        self.stage.process(burst, outputs);
        self.count(begin, packets);
    }

    fn process_input(&mut self, input: usize, burst: &mut Burst, outputs: &mut Outputs<'_>) {
        let (begin, packets) = (self.bursts.begin(), burst.len());
        self.stage.process_input(input, burst, outputs);
        self.count(begin, packets);
    }

    fn poll(&mut self, now: u64, burst: &mut Burst, outputs: &mut Outputs<'_>) -> usize {
        let begin = self.polls.begin();
        let made = self.stage.poll(now, burst, outputs);
        // One that makes nothing is no burst.
        self.count(begin.filter(|_| made > 0), made);
        made
    }

    as_inner_stage!(shape, is_polled, idle, sleep, stop, is_done, finish, counters, explain, rehearse, every);

    fn as_any(&mut self) -> Option<&mut dyn Any> {
        Some(self)
    }
}

impl Pipeline {
    /// Times all stages for this one, too, and for nobody who has gone.
    pub(crate) fn time_stages(&mut self, asker: Option<&Weak<()>>) {
        for (slot, counters) in self.slots.iter_mut().zip(&mut self.timed) {
            behind_followers(&mut slot.stage, |stage| time_stage(stage, counters, asker));
        }
    }
}

/// Adds one who asks, and removes those who have gone. A stage is wrapped, and has its counters, only while there is one.
fn time_stage(
    stage: &mut Box<dyn Stage>,
    counters: &mut Option<StageTimedCounters>,
    asker: Option<&Weak<()>>,
) {
    if asker.is_some()
        && let Some(counters) = counters.take()
    {
        let inner = std::mem::replace(stage, Box::new(PassThrough));
        let (bursts, polls) = (Countdown(1), Countdown(1));
        *stage = Box::new(TimedStage { stage: inner, askers: Vec::new(), bursts, polls, counters });
    }
    let Some(timed) = stage.as_any().and_then(|any| any.downcast_mut::<TimedStage>()) else { return };
    timed.askers.retain(|asker| asker.strong_count() > 0);
    timed.askers.extend(asker.cloned());
    if timed.askers.is_empty() {
        *counters = Some(std::mem::take(&mut timed.counters));
        let inner = std::mem::replace(&mut timed.stage, Box::new(PassThrough));
        *stage = inner;
    }
}
