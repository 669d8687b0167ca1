//! Variants of a thing take turns, until there are enough rounds that count.
//!
//! A turn is one round of each variant, in an order that is drawn anew for each turn, so that none gains by its place. A round follows one of
//! another way, whose rounds have had the caches meanwhile: if the order has it otherwise, a round of another way that doesn't count comes
//! between. A round that lost time to others is repeated, a few times; a turn with one that
//! still did doesn't count, and another is taken. Nor does a turn in which the core's clock, which is measured after each round ([`core_clock`]), was not what it mostly is after rounds of the same variant: a variant
//! may slow the core down itself, by wide vectors for example, which is part of what it costs. With two lanes, the cost of moving a cache
//! line between their CPUs is measured before, between and after the rounds of a turn: one in which it changed doesn't count
//! either, and the result is made of turns of one regime only ([`line_transfer`]). The CPUs of two lanes never sleep meanwhile ([`Awake`]).

use crate::awake::Awake;
use crate::statistics::Spread;
use crate::{core_clock, line_transfer};
use warmlane_sys::affinity::AffinityError;
use warmlane_sys::random::{Random, system_seed};

/// The cost of a line may change so much within a turn.
const STEADY: f64 = 1.5;
/// The core's clock after a round may be so far from what it mostly is after rounds of that variant.
const STEADY_CLOCK: f64 = 1.1;
/// A cost so many times the lowest of the run belongs to a slower regime.
const SLOWER: f64 = 2.0;
/// How often a round is repeated that lost time to others: where programs of a few milliseconds come now and then, hardly a
/// turn of many variants would be without one.
const REPEATS: usize = 2;
/// How many turns there may be for each one that is wanted, when the regimes change all the time.
const TURNS_EACH: usize = 8;
/// So many disturbed turns are borne, however few are wanted.
const LEAST_DISTURBED: usize = 9;

/// One round of one variant.
#[derive(Clone, Debug, PartialEq)]
pub struct Round {
    /// What it cost.
    pub cycles_per_unit: f64,
    /// Why it doesn't count, if so.
    pub disturbed: Option<String>,
}

/// One round of each variant.
#[derive(Clone, Debug, Default)]
struct Turn {
    /// The cycles per unit of each.
    variants: Vec<f64>,
    /// How fast the core's clock ran after each.
    clocks: Vec<f64>,
    /// Cycles for a line from CPU to CPU, with two lanes.
    line_transfer: Option<f64>,
    /// Why it doesn't count, if so, whatever the others were like.
    disturbed: Option<String>,
}

/// What the turns came to.
#[derive(Debug, Default)]
pub struct Taken {
    /// The cycles per unit of each variant in each round that counts; in all rounds, if the result is void.
    pub variants: Vec<Vec<f64>>,
    /// Which turns these are, from 0.
    pub counted: Vec<usize>,
    /// How many turns there were.
    pub turns: usize,
    /// What the order of the variants in each turn was drawn from.
    pub seed: u64,
    /// The cycles for a line from CPU to CPU, with two lanes.
    pub line_transfer: Option<f64>,
    /// Whether these turns are of a slower regime than others of the run.
    pub slow: bool,
    /// Why there are not enough of them, if so.
    pub void: Option<String>,
}

/// Measures one variant after the other, on one CPU or two, until `wanted` turns count or too many don't. `measure` is told which
/// variant, from 0. The same seed gives the same orders.
///
/// # Errors
/// Those of `measure`, or [`AffinityError`] if a CPU can't be used.
pub fn take<E: From<AffinityError>>(
    cpus: &[usize],
    variants: usize,
    wanted: usize,
    seed: u64,
    mut measure: impl FnMut(usize) -> Result<Round, E>,
) -> Result<Taken, E> {
    let mut turns = Vec::new();
    let mut random = Random::new(seed);
    let mut order: Vec<usize> = (0..variants).collect();
    // With one lane nothing moves between CPUs, and the other one may sleep.
    let awake = (cpus.len() > 1).then(|| Awake::start(cpus)).transpose()?;
    let mut measure = |variant| match &awake {
        Some(awake) => awake.paused_during(|| measure(variant)),
        None => measure(variant),
    };
    loop {
        let last = order.last().copied().filter(|_| !turns.is_empty());
        shuffle(&mut order, &mut random);
        turns.push(take_one(cpus, &order, last, &mut measure)?);
        if let Some(taken) = judge(&turns, wanted) {
            return Ok(Taken { seed, ..taken });
        }
    }
}

