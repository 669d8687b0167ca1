//! What a claim says would be measured, and whether it was.
//!
//! A claim makes [`Prediction`]s, each a range that a figure should lie in, declared before anything is measured. The
//! figures of a run are its [`Answer`]s, and a [`Verdict`] follows from both alone: nobody writes one by hand.

use crate::record::{Words, kept};
use crate::table::{self, three_digits};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A figure that a claim says would be measured, as a range.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Prediction {
    /// What is measured.
    #[serde(deserialize_with = "kept")]
    pub quantity: Words,
    /// In which unit.
    #[serde(deserialize_with = "kept")]
    pub unit: Words,
    /// The least that is claimed, if anything is.
    pub low: Option<f64>,
    /// The most that is claimed, if anything is.
    pub high: Option<f64>,
    /// So far outside the range a figure may lie on another machine.
    pub tolerance: f64,
    /// Where the range comes from.
    pub basis: Basis,
    /// What would be seen if the claim were wrong.
    #[serde(deserialize_with = "kept")]
    pub refuted_by: Words,
}

/// Where a range comes from.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub enum Basis {
    /// The source gives the figure.
    #[serde(rename = "the source's figure")]
    Figure,
    /// The source only says which is better; where the range begins is ours: what is less would be noise.
    #[serde(rename = "the source's direction")]
    Direction,
    /// It follows from how the experiment is built, and holds it to that.
    #[serde(rename = "the experiment's own check")]
    Check,
}

/// Of a figure that was measured on another machine, this part may be missing or added. One rule for all claims, so that none
/// is fitted to what was found.
const TOLERATED: f64 = 0.5;

impl Prediction {
    /// The source's figure for an effect: a gain that is 0 where there is none.
    pub(crate) const fn effect(quantity: Words, unit: Words, claimed: f64, refuted_by: Words) -> Self {
        Self::effects(quantity, unit, [claimed; 2], refuted_by)
    }

    /// The same, if the source gives several figures: the least and the most of them.
    pub(crate) const fn effects(quantity: Words, unit: Words, claimed: [f64; 2], refuted_by: Words) -> Self {
        let [low, high] = claimed;
        let tolerance = f64::midpoint(low, high) * TOLERATED;
        Self { quantity, unit, low: Some(low), high: Some(high), tolerance, basis: Basis::Figure, refuted_by }
    }

    /// The source's figure for how many times one thing takes of another's time: 1 where there is no difference.
    pub(crate) const fn times(quantity: Words, claimed: f64, refuted_by: Words) -> Self {
        let tolerance = (claimed - 1.0) * TOLERATED;
        Self { tolerance, ..Self::effect(quantity, "times", claimed, refuted_by) }
    }

    /// The source says that there is more of something, and no figure: at least so much, or it is noise.
    pub(crate) const fn at_least(quantity: Words, unit: Words, low: f64, refuted_by: Words) -> Self {
        let basis = Basis::Direction;
        Self { quantity, unit, low: Some(low), high: None, tolerance: 0.0, basis, refuted_by }
    }

    /// The source says that there is less of something, and no figure.
    pub(crate) const fn at_most(quantity: Words, unit: Words, high: f64, refuted_by: Words) -> Self {
        let basis = Basis::Direction;
        Self { quantity, unit, low: None, high: Some(high), tolerance: 0.0, basis, refuted_by }
    }

    /// A check of the experiment itself.
    pub(crate) const fn check(quantity: Words, unit: Words, range: [f64; 2], refuted_by: Words) -> Self {
        let [low, high] = range;
        let basis = Basis::Check;
        Self { quantity, unit, low: Some(low), high: Some(high), tolerance: 0.0, basis, refuted_by }
    }

    /// The range that counts as reproduced, tolerance included.
    fn ends(&self) -> (f64, f64) {
        (
            self.low.map_or(f64::NEG_INFINITY, |low| low - self.tolerance),
            self.high.map_or(f64::INFINITY, |high| high + self.tolerance),
        )
    }

    /// What a figure says about the claim.
    pub fn judge(&self, answer: &Answer) -> Verdict {
        let (low, high) = self.ends();
        let figure = answer.figure;
        if let Some(reason) = &answer.cannot_tell {
            Verdict::CannotTell(reason.clone())
        } else if !figure.is_finite() {
            Verdict::CannotTell("it was not measured, or its figures do not count".to_owned())
        } else if figure < low {
            Verdict::NotReproduced(format!("{} is less than {}", self.told(figure), self.told(low)))
        } else if figure > high {
            Verdict::NotReproduced(format!("{} is more than {}", self.told(figure), self.told(high)))
        } else {
            Verdict::Reproduced
        }
    }

    fn told(&self, figure: f64) -> String {
        format!("{} {}", signed(figure), self.unit)
    }

