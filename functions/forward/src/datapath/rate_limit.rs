//! A token bucket that runs on the lane's cycle counter.
//!
//! RFC 1812 section 4.3.2.8 and RFC 4443 section 2.4 (f) want ICMP errors limited, the latter by a token bucket: a
//! short burst may be answered in full (a traceroute), a flood may not.

/// Lets through `rate` a second on average, and up to `burst` at once.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    /// Ticks that one token takes to come; zero if there is no limit.
    ticks_per_token: u64,
    /// Ticks worth of tokens that the bucket holds when full.
    capacity: u64,
    /// Ticks worth of tokens that are there.
    level: u64,
    /// When `level` was right.
    updated: u64,
}

impl TokenBucket {
    /// A full bucket. `rate` is in tokens a second, `ticks_per_second` the speed of the clock that [`TokenBucket::take`]
    /// is asked with; a rate above that isn't limited at all, and one of 0 lets nothing through.
    pub fn new(rate: u32, burst: u32, ticks_per_second: u64) -> Self {
        if rate == 0 {
            return Self { ticks_per_token: 1, capacity: 0, level: 0, updated: 0 };
        }
        let ticks_per_token = ticks_per_second / u64::from(rate);
        let capacity = ticks_per_token.saturating_mul(u64::from(burst));
        Self { ticks_per_token, capacity, level: capacity, updated: 0 }
    }

    /// A full bucket of this rate and size.
    #[must_use]
    pub fn refilled(&self) -> Self {
        Self { level: self.capacity, ..self.clone() }
    }

    /// Takes one token if there is one. `now` is the clock's tick; a clock that steps back adds nothing.
    pub fn take(&mut self, now: u64) -> bool {
        self.level = self.level.saturating_add(now.saturating_sub(self.updated)).min(self.capacity);
        self.updated = now;
        match self.level.checked_sub(self.ticks_per_token) {
            Some(rest) => {
                self.level = rest;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_then_the_rate() {
        let mut bucket = TokenBucket::new(100, 10, 1_000_000);
        let now = 5_000_000;
        assert_eq!((0..50).filter(|_| bucket.take(now)).count(), 10);
        assert!(!bucket.take(now + 9_999));
        assert!(bucket.take(now + 10_000));
        assert!(!bucket.take(now + 10_000));
        // Ten seconds of asking every tick of a hundred: the rate, and no more.
        let later = (0..100_000).filter(|step| bucket.take(now + 10_000 + step * 100)).count();
        assert!((999..=1000).contains(&later), "{later}");
        // A long pause fills the bucket, but not above its burst.
        assert_eq!((0..50).filter(|_| bucket.take(now * 1000)).count(), 10);
    }

    #[test]
    fn clocks_that_step_back_give_nothing() {
        let mut bucket = TokenBucket::new(1, 1, 1000);
        assert!(bucket.take(1_000_000));
        assert!(!bucket.take(10));
        assert!(!bucket.take(1009));
        assert!(bucket.take(1010));
    }

    #[test]
    fn the_ends_of_the_scale() {
        let mut never = TokenBucket::new(0, 100, 1000);
        assert!(!never.take(1) && !never.take(u64::MAX));
        let mut always = TokenBucket::new(u32::MAX, 1, 1000);
        assert!((0..100).all(|_| always.take(7)));
    }
}
