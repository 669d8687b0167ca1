//! The time that a thread has had on CPUs.

use std::time::Duration;

/// Of a thread of this process that runs now, by the number that the system gives it (gettid(2)). `None` if there is none.
///
/// Its clock is exact at any moment, also while it runs: what `/proc` shows is as old as the last timer tick.
pub fn of_thread(thread: u32) -> Option<Duration> {
    // CPUCLOCK_SCHED and CPUCLOCK_PERTHREAD of Linux, include/linux/posix-timers_types.h: the clock of a thread has its number, inverted,
    // above three bits. pthread_getcpuclockid(3) makes the same of a pthread_t.
    let clock = i32::try_from(thread).ok().and_then(|thread| (!thread).checked_mul(8))? | 6;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes to a timespec that lives across the call; a clock that doesn't exist is an error.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).ok().filter(|_| result == 0)?;
    Some(Duration::new(seconds, u32::try_from(time.tv_nsec).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, mpsc};
    use std::thread;

    #[test]
    fn a_thread_that_works_has_some_and_one_that_is_gone_none() {
        let stop = Arc::new(AtomicBool::new(false));
        let (send, numbers) = mpsc::channel();
        let worker = {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                send.send(crate::affinity::current_thread()).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let number = numbers.recv().unwrap();
        while of_thread(number).unwrap() < Duration::from_millis(5) {
            thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        worker.join().unwrap();
        // A thread is joined as soon as it has left its memory, a moment before the kernel forgets its number.
        while of_thread(number).is_some() {
            thread::yield_now();
        }
    }
}
