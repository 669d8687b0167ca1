//! Copies by size, from and to cache and memory.

use crate::alongside::Alongside;
use crate::benches::copy::{COLUMNS, Copies, Endpoints, Memory, SIZES, Variant};
use crate::counters;
use crate::error::LabError;
use crate::experiment::Experiment;
use crate::peer::Peer;
use crate::plot::{Axis, Figure, Marks, Series};
use crate::record::{Claim, Findings};
use crate::setting::{Lanes, Setting, doubt};
use crate::table::{Cell, Column};
use crate::verdict::{Answer, Prediction};
use std::fmt::Write as _;
use std::time::Instant;
use warmlane_sys::vector;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "copy",
    question: "What does a copy cost by size, from and to cache and memory, and who copies best?",
    claim: Claim {
        source: super::sources::INTEL_TALK,
        says: "rte_memcpy rewritten for AVX2 is on the average of selected sizes 1.85 times as fast as glibc from cache to cache, 4.57 from cache to \
               memory, 1.26 from memory to cache, 2.62 from memory to memory (1.24, 4.06, 1.14, 2.41 before the rewrite)",
        predictions: &PREDICTIONS,
    },
    method: "The method of DPDK's own measurement: batches of 100 copies of one size that the compiler doesn't know, at addresses that 32 divides, \
             each at a random place of 128 MiB (memory; the same places in the same order for all) or all between two places half a page apart (cache), on transparent huge pages. A batch of each size follows the other; ours, \
             glibc's memcpy and rte_memcpy take turns. The averages are geometric means over all sizes of how many times faster a size is, as in \
             `cargo xtask compare copy`. rte_memcpy runs in a program of its own, peers/copy.c.",
    steps: None,
    run,
};

const SLOWER: &str = "an rte_memcpy that is no faster than glibc";

const PREDICTIONS: [Prediction; COLUMNS.len()] = [
    Prediction::times("rte_memcpy over glibc, cache to cache", 1.85, SLOWER),
    Prediction::times("rte_memcpy over glibc, cache to memory", 4.57, SLOWER),
    Prediction::times("rte_memcpy over glibc, memory to cache", 1.26, SLOWER),
    Prediction::times("rte_memcpy over glibc, memory to memory", 2.62, SLOWER),
];

/// Ours, glibc, rte_memcpy: cycles by size.
type Cycles = [Option<Vec<f64>>; 3];
const NAMES: [&str; 3] = ["ours", "glibc", "rte_memcpy"];
const OURS: usize = 0;
const LIBRARY: usize = 1;
const RTE: usize = 2;

fn run(setting: &Setting, progress: &mut dyn FnMut(&str)) -> Result<Findings, LabError> {
    let mut memory = Memory::new().map_err(LabError::setup)?;
    let mut found = Vec::new();
    let mut missing = None;
    for endpoints in COLUMNS {
        progress(endpoints.name);
        let peer = Peer::start("copy", &setting.cpu.to_string(), &["rte", endpoints.argument]);
        let mut peer = peer.map_err(|reason| missing = Some(reason.to_string())).ok();
        found.push(measure(setting, endpoints, &mut memory, peer.as_mut())?);
    }
    Ok(findings(&found, missing.as_deref()))
}

