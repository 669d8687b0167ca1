//! What a newcomer runs first: no privilege, the full table, little memory, every packet accounted for.

use std::process::Command;

use warmlane::drivers::pcap::{PcapError, read_frames};
use warmlane_system_tests::{SHORT, turn};
use warmlane_testkit::process::{Process, warmlane};
use warmlane_testkit::{Report, requirements};

use super::forwarder::{directory_beside_others, stats, sum, wait_until};

/// What the demonstration may have resident at most, table, buffers and traffic included.
const MEMORY: u64 = 200 << 20;

/// In so many packets there are at least four bursts that are timed while stages are: one in 61 bursts, of 64 packets at most.
const PACKETS_OF_TIMED_BURSTS: u64 = 4 * 61 * 64;

fn demo(arguments: &[&str]) -> Command {
    let mut command = Command::new(warmlane());
    command.arg("demo").args(arguments);
    command
}

#[test]
fn it_forwards_and_accounts_for_every_packet() {
    let _turn = turn::beside_others();
    let mut process = Process::spawn(&mut demo(&["--duration", "3", "--json"]));
    process.wait_for("forwarding for", SHORT);
    std::thread::sleep(std::time::Duration::from_secs(1));
    let memory = process.peak_memory();
    assert!(memory < MEMORY, "{} MiB resident", memory >> 20);
    let finished = process.finish(SHORT);
    let report = Report::parse(finished.expect_success("the demonstration"));
    report.assert_balanced();
    assert!(report.number("/forward/forwarded") > 100_000, "{}", report.value());
    // A few frames are bad in each of three ways.
    assert!(report.drops("/forward/drops").len() >= 3, "{}", report.value());
}

#[test]
fn without_a_command_it_is_the_demonstration_and_ends_on_ctrl_c() {
    let _turn = turn::beside_others();
    let mut process = Process::spawn(&mut Command::new(warmlane()));
    process.wait_for("forwarding for", SHORT);
    // A report in between does not end it.
    process.signal("USR1");
    process.wait_for("outstanding", SHORT);
    assert!(!process.has_ended());
    process.interrupt();
    let finished = process.finish(SHORT);
    let text = finished.expect_success("the demonstration");
    assert!(text.contains("= forwarded") && text.contains("outstanding 0"), "{text}");
}

#[test]
fn two_lanes_share_the_links() {
    let _turn = turn::beside_others();
    if !requirements::cpus(2) {
        return;
    }
    let finished = Process::run(&mut demo(&["--duration", "2", "--json", "--lanes", "2"]), SHORT);
    let report = Report::parse(finished.expect_success("the demonstration"));
    report.assert_balanced();
    for lane in ["/lanes/0/packets", "/lanes/1/packets"] {
        assert!(report.number(lane) > 10_000, "{}", report.value());
    }
}

/// It is the first instance that somebody looks into.
#[test]
fn it_is_looked_into_as_any_instance() {
    let (_turn, directory) = directory_beside_others();
    let socket = directory.path().join("first.sock");
    let mut running = demo(&["--duration", "3600", "--json", "--socket"]);
    let process = Process::spawn(running.arg(&socket));
    let ask = |name: &str, arguments: &[&str]| {
        let mut command = Command::new(warmlane());
        Process::run(command.arg(name).arg(&socket).args(arguments), SHORT)
    };
    wait_until("it answers", || socket.exists() && ask("stats", &[]).status.success());
    wait_until("it forwards", || sum(&stats(&socket), "forward", "forwarded", ("lane", "lane0")) > 0);
    let listed =
        Process::run(Command::new(warmlane()).arg("ls").arg("--directory").arg(directory.path()), SHORT);
    let listed = listed.expect_success("ls");
    assert!(listed.contains("first") && listed.contains("demo"), "{listed}");

    let page = ask("top", &["--once", "--interval", "0.1"]);
    let page = page.expect_success("top");
    for part in ["west", "east", "lane0 forwarder"] {
        assert!(page.contains(part), "nothing of {part:?} in\n{page}");
    }
    // Its stages are timed while somebody looks, and no longer.
    wait_until("what the forwarder takes is known", || {
        let page = ask("top", &["--once", "--interval", "0.1"]);
        let page = page.expect_success("top");
        let line = page.lines().find(|line| line.starts_with("lane0 forwarder"));
        let cycles = line.and_then(|line| line.split_whitespace().nth(4)).map(str::parse::<f64>);
        cycles.is_some_and(|cycles| cycles.is_ok_and(|cycles| cycles > 0.0))
    });
    let look = || {
        let all = stats(&socket);
        let of = |set, name| sum(&all, set, name, ("lane", "lane0"));
        (of("stage-timed", "bursts"), of("stage", "processed"))
    };
    let mut before = look();
    assert!(before.0 > 0, "{before:?}");
    wait_until("it is timed no more", || {
        let now = look();
        if now.1 - before.1 < PACKETS_OF_TIMED_BURSTS {
            return false;
        }
        std::mem::replace(&mut before, now).0 == now.0
    });

    let traced = ask("trace", &["--count", "3", "--json"]);
    assert_eq!(traced.expect_success("trace").lines().count(), 3, "{}", traced.text());
    let file = directory.path().join("seen.pcapng");
    let captured = ask("capture", &["--count", "5", "--write", file.to_str().expect("a plain path")]);
    captured.expect_success("capture");
    let mut count = 0;
    let seen = read_frames(&file, |_, _| {
        count += 1;
        Ok::<_, PcapError>(())
    });
    seen.expect("a capture file");
    assert_eq!(count, 5);

    process.interrupt();
    process.finish(SHORT).expect_success("the demonstration");
    assert!(!socket.exists());
}
