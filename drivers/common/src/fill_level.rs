//! How many buffers to post for reception.
//!
//! The NIC or the kernel goes through all posted buffers in order, so the fewer are posted, the warmer they are in cache. But a
//! burst that comes while the lane is elsewhere must find buffers, or it is lost. So the level follows what was seen:
//! it doubles when a poll finds half of the posted buffers used, and halves when they were far from needed for a while.
//! After a pause it is deep again: what comes next is unknown, and the cache is cold anyway. Each packet that found no
//! buffer makes it deep for longer: what keeps a lane away (the scheduler, an interrupt) comes again.

/// Packets between two looks at whether fewer buffers would do: some tenths of a second at a million a second, in which
/// whatever keeps a lane from its work usually happens.
const WINDOW: u32 = 1 << 18;

/// Windows that go by after a miss before the level falls again, at most.
const LONGEST_HOLD: u32 = 256;

/// Empty polls in a row that count as a pause.
const PAUSE: u32 = 4096;

/// The level may fall to this many times the most that one poll found.
const MARGIN: u32 = 4;

/// How many buffers to post; see the module.
#[derive(Debug)]
pub struct FillLevel {
    minimum: u32,
    /// After a pause.
    initial: u32,
    maximum: u32,
    target: u32,
    /// The most that waited at a poll since the last look.
    peak: u32,
    packets: u32,
    empty: u32,
    /// Windows to go before the level may fall, and how many after the next time it runs out.
    hold: u32,
    next_hold: u32,
}

impl FillLevel {
    /// Between `minimum` and `maximum`, from `initial`.
    pub fn new(minimum: u32, initial: u32, maximum: u32) -> Self {
        let initial = initial.clamp(minimum.min(maximum), maximum);
        Self {
            minimum: minimum.min(maximum),
            initial,
            maximum,
            target: initial,
            peak: 0,
            packets: 0,
            empty: 0,
            hold: 0,
            next_hold: 1,
        }
    }

    /// How many buffers should be posted.
    #[inline(always)]
    pub const fn target(&self) -> u32 {
        self.target
    }

    /// A poll found `waiting` buffers used, and takes `taken` of them.
    #[inline]
    pub fn found(&mut self, waiting: u32, taken: u32) {
        self.empty = 0;
        if waiting >= self.target / 2 {
            self.target = self.target.saturating_mul(2).min(self.maximum);
        }
        self.peak = self.peak.max(waiting);
        self.packets = self.packets.saturating_add(taken);
        if self.packets >= WINDOW {
            self.end_window();
        }
    }

    #[cold]
    fn end_window(&mut self) {
        self.packets = 0;
        let peak = std::mem::take(&mut self.peak);
        if self.hold > 0 {
            self.hold -= 1;
            return;
        }
        let enough = peak.saturating_mul(MARGIN).max(self.target / 2);
        self.target = enough.clamp(self.minimum, self.target.max(self.minimum));
    }

    /// A poll found nothing.
    #[inline]
    pub fn empty_poll(&mut self) {
        self.empty = self.empty.saturating_add(1);
        if self.empty == PAUSE {
            self.pause();
        }
    }

    /// The lane is about to sleep, or has polled in vain for long.
    pub fn pause(&mut self) {
        self.target = self.target.max(self.initial);
    }

    /// The kernel found no buffer for a packet.
    pub fn ran_out(&mut self) {
        self.target = self.maximum;
        self.hold = self.next_hold;
        self.next_hold = (self.next_hold * 2).min(LONGEST_HOLD);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trickle_needs_few_and_a_burst_many() {
        let mut level = FillLevel::new(64, 512, 2048);
        assert_eq!(level.target(), 512);
        for _ in 0..10 * WINDOW / 8 {
            level.found(8, 8);
        }
        assert_eq!(level.target(), 64);
        level.found(40, 40);
        assert_eq!(level.target(), 128);
        for _ in 0..10 {
            level.found(1500, 1500);
        }
        assert_eq!(level.target(), 2048);
        for _ in 0..10 * WINDOW / 64 {
            level.found(64, 64);
        }
        assert_eq!(level.target(), 4 * 64);
        for _ in 0..PAUSE {
            level.empty_poll();
        }
        assert_eq!(level.target(), 512);
        // The second miss keeps it deep for twice as long.
        for windows in [1, 2] {
            level.ran_out();
            for _ in 0..windows * WINDOW / 64 {
                level.found(64, 64);
            }
            assert_eq!(level.target(), 2048);
        }
        for _ in 0..WINDOW / 64 {
            level.found(64, 64);
        }
        assert_eq!(level.target(), 1024);
    }

    #[test]
    fn a_short_ring_is_the_limit() {
        let mut level = FillLevel::new(64, 512, 32);
        for _ in 0..1000 {
            level.found(32, 32);
        }
        assert_eq!(level.target(), 32);
    }
}
