//! What lanes run.

use crate::graph::Graph;
use crate::wake_ups::{WakeUps, sleep_all};
use std::sync::Arc;

/// What one poll of a task did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// It did something, and took in or made this many packets.
    Worked(usize),
    /// There was nothing to do.
    Idle,
    /// There will never be anything to do again.
    Finished,
}

/// Why a task broke.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .reasons.join("; "))]
pub struct TaskFailed {
    /// What broke, a sentence each.
    pub reasons: Vec<String>,
}

/// What a lane polls, over and over. The usual one is a [`Pipeline`](crate::Pipeline).
pub trait Task: Send {
    /// Does a bounded piece of work, some bursts at most, and returns; never blocks.
    fn poll(&mut self) -> Poll;

    /// Called when the last polls found nothing, so that the lane would rather sleep. The task notes what is to wake the lane, then looks
    /// for work that has come meanwhile, and calls `then`, which sleeps. If something can't wake the lane, or work has come, it returns
    /// without calling `then`; the lane goes on polling, with pauses.
    fn sleep(&mut self, wake_ups: WakeUps<'_>, then: &mut dyn FnMut(WakeUps<'_>)) {
        let _ = (wake_ups, then);
    }

    /// Asks the task to come to an end: to take in nothing new, to bring out what is under way, and then to return [`Poll::Finished`]. Until
    /// then it is polled.
    fn stop(&mut self);

    /// Called once, at the very end, on the lane itself: to flush, and to free what is held.
    ///
    /// # Errors
    /// [`TaskFailed`], if a part of the task broke on the way, such as a port whose interface went away.
    fn finish(&mut self) -> Result<(), TaskFailed> {
        Ok(())
    }

    /// The graphs of the pipelines that the task is made of, if any.
    fn graphs(&self) -> Vec<Arc<Graph>> {
        Vec::new()
    }
}

impl<T: Task + ?Sized> Task for Box<T> {
    fn poll(&mut self) -> Poll {
        (**self).poll()
    }

    fn sleep(&mut self, wake_ups: WakeUps<'_>, then: &mut dyn FnMut(WakeUps<'_>)) {
        (**self).sleep(wake_ups, then);
    }

    fn stop(&mut self) {
        (**self).stop();
    }

    fn finish(&mut self) -> Result<(), TaskFailed> {
        (**self).finish()
    }

    fn graphs(&self) -> Vec<Arc<Graph>> {
        (**self).graphs()
    }
}

/// Several tasks on one lane, polled in turn.
impl<T: Task> Task for Vec<T> {
    fn poll(&mut self) -> Poll {
        let (mut packets, mut worked, mut finished) = (0, false, true);
        for task in self {
            match task.poll() {
                Poll::Worked(count) => {
                    packets += count;
                    worked = true;
                    finished = false;
                }
                Poll::Idle => finished = false,
                Poll::Finished => {}
            }
        }
        match (worked, finished) {
            (true, _) => Poll::Worked(packets),
            (false, true) => Poll::Finished,
            (false, false) => Poll::Idle,
        }
    }

    fn sleep(&mut self, wake_ups: WakeUps<'_>, then: &mut dyn FnMut(WakeUps<'_>)) {
        sleep_all(self, T::sleep, wake_ups, then);
    }

    fn stop(&mut self) {
        self.iter_mut().for_each(T::stop);
    }

    fn finish(&mut self) -> Result<(), TaskFailed> {
        let failed = self.iter_mut().filter_map(|task| task.finish().err());
        let reasons: Vec<String> = failed.flat_map(|failed| failed.reasons).collect();
        if reasons.is_empty() { Ok(()) } else { Err(TaskFailed { reasons }) }
    }

    fn graphs(&self) -> Vec<Arc<Graph>> {
        self.iter().flat_map(T::graphs).collect()
    }
}
