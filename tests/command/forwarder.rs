//! A forwarder that tests ask by its control socket.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use warmlane::control::{Client, GraphNode, Graphs, Layout, Request};
use warmlane_system_tests::SHORT;
use warmlane_system_tests::turn::{self, BesideOthers};
use warmlane_testkit::exchange::until;
use warmlane_testkit::process::{Finished, Process, warmlane};
use warmlane_testkit::requirements;

/// How many looks in a row must see the same count: a busy machine keeps the forwarder from its CPU for longer than one.
const LOOKS_AT_REST: u32 = 4;

/// A forwarder that waits for somebody to connect to a port of its, and sleeps meanwhile.
pub(super) struct Forwarder {
    pub(super) process: Process,
    pub(super) socket: PathBuf,
    pub(super) port: PathBuf,
}

impl Forwarder {
    pub(super) fn start(directory: &Path, name: &str) -> Self {
        let socket = directory.join(format!("{name}.sock"));
        Self::start_with(
            directory,
            name,
            &["--socket", socket.to_str().expect("a plain path")],
            socket.clone(),
        )
    }

    pub(super) fn start_with(directory: &Path, name: &str, arguments: &[&str], socket: PathBuf) -> Self {
        let port = directory.join(format!("{name}.memif"));
        let mut command = Command::new(warmlane());
        let west = format!("west=memif:{},role=server", port.display());
        command.args(["forward", "--quiet", "--json", "--port", &west, "--port", "east=null"]);
        command.args(["--address", "west=192.0.2.1/24", "--mac", "west=02:00:00:00:01:01"]);
        command.args(["--mac", "east=02:00:00:00:01:02"]);
        command.args(["--neighbour", "198.51.100.2=02:00:00:00:02:02@east"]);
        command.args(["--route", "198.51.100.0/24 via 198.51.100.2"]).args(arguments);
        let process = Process::spawn(&mut command);
        let forwarder = Self { process, socket, port };
        if !forwarder.socket.as_os_str().is_empty() {
            forwarder.wait_until_it_answers();
        }
        forwarder
    }

    fn wait_until_it_answers(&self) {
        wait_until("it answers", || ask(&self.socket, &[]).status.success());
    }

    /// Sends about so many packets to it from another process, and returns how many came: a busy machine may keep it from some. If it kept
    /// it from all, they are sent once more.
    pub(super) fn send(&self, packets: u32) -> u64 {
        self.send_to("198.51.100.9", packets, "10kpps", 64)
    }

    /// The same to any address, at a rate, in frames of this size.
    pub(super) fn send_to(&self, address: &str, packets: u32, rate: &str, size: u16) -> u64 {
        let earlier = self.received();
        let mut command = Command::new(warmlane());
        let port = format!("memif:{},wait=120", self.port.display());
        command.args(["gen", "run", "--no-socket", "--quiet", "--json", "--unsigned", "--transmit", &port]);
        command.args(["--count", &packets.to_string(), "--to", address]);
        command.args([
            "--to-mac",
            "02:00:00:00:01:01",
            "--size",
            &size.to_string(),
            "--rate",
            rate,
            "--duration",
            "300",
        ]);
        let (mut sent, mut came) = (0, 0);
        wait_until("packets come", || {
            let finished = Process::run(&mut command, SHORT);
            let result: Value = serde_json::from_str(&finished.output)
                .unwrap_or_else(|error| panic!("{error}: {}", finished.text()));
            sent += result["sent"].as_u64().expect("a number");
            let mut alike = 0;
            wait_until("no more come", || {
                let before = std::mem::replace(&mut came, self.received() - earlier);
                alike = if came == before { alike + 1 } else { 0 };
                alike == LOOKS_AT_REST
            });
            came > 0
        });
        // What was in the shared memory when the generator ended is lost with it.
        assert!(came <= sent, "{came} of {sent}");
        came
    }

    fn received(&self) -> u64 {
        sum(&stats(&self.socket), "queue", "packets", ("direction", "receive"))
    }

    pub(super) fn finish(self) {
        self.process.interrupt();
        self.process.finish(SHORT).expect_success("the forwarder");
    }
}

