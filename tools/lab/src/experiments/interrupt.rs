//! A whole router between two virtual links that little arrives at, beside those of others.

mod forwarder;

use crate::error::LabError;
use crate::experiment::Experiment;
use crate::own_program::own_program;
use crate::plot::{Axis, Figure, Marks, Series};
use crate::record::{Claim, Findings};
use crate::setting::Setting;
use crate::statistics::median;
use crate::table::{Cell, Column};
use crate::verdict::{Answer, Basis, Prediction};
use forwarder::{Lab, Side, Through};
use std::time::Duration;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "interrupt",
    question: "What does a router take of its CPU when little arrives, and how long do packets take through it, beside others?",
    claim: Claim {
        source: "Liang Cunming, 'Practices for Building Core/Efficient Applications', DPDK Summit China 2015, 'Power Optimization' and 'Interrupt Mode \
                 Packet IO'; and docs/idle.md",
        says: "without traffic a forwarder that polls takes 100 % of a CPU, and one that sleeps until an interrupt tells of packets 0.3 %",
        predictions: &PREDICTIONS,
    },
    method: "`warmlane router --path user` (AF_XDP), the kernel, and DPDK's testpmd (net_af_xdp, forwarding by rewritten addresses) and l3fwd-power \
             (`--interrupt-only`) on the second CPU; `warmlane gen` on the first sends at even intervals over packet sockets and measures what each \
             packet takes. CPU time is that of all threads of the forwarder's process, and of none for the kernel, whose work is the sender's system \
             calls'. Sides take turns within a round; figures are medians of up to three rounds. A round without traffic takes a hundred times the \
             length, one with traffic thirty times, or as long as five packets take. l3fwd-power waits for receive interrupts, which net_af_xdp and \
             net_af_packet don't have (DPDK's overview of features of NIC drivers). It has net_tap, which does, and the kernel redirects packets from \
             the first link to one TAP interface and from the other to the second link (`mirred`, as net_tap's own `remote` does). Its routes are \
             compiled in, so it is sent to 2.1.1.2.",
    steps: Some(steps),
    run,
};

const PREDICTIONS: [Prediction; 7] = [
    Prediction {
        tolerance: 5.0,
        basis: Basis::Figure,
        ..Prediction::at_least(
            "CPU of a router that polls (spin), without traffic",
            "%",
            100.0,
            "a smaller part",
        )
    },
    Prediction {
        tolerance: 0.15,
        basis: Basis::Figure,
        ..Prediction::at_most(
            "CPU of a router that sleeps (power), without traffic",
            "%",
            0.3,
            "a larger part",
        )
    },
    Prediction::at_most("CPU of a balanced router, without traffic", "%", 0.5, "a larger part"),
    Prediction::at_most(
        "p99 through a balanced router that sleeps between packets (1 to 100 a second)",
        "us",
        100.0,
        "a longer time",
    ),
    Prediction::at_most(
        "p99 under latency, beyond that of a router that spins (1,000 a second)",
        "us",
        10.0,
        "a longer time",
    ),
    Prediction::at_least("CPU of testpmd, without traffic", "%", 95.0, "a smaller part"),
    Prediction {
        tolerance: 0.15,
        basis: Basis::Figure,
        ..Prediction::at_most(
            "CPU of l3fwd-power in interrupt mode, without traffic",
            "%",
            0.3,
            "a larger part",
        )
    },
];

/// Packets a second; 0 is no traffic.
const RATES: [f64; 7] = [0.0, 1.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0];
const MOST_ROUNDS: usize = 3;

const SIDES: [(&str, Side); 7] = [
    ("spin", Side::Router("--spin")),
    ("latency", Side::Router("--idle latency")),
    ("balanced", Side::Router("--idle balanced")),
    ("power", Side::Router("--idle power")),
    ("kernel", Side::Kernel),
    ("testpmd", Side::Testpmd),
    ("l3fwd-power", Side::L3fwdPower),
];

/// Why sides were not measured, of those that can't be.
type Missing = [Option<String>; SIDES.len()];