fn measure(
    setting: &Setting,
    endpoints: Endpoints,
    memory: &mut Memory,
    mut peer: Option<&mut Peer>,
) -> Result<Cycles, LabError> {
    let mut variants = [Variant::Ours, Variant::Library].map(|variant| Copies::new(endpoints, variant));
    let count = if peer.is_some() { NAMES.len() } else { variants.len() };
    let mut rounds = Alongside::new(count);
    let own = std::process::id();
    let mut measure = |number: usize| {
        let process = peer.as_ref().filter(|_| number == RTE).map_or(own, |peer| peer.process());
        setting.watch(Lanes::One, process, || {
            let sizes = match (&mut peer, variants.get_mut(number)) {
                (_, Some(variant)) => {
                    variant.begin();
                    let (start, mut copies) = (Instant::now(), 0);
                    counters::start();
                    while start.elapsed() < setting.length {
                        copies += variant.sweep(memory);
                    }
                    counters::stop(copies);
                    variant.of_sizes()
                }
                (Some(peer), None) => peer.sizes(setting.length).map_err(LabError::setup)?,
                (None, None) => Vec::new(),
            };
            let mean = geometric_mean(sizes.iter().copied());
            rounds.note(number, mean, sizes);
            Ok(mean)
        })
    };
    // One round of each to warm up.
    counters::uncounted(|| (0..count).try_for_each(|number| measure(number).map(drop)))?;
    let taken = setting.turns(Lanes::One, count, measure)?;
    // Of each size the middle of its rounds that count.
    let middle = |number: usize, size: usize| {
        rounds.median(&taken, number, |sizes: &Vec<f64>| sizes.get(size).copied().unwrap_or(f64::NAN))
    };
    Ok([OURS, LIBRARY, RTE].map(|number| {
        (number < count && doubt(&taken, number).is_none())
            .then(|| (0..SIZES.len()).map(|size| middle(number, size)).collect())
    }))
}

fn geometric_mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    (values.map(f64::ln).sum::<f64>() / count).exp()
}

/// How many times faster than the other, on the geometric mean of the sizes.
fn average(cycles: &[f64], other: &[f64]) -> f64 {
    geometric_mean(cycles.iter().zip(other).map(|(cycles, other)| other / cycles))
}

fn findings(found: &[Cycles], missing: Option<&str>) -> Findings {
    let mut columns = vec![Column::plain("bytes")];
    for endpoints in COLUMNS {
        columns.extend(NAMES.map(|name| Column::figures(&format!("{name}, {}", endpoints.name), "cycles")));
    }
    let cell = |cycles: &Cycles, variant: usize, size: usize| {
        Cell::from(cycles[variant].as_ref().map(|cycles| cycles[size]))
    };
    let mut rows: Vec<Vec<Cell>> = (0..SIZES.len())
        .map(|size| {
            let cells = found
                .iter()
                .flat_map(|cycles| (0..NAMES.len()).map(move |variant| cell(cycles, variant, size)));
            [Cell::from(SIZES[size])].into_iter().chain(cells).collect()
        })
        .collect();
    let times = |cycles: &Cycles, variant: usize, other: usize| {
        Some(average(cycles[variant].as_ref()?, cycles[other].as_ref()?))
    };
    let summary = |name: &str, other: usize| -> Vec<Cell> {
        let cells = found.iter().flat_map(|cycles| {
            (0..NAMES.len()).map(move |variant| Cell::from(times(cycles, variant, other)))
        });
        [Cell::from(name)].into_iter().chain(cells).collect()
    };
    rows.push(summary("average, times glibc", LIBRARY));
    if found.iter().any(|cycles| cycles[RTE].is_some()) {
        rows.push(summary("average, times rte_memcpy", RTE));
    }
    let (figures, conclusion) = (figures(found), conclusion(found, missing));
    Findings { columns, rows, figures, answers: answers(found, missing), conclusion }
}

/// How many times faster rte_memcpy is than glibc, from and to each.
fn answers(found: &[Cycles], missing: Option<&str>) -> Vec<Answer> {
    let answer = |cycles: &Cycles| match (&cycles[RTE], &cycles[LIBRARY], missing) {
        (Some(theirs), Some(library), _) => average(theirs, library).into(),
        (_, _, Some(reason)) => Answer::none(reason),
        _ => f64::NAN.into(),
    };
    found.iter().map(answer).collect()
}

fn conclusion(found: &[Cycles], missing: Option<&str>) -> String {
    let mut text = format!("With {} instructions, on the average of the sizes, ours is", vector::level());
    let mut behind = Vec::new();
    for (endpoints, cycles) in COLUMNS.iter().zip(found) {
        for other in [LIBRARY, RTE] {
            if let [Some(ours), Some(theirs)] = [&cycles[OURS], &cycles[other]] {
                let times = average(ours, theirs);
                let _ = write!(text, " {times:.2} times {} from {};", NAMES[other], endpoints.name);
                if times < 1.0 {
                    behind.push(format!("{} from {}", NAMES[other], endpoints.name));
                }
            }
        }
        if let [Some(theirs), Some(library)] = [&cycles[RTE], &cycles[LIBRARY]] {
            let _ = write!(text, " rte_memcpy {:.2} times glibc;", average(theirs, library));
        }
    }
    let _ = text.pop();
    text.push('.');
    if behind.is_empty() {
        text.push_str(" It is behind nowhere.");
    } else {
        let _ = write!(
            text,
            " It is behind {}. The talk's large factors were against a glibc of 2014 without AVX2; today's has it, so that only short \
             copies, which are mostly call and branches there, leave much to gain, and memory bounds long ones for everybody.",
            behind.join(", ")
        );
    }
    if let Some(reason) = missing {
        let _ = write!(text, " rte_memcpy was not measured: {reason}.");
    }
    text
}

