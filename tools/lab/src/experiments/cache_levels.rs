//! At which sizes loads get slower.

use crate::chase::{Answered, Chase};
use crate::error::LabError;
use crate::experiment::Experiment;
use crate::measure::Measure;
use crate::memory_traffic::machines::Model;
use crate::plot::{Axis, Figure, Marks, Series};
use crate::record::{Claim, Findings};
use crate::setting::{Lanes, Setting};
use crate::statistics::median;
use crate::streams::{BUFFERS, Frames};
use crate::table::{Cell, Column};
use crate::verdict::{Answer, Prediction};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "cache-levels",
    question: "At which sizes of a working set does a load take longer, and are these the sizes at which a cache model says so?",
    claim: Claim {
        source: "the sizes that this machine tells of its caches, in the lab's cache model",
        says: "a load takes longer where the working set outgrows the first, the second and what of the shared level neighbours leave",
        predictions: &PREDICTIONS,
    },
    method: "Loads that each wait for the one before go through all lines of a working set, in one circle in an order that no prefetcher guesses, in huge \
             pages where the kernel grants them; of a round, the fastest 2,048 loads count, since all parts of the circle are alike and neighbours on a host take their share of its caches now \
             and then. The same circle goes through the model, which says who answers. The model's shared level is as large as two threads see it that fill and \
             read frames, before the loads and after them: neighbours have the rest. A load leaves a level, in the \
             model, at the first size of which that level and those before it answer less than half; as measured, at the first size at which it takes longer than the \
             geometric mean of what it takes, at the size where it is fastest, where the model has it answered by that level, and by the next.",
    steps: None,
    run: |setting, progress| {
        let model = Model::find("here").map_err(LabError::setup)?;
        let frames = Frames::new(BUFFERS, &model, [setting.cpu, setting.second_cpu()?])?;
        run(setting, progress, &model, u64::MAX, || frames.shared_left())
    },
};

/// Sizes lie a factor of 1.33 or 1.5 apart; one of them more or less is as near as can be told.
const NEAR: [f64; 2] = [0.6, 1.6];

const PREDICTIONS: [Prediction; 3] = [
    Prediction::check(
        "size at which a load leaves the first level, measured against modelled",
        "times",
        NEAR,
        "a step at another size",
    ),
    Prediction::check(
        "size at which a load leaves the second level, measured against modelled",
        "times",
        NEAR,
        "a step at another size",
    ),
    Prediction::check(
        "size at which a load leaves the shared level, measured against modelled",
        "times",
        NEAR,
        "a step at another size",
    ),
];

const SMALLEST: u64 = 8 << 10;

/// Levels are told apart if the next one takes so many times as long.
const APART: f64 = 1.2;

/// Where a level answers less than this part, what is measured isn't its own.
const MOSTLY: f64 = 0.9;

/// Working sets from well within the first level to three times what all levels hold.
fn sizes(model: &Model, most: u64) -> Vec<u64> {
    let all = 3 * ((model.shared.kib + model.second.kib) << 10);
    let octaves = std::iter::successors(Some(SMALLEST), |size| Some(size * 2));
    octaves.flat_map(|size| [size, size * 3 / 2]).take_while(|size| *size <= all.min(most)).collect()
}

fn run(
    setting: &Setting,
    progress: &mut dyn FnMut(&str),
    model: &Model,
    most: u64,
    shared_left: impl Fn() -> Result<u64, LabError>,
) -> Result<Findings, LabError> {
    let sizes = sizes(model, most);
    let mut chases: Vec<Box<dyn Measure>> = Vec::new();
    for &bytes in &sizes {
        chases.push(Box::new(Chase::new(bytes)?));
    }
    let before = shared_left()?;
    progress("chase");
    let cycles = setting.take_turns(Lanes::One, &mut chases)?.medians;
    let left = [before, shared_left()?];
    progress("model");
    let model = model.with_shared(u64::midpoint(left[0], left[1]));
    // The circles are the same each time.
    let asked = sizes.iter().map(|&bytes| Chase::new(bytes)?.answered(&model));
    let answered: Vec<Answered> = asked.collect::<Result<_, _>>()?;
    Ok(findings(&sizes, &answered, &cycles, left))
}

fn findings(sizes: &[u64], answered: &[Answered], cycles: &[f64], left: [u64; 2]) -> Findings {
    let steps = [0, 1, 2].map(|level| Step::of(level, sizes, answered, cycles));
    let mut conclusion: Vec<String> = steps.iter().map(|step| step.sentence.clone()).collect();
    conclusion.push(format!(
        "Of the shared level {} KiB were left before the loads, and {} KiB after them.",
        left[0], left[1]
    ));
    let rows = sizes.iter().zip(answered).zip(cycles).map(|((&bytes, answered), &cycles)| {
        let mut row: Vec<Cell> = vec![((bytes >> 10) as usize).into(), cycles.into()];
        row.extend(answered.map(|part| Cell::from(part * 100.0)));
        row
    });
    Findings {
        columns: Column::list(
            "working set, KiB | a load [cycles] | first level [% modelled] | second level [% modelled] | shared level [% modelled] | memory [% modelled]",
        ),
        rows: rows.collect(),
        figures: vec![picture(sizes, answered, cycles)],
        answers: steps.iter().map(|step| step.answer.clone()).collect(),
        conclusion: conclusion.join(" "),
    }
}

