//! When packets are due, by the cycle counter.

use std::sync::Arc;

use super::random::WyRand;

/// The pattern of departures.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// As fast as the port takes them.
    Unpaced,
    /// Evenly spaced.
    Constant,
    /// Gaps are drawn from an exponential distribution: arrivals of many independent senders.
    Poisson,
    /// This many at once, then nothing until the mean rate is right again.
    Bursts(u32),
    /// At these cycles from the start, and over and over from the last one on, which is the length of a round.
    Recorded(Arc<[u64]>),
}

/// Says how many packets are due.
#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    pattern: Pattern,
    start: u64,
    /// Departures (packets, or bursts of them) a cycle, with 64 binary places.
    rate: u64,
    /// Packets that leave together.
    together: u64,
    /// Packets that were due until now, given out or slipped.
    given: u64,
    /// Packets that are ever due.
    count: u64,
    /// Cycles between departures in the mean.
    mean_gap: f64,
    /// For patterns without a formula: when the next packet is due, in cycles from the start.
    next: f64,
    place: usize,
    round_start: u64,
    /// The most cycles of delay that are made up for.
    patience: u64,
    slipped: u64,
    random: WyRand,
}

impl Pacer {
    /// `packets_per_cycle` counts for all patterns but `Unpaced` and `Recorded`. Delays above `patience` cycles are not
    /// made up for: the packets that were due then are counted as slipped. After `count` packets, given out or slipped,
    /// nothing is due any more.
    #[expect(clippy::cast_sign_loss, reason = "rates are not negative, and a cast would make them zero")]
    pub(crate) fn new(
        pattern: Pattern,
        packets_per_cycle: f64,
        start: u64,
        patience: u64,
        count: u64,
        seed: u64,
    ) -> Self {
        let together = match &pattern {
            Pattern::Bursts(together) => u64::from(*together).max(1),
            _ => 1,
        };
        let departures = packets_per_cycle / together as f64;
        // Casting saturates, so a rate of one a cycle and above becomes nearly one a cycle.
        let rate = (departures * 18_446_744_073_709_551_616.0) as u64;
        let next = match &pattern {
            Pattern::Recorded(offsets) => offsets.first().copied().unwrap_or(0) as f64,
            _ => 0.0,
        };
        let mean_gap = 1.0 / packets_per_cycle;
        let random = WyRand::new(seed);
        Self {
            pattern,
            start,
            rate,
            together,
            given: 0,
            count,
            mean_gap,
            next,
            place: 0,
            round_start: 0,
            patience,
            slipped: 0,
            random,
        }
    }

    /// How many packets, up to `limit`, are due at `now`; they count as given out.
    #[inline(always)]
    pub(crate) fn due(&mut self, now: u64, limit: u64) -> u64 {
        let elapsed = now.saturating_sub(self.start);
        match self.pattern {
            Pattern::Unpaced => {
                let due = limit.min(self.left());
                self.given += due;
                due
            }
            Pattern::Constant | Pattern::Bursts(_) => self.due_by_formula(elapsed, limit),
            Pattern::Poisson | Pattern::Recorded(_) => self.due_by_steps(elapsed as f64, limit),
        }
    }

    /// Gives back packets that could not be built: they stay due.
    pub(crate) const fn give_back(&mut self, packets: u64) {
        match self.pattern {
            // There is always more of these, and what isn't built was never owed.
            Pattern::Unpaced | Pattern::Constant | Pattern::Bursts(_) => self.given -= packets,
            // The steps can't be walked back.
            Pattern::Poisson | Pattern::Recorded(_) => self.slipped += packets,
        }
    }

    /// Packets that fell due until `elapsed` cycles after the start: the first one at the start itself.
    #[inline(always)]
    fn scheduled(&self, elapsed: u64) -> u64 {
        let departures = ((u128::from(elapsed) * u128::from(self.rate)) >> 64) as u64;
        (departures + 1) * self.together
    }

