//! CPUs that never sleep while they are measured.
//!
//! A virtual CPU that has nothing to do is taken off its core, and comes back on the one that the host finds best for who
//! woke it: mostly close to the waker. Programs wake their second lane in different ways, and in the rounds of one the two
//! CPUs were neighbours, in the rounds of the other they were not, turn after turn, with nothing to see of it in the hops
//! between the rounds. A thread that spins on each CPU whenever nobody else wants it keeps them where they are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use warmlane_sys::affinity::{self, AffinityError};
use warmlane_sys::clock::{self, Clock};

const SPIN: u8 = 0;
const REST: u8 = 1;
const END: u8 = 2;

/// Nanoseconds from the request for rest to it: time for the lanes that are to have the CPUs to start.
const HANDOVER: u64 = 1_000_000;

/// What the threads are to do.
#[derive(Debug, Default)]
struct Command {
    state: AtomicU8,
    /// When rest begins, by the time-stamp counter. A thread may get to know of the request only when the work is done and
    /// its CPU is free: if it took its time from then on, the work's end would wait for it.
    rest: AtomicU64,
}

/// Keeps CPUs awake until it is dropped.
#[derive(Debug)]
pub struct Awake {
    command: Arc<Command>,
    threads: Vec<JoinHandle<()>>,
}

impl Awake {
    /// Starts one thread for each CPU, behind all others that want it.
    ///
    /// # Errors
    /// [`AffinityError`], if this process may not use one of the CPUs.
    pub fn start(cpus: &[usize]) -> Result<Self, AffinityError> {
        let mut awake = Self { command: Arc::default(), threads: Vec::new() };
        for &cpu in cpus {
            let (ready, answer) = std::sync::mpsc::channel();
            let command = Arc::clone(&awake.command);
            awake.threads.push(thread::spawn(move || {
                let result =
                    affinity::pin_current_thread(cpu).and_then(|()| affinity::run_current_thread_when_idle());
                let refused = result.is_err();
                if ready.send(result).is_ok() && !refused {
                    keep_awake(&command);
                }
            }));
            // A thread that fails without an answer keeps nothing awake, which the steadiness of the hops will tell.
            answer.recv().unwrap_or(Ok(()))?;
        }
        Ok(awake)
    }

    /// Rests while `work` keeps the CPUs busy by itself: also a thread behind all others gets a little time of a CPU, and
    /// whole ticks at once.
    pub fn paused_during<R>(&self, work: impl FnOnce() -> R) -> R {
        let rest = clock::cycles() + Clock::calibrated().cycles_for(HANDOVER);
        self.command.rest.store(rest, Ordering::Relaxed);
        self.command.state.store(REST, Ordering::Relaxed);
        let result = work();
        self.tell(SPIN);
        result
    }

    fn tell(&self, state: u8) {
        self.command.state.store(state, Ordering::Relaxed);
        self.threads.iter().for_each(|thread| thread.thread().unpark());
    }
}

fn keep_awake(command: &Command) {
    loop {
        match command.state.load(Ordering::Relaxed) {
            SPIN => std::hint::spin_loop(),
            REST => {
                while clock::cycles() < command.rest.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                while command.state.load(Ordering::Relaxed) == REST {
                    thread::park();
                }
            }
            _ => return,
        }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.tell(END);
        for thread in self.threads.drain(..) {
            // A panic in there was printed there.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};
    use warmlane_testkit::promise::Watch;

    #[test]
    fn others_hardly_notice() {
        let cpu = affinity::allowed_cpus().unwrap()[0];
        let awake = Awake::start(&[cpu]).unwrap();
        let work = || {
            let start = Instant::now();
            (0..2_000_000_u64).for_each(|number| {
                std::hint::black_box(number);
            });
            start.elapsed()
        };
        assert_eq!(awake.paused_during(|| 7), 7);
        thread::spawn(move || {
            affinity::pin_current_thread(cpu).unwrap();
            let watch = Watch::start();
            let least = (0..5).map(|_| work()).min().unwrap_or_default();
            watch.check(least < Duration::from_secs(1), || format!("work of milliseconds took {least:?}"));
        })
        .join()
        .unwrap();
        let command = Arc::clone(&awake.command);
        drop(awake);
        assert_eq!(Arc::strong_count(&command), 1, "the threads have ended");
    }

    #[test]
    fn a_cpu_that_is_not_there_is_told() {
        assert!(Awake::start(&[100_000]).is_err());
    }
}
