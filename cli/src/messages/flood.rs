//! Limits what a place in the program says: something that happens over and over again must not fill a disk, or hide the rest.

use std::collections::HashMap;
use std::panic::Location;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Instant;

/// Messages that a place may say at once.
const BURST: f64 = 1_000.0;
/// Messages that it may say each second in the long run.
const RATE: f64 = 5.0;

static PLACES: LazyLock<Mutex<HashMap<(&str, u32), Place>>> = LazyLock::new(Mutex::default);

/// Whether a message from there may be said now: if so, how many were left out since the last one.
pub(super) fn pass(place: &'static Location<'static>) -> Option<u64> {
    let mut places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    places.entry((place.file(), place.line())).or_insert_with(|| Place::new(now)).pass(now)
}

/// How many were left out behind which nothing was said from there.
pub(super) fn take_left_out() -> u64 {
    let mut places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
    places.values_mut().map(|place| std::mem::take(&mut place.left_out)).sum()
}

struct Place {
    /// Messages that it may say yet.
    credit: f64,
    counted: Instant,
    left_out: u64,
}

impl Place {
    fn new(now: Instant) -> Self {
        Self { credit: BURST, counted: now, left_out: 0 }
    }

    fn pass(&mut self, now: Instant) -> Option<u64> {
        let gained = now.saturating_duration_since(self.counted).as_secs_f64() * RATE;
        (self.credit, self.counted) = ((self.credit + gained).min(BURST), now);
        if self.credit < 1.0 {
            self.left_out += 1;
            return None;
        }
        self.credit -= 1.0;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_said_too_often_is_left_out_and_counted() {
        let start = Instant::now();
        let mut place = Place::new(start);
        let said = (0..1_150).filter(|_| place.pass(start) == Some(0)).count();
        assert_eq!(said, 1_000);
        // A second later it may say five, the first of which tells how many there would have been.
        let later = start + Duration::from_secs(1);
        let said: Vec<_> = (0..7).map(|_| place.pass(later)).collect();
        assert_eq!(said, [Some(150), Some(0), Some(0), Some(0), Some(0), None, None]);
        // What is not said for long is not saved up.
        let much_later = start + Duration::from_secs(10_000);
        let said = (0..1_150).filter(|_| place.pass(much_later).is_some()).count();
        assert_eq!(said, 1_000);
    }

    #[test]
    fn places_do_not_share_their_credit() {
        #[track_caller]
        fn here() -> Option<u64> {
            pass(Location::caller())
        }
        // Some credit comes back meanwhile.
        let said = (0..10_000).filter(|_| here().is_some()).count();
        assert!((1_000..2_000).contains(&said), "{said}");
        assert_eq!(here(), Some(0), "another place");
    }
}
