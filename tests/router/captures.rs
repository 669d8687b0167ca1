//! Captures of what the router forwards and drops in the kernel, where no lane sees it.

use std::path::Path;
use std::process::Command;

use warmlane_system_tests::{RouterLab, SHORT, assert_refused};
use warmlane_testkit::Report;
use warmlane_testkit::process::{Process, warmlane};

fn capture(lab: &RouterLab, file: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(warmlane());
    command.arg("capture").arg(lab.socket()).arg("-w").arg(file).args(arguments);
    command
}

fn start(lab: &RouterLab, file: &Path, arguments: &[&str]) -> Process {
    let mut process = Process::spawn(&mut capture(lab, file, arguments));
    process.wait_for("capturing at", SHORT);
    process
}

fn finish(process: Process) {
    process.interrupt();
    process.finish(SHORT).expect_success("the capture");
}

/// Interface, direction (1: in), length, captured bytes, destination, TTL and comment of each packet.
fn packets(file: &Path) -> Vec<[String; 7]> {
    let mut tshark = Command::new("tshark");
    tshark.args(["-T", "fields", "-e", "frame.interface_name", "-e", "frame.packet_flags_direction"]);
    tshark.args([
        "-e",
        "frame.len",
        "-e",
        "frame.cap_len",
        "-e",
        "ip.dst",
        "-e",
        "ip.ttl",
        "-e",
        "frame.comment",
    ]);
    let finished = Process::run(tshark.arg("-r").arg(file), SHORT);
    let fields = |line: &str| {
        let mut fields = line.split('\t').map(str::to_owned);
        std::array::from_fn(|_| fields.next().unwrap_or_default())
    };
    finished.expect_success("tshark").lines().map(fields).collect()
}

#[test]
fn what_is_forwarded_and_dropped_in_the_kernel_is_captured_as_it_came() {
    for path in ["tc", "xdp"] {
        let Some(lab) = RouterLab::new(1500, &["tshark"]) else { return };
        lab.hosts_take_redirected();
        lab.router.run("ip route add blackhole 203.0.113.0/24").expect_success("ip route");
        let router = lab.start("w0 e0", &format!("--path {path}"));
        let file = |name: &str| lab.directory().join(format!("{name}.pcapng"));
        let (all, again, dropped) = (file("all"), file("again"), file("dropped"));

        let running = start(&lab, &all, &[]);
        let refused = Process::run(&mut capture(&lab, &again, &[]), SHORT);
        assert_refused(&refused, &["w0", "already"]);
        lab.west.run("ping -n -c 20 -i 0.05 -s 1000 198.51.100.2").expect_success("ping");
        lab.west.run("ping -c 3 -i 0.05 -W 1 203.0.113.9");
        finish(running);

        let seen = packets(&all);
        let comment = |begin: &str, packet: &[String; 7]| packet[6].starts_with(begin);
        let of = |interface: &str, begin: &str| -> Vec<[String; 7]> {
            let all = seen.iter().filter(|packet| packet[0] == interface && comment(begin, packet));
            all.cloned().collect()
        };
        let forwarded = of("w0", &format!("forwarded on path {path}: forwarded: "));
        assert!(forwarded.len() > 10, "{path}: {seen:?}");
        for [_, direction, length, captured, destination, ttl, _] in &forwarded {
            // As the host sent it.
            let expected = ("1", "1042", "1042", "198.51.100.2", "64");
            let way = &direction[direction.len() - 1..];
            assert_eq!((way, &length[..], &captured[..], &destination[..], &ttl[..]), expected, "{path}");
        }
        assert!(of("e0", &format!("forwarded on path {path}: ")).len() > 10, "{path}: {seen:?}");
        assert!(!of("w0", &format!("passed to the kernel on path {path}: ")).is_empty(), "{path}: {seen:?}");
        assert_eq!(of("w0", "dropped: blackhole: by a blackhole route").len(), 3, "{path}: {seen:?}");
        assert_eq!(of("w0", &format!("dropped on path {path}: blackhole: ")).len(), 3, "{path}: {seen:?}");

        // Once that has ended, the next may begin: of what is dropped, every other one, and little of it.
        let arguments = ["--reason", "blackhole", "--port", "w0", "--one-in", "2", "--snap", "60"];
        let running = start(&lab, &dropped, &arguments);
        lab.west.run("ping -c 10 -i 0.02 -W 1 203.0.113.9");
        finish(running);
        let some = packets(&dropped);
        assert!((4..=6).contains(&some.len()), "{path}: {some:?}");
        assert!(
            some.iter().all(|packet| comment("dropped: blackhole", packet) && packet[3] == "60"),
            "{some:?}"
        );

        let report = Report::parse(&RouterLab::end(router));
        let paths = report.value()["paths"].as_array().expect("a list").clone();
        let west = paths.iter().find(|path| path["interface"] == "w0").expect("it is there");
        assert_eq!(west["forwarded"].as_u64(), Some(forwarded.len() as u64), "{path}: {west:#}");
    }
}
