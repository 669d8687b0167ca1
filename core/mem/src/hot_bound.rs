//! How large the hot set of a depot should be, found by trying.
//!
//! The best size depends on how many bytes of each packet the lanes touch, on the caches, on how far apart the cores
//! are and on who else uses the shared cache; none of that is known here. What it comes to can be measured, by
//! the lanes: how long they take for a magazine. So other bounds are tried now and then, half or twice
//! as large or farther off, and it goes where that is shortest. A lane that waits for traffic takes the same time with any bound, and then the bound stays.
//!
//! The lane that takes and the one that frees go at different speeds until what is between them is full or empty, and that
//! may be thousands of packets away: a bound that lets only the first go faster is no gain. So the slower one counts.
//!
//! Costs change by themselves. In the short run, because of where in the round the buffers lie and of how far one lane is
//! ahead of the other: with 20,000 packets held between the lanes and headers touched, magazines of one bound took 5,400
//! cycles and 6,200, both for thousands in turn (Granite Rapids). So a bound is judged by the mean of a whole round of its
//! buffers. In the long run, because the shared cache comes to keep lines only when they have been round some times: in
//! the same traffic 65,536 buffers took 7,900 cycles a magazine instead of 5,800 at first, and 4,600 after five rounds. After a
//! pause, in which others had the caches, it is the same with any bound: a set of 33 MB took 30 milliseconds. So nothing is
//! tried, and no trial ends, while it still gets better, and a bound has to be better than the base both before and
//! after its trial.
//!
//! How much there is to find, on an EPYC of the Zen 4 generation (1 MiB of private and 32 MiB of shared cache), two
//! lanes, cycles a packet first in, first out over 1,023 / 2,047 / 4,095 / 8,191 / 12,287 / 16,383 / 65,535 buffers:
//! 44 / 45 / 43 / 34 / 27 / 26 / 28 with 64 bytes touched, 158 / 110 / 111 / 128 / 270 / 380 / 518 with 1,520.
//! On a Granite Rapids (2 MiB and 480 MiB), with hot sets of 128 / 256 / 512 / 1,024 / 2,048 / 4,096 / 8,192 / 65,536
//! and 1,520 bytes: 294 / 298 / 277 / 265 / 261 / 279 / 312 / 581; with 20,000 packets held between the lanes, 466 at 128,
//! 501 at 512, 358 at 1,024, 222 to 265 at 1,536 and 2,048, 415 at 6,144: what the reader's private cache still has as its
//! own costs the writer most, and what has gone to the shared cache least, as long as that keeps it. With headers touched and
//! 20,000 packets held, sets of 128 to 8,192 took 49 to 52, and 16,384 / 32,768 / 65,536 / 131,072 took 41 / 39 / 40 / 43.
//! (How long a write to a buffer's header takes, alone or 32 together, says much less: 64 bytes, 140 to 90 cycles.)

/// Magazines that make one measurement.
const SAMPLES: usize = 32;

/// Which of them counts, from the shortest: low, because interrupts and waiting only make them longer.
const QUARTILE: usize = SAMPLES / 4;

/// Measurements in a mean at least, and at most: of more than that, only every second, or third, is kept.
const LEAST_KEPT: usize = 24;
const MOST_KEPT: usize = 64;

/// What trials do to the bound, in powers of two, one after the other as they fail. The far ones lead away from where
/// all neighbours cost the same: whole frames cost as much from 64 MiB as from 128, and half as much from 16; and with 20,000
/// packets held, headers as much from 128 buffers to 8,192, and a fifth less from 16,384 on.
const STEPS: [i32; 8] = [-1, 1, -3, 3, -5, 5, -7, 7];

/// How many times as long as the last trial took the base is kept before the next, when all steps have failed so often:
/// doubles each time, to this.
const MOST_PATIENCE: u32 = 128;

/// A trial ends when it has lost as much time against the base as so many measurements of that take: what is far too large or
/// too small shows at once.
const MOST_LOSS: u64 = 12;

/// The base is kept for so many times what the last trial lost: trials cost less than 1 % of it.
const LOSSES: u64 = 128;

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

/// The mean of some measurements.
#[derive(Debug)]
struct Mean {
    /// Measurements that came, and those of them that were kept.
    seen: usize,
    kept: usize,
    costs: [u64; MOST_KEPT],
}

