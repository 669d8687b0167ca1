//! How large the hot set of a depot should be, found by trying.
//!
//! The best size depends on how many bytes of each packet the lanes touch, on the caches, on how far apart the cores
//! are and on who else uses the shared cache; none of that is known here. What it comes to can be measured, by
//! the lane that takes: how long it takes for a magazine. So the bound is doubled or halved now and then, and goes where
//! that is shortest. A lane that waits for traffic takes the same time with any bound, and then the bound stays.
//!
//! How much there is to find, on an EPYC of the Zen 4 generation (1 MiB of private and 32 MiB of shared cache), two
//! lanes, cycles a packet first in, first out over 1,023 / 2,047 / 4,095 / 8,191 / 12,287 / 16,383 / 65,535 buffers:
//! 44 / 45 / 43 / 34 / 27 / 26 / 28 with 64 bytes touched, 158 / 110 / 111 / 128 / 270 / 380 / 518 with 1,520.
//! On a Granite Rapids (2 MiB and 480 MiB) a line comes sooner from the other core's private cache than from the shared
//! one: 259 / 305 over 1,024 / 8,192 buffers with 1,520 bytes touched, 45 to 48 with 64; a ring of 32,768 took 530.
//! (How long a write to a buffer's header takes, alone or 32 together, says much less: 64 bytes, 140 to 90 cycles.)

/// Magazines that make one measurement.
const SAMPLES: usize = 64;

/// Which of them counts, from the shortest: low, because interrupts and waiting only make them longer.
const QUARTILE: usize = SAMPLES / 4;

/// Measurements between two trials at least.
const LEAST_REST: u32 = 2;

/// Measurements between two trials at most, when all trials fail: 8 million packets with magazines of 128.
const LONGEST_REST: u32 = 1_024;

/// What trials do to the bound, in powers of two, one after the other as they fail. The far ones lead away from where
/// all neighbours cost the same: whole frames cost as much from 64 MiB as from 128, and half as much from 16.
const STEPS: [i32; 4] = [1, -1, -3, 3];

/// The search. Bounds are powers of two, in magazines.
#[derive(Debug)]
pub(crate) struct HotBound {
    smallest: u32,
    largest: u32,
    /// The bound that trials start from, and the cycles for a magazine there: the least since the last trial, or a moment
    /// in which the CPU was away would make any other bound look better.
    base: u32,
    base_cost: u64,
    bound: u32,
    /// Which of [`STEPS`] the next trial takes.
    step: usize,
    /// Measurements to go before the next trial.
    rest: u32,
    /// What `rest` starts from: doubles with each trial that fails.
    patience: u32,
    /// Magazines to let pass until the bound has its effect.
    settling: u32,
    count: usize,
    samples: [u64; SAMPLES],
}

impl HotBound {
    /// Starts from `first`, within `smallest..=largest`, all powers of two.
    pub(crate) fn new(smallest: u32, largest: u32, first: u32) -> Self {
        let base = first.clamp(smallest, largest);
        Self {
            smallest,
            largest,
            base,
            base_cost: u64::MAX,
            bound: base,
            step: 0,
            rest: LEAST_REST,
            patience: LEAST_REST,
            settling: 2 * base,
            count: 0,
            samples: [0; SAMPLES],
        }
    }

    /// Magazines that the hot set should have now.
    pub(crate) const fn bound(&self) -> u32 {
        self.bound
    }

    /// Takes in how many cycles a lane took for a magazine of the hot set. Returns the bound if it changed.
    pub(crate) fn observe(&mut self, cycles: u64) -> Option<u32> {
        if self.settling > 0 {
            self.settling -= 1;
            return None;
        }
        self.samples[self.count] = cycles;
        self.count += 1;
        if self.count < SAMPLES {
            return None;
        }
        self.count = 0;
        let before = self.bound;
        let (_, &mut cost, _) = self.samples.select_nth_unstable(QUARTILE);
        self.judge(cost);
        if self.bound == before {
            return None;
        }
        // Twice round the larger of the two sets, the surplus of half a bound with it.
        self.settling = before.max(self.bound) * 3;
        Some(self.bound)
    }