/// A seed that nobody has chosen. It is of 32 bits, which all readers of JSON keep as they are.
pub fn any_seed() -> u64 {
    system_seed() >> 32
}

/// Every order is as likely (Durstenfeld, Algorithm 235).
fn shuffle(order: &mut [usize], random: &mut Random) {
    for end in (1..order.len()).rev() {
        order.swap(end, random.below(end + 1));
    }
}

/// One round of each variant in this order, after a round of `last`.
fn take_one<E: From<AffinityError>>(
    cpus: &[usize],
    order: &[usize],
    mut last: Option<usize>,
    measure: &mut impl FnMut(usize) -> Result<Round, E>,
) -> Result<Turn, E> {
    let variants = order.len();
    let mut transfers = Vec::new();
    let mut look = || {
        if let [first, second] = cpus {
            transfers.push(line_transfer::measure(*first, *second)?);
        }
        Ok::<_, AffinityError>(())
    };
    look()?;
    let mut turn =
        Turn { variants: vec![f64::NAN; variants], clocks: vec![f64::NAN; variants], ..Turn::default() };
    for &variant in order {
        // In a round that follows the same variant's, the caches would be warmer than in others.
        let mut after_another = |last: Option<usize>| {
            if last == Some(variant) && variants > 1 {
                measure((variant + 1) % variants)?;
            }
            measure(variant)
        };
        let mut round = after_another(last)?;
        for _ in 0..REPEATS {
            if round.disturbed.is_some() {
                round = after_another(Some(variant))?;
            }
        }
        last = Some(variant);
        if let Some(first) = cpus.first() {
            turn.clocks[variant] = core_clock::measure(*first)?;
        }
        look()?;
        turn.variants[variant] = round.cycles_per_unit;
        turn.disturbed = turn.disturbed.or(round.disturbed);
    }
    if let Some(spread) = Spread::of(&transfers) {
        turn.line_transfer = Some(spread.median);
        if spread.max > spread.min * STEADY {
            let change = format!(
                "the cost of moving a line between the CPUs changed from {:.0} to {:.0} cycles in a turn",
                spread.min, spread.max
            );
            turn.disturbed = turn.disturbed.or(Some(change));
        }
    }
    Ok(turn)
}

/// Why a turn doesn't count among these, if so
fn disturbance(turn: &Turn, turns: &[Turn]) -> Option<String> {
    turn.disturbed.clone().or_else(|| clock_changed(turn, turns))
}

fn clock_changed(turn: &Turn, turns: &[Turn]) -> Option<String> {
    turn.clocks.iter().enumerate().find_map(|(variant, clock)| {
        let after_that_way: Vec<f64> =
            turns.iter().filter_map(|turn| turn.clocks.get(variant).copied()).collect();
        let change = clock / Spread::of(&after_that_way)?.median;
        (change.max(1.0 / change) > STEADY_CLOCK).then(|| {
            format!(
                "the core's clock was {:.0} % from what it mostly is after such a round: a governor, or other load of the host",
                100.0 * (change.max(1.0 / change) - 1.0)
            )
        })
    })
}