impl Mean {
    const fn new() -> Self {
        Self { seen: 0, kept: 0, costs: [0; MOST_KEPT] }
    }

    /// Takes a measurement in. After at least `length` of them, returns the mean of their middle half, since a moment in
    /// which all is slow should not show, and begins anew.
    fn add(&mut self, cost: u64, length: usize) -> Option<u64> {
        let length = length.max(LEAST_KEPT);
        if self.seen.is_multiple_of(length.div_ceil(MOST_KEPT)) && self.kept < MOST_KEPT {
            self.costs[self.kept] = cost;
            self.kept += 1;
        }
        self.seen += 1;
        if self.seen < length {
            return None;
        }
        let costs = &mut self.costs[..self.kept];
        costs.sort_unstable();
        let middle = &costs[costs.len() / 4..costs.len() - costs.len() / 4];
        let mean = middle.iter().sum::<u64>() / middle.len() as u64;
        (self.seen, self.kept) = (0, 0);
        Some(mean)
    }
}

/// The search. Bounds are powers of two, in magazines.
#[derive(Debug)]
pub(crate) struct HotBound {
    smallest: u32,
    largest: u32,
    /// The bound that trials start from.
    base: u32,
    bound: u32,
    mean: Mean,
    /// Means of the bound in use since it last changed or got better, up to two, the last one first: a trial has to beat both
    /// of the base's, or a moment in which the CPU was away would make any other bound look better.
    costs: [Option<u64>; 2],
    /// The least mean since the bound changed, or since it got far worse by itself.
    least: u64,
    /// What the base cost before the trial that is on.
    base_cost: u64,
    /// A bound that was better than the base, and its cost: it has to be so after the trial as well.
    candidate: Option<(u32, u64)>,
    /// Which of [`STEPS`] the next trial takes, as it is or, if `mirrored`, the other way.
    step: usize,
    mirrored: bool,
    /// Trials that failed since the base was found.
    failed: usize,
    /// Measurements since the last trial, or since it last got better.
    rest: usize,
    /// How many measurements the last trial took.
    away: usize,
    /// How many cycles longer than at the base its measurements were, together.
    loss: u64,
    /// How many times that the base is kept at least.
    patience: u32,
    /// Measurements to let pass until the bound has its effect.
    settling: usize,
}