    /// The range in words.
    fn claimed(&self) -> String {
        let range = match (self.low, self.high) {
            (Some(low), Some(high)) if low < high => format!("{} to {}", signed(low), signed(high)),
            (Some(low), Some(_)) => signed(low),
            (Some(low), None) => format!("at least {}", signed(low)),
            (None, Some(high)) => format!("at most {}", signed(high)),
            (None, None) => "anything".to_owned(),
        };
        let tolerance =
            if self.tolerance > 0.0 { format!(" ± {}", signed(self.tolerance)) } else { String::new() };
        format!("{range}{tolerance} {}", self.unit)
    }
}

/// Three digits, also of what is below zero.
fn signed(figure: f64) -> String {
    let sign = if figure < 0.0 { "−" } else { "" };
    format!("{sign}{}", three_digits(figure.abs()))
}

/// The figure to hold against a prediction.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Not finite, if it was not measured or doesn't count.
    pub figure: f64,
    /// Why it says nothing about the claim here, if so.
    pub cannot_tell: Option<String>,
}

impl From<f64> for Answer {
    fn from(figure: f64) -> Self {
        Self { figure, cannot_tell: None }
    }
}

impl Answer {
    /// No figure.
    pub(crate) const MISSING: Self = Self { figure: f64::NAN, cannot_tell: None };

    /// The same figure, which says nothing about the claim, for this reason.
    pub(crate) fn but_cannot_tell(self, reason: impl Into<String>) -> Self {
        Self { cannot_tell: Some(reason.into()), ..self }
    }

    /// No figure, for this reason.
    pub(crate) fn none(reason: impl Into<String>) -> Self {
        Self::from(f64::NAN).but_cannot_tell(reason)
    }
}

/// Whether a claim was seen here.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", content = "why")]
pub enum Verdict {
    /// The figures lie where the claim says.
    #[serde(rename = "reproduced")]
    Reproduced,
    /// They lie elsewhere: which, and where.
    #[serde(rename = "not reproduced")]
    NotReproduced(String),
    /// This machine or this run can't say, and why.
    #[serde(rename = "cannot tell here")]
    CannotTell(String),
}

impl Verdict {
    /// In a word or three.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::NotReproduced(_) => "not reproduced",
            Self::CannotTell(_) => "cannot tell here",
        }
    }

    /// Why it is not reproduced, or can't be told.
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Reproduced => None,
            Self::NotReproduced(why) | Self::CannotTell(why) => Some(why),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.word())?;
        self.why().map_or(Ok(()), |why| write!(formatter, ": {why}"))
    }
}

/// A prediction and what became of it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Tested {
    /// What was predicted.
    #[serde(flatten)]
    pub prediction: Prediction,
    /// The figure; `None` if there is none that counts.
    pub measured: Option<f64>,
    /// What it says.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// The heads of [`Tested::cells`].
pub const HEADS: [&str; 4] = ["predicted", "claimed", "measured", "verdict"];

impl Tested {
    /// What a table shows of it.
    pub fn cells(&self) -> [String; 4] {
        let measured = self.measured.map_or_else(|| "–".to_owned(), |figure| self.prediction.told(figure));
        [
            self.prediction.quantity.to_owned(),
            self.prediction.claimed(),
            measured,
            self.verdict.word().to_owned(),
        ]
    }
}

/// Holds answers against predictions, in the same order. A void run can't tell anything.
pub fn test(predictions: &[Prediction], answers: &[Answer], void: Option<&str>) -> Vec<Tested> {
    let missing = Answer::none("it was not measured");
    let tested = predictions.iter().enumerate().map(|(number, prediction)| {
        let answer = answers.get(number).unwrap_or(&missing);
        let verdict = match void {
            Some(reason) => Verdict::CannotTell(format!("the run is void: {reason}")),
            None => prediction.judge(answer),
        };
        let measured = Some(answer.figure).filter(|figure| figure.is_finite());
        Tested { prediction: *prediction, measured, verdict }
    });
    tested.collect()
}

/// What all predictions of a claim come to: one that failed is enough to say that it is not reproduced, and one that can't be
/// told to not say that it is. `None` without any.
pub fn overall(tested: &[Tested]) -> Option<Verdict> {
    let reasons = |wanted: fn(&Verdict) -> bool| {
        let mut lines: Vec<(&str, Vec<&str>)> = Vec::new();
        for tested in tested.iter().filter(|tested| wanted(&tested.verdict)) {
            let why = tested.verdict.why().unwrap_or_default();
            // The same reason is said once.
            match lines.iter_mut().find(|(other, _)| *other == why) {
                Some((_, quantities)) => quantities.push(tested.prediction.quantity),
                None => lines.push((why, vec![tested.prediction.quantity])),
            }
        }
        let lines = lines.iter().map(|(why, quantities)| format!("{}: {why}", quantities.join(", ")));
        lines.collect::<Vec<_>>().join("; ")
    };
    let failed = reasons(|verdict| matches!(verdict, Verdict::NotReproduced(_)));
    let untold = reasons(|verdict| matches!(verdict, Verdict::CannotTell(_)));
    match tested {
        [] => None,
        _ if !failed.is_empty() => Some(Verdict::NotReproduced(failed)),
        _ if !untold.is_empty() => Some(Verdict::CannotTell(untold)),
        _ => Some(Verdict::Reproduced),
    }
}

