//! The choice of how a lane waits, and the times that it comes to.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use warmlane_sys::clock::Clock;

/// How a lane waits for work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdlePolicy {
    /// Polls on. The lowest latency, at the price of a whole core.
    Spin,
    /// Polls on for two seconds after the last packet, with rests of a microsecond where the processor has an instruction for them,
    /// and lets other threads of its CPU run. Only then it sleeps.
    Latency,
    /// By how far apart packets are: polls on (up to 5 microseconds), naps for 50 microseconds (up to 50), or sleeps until the next one
    /// comes.
    #[default]
    Balanced,
    /// The same, with naps of 100 microseconds for packets up to 200 apart, and without polling before a sleep.
    Power,
    /// Balanced, with naps that are no longer than this time allows, if a sleeper is usually woken within it on this machine; else as for
    /// latency.
    WakeWithin(Duration),
}

/// What a policy comes to. Times are in cycles, where they aren't durations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Packets that come at shorter intervals than this are polled for, those up to `apart` are found by naps, and those beyond wake
    /// the lane.
    pub(super) close: u64,
    pub(super) apart: u64,
    /// How long it polls on where packets come close together, and where they don't.
    pub(super) often: u64,
    pub(super) seldom: u64,
    pub(super) nap: Duration,
    /// The longest pause between two polls of what can't wake it.
    pub(super) pause: Duration,
    /// The longest sleep: interfaces that went away don't always tell.
    pub(super) sleep: Duration,
}

impl IdlePolicy {
    /// `None`: it spins.
    pub(super) fn limits(self) -> Option<Limits> {
        let cycles = |time: Duration| Clock::calibrated().cycles_for(time.as_nanos() as u64);
        let (micros, millis) = (Duration::from_micros, Duration::from_millis);
        Some(match self {
            Self::Spin => return None,
            Self::Latency => Limits {
                close: u64::MAX,
                apart: u64::MAX,
                often: cycles(millis(2_000)),
                seldom: cycles(millis(2_000)),
                nap: Duration::ZERO,
                pause: micros(20),
                sleep: millis(100),
            },
            Self::Balanced => Limits {
                close: cycles(micros(5)),
                apart: cycles(micros(50)),
                often: cycles(micros(50)),
                seldom: cycles(micros(5)),
                nap: micros(50),
                pause: micros(200),
                sleep: millis(100),
            },
            Self::Power => Limits {
                close: cycles(micros(2)),
                apart: cycles(micros(200)),
                often: cycles(micros(5)),
                seldom: 0,
                nap: micros(100),
                pause: millis(1),
                sleep: millis(500),
            },
            Self::WakeWithin(bound) if bound < wake_up_time() => return Self::Latency.limits(),
            Self::WakeWithin(bound) => {
                let balanced = Self::Balanced.limits()?;
                let nap = balanced.nap.min(bound.saturating_sub(wake_up_time()));
                // Naps that are shorter than packets are apart would find nothing.
                let apart = balanced.apart.min(cycles(nap)).max(balanced.close);
                Limits { nap, apart, pause: balanced.pause.min(bound), ..balanced }
            }
        })
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