/// Where a load leaves a level.
struct Step {
    answer: Answer,
    sentence: String,
}

const LEVELS: [&str; 4] = ["first level", "second level", "shared level", "memory"];

impl Step {
    fn of(level: usize, sizes: &[u64], answered: &[Answered], cycles: &[f64]) -> Self {
        let name = LEVELS[level];
        let cannot = |why: String| Self { sentence: format!("{name}: {why}."), answer: Answer::none(why) };
        let plateau = |level: usize| {
            let own = answered
                .iter()
                .zip(cycles)
                .filter(|(answered, cycles)| answered[level] >= MOSTLY && cycles.is_finite());
            // Where it is fastest: neighbours, and page walks, may have made more of it slower.
            own.map(|(_, cycles)| *cycles).reduce(f64::min)
        };
        let Some((own, next)) = plateau(level).zip(plateau(level + 1)) else {
            return cannot(format!(
                "no working set here is answered by it and none by {} alone",
                LEVELS[level + 1]
            ));
        };
        if next < own * APART {
            return cannot(format!(
                "a load takes {own:.1} cycles there and {next:.1} in {}",
                LEVELS[level + 1]
            ));
        }
        let within = |answered: &Answered| answered[..=level].iter().sum::<f64>();
        let modelled = sizes.iter().zip(answered).find(|(_, answered)| within(answered) < 0.5);
        let edge = (own * next).sqrt();
        let measured = sizes.iter().zip(cycles).find(|(_, cycles)| **cycles > edge);
        let Some(((modelled, _), (measured, _))) = modelled.zip(measured) else {
            return cannot("no step is seen".to_owned());
        };
        Self {
            answer: (*measured as f64 / *modelled as f64).into(),
            sentence: format!(
                "A load of {own:.1} cycles leaves the {name} at {} KiB as modelled and at {} KiB as measured, and takes {next:.1} then.",
                modelled >> 10,
                measured >> 10
            ),
        }
    }
}

fn picture(sizes: &[u64], answered: &[Answered], cycles: &[f64]) -> Figure {
    let kib = |bytes: &u64| *bytes as f64 / 1024.0;
    let points = |values: Vec<f64>| sizes.iter().map(kib).zip(values).collect();
    // What each level takes where it answers, as far as it is known.
    let own = [0, 1, 2, 3].map(|level| {
        let mostly: Vec<f64> = answered
            .iter()
            .zip(cycles)
            .filter(|(answered, _)| answered[level] >= MOSTLY)
            .map(|(_, cycles)| *cycles)
            .collect();
        if mostly.is_empty() { f64::NAN } else { median(&mostly) }
    });
    let cost = |answered: &Answered| {
        let parts = answered.iter().zip(own).filter(|(part, _)| **part > 0.0);
        parts.map(|(part, own)| part * own).sum()
    };
    let modelled = answered.iter().map(cost).collect();
    Figure {
        title: "A load that waits for the one before".to_owned(),
        x: Axis::logarithmic("working set, KiB"),
        y: Axis::logarithmic("cycles"),
        marks: Marks::Lines(vec![
            Series { name: "measured".to_owned(), points: points(cycles.to_vec()) },
            Series { name: "modelled".to_owned(), points: points(modelled) },
        ]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::assert_judged;

    /// Levels of 32 KiB, 1 MiB and 8 MiB.
    fn seen(scale: u64) -> Findings {
        let model = Model {
            shared: crate::memory_traffic::machines::Level { kib: 8_192, ways: 16, slices: 1 },
            ..Model::find("xeon-gold-6148").unwrap()
        };
        let sizes = sizes(&model, u64::MAX);
        let level = |bytes: u64| [32, 1_024, 8_192].iter().position(|kib| bytes <= kib << 10).unwrap_or(3);
        let answered: Vec<Answered> = sizes
            .iter()
            .map(|&bytes| std::array::from_fn(|at| f64::from(u8::from(at == level(bytes)))))
            .collect();
        let cycles: Vec<f64> =
            sizes.iter().map(|&bytes| [4.0, 14.0, 50.0, 300.0][level(bytes * scale)]).collect();
        findings(&sizes, &answered, &cycles, [8_192, 8_192])
    }

    #[test]
    fn steps_at_other_sizes_refute_the_model() {
        let (same, other) = (seen(1), seen(2));
        assert_judged(&PREDICTIONS, &same.answers, &other.answers);
        assert!((same.answers[1].figure - 1.0).abs() < 1e-9, "{:?}", same.answers);
        assert!(
            same.conclusion.contains("leaves the second level at 1536 KiB as modelled and at 1536 KiB"),
            "{}",
            same.conclusion
        );
    }

    #[test]
    fn a_small_run_has_a_row_for_each_size() {
        let model = Model::find("xeon-gold-6148").unwrap();
        let findings = run(&Setting::tiny(), &mut |_| (), &model, 64 << 10, || Ok(model.shared.kib)).unwrap();
        findings.assert_rows(7);
        // Of the levels that are larger nothing can be told.
        assert!(findings.answers[2].cannot_tell.is_some());
    }
}
