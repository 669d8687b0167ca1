//! Which threads the kernel lets run first.

/// The nice value that goes before all others (`setpriority(2)`).
const FIRST: libc::c_int = -20;

/// Calls `start`; the threads that it starts go before all others of the usual scheduling class, if this process may ask for
/// that (root, or `CAP_SYS_NICE`, or `RLIMIT_NICE`). The calling thread is as it was afterwards. Also says whether it
/// could be done.
///
/// A thread that never sleeps is held up all the same, for a slice, by any other that wants its CPU; but the kernel then
/// gives it hundreds of slices for one of the other. A real-time class would keep kernel threads from running at all.
pub fn first_in_line<T>(start: impl FnOnce() -> T) -> (T, bool) {
    // A nice value of -1 can't be told from an error, which doesn't matter: it is read to be restored.
    // SAFETY: reads no memory of ours; 0 is the calling thread.
    let usual = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let raised = set(FIRST);
    let value = start();
    if raised {
        // Lowering one's own priority is always allowed.
        set(usual);
    }
    (value, raised)
}

/// Sets the calling thread's nice value, which threads it starts inherit.
fn set(nice: libc::c_int) -> bool {
    // SAFETY: touches no memory of ours; 0 is the calling thread (on Linux a nice value is a thread's).
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nice() -> libc::c_int {
        // SAFETY: as above.
        unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
    }

    #[test]
    fn new_threads_are_first_and_the_caller_is_as_before() {
        let before = nice();
        let (started, raised) = first_in_line(|| std::thread::spawn(nice));
        assert_eq!(started.join().unwrap(), if raised { FIRST } else { before });
        assert_eq!(nice(), before);
    }
}
