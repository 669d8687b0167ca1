//! The walk-through of docs/operate.md, step by step: what it plants is found as it says, and gone when it is mended.

use std::fs;
use std::path::Path;
use std::process::Command;

use warmlane::sys::affinity;
use warmlane_system_tests::{SHORT, turn};
use warmlane_testkit::process::{Process, warmlane};
use warmlane_testkit::{Report, requirements};

use super::forwarder::{directory, stats, sum, wait_until};

const PAGE: &str = include_str!("../../docs/operate.md");

/// The file of this name in the page.
fn file(name: &str) -> &'static str {
    let begin = format!("```toml\n# {name}\n");
    let (_, rest) = PAGE.split_once(&begin).unwrap_or_else(|| panic!("the page has no {name}"));
    rest.split_once("```").expect("it ends").0
}

fn spawn(directory: &Path, line: &str) -> Process {
    let mut command = Command::new(warmlane());
    command.args(line.split(' ')).current_dir(directory);
    Process::spawn(&mut command)
}

/// What a command prints that asks the forwarder.
fn ask(directory: &Path, command: &str, arguments: &[&str]) -> String {
    let mut line = Command::new(warmlane());
    line.args([command, "./fault.sock"]).args(arguments).current_dir(directory);
    Process::run(&mut line, SHORT).expect_success(command).to_owned()
}

fn start(directory: &Path, config: &str, reasons: &[&str]) -> Process {
    fs::write(directory.join("fault.toml"), config).expect("there is space");
    let forwarder = spawn(directory, "forward --config fault.toml --socket fault.sock --quiet --json");
    let answers = || {
        let mut line = Command::new(warmlane());
        line.args(["stats", "./fault.sock"]).current_dir(directory);
        Process::run(&mut line, SHORT).status.success()
    };
    wait_until("the forwarder answers", answers);
    wait_until("it has seen all there is", || {
        let drops = ask(directory, "stats", &["--only", "drops"]);
        reasons.iter().all(|reason| drops.contains(reason))
    });
    forwarder
}

#[test]
fn planted_faults_are_found_as_the_page_says() {
    if !requirements::programs(&["tshark", "taskset"]) || !requirements::cpus(2) {
        return;
    }
    let _turn = turn::beside_others();
    let temporary = directory();
    let directory = temporary.path();
    let config = file("fault.toml");
    fs::write(directory.join("traffic.toml"), file("traffic.toml")).expect("there is space");
    let traffic = "gen run --config traffic.toml --both memif:west.sock,role=server,wait=60 --duration 3600 --no-socket --quiet";
    assert!(PAGE.contains(traffic.strip_suffix(" --quiet").expect("it ends so")), "the page starts it so");
    let cpu = affinity::allowed_cpus().expect("there is one")[0];
    let mut generator = Command::new("taskset");
    generator.args(["--cpu-list", &cpu.to_string()]).arg(warmlane()).args(traffic.split(' '));
    let generator = Process::spawn(generator.current_dir(directory));
    let forwarder = start(directory, config, &["no-route", "ttl-expired", "ipv4-checksum"]);
    let socket = directory.join("fault.sock");
    let refused = || sum(&stats(&socket), "pool", "refused", ("pool", "packets"));
    wait_until("the pool has been empty", || refused() > 0);

    let page = ask(directory, "top", &["--once"]);
    for word in ["no-route", "ttl-expired", "ipv4-checksum", "refused/s"] {
        assert!(page.contains(word), "{page}");
    }
    let trace = |filter, words: &[&str]| {
        let told = ask(directory, "trace", &["--filter", filter, "--count", "1"]);
        assert!(words.iter().all(|word| told.contains(word)), "{told}");
    };
    trace("dst net 203.0.113.128/25", &["next hop         none", "=> dropped: no-route"]);
    trace("udp port 53 and dst net 203.0.113.0/25", &["route            203.0.113.0/25"]);

    ask(
        directory,
        "capture",
        &["--see", "drop", "--reason", "ipv4-checksum", "--count", "5", "-w", "wrong.pcapng"],
    );
    let mut tshark = Command::new("tshark");
    tshark.args("-r wrong.pcapng -T fields -e eth.src -e ip.src -e frame.comment".split(' '));
    let seen = Process::run(tshark.current_dir(directory), SHORT);
    let seen: Vec<_> =
        seen.expect_success("tshark").lines().filter(|line| line.contains('\t')).map(str::to_owned).collect();
    assert_eq!(seen.len(), 5, "{seen:?}");
    assert!(seen.iter().all(|line| PAGE.contains(line)), "{seen:?}");

    let unsent = || sum(&stats(&socket), "forward", "errors-unsent", ("lane", "lane0"));
    wait_until("an error could not be sent", || unsent() > 0);
    forwarder.interrupt();
    Report::parse(forwarder.finish(SHORT).expect_success("warmlane forward")).assert_balanced();

    let mended = config.replace("[pool]\nbuffers = 16\n", "").replace("203.0.113.0/25", "203.0.113.0/24");
    let forwarder = start(directory, &mended, &["ttl-expired", "ipv4-checksum"]);
    trace("dst net 203.0.113.128/25", &["=> out by east"]);
    let drops = ask(directory, "stats", &["--only", "drops"]);
    assert!(!drops.contains("no-route"), "{drops}");
    assert_eq!(refused(), 0);
    forwarder.interrupt();
    let report = Report::parse(forwarder.finish(SHORT).expect_success("warmlane forward"));
    report.assert_balanced();
    assert!(report.number("/forward/icmp_errors") > 0, "{:#}", report.value());
    assert_eq!(report.number("/forward/icmp_errors_unsent"), 0, "{:#}", report.value());
    generator.signal("KILL");
}
