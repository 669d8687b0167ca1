//! `warmlane capture`: what it writes is what was sent, as another program reads it, and nobody waits for it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use warmlane_system_tests::turn;
use warmlane_system_tests::{SHORT, assert_misused, assert_refused};
use warmlane_testkit::process::{Finished, Process, warmlane};
use warmlane_testkit::requirements;

use super::forwarder::{Forwarder, forwarder_beside_others, forwarder_with, stats, sum, wait_until};

fn capture(forwarder: &Forwarder, file: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(warmlane());
    command.arg("capture").arg(&forwarder.socket).arg("-w").arg(file).args(arguments);
    command
}

/// Starts a capture, and waits until it sees.
fn start(forwarder: &Forwarder, file: &Path, arguments: &[&str]) -> Process {
    let mut process = Process::spawn(&mut capture(forwarder, file, arguments));
    process.wait_for("capturing at", SHORT);
    process
}

fn finish(process: Process) -> Finished {
    process.interrupt();
    let finished = process.finish(SHORT);
    finished.expect_success("the capture");
    finished
}

/// Interface, direction (1: in, 2: out), captured bytes, destination and comment of each packet.
fn packets(file: &Path) -> Vec<[String; 5]> {
    let mut tshark = Command::new("tshark");
    tshark.args(["-T", "fields", "-e", "frame.interface_name", "-e", "frame.packet_flags_direction"]);
    tshark.args(["-e", "frame.cap_len", "-e", "ip.dst", "-e", "frame.comment", "-r"]).arg(file);
    let finished = Process::run(&mut tshark, SHORT);
    let fields = |line: &str| {
        let mut fields = line.split('\t').map(str::to_owned);
        std::array::from_fn(|_| fields.next().unwrap_or_default())
    };
    finished.expect_success("tshark").lines().map(fields).collect()
}

/// Waits until that many have left or were dropped.
fn wait_for_sum(forwarder: &Forwarder, set: &str, name: &str, label: (&str, &str), count: u64) {
    wait_until("all have passed", || sum(&stats(&forwarder.socket), set, name, label) == count);
}

#[test]
fn each_packet_has_its_port_direction_and_reason() {
    let Some((_turn, directory, forwarder)) = forwarder_with(&["tshark"]) else { return };
    let [all, some] = ["all", "some"].map(|name| directory.path().join(format!("{name}.pcapng")));
    let running = [
        start(&forwarder, &all, &["--filter", "dst net 198.51.100.0/24 or 203.0.113.0/24"]),
        start(&forwarder, &some, &["--see", "in", "--port", "west", "--one-in", "10", "--snap", "34"]),
    ];
    let sent = forwarder.send(1_000);
    let lost = forwarder.send_to("203.0.113.9", 300, "10kpps", 64);
    wait_for_sum(&forwarder, "queue", "packets", ("direction", "receive"), sent + lost);
    wait_for_sum(&forwarder, "forward", "drops", ("lane", "lane0"), lost);
    for process in running {
        finish(process);
    }

    let packets_of = |interface: &str, direction: &str, comment: &str, to: &str| {
        let packets = packets(&all);
        let found = packets.iter().filter(|[port, way, _, address, why]| {
            port == interface
                && way.ends_with(direction)
                && address == to
                && match comment {
                    "" => why.is_empty(),
                    _ => why.contains(comment),
                }
        });
        found.count() as u64
    };
    assert_eq!(packets_of("west", "1", "", "198.51.100.9"), sent, "{:?}", packets(&all).first());
    assert_eq!(packets_of("west", "1", "", "203.0.113.9"), lost);
    assert_eq!(packets_of("east", "2", "", "198.51.100.9"), sent);
    assert_eq!(packets_of("west", "1", "dropped: no-route: ", "203.0.113.9"), lost);
    assert_eq!(packets(&all).len() as u64, 2 * (sent + lost));

    let some = packets(&some);
    assert_eq!(some.len() as u64, (sent + lost) / 10);
    assert!(some.iter().all(|[port, way, bytes, ..]| port == "west" && way.ends_with('1') && bytes == "34"));
    forwarder.finish();
}

