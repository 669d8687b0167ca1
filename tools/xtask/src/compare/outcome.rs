//! What a comparison came to, for people and for programs.

use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use warmlane_lab::machine::Machine;
use warmlane_lab::statistics::{Interval, Spread};

use super::catalogue::{Comparison, Lanes};
use super::turns::Taken;

/// Instructions that a core starts in a cycle at most: of Zen 3 to 4, and of Golden Cove.
const ISSUE_WIDTH: f64 = 6.0;

/// One line of the result. Names and order of the fields are a contract with those who read it.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) ours: Spread,
    /// The best of the peers.
    pub(crate) peer_name: String,
    pub(crate) peer: Option<Spread>,
    /// How many times better ours is, if the result counts: the middle of the turns.
    pub(crate) ratio: Option<f64>,
    /// The same with the turns that were furthest from it, also if the result doesn't count.
    pub(crate) ratios: Option<Spread>,
    /// Where the ratio lies, going by the turns of this run.
    pub(crate) interval: Option<Interval>,
    pub(crate) promise: f64,
    pub(crate) bound: String,
    /// Undisturbed rounds of each side, how many turns it took to get them, and what the order in each was drawn from.
    pub(crate) rounds: usize,
    pub(crate) turns: usize,
    pub(crate) seed: u64,
    /// Seconds that a round takes.
    pub(crate) length: f64,
    /// Why the result doesn't count.
    pub(crate) void: Option<String>,
    /// Which DPDK the peers are built on, and its flags.
    pub(crate) dpdk: Option<String>,
    /// Where it was measured, with the sources.
    pub(crate) machine: Machine,
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
        length: Duration,
        missing: Option<String>,
        machine: Machine,
    ) -> anyhow::Result<Self> {
        let ours = Spread::of(&taken.ours).context("there was no round")?;
        let best = taken.best_peer();
        let spreads: Vec<Option<Spread>> = taken.peers.iter().map(|rounds| Spread::of(rounds)).collect();
        let peer = best.and_then(|best| spreads[best]);
        let others = names.iter().zip(&spreads).enumerate().filter(|(index, _)| Some(*index) != best);
        let bound = bound(comparison, &taken, ours.median);
        let ratios = taken.ratios();
        let void = missing.or(taken.void);
        let interval = Interval::of(&ratios).filter(|_| void.is_none());
        let ratios = Spread::of(&ratios);
        Ok(Self {
            name: comparison.name,
            unit: comparison.unit,
            ours,
            peer_name: best.map_or_else(|| "no peer".to_owned(), |best| names[best].clone()),
            peer,
            ratio: ratios.filter(|_| void.is_none()).map(|ratios| ratios.median),
            ratios,
            interval,
            promise: comparison.promise,
            bound,
            rounds: taken.ours.len(),
            turns: taken.turns,
            seed: taken.seed,
            length: length.as_secs_f64(),
            others: others.filter_map(|(_, (name, spread))| Some((name.clone(), (*spread)?))).collect(),
            void,
            dpdk: None,
            machine,
        })
    }

    /// Adds to the bound what so many instructions per unit take at least, and how far ours is from it.
    pub(crate) fn beside_instructions(mut self, instructions: anyhow::Result<Option<f64>>) -> Self {
        let words = match instructions {
            Ok(None) => return self,
            Ok(Some(instructions)) => {
                let least = instructions / ISSUE_WIDTH;
                let floor = format!(
                    "{instructions:.1} instructions per unit (cargo xtask gate), {ISSUE_WIDTH} a cycle, are {least:.1} cycles where the \
                     core runs as fast as the time-stamp counter"
                );
                if self.void.is_none() {
                    format!("{floor}: ours takes {:.2} times that", self.ours.median / least)
                } else {
                    floor
                }
            }
            Err(error) => format!("how many instructions a unit takes is not known: {error:#}"),
        };
        self.bound = format!("{}; {words}", self.bound);
        self
    }

    /// Whether the promise is kept, of which the whole interval has to be; `None` if the result doesn't count.
    pub(crate) fn kept(&self) -> Option<bool> {
        self.void.is_none().then(|| self.interval.is_some_and(|interval| interval.low >= self.promise))
    }

    /// The same in a word.
    fn word(&self) -> &'static str {
        match self.kept() {
            Some(true) => "kept",
            Some(false) => "NOT kept",
            None => "void",
        }
    }

    fn verdict(&self) -> String {
        let disturbed = self.turns.saturating_sub(self.rounds);
        match (&self.void, self.ratios, self.interval) {
            (Some(reason), ..) => format!("void: {reason}"),
            (None, Some(Spread { median, min, max }), Some(Interval { low, high })) => format!(
                "{median:.2} times better, {low:.2} to {high:.2} by the turns of this run ({min:.2} to {max:.2}, turn by turn; \
                 {disturbed} of {} turns did not count), promised {:.2}: {}",
                self.turns,
                self.promise,
                self.word()
            ),
            _ => "no ratio".to_owned(),
        }
    }

    /// For people.
    pub(crate) fn table(&self) -> String {
        // What doesn't count has no middle, only ends that show what happened.
        let row = |who: &str, spread: &Spread| {
            let median = or_dash(self.void.is_none().then_some(spread.median));
            format!("  {who:<10} {:>9.2} {median:>9} {:>9.2}", spread.min, spread.max)
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
        lines.extend(self.dpdk.as_ref().map(|dpdk| format!("  DPDK: {dpdk}")));
        lines.join("\n") + "\n"
    }
}

