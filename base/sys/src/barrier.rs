//! A barrier of which one side pays for both.
//!
//! Two threads that each write one thing and then read what the other writes must not both miss it. Usually each has a full fence
//! in between. Here the thread that does it all the time has a [`light`] barrier, which costs nothing, and the one that does it
//! now and then a [`heavy`] one: the kernel runs a full fence on every CPU on which this process has a thread (membarrier(2),
//! private expedited; as liburcu does it).

use std::sync::OnceLock;
use std::sync::atomic::{Ordering, compiler_fence};

use rustix::thread::{MembarrierCommand, membarrier};

/// The side that pays nothing: the compiler moves nothing across.
#[inline(always)]
pub fn light() {
    compiler_fence(Ordering::SeqCst);
}

/// The side that pays: some microseconds, and an interrupt of other CPUs. `false` where the kernel can't: then there was no barrier,
/// and there never will be.
#[must_use]
pub fn heavy() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    let registered = || membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
    *REGISTERED.get_or_init(registered) && membarrier(MembarrierCommand::PrivateExpedited).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, AtomicU32};
    use std::thread;

    /// Dekker's pattern: without the barriers both miss the other's write now and then.
    #[test]
    fn one_of_two_always_sees_the_other() {
        if !heavy() {
            crate::skipped::skipped("this kernel has no membarrier(2)");
            return;
        }
        let written = [AtomicBool::new(false), AtomicBool::new(false)];
        let (missed, both_missed) = (AtomicU32::new(0), AtomicU32::new(0));
        let (start, end) = (Barrier::new(2), Barrier::new(2));
        let run = |own: usize| {
            for _ in 0..2_000 {
                start.wait();
                written[own].store(true, Ordering::Relaxed);
                if own == 0 {
                    light();
                } else {
                    assert!(heavy());
                }
                if !written[1 - own].load(Ordering::Relaxed) {
                    missed.fetch_add(1, Ordering::Relaxed);
                }
                end.wait();
                if own == 0 {
                    both_missed.fetch_add(missed.swap(0, Ordering::Relaxed) / 2, Ordering::Relaxed);
                    for flag in &written {
                        flag.store(false, Ordering::Relaxed);
                    }
                }
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| run(0));
            run(1);
        });
        assert_eq!(both_missed.into_inner(), 0);
    }
}
