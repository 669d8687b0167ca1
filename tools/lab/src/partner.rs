//! The second lane of a measurement.

use crate::measure::Measure;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use warmlane_sync::padded::CachePadded;
use warmlane_sys::affinity;

const STOP: u8 = 0;
const STOPPED: u8 = 1;
const RUN: u8 = 2;
const END: u8 = 3;

/// A pinned thread that repeats one step while it is told to, and sleeps otherwise, so that whoever is measured in
/// turn with this has the CPU to itself. It ends, and is waited for, when this is dropped.
#[derive(Debug)]
pub struct Partner {
    state: Arc<CachePadded<AtomicU8>>,
    thread: Option<JoinHandle<()>>,
}

impl Partner {
    /// Starts a thread on `cpu`, lets it make its step, and leaves it asleep.
    ///
    /// `make` runs on the new thread, so that what it sets up (a lane cache, say) belongs there. The step does a bounded
    /// amount of work, some microseconds at most, and returns also if there is nothing to do.
    ///
    /// # Errors
    /// What `make` says, or why the thread can't run on that CPU.
    pub fn start<S, M>(cpu: usize, make: M) -> Result<Self, String>
    where
        M: FnOnce() -> Result<S, String> + Send + 'static,
        S: FnMut(),
    {
        let state = Arc::new(CachePadded::new(AtomicU8::new(STOP)));
        let (answer, answers) = mpsc::channel();
        let shared = Arc::clone(&state);
        let thread = thread::Builder::new().name("partner".to_owned()).spawn(move || {
            let made =
                affinity::pin_current_thread(cpu).map_err(|error| error.to_string()).and_then(|()| make());
            match made {
                Ok(step) => {
                    // Without a listener `END` will be found at once.
                    let _ = answer.send(Ok(()));
                    drop(answer);
                    run(&shared, step);
                }
                Err(reason) => drop(answer.send(Err(reason))),
            }
        });
        let thread = thread.map_err(|error| error.to_string())?;
        let partner = Self { state, thread: Some(thread) };
        answers.recv().unwrap_or_else(|_| Err("the second lane's thread has failed".to_owned()))?;
        Ok(partner)
    }

    /// Lets it repeat its step from now on.
    pub fn resume(&self) {
        self.state.store(RUN, Ordering::Release);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    /// Returns when it sleeps. Does nothing if it sleeps already.
    pub fn pause(&self) {
        // The thread may only be in `RUN` or asleep: nobody else asks for something.
        if self.state.compare_exchange(RUN, STOP, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return;
        }
        while self.state.load(Ordering::Acquire) == STOP {
            if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
                return;
            }
            thread::yield_now();
        }
    }
}

/// Work of the first lane, and the second one's if there is one, which runs while the first is measured.
struct Beside<W> {
    work: W,
    partner: Option<Partner>,
}

/// Measures `work` while `partner`, if there is one, repeats its step on the second lane.
pub fn beside(partner: impl Into<Option<Partner>>, work: impl FnMut() -> u64 + 'static) -> Box<dyn Measure> {
    Box::new(Beside { work, partner: partner.into() })
}

impl<W: FnMut() -> u64> Measure for Beside<W> {
    fn work(&mut self) -> u64 {
        (self.work)()
    }

    fn begin(&mut self) {
        self.partner.iter().for_each(Partner::resume);
    }

    fn end(&mut self) {
        self.partner.iter().for_each(Partner::pause);
    }
}

fn run(state: &AtomicU8, mut step: impl FnMut()) {
    loop {
        match state.load(Ordering::Acquire) {
            RUN => step(),
            END => return,
            STOP => {
                // Only the answer to a request; one that came in between stays.
                let _ = state.compare_exchange(STOP, STOPPED, Ordering::AcqRel, Ordering::Acquire);
            }
            _ => thread::park(),
        }
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        self.state.store(END, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic in there was printed there.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    #[test]
    fn it_works_only_when_told_to() {
        let cpu = affinity::allowed_cpus().unwrap()[0];
        let steps = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&steps);
        let partner = Partner::start(cpu, move || {
            Ok(move || {
                counter.fetch_add(1, Ordering::Relaxed);
            })
        })
        .unwrap();
        assert_eq!(steps.load(Ordering::Relaxed), 0);
        for _ in 0..3 {
            let before = steps.load(Ordering::Relaxed);
            partner.resume();
            while steps.load(Ordering::Relaxed) == before {
                thread::yield_now();
            }
            partner.pause();
            partner.pause();
            let stopped = steps.load(Ordering::Relaxed);
            thread::sleep(Duration::from_millis(5));
            assert_eq!(steps.load(Ordering::Relaxed), stopped);
        }
        drop(partner);
        assert_eq!(Arc::strong_count(&steps), 1, "the thread has ended");
    }

    #[test]
    fn what_can_t_be_set_up_is_told() {
        let cpu = affinity::allowed_cpus().unwrap()[0];
        let refused = Partner::start(cpu, || Err::<fn(), _>("no memory".to_owned()));
        assert_eq!(refused.unwrap_err(), "no memory");
        assert!(Partner::start(100_000, || Ok(|| ())).is_err());
    }
}