fn steps() -> Vec<String> {
    SIDES.iter().map(|(name, _)| (*name).to_owned()).collect()
}

fn run(setting: &Setting, progress: &mut dyn FnMut(&str)) -> Result<Findings, LabError> {
    let program = own_program(EXPERIMENT.name)?;
    let cpus = (setting.cpu, setting.second_cpu()?);
    let rounds = setting.rounds.clamp(1, MOST_ROUNDS);
    // By side, then by rate.
    let mut all: Vec<Vec<Vec<Through>>> = vec![vec![Vec::new(); RATES.len()]; SIDES.len()];
    let mut missing: Missing = SIDES.map(|(_, side)| side.missing());
    for ((name, _), reason) in SIDES.iter().zip(&missing) {
        if let Some(reason) = reason.as_ref().filter(|_| setting.wants(name)) {
            progress(&format!("SKIPPED: {name}: {reason}"));
        }
    }
    for round in 0..rounds {
        for turn in 0..SIDES.len() {
            let side = (turn + round) % SIDES.len();
            let (name, kind) = SIDES[side];
            if !setting.wants(name) || missing[side].is_some() {
                continue;
            }
            let lab = Lab::new(kind, program.clone(), cpus)?;
            let forwarder = match lab.start() {
                Err(error) if kind.is_peer() => {
                    progress(&format!("SKIPPED: {name}: {error}"));
                    missing[side] = Some(error.to_string());
                    continue;
                }
                started => started?,
            };
            for (rate, through) in RATES.into_iter().zip(&mut all[side]) {
                progress(&format!("{name}, {rate} packets a second, round {} of {rounds}", round + 1));
                through.push(lab.measure(&forwarder, rate, length(setting, rate))?);
            }
        }
    }
    let found: Vec<Vec<Through>> =
        all.iter().map(|side| side.iter().map(|rounds| middle(rounds)).collect()).collect();
    Ok(findings(&found, &missing))
}

fn length(setting: &Setting, rate: f64) -> Duration {
    match rate {
        0.0 => setting.length * 100,
        // Short rounds, which are to try it out, have one packet.
        _ if setting.length < Duration::from_millis(50) => {
            (setting.length * 30).max(Duration::from_secs_f64(1.0 / rate))
        }
        _ => (setting.length * 30).max(Duration::from_secs_f64(5.0 / rate)),
    }
}

fn middle(rounds: &[Through]) -> Through {
    if rounds.is_empty() {
        return Through::NOTHING;
    }
    let of = |figure: fn(&Through) -> f64| median(&rounds.iter().map(figure).collect::<Vec<_>>());
    Through {
        percent: of(|through| through.percent),
        median: of(|through| through.median),
        tail: of(|through| through.tail),
        lost: of(|through| through.lost),
    }
}

/// `found` has all rates of the first side, then those of the next.
fn findings(found: &[Vec<Through>], missing: &Missing) -> Findings {
    let cases = SIDES.iter().zip(found).flat_map(|((name, _), of_side)| {
        RATES.into_iter().zip(of_side).map(move |(rate, through)| (*name, rate, through))
    });
    let rows = cases.map(|(name, rate, through)| {
        let cells = [rate, through.percent, through.median, through.tail, through.lost];
        [Cell::from(name)].into_iter().chain(cells.map(Cell::from)).collect()
    });
    let figure = |title: &str, axis: &str, value: fn(&Through) -> f64| Figure {
        title: title.to_owned(),
        x: Axis::logarithmic("packets a second"),
        y: Axis::logarithmic(axis),
        marks: Marks::Lines(
            SIDES
                .iter()
                .zip(found)
                .map(|((name, _), of_side)| Series {
                    name: (*name).to_owned(),
                    points: RATES
                        .into_iter()
                        .zip(of_side)
                        .filter(|(rate, _)| *rate > 0.0)
                        .map(|(rate, through)| (rate, value(through)))
                        .collect(),
                })
                .collect(),
        ),
    };
    Findings {
        columns: Column::list(
            "forwarder | rate [packets/s] | CPU [%] | median [us] | p99 [us] | lost [packets]",
        ),
        rows: rows.collect(),
        figures: vec![
            figure("What a router takes of its CPU", "CPU, %", |through| through.percent),
            figure("What packets take through it", "p99, us", |through| through.tail),
        ],
        answers: answers(found, missing).to_vec(),
        conclusion: conclusion(found),
    }
}

