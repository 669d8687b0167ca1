//! What a comparison came to, for people and for programs.

use anyhow::Context;
use serde::Serialize;

use super::catalogue::{Comparison, Lanes};
use super::statistics::Spread;
use super::turns::Taken;

/// One line of the result. Names and order of the fields are a contract with those who read it.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) ours: Spread,
    /// The best of the peers.
    pub(crate) peer_name: String,
    pub(crate) peer: Option<Spread>,
    /// How many times better ours is.
    pub(crate) ratio: Option<f64>,
    pub(crate) promise: f64,
    pub(crate) bound: String,
    pub(crate) rounds: usize,
    /// Why the result doesn't count.
    pub(crate) void: Option<String>,
    /// The other peers, for people.
    #[serde(skip)]
    pub(crate) others: Vec<(String, Spread)>,
}

impl Outcome {
    /// `names` are those of the peers, in their order.
    pub(crate) fn new(
        comparison: &'static Comparison,
        names: &[String],
        taken: Taken,
        missing: Option<String>,
    ) -> anyhow::Result<Self> {
        let ours = Spread::of(&taken.ours).context("there was no round")?;
        let best = taken.best_peer();
        let spreads: Vec<Option<Spread>> = taken.peers.iter().map(|rounds| Spread::of(rounds)).collect();
        let peer = best.and_then(|best| spreads[best]);
        let others = names.iter().zip(&spreads).enumerate().filter(|(place, _)| Some(*place) != best);
        Ok(Self {
            name: comparison.name,
            unit: comparison.unit,
            ours,
            peer_name: best.map_or_else(|| "no peer".to_owned(), |best| names[best].clone()),
            peer,
            // Fewer cycles are better.
            ratio: peer.map(|peer| peer.median / ours.median),
            promise: comparison.promise,
            bound: bound(comparison, &taken, ours.median),
            rounds: taken.ours.len(),
            others: others.filter_map(|(_, (name, spread))| Some((name.clone(), (*spread)?))).collect(),
            void: missing.or(taken.void),
        })
    }

    fn verdict(&self) -> String {
        match (&self.void, self.ratio) {
            (Some(reason), _) => format!("void: {reason}"),
            (None, Some(ratio)) => format!(
                "{ratio:.2} times better, promised {:.2}: {}",
                self.promise,
                if ratio >= self.promise { "kept" } else { "NOT kept" }
            ),
            (None, None) => "no ratio".to_owned(),
        }
    }

    /// For people.
    pub(crate) fn table(&self) -> String {
        let row = |who: &str, spread: &Spread| {
            format!("  {who:<10} {:>9.2} {:>9.2} {:>9.2}", spread.min, spread.median, spread.max)
        };
        let mut lines = vec![
            format!("{} against {}, {} rounds", self.name, self.peer_name, self.rounds),
            format!(
                "  {:<10} {:>9} {:>9} {:>9}",
                self.unit.split('/').next().unwrap_or(self.unit),
                "min",
                "median",
                "max"
            ),
            row("ours", &self.ours),
            self.peer
                .as_ref()
                .map_or_else(|| "  peer       not measured".to_owned(), |peer| row("peer", peer)),
        ];
        lines.extend(self.others.iter().map(|(name, spread)| format!("{}  {name}", row("(other)", spread))));
        lines.push(format!("  {}", self.verdict()));
        lines.push(format!("  bound: {}", self.bound));
        lines.join("\n") + "\n"
    }
}

/// All results below each other, for people.
pub(crate) fn summary(outcomes: &[Outcome]) -> String {
    let mut lines = vec![format!(
        "{:<26} {:<16} {:>9} {:>9} {:>6} {:>7}  {}",
        "comparison", "unit", "ours", "peer", "ratio", "promise", "verdict"
    )];
    lines.extend(outcomes.iter().map(|outcome| {
        let or_dash =
            |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
        let verdict = match (&outcome.void, outcome.ratio) {
            (None, Some(ratio)) if ratio >= outcome.promise => "kept",
            (None, Some(_)) => "NOT kept",
            _ => "void",
        };
        format!(
            "{:<26} {:<16} {:>9.2} {:>9} {:>6} {:>7.2}  {verdict}",
            outcome.name,
            outcome.unit,
            outcome.ours.median,
            or_dash(outcome.peer.map(|peer| peer.median)),
            or_dash(outcome.ratio),
            outcome.promise,
        )
    }));
    lines.join("\n") + "\n"
}

