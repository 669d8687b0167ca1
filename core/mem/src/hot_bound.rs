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
const LONGEST_BACKOFF: u32 = 128;

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
    backoff: u32,
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
            backoff: 1,
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
        let rested = self.rest >= self.away * self.backoff as usize
            && self.rest as u64 * self.base_cost >= self.loss.saturating_mul(LOSSES);
        match self.candidate.take() {
            Some((bound, cost)) if better(cost, self.base_cost) => {
                let rises = bound > self.base;
                (self.base, self.bound) = (bound, bound);
                (self.failed, self.backoff, self.rest, self.away, self.loss) = (0, 1, 0, 0, 0);
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
            self.backoff = (self.backoff * 2).min(LONGEST_BACKOFF);
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

/// Measurements until a bound has its effect: all buffers under way have come back once and the set has gone round twice,
/// and one measurement that had begun before. Meanwhile the depot keeps just so many.
const fn settling(magazines: u32, under_way: u32) -> usize {
    (magazines * 2 + under_way) as usize / SAMPLES + 1
}

// Arithmetic over millions of measurements: Miri would take hours to find nothing.
#[cfg(all(test, not(any(loom, miri))))]
mod tests;
