//! How a lane gets its orders and hands in its reports, without a lock on its way.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// One order at a time, and one report for each. The lane looks at a number; only when that has changed does it take
/// a lock.
#[derive(Debug)]
pub struct Orders<O, R> {
    /// Orders given so far.
    given: AtomicU64,
    /// The last order that the lane took up.
    taken: AtomicU64,
    /// Orders that were reported on.
    reported: AtomicU64,
    /// Bring the order at hand to its end.
    ended: AtomicBool,
    order: Mutex<Option<O>>,
    report: Mutex<Option<R>>,
}

impl<O, R> Default for Orders<O, R> {
    fn default() -> Self {
        Self {
            given: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            reported: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            order: Mutex::new(None),
            report: Mutex::new(None),
        }
    }
}

impl<O, R> Orders<O, R> {
    /// Gives an order. One that was not taken up yet is replaced.
    pub fn give(&self, order: O) {
        *self.order.lock().unwrap_or_else(PoisonError::into_inner) = Some(order);
        self.ended.store(false, Ordering::Relaxed);
        // Release: who sees the new number sees the order.
        self.given.fetch_add(1, Ordering::Release);
    }

    /// Whether the lane has taken up the last order.
    pub fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Acquire) == self.given.load(Ordering::Relaxed)
    }

    /// Asks the lane to bring the order at hand to its end now.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// The report on the last order, once it is there; it is handed out once.
    pub fn report(&self) -> Option<R> {
        // Acquire: who sees the number sees the report.
        if self.reported.load(Ordering::Acquire) != self.given.load(Ordering::Relaxed) {
            return None;
        }
        self.report.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// For the lane: the order, if there is one newer than `seen`. It is to say [`started`](Self::started) then.
    #[inline(always)]
    pub(crate) fn newer(&self, seen: &mut u64) -> Option<O> {
        let given = self.given.load(Ordering::Acquire);
        if given == *seen { None } else { self.take(given, seen) }
    }

    #[cold]
    fn take(&self, given: u64, seen: &mut u64) -> Option<O> {
        *seen = given;
        self.order.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// For the lane: order `seen` is at work.
    #[cold]
    pub(crate) fn started(&self, seen: u64) {
        self.taken.store(seen, Ordering::Release);
    }

    /// For the lane: whether the order at hand should end.
    #[inline(always)]
    pub(crate) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// For the lane: hands in the report on order `seen`.
    #[cold]
    pub(crate) fn hand_in(&self, seen: u64, report: R) {
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
        self.reported.store(seen, Ordering::Release);
    }
}
