//! What lanes run.

use warmlane_mem::{Burst, Packet};

/// What one poll of a task came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// It did something, and took in this many packets.
    Worked(usize),
    /// There was nothing to do.
    Idle,
    /// There will never be anything to do again.
    Finished,
}

/// What a lane polls, over and over.
pub trait Task: Send {
    /// Does a bounded piece of work, some bursts at most, and returns; never blocks.
    fn poll(&mut self) -> Poll;

    /// Asks the task to come to an end: take nothing new in, bring what is under way out, then say
    /// [`Poll::Finished`]. It is polled on until it does.
    fn stop(&mut self);

    /// Called once, last, on the lane itself: flush, give back.
    fn finish(&mut self) {}
}

impl<T: Task + ?Sized> Task for Box<T> {
    fn poll(&mut self) -> Poll {
        (**self).poll()
    }

    fn stop(&mut self) {
        (**self).stop();
    }

    fn finish(&mut self) {
        (**self).finish();
    }
}

/// Code that takes a burst and passes it on: it changes packets in place, and drops them by removing them.
///
/// Every `FnMut(&mut Burst)` is a stage, and so is a pair of stages, one after the other.
pub trait Stage: Send {
    /// Works on one burst, which is never empty.
    fn process(&mut self, burst: &mut Burst);
}

impl<F: FnMut(&mut Burst) + Send> Stage for F {
    #[inline]
    fn process(&mut self, burst: &mut Burst) {
        self(burst);
    }
}

impl<A: Stage, B: Stage> Stage for (A, B) {
    #[inline]
    fn process(&mut self, burst: &mut Burst) {
        self.0.process(burst);
        if !burst.is_empty() {
            self.1.process(burst);
        }
    }
}

/// The stage that does nothing: a wire between two ports.
#[derive(Clone, Copy, Debug, Default)]
pub struct PassThrough;

impl Stage for PassThrough {
    fn process(&mut self, _burst: &mut Burst) {}
}

/// A stage from code that looks at one packet at a time and says whether to keep it.
pub fn per_packet(mut keep: impl FnMut(&mut Packet) -> bool + Send) -> impl Stage {
    move |burst: &mut Burst| burst.retain(&mut keep)
}
