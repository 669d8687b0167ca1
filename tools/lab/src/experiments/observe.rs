//! What it costs a running forwarder to be looked into.

mod instance;

use crate::disturbance::{self, Snapshot};
use crate::error::LabError;
use crate::experiment::Experiment;
use crate::own_program::own_program;
use crate::plot::{Axis, Figure, Marks};
use crate::record::{Claim, Findings};
use crate::setting::{Lanes, Setting};
use crate::statistics::median;
use crate::table::{Cell, Column};
use crate::turns::Round;
use crate::verdict::{Answer, Prediction, Verdict};
use instance::{Instance, Look};
use std::thread;
use std::time::Duration;
use warmlane_sys::affinity;
use warmlane_sys::clock::Clock;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "observe",
    question: "What does it cost a forwarder at full rate that somebody looks into it?",
    claim: Claim {
        source: "docs/operate.md, 'What it costs'",
        says: "metrics read every second take at most 0.5 % of the rate, stages that are timed 2 %, one packet in a thousand captured 3 %, and who doesn't \
               read what he asked for slows nobody",
        predictions: &PREDICTIONS,
    },
    method: "`warmlane demo --shortest` (the full table, shortest frames, in memory) runs with one lane on the first CPU and all else on the second. In each \
             round somebody else looks into it by its control socket or its metrics, from the second CPU; what a packet takes is the round's time by the number of \
             packets that the lane counts meanwhile. The process stands still (SIGSTOP) between rounds, which take two seconds at least where rounds usually do. \
             In one way nobody looks, and the second CPU spins. If that alone costs more than half a percent, the CPUs share something (hyper-threads do), and \
             what looking costs beyond its promise can't be told from what any work there does.",
    steps: None,
    run,
};

const PREDICTIONS: [Prediction; 4] = [
    costs("metrics read once a second", 0.5),
    costs("stages timed", 2.0),
    costs("one packet in 1,000 captured", 3.0),
    costs("all packets asked for and none read", 3.0),
];

/// A figure so far above a promise may be noise: half a percent, by choice.
const NOISE: f64 = 0.5;

const fn costs(quantity: &'static str, percent: f64) -> Prediction {
    Prediction { tolerance: NOISE, ..Prediction::at_most(quantity, "%", percent, "a larger cost") }
}

const LOOKS: [(&str, Look); 6] = [
    ("nobody", Look::Nobody),
    ("nobody, second CPU spins", Look::Spin),
    ("metrics, once a second", Look::Scrape),
    ("stages timed", Look::Cycles),
    ("1 packet in 1,000 captured", Look::Capture(1_000)),
    ("all packets, none read", Look::Stall),
];

/// Before a round the caches fill again, and behind it the lane lets go of who looked.
const WARM: Duration = Duration::from_millis(50);
/// Rounds are at least so long, except short ones, which only try whether it works.
const LENGTH: Duration = Duration::from_secs(2);

fn run(setting: &Setting, progress: &mut dyn FnMut(&str)) -> Result<Findings, LabError> {
    let program = own_program(EXPERIMENT.name)?;
    // Lanes take the highest CPU that they may.
    let cpus = [setting.cpu, setting.second_cpu()?];
    let (cpu, second_cpu) = (cpus[0].max(cpus[1]), cpus[0].min(cpus[1]));
    let is_short = setting.length < Duration::from_millis(100);
    let length = if is_short { setting.length } else { setting.length.max(LENGTH) };
    let setting = Setting { cpu, second_cpu: Some(second_cpu), length, ..setting.clone() };
    let instance = Instance::start(&program, cpus)?;
    // With who looks, and asks for figures.
    affinity::pin_current_thread(second_cpu)?;
    let clock = Clock::calibrated();
    progress("all ways to look, in turns");
    let taken = setting.turns(Lanes::One, LOOKS.len(), |variant| {
        instance.go_on(true)?;
        let looker = instance.look(LOOKS[variant].1)?;
        thread::sleep(WARM);
        // What the second CPU does for who looks is part of what looking costs.
        let snapshot = || Snapshot::take_beside(&[cpu], &[second_cpu], instance.process());
        let (beforehand, before) = (snapshot(), instance.now()?);
        thread::sleep(setting.length);
        let (after, afterwards) = (instance.now()?, snapshot());
        let cycles =
            (after.nanoseconds - before.nanoseconds) as f64 * 1e-9 * clock.cycles_per_second() as f64;
        let round = Round {
            cycles_per_unit: cycles / (after.packets - before.packets).max(1) as f64,
            disturbed: disturbance::between(&beforehand, &afterwards, setting.length),
        };
        drop(looker);
        // Its lane is to be rid of the look, too.
        thread::sleep(WARM);
        instance.go_on(false)?;
        Ok(round)
    })?;
    let medians: Vec<f64> = taken
        .variants
        .iter()
        .map(|rounds| if taken.void.is_some() { f64::NAN } else { median(rounds) })
        .collect();
    // Beside nobody's round of the same turn.
    let costs: Vec<f64> = taken
        .variants
        .iter()
        .map(|rounds| {
            let percent: Vec<f64> = rounds
                .iter()
                .zip(taken.variants.first().into_iter().flatten())
                .map(|(looked, alone)| 100.0 * (looked / alone - 1.0))
                .collect();
            if taken.void.is_some() { f64::NAN } else { median(&percent) }
        })
        .collect();
    Ok(findings(&medians, &costs))
}

