//! A count under a lock, which one lane or two keep counting: what measurements of locks have in common, ours and peers'.

use crate::error::LabError;
use crate::measure::Measure;
use crate::partner::Partner;
use crate::setting::Setting;
use std::sync::Arc;
use warmlane_sync::extra::mcs::McsLock;
use warmlane_sync::extra::ticket::TicketLock;
use warmlane_sync::padded::CachePadded;
use warmlane_sync::spin::SpinLock;

/// A count that is only changed under its lock.
pub trait LockedCount: Default + Send + Sync + 'static {
    /// Locks, counts one up, unlocks; gives the count.
    fn count(&self) -> u64;
}

impl LockedCount for SpinLock<u64> {
    #[inline]
    fn count(&self) -> u64 {
        let mut count = self.lock();
        *count += 1;
        *count
    }
}

impl LockedCount for TicketLock<u64> {
    #[inline]
    fn count(&self) -> u64 {
        let mut count = self.lock();
        *count += 1;
        *count
    }
}

impl LockedCount for McsLock<u64> {
    #[inline]
    fn count(&self) -> u64 {
        self.with(|count| {
            *count += 1;
            *count
        })
    }
}

/// Locks in one unit of work, so that reading the clock is lost in it.
const ONE_LANE: u64 = 4_096;
/// The same where each lock waits for lines from the other CPU.
const TWO_LANES: u64 = 512;
/// Locks in a step of the second lane.
const STEP: u64 = 32;

/// One lane alone.
pub fn one_lane<L: LockedCount>() -> Box<dyn Measure> {
    let lock = CachePadded::new(L::default());
    Box::new(move || {
        let lock = std::hint::black_box(&lock);
        for _ in 0..ONE_LANE {
            lock.count();
        }
        ONE_LANE
    })
}

struct TwoLanes<L> {
    lock: Arc<CachePadded<L>>,
    /// The count at the end of the last piece of work.
    counted: u64,
    partner: Partner,
}

/// This lane and another.
///
/// # Errors
/// [`LabError`], if there is no second CPU.
pub fn two_lanes<L: LockedCount>(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    let cpu = setting.second_cpu()?;
    let lock = Arc::new(CachePadded::new(L::default()));
    let theirs = Arc::clone(&lock);
    let step = move || {
        for _ in 0..STEP {
            theirs.count();
        }
    };
    let partner = Partner::start(cpu, || Ok(step)).map_err(LabError::setup)?;
    Ok(Box::new(TwoLanes { lock, counted: 0, partner }))
}

impl<L: LockedCount> Measure for TwoLanes<L> {
    fn work(&mut self) -> u64 {
        for _ in 1..TWO_LANES {
            self.lock.count();
        }
        let counted = self.lock.count();
        counted - std::mem::replace(&mut self.counted, counted)
    }

    fn begin(&mut self) {
        self.partner.resume();
        // What the second lane counted alone is not this round's.
        self.counted = self.lock.count();
    }

    fn end(&mut self) {
        self.partner.pause();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_of_both_lanes_count() {
        let cpu = warmlane_sys::affinity::allowed_cpus().unwrap()[0];
        let setting = Setting { second_cpu: Some(cpu), ..Setting::default() };
        let mut measure = two_lanes::<TicketLock<u64>>(&setting).unwrap();
        measure.begin();
        let counted = measure.work() + measure.work();
        measure.end();
        assert!(counted >= 2 * TWO_LANES, "{counted}");
        assert!(two_lanes::<TicketLock<u64>>(&Setting::default()).is_err());
    }
}
