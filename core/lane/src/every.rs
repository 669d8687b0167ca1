//! A stage that is called by the clock.

use crate::inner::as_inner_stage;
use crate::outputs::Outputs;
use crate::stage::{PassThrough, Stage};
use crate::wake_ups::WakeUps;
use std::any::Any;
use std::time::Duration;
use warmlane_mem::Burst;
use warmlane_sys::clock::Clock;

/// A stage that lets all packets pass and calls `action` about every `period`.
pub fn every(period: Duration, mut action: impl FnMut() + Send) -> impl Stage {
    PassThrough.every(period, move |_, _| action())
}

/// See [`Stage::every`].
#[derive(Debug)]
pub struct Every<S, F> {
    stage: S,
    action: F,
    /// In cycles.
    period: u64,
    /// When the action is due, in cycles; `None` before the first poll.
    next: Option<u64>,
}

impl<S, F> Every<S, F> {
    pub(crate) fn new(stage: S, period: Duration, action: F) -> Self {
        let nanoseconds = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        let period = Clock::calibrated().cycles_for(nanoseconds).max(1);
        Every { stage, action, period, next: None }
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: Stage, F: FnMut(&mut S, &mut Outputs<'_>) + Send> Stage for Every<S, F> {
    #[inline]
    fn process(&mut self, burst: &mut Burst, outputs: &mut Outputs<'_>) {
        self.stage.process(burst, outputs);
    }

    fn is_polled(&self) -> bool {
        true
    }

    #[inline]
    fn poll(&mut self, now: u64, burst: &mut Burst, outputs: &mut Outputs<'_>) -> usize {
        let made = if self.stage.is_polled() { self.stage.poll(now, burst, outputs) } else { 0 };
        match self.next {
            Some(next) if now < next => {}
            next => {
                // Counted from now: after a pause the action is not made up for.
                self.next = Some(now.saturating_add(self.period));
                if next.is_some() {
                    (self.action)(&mut self.stage, outputs);
                }
            }
        }
        made
    }

    fn sleep(&mut self, mut wake_ups: WakeUps<'_>, then: &mut dyn FnMut(WakeUps<'_>)) {
        if let Some(next) = self.next {
            wake_ups.by(next);
            self.stage.sleep(wake_ups, then);
        }
    }

    as_inner_stage!(shape, process_input, idle, stop, is_done, finish, counters, explain, rehearse, every);

    fn as_any(&mut self) -> Option<&mut dyn Any> {
        None
    }
}
