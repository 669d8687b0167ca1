//! Which threads the kernel lets run first.

use std::io;

use rustix::process::{Pid, getpriority_process, setpriority_process};

use crate::scheduling::Attributes;

/// The nice value that goes before all others (`setpriority(2)`).
const FIRST: i32 = -20;

/// Calls `start`; the threads that it starts go before all others of the usual scheduling class, if this process may ask for
/// that (root, or `CAP_SYS_NICE`, or `RLIMIT_NICE`). The calling thread is as it was afterwards. Also says whether it
/// could be done.
///
/// A thread that never sleeps is held up all the same, for a slice, by any other that wants its CPU; but the kernel then
/// gives it hundreds of slices for one of the other. A real-time class would keep kernel threads from running at all.
pub fn first_in_line<T>(start: impl FnOnce() -> T) -> (T, bool) {
    // On Linux a nice value is a thread's, not a process's, and threads inherit it. `None` is the calling thread.
    let usual = getpriority_process(None).unwrap_or(0);
    let raised = setpriority_process(None, FIRST).is_ok();
    let value = start();
    if raised {
        // Lowering one's own priority is always allowed.
        let _ = setpriority_process(None, usual);
    }
    (value, raised)
}

/// Gives a thread this nice value, by the number that the system gives it (gettid(2)). A higher one is always allowed for one's own.
///
/// # Errors
/// The system's.
pub fn set_nice(thread: u32, nice: i32) -> io::Result<()> {
    let thread = i32::try_from(thread).ok().and_then(Pid::from_raw);
    Ok(setpriority_process(Some(thread.ok_or(io::ErrorKind::InvalidInput)?), nice)?)
}

/// The shortest slice that the kernel gives, in nanoseconds.
const SHORT: u64 = 100_000;
/// The classes whose threads share CPUs by weight (sched(7)).
const FAIR: [libc::c_int; 2] = [libc::SCHED_OTHER, libc::SCHED_BATCH];

/// Asks for short slices for the calling thread: it has the same share of its CPU as before, but when it is woken it needn't wait until the slice of a thread
/// with a usual one is over. Kernels before Linux 6.12 take no notice, and threads of other classes than the usual ones have no slices.
///
/// # Errors
/// The system's.
pub fn ask_for_short_slices() -> io::Result<()> {
    let now = Attributes::of(0)?;
    if FAIR.iter().any(|class| u32::try_from(*class) == Ok(now.policy)) {
        Attributes { runtime: SHORT, ..now }.give(0)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skipped::skipped;

    fn nice() -> i32 {
        getpriority_process(None).unwrap()
    }

    #[test]
    fn new_threads_are_first_and_the_caller_is_as_before() {
        let before = nice();
        let (started, raised) = first_in_line(|| std::thread::spawn(nice));
        assert_eq!(started.join().unwrap(), if raised { FIRST } else { before });
        assert_eq!(nice(), before);
    }

    /// Where the kernel tells slices at all, it is told what was asked for, and nothing else changes.
    #[test]
    fn slices_are_short_afterwards() {
        let (before, after) = std::thread::spawn(|| {
            let before = Attributes::of(0).unwrap();
            ask_for_short_slices().unwrap();
            (before, Attributes::of(0).unwrap())
        })
        .join()
        .unwrap();
        assert_eq!((after.policy, after.nice), (before.policy, before.nice));
        if before.runtime == 0 {
            return skipped("this kernel gives all threads the same slices");
        }
        assert_eq!(after.runtime, SHORT);
    }
}
