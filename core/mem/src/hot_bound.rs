//! How large the hot set of a depot should be, found by trying.
//!
//! The best size depends on how many bytes of each packet the lanes touch, on the caches, on how far apart the cores
//! are and on who else uses the shared cache; none of that is known here. What it comes to can be measured, by
//! the lanes: how long they take for a magazine. So the bound is doubled or halved now and then, and goes where
//! that is shortest. A lane that waits for traffic takes the same time with any bound, and then the bound stays.
//!
//! The lane that takes and the one that frees go at different speeds until what is between them is full or empty, and that
//! may be thousands of packets away: a bound that lets only the first go faster is no gain. So the slower one counts. And
//! costs change by themselves, most after a pause, in which others had the caches: a set of 33 MB took 30 milliseconds to
//! come to its final cost. So nothing is tried while it still gets better, and a bound has to be better than the base both
//! before and after its trial.
//!
//! How much there is to find, on an EPYC of the Zen 4 generation (1 MiB of private and 32 MiB of shared cache), two
//! lanes, cycles a packet first in, first out over 1,023 / 2,047 / 4,095 / 8,191 / 12,287 / 16,383 / 65,535 buffers:
//! 44 / 45 / 43 / 34 / 27 / 26 / 28 with 64 bytes touched, 158 / 110 / 111 / 128 / 270 / 380 / 518 with 1,520.
//! On a Granite Rapids (2 MiB and 480 MiB), with hot sets of 128 / 256 / 512 / 1,024 / 2,048 / 4,096 / 8,192 / 65,536
//! and 1,520 bytes: 294 / 298 / 277 / 265 / 261 / 279 / 312 / 581; with 20,000 packets held between the lanes, 466 at 128,
//! 501 at 512, 358 at 1,024, 222 to 265 at 1,536 and 2,048, 415 at 6,144: what the reader's private cache still has as its
//! own costs the writer most, and what has gone to the shared cache least, as long as that keeps it.
//! (How long a write to a buffer's header takes, alone or 32 together, says much less: 64 bytes, 140 to 90 cycles.)

/// Magazines that make one measurement.
const SAMPLES: usize = 32;

/// Which of them counts, from the shortest: low, because interrupts and waiting only make them longer.
const QUARTILE: usize = SAMPLES / 4;

/// Measurements between two trials at least.
const LEAST_REST: u32 = 4;

/// Measurements between two trials at most, when all trials fail: 8 million packets with magazines of 128.
const LONGEST_REST: u32 = 2_048;

/// How often all buffers that are under way come home at least before a trial: where these are more than the private
/// caches hold, it takes the shared cache some rounds to keep them.
const ROUNDS: u32 = 3;

/// What trials do to the bound, in powers of two, one after the other as they fail. The far ones lead away from where
/// all neighbours cost the same: whole frames cost as much from 64 MiB as from 128, and half as much from 16.
const STEPS: [i32; 4] = [-1, 1, -3, 3];

/// How long a lane takes for a magazine.
#[derive(Debug)]
pub(crate) struct Pace {
    /// When the lane was done with the last one, in cycles; 0 if that does not say when this one began.
    last: u64,
    count: usize,
    samples: [u64; SAMPLES],
}

impl Pace {
    pub(crate) const fn new() -> Self {
        Self { last: 0, count: 0, samples: [0; SAMPLES] }
    }

    /// The lane is done with a magazine. Returns what it takes in cycles, now and then.
    pub(crate) fn lap(&mut self, now: u64) -> Option<u64> {
        let last = std::mem::replace(&mut self.last, now);
        if last == 0 || now <= last {
            return None;
        }
        self.samples[self.count] = now - last;
        self.count = (self.count + 1) % SAMPLES;
        (self.count == 0).then(|| *self.samples.select_nth_unstable(QUARTILE).1)
    }

    /// The time since the last magazine was spent on something else.
    pub(crate) fn interrupt(&mut self) {
        self.last = 0;
    }
}

