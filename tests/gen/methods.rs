//! `warmlane gen rfc2544`, `mlrsearch` and `soak`: devices of known capacity are found out, and the reports say what was found.

use std::fs;
use std::process::Command;
use std::sync::RwLockWriteGuard;

use serde_json::Value;
use warmlane_system_tests::{LONG, SHORT, turn};
use warmlane_testkit::process::{Process, warmlane};
use warmlane_testkit::promise::Watch;

/// What the device carries, and what it holds on top: more than what falls due while this machine takes a lane's CPU away.
const DEVICE: &str = "loop:rate=10kpps,buffer=2000";
const CAPACITY: f64 = 10_000.0;
const BUFFER: f64 = 2_000.0;
/// Seconds between two trials: the buffer is empty again when the next begins.
const SETTLE: &str = "0.25";

/// How far off a device seems that lost its CPU for some milliseconds: packets that come late find space that was not there
/// when they were due, and those that come all at once find less.
const EARLY: f64 = 1.1;
const LATE: f64 = 0.9;

/// What a method found.
struct Measured {
    text: String,
    result: Value,
    page: String,
    /// Over the whole time, in which the machine was ours.
    watch: Watch,
    _alone: RwLockWriteGuard<'static, ()>,
}

impl Measured {
    /// Checks a figure that this machine finds if it has the time.
    #[track_caller]
    fn check(&self, is_right: bool, what: &str) {
        self.watch.check(is_right, || format!("{what}: {:#}", self.result));
    }
}

/// Runs a method; `None` if its trials were void because others had the CPUs.
#[track_caller]
fn method(name: &str, arguments: &[&str]) -> Option<Measured> {
    let alone = turn::alone();
    let watch = Watch::start();
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |name: &str| directory.path().join(name);
    let mut command = Command::new(warmlane());
    command.args(["gen", name, "--both", DEVICE, "--patience", "1000", "--drain", "0.1", "--quiet"]);
    command.args(["--tolerance", "20"]).args(arguments);
    if name != "soak" {
        command.args(["--settle", SETTLE]);
    }
    command.arg("--result").arg(path("result.json")).arg("--report").arg(path("page.html"));
    let finished = Process::run(&mut command, LONG);
    if finished.errors.contains("void") && watch.is_busy("trials are void") {
        return None;
    }
    let text = finished.expect_success(name).to_owned();
    let result = serde_json::from_slice(&fs::read(path("result.json")).unwrap()).unwrap();
    let page = fs::read_to_string(path("page.html")).unwrap();
    // A browser without a network has all it needs: the name of SVG's vocabulary is not fetched.
    assert!(page.contains("<svg") && !page.replace("http://www.w3.org/2000/svg", "").contains("http"));
    Some(Measured { text, result, page, watch, _alone: alone })
}

fn number(result: &Value, path: &str) -> f64 {
    result.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("nothing at {path} in {result:#}"))
}

#[test]
fn rfc2544_finds_the_capacity_and_the_buffer() {
    let arguments = ["--frame-sizes", "64,512", "--maximum", "40kpps", "--duration", "0.25", "--width", "5"];
    let arguments = [&arguments[..], &["--repetitions", "2"]].concat();
    let Some(measured) = method("rfc2544", &arguments) else { return };
    let Measured { text, result, page, .. } = &measured;
    // In a trial the buffer's contents pass on top.
    let capacity = CAPACITY + BUFFER / 0.25;
    for size in ["/sizes/0", "/sizes/1"] {
        let at = |path: &str| number(result, &format!("{size}{path}"));
        let (lower, upper) =
            (at("/throughput/packets_per_second"), at("/throughput/lossy_packets_per_second"));
        // What was sent: on a busy machine less than what was asked for.
        measured.check(lower < upper, "that more was sent where some was lost");
        measured.check(lower >= 0.95 * LATE * upper, "the width of the throughput");
        measured.check(lower <= capacity * EARLY && upper >= capacity * LATE, "throughput");
        assert!(at("/latency/all/minimum") <= at("/latency/all/median"));
        let loss = at("/frame_loss/0/loss_percent");
        let percent = |carried: f64| (1.0 - carried / 4e4) * 100.0;
        measured.check((percent(capacity * EARLY)..=percent(capacity * LATE)).contains(&loss), "frame loss");
        // While a burst of n arrives, n / 4 leave.
        let burst = at("/back_to_back/mean");
        measured.check((BUFFER / 0.75 * LATE..=BUFFER / 0.75 * EARLY).contains(&burst), "back to back");
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
    let arguments = ["--size", "128", "--maximum", "40kpps", "--duration", "0.2", "--width", "5"];
    let Some(measured) = method("mlrsearch", &arguments) else { return };
    let Measured { text, result, .. } = &measured;
    let capacity = CAPACITY + BUFFER / 0.2;
    for (goal, allowed) in [("/sizes/0/mlrsearch/goals/0", 0.0), ("/sizes/0/mlrsearch/goals/1", 0.005)] {
        let at = |path: &str| number(result, &format!("{goal}{path}"));
        assert!((at("/goal/loss_ratio") - allowed).abs() < 1e-9);
        assert!(at("/upper") - at("/lower") <= 0.05 * at("/upper"), "{result:#}");
        measured.check((capacity * LATE..=capacity * EARLY).contains(&at("/throughput")), "the rate");
    }
    assert!(text.contains("no loss (NDR)") && text.contains("loss of 0.5 % (PDR)"), "{text}");
}

#[test]
fn a_soak_tells_when() {
    let Some(measured) = method("soak", &["--size", "64", "--rate", "5kpps", "--duration", "2"]) else {
        return;
    };
    let Measured { text, result, page, .. } = &measured;
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
    let _alone = turn::alone();
    let mut command = Command::new(warmlane());
    // A billion a second is more than a core counts, and nearly so many are more than it builds.
    command.args(["gen", "rfc2544", "--test", "throughput", "--both", "loop", "--frame-sizes", "64"]);
    command.args(["--maximum", "900Mpps"]);
    command.args(["--duration", "0.05", "--settle", "0", "--json"]);
    let finished = Process::run(&mut command, SHORT);
    assert_eq!(finished.status.code(), Some(1));
    let result: Value = serde_json::from_str(&finished.output).unwrap();
    assert!(result["sizes"][0]["throughput"].is_null(), "{result:#}");
    let why = result["sizes"][0]["failures"][0]["why"].as_str().unwrap();
    assert!(why.contains("void") && why.contains("did not keep the rate"), "{why}");
    assert!(finished.errors.contains("void"), "{}", finished.errors);
}