/// The predictions as a table of text, and what they come to. Empty without any.
pub(crate) fn text(tested: &[Tested]) -> String {
    let Some(verdict) = overall(tested) else { return String::new() };
    let mut lines = vec![HEADS.map(str::to_owned).to_vec()];
    lines.extend(tested.iter().map(|tested| tested.cells().to_vec()));
    format!("{}\n{verdict}\n", table::aligned(&lines, |column| column != 2))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const GAIN: Prediction = Prediction::effect("gain", "%", 17.0, "no gain");
    const TAIL: Prediction = Prediction::at_most("tail", "cycles", 100.0, "a longer one");

    /// Figures as they are claimed are reproduced in everything, turned ones in nothing.
    #[track_caller]
    pub(crate) fn assert_judged(predictions: &[Prediction], as_claimed: &[Answer], turned: &[Answer]) {
        assert_eq!((as_claimed.len(), turned.len()), (predictions.len(), predictions.len()));
        for tested in test(predictions, as_claimed, None) {
            assert_eq!(tested.verdict, Verdict::Reproduced, "{}", tested.prediction.quantity);
        }
        for tested in test(predictions, turned, None) {
            let quantity = tested.prediction.quantity;
            assert!(
                matches!(tested.verdict, Verdict::NotReproduced(_)),
                "{quantity}: {} is {}",
                tested.measured.unwrap_or(f64::NAN),
                tested.verdict
            );
        }
    }

    #[test]
    fn figures_are_held_against_the_range_and_its_tolerance() {
        let judged = |figure: f64| GAIN.judge(&figure.into());
        assert_eq!([8.5, 17.0, 25.5].map(judged), [const { Verdict::Reproduced }; 3]);
        assert_eq!(judged(8.4).to_string(), "not reproduced: 8.40 % is less than 8.50 %");
        assert_eq!(judged(-3.0).why(), Some("−3.00 % is less than 8.50 %"));
        assert_eq!(judged(34.8).why(), Some("34.8 % is more than 25.5 %"));
        assert_eq!(judged(f64::NAN).word(), "cannot tell here");
        let elsewhere = Answer::from(17.0).but_cannot_tell("this is no Arm core");
        assert_eq!(GAIN.judge(&elsewhere).to_string(), "cannot tell here: this is no Arm core");
        assert_eq!(TAIL.judge(&(-1e9).into()), Verdict::Reproduced);
        assert_eq!(TAIL.judge(&101.0.into()).word(), "not reproduced");
        let twice = Prediction::times("copies", 1.85, "1");
        assert_eq!([1.43, 2.27].map(|times| twice.judge(&times.into())), [const { Verdict::Reproduced }; 2]);
        assert_eq!(twice.judge(&1.0.into()).word(), "not reproduced");
    }

    #[test]
    fn one_that_fails_or_can_t_be_told_decides() {
        let of = |answers: &[f64]| {
            let answers: Vec<Answer> = answers.iter().map(|&figure| figure.into()).collect();
            overall(&test(&[GAIN, TAIL], &answers, None)).unwrap().to_string()
        };
        assert_eq!(of(&[17.0, 50.0]), "reproduced");
        assert_eq!(of(&[17.0, 500.0]), "not reproduced: tail: 500 cycles is more than 100 cycles");
        assert_eq!(of(&[f64::NAN, 500.0]), "not reproduced: tail: 500 cycles is more than 100 cycles");
        assert_eq!(of(&[17.0]), "cannot tell here: tail: it was not measured");
        assert_eq!(overall(&[]), None);
        let void = test(&[GAIN, TAIL], &[17.0.into(), 50.0.into()], Some("a storm passed"));
        assert_eq!(
            overall(&void).unwrap().to_string(),
            "cannot tell here: gain, tail: the run is void: a storm passed"
        );
    }

    #[test]
    fn what_was_tested_is_a_table_and_json() {
        let tested = test(&[GAIN, TAIL], &[(-4.0).into(), 50.0.into()], None);
        let text = text(&tested);
        assert!(text.contains("gain       17.0 ± 8.50 %           −4.00 %  not reproduced"), "{text}");
        assert!(text.contains("tail       at most 100 cycles  50.0 cycles  reproduced"), "{text}");
        assert!(text.ends_with("\nnot reproduced: gain: −4.00 % is less than 8.50 %\n"), "{text}");
        let json = serde_json::to_value(&tested[0]).unwrap();
        assert_eq!(json["verdict"], "not reproduced");
        assert_eq!(
            (&json["low"], &json["tolerance"], &json["measured"]),
            (&17.0.into(), &8.5.into(), &(-4.0).into())
        );
        assert_eq!(json["basis"], "the source's figure");
        assert_eq!(serde_json::from_value::<Tested>(json).unwrap(), tested[0]);
    }
}
