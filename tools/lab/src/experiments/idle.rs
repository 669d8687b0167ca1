//! What a lane takes of its CPU when little arrives, and what a packet waits for it.

use crate::error::LabError;
use crate::experiment::Experiment;
use crate::paced::{Paced, Shape};
use crate::plot::{Axis, Figure, Marks, Series};
use crate::record::{Claim, Findings};
use crate::setting::Setting;
use crate::statistics::median;
use crate::table::{Cell, Column};
use crate::verdict::{Answer, Basis, Prediction};
use std::time::Duration;
use warmlane_lane::{IdlePolicy, LaneConfig};
use warmlane_sys::affinity;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "idle",
    question: "What does a lane take of its CPU when little arrives, and how long does a packet wait for it?",
    claim: Claim {
        source: "Liang Cunming, 'Practices for Building Core/Efficient Applications', DPDK Summit China 2015, 'Power Optimization'; and docs/idle.md",
        says: "without traffic a forwarder that polls takes 100 % of a CPU (and the platform 245 W), one that sleeps until packets come 0.3 % \
               (and 135 W, of which 123 W are the idle platform's)",
        predictions: &PREDICTIONS,
    },
    method: "A lane on the second CPU takes packets from a channel of 1,024, under each idle policy; the first CPU sends one at a time, at even \
             intervals, with the time-stamp counter in it, which the lane compares with its own. The CPU time is that of the lane's \
             thread. Policies take turns within each round, and figures are medians of up to three rounds of ten times the length, or as long \
             as twenty packets take. No traffic is measured for longer, a hundred times the length.",
    steps: None,
    run,
};

const PREDICTIONS: [Prediction; 5] = [
    Prediction {
        low: Some(100.0),
        high: None,
        tolerance: 5.0,
        basis: Basis::Figure,
        ..Prediction::at_least("CPU of a lane that polls, without traffic", "%", 100.0, "a smaller part")
    },
    Prediction {
        tolerance: 0.15,
        basis: Basis::Figure,
        ..Prediction::at_most("CPU of a lane that sleeps (power), without traffic", "%", 0.3, "a larger part")
    },
    Prediction::at_most("CPU of a balanced lane, without traffic", "%", 0.5, "a larger part"),
    Prediction::at_most(
        "p99 of the wait of packets that a balanced lane sleeps between (100 a second)",
        "us",
        100.0,
        "a longer one",
    ),
    Prediction::at_most(
        "p99 of the wait under latency, beyond that of a lane that spins (1,000 a second)",
        "us",
        10.0,
        "a longer one",
    ),
];

const POLICIES: [(&str, IdlePolicy); 4] = [
    ("spin", IdlePolicy::Spin),
    ("latency", IdlePolicy::Latency),
    ("balanced", IdlePolicy::Balanced),
    ("power", IdlePolicy::Power),
];
/// Packets a second; 0 is no traffic.
const RATES: [f64; 7] = [0.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0, 1_000_000.0];
const SHAPE: Shape = Shape { ring: 1_024, cycles_of_work: 0 };
/// Packets that a round has at least, as long as it isn't a short one.
const PACKETS: f64 = 20.0;
const MOST_ROUNDS: usize = 3;

/// What one policy came to at one rate.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    percent: f64,
    median: f64,
    tail: f64,
}

fn run(setting: &Setting, progress: &mut dyn FnMut(&str)) -> Result<Findings, LabError> {
    affinity::pin_current_thread(setting.cpu)?;
    let cpu = setting.second_cpu()?;
    let mut found = Vec::new();
    for rate in RATES {
        let rounds = setting.rounds.clamp(1, MOST_ROUNDS);
        let mut all: [Vec<Waiting>; POLICIES.len()] = Default::default();
        for round in 0..rounds {
            progress(&format!("{rate} packets a second, round {} of {rounds}", round + 1));
            for turn in 0..POLICIES.len() {
                let policy = (turn + round) % POLICIES.len();
                all[policy].push(measure(POLICIES[policy].1, rate, length(setting, rate), cpu)?);
            }
        }
        found.extend(all.iter().map(|of_policy| {
            let middle =
                |figure: fn(&Waiting) -> f64| median(&of_policy.iter().map(figure).collect::<Vec<_>>());
            Waiting {
                percent: middle(|waiting| waiting.percent),
                median: middle(|waiting| waiting.median),
                tail: middle(|waiting| waiting.tail),
            }
        }));
    }
    Ok(findings(&found))
}

/// Short rounds have fewer packets.
fn length(setting: &Setting, rate: f64) -> Duration {
    let long = setting.length >= Duration::from_millis(50);
    match rate {
        0.0 => setting.length * 100,
        _ if long => (setting.length * 10).max(Duration::from_secs_f64(PACKETS / rate)),
        _ => setting.length.max(Duration::from_secs_f64(2.0 / rate)),
    }
}

