//! MLRsearch against the package of that name on PyPI, the draft's authors' own.

use std::fmt::Write as _;

use serde_json::{Value, json};
use warmlane_gen::methods::mlrsearch::{Goal, LoadClass, classify, search};
use warmlane_gen::methods::{Measured, MethodError, Request};
use warmlane_sys::random::Random;
use warmlane_testkit::oracle;

fn measured(packets_per_second: f64, seconds: f64, loss: f64) -> Measured {
    #[expect(clippy::cast_sign_loss, reason = "counts are not negative")]
    let (sent, lost) = {
        let sent = (packets_per_second * seconds).floor();
        (sent as u64, (sent * loss).floor() as u64)
    };
    Measured {
        packets_per_second,
        sent_packets_per_second: packets_per_second,
        seconds,
        sent,
        received: sent - lost,
        void: None,
        latency: None,
    }
}

#[test]
fn we_agree_with_the_package() {
    const CAPACITY: f64 = 700_000.0;
    let goals = [
        Goal::NDR,
        Goal::PDR,
        Goal { loss_ratio: 0.001, exceed_ratio: 0.2, final_trial: 2.0, duration_sum: 9.0, ..Goal::NDR },
        Goal { exceed_ratio: 0.0, duration_sum: 3.0, ..Goal::NDR },
    ];
    // Recorded trials: short and long ones, with losses about what the goals allow.
    let mut random = Random::new(7);
    let mut trials = Vec::new();
    for load in 1..60_u32 {
        for _ in 0..=random.below(30) {
            let seconds = [0.5, 1.0, 2.0][random.below(3)];
            let loss = [0.0, 0.0, 0.0005, 0.003, 0.004, 0.005, 0.02][random.below(7)];
            trials.push(measured(f64::from(load) * 10_000.0, seconds, loss));
        }
    }
    let recorded: Vec<Value> = trials
        .iter()
        .map(|trial| json!([trial.packets_per_second, trial.seconds, trial.sent, trial.received]))
        .collect();
    let (least, most) = (1e3, 2e6);
    let question =
        json!({"trials": recorded, "goals": goals, "capacity": CAPACITY, "least": least, "most": most});
    let script = include_str!("mlrsearch_oracle.py");
    let Some(answer) = oracle::ask("MLRsearch", script, question.to_string().as_bytes()) else { return };
    let answer: Value = serde_json::from_slice(&answer).unwrap();

    let mut classes = [0; 3];
    for (goal, theirs) in goals.iter().zip(answer["classified"].as_array().unwrap()) {
        let ours = classify(&trials, goal);
        assert_eq!(ours.len(), theirs.as_array().unwrap().len());
        for ((load, class, throughput), theirs) in ours.iter().zip(theirs.as_array().unwrap()) {
            let expected = match (theirs[1].as_bool().unwrap(), theirs[2].as_bool().unwrap()) {
                (true, true) => LoadClass::Lower,
                (false, false) => LoadClass::Upper,
                _ => LoadClass::Undecided,
            };
            assert_eq!((*load, *class), (theirs[0].as_f64().unwrap(), expected), "{goal:?}: {theirs}");
            classes[*class as usize] += 1;
            if let Some(throughput) = throughput {
                let theirs = load * (1.0 - theirs[3].as_f64().unwrap());
                assert!((throughput - theirs).abs() < 1e-6 * load, "{goal:?}: {throughput} {theirs}");
            }
        }
    }
    assert!(classes.iter().all(|count| *count >= 10), "every class is there: {classes:?}");

    let mut device = |request: &Request| -> Result<Measured, MethodError> {
        let loss = (1.0 - CAPACITY / request.packets_per_second).max(0.0);
        Ok(measured(request.packets_per_second, request.duration.as_secs_f64(), loss))
    };
    let found = search(&mut device, &goals, least, most).unwrap();
    let mut text = String::new();
    for (ours, theirs) in found.goals.iter().zip(answer["searched"].as_array().unwrap()) {
        let (lower, upper) = (ours.lower.unwrap(), ours.upper.unwrap());
        let ours_throughput = ours.throughput.unwrap();
        let theirs: Vec<f64> = theirs.as_array().unwrap().iter().map(|rate| rate.as_f64().unwrap()).collect();
        let _ = writeln!(text, "{lower} {upper} {ours_throughput} {theirs:?}");
        // Both brackets hold the true rate, so they overlap, and neither is wider than the goal allows.
        assert!(lower <= theirs[1] && theirs[0] <= upper, "{text}");
        assert!(upper - lower <= ours.goal.width * upper, "{text}");
        assert!((ours_throughput / theirs[2] - 1.0).abs() <= 2.0 * ours.goal.width, "{text}");
    }
}