impl HotBound {
    /// Starts from `first`, within `smallest..=largest`, all powers of two.
    pub(crate) fn new(smallest: u32, largest: u32, first: u32) -> Self {
        let base = first.clamp(smallest, largest);
        Self {
            smallest,
            largest,
            base,
            bound: base,
            mean: Mean::new(),
            costs: [None; 2],
            least: u64::MAX,
            base_cost: u64::MAX,
            candidate: None,
            step: 0,
            mirrored: false,
            failed: 0,
            rest: 0,
            away: 0,
            loss: 0,
            patience: 1,
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

    /// Whether the bound has changed so lately that what is measured still comes of the one before.
    pub(crate) const fn is_settling(&self) -> bool {
        self.settling > 0
    }

    /// Takes in a measurement: how many cycles lanes take for a magazine, while so many magazines of buffers are under way.
    pub(crate) fn observe(&mut self, cost: u64, under_way: u32) {
        let before = self.bound;
        if self.bound == self.base {
            self.rest += 1;
        } else {
            self.away += 1;
            self.loss += cost.saturating_sub(self.base_cost);
        }
        if self.loss > self.base_cost.saturating_mul(MOST_LOSS) && self.bound != self.base {
            self.end_trial(None);
        } else if self.settling > 0 {
            self.settling -= 1;
            return;
        } else if let Some(cost) = self.mean.add(cost, (self.bound + under_way) as usize / SAMPLES) {
            self.judge(cost);
        }
        if self.bound == before {
            return;
        }
        (self.mean, self.costs, self.least) = (Mean::new(), [None; 2], u64::MAX);
        self.settling = settling(before.max(self.bound), under_way);
    }

    fn judge(&mut self, cost: u64) {
        // While it still gets better, whatever was tried would seem to be why. And when it got far worse by itself, others
        // had the caches, and it will get better again.
        let worse = self.costs[0].is_some_and(|last| cost > last + last / 4);
        if worse || cost < self.least - self.least / 64 {
            (self.least, self.costs) = (cost, [Some(cost), None]);
            return;
        }
        self.costs = [Some(cost), self.costs[0]];
        let [Some(last), Some(before)] = self.costs else { return };
        if self.bound != self.base {
            self.end_trial(Some(last));
            return;
        }
        self.base_cost = last.min(before);
        let rested = self.rest >= self.away * self.patience as usize
            && self.rest as u64 * self.base_cost >= self.loss.saturating_mul(LOSSES);
        match self.candidate.take() {
            Some((bound, cost)) if better(cost, self.base_cost) => {
                let rises = bound > self.base;
                (self.base, self.bound) = (bound, bound);
                (self.failed, self.patience, self.rest, self.away, self.loss) = (0, 1, 0, 0, 0);
                // The neighbours first, whatever led here, as they cost the least to try; and on in the same direction.
                (self.step, self.mirrored) = (0, rises);
            }
            Some(_) => self.fail(),
            None if rested => {
                (self.bound, self.away, self.loss) = (self.next_trial(), 0, 0);
            }
            None => {}
        }
    }

    /// Back to the base, from a bound that took so long for a magazine.
    fn end_trial(&mut self, cost: Option<u64>) {
        self.candidate = cost.filter(|&cost| better(cost, self.base_cost)).map(|cost| (self.bound, cost));
        if self.candidate.is_none() {
            self.fail();
        }
        (self.bound, self.rest) = (self.base, 0);
    }

    /// The trial did not pay.
    fn fail(&mut self) {
        self.step = (self.step + 1) % STEPS.len();
        self.failed += 1;
        if self.failed.is_multiple_of(STEPS.len()) {
            self.patience = (self.patience * 2).min(MOST_PATIENCE);
        }
    }

    /// The next bound to try: by the first step from here on that leads where the one before it in its direction does not.
    fn next_trial(&mut self) -> u32 {
        for _ in 0..STEPS.len() {
            let step = if self.mirrored { -STEPS[self.step] } else { STEPS[self.step] };
            let bound = self.after(step);
            if bound != self.base && bound != self.after(step - 2 * step.signum()) {
                return bound;
            }
            self.fail();
        }
        self.base
    }

    /// Where a step leads.
    fn after(&self, step: i32) -> u32 {
        let factor = 1 << step.abs();
        let bound = if step > 0 { self.base.saturating_mul(factor) } else { self.base / factor };
        bound.clamp(self.smallest, self.largest)
    }
}

/// Whether a cost is less by more than chance.
const fn better(cost: u64, than: u64) -> bool {
    cost < than - than / 32
}

/// Measurements until a bound has its effect: all buffers under way have come home once and the set has gone round twice,
/// and one measurement that had begun before. Meanwhile the depot keeps just so many.
const fn settling(magazines: u32, under_way: u32) -> usize {
    (magazines * 2 + under_way) as usize / SAMPLES + 1
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
        // Of 32 magazines of 256 packets at 200 cycles: two thirds of a millisecond each.
        let mut search = HotBound::new(1, 512, 64);
        for _ in 0..800 {
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
    fn nothing_is_tried_while_it_gets_better_again_after_each_pause() {
        let mut search = HotBound::new(4, 512, 32);
        let (mut trials, mut early) = (0, 0);
        for number in 0..100_000 {
            let cost = after_a_pause(0, number % 301, search.bound());
            let before = search.bound();
            search.observe(cost, 2);
            if before == 32 && search.bound() != 32 {
                trials += 1;
                early += u32::from(cost > 3_100);
            }
            assert_eq!(search.base, 32, "after {number} measurements");
        }
        // The mean before one may have begun before the pause.
        assert!(trials > 20 && early * 20 < trials, "{early} of {trials} trials while it got better");
    }

    #[test]
    fn nothing_is_tried_while_it_gets_better() {
        let mut search = HotBound::new(4, 512, 32);
        for number in 0..35 {
            search.observe(after_a_pause(0, number, search.bound()), 2);
            assert_eq!(search.bound(), 32);
        }
    }

    /// A magazine's cycles where 20,000 packets are held between the lanes and headers are touched (Granite Rapids).
    struct Held {
        random: u64,
        /// One lane is ahead of the other for a while, and behind for another.
        ahead: bool,
        /// What a magazine that the caches don't know yet costs on top.
        strange: u64,
    }

    impl Held {
        const UNDER_WAY: u32 = 159;

        fn new(seed: u64) -> Self {
            Self { random: seed, ahead: false, strange: 0 }
        }

        /// A number below `limit`.
        fn random(&mut self, limit: u64) -> u64 {
            // Knuth's constants (The Art of Computer Programming 2, 3.3.4).
            self.random =
                self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.random >> 33) % limit
        }

        fn next(&mut self, bound: u32) -> u64 {
            self.ahead ^= self.random(10) == 0;
            let at_last = if bound < 128 { 5_850 } else { 4_650 };
            let share = if self.ahead { 1_060 } else { 940 };
            let noise = self.random(30);
            self.strange -= self.strange * 4 * SAMPLES as u64 / 5 / u64::from(bound + Self::UNDER_WAY);
            at_last * (share + noise - 15) / 1_000 + self.strange
        }

        /// Where the search from `first` is after so many measurements, and how often it went elsewhere.
        fn search(&mut self, first: u32, largest: u32, measurements: u32) -> (u32, u32) {
            let mut search = HotBound::new(1, largest, first);
            let mut moves = 0;
            for _ in 0..measurements {
                let (bound, base) = (search.bound(), search.base);
                let cost = self.next(bound);
                search.observe(cost, Self::UNDER_WAY);
                if search.bound() > bound {
                    self.strange = 3_000;
                }
                moves += u32::from(search.base != base);
            }
            (search.base, moves)
        }
    }

    #[test]
    fn it_finds_what_is_far_off_and_takes_some_rounds_to_pay() {
        for first in [1, 2, 4, 8, 16, 32, 64] {
            let missed = (0..100).filter(|&seed| Held::new(seed).search(first, 1_024, 5_000).0 < 128);
            assert!(missed.count() <= 5, "from {first}");
        }
    }

    #[test]
    fn after_a_step_that_paid_it_tries_the_neighbour_first() {
        let mut search = HotBound::new(1, 512, 8);
        for _ in 0..800 {
            let cost = match search.bound() {
                ..64 => 10_000,
                64 => 9_200,
                128 => 7_600,
                _ => 30_000,
            };
            search.observe(cost, 80);
        }
        assert_eq!(search.base, 128);
    }

    #[test]
    fn after_a_step_too_far_it_comes_back() {
        let mut search = HotBound::new(1, 512, 8);
        for _ in 0..3_000 {
            let cost = match search.bound() {
                ..32 => 10_000,
                32 => 7_600,
                64 => 9_200,
                _ => 30_000,
            };
            search.observe(cost, 80);
        }
        assert_eq!(search.base, 32);
    }

    #[test]
    fn lanes_that_run_ahead_in_turn_do_not_move_it() {
        let moves: u32 = (0..100).map(|seed| Held::new(seed).search(16, 64, 10_000).1).sum();
        assert!(moves <= 150, "{moves} moves in a million measurements");
    }

    #[test]
    fn trials_of_what_is_far_worse_cost_little_time() {
        let mut search = HotBound::new(1, 1_024, 32);
        let (mut away, mut longest, mut all) = (0, 0, 0);
        for _ in 0..100_000 {
            away = if search.bound() == 32 { 0 } else { away + 1 };
            longest = longest.max(away);
            all += u32::from(away > 0);
            search.observe(if away > 0 { 9_000 } else { 3_000 }, 2);
        }
        assert!(longest <= 7, "{longest} measurements in one trial");
        assert!(all < 1_000, "{all} measurements in trials");
    }

    #[test]
    fn a_trial_waits_until_what_is_under_way_has_come_home() {
        // What the last bound but one left costs extra until then.
        let mut search = HotBound::new(4, 512, 32);
        let mut since = 0;
        for _ in 0..100_000 {
            let late = since < 2_000 / SAMPLES;
            let cost = if search.bound() < 32 && late { 1_000 } else { 3_000 };
            let before = search.bound();
            search.observe(cost, 2_000);
            since = if search.bound() == before { since + 1 } else { 0 };
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
            search.observe(cycles, 0);
            assert_eq!(search.bound(), 1);
        }
    }
}
