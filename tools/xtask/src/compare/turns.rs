//! Sides that take turns, until there are enough rounds that count.
//!
//! A turn is one round of each side. One that lost time to others doesn't count and is repeated. With two lanes, the
//! cost of moving a cache line between their CPUs is measured before, between and after the rounds of a turn: one in
//! which it changed doesn't count either, and the result is made of turns of one regime only (`warmlane_lab::hop`).

use std::time::Duration;

use warmlane_lab::hop;

use super::side::Side;
use super::statistics::{self, Spread};

/// The cost of a line may change so much within a turn.
const STEADY: f64 = 1.5;
/// A cost so many times the lowest of the run belongs to a slower regime.
const SLOWER: f64 = 2.0;
/// How many turns there may be for each one that is wanted, when the regimes change all the time.
const PATIENCE: usize = 8;

/// One round of each side.
#[derive(Clone, Debug, Default)]
struct Turn {
    ours: f64,
    peers: Vec<f64>,
    /// Cycles for a line from CPU to CPU, with two lanes.
    hop: Option<f64>,
    /// Why it doesn't count, if so.
    disturbed: Option<String>,
}

/// What the turns came to.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// The cycles per unit in each round that counts.
    pub(crate) ours: Vec<f64>,
    /// The same of each peer.
    pub(crate) peers: Vec<Vec<f64>>,
    /// The cycles for a line from CPU to CPU, with two lanes.
    pub(crate) hop: Option<f64>,
    /// Whether these turns are of a slower regime than others of the run.
    pub(crate) slow: bool,
    /// Why the result doesn't count, if so.
    pub(crate) void: Option<String>,
}

/// Measures one side after the other, on one CPU or two, until `wanted` turns count or too many don't.
pub(crate) fn take(
    ours: &mut Side,
    peers: &mut [Side],
    cpus: &[usize],
    wanted: usize,
    length: Duration,
) -> anyhow::Result<Taken> {
    let mut turns = Vec::new();
    loop {
        turns.push(take_one(ours, peers, cpus, length)?);
        if let Some(taken) = judge(&turns, wanted) {
            return Ok(taken);
        }
    }
}

