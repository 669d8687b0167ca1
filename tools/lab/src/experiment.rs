//! Experiments: a question, the method, a table, a picture, and what follows from them.
//!
//! Each experiment measures again what one of the documents that Warmlane started from claims, or what a
//! promise of ours rests on, on the machine that it is run on.

use crate::error::LabError;
use crate::experiments;
use crate::record::{Claim, Findings};
use crate::setting::Setting;
use crate::subject::{self, Subject};

/// An experiment that can be asked for by name.
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it finds out, as a question.
    pub question: &'static str,
    /// What is claimed, and what should be measured if it is so.
    pub claim: Claim,
    /// How it is measured, in some sentences.
    pub method: &'static str,
    /// The steps that can be done alone, if any can: see [`Setting::only`].
    pub steps: Option<fn() -> Vec<String>>,
    /// Does it. The function is told what to say about progress.
    pub run: Run,
}

/// Runs an experiment, telling the listener about each step.
pub type Run = fn(&Setting, &mut dyn FnMut(&str)) -> Result<Findings, LabError>;

impl Subject for Experiment {
    const KIND: &'static str = "experiment";

    fn name(&self) -> &'static str {
        self.name
    }

    fn question(&self) -> &'static str {
        self.question
    }

    fn claim(&self) -> Option<Claim> {
        Some(self.claim)
    }

    fn method(&self) -> &'static str {
        self.method
    }

    fn steps(&self) -> Option<Vec<String>> {
        self.steps.map(|steps| steps())
    }

    fn measure(&self, setting: &Setting, progress: &mut dyn FnMut(&str)) -> Result<Findings, LabError> {
        (self.run)(setting, progress)
    }
}

/// All experiments.
pub fn list() -> impl Iterator<Item = &'static Experiment> + Clone {
    experiments::ALL.iter().copied()
}

/// The experiment called `name`.
///
/// # Errors
/// [`LabError::Unknown`], which lists those there are.
pub fn find(name: &str) -> Result<&'static Experiment, LabError> {
    subject::find(list(), name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Verdict;

    #[test]
    fn names_are_unique_and_unknown_ones_told() {
        let mut names: Vec<_> = list().map(|experiment| experiment.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        let error = find("alchemy").err().unwrap().to_string();
        assert!(error.starts_with("there is no experiment 'alchemy': known are "), "{error}");
    }

    #[test]
    fn every_claim_can_be_refuted() {
        for Experiment { name, claim, .. } in list() {
            assert!(
                !claim.source.is_empty() && !claim.says.is_empty() && !claim.predictions.is_empty(),
                "{name}"
            );
            for prediction in claim.predictions {
                let told = prediction.quantity;
                assert!(!prediction.refuted_by.is_empty() && prediction.tolerance >= 0.0, "{name}: {told}");
                assert!(prediction.low <= prediction.high || prediction.high.is_none(), "{name}: {told}");
                let refuted =
                    |figure: f64| matches!(prediction.judge(&figure.into()), Verdict::NotReproduced(_));
                assert!(refuted(-1e9) || refuted(1e9), "{name}: {told}");
            }
        }
    }

    #[test]
    fn some_have_steps_that_can_be_done_alone() {
        let steps = find("pool-order").unwrap().steps().unwrap();
        assert!(
            steps[0] == "1024, mix, whole, 256" && steps.iter().any(|step| step.contains("20000")),
            "{steps:?}"
        );
        assert_eq!(find("locks").unwrap().steps(), None);
    }
}