#[test]
fn what_a_port_drops_is_shown_with_its_reason_and_where_it_came_in() {
    if !requirements::programs(&["tshark"]) {
        return;
    }
    let _turn = turn::beside_others();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let socket = directory.path().join("f.sock");
    // Nobody ever connects to this one.
    let south = format!("south=memif:{},role=server", directory.path().join("south.memif").display());
    let arguments = ["--port", &south, "--mac", "south=02:00:00:00:01:03", "--socket"];
    let routes =
        ["--neighbour", "203.0.113.2=02:00:00:00:03:02@south", "--route", "203.0.113.0/24 via 203.0.113.2"];
    let arguments = [&arguments[..], &[socket.to_str().expect("a plain path")], &routes].concat();
    let forwarder = Forwarder::start_with(directory.path(), "f", &arguments, socket.clone());
    let [dropped, others] = ["dropped", "others"].map(|name| directory.path().join(format!("{name}.pcapng")));
    let running = [
        start(&forwarder, &dropped, &["--see", "drop", "--reason", "not-connected"]),
        start(&forwarder, &others, &["--see", "drop", "--reason", "no-route"]),
    ];
    let sent = forwarder.send_to("203.0.113.9", 300, "10kpps", 64);
    wait_for_sum(&forwarder, "queue", "drops", ("port", "south"), sent);
    for process in running {
        finish(process);
    }
    let seen = packets(&dropped);
    assert_eq!(seen.len() as u64, sent);
    for [port, _, _, address, comment] in &seen {
        assert_eq!((port.as_str(), address.as_str()), ("west", "203.0.113.9"));
        assert!(comment.starts_with("dropped: not-connected: "), "{comment}");
    }
    assert_eq!(packets(&others).len(), 0);
    forwarder.finish();
}