fn take_one(ours: &mut Side, peers: &mut [Side], cpus: &[usize], length: Duration) -> anyhow::Result<Turn> {
    let mut hops = Vec::new();
    let mut look = || {
        if let [first, second] = cpus {
            hops.push(hop::measure(*first, *second)?);
        }
        anyhow::Ok(())
    };
    look()?;
    let our_round = ours.measure(length)?;
    look()?;
    let mut turn =
        Turn { ours: our_round.cycles_per_unit, disturbed: our_round.disturbed, ..Turn::default() };
    for peer in peers {
        let round = peer.measure(length)?;
        look()?;
        turn.peers.push(round.cycles_per_unit);
        turn.disturbed = turn.disturbed.or(round.disturbed);
    }
    if let Some(spread) = Spread::of(&hops) {
        turn.hop = Some(spread.median);
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

/// The result, if there are enough turns for one.
fn judge(turns: &[Turn], wanted: usize) -> Option<Taken> {
    let (good, bad): (Vec<&Turn>, Vec<&Turn>) = turns.iter().partition(|turn| turn.disturbed.is_none());
    let lowest = good.iter().filter_map(|turn| turn.hop).fold(f64::INFINITY, f64::min);
    let (slow, fast): (Vec<&Turn>, Vec<&Turn>) =
        good.iter().partition(|turn| turn.hop.is_some_and(|hop| hop >= lowest * SLOWER));
    for (group, is_slow) in [(&fast, false), (&slow, true)] {
        if group.len() >= wanted {
            let mut taken = Taken { slow: is_slow, ..collect(group) };
            taken.void = unsteady(&taken);
            return Some(taken);
        }
    }
    let two_lanes = turns.iter().any(|turn| turn.hop.is_some());
    let enough = if two_lanes { turns.len() >= PATIENCE * wanted } else { bad.len() >= wanted };
    // Without enough good turns there is no result, but figures that show what happened.
    enough.then(|| {
        let last = bad.last().and_then(|turn| turn.disturbed.clone());
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
        Taken { void: Some(reason), ..collect(&turns.iter().collect::<Vec<_>>()) }
    })
}

fn collect(turns: &[&Turn]) -> Taken {
    let peers = turns.first().map_or(0, |turn| turn.peers.len());
    let hops: Vec<f64> = turns.iter().filter_map(|turn| turn.hop).collect();
    Taken {
        ours: turns.iter().map(|turn| turn.ours).collect(),
        peers: (0..peers).map(|peer| turns.iter().map(|turn| turn.peers[peer]).collect()).collect(),
        hop: Spread::of(&hops).map(|spread| spread.median),
        slow: false,
        void: None,
    }
}

fn unsteady(taken: &Taken) -> Option<String> {
    statistics::unsteady("ours", &taken.ours).or_else(|| {
        // Only the best peer's rounds make the result.
        let best = taken.best_peer()?;
        statistics::unsteady("the peer", &taken.peers[best])
    })
}

impl Taken {
    /// The peer with the lowest median.
    pub(crate) fn best_peer(&self) -> Option<usize> {
        let median = |peer: &Vec<f64>| Spread::of(peer).map_or(f64::INFINITY, |spread| spread.median);
        (0..self.peers.len()).min_by(|&a, &b| median(&self.peers[a]).total_cmp(&median(&self.peers[b])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(ours: f64, hop: Option<f64>) -> Turn {
        Turn { ours, peers: vec![9.0, 5.0], hop, disturbed: None }
    }

    fn disturbed() -> Turn {
        Turn { disturbed: Some("a storm passed".to_owned()), ..turn(1.0, None) }
    }

    #[test]
    fn enough_good_turns_are_a_result() {
        assert!(judge(&vec![turn(1.0, None); 8], 9).is_none());
        let mut turns = vec![turn(1.0, None); 9];
        turns.extend(vec![disturbed(); 8]);
        let taken = judge(&turns, 9).unwrap();
        assert_eq!((taken.ours.len(), taken.void.as_ref(), taken.hop), (9, None, None));
        assert_eq!(taken.best_peer(), Some(1));
        turns[4].ours = 2.0;
        assert!(judge(&turns, 9).unwrap().void.unwrap().starts_with("ours varies from 1.0 to 2.0"));
    }

    #[test]
    fn too_many_disturbed_turns_are_void() {
        let mut turns = vec![turn(1.0, None); 3];
        turns.extend(vec![disturbed(); 8]);
        assert!(judge(&turns, 9).is_none());
        turns.push(disturbed());
        let taken = judge(&turns, 9).unwrap();
        assert_eq!(taken.void.unwrap(), "9 turns of 12 were disturbed; in the last one, a storm passed");
        assert_eq!(taken.ours.len(), 12);
    }

    #[test]
    fn regimes_are_never_mixed() {
        let mut turns: Vec<Turn> =
            (0..8).flat_map(|_| [turn(1.0, Some(170.0)), turn(4.0, Some(700.0))]).collect();
        assert!(judge(&turns, 9).is_none());
        turns.push(turn(4.0, Some(690.0)));
        let slow = judge(&turns, 9).unwrap();
        assert_eq!((slow.ours, slow.slow, slow.hop), (vec![4.0; 9], true, Some(700.0)));
        turns.pop();
        turns.push(turn(1.0, Some(180.0)));
        let fast = judge(&turns, 9).unwrap();
        assert_eq!((fast.ours, fast.slow, fast.hop), (vec![1.0; 9], false, Some(170.0)));
    }

    #[test]
    fn regimes_that_never_last_are_void() {
        // Neither regime gets enough turns, because a lower one keeps turning up.
        let turns: Vec<Turn> =
            (0..72).map(|i| if i < 71 { disturbed() } else { turn(1.0, Some(1.0)) }).collect();
        assert!(judge(&turns, 9).unwrap().void.unwrap().starts_with("71 turns of 72"));
    }
}