/// The result, if there are enough turns for one.
fn judge(turns: &[Turn], wanted: usize) -> Option<Taken> {
    let disturbances: Vec<_> = turns.iter().map(|turn| disturbance(turn, turns)).collect();
    let (good, bad): (Vec<usize>, Vec<usize>) =
        (0..turns.len()).partition(|&turn| disturbances[turn].is_none());
    let lowest = good.iter().filter_map(|&turn| turns[turn].line_transfer).fold(f64::INFINITY, f64::min);
    let (slow, fast): (Vec<usize>, Vec<usize>) = good.iter().partition(|&&turn| {
        turns[turn].line_transfer.is_some_and(|line_transfer| line_transfer >= lowest * SLOWER)
    });
    for (group, is_slow) in [(&fast, false), (&slow, true)] {
        if group.len() >= wanted {
            return Some(Taken { slow: is_slow, ..collect(turns, group) });
        }
    }
    let two_lanes = turns.iter().any(|turn| turn.line_transfer.is_some());
    let enough =
        if two_lanes { turns.len() >= TURNS_EACH * wanted } else { bad.len() >= wanted.max(LEAST_DISTURBED) };
    // Without enough good turns there is no result, but figures that show what happened.
    enough.then(|| {
        let last = bad.last().and_then(|&turn| disturbances[turn].clone());
        let reason = last.map_or_else(String::new, |reason| format!("; in the last one, {reason}"));
        let reason = if bad.is_empty() || (two_lanes && good.len() >= wanted) {
            format!(
                "the cost of moving a line between the CPUs kept changing: {} turns with a low and {} with a high one",
                fast.len(),
                slow.len()
            )
        } else {
            format!("{} turns of {} were disturbed{reason}", bad.len(), turns.len())
        };
        Taken { void: Some(reason), ..collect(turns, &(0..turns.len()).collect::<Vec<_>>()) }
    })
}