/// Waits as [`until`], with a pause between two looks: each is a process of its own, and what counters say has to come to rest.
#[track_caller]
pub(super) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    until(what, || {
        let does_hold = holds();
        if !does_hold {
            std::thread::sleep(Duration::from_millis(50));
        }
        does_hold
    });
}

pub(super) fn ask(socket: &Path, arguments: &[&str]) -> Finished {
    Process::run(Command::new(warmlane()).arg("stats").arg(socket).args(arguments), SHORT)
}

pub(super) fn stats(socket: &Path) -> Value {
    let finished = ask(socket, &["--json"]);
    serde_json::from_str(finished.expect_success("stats")).expect("JSON")
}

/// What all values with these words add up to.
pub(super) fn sum(stats: &Value, set: &str, name: &str, label: (&str, &str)) -> u64 {
    let values = stats["values"].as_array().expect("a list").iter();
    let values = values.filter(|value| value["set"] == set && value["name"] == name);
    values
        .filter(|value| value["labels"][label.0] == label.1)
        .filter_map(|value| value["value"].as_u64())
        .sum()
}

/// Asks an instance to time its stages: what it answers, and the connection. If it does, then until that is closed.
pub(super) fn time_stages(socket: &Path) -> (Value, BufReader<UnixStream>) {
    let mut client = BufReader::new(UnixStream::connect(socket).expect("it listens"));
    client.get_ref().set_read_timeout(Some(SHORT)).expect("not zero");
    client.get_mut().write_all(b"{\"ask\":\"cycles\"}\n").expect("it reads");
    let mut line = String::new();
    client.read_line(&mut line).expect("it answers");
    (serde_json::from_str(&line).expect("JSON"), client)
}

/// How buffers lie, as it says.
pub(super) fn layout(socket: &Path) -> Layout {
    let mut client = Client::connect(socket).expect("it listens");
    client.ask(&Request::Layout {}).expect("it answers")
}

/// What leads where, of which each node counts under the labels that it is told to have, and under no other's.
pub(super) fn graphs(socket: &Path) -> Graphs {
    let mut client = Client::connect(socket).expect("it listens");
    let graphs: Graphs = client.ask(&Request::Graph {}).expect("it answers");
    let all = stats(socket);
    let pipelines = graphs.lanes.iter().flat_map(|lane| lane.pipelines.iter().map(move |one| (lane, one)));
    for (lane, node) in pipelines.flat_map(|(lane, one)| one.nodes.iter().map(move |node| (lane, node))) {
        let (kind, counted, name) = match node {
            GraphNode::Input(name) => ("input", "received", name),
            GraphNode::Stage(name) => ("stage", "processed", name),
            GraphNode::Output(name) => ("output", "sent", name),
        };
        let mut labels = json!(lane.labels);
        labels[kind] = json!(name);
        let values = all["values"].as_array().expect("a list").iter();
        let values = values.filter(|value| value["set"] == kind && value["name"] == counted);
        assert_eq!(values.filter(|value| value["labels"] == labels).count(), 1, "{labels} in {all:#}");
    }
    graphs
}

/// What a connection still brings until it ends.
pub(super) fn read_to_end(mut client: impl Read) -> String {
    let mut rest = Vec::new();
    // Reset, where the other side had not read all that was sent.
    let _ = client.read_to_end(&mut rest);
    String::from_utf8_lossy(&rest).into_owned()
}

pub(super) fn directory() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// A directory in a turn beside other tests.
pub(super) fn directory_beside_others() -> (BesideOthers, TempDir) {
    (turn::beside_others(), directory())
}

/// A forwarder in a directory of its own, in a turn beside other tests.
pub(super) fn forwarder_beside_others() -> (BesideOthers, TempDir, Forwarder) {
    let (turn, directory) = directory_beside_others();
    let forwarder = Forwarder::start(directory.path(), "f");
    (turn, directory, forwarder)
}

/// The same for a test that needs these programs; `None`, and said so, where one is missing.
pub(super) fn forwarder_with(programs: &[&str]) -> Option<(BesideOthers, TempDir, Forwarder)> {
    requirements::programs(programs).then(forwarder_beside_others)
}
