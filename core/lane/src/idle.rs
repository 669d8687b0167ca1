//! What a lane does when there is nothing to do.
//!
//! It goes down a ladder, each step of which costs less and takes longer to come back from: it polls on with pauses, with rests by an
//! instruction of the processor, naps for a set time, and sleeps until something wakes it. How far it goes depends on how far packets are
//! apart: where the next one usually comes soon, sleeping would cost more than it saves; where it doesn't, polling is in vain.

mod gaps;
mod policy;

use std::os::fd::AsFd as _;
use std::time::Duration;

use warmlane_mem::LaneThread;
use warmlane_sync::spin::relax;
use warmlane_sys::clock::{self, Clock};
use warmlane_sys::event::Event;
use warmlane_sys::priority;
use warmlane_sys::rest::{Instruction, rest};
use warmlane_sys::tracepoints;

use crate::counters::LaneCounters;
use crate::task::Task;
use crate::wake_ups::WakeUps;
use gaps::{Gaps, Pace};
use policy::Limits;
pub use policy::{IdlePolicy, wake_up_time};

/// Pauses between polls of what can't wake the lane begin here, and each is longer by as much.
const PAUSE_STEP: Duration = Duration::from_micros(2);

/// Polls on end, after which a lane that keeps its CPU for long lets others run.
const POLLS_PER_YIELD: u32 = 200;

/// So long it polls with nothing but pauses; then with rests of this length, in nanoseconds.
const REST: u64 = 1_000;

/// Naps in a row that found nothing, after which packets must have become rare.
const NAPS: u32 = 4;

/// What wakes a lane besides what its task waits for.
#[derive(Clone, Copy)]
pub(crate) struct Signals<'a> {
    /// All lanes are to end. It is never cleared.
    pub(crate) stopped: &'a Event,
    /// This one is to look at what was left for it.
    pub(crate) called: &'a Event,
}

/// Waits after empty polls.
#[derive(Debug)]
pub(crate) struct Idle {
    /// `None`: it spins.
    limits: Option<Limits>,
    /// Other lanes run on its CPU.
    shares_cpu: bool,
    /// A rest in cycles; 0 where the processor has no instruction for it.
    rest: u64,
    /// When the first of the empty polls was, in cycles; `None` after one that found something.
    since: Option<u64>,
    gaps: Gaps,
    polls: u32,
    naps: u32,
    pauses: u32,
}

impl Idle {
    pub(crate) fn new(policy: IdlePolicy, shares_cpu: bool) -> Self {
        if policy != IdlePolicy::Spin {
            // The kernel may wake sleepers up to 50 microseconds late, to wake several at once. If it can't be told, it does.
            let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
            // And it may let what else runs on the CPU end its slice first.
            let _ = priority::ask_for_short_slices();
        }
        let rest = match Instruction::best() {
            Instruction::Pause => 0,
            _ => Clock::calibrated().cycles_for(REST),
        };
        Self {
            limits: policy.limits(),
            shares_cpu,
            rest,
            since: None,
            gaps: Gaps::new(),
            polls: 0,
            naps: 0,
            pauses: 0,
        }
    }

    /// A poll found so many packets, `now` in cycles.
    #[inline]
    pub(crate) fn worked(&mut self, now: u64, packets: usize) {
        if let Some(since) = self.since.take() {
            self.learn(now.saturating_sub(since), packets);
        }
    }

    #[cold]
    fn learn(&mut self, waited: u64, packets: usize) {
        if let Some(limits) = &self.limits {
            // What came during a nap came anywhere in it. If there had been several naps, nothing came for all but the last.
            let gap = if self.naps == 1 { waited / packets.max(1) as u64 } else { waited };
            self.gaps.learn(gap, limits);
        }
        (self.polls, self.naps, self.pauses) = (0, 0, 0);
    }