fn collect(turns: &[Turn], counted: &[usize]) -> Taken {
    let variants = turns.first().map_or(0, |turn| turn.variants.len());
    let transfers: Vec<f64> = counted.iter().filter_map(|&turn| turns[turn].line_transfer).collect();
    Taken {
        variants: (0..variants)
            .map(|variant| counted.iter().map(|&turn| turns[turn].variants[variant]).collect())
            .collect(),
        counted: counted.to_vec(),
        turns: turns.len(),
        seed: 0,
        line_transfer: Spread::of(&transfers).map(|spread| spread.median),
        slow: false,
        void: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(cycles: f64, line_transfer: Option<f64>) -> Turn {
        Turn { variants: vec![cycles, 9.0, 5.0], clocks: vec![1.0, 1.2, 1.0], line_transfer, disturbed: None }
    }

    fn disturbed() -> Turn {
        Turn { disturbed: Some("a storm passed".to_owned()), ..turn(7.0, None) }
    }

    #[test]
    fn turns_are_taken_until_enough_count() {
        let cpu = warmlane_sys::affinity::allowed_cpus().unwrap()[0];
        let mut rounds = Vec::new();
        let taken = take::<AffinityError>(&[cpu], 2, 3, 7, |variant| {
            rounds.push(variant);
            // All that the first turn may have, repeated rounds included.
            let disturbed = (rounds.len() <= 1 + 2 * REPEATS).then(|| "a storm passed".to_owned());
            Ok(Round { cycles_per_unit: variant as f64, disturbed })
        });
        let taken = taken.unwrap();
        // A turn that was out of the clock's course may count after all when the next one is there.
        let count = taken.counted.len();
        assert!(taken.turns >= 4 && !taken.counted.contains(&0) && count >= 3, "{taken:?}");
        assert_eq!((taken.variants, taken.seed), (vec![vec![0.0; count], vec![1.0; count]], 7));
    }

    #[test]
    fn the_order_is_drawn_and_no_round_follows_its_own_way() {
        let cpu = warmlane_sys::affinity::allowed_cpus().unwrap()[0];
        let rounds = |seed| {
            let mut rounds = Vec::new();
            let taken = take::<AffinityError>(&[cpu], 3, 40, seed, |variant| {
                rounds.push(variant);
                Ok(Round { cycles_per_unit: 1.0, disturbed: None })
            });
            (rounds, taken.unwrap().turns)
        };
        let (drawn, _) = rounds(1);
        assert!(drawn.windows(2).all(|pair| pair[0] != pair[1]), "{drawn:?}");
        // The clock may disturb turns, so that one of the two runs has more of them.
        assert!(rounds(1).0.iter().zip(&drawn).all(|(one, other)| one == other));
        assert!(rounds(2).0.iter().zip(&drawn).any(|(one, other)| one != other));
        let mut first = [0; 3];
        let (mut order, mut random) = ([0, 1, 2], Random::new(1));
        for _ in 0..3_000 {
            shuffle(&mut order, &mut random);
            first[order[0]] += 1;
        }
        // Ten standard deviations.
        assert!(first.iter().all(|&times| (740..1_260).contains(&times)), "{first:?}");
    }

    #[test]
    fn a_disturbed_round_is_repeated_and_the_turn_counts() {
        let cpu = warmlane_sys::affinity::allowed_cpus().unwrap()[0];
        let mut rounds = Vec::new();
        let turn = take_one::<AffinityError>(&[cpu], &[1, 0], Some(0), &mut |variant| {
            rounds.push(variant);
            let disturbed = (rounds.len() == 1).then(|| "a storm passed".to_owned());
            Ok(Round { cycles_per_unit: (10 * variant + rounds.len()) as f64, disturbed })
        });
        let turn = turn.unwrap();
        assert_eq!((turn.variants, turn.disturbed, rounds), (vec![4.0, 13.0], None, vec![1, 0, 1, 0]));
    }

    #[test]
    fn enough_good_turns_are_a_result() {
        assert!(judge(&vec![turn(1.0, None); 8], 9).is_none());
        let mut turns = vec![disturbed()];
        turns.extend(vec![turn(1.0, None); 9]);
        turns.extend(vec![disturbed(); 7]);
        let taken = judge(&turns, 9).unwrap();
        assert_eq!(
            (taken.variants, taken.void, taken.line_transfer),
            (vec![vec![1.0; 9], vec![9.0; 9], vec![5.0; 9]], None, None)
        );
        assert_eq!((taken.counted, taken.turns), ((1..10).collect(), 17));
    }

    #[test]
    fn a_way_may_slow_the_clock_but_nothing_else_may() {
        let mut turns = vec![turn(1.0, None); 5];
        turns[3].clocks[0] = 1.3;
        turns[4].clocks[2] = 1.09;
        let told: Vec<_> = turns.iter().map(|turn| disturbance(turn, &turns)).collect();
        assert_eq!([&told[0], &told[1], &told[2], &told[4]], [&None; 4]);
        assert!(told[3].as_ref().unwrap().starts_with("the core's clock was 30 % from"), "{told:?}");
        assert!(judge(&turns, 5).is_none() && judge(&turns, 4).is_some());
    }

    #[test]
    fn too_many_disturbed_turns_are_void() {
        let mut turns = vec![turn(1.0, None); 3];
        turns.extend(vec![disturbed(); 8]);
        assert!(judge(&turns, 9).is_none());
        turns.push(disturbed());
        let taken = judge(&turns, 9).unwrap();
        assert_eq!(taken.void.unwrap(), "9 turns of 12 were disturbed; in the last one, a storm passed");
        assert_eq!(taken.variants[0].len(), 12);
        assert!(judge(&vec![disturbed(); 8], 1).is_none() && judge(&vec![disturbed(); 9], 1).is_some());
    }

    #[test]
    fn regimes_are_never_mixed() {
        let mut turns: Vec<Turn> =
            (0..8).flat_map(|_| [turn(1.0, Some(170.0)), turn(4.0, Some(700.0))]).collect();
        assert!(judge(&turns, 9).is_none());
        turns.push(turn(4.0, Some(690.0)));
        let slow = judge(&turns, 9).unwrap();
        assert_eq!((&slow.variants[0], slow.slow, slow.line_transfer), (&vec![4.0; 9], true, Some(700.0)));
        turns.pop();
        turns.push(turn(1.0, Some(180.0)));
        let fast = judge(&turns, 9).unwrap();
        assert_eq!((&fast.variants[0], fast.slow, fast.line_transfer), (&vec![1.0; 9], false, Some(170.0)));
    }

    #[test]
    fn regimes_that_never_last_are_void() {
        // Neither regime gets enough turns, because a lower one keeps turning up.
        let turns: Vec<Turn> =
            (0..72).map(|i| if i < 71 { disturbed() } else { turn(1.0, Some(1.0)) }).collect();
        assert!(judge(&turns, 9).unwrap().void.unwrap().starts_with("71 turns of 72"));
    }
}
