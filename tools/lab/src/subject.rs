//! What can be measured by name, and the one runner for all of it.

use crate::counters;
use crate::error::LabError;
use crate::machine::Machine;
use crate::record::{Claim, Findings, Record};
use crate::setting::{Journal, Setting, Steadiness};
use crate::verdict;

/// Something that can be measured by name: a [`Bench`](crate::bench::Bench) or an
/// [`Experiment`](crate::experiment::Experiment).
pub trait Subject {
    /// What such things are called: "bench", "experiment".
    const KIND: &'static str;

    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What it finds out.
    fn question(&self) -> &'static str;

    /// What was claimed before.
    fn claim(&self) -> Option<Claim> {
        None
    }

    /// How it is measured, in some sentences.
    fn method(&self) -> &'static str;

    /// The steps that can be done alone, if any can.
    fn steps(&self) -> Option<Vec<String>> {
        None
    }

    /// Measures it by this setting, and tells the listener about each step.
    ///
    /// # Errors
    /// [`LabError`].
    fn measure(&self, setting: &Setting, progress: &mut dyn FnMut(&str)) -> Result<Findings, LabError>;
}

/// The one called `name`.
///
/// # Errors
/// [`LabError::Unknown`], which lists those there are.
pub fn find<'a, S: Subject>(all: impl Iterator<Item = &'a S> + Clone, name: &str) -> Result<&'a S, LabError> {
    all.clone().find(|subject| subject.name() == name).ok_or_else(|| LabError::Unknown {
        kind: S::KIND,
        name: name.to_owned(),
        known: all.map(Subject::name).collect::<Vec<_>>().join(", "),
    })
}

/// Measures a subject, and notes what is needed to judge the result; `progress` is told about each step.
///
/// # Errors
/// [`LabError`].
pub fn run<S: Subject>(
    subject: &S,
    setting: &Setting,
    progress: &mut dyn FnMut(&str),
) -> Result<Record, LabError> {
    check_only(subject.steps(), setting)?;
    let setting = Setting { journal: Journal::default(), ..setting.clone() };
    // Before the measurement adds huge pages or work.
    let machine = Machine::measuring(&setting.all_cpus());
    let mut step = |name: &str| {
        counters::step(name);
        progress(name);
    };
    let (findings, counters) = counters::gather(|| subject.measure(&setting, &mut step));
    let Findings { columns, rows, figures, answers, conclusion } = findings?;
    let steadiness = setting.journal.take();
    let void = void(&steadiness);
    let claim = subject.claim();
    let predictions = claim.map_or(&[][..], |claim| claim.predictions);
    let tested = verdict::test(predictions, &answers, void.as_deref());
    Ok(Record {
        name: subject.name(),
        question: subject.question(),
        claim,
        method: subject.method(),
        columns,
        rows,
        // What doesn't count is a dash, as in the table.
        conclusion: conclusion.replace("NaN", "–"),
        outcome: verdict::overall(&tested),
        tested,
        void,
        steadiness,
        counters,
        machine,
        figures,
        measured: None,
    })
}

/// Whether there is what only should be done.
fn check_only(steps: Option<Vec<String>>, setting: &Setting) -> Result<(), LabError> {
    let Some(only) = &setting.only else { return Ok(()) };
    if !only.is_empty() && steps.iter().flatten().any(|step| setting.wants(step)) {
        return Ok(());
    }
    let known = steps.map_or_else(
        || "it is done as a whole".to_owned(),
        |steps| format!("there are {}", steps.join("; ")),
    );
    Err(LabError::NoStep { only: only.clone(), known })
}

/// Why a result doesn't count as a whole, if so. Of many figures a few may be missing.
fn void(steadiness: &[Steadiness]) -> Option<String> {
    let all: usize = steadiness.iter().map(|measurement| measurement.variants).sum();
    let reasons: Vec<&String> = steadiness.iter().flat_map(|measurement| &measurement.void).collect();
    let first = reasons.first().filter(|_| reasons.len() * MOST_MISSING > all)?;
    Some(match all {
        1 => (*first).clone(),
        _ => format!("{} of {all} figures do not count; of the first, {first}", reasons.len()),
    })
}

/// One in so many figures may be missing.
const MOST_MISSING: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_experiment_of_which_too_much_is_missing_is_void() {
        let measurement = |variants, void: &[&str]| Steadiness {
            step: String::new(),
            variants,
            turns: 9,
            counted: 9,
            seed: None,
            spread: None,
            void: void.iter().map(|&reason| reason.to_owned()).collect(),
        };
        assert_eq!(void(&[]), None);
        assert_eq!(void(&[measurement(9, &[]), measurement(11, &["a storm", "a flood"])]), None);
        assert_eq!(
            void(&[measurement(9, &["a storm"])]).unwrap(),
            "1 of 9 figures do not count; of the first, a storm"
        );
    }

    #[test]
    fn steps_that_are_not_there_are_told() {
        let refused = |only: &str, steps: Option<&[&str]>| {
            let setting = Setting { only: Some(only.to_owned()), ..Setting::tiny() };
            let steps = steps.map(|steps| steps.iter().map(|&step| step.to_owned()).collect());
            check_only(steps, &setting).err().map(|error| error.to_string())
        };
        let steps: &[&str] = &["1024, mix", "64, whole"];
        let told = "no step has '4095' in its name: there are 1024, mix; 64, whole";
        assert_eq!(refused("4095", Some(steps)).as_deref(), Some(told));
        assert!(refused("MCS", None).unwrap().ends_with("in its name: it is done as a whole"));
        assert_eq!(refused("64, whole", Some(steps)), None);
        assert!(refused("", Some(steps)).unwrap().starts_with("no step has ''"));
    }
}