    /// A poll found nothing, `now` in cycles.
    pub(crate) fn wait(
        &mut self,
        now: u64,
        task: &mut impl Task,
        lane: &LaneThread,
        signals: Option<Signals<'_>>,
        counters: &LaneCounters,
    ) {
        // Another lane may be waiting for what this one keeps in reserve.
        lane.idle();
        let Some(limits) = self.limits else { return self.between_polls(0) };
        let waited = now.saturating_sub(*self.since.get_or_insert(now));
        let pace = self.gaps.pace();
        if waited < if pace == Pace::Close { limits.often } else { limits.seldom } {
            return self.between_polls(waited);
        }
        let asleep = clock::cycles();
        let naps = pace == Pace::Apart && self.naps < NAPS;
        if naps {
            self.naps += 1;
        }
        if !Self::sleep(naps.then_some(limits.nap), limits.sleep, task, lane, signals, counters) {
            self.pauses = self.pauses.saturating_add(1);
            tracepoints::lane_sleep(true);
            std::thread::sleep((PAUSE_STEP * self.pauses.min(1_000)).min(limits.pause));
        }
        let cycles = clock::cycles().saturating_sub(asleep);
        tracepoints::lane_wake(cycles);
        counters.asleep_cycles().add(cycles);
    }

    /// Polls on, having found nothing for so many cycles.
    fn between_polls(&mut self, waited: u64) {
        self.polls = self.polls.wrapping_add(1);
        if self.shares_cpu {
            // Another lane can have what this one doesn't use.
            std::thread::yield_now();
        } else if self.limits.is_some() && self.polls.is_multiple_of(POLLS_PER_YIELD) {
            std::thread::yield_now();
        } else if self.rest > 0 && waited > self.rest {
            rest(self.rest);
        } else {
            relax();
        }
    }

    /// Sleeps until something wakes the lane, or for a nap, if all that has to wake it can. Before a nap, too, queues are made ready for what
    /// comes meanwhile.
    fn sleep(
        nap: Option<Duration>,
        limit: Duration,
        task: &mut impl Task,
        lane: &LaneThread,
        signals: Option<Signals<'_>>,
        counters: &LaneCounters,
    ) -> bool {
        let Some(Signals { stopped, called }) = signals else { return false };
        let mut wake_ups = WakeUps::new(called);
        wake_ups.readable(stopped.fd().as_fd());
        let mut slept = false;
        task.sleep(wake_ups, &mut |wake_ups| {
            lane.sleep();
            slept = true;
            tracepoints::lane_sleep(nap.is_some());
            if let Some(nap) = nap {
                counters.naps().add(1);
                return std::thread::sleep(nap);
            }
            counters.sleeps().add(1);
            if wake_ups.wait(clock::cycles(), limit) {
                counters.wake_ups().add(1);
            }
        });
        slept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is learned of packets that all come during one nap is how far apart they are, and not how long the nap was.
    #[test]
    fn a_nap_that_found_many_packets_is_no_long_gap() {
        let mut idle = Idle::new(IdlePolicy::Balanced, false);
        let micros = |count: u64| Clock::calibrated().cycles_for(1_000 * count);
        let mut found = |naps, micro_seconds, packets| {
            for _ in 0..100 {
                (idle.since, idle.naps) = (Some(0), naps);
                idle.worked(micros(micro_seconds), packets);
            }
            idle.gaps.pace()
        };
        assert_eq!(found(0, 20, 1), Pace::Apart);
        assert_eq!(found(1, 60, 3), Pace::Apart);
        assert_eq!(found(1, 60, 60), Pace::Close);
        // As many at a time, but with nothing in between for long.
        assert_eq!(found(NAPS, 1_000, 60), Pace::Rare);
    }

    #[test]
    fn a_bound_shortens_naps_or_forbids_sleep() {
        let limits = |policy: IdlePolicy| policy.limits().expect("it doesn't spin");
        let usual = wake_up_time();
        let tight = limits(IdlePolicy::WakeWithin(Duration::ZERO));
        assert_eq!(tight.often, limits(IdlePolicy::Latency).often);
        let bound = usual + Duration::from_micros(10);
        let within = limits(IdlePolicy::WakeWithin(bound));
        assert_eq!(within.nap, Duration::from_micros(10));
        assert!(within.pause <= bound && within.apart <= limits(IdlePolicy::Balanced).apart);
        let wide = limits(IdlePolicy::WakeWithin(usual + Duration::from_secs(1)));
        assert_eq!((wide.nap, wide.often), (Duration::from_micros(50), limits(IdlePolicy::Balanced).often));
    }
}