fn or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}

/// All results below each other, then what bounds them and what was skipped, for people.
pub(crate) fn summary(outcomes: &[Outcome], skipped: &[(&str, String)]) -> String {
    let mut lines = vec![format!(
        "{:<26} {:<16} {:>9} {:>9} {:>6} {:>7}  {}",
        "comparison", "unit", "ours", "peer", "ratio", "promise", "verdict"
    )];
    lines.extend(outcomes.iter().map(|outcome| {
        let counts = outcome.void.is_none();
        format!(
            "{:<26} {:<16} {:>9} {:>9} {:>6} {:>7.2}  {}",
            outcome.name,
            outcome.unit,
            or_dash(counts.then_some(outcome.ours.median)),
            or_dash(outcome.peer.filter(|_| counts).map(|peer| peer.median)),
            or_dash(outcome.ratio),
            outcome.promise,
            outcome.word(),
        )
    }));
    lines.extend(skipped.iter().map(|(name, reason)| format!("{name:<26} skipped, {reason}")));
    lines.push("\nbounds".to_owned());
    lines.extend(outcomes.iter().map(|outcome| format!("{:<26} {}", outcome.name, outcome.bound)));
    lines.join("\n") + "\n"
}

/// What physics allows, with this run's figures where it is counted in lines that move.
fn bound(comparison: &Comparison, taken: &Taken, ours: f64) -> String {
    let words = comparison.bound;
    match (comparison.lanes, taken.line_transfer) {
        (Lanes::Two { lines }, Some(line_transfer)) => {
            let least = lines * line_transfer;
            let regime = if taken.slow { "slower" } else { "fastest" };
            let floor = format!(
                "{words}; {lines} lines per unit move between the CPUs, one at a time {line_transfer:.0} cycles each ({regime} regime \
                 of this run), together {least:.1}"
            );
            if taken.void.is_none() {
                format!("{floor}: ours takes {:.2} times that", ours / least)
            } else {
                floor
            }
        }
        _ => words.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::EXAMPLE;
    use super::*;

    static PAIR: Comparison = Comparison { lanes: Lanes::Two { lines: 0.25 }, ..EXAMPLE };

    const ROUND: Duration = Duration::from_millis(500);

    fn names() -> Vec<String> {
        vec!["a slow peer".to_owned(), "a peer".to_owned()]
    }

    fn taken() -> Taken {
        Taken {
            ours: vec![20.0; 9],
            peers: vec![vec![60.0; 9], vec![50.0; 9]],
            turns: 10,
            seed: 3,
            ..Taken::default()
        }
    }

    #[test]
    fn instructions_make_a_bound() {
        let outcome = || Outcome::new(&EXAMPLE, &names(), taken(), ROUND, None, Machine::default()).unwrap();
        assert_eq!(outcome().beside_instructions(Ok(None)).bound, "the speed of light");
        let bound = outcome().beside_instructions(Ok(Some(60.0))).bound;
        assert!(
            bound.contains("are 10.0 cycles") && bound.ends_with("ours takes 2.00 times that"),
            "{bound}"
        );
        let broken = outcome().beside_instructions(Err(anyhow::anyhow!("no baseline"))).bound;
        assert!(broken.ends_with("a unit takes is not known: no baseline"), "{broken}");
    }

    #[test]
    fn a_void_result_has_no_ratio_and_no_medians() {
        let void =
            Taken { void: Some("ours has two modes".to_owned()), line_transfer: Some(160.0), ..taken() };
        let outcome = Outcome::new(&PAIR, &names(), void, ROUND, None, Machine::default()).unwrap();
        assert_eq!((outcome.ratio, outcome.peer.is_some()), (None, true));
        let outcome = outcome.beside_instructions(Ok(Some(60.0)));
        assert!(!outcome.bound.contains("ours takes"), "{}", outcome.bound);
        for text in [outcome.table(), summary(&[outcome], &[])] {
            assert!(!text.contains("50.00  ") || text.contains("  50.00         -     50.00"), "{text}");
            assert!(text.contains("void") && text.contains(" - ") && !text.contains("2.50"), "{text}");
        }
    }

    #[test]
    fn the_summary_has_bounds_and_what_was_skipped() {
        let outcome = Outcome::new(&EXAMPLE, &names(), taken(), ROUND, None, Machine::default()).unwrap();
        let text = summary(&[outcome], &[("pool-two-lanes", "there is one CPU".to_owned())]);
        assert!(text.contains("pool-two-lanes             skipped, there is one CPU\n"), "{text}");
        assert!(text.ends_with("\nbounds\nexample                    the speed of light\n"), "{text}");
    }

    #[test]
    fn the_object_has_the_promised_shape() {
        let outcome = Outcome::new(&EXAMPLE, &names(), taken(), ROUND, None, Machine::default()).unwrap();
        let text = serde_json::to_string(&outcome).unwrap();
        assert_eq!(
            text.split_once(r#","machine":{"cpu":null,"#).unwrap().0.to_owned() + "}",
            r#"{"name":"example","unit":"cycles/packet","ours":{"median":20.0,"min":20.0,"max":20.0},"peer_name":"a peer","peer":{"median":50.0,"min":50.0,"max":50.0},"ratio":2.5,"ratios":{"median":2.5,"min":2.5,"max":2.5},"interval":{"low":2.5,"high":2.5},"promise":2.0,"bound":"the speed of light","rounds":9,"turns":10,"seed":3,"length":0.5,"void":null,"dpdk":null}"#
        );
    }

    #[test]
    fn a_missing_peer_makes_it_void() {
        let alone = Taken { peers: Vec::new(), ..taken() };
        let outcome =
            Outcome::new(&EXAMPLE, &[], alone, ROUND, Some("it is not installed".into()), Machine::default())
                .unwrap();
        assert_eq!(outcome.void.as_deref(), Some("it is not installed"));
        assert!(outcome.peer.is_none() && outcome.ratio.is_none());
        assert!((outcome.ours.median - 20.0).abs() < 1e-9);
        assert!(outcome.table().contains("void: it is not installed"));
    }

    #[test]
    fn the_table_gives_the_verdict() {
        let mut outcome = Outcome::new(&EXAMPLE, &names(), taken(), ROUND, None, Machine::default()).unwrap();
        let text = outcome.table();
        assert!(
            text.contains("2.50 times better, 2.50 to 2.50 by the turns of this run (2.50 to 2.50, turn by turn; 1 of 10 turns did not count), promised 2.00: kept")
                && text.contains("a slow peer"),
            "{text}"
        );
        assert!(summary(&[outcome], &[]).contains(" kept"));
        outcome = Outcome::new(
            &EXAMPLE,
            &names(),
            Taken { ours: vec![30.0; 9], ..taken() },
            ROUND,
            None,
            Machine::default(),
        )
        .unwrap();
        assert!(outcome.table().contains("1 of 10 turns did not count), promised 2.00: NOT kept"));
        assert!(summary(&[outcome], &[]).contains("NOT kept"));
    }

    #[test]
    fn the_whole_interval_has_to_keep_the_promise() {
        let outcome = |ours: Vec<f64>| {
            let taken = Taken { ours, ..taken() };
            Outcome::new(&EXAMPLE, &names(), taken, ROUND, None, Machine::default()).unwrap()
        };
        // Of nine rounds the second lowest ratio is the interval's end.
        let rounds = |slow: usize| (0..9).map(|round| if round < slow { 26.0 } else { 20.0 }).collect();
        let (kept, not_kept) = (outcome(rounds(1)), outcome(rounds(2)));
        assert_eq!((kept.kept(), kept.ratio), (Some(true), Some(2.5)));
        assert_eq!((not_kept.kept(), not_kept.ratio), (Some(false), Some(2.5)));
        let void = Taken { void: Some("a storm passed".to_owned()), ..taken() };
        let void = Outcome::new(&EXAMPLE, &names(), void, ROUND, None, Machine::default()).unwrap();
        assert_eq!((void.kept(), void.interval), (None, None));
    }

    #[test]
    fn the_bound_of_two_lanes_has_this_run_s_figures() {
        let outcome = Outcome::new(
            &PAIR,
            &names(),
            Taken { line_transfer: Some(160.0), ..taken() },
            ROUND,
            None,
            Machine::default(),
        )
        .unwrap();
        assert!(outcome.bound.starts_with("the speed of light; 0.25 lines per unit"), "{}", outcome.bound);
        assert!(outcome.bound.contains("together 40.0: ours takes 0.50 times that"), "{}", outcome.bound);
    }
}