/// What is left of the rate is told by how much longer a packet takes.
fn findings(medians: &[f64], costs: &[f64]) -> Findings {
    let rows = LOOKS.iter().zip(medians.iter().zip(costs));
    let looked = || LOOKS.iter().zip(costs).skip(1);
    Findings {
        columns: Column::list("who looks | cycles/packet | cost [%]"),
        rows: rows
            .map(|((name, _), (&median, &cost))| vec![(*name).into(), median.into(), Cell::from(cost)])
            .collect(),
        figures: vec![Figure {
            title: "What it costs to be looked into".to_owned(),
            x: Axis::linear("who looks"),
            y: Axis::linear("more cycles per packet, %"),
            marks: Marks::Bars {
                groups: looked().map(|((name, _), _)| (*name).to_owned()).collect(),
                // Bars stand on zero: what is less is noise.
                series: vec![("cost".to_owned(), looked().map(|(_, cost)| cost.max(0.0)).collect())],
            },
        }],
        answers: answers(costs).to_vec(),
        conclusion: conclusion(medians, costs),
    }
}

/// `costs` has nobody's first, and then what a busy second CPU costs.
fn answers(costs: &[f64]) -> [Answer; 4] {
    let &[_, spin, ref looks @ ..] = costs else { return [const { Answer::MISSING }; 4] };
    std::array::from_fn(|look| {
        let (answer, promised) =
            (looks.get(look).map_or(Answer::MISSING, |cost| Answer::from(*cost)), &PREDICTIONS[look]);
        // What is within the promise is so whatever the second CPU does.
        if spin <= NOISE || promised.judge(&answer) == Verdict::Reproduced {
            return answer;
        }
        answer.but_cannot_tell(format!("a second CPU that only spins costs {spin:.1} %"))
    })
}

fn conclusion(medians: &[f64], costs: &[f64]) -> String {
    let (Some(alone), [_, spin, scrape, cycles, capture, stall]) =
        (medians.first().filter(|alone| alone.is_finite()), costs)
    else {
        return "The run is void.".to_owned();
    };
    format!(
        "A packet takes {alone:.1} cycles if nobody looks. Metrics read every second cost {scrape:+.1} % of that, timed stages {cycles:+.1} %, one captured \
         packet in a thousand {capture:+.1} %, and somebody who asks for all packets and reads none {stall:+.1} %. A second CPU that only spins costs {spin:+.1} %."
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::assert_judged;

    #[test]
    fn turned_figures_refute_the_claim() {
        assert_judged(
            &PREDICTIONS,
            &answers(&[0.0, 0.0, 0.1, 1.0, 2.0, 0.2]),
            &answers(&[0.0, 0.0, 2.0, 4.0, 9.0, 50.0]),
        );
    }

    #[test]
    fn a_neighbour_that_slows_by_itself_leaves_only_kept_promises() {
        let answers = answers(&[0.0, 15.0, 0.1, 4.0, 2.0, 50.0]);
        let words = [0, 1, 2, 3].map(|look| PREDICTIONS[look].judge(&answers[look]).word());
        assert_eq!(words, ["reproduced", "cannot tell here", "reproduced", "cannot tell here"]);
    }

    #[test]
    fn there_is_a_row_for_each_way_to_look() {
        let findings = findings(&[60.0; LOOKS.len()], &[0.0; LOOKS.len()]);
        findings.assert_rows(LOOKS.len());
        assert_eq!(findings.answers.len(), PREDICTIONS.len());
    }
}