    #[inline(always)]
    fn due_by_formula(&mut self, elapsed: u64, limit: u64) -> u64 {
        let scheduled = self.scheduled(elapsed);
        // A clock that steps back owes nothing.
        let mut due = scheduled.saturating_sub(self.given);
        if due > self.together {
            due -= self.slip(elapsed);
        }
        let due = due.min(limit).min(self.left());
        self.given += due;
        due
    }

    /// Skips what has been due for longer than the patience; says how many.
    #[cold]
    fn slip(&mut self, elapsed: u64) -> u64 {
        let too_old = match elapsed.checked_sub(self.patience) {
            Some(then) => self.scheduled(then).saturating_sub(self.given),
            None => 0,
        };
        let too_old = too_old.min(self.left());
        self.given += too_old;
        self.slipped += too_old;
        too_old
    }

    fn due_by_steps(&mut self, elapsed: f64, limit: u64) -> u64 {
        let oldest = elapsed - self.patience as f64;
        let mut due = 0;
        while self.next <= elapsed && due < limit && self.given < self.count {
            if self.next < oldest {
                self.slipped += 1;
            } else {
                due += 1;
            }
            self.given += 1;
            self.step();
        }
        due
    }

    fn step(&mut self) {
        match &self.pattern {
            Pattern::Recorded(offsets) => {
                self.place += 1;
                // The last offset is where the next round starts, not a packet.
                if self.place + 1 >= offsets.len() {
                    self.place = 0;
                    self.round_start += offsets.last().copied().unwrap_or(0).max(1);
                }
                let offset = offsets.get(self.place).copied().unwrap_or(0);
                self.next = (self.round_start + offset) as f64;
            }
            // Poisson; the others never come here.
            _ => self.next += -self.random.fraction().ln() * self.mean_gap,
        }
    }

    /// Takes what is due at `now` and was not given out, since nobody will ask for it any more; says how many packets that
    /// are, slipped ones apart.
    pub(crate) fn give_up(&mut self, now: u64) -> u64 {
        let mut taken = 0;
        while !self.is_endless() {
            match self.due(now, 64) {
                0 => break,
                due => taken += due,
            }
        }
        taken
    }

    /// Packets that are still to fall due.
    #[inline(always)]
    pub(crate) const fn left(&self) -> u64 {
        self.count - self.given
    }

    /// Whether there is always more, so that nothing is ever owed.
    pub(crate) const fn is_endless(&self) -> bool {
        matches!(self.pattern, Pattern::Unpaced)
    }

    /// Packets that were given out or slipped.
    pub(crate) const fn given(&self) -> u64 {
        self.given
    }

