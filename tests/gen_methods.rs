//! `warmlane gen --method`: devices of known capacity are found out, and the reports say what was found.

#![forbid(unsafe_code)]

use std::fs;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use warmlane_system_tests::{LONG, SHORT};
use warmlane_testkit::process::{Process, warmlane};

/// What the device carries, and what it holds on top: more than what falls due while this machine takes a lane's CPU away.
const DEVICE: &str = "loop:rate=10kpps,buffer=2000";
const CAPACITY: f64 = 10_000.0;
const BUFFER: f64 = 2_000.0;
/// Seconds between two trials: the buffer is empty again when the next begins.
const SETTLE: &str = "0.25";

/// How far off a device seems that lost its CPU for some milliseconds: packets that come late find room that was not there
/// when they were due, and those that come all at once find less.
const EARLY: f64 = 1.1;
const LATE: f64 = 0.9;

/// Lanes spin on their CPUs; two tests at once would only be in each other's way.
static TURN: Mutex<()> = Mutex::new(());

/// Runs a method; gives its text, its JSON and its page.
fn method(name: &str, arguments: &[&str]) -> (String, Value, String) {
    let _alone = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |name: &str| directory.path().join(name);
    let mut command = Command::new(warmlane());
    command.args([
        "gen",
        "--both",
        DEVICE,
        "--method",
        name,
        "--patience",
        "1000",
        "--drain",
        "0.1",
        "--quiet",
    ]);
    command.args(["--tolerance", "20"]).args(arguments);
    if name != "soak" {
        command.args(["--settle", SETTLE]);
    }
    command.arg("--result").arg(path("result.json")).arg("--report").arg(path("page.html"));
    let finished = Process::run(&mut command, LONG);
    let text = finished.expect_success(name).to_owned();
    let result = serde_json::from_slice(&fs::read(path("result.json")).unwrap()).unwrap();
    let page = fs::read_to_string(path("page.html")).unwrap();
    // A browser without a network has all it needs: the name of SVG's vocabulary is not fetched.
    assert!(page.contains("<svg") && !page.replace("http://www.w3.org/2000/svg", "").contains("http"));
    (text, result, page)
}

fn number(result: &Value, path: &str) -> f64 {
    result.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("nothing at {path} in {result:#}"))
}

#[test]
fn rfc2544_finds_the_capacity_and_the_buffer() {
    let arguments = ["--frame-sizes", "64,512", "--maximum", "40kpps", "--duration", "0.5", "--width", "5"];
    let (text, result, page) = method("rfc2544", &[&arguments[..], &["--repetitions", "2"]].concat());
    // In half a second the buffer's contents pass on top.
    let capacity = CAPACITY + BUFFER / 0.5;
    for size in ["/sizes/0", "/sizes/1"] {
        let at = |path: &str| number(&result, &format!("{size}{path}"));
        let (lower, upper) =
            (at("/throughput/packets_per_second"), at("/throughput/lossy_packets_per_second"));
        // The rates asked for are that near; what was sent may be a little less.
        assert!(lower < upper && lower >= 0.95 * LATE * upper, "{lower} {upper}");
        assert!(lower <= capacity * EARLY && upper >= capacity * LATE, "{lower} {upper}");
        assert!(at("/latency/all/minimum") <= at("/latency/all/median"));
        let loss = at("/frame_loss/0/loss_percent");
        let percent = |carried: f64| (1.0 - carried / 4e4) * 100.0;
        assert!((percent(capacity * EARLY)..=percent(capacity * LATE)).contains(&loss), "{result:#}");
        // While a burst of n arrives, n / 4 leave.
        let burst = at("/back_to_back/mean");
        assert!((BUFFER / 0.75 * LATE..=BUFFER / 0.75 * EARLY).contains(&burst), "{burst}");
    }
    for title in
        ["Throughput (RFC 2544", "Latency in microseconds", "Frame loss rate in percent", "Back-to-back"]
    {
        assert!(text.contains(title) && page.contains(title), "{title}: {text}");
    }
    assert!(page.contains("Latency by percentile") && page.contains("percent of the maximum rate"));
}

#[test]
fn mlrsearch_finds_both_rates() {
    let arguments = ["--size", "128", "--maximum", "40kpps", "--duration", "0.4", "--width", "5"];
    let (text, result, _) = method("mlrsearch", &arguments);
    let capacity = CAPACITY + BUFFER / 0.4;
    for (goal, allowed) in [("/sizes/0/mlrsearch/goals/0", 0.0), ("/sizes/0/mlrsearch/goals/1", 0.005)] {
        let at = |path: &str| number(&result, &format!("{goal}{path}"));
        assert!((at("/goal/loss_ratio") - allowed).abs() < 1e-9);
        assert!(at("/upper") - at("/lower") <= 0.05 * at("/upper"), "{result:#}");
        assert!((capacity * LATE..=capacity * EARLY).contains(&at("/throughput")), "{result:#}");
    }
    assert!(text.contains("no loss (NDR)") && text.contains("loss of 0.5 % (PDR)"), "{text}");
}

#[test]
fn a_soak_tells_when() {
    let (text, result, page) = method("soak", &["--size", "64", "--rate", "5kpps", "--duration", "2"]);
    assert_eq!(result["offered"].as_u64(), Some(10_000));
    assert_eq!(result["received"]["lost"].as_u64(), Some(0), "{result:#}");
    assert!(text.contains("until second") && text.contains("mean latency"), "{text}");
    assert!(page.contains("Rate over time") && page.contains("Latency over time"));
    let last = result["samples"].as_array().unwrap().last().unwrap();
    assert_eq!((last["sent"].as_u64(), last["received"].as_u64()), (Some(10_000), Some(10_000)));
    assert_eq!(last["timed"].as_u64(), Some(10_000));
    assert!(last["latency"].as_u64() > last["worst"].as_u64(), "{last}");
}

#[test]
fn void_trials_are_no_results() {
    let _alone = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = Command::new(warmlane());
    // A billion a second is more than a core counts, and nearly so many are more than it builds.
    command.args([
        "gen",
        "--both",
        "loop",
        "--method",
        "throughput",
        "--frame-sizes",
        "64",
        "--maximum",
        "900Mpps",
    ]);
    command.args(["--duration", "0.05", "--json"]);
    let finished = Process::run(&mut command, SHORT);
    assert_eq!(finished.status.code(), Some(1));
    let result: Value = serde_json::from_str(&finished.output).unwrap();
    assert!(result["sizes"][0]["throughput"].is_null(), "{result:#}");
    let why = result["sizes"][0]["failures"][0]["why"].as_str().unwrap();
    assert!(why.contains("void") && why.contains("did not keep the rate"), "{why}");
    assert!(finished.errors.contains("void"), "{}", finished.errors);
}
