//! How many mutants of each crate were caught: counted, printed, judged and kept.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use super::equivalent::Equivalent;

/// Of a hundred mutants that make a difference, at least so many must be caught.
const LEAST_CAUGHT: usize = 90;

/// What became of a sample.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Score {
    pub(super) sample: usize,
    pub(super) seed: u64,
    pub(super) caught: usize,
    pub(super) missed: usize,
    /// The tests did not end in time.
    pub(super) timed_out: usize,
    /// It doesn't compile.
    pub(super) unviable: usize,
    /// Missed, and known to make no difference.
    pub(super) equivalent: usize,
    pub(super) date: String,
    pub(super) commit: String,
}

impl Score {
    /// Counts a mutant by what `cargo-mutants` says of it; gives the word for it.
    pub(super) fn count(
        &mut self,
        summary: &str,
        known: Option<&Equivalent>,
    ) -> anyhow::Result<&'static str> {
        let (count, word) = match summary {
            "CaughtMutant" => (&mut self.caught, "caught"),
            "MissedMutant" if known.is_some() => (&mut self.equivalent, "equivalent"),
            "MissedMutant" => (&mut self.missed, "MISSED"),
            "Timeout" => (&mut self.timed_out, "TIMED OUT"),
            "Unviable" => (&mut self.unviable, "unviable"),
            other => bail!("cargo mutants says {other:?} of a mutant, which is not known here"),
        };
        *count += 1;
        Ok(word)
    }

    /// How many could be caught.
    fn different(&self) -> usize {
        self.caught + self.missed + self.timed_out
    }

    /// How many percent of these were, rounded down.
    fn percent(&self) -> Option<usize> {
        (self.caught * 100).checked_div(self.different())
    }
}

/// A line for each crate.
pub(super) fn table(scores: &BTreeMap<String, Score>) -> String {
    let mut table = String::new();
    if !scores.is_empty() {
        table += "crate                     caught  missed  timed out  unviable  equivalent   share\n";
    }
    for (name, score) in scores {
        let Score { caught, missed, timed_out, unviable, equivalent, .. } = score;
        let share = score.percent().map_or_else(|| "-".to_owned(), |percent| format!("{percent} %"));
        let _ = writeln!(
            table,
            "{name:<24} {caught:>7} {missed:>7} {timed_out:>10} {unviable:>9} {equivalent:>11} {share:>7}"
        );
    }
    table
}

/// An error if too few mutants of a crate were caught.
pub(super) fn judge(scores: &BTreeMap<String, Score>) -> anyhow::Result<()> {
    let is_low = |score: &Score| score.caught * 100 < score.different() * LEAST_CAUGHT;
    let low: Vec<_> =
        scores.iter().filter(|(_, score)| is_low(score)).map(|(name, _)| name.as_str()).collect();
    if !low.is_empty() {
        bail!(
            "fewer than {LEAST_CAUGHT} % caught in {}: write the tests that were missing, or say in equivalent.rs why there can be none",
            low.join(", ")
        );
    }
    Ok(())
}

/// Puts scores into the file, in place of older ones of the same crates.
pub(super) fn write(file: &Path, scores: &BTreeMap<String, Score>) -> anyhow::Result<()> {
    let mut kept: BTreeMap<String, Score> = match fs::read_to_string(file) {
        Ok(text) => serde_json::from_str(&text).with_context(|| format!("{} is damaged", file.display()))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
    };
    kept.extend(scores.clone());
    let text = serde_json::to_string_pretty(&kept)? + "\n";
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(caught: usize, missed: usize, timed_out: usize) -> BTreeMap<String, Score> {
        let score = Score { caught, missed, timed_out, unviable: 5, equivalent: 3, ..Score::default() };
        BTreeMap::from([("a".to_owned(), score)])
    }

    #[test]
    fn fewer_than_nine_of_ten_are_too_few_and_a_timeout_is_not_caught() {
        assert!(judge(&score(9, 1, 0)).is_ok() && judge(&score(0, 0, 0)).is_ok());
        assert!(
            judge(&score(89, 11, 0)).unwrap_err().to_string().starts_with("fewer than 90 % caught in a:")
        );
        assert!(judge(&score(9, 0, 1)).is_ok() && judge(&score(9, 1, 1)).is_err());
        let last = |scores| {
            table(&scores).lines().last().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        };
        assert_eq!(last(score(9, 1, 1)).as_deref(), Some("a 9 1 1 5 3 81 %"));
        assert_eq!(last(score(0, 0, 0)).as_deref(), Some("a 0 0 0 5 3 -"));
    }

    #[test]
    fn each_word_of_cargo_mutants_is_counted_once() {
        let mut score = Score::default();
        let known = Equivalent { file: "", change: "", function: "", reason: "" };
        let mut count = |summary, known| score.count(summary, known).unwrap();
        assert_eq!((count("CaughtMutant", None), count("CaughtMutant", Some(&known))), ("caught", "caught"));
        assert_eq!(
            (count("MissedMutant", None), count("MissedMutant", Some(&known))),
            ("MISSED", "equivalent")
        );
        assert_eq!((count("Timeout", Some(&known)), count("Unviable", None)), ("TIMED OUT", "unviable"));
        let counted = (score.caught, score.missed, score.equivalent, score.timed_out, score.unviable);
        assert_eq!(counted, (2, 1, 1, 1, 1));
        assert!(score.count("Success", None).is_err());
    }

    #[test]
    fn scores_replace_those_of_the_same_crate() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mutants.json");
        let other = BTreeMap::from([("b".to_owned(), Score::default())]);
        for scores in [&score(1, 2, 3), &other, &score(4, 0, 0)] {
            write(&file, scores).unwrap();
        }
        let kept: BTreeMap<String, Score> =
            serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(kept, score(4, 0, 0).into_iter().chain(other).collect());
        fs::write(&file, "{").unwrap();
        assert!(write(&file, &score(1, 2, 3)).unwrap_err().to_string().contains("is damaged"));
    }
}