fn figures(found: &[Cycles]) -> Vec<Figure> {
    COLUMNS
        .iter()
        .zip(found)
        .map(|(endpoints, cycles)| {
            let series = cycles.iter().zip(NAMES).filter_map(|(cycles, name)| {
                let points = SIZES.iter().zip(cycles.as_ref()?).map(|(size, cycles)| (*size as f64, *cycles));
                Some(Series { name: name.to_owned(), points: points.collect() })
            });
            Figure {
                title: format!("Copies from {}", endpoints.name),
                x: Axis::logarithmic("bytes"),
                y: Axis::logarithmic("cycles per copy"),
                marks: Marks::Lines(series.collect()),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::assert_judged;

    #[test]
    fn turned_figures_refute_the_claim() {
        let found = |times: [f64; 4]| {
            times.map(|times| -> Cycles {
                let variants = [Some(1.0), Some(9.0), Some(9.0 / times)];
                variants.map(|cycles| cycles.map(|cycles| vec![cycles; SIZES.len()]))
            })
        };
        let claimed = [1.85, 4.57, 1.26, 2.62];
        let turned = claimed.map(|times| 1.0 / times);
        assert_judged(&PREDICTIONS, &answers(&found(claimed), None), &answers(&found(turned), None));
        let without = answers(&[[None, Some(vec![1.0]), None]], Some("there is no DPDK"));
        assert_eq!(without[0].cannot_tell.as_deref(), Some("there is no DPDK"));
    }

    #[test]
    fn averages_weigh_sizes_and_sides_alike() {
        let (ours, theirs) = ([1.0, 100.0], [4.0, 100.0]);
        assert!((average(&ours, &theirs) - 2.0).abs() < 1e-9);
        assert!((average(&theirs, &ours) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_tiny_run_has_rounds_of_both_ways() {
        let setting = Setting::tiny();
        let mut memory = Memory::new().unwrap();
        let [ours, library, rte] = measure(&setting, COLUMNS[0], &mut memory, None).unwrap();
        for sizes in [ours, library] {
            assert!(sizes.unwrap().iter().all(|cycles| *cycles > 0.0));
        }
        assert_eq!(rte, None);
    }

    #[test]
    fn findings_have_a_row_for_each_size_and_say_what_is_missing() {
        let variants = |ours: f64, rte: Option<f64>| -> Cycles {
            [
                Some(vec![ours; SIZES.len()]),
                Some(vec![4.0; SIZES.len()]),
                rte.map(|rte| vec![rte; SIZES.len()]),
            ]
        };
        let findings = super::findings(&[2.0, 5.0, 2.0, 2.0].map(|ours| variants(ours, Some(3.0))), None);
        findings.assert_rows(SIZES.len() + 2);
        let Cell::Figure(average) = findings.rows[SIZES.len()][1] else { panic!("no average") };
        assert!((average - 2.0).abs() < 1e-9);
        assert!(
            findings
                .conclusion
                .contains("behind glibc from cache to memory, rte_memcpy from cache to memory. The talk's")
        );
        let findings = super::findings(&[2.0; 4].map(|ours| variants(ours, None)), Some("there is no DPDK"));
        assert_eq!(findings.rows.len(), SIZES.len() + 1);
        assert_eq!(findings.rows[0][3], Cell::Missing);
        assert!(
            findings.conclusion.ends_with("behind nowhere. rte_memcpy was not measured: there is no DPDK."),
            "{}",
            findings.conclusion
        );
    }
}