/// What physics allows, with this run's figures where it is counted in lines that move.
fn bound(comparison: &Comparison, taken: &Taken, ours: f64) -> String {
    let words = comparison.bound;
    match (comparison.lanes, taken.hop) {
        (Lanes::Two { lines }, Some(hop)) => {
            let least = lines * hop;
            format!(
                "{words}; {lines} lines per unit move between the CPUs, one at a time {hop:.0} cycles each ({} regime \
                 of this run), together {least:.1}: ours takes {:.2} times that",
                if taken.slow { "slower" } else { "fastest" },
                ours / least
            )
        }
        _ => words.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    static EXAMPLE: Comparison = Comparison {
        name: "example",
        unit: "cycles/packet",
        promise: 2.0,
        bound: "the speed of light",
        lanes: Lanes::One,
        prepare: |_| bail!("not to be run"),
    };
    static PAIR: Comparison = Comparison { lanes: Lanes::Two { lines: 0.25 }, ..EXAMPLE };

    fn names() -> Vec<String> {
        vec!["a slow peer".to_owned(), "a peer".to_owned()]
    }

    fn taken() -> Taken {
        Taken { ours: vec![20.0; 9], peers: vec![vec![60.0; 9], vec![50.0; 9]], ..Taken::default() }
    }

    #[test]
    fn the_object_has_the_promised_shape() {
        let outcome = Outcome::new(&EXAMPLE, &names(), taken(), None).unwrap();
        assert_eq!(
            serde_json::to_string(&outcome).unwrap(),
            r#"{"name":"example","unit":"cycles/packet","ours":{"median":20.0,"min":20.0,"max":20.0},"peer_name":"a peer","peer":{"median":50.0,"min":50.0,"max":50.0},"ratio":2.5,"promise":2.0,"bound":"the speed of light","rounds":9,"void":null}"#
        );
    }

    #[test]
    fn a_missing_peer_makes_it_void() {
        let alone = Taken { peers: Vec::new(), ..taken() };
        let outcome = Outcome::new(&EXAMPLE, &[], alone, Some("it is not installed".into())).unwrap();
        assert_eq!(outcome.void.as_deref(), Some("it is not installed"));
        assert!(outcome.peer.is_none() && outcome.ratio.is_none());
        assert!((outcome.ours.median - 20.0).abs() < 1e-9);
        assert!(outcome.table().contains("void: it is not installed"));
    }

    #[test]
    fn the_table_gives_the_verdict() {
        let mut outcome = Outcome::new(&EXAMPLE, &names(), taken(), None).unwrap();
        let text = outcome.table();
        assert!(
            text.contains("2.50 times better, promised 2.00: kept") && text.contains("a slow peer"),
            "{text}"
        );
        assert!(summary(&[outcome]).contains(" kept"));
        outcome = Outcome::new(&EXAMPLE, &names(), Taken { ours: vec![30.0; 9], ..taken() }, None).unwrap();
        assert!(outcome.table().contains("1.67 times better, promised 2.00: NOT kept"));
        assert!(summary(&[outcome]).contains("NOT kept"));
    }

    #[test]
    fn the_bound_of_two_lanes_has_this_run_s_figures() {
        let outcome = Outcome::new(&PAIR, &names(), Taken { hop: Some(160.0), ..taken() }, None).unwrap();
        assert!(outcome.bound.starts_with("the speed of light; 0.25 lines per unit"), "{}", outcome.bound);
        assert!(outcome.bound.contains("together 40.0: ours takes 0.50 times that"), "{}", outcome.bound);
    }
}