/// The search. Bounds are powers of two, in magazines.
#[derive(Debug)]
pub(crate) struct HotBound {
    smallest: u32,
    largest: u32,
    /// The bound that trials start from.
    base: u32,
    /// What a magazine took there in the last measurement and in the one before: a trial has to beat both, or a moment
    /// in which the CPU was away would make any other bound look better.
    base_costs: [u64; 2],
    /// The least that a magazine took there since the last trial.
    least: u64,
    bound: u32,
    /// A bound that was better than the base, and its cost: it has to be so after the trial as well.
    candidate: Option<(u32, u64)>,
    /// Which of [`STEPS`] the next trial takes.
    step: usize,
    /// Measurements since the last trial, or since it last got better.
    rest: u32,
    /// How many there are at least before the next trial: doubles with each trial that fails.
    patience: u32,
    /// Measurements to let pass until the bound has its effect.
    settling: u32,
}

impl HotBound {
    /// Starts from `first`, within `smallest..=largest`, all powers of two.
    pub(crate) fn new(smallest: u32, largest: u32, first: u32) -> Self {
        let base = first.clamp(smallest, largest);
        Self {
            smallest,
            largest,
            base,
            base_costs: [u64::MAX; 2],
            least: u64::MAX,
            bound: base,
            candidate: None,
            step: 0,
            rest: 0,
            patience: LEAST_REST,
            settling: settling(base, 0),
        }
    }

    /// A bound that stays.
    pub(crate) fn fixed(bound: u32) -> Self {
        Self::new(bound, bound, bound)
    }

    /// Magazines that the hot set should have now.
    pub(crate) const fn bound(&self) -> u32 {
        self.bound
    }

    /// Takes in a measurement: how many cycles lanes take for a magazine, while so many magazines of buffers are under way.
    /// Returns the bound if it changed.
    pub(crate) fn observe(&mut self, cost: u64, under_way: u32) -> Option<u32> {
        if self.settling > 0 {
            self.settling -= 1;
            return None;
        }
        let before = self.bound;
        self.judge(cost, under_way);
        if self.bound == before {
            return None;
        }
        self.settling = settling(before.max(self.bound), under_way);
        Some(self.bound)
    }

    fn judge(&mut self, cost: u64, under_way: u32) {
        if self.bound == self.base {
            self.base_costs = [self.base_costs[1], cost];
            self.rest += 1;
            // While it still gets better, whatever was tried would seem to be why.
            if better(cost, self.least) {
                self.least = cost;
                self.rest = 0;
            }
            if self.rest < self.patience + ROUNDS * under_way / SAMPLES as u32 {
                return;
            }
            let base_cost = self.base_costs[0].min(self.base_costs[1]);
            match self.candidate.take() {
                None => self.bound = self.next_trial(),
                Some((bound, cost)) if better(cost, base_cost) => {
                    (self.base, self.bound) = (bound, bound);
                    self.patience = LEAST_REST;
                }
                Some(_) => self.fail(),
            }
        } else {
            let base_cost = self.base_costs[0].min(self.base_costs[1]);
            if better(cost, base_cost) {
                self.candidate = Some((self.bound, cost));
            } else {
                self.fail();
            }
            self.bound = self.base;
        }
        self.least = u64::MAX;
        self.rest = 0;
    }

