//! Copy into and out of a ring, or work in its memory.

use crate::error::LabError;
use crate::experiment::Experiment;
use crate::measure::Measure;
use crate::partner::{Partner, beside};
use crate::plot::{Axis, Figure, Marks};
use crate::record::{Claim, Findings};
use crate::ring_shape::pause;
use crate::setting::{Lanes, Setting};
use crate::table::{Cell, Column};
use crate::verdict::{Answer, Prediction};
use warmlane_sync::spsc;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "zero-copy-ring",
    question: "What does it gain to write and read bursts in the ring's own memory, instead of copying them?",
    claim: Claim {
        source: super::sources::ARM,
        says: "batches of 32, 64 or 128 pointers mean copies of 256, 512 or 1,024 bytes, which the zero-copy functions of \
               the ring help to avoid; no figure is given for the gain",
        predictions: &PREDICTIONS,
    },
    method: "An I/O lane makes up bursts of 8-byte elements and a worker lane adds all of them up, over a \
             single-producer single-consumer ring of 1,024. Copying, the one fills an array and pushes it, the other \
             pops into an array and adds that up; in place, they reserve and commit, peek and release. Both do the \
             same on one lane too, where no line has to move, so that only the copies' instructions differ. The ways take \
             turns.",
    steps: None,
    run,
};

const PREDICTIONS: [Prediction; 2] = [
    Prediction::at_least(
        "copied against in place, one lane, bursts of 128",
        "times",
        1.03,
        "copies that cost nothing",
    ),
    Prediction::at_least(
        "copied against in place, two lanes, bursts of 128",
        "times",
        1.03,
        "copies that cost nothing",
    ),
];

const CAPACITY: usize = 1024;
const LONGEST: usize = 128;
const SIZES: [usize; 3] = [32, 64, LONGEST];
/// Bursts between two looks at the clock.
const BURSTS: u64 = 64;

/// Puts a burst in; says whether there was space.
fn push(producer: &mut spsc::Producer<u64>, size: usize, in_place: bool, stamp: u64) -> bool {
    if in_place {
        let Some(mut reservation) = producer.reserve_bulk(size) else { return false };
        let (first, second) = reservation.as_mut_slices();
        first.iter_mut().chain(second).zip(stamp..).for_each(|(slot, value)| *slot = value);
        reservation.commit();
        true
    } else {
        let mut values = [0; LONGEST];
        values[..size].iter_mut().zip(stamp..).for_each(|(slot, value)| *slot = value);
        producer.push_bulk(&values[..size])
    }
}

/// Takes a burst out and adds it up, if there is one.
fn pop(consumer: &mut spsc::Consumer<u64>, size: usize, in_place: bool) -> Option<u64> {
    let add = |sum: u64, value: &u64| sum.wrapping_add(*value);
    if in_place {
        let peek = consumer.peek_bulk(size)?;
        let (first, second) = peek.as_slices();
        let sum = first.iter().chain(second).fold(0, add);
        peek.release();
        Some(sum)
    } else {
        let mut values = [0; LONGEST];
        consumer.pop_bulk(&mut values[..size]).then(|| values[..size].iter().fold(0, add))
    }
}

fn variant(size: usize, in_place: bool, second_cpu: Option<usize>) -> Result<Box<dyn Measure>, LabError> {
    let (mut producer, mut consumer) = spsc::ring(CAPACITY).map_err(LabError::setup)?;
    let Some(cpu) = second_cpu else {
        return Ok(Box::new(move || {
            add_up(size, |stamp| {
                push(&mut producer, size, in_place, stamp)
                    .then(|| pop(&mut consumer, size, in_place).unwrap_or_default())
            })
        }));
    };
    let partner = Partner::start(cpu, move || {
        Ok(move || {
            for stamp in 0..BURSTS {
                if !push(&mut producer, size, in_place, stamp) {
                    pause();
                }
            }
        })
    });
    let work = move || {
        add_up(size, |_| {
            let sum = pop(&mut consumer, size, in_place);
            if sum.is_none() {
                pause();
            }
            sum
        })
    };
    Ok(beside(partner.map_err(LabError::setup)?, work))
}

/// A piece of work: adds up what `next` gives, and says how many elements these were.
#[inline]
fn add_up(size: usize, mut next: impl FnMut(u64) -> Option<u64>) -> u64 {
    let (mut sum, mut done) = (0_u64, 0);
    for part in (0..BURSTS).filter_map(&mut next) {
        sum = sum.wrapping_add(part);
        done += size as u64;
    }
    std::hint::black_box(sum);
    done
}

