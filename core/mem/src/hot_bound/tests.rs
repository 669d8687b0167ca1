use super::*;
use warmlane_sys::random::Random;

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
    random: Random,
    /// One lane is ahead of the other for a while, and behind for another.
    ahead: bool,
    /// What a magazine that the caches don't know yet costs on top.
    strange: u64,
}

impl Held {
    const UNDER_WAY: u32 = 159;

    fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), ahead: false, strange: 0 }
    }

    /// A number below `limit`.
    fn random(&mut self, limit: u64) -> u64 {
        self.random.below(limit as usize) as u64
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

/// Where a search from 8 is after so many measurements. A bound costs what stands with the first of `costs` that it isn't
/// above, and 30,000 above all.
fn found(measurements: u32, costs: [(u32, u64); 3]) -> u32 {
    let mut search = HotBound::new(1, 512, 8);
    for _ in 0..measurements {
        let cost = costs.into_iter().find(|(up_to, _)| search.bound() <= *up_to);
        search.observe(cost.map_or(30_000, |(_, cost)| cost), 80);
    }
    search.base
}

#[test]
fn after_a_step_that_paid_it_tries_the_neighbour_first() {
    assert_eq!(found(800, [(63, 10_000), (64, 9_200), (128, 7_600)]), 128);
}

#[test]
fn after_a_step_too_far_it_comes_back() {
    assert_eq!(found(3_000, [(31, 10_000), (32, 7_600), (64, 9_200)]), 32);
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