    /// The trial did not pay.
    fn fail(&mut self) {
        self.step = (self.step + 1) % STEPS.len();
        self.patience = (self.patience * 2).min(LONGEST_REST);
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

/// Whether a cost is less by more than chance.
const fn better(cost: u64, than: u64) -> bool {
    cost < than - than / 32
}

/// Measurements until a bound has its effect: all buffers under way have come home once and the set has gone round twice,
/// so that the surplus of half a bound is gone too, and one measurement that had begun before.
const fn settling(magazines: u32, under_way: u32) -> u32 {
    (magazines * 2 + under_way) / SAMPLES as u32 + 1
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Runs the search against `cost` for a while; says where it ended and how often it was elsewhere after that.
    fn search(first: u32, cost: impl Fn(u32, u32) -> u64) -> (u32, f64) {
        let mut search = HotBound::new(4, 512, first);
        for number in 0..1_000_000 {
            search.observe(cost(search.bound(), number), 2);
        }
        let base = search.base;
        let away = (0..1_000_000).filter(|&number| {
            search.observe(cost(search.bound(), number), 2);
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
    fn it_is_there_within_some_hundred_measurements() {
        // Of 32 magazines of 128 packets at 200 cycles: a third of a millisecond each.
        let mut search = HotBound::new(1, 512, 64);
        for _ in 0..200 {
            search.observe(3_000 + 100 * u64::from(search.bound()), 2);
        }
        assert!(search.base <= 4, "{search:?}");
    }

    #[test]
    fn it_stays_where_it_is_if_all_is_the_same() {
        assert_eq!(search(32, |_, _| 3_000).0, 32);
    }

    #[test]
    fn it_leaves_where_all_neighbours_cost_the_same() {
        let cost = |bound: u32, _| if bound >= 128 { 60_000 } else { 3_000 + 200 * u64::from(bound) };
        assert_eq!(search(512, cost).0, 4);
    }

    /// What a bound costs after a pause: for so many measurements all the same, then less and less.
    fn after_a_pause(plateau: u32, number: u32, bound: u32) -> u64 {
        let falling = (plateau..number).fold(6_000, |cost: u64, _| cost - cost / 50).max(3_000);
        if bound == 32 { falling } else { falling + falling / 20 }
    }

    #[test]
    fn what_gets_better_by_itself_does_not_move_it() {
        for plateau in 0..50 {
            let mut search = HotBound::new(4, 512, 32);
            for number in 0..1_000 {
                search.observe(after_a_pause(plateau, number, search.bound()), 2);
                assert_eq!(search.base, 32, "after {number} measurements, {plateau} of them alike");
            }
        }
    }

    #[test]
    fn nothing_is_tried_while_it_gets_better() {
        let mut search = HotBound::new(4, 512, 32);
        for number in 0..35 {
            assert_eq!(search.observe(after_a_pause(0, number, search.bound()), 2), None);
        }
    }

    #[test]
    fn a_trial_waits_until_what_is_under_way_has_come_home() {
        // What the last bound but one left costs extra until then.
        let mut search = HotBound::new(4, 512, 32);
        let mut since = 0;
        for _ in 0..100_000 {
            let late = since < 2_000 / SAMPLES;
            let cost = if search.bound() < 32 && late { 1_000 } else { 3_000 };
            since = if search.observe(cost, 2_000).is_some() { 0 } else { since + 1 };
            assert_eq!(search.base, 32);
        }
    }

    #[test]
    fn a_lost_cpu_and_a_pause_do_not_show_in_the_pace() {
        let mut pace = Pace::new();
        let (mut now, mut told) = (1, Vec::new());
        for number in 0..1_000_u64 {
            now += if number.is_multiple_of(3) { 10_000_000 } else { 3_000 };
            told.extend(pace.lap(now));
            if number == 500 {
                // Something else for a while.
                pace.interrupt();
                now += 1;
            }
        }
        assert_eq!(told, vec![3_000; 999 / SAMPLES]);
    }

    #[test]
    fn a_moment_in_which_all_is_slow_does_not_move_it() {
        let mut search = HotBound::new(4, 512, 32);
        for number in 0..100_000 {
            search.observe(if number % 7 == 0 { 6_000 } else { 3_000 }, 2);
            assert_eq!(search.base, 32, "after {number} measurements");
        }
    }

    #[test]
    fn one_bound_is_no_search() {
        let mut search = HotBound::new(1, 1, 64);
        for cycles in 0..10_000 {
            assert_eq!(search.observe(cycles, 0), None);
        }
        assert_eq!(search.bound(), 1);
    }
}
