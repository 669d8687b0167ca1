//! Which descriptors of a packed ring are available, one by one and with vector instructions.

use super::scalar_and_vector::gain;
use crate::benches::packed_look::looks;
use crate::error::LabError;
use crate::experiment::Experiment;
use crate::measure::Measure;
use crate::plot::{Axis, Figure, Marks};
use crate::record::{Claim, Findings};
use crate::setting::{Lanes, Setting};
use crate::table::{Cell, Column};
use crate::verdict::{Answer, Prediction};
use warmlane_sys::simd::Level;
use warmlane_virtio::LookLevel;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "packed-look",
    question: "What does a descriptor cost a device that looks which ones of virtio's packed ring are available, one by one and with vector instructions?",
    claim: Claim {
        source: super::sources::INTEL_TALK,
        says: "vector packet I/O always copies four descriptors and counts afterwards how many of them are done: without a chain of checks from one to the next the \
               latency of loads is hidden; no figure is given for this part of a driver",
        predictions: &PREDICTIONS,
    },
    method: "The ring is that of the virtio driver, with 256 descriptors of 16 bytes, all of which are available and in the first-level cache. The driver's own code looks at them from \
             the ring's start to its end, up to 1, 4, 8 or 32 at a time, and copies what it finds, by each set of instructions that the processor has: one by one, or four at once \
             by AVX2 (two loads of 32 bytes) or AVX-512 (one of 64), read twice, since a vector's parts may be read in any order. All take turns. Nothing is \
             given back, and the lines don't come from another core: of a packet's way this is the look alone. Where the processor lets its instructions be counted, they are in the table \
             of counted events; `cargo xtask gate packed-look` counts them anywhere, but for AVX-512.",
    steps: None,
    run,
};

const NO_GAIN: &str = "vector instructions that gain nothing";

const PREDICTIONS: [Prediction; 3] = [
    Prediction::at_least("AVX2 against one by one, 32 at a time", "%", 3.0, NO_GAIN),
    Prediction::at_least("AVX-512 against one by one, 32 at a time", "%", 3.0, NO_GAIN),
    Prediction::at_least(
        "AVX2 against one by one, 4 at a time",
        "%",
        3.0,
        "vector instructions that need longer bursts",
    ),
];

const LEVELS: [(Level, &str); 3] =
    [(Level::Portable, "one by one"), (Level::Avx2, "AVX2"), (Level::Avx512, "AVX-512")];
const AVX2: usize = 1;
const AVX512: usize = 2;

/// Descriptors that are looked at together, at most.
const BURSTS: [usize; 4] = [1, 4, 8, 32];

/// Cycles per descriptor by level, of those that the processor has.
type Cycles = [Option<f64>; LEVELS.len()];

fn run(setting: &Setting, progress: &mut dyn FnMut(&str)) -> Result<Findings, LabError> {
    let mut rows = Vec::new();
    for burst in BURSTS {
        progress(&format!("{burst} at a time"));
        rows.push((burst, measure(burst, setting)?));
    }
    Ok(findings(&rows))
}

fn measure(burst: usize, setting: &Setting) -> Result<Cycles, LabError> {
    let levels = LEVELS.map(|(level, _)| LookLevel::new(level));
    let mut measures: Vec<Box<dyn Measure>> = Vec::new();
    for level in levels.into_iter().flatten() {
        let look = looks(burst, move |ring, position, found| ring.available_by(level, position, found));
        measures.push(Box::new(look));
    }
    let mut medians = setting.take_turns(Lanes::One, &mut measures)?.medians.into_iter();
    Ok(levels.map(|level| level.and_then(|_| medians.next())))
}

fn findings(rows: &[(usize, Cycles)]) -> Findings {
    let columns = Column::list(
        "at a time | one by one [cycles/descriptor] | AVX2 [cycles/descriptor] | AVX-512 [cycles/descriptor] | AVX2 gains [%] | AVX-512 gains [%]",
    );
    let cells = rows.iter().map(|(burst, cycles)| {
        let gains = [AVX2, AVX512].map(|level| gain_of(cycles, level));
        let figures = cycles.iter().copied().chain(gains).map(Cell::from);
        std::iter::once(Cell::from(*burst)).chain(figures).collect::<Vec<_>>()
    });
    let series =
        LEVELS.iter().enumerate().filter(|(level, _)| rows.iter().all(|row| row.1[*level].is_some()));
    let series = series.map(|(level, (_, name))| {
        ((*name).to_owned(), rows.iter().filter_map(|(_, cycles)| cycles[level]).collect::<Vec<_>>())
    });
    let figure = Figure {
        title: "Looking at descriptors of a packed ring".to_owned(),
        x: Axis::linear("descriptors at a time"),
        y: Axis::linear("cycles per descriptor"),
        marks: Marks::Bars {
            groups: rows.iter().map(|(burst, _)| burst.to_string()).collect(),
            series: series.collect(),
        },
    };
    Findings {
        columns,
        rows: cells.collect(),
        figures: vec![figure],
        answers: answers(rows).to_vec(),
        conclusion: conclusion(rows),
    }
}

/// How much more is looked at in the same time, in percent; `None` without the instructions.
fn gain_of(cycles: &Cycles, level: usize) -> Option<f64> {
    Some(gain(cycles[0]?, cycles[level]?))
}

fn answers(rows: &[(usize, Cycles)]) -> [Answer; 3] {
    [(AVX2, 32), (AVX512, 32), (AVX2, 4)].map(|(level, burst)| {
        let row = rows.iter().find(|row| row.0 == burst);
        let gain = row.and_then(|(_, cycles)| gain_of(cycles, level));
        gain.map_or_else(|| Answer::none(format!("this processor has no {}", LEVELS[level].1)), Answer::from)
    })
}

fn conclusion(rows: &[(usize, Cycles)]) -> String {
    let parts = rows.iter().map(|(burst, cycles)| {
        let of = LEVELS.iter().zip(cycles).filter_map(|((_, name), cycles)| Some((name, (*cycles)?)));
        let of: Vec<_> = of.map(|(name, cycles)| format!("{cycles:.1} ({name})")).collect();
        format!("{burst} at a time {}", of.join(", "))
    });
    let parts: Vec<_> = parts.collect();
    format!(
        "Cycles per descriptor: {}. One descriptor alone is looked at in the same way at every level: what differs there is the way to that code.",
        parts.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::assert_judged;

    #[test]
    fn turned_figures_refute_the_claim() {
        let rows = |scalar: f64, vector: f64| BURSTS.map(|burst| (burst, [scalar, vector, vector].map(Some)));
        assert_judged(&PREDICTIONS, &answers(&rows(4.0, 1.0)), &answers(&rows(1.0, 4.0)));
    }

    #[test]
    fn a_processor_without_the_instructions_can_not_tell() {
        let rows = BURSTS.map(|burst| (burst, [Some(4.0), Some(1.0), None]));
        let cannot_tell = answers(&rows).map(|answer| answer.cannot_tell);
        assert_eq!(cannot_tell, [None, Some("this processor has no AVX-512".to_owned()), None]);
        let findings = findings(&rows);
        findings.assert_rows(BURSTS.len());
        assert_eq!((&findings.rows[3][3], &findings.rows[3][5]), (&Cell::Missing, &Cell::Missing));
        assert!(!findings.conclusion.contains("AVX-512"), "{}", findings.conclusion);
    }

    #[test]
    fn there_is_a_row_for_each_burst() {
        Setting::tiny().try_out(run).assert_rows(BURSTS.len());
    }
}