    fn judge(&mut self, cost: u64) {
        if self.bound == self.base {
            self.base_cost = self.base_cost.min(cost);
            self.rest = self.rest.saturating_sub(1);
            if self.rest == 0 {
                self.bound = self.next_trial();
            }
            return;
        }
        // A trial: better by more than chance, or back.
        if cost + self.base_cost / 32 < self.base_cost {
            self.base = self.bound;
            self.patience = LEAST_REST;
        } else {
            self.bound = self.base;
            self.step = (self.step + 1) % STEPS.len();
            self.patience = (self.patience * 2).min(LONGEST_REST);
        }
        self.base_cost = u64::MAX;
        self.rest = self.patience;
    }

    /// The next bound to try: by the first step from here on that leads anywhere.
    fn next_trial(&mut self) -> u32 {
        for _ in 0..STEPS.len() {
            let steps = STEPS[self.step];
            let factor = 1 << steps.abs();
            let bound = if steps > 0 { self.base.saturating_mul(factor) } else { self.base / factor };
            let bound = bound.clamp(self.smallest, self.largest);
            if bound != self.base {
                return bound;
            }
            self.step = (self.step + 1) % STEPS.len();
        }
        self.base
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Runs the search against `cost` for a while; says where it ended and how often it was elsewhere after that.
    fn search(first: u32, cost: impl Fn(u32, u32) -> u64) -> (u32, f64) {
        let mut search = HotBound::new(4, 512, first);
        for number in 0..1_000_000 {
            search.observe(cost(search.bound(), number));
        }
        let base = search.base;
        let away = (0..1_000_000).filter(|&number| {
            search.observe(cost(search.bound(), number));
            search.bound() != base
        });
        (base, away.count() as f64 / 1e6)
    }

    #[test]
    fn it_goes_where_a_magazine_takes_the_least_and_mostly_stays_there() {
        for best in [4_u32, 16, 128, 512] {
            for first in [4, 32, 512] {
                let cost = |bound: u32, _| 3_000 + 500 * u64::from(bound.ilog2().abs_diff(best.ilog2()));
                let (found, away) = search(first, cost);
                assert_eq!(found, best, "from {first}");
                assert!(away < 0.05, "{away} of the time elsewhere");
            }
        }
    }

    #[test]
    fn it_stays_where_it_is_if_all_is_the_same() {
        assert_eq!(search(32, |_, _| 3_000).0, 32);
    }

    #[test]
    fn a_lost_cpu_and_a_pause_do_not_move_it() {
        let cost = |_, number: u32| if number.is_multiple_of(3) { 10_000_000 } else { 3_000 };
        assert_eq!(search(32, cost).0, 32);
    }

    #[test]
    fn it_leaves_where_all_neighbours_cost_the_same() {
        let cost = |bound: u32, _| if bound >= 128 { 60_000 } else { 3_000 + 200 * u64::from(bound) };
        assert_eq!(search(512, cost).0, 4);
    }

    #[test]
    fn a_moment_in_which_all_is_slow_does_not_move_it() {
        let mut search = HotBound::new(4, 512, 32);
        let samples = SAMPLES as u32;
        for number in 0..1_000_000_u32 {
            // Longer than a measurement, and rarer than two of them.
            let slow = number % (7 * samples) < samples * 3 / 2;
            search.observe(if slow { 6_000 } else { 3_000 });
            assert_eq!(search.base, 32, "after {number} magazines");
        }
    }

    #[test]
    fn one_bound_is_no_search() {
        let mut search = HotBound::new(1, 1, 64);
        for cycles in 0..10_000 {
            assert_eq!(search.observe(cycles), None);
        }
        assert_eq!(search.bound(), 1);
    }
}