/// Of a side at a rate; nothing if it wasn't measured.
fn of(found: &[Vec<Through>], side: &str, rate: f64) -> Through {
    let row = SIDES.iter().position(|(name, _)| *name == side);
    let column = RATES.iter().position(|other| other.total_cmp(&rate).is_eq());
    row.zip(column).and_then(|(row, column)| found.get(row)?.get(column)).copied().unwrap_or(Through::NOTHING)
}

fn answers(found: &[Vec<Through>], missing: &Missing) -> [Answer; 7] {
    let idle = |side| of(found, side, 0.0).percent;
    let of_peer = |name: &'static str| {
        let mut reasons = SIDES.iter().zip(missing).filter(|((side, _), _)| *side == name);
        match reasons.next().and_then(|(_, reason)| reason.as_ref()) {
            Some(reason) => Answer::none(reason),
            None => idle(name).into(),
        }
    };
    // What isn't a number would be lost in a maximum.
    let woken = [1.0, 10.0, 100.0].map(|rate| of(found, "balanced", rate).tail);
    let slowest = if woken.iter().all(|tail| tail.is_finite()) {
        woken.into_iter().fold(0.0, f64::max)
    } else {
        f64::NAN
    };
    [
        idle("spin").into(),
        idle("power").into(),
        idle("balanced").into(),
        slowest.into(),
        (of(found, "latency", 1_000.0).tail - of(found, "spin", 1_000.0).tail).into(),
        of_peer("testpmd"),
        of_peer("l3fwd-power"),
    ]
}

fn conclusion(found: &[Vec<Through>]) -> String {
    let [spin, balanced, power] = ["spin", "balanced", "power"].map(|side| of(found, side, 0.0).percent);
    let [ours, kernel] = ["balanced", "kernel"].map(|side| of(found, side, 100.0).tail);
    format!(
        "Without traffic the router takes {spin:.0} % of a CPU if it spins, {balanced:.2} % balanced and {power:.2} % under power. At a hundred packets a \
         second, each of which wakes its lane, p99 is {ours:.0} us through it and {kernel:.0} us through the kernel."
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::assert_judged;

    #[test]
    fn turned_figures_refute_the_claim() {
        let of_each = |all: [(f64, f64); SIDES.len()]| {
            let through = |(percent, tail)| Through { percent, median: 1.0, tail, lost: 0.0 };
            let found: Vec<_> = all.into_iter().map(|side| vec![through(side); RATES.len()]).collect();
            answers(&found, &Missing::default())
        };
        let kernel = (f64::NAN, 30.0);
        let claimed =
            [(100.0, 20.0), (100.0, 22.0), (0.2, 80.0), (0.05, 90.0), kernel, (100.0, 20.0), (0.3, 80.0)];
        let turned =
            [(0.2, 20.0), (100.0, 60.0), (100.0, 200.0), (99.0, 1.0), kernel, (3.0, 20.0), (40.0, 80.0)];
        assert_judged(&PREDICTIONS, &of_each(claimed), &of_each(turned));
    }

    #[test]
    fn what_was_not_measured_is_missing() {
        let found = vec![vec![Through::NOTHING; RATES.len()]; SIDES.len()];
        let missing = SIDES.map(|(name, side)| side.is_peer().then(|| format!("no {name}")));
        let findings = findings(&found, &missing);
        findings.assert_rows(SIDES.len() * RATES.len());
        assert!(findings.answers.iter().all(|answer| !answer.figure.is_finite()));
        for (answer, reason) in findings.answers[5..].iter().zip(["no testpmd", "no l3fwd-power"]) {
            assert_eq!(answer.cannot_tell.as_deref(), Some(reason));
        }
    }
}
