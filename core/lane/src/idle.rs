//! What a lane does when there is nothing to do.
//!
//! It polls on for a while, as the next packet may come at once. Then it sleeps until something wakes it. How long it polls is learned
//! from the gaps between packets: where the next one usually comes soon, sleeping would cost more than it saves; where it
//! doesn't, polling is in vain.

use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use warmlane_mem::LaneThread;
use warmlane_sync::spin::relax;
use warmlane_sys::clock::{self, Clock};

use crate::counters::LaneCounters;
use crate::task::Task;
use crate::wake_ups::WakeUps;

/// How a lane waits for work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdlePolicy {
    /// Polls on. The lowest latency, at the price of a whole core.
    Spin,
    /// Polls on for two seconds after the last packet, and lets other threads of its CPU run. Only then it sleeps.
    Latency,
    /// Polls on as long as packets come at short intervals (50 microseconds), else sleeps after 5.
    #[default]
    Balanced,
    /// Sleeps as soon as there is nothing to do.
    Power,
    /// Balanced, if a sleeper is usually woken within this time on this machine; else as for latency.
    WakeWithin(Duration),
}

/// What a policy comes to. Times are in cycles.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// How long it polls where packets come at short intervals, and where they don't.
    often: u64,
    seldom: u64,
    /// The longest pause between two polls of what can't wake it.
    pause: Duration,
    /// The longest sleep: interfaces that went away don't always tell, nor do those that came.
    sleep: Duration,
}

/// Pauses between polls begin here, and each is longer by as much.
const PAUSE_STEP: Duration = Duration::from_micros(2);

/// Polls on end, after which a lane that keeps its CPU for long lets others run.
const POLLS_PER_YIELD: u32 = 200;

/// A gap between packets counts for one eighth of what is learned.
const LEARNED_BITS: u32 = 3;

impl IdlePolicy {
    fn limits(self) -> Option<Limits> {
        let cycles = |time: Duration| Clock::calibrated().cycles_for(time.as_nanos() as u64);
        let (micros, millis) = (Duration::from_micros, Duration::from_millis);
        let limits = |often, seldom, pause, sleep| {
            Some(Limits { often: cycles(often), seldom: cycles(seldom), pause, sleep })
        };
        match self {
            Self::Spin => None,
            Self::Latency => limits(millis(2_000), millis(2_000), micros(20), millis(100)),
            Self::Balanced => limits(micros(50), micros(5), micros(200), millis(100)),
            Self::Power => limits(Duration::ZERO, Duration::ZERO, millis(1), millis(500)),
            Self::WakeWithin(bound) if bound < wake_up_time() => Self::Latency.limits(),
            Self::WakeWithin(bound) => {
                Self::Balanced.limits().map(|limits| Limits { pause: limits.pause.min(bound), ..limits })
            }
        }
    }
}

/// How long it takes on this machine until a thread runs that is woken from its sleep: the median of some tries, measured once.
pub fn wake_up_time() -> Duration {
    static MEASURED: OnceLock<Duration> = OnceLock::new();
    *MEASURED.get_or_init(|| {
        const ASLEEP: Duration = Duration::from_millis(1);
        let mut late: Vec<Duration> = (0..9)
            .map(|_| {
                let start = Instant::now();
                std::thread::sleep(ASLEEP);
                start.elapsed().saturating_sub(ASLEEP)
            })
            .collect();
        late.sort_unstable();
        late[late.len() / 2]
    })
}

/// Waits after empty polls.
#[derive(Debug)]
pub(crate) struct Idle {
    /// `None`: it spins.
    limits: Option<Limits>,
    /// When the first of the empty polls was, in cycles; `None` after one that found something.
    since: Option<u64>,
    /// What is learned of the gaps between packets, in cycles.
    gap: u64,
    /// They come at short intervals.
    often: bool,
    polls: u32,
    pauses: u32,
}

impl Idle {
    pub(crate) fn new(policy: IdlePolicy) -> Self {
        if policy != IdlePolicy::Spin {
            // The kernel may wake sleepers up to 50 microseconds late, to wake several at once. If it can't be told, it does.
            let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        }
        Self { limits: policy.limits(), since: None, gap: 0, often: true, polls: 0, pauses: 0 }
    }

    /// A poll found something, `now` in cycles.
    #[inline]
    pub(crate) fn worked(&mut self, now: u64) {
        if let Some(since) = self.since.take() {
            self.learn(now.saturating_sub(since));
        }
    }

    #[cold]
    fn learn(&mut self, gap: u64) {
        let Some(limits) = &self.limits else { return };
        // A long gap says no more than that it was long, and is not to be remembered for as many short ones.
        let gap = gap.min(limits.often.saturating_mul(4));
        self.gap = self.gap - (self.gap >> LEARNED_BITS) + (gap >> LEARNED_BITS);
        // Not back at once: a gap in between those that are short and those that are long changes nothing.
        self.often = if self.often { self.gap <= limits.often } else { self.gap <= limits.often / 2 };
        (self.polls, self.pauses) = (0, 0);
    }

    /// A poll found nothing, `now` in cycles.
    pub(crate) fn wait(
        &mut self,
        now: u64,
        task: &mut impl Task,
        lane: &LaneThread,
        stopped: Option<BorrowedFd<'_>>,
        counters: &LaneCounters,
    ) {
        // Another lane may be waiting for what this one keeps in reserve.
        lane.idle();
        let Some(limits) = self.limits else { return relax() };
        let since = *self.since.get_or_insert(now);
        let patience = if self.often { limits.often } else { limits.seldom };
        if now.saturating_sub(since) < patience {
            self.polls += 1;
            if self.polls.is_multiple_of(POLLS_PER_YIELD) {
                return std::thread::yield_now();
            }
            return relax();
        }
        if let Some(stopped) = stopped {
            let mut wake_ups = WakeUps::new();
            wake_ups.readable(stopped);
            let mut slept = false;
            task.sleep(wake_ups, &mut |wake_ups| {
                lane.sleep();
                slept = true;
                counters.sleeps().add(1);
                if wake_ups.wait(clock::cycles(), limits.sleep) {
                    counters.wake_ups().add(1);
                }
            });
            if slept {
                return;
            }
        }
        self.pauses = self.pauses.saturating_add(1);
        std::thread::sleep((PAUSE_STEP * self.pauses.min(1_000)).min(limits.pause));
    }
}