    /// Packets that were due and not sent, because the lane was held up for longer than its patience.
    pub(crate) const fn slipped(&self) -> u64 {
        self.slipped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pacer(pattern: Pattern, packets_per_cycle: f64, patience: u64, count: u64) -> Pacer {
        Pacer::new(pattern, packets_per_cycle, 0, patience, count, 1)
    }

    fn run(mut pacer: Pacer, until: u64, step: u64) -> (u64, u64) {
        let mut sent = 0;
        for now in (0..until).step_by(step as usize) {
            sent += pacer.due(now, 64);
        }
        (sent, pacer.slipped())
    }

    #[test]
    fn constant_is_exact() {
        let pacer = pacer(Pattern::Constant, 0.001, 100_000, u64::MAX);
        // One at 0, 1000, ...; 10,000,000 is not reached.
        let (sent, slipped) = run(pacer, 10_000_000, 70);
        assert!(sent.abs_diff(10_000) <= 1 && slipped == 0, "{sent} {slipped}");
    }

    #[test]
    fn poisson_has_its_mean_and_its_spread() {
        let mut pacer = Pacer::new(Pattern::Poisson, 0.01, 0, u64::MAX >> 1, u64::MAX, 3);
        let mut counts = Vec::new();
        let mut last = 0;
        for window in 1..=100_000_u64 {
            while pacer.due(window * 1_000, 64) > 0 {}
            counts.push((pacer.given - last) as f64);
            last = pacer.given;
        }
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len() as f64;
        // Both are 10 for a Poisson process; standard errors 0.01 and 0.046. Five of them: gaps may be wrong by half a percent.
        assert!((mean - 10.0).abs() < 0.05 && (variance - 10.0).abs() < 0.23, "{mean} {variance}");
    }

    #[test]
    fn bursts_come_at_once_and_keep_the_mean() {
        let mut pacer = pacer(Pattern::Bursts(32), 0.01, 1_000_000, u64::MAX);
        assert_eq!((pacer.due(0, 64), pacer.due(3_100, 64), pacer.due(3_250, 64)), (32, 0, 32));
    }

    #[test]
    fn long_delays_are_not_made_up_for() {
        let mut pacer = pacer(Pattern::Constant, 0.1, 1_000, u64::MAX);
        assert_eq!(pacer.due(0, 64), 1);
        let mut sent = 0;
        loop {
            match pacer.due(100_000, 64) {
                0 => break,
                due => sent += due,
            }
        }
        // What fell due in the last 1,000 cycles is sent, the 9,900 packets before are not.
        assert_eq!((sent, pacer.slipped(), pacer.given), (100, 9_900, 10_001));
    }

    #[test]
    fn what_nobody_asks_for_any_more_is_counted() {
        for (pattern, rate) in [(Pattern::Constant, 0.1), (Pattern::Recorded([0, 10].into()), 0.0)] {
            let mut pacer = pacer(pattern, rate, 1_000_000, 1_007);
            assert_eq!(pacer.due(0, 64), 1);
            assert_eq!((pacer.give_up(9_995), pacer.given()), (999, 1_000));
            assert_eq!((pacer.give_up(20_000), pacer.given()), (7, 1_007));
            assert_eq!(pacer.slipped(), 0);
        }
        let mut pacer = pacer(Pattern::Unpaced, 0.0, 1_000_000, u64::MAX);
        assert_eq!((pacer.give_up(9_995), pacer.given()), (0, 0));
    }

    #[test]
    fn after_the_last_packet_nothing_is_due_nor_slips() {
        let patterns = [
            (Pattern::Constant, 0.1),
            (Pattern::Bursts(30), 0.1),
            (Pattern::Poisson, 0.1),
            (Pattern::Recorded([0, 10].into()), 0.0),
            (Pattern::Unpaced, 0.0),
        ];
        for (pattern, rate) in patterns {
            let name = format!("{pattern:?}");
            let mut pacer = pacer(pattern, rate, 1_000, 100);
            let mut sent = 0;
            // Held up between the packets, and again when all are out.
            for now in [0, 500, 400, 700, 1_000_000, 2_000_000] {
                sent += pacer.due(now, 64);
            }
            assert_eq!((pacer.given(), pacer.left()), (100, 0), "{name}");
            assert_eq!(sent + pacer.slipped(), 100, "{name}");
            assert_eq!(pacer.give_up(3_000_000), 0, "{name}");
        }
        let mut pacer = pacer(Pattern::Constant, 0.1, 1_000, 7);
        assert_eq!((pacer.due(100, 64), pacer.due(1_000_000, 64), pacer.slipped()), (7, 0, 0));
    }

    #[test]
    fn recorded_gaps_are_kept_and_repeated() {
        let offsets: Arc<[u64]> = [0, 10, 100, 150].into();
        let mut pacer = Pacer::new(Pattern::Recorded(offsets), 0.0, 1_000, 1_000_000, u64::MAX, 1);
        let times: Vec<u64> = (1_000..1_310).flat_map(|now| vec![now; pacer.due(now, 64) as usize]).collect();
        assert_eq!(times, [1_000, 1_010, 1_100, 1_150, 1_160, 1_250, 1_300]);
    }
}
