//! Ours and the peers' programs, taking turns.

use std::iter::once;
use std::time::Duration;

use warmlane_lab::statistics::{self, median};
use warmlane_lab::turns;

use super::side::Side;

/// What the turns came to.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// The cycles per unit in each round that counts.
    pub(crate) ours: Vec<f64>,
    /// The same of each peer.
    pub(crate) peers: Vec<Vec<f64>>,
    /// The cycles for a line from CPU to CPU, with two lanes.
    pub(crate) line_transfer: Option<f64>,
    /// How many turns there were, and what their orders were drawn from.
    pub(crate) turns: usize,
    pub(crate) seed: u64,
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
    seed: u64,
) -> anyhow::Result<Taken> {
    let mut sides: Vec<&mut Side> = once(ours).chain(peers).collect();
    let taken = turns::take(cpus, sides.len(), wanted, seed, |side| sides[side].measure(length))?;
    Ok(Taken::of(taken))
}

impl Taken {
    fn of(taken: turns::Taken) -> Self {
        let mut variants = taken.variants.into_iter();
        let ours = variants.next().unwrap_or_default();
        let turns::Taken { turns, seed, line_transfer, slow, void, .. } = taken;
        let mut taken = Self { ours, peers: variants.collect(), turns, seed, line_transfer, slow, void };
        taken.void = taken.void.take().or_else(|| taken.unsteady());
        taken
    }

    /// What counts is the ratio. The two sides of a turn stand beside each other, so what changes slowly around them, such as
    /// neighbours in the third-level cache, changes both; but two modes of a side are the side's own.
    fn unsteady(&self) -> Option<String> {
        let ratios = self.ratios();
        statistics::unsteady("the ratio", &ratios)
            .or_else(|| statistics::two_modes("ours", &self.ours))
            .or_else(|| {
                // Only the best peer's rounds make the result.
                let best = self.best_peer()?;
                statistics::two_modes("the peer", &self.peers[best])
            })
    }

    /// How many times better ours is than the best peer, turn by turn. Fewer cycles are better.
    pub(crate) fn ratios(&self) -> Vec<f64> {
        let Some(best) = self.best_peer() else { return Vec::new() };
        self.ours.iter().zip(&self.peers[best]).map(|(ours, peer)| peer / ours).collect()
    }

    /// The peer with the lowest median.
    pub(crate) fn best_peer(&self) -> Option<usize> {
        (0..self.peers.len()).min_by(|&a, &b| median(&self.peers[a]).total_cmp(&median(&self.peers[b])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_best_peer_has_to_be_steady() {
        let variants = |ours: f64, best: f64| {
            let noisy =
                |last: f64| (0..9).map(|round| if round < 8 { 1.0 } else { last }).collect::<Vec<f64>>();
            let slow = [9.0, 9.0, 9.0, 9.0, 20.0, 9.0, 9.0, 9.0, 9.0].to_vec();
            Taken::of(turns::Taken {
                variants: vec![noisy(ours), slow, noisy(best)],
                ..turns::Taken::default()
            })
        };
        let steady = variants(1.0, 1.0);
        assert_eq!((steady.ours.len(), steady.best_peer(), &steady.void), (9, Some(1), &None));
        assert!(variants(2.0, 1.0).void.unwrap().starts_with("the ratio varies from 0.5 to 1.0"));
        assert!(variants(1.0, 2.0).void.unwrap().starts_with("the ratio varies from 1.0 to 2.0"));
    }

    #[test]
    fn what_changes_both_sides_of_a_turn_leaves_the_ratio() {
        let drift = |start: f64| (0..15).map(|turn| start * 1.07_f64.powi(turn)).collect::<Vec<f64>>();
        let both =
            Taken::of(turns::Taken { variants: vec![drift(10.0), drift(20.0)], ..turns::Taken::default() });
        assert_eq!(both.void, None);
        assert!(both.ratios().iter().all(|ratio| (ratio - 2.0).abs() < 1e-9));
        let modes =
            |slow: f64| (0..15).map(|turn| if turn % 2 == 0 { 1.0 } else { slow }).collect::<Vec<f64>>();
        let both =
            Taken::of(turns::Taken { variants: vec![modes(1.5), modes(1.5)], ..turns::Taken::default() });
        assert!(both.void.unwrap().starts_with("ours has two modes"));
    }
}