/// Names of files in a directory.
fn names(directory: &Path) -> Vec<String> {
    let files = std::fs::read_dir(directory).expect("a directory");
    let names = files.map(|file| file.expect("a file").file_name().into_string().expect("plain names"));
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn a_ring_of_files_has_the_newest_packets_and_each_file_is_whole() {
    let Some((_turn, directory, forwarder)) = forwarder_with(&["tshark", "capinfos"]) else { return };
    let ring = directory.path().join("ring");
    std::fs::create_dir(&ring).expect("space");
    let only = ["--see", "in", "--port", "west"];
    // As few as fit into 4 kB: a block is longer than its frame, and in front are the section and an interface.
    let arguments = [&only[..], &["--files", "3", "--file-size", "4kB"]].concat();
    let running = start(&forwarder, &ring.join("west.pcapng"), &arguments);
    let sent = forwarder.send(500);
    wait_for_sum(&forwarder, "queue", "packets", ("direction", "receive"), sent);
    finish(running);
    let names = names(&ring);
    assert_eq!(names.len(), 3, "{names:?}");
    let numbers = names.iter().map(|name| {
        let parts = name.strip_prefix("west_").and_then(|name| name.strip_suffix(".pcapng"));
        let (number, time) = parts.and_then(|name| name.split_once('_')).expect("number and time");
        assert!(time.len() == 14 && time.bytes().all(|byte| byte.is_ascii_digit()), "{name}");
        number.parse::<u64>().expect("a number")
    });
    let numbers: Vec<u64> = numbers.collect();
    assert!(numbers[0] > 1 && numbers[1] == numbers[0] + 1 && numbers[2] == numbers[0] + 2, "{numbers:?}");
    let counts = names.iter().map(|name| {
        let path = ring.join(name);
        assert!(path.metadata().expect("a file").len() <= 4_000 || *name == names[2]);
        let packets = packets(&path);
        assert!(packets.iter().all(|[port, way, ..]| port == "west" && way.ends_with('1')), "{packets:?}");
        packets.len() as u64
    });
    let counts: Vec<u64> = counts.collect();
    // All but the last are full.
    let full = counts[0];
    assert_eq!((counts[1], (numbers[2] - 1) * full + counts[2]), (full, sent), "{counts:?}");
    let mut capinfos = Command::new("capinfos");
    let last = Process::run(capinfos.arg(ring.join(&names[2])), SHORT);
    assert!(last.expect_success("capinfos").contains("west"), "its interface is named");
    forwarder.finish();
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let (_turn, directory, forwarder) = forwarder_beside_others();
    let file = directory.path().join("none.pcapng");
    let refused = Process::run(&mut capture(&forwarder, &file, &["--files", "3"]), SHORT);
    assert_refused(&refused, &["--file-size", "--file-seconds"]);
    let to_pipe = Process::run(&mut capture(&forwarder, Path::new("-"), &["--file-seconds", "3"]), SHORT);
    assert_refused(&to_pipe, &["standard output"]);
    let odd = Process::run(&mut capture(&forwarder, &file, &["--file-size", "3 blocks"]), SHORT);
    assert_misused(&odd, &["KiB"]);
    let of_no_drop = ["--see", "in", "--reason", "no-route"];
    let without_drops = Process::run(&mut capture(&forwarder, &file, &of_no_drop), SHORT);
    assert_refused(&without_drops, &["add drop to --see"]);
    assert!(!file.exists());
    forwarder.finish();
}

#[test]
fn what_goes_from_stage_to_stage_is_seen_by_the_names_of_the_graph() {
    let Some((_turn, directory, forwarder)) = forwarder_with(&["tshark"]) else { return };
    let [edge, stage, all] =
        ["edge", "stage", "all"].map(|name| directory.path().join(format!("{name}.pcapng")));
    let running = [
        start(&forwarder, &edge, &["--edge", "forwarder:port1"]),
        start(&forwarder, &stage, &["--stage", "forwarder", "--filter", "dst host 198.51.100.9"]),
        start(&forwarder, &all, &["--see", "edge,drop"]),
    ];
    let sent = forwarder.send(500);
    let lost = forwarder.send_to("203.0.113.9", 300, "10kpps", 64);
    wait_for_sum(&forwarder, "output", "sent", ("output", "east"), sent);
    wait_for_sum(&forwarder, "forward", "drops", ("lane", "lane0"), lost);
    for process in running {
        finish(process);
    }
    let count = |file: &Path, interface: &str| {
        packets(file).iter().filter(|[port, ..]| port == interface).count() as u64
    };
    assert_eq!((count(&edge, "forwarder:port1"), packets(&edge).len() as u64), (sent, sent));
    // Neither in nor out.
    assert!(packets(&edge).iter().all(|[_, way, ..]| !way.ends_with('1') && !way.ends_with('2')));
    assert_eq!((count(&stage, "west"), count(&stage, "forwarder:port1")), (sent, sent));
    assert_eq!(packets(&stage).len() as u64, 2 * sent);
    let dropped = packets(&all).iter().filter(|[.., comment]| comment.contains("no-route")).count() as u64;
    assert_eq!((dropped, packets(&all).len() as u64), (lost, 2 * sent + 2 * lost));
    let mut tshark = Command::new("tshark");
    tshark.args(["-T", "fields", "-e", "frame.interface_description", "-c", "1", "-r"]).arg(&edge);
    let described = Process::run(&mut tshark, SHORT);
    assert_eq!(described.expect_success("tshark").trim(), "from forwarder by port1 to east");

    let file = directory.path().join("none.pcapng");
    for arguments in [["--edge", "forwarder:port7"], ["--stage", "forwader"]] {
        let refused = Process::run(&mut capture(&forwarder, &file, &arguments), SHORT);
        assert_refused(&refused, &["the stages forwarder", "forwarder:port1", "west"]);
    }
    forwarder.finish();
}

#[test]
fn it_ends_by_itself_when_there_are_enough_or_nothing_more_comes() {
    let Some((_turn, directory, forwarder)) = forwarder_with(&["tshark"]) else { return };
    let [few, whole] = ["few", "whole"].map(|name| directory.path().join(format!("{name}.pcapng")));
    let counted = start(&forwarder, &few, &["--count", "7", "--see", "out"]);
    let endless = start(&forwarder, &whole, &["--see", "out", "--port", "east"]);
    let sent = forwarder.send(500);
    counted.finish(SHORT).expect_success("the capture");
    assert_eq!(packets(&few).len(), 7);
    wait_for_sum(&forwarder, "output", "sent", ("output", "east"), sent);
    forwarder.finish();
    endless.finish(SHORT).expect_success("the capture");
    assert_eq!(packets(&whole).len() as u64, sent);
}

#[test]
fn what_is_not_there_is_refused_with_what_is() {
    let (_turn, directory, forwarder) = forwarder_beside_others();
    let file = directory.path().join("none.pcapng");
    for (arguments, parts) in [
        (&["--port", "south"][..], &["west", "east"][..]),
        (&["--reason", "bad-luck"], &["bad-luck", "no-route"]),
        (&["--filter", "udp prot 53"], &["prot"]),
    ] {
        let refused = Process::run(&mut capture(&forwarder, &file, arguments), SHORT);
        assert_refused(&refused, parts);
    }
    assert!(!file.exists());
    // Four at once are the most; when one has gone there is space again.
    let mut running: Vec<Process> = (0..4)
        .map(|number| start(&forwarder, &directory.path().join(number.to_string()), &["--see", "in"]))
        .collect();
    assert_refused(&Process::run(&mut capture(&forwarder, &file, &[]), SHORT), &["4 captures"]);
    running.pop().map(finish).expect("one of four");
    wait_until("there is space again", || {
        Process::run(&mut capture(&forwarder, &file, &["--reason", "bad-luck"]), SHORT)
            .errors
            .contains("bad-luck")
    });
    for process in running {
        finish(process);
    }
    forwarder.finish();
}

/// Sums of the interface statistics blocks: packets that there were, and missed ones; and how many packet blocks there are.
fn statistics(capture: &[u8]) -> (u64, u64, u64) {
    let word = |at: usize| u32::from_le_bytes(capture[at..at + 4].try_into().expect("four bytes"));
    let (mut at, mut sums) = (0, (0, 0, 0));
    while at < capture.len() {
        let end = at + word(at + 4) as usize;
        assert_eq!(word(end - 4) as usize, end - at, "a block has its length at both ends");
        match word(at) {
            6 => sums.2 += 1,
            5 => {
                let mut option = at + 20;
                while word(option) != 0 {
                    let value =
                        || u64::from_le_bytes(capture[option + 4..option + 12].try_into().expect("eight"));
                    match word(option) & 0xffff {
                        4 => sums.0 += value(),
                        5 => sums.1 += value(),
                        _ => {}
                    }
                    option += 4 + (word(option) >> 16).next_multiple_of(4) as usize;
                }
            }
            _ => {}
        }
        at = end;
    }
    sums
}

#[test]
fn who_does_not_read_misses_packets_and_nobody_else_does() {
    let (_turn, _directory, forwarder) = forwarder_beside_others();
    let mut stalled = BufReader::new(UnixStream::connect(&forwarder.socket).expect("it listens"));
    stalled
        .get_mut()
        .write_all(b"{\"ask\":\"capture\",\"see\":[\"in\"],\"ports\":[\"west\"]}\n")
        .expect("it reads");
    let mut answer = String::new();
    stalled.read_line(&mut answer).expect("it answers");
    assert!(answer.contains("\"west\""), "{answer}");
    // More than the ring and the socket hold, and each goes on its way.
    let mut sent = 0;
    while sent < 20_000 {
        sent += forwarder.send_to("198.51.100.9", 20_000, "20kpps", 1_000);
    }
    wait_for_sum(&forwarder, "output", "sent", ("output", "east"), sent);
    stalled.get_ref().shutdown(Shutdown::Write).expect("our own end");
    let mut capture = Vec::new();
    stalled.read_to_end(&mut capture).expect("it is written to its end");
    let (there_were, missed, written) = statistics(&capture);
    assert_eq!((there_were, written), (sent, sent - missed));
    assert!(missed > 0 && written > 0, "{missed} of {sent}");
    forwarder.finish();
}
