//! What `warmlane capture` sees of a link is what dumpcap sees at its other end.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use warmlane_testkit::process::{Finished, Process, warmlane};

use super::{EAST, EAST_IPV6, Lab};
use crate::command::SHORT;

/// Programs that are needed besides.
pub const CAPTURE_PROGRAMS: [&str; 2] = ["dumpcap", "tshark"];

/// Echoes and answers: what hosts say by themselves may fall between two that begin to look.
const ECHOES: &str = "(icmp.type == 8 || icmp.type == 0 || icmpv6.type == 128 || icmpv6.type == 129)";

/// How long dumpcap may take to write what it has seen.
const PATIENCE: Duration = Duration::from_secs(60);

impl Lab {
    /// Hosts ping each other, and at both links the same packets are seen in the same order by dumpcap, at the hosts' ends, as by a capture of
    /// the port, in each direction. Frames that a packet socket sends past the kernel's queues aren't shown to others at its own end.
    ///
    /// # Panics
    /// If that isn't so.
    pub fn check_capture(&self) {
        let file = |name: &str| self.directory.path().join(name);
        let ends = [
            (&self.west, "w0", "west", "02:00:00:00:00:02"),
            (&self.east, "e0", "east", "02:00:00:00:00:03"),
        ];
        let dumps: Vec<Process> = ends
            .iter()
            .map(|(host, interface, ..)| {
                let path = file(&format!("{interface}.pcapng"));
                let mut dump = host.spawn(&format!("dumpcap -q -i {interface} -w {}", path.display()));
                dump.wait_for("File: ", SHORT);
                dump
            })
            .collect();
        let instance = self.process.id().to_string();
        let mut captures = Vec::new();
        for (_, _, port, _) in ends {
            for see in ["in", "out"] {
                let mut command = Command::new(warmlane());
                command.args(["capture", &instance, "--port", port, "--see", see, "-w"]);
                let mut capture = Process::spawn(command.arg(file(&format!("{port}-{see}.pcapng"))));
                capture.wait_for("capturing at", SHORT);
                captures.push(capture);
            }
        }
        for size in [0, 18, 500, 1_400] {
            for address in [EAST, EAST_IPV6, "192.0.2.1"] {
                let line = format!("ping -n -q -c 20 -i 0.002 -W 10 -s {size} {address}");
                self.west.run(&line).expect_success(&line);
            }
        }
        // What the kernel has not handed over yet is lost when dumpcap is told to end.
        let end = Instant::now() + PATIENCE;
        for (_, interface, port, _) in ends {
            let count = |name: String| tshark(&file(&name), ECHOES).output.split("\n\n").count();
            let expected = || count(format!("{port}-in.pcapng")) + count(format!("{port}-out.pcapng"));
            while count(format!("{interface}.pcapng")) + 1 < expected() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(200));
            }
        }
        for process in captures.into_iter().chain(dumps) {
            process.interrupt();
            process.finish(SHORT).expect_success("a capture");
        }
        for (_, interface, port, mac) in ends {
            let dump = file(&format!("{interface}.pcapng"));
            // What the host sends comes in, and all else leaves.
            let came = hexdump(&dump, &format!("eth.src == {mac} && {ECHOES}"));
            let left = hexdump(&dump, &format!("eth.src != {mac} && {ECHOES}"));
            assert!(came.len() >= 160, "{} at {interface}", came.len());
            for (see, expected) in [("in", came), ("out", left)] {
                let seen = hexdump(&file(&format!("{port}-{see}.pcapng")), ECHOES);
                let differs = seen.iter().zip(&expected).find(|(seen, expected)| seen != expected);
                assert!(
                    seen.len() == expected.len() && differs.is_none(),
                    "{see} at {port}: {} packets, dumpcap has {}, and the first that differ are {differs:?}",
                    seen.len(),
                    expected.len()
                );
            }
        }
    }
}

/// All bytes of each packet of a file that matches.
fn hexdump(file: &Path, filter: &str) -> Vec<String> {
    tshark(file, filter).expect_success("tshark").split("\n\n").map(str::to_owned).collect()
}

fn tshark(file: &Path, filter: &str) -> Finished {
    let mut tshark = Command::new("tshark");
    tshark.args(["-x", "-Y", filter, "-r"]).arg(file);
    Process::run(&mut tshark, SHORT)
}