fn measure(idle: IdlePolicy, rate: f64, length: Duration, cpu: usize) -> Result<Waiting, LabError> {
    let config = LaneConfig { name: "waiting".to_owned(), cpu: Some(cpu), idle, ..LaneConfig::default() };
    let (ran, _) = Paced::start(vec![config], SHAPE)?.run(|paced| paced.send_at(rate, length))?;
    Ok(Waiting { percent: ran.percent(), median: ran.delay(0.5), tail: ran.delay(0.99) })
}

/// `found` has all policies at the first rate, then those at the next.
fn findings(found: &[Waiting]) -> Findings {
    let cases = || RATES.into_iter().flat_map(|rate| POLICIES.map(|(name, _)| (rate, name)));
    let rows = cases().zip(found).map(|((rate, name), waiting)| {
        let cells = [rate, waiting.percent, waiting.median, waiting.tail];
        [Cell::from(name)].into_iter().chain(cells.map(Cell::from)).collect()
    });
    let figure = |title: &str, axis: &str, value: fn(&Waiting) -> f64| Figure {
        title: title.to_owned(),
        x: Axis::logarithmic("packets a second"),
        y: Axis::logarithmic(axis),
        marks: Marks::Lines(
            (0..POLICIES.len())
                .map(|policy| Series {
                    name: POLICIES[policy].0.to_owned(),
                    points: RATES
                        .into_iter()
                        .zip(found.chunks(POLICIES.len()))
                        .filter(|(rate, _)| *rate > 0.0)
                        .map(|(rate, all)| (rate, value(&all[policy])))
                        .collect(),
                })
                .collect(),
        ),
    };
    Findings {
        columns: Column::list("policy | rate [packets/s] | CPU [%] | median wait [us] | p99 wait [us]"),
        rows: rows.collect(),
        figures: vec![
            figure("What a lane takes of its CPU", "CPU, %", |waiting| waiting.percent),
            figure("What packets wait for it", "p99, us", |waiting| waiting.tail),
        ],
        answers: answers(found).to_vec(),
        conclusion: conclusion(found),
    }
}

/// Of a policy at a rate; nothing if it wasn't measured.
fn of(found: &[Waiting], policy: &str, rate: f64) -> Waiting {
    let column = POLICIES.iter().position(|(name, _)| *name == policy);
    let row = RATES.iter().position(|other| other.total_cmp(&rate).is_eq());
    let place = row.zip(column).and_then(|(row, column)| found.get(row * POLICIES.len() + column));
    place.copied().unwrap_or(Waiting { percent: f64::NAN, median: f64::NAN, tail: f64::NAN })
}

fn answers(found: &[Waiting]) -> [Answer; 5] {
    [
        of(found, "spin", 0.0).percent.into(),
        of(found, "power", 0.0).percent.into(),
        of(found, "balanced", 0.0).percent.into(),
        of(found, "balanced", 100.0).tail.into(),
        (of(found, "latency", 1_000.0).tail - of(found, "spin", 1_000.0).tail).into(),
    ]
}

fn conclusion(found: &[Waiting]) -> String {
    let [spin, balanced] = ["spin", "balanced"].map(|policy| of(found, policy, 0.0).percent);
    let [busy, seldom] = [100_000.0, 100.0].map(|rate| of(found, "balanced", rate));
    format!(
        "Without traffic a balanced lane takes {balanced:.2} % of its CPU instead of {spin:.0} %. A packet that wakes it waits {:.0} us (p99, 100 a \
         second); at 100,000 a second it has learned not to sleep for each, takes {:.0} %, and packets wait {:.0} us.",
        seldom.tail, busy.percent, busy.tail
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::assert_judged;

    #[test]
    fn turned_figures_refute_the_claim() {
        let of_each = |[spin, latency, balanced, power]: [(f64, f64); 4]| {
            let all = [spin, latency, balanced, power].map(|(percent, tail)| Waiting {
                percent,
                median: 1.0,
                tail,
            });
            answers(&RATES.map(|_| all).concat())
        };
        let claimed = of_each([(100.0, 1.0), (100.0, 2.0), (0.2, 60.0), (0.05, 90.0)]);
        let turned = of_each([(0.2, 1.0), (100.0, 60.0), (100.0, 200.0), (99.0, 1.0)]);
        assert_judged(&PREDICTIONS, &claimed, &turned);
    }

    #[test]
    fn there_is_a_row_for_each_rate_and_policy() {
        let Some(setting) = Setting::tiny_on_two_cpus() else { return };
        setting.try_out(run).assert_rows(RATES.len() * POLICIES.len());
    }
}