/// A burst size, and what an element costs copied and in place.
struct Row {
    lanes: &'static str,
    size: usize,
    copied: f64,
    in_place: f64,
    line_transfer: Option<f64>,
}

fn run(setting: &Setting, progress: &mut dyn FnMut(&str)) -> Result<Findings, LabError> {
    let mut results = Vec::new();
    for (lanes, cpu) in [("one", None), ("two", Some(setting.second_cpu()?))] {
        for size in SIZES {
            progress(&format!("{lanes} lanes, bursts of {size}"));
            let turns = setting.take_turns(
                if cpu.is_some() { Lanes::Two } else { Lanes::One },
                &mut [variant(size, false, cpu)?, variant(size, true, cpu)?],
            )?;
            results.push(Row {
                lanes,
                size,
                copied: turns.medians[0],
                in_place: turns.medians[1],
                line_transfer: turns.line_transfer,
            });
        }
    }
    let columns = Column::list(
        "lanes | burst | copied [cycles/element] | in place [cycles/element] | gain [times] | line transfer [cycles]",
    );
    let rows = results.iter().map(|result| {
        vec![
            Cell::from(result.lanes),
            result.size.into(),
            result.copied.into(),
            result.in_place.into(),
            (result.copied / result.in_place).into(),
            result.line_transfer.into(),
        ]
    });
    let rows = rows.collect();
    let (answers, conclusion) = (answers(&results).to_vec(), conclusion(&results));
    Ok(Findings { columns, rows, figures: vec![figure(&results)], answers, conclusion })
}

fn answers(results: &[Row]) -> [Answer; 2] {
    ["one", "two"].map(|lanes| {
        let row = results.iter().find(|row| (row.lanes, row.size) == (lanes, LONGEST));
        row.map_or(f64::NAN, |row| row.copied / row.in_place).into()
    })
}

fn figure(results: &[Row]) -> Figure {
    Figure {
        title: "Copied, or worked on in the ring".to_owned(),
        x: Axis::linear("lanes and burst"),
        y: Axis::linear("cycles per element"),
        marks: Marks::Bars {
            groups: results.iter().map(|result| format!("{} / {}", result.lanes, result.size)).collect(),
            series: vec![
                ("copied".to_owned(), results.iter().map(|result| result.copied).collect()),
                ("in place".to_owned(), results.iter().map(|result| result.in_place).collect()),
            ],
        },
    }
}

fn conclusion(results: &[Row]) -> String {
    let saved = |lanes: &str| {
        let parts = results.iter().filter(|result| result.lanes == lanes);
        let parts = parts.map(|result| {
            format!(
                "{:.0} cycles of {} bytes",
                (result.copied - result.in_place) * result.size as f64,
                8 * result.size
            )
        });
        parts.collect::<Vec<_>>().join(", ")
    };
    format!(
        "The article gives no gain to compare with. Here a burst in place saves, on one lane, {}; between two lanes, {}. What \
         is saved is two passes over an array that lies in L1, the same work on any machine. Where that is less between \
         two lanes than on one, the lines that have to move between them set the pace, and moving them takes the same \
         time either way; where it is more, the copies kept a lane from asking for its next lines.",
        saved("one"),
        saved("two"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::assert_judged;

    #[test]
    fn there_is_a_row_for_each_combination() {
        let Some(setting) = Setting::tiny_on_two_cpus() else { return };
        let findings = setting.try_out(run);
        findings.assert_rows(2 * SIZES.len());
    }

    #[test]
    fn turned_figures_refute_the_claim() {
        let rows = |copied, in_place| {
            ["one", "two"].map(|lanes| Row { lanes, size: 128, copied, in_place, line_transfer: None })
        };
        assert_judged(&PREDICTIONS, &answers(&rows(3.0, 2.0)), &answers(&rows(2.0, 3.0)));
    }

    #[test]
    fn both_ways_carry_the_same() {
        for in_place in [false, true] {
            let (mut producer, mut consumer) = spsc::ring(CAPACITY).unwrap();
            // Round the end several times.
            for stamp in 0..100 {
                assert!(push(&mut producer, 96, in_place, stamp));
                assert_eq!(pop(&mut consumer, 96, !in_place), Some((stamp..stamp + 96).sum()));
            }
        }
    }
}
