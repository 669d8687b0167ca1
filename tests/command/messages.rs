//! What commands say, as programs read it.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use warmlane_system_tests::{LONG, RouterLab, SHORT, assert_refused};
use warmlane_testkit::exchange::until;
use warmlane_testkit::process::{Finished, Process, warmlane};
use warmlane_testkit::requirements;

/// A forwarder that has something to say of a port, and ends at once.
fn forward(interface: &str) -> String {
    let macs = "--mac a=02:00:00:00:00:01 --mac b=02:00:00:00:00:02";
    format!("forward --port a=tap:{interface} --port b=null {macs} --duration 0.1 --quiet")
}

/// The object of the sentence with these words among objects on lines.
fn said(lines: &str, key: &str, words: &str) -> Value {
    let objects = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect(line));
    let mut all: Vec<Value> = objects.collect();
    let found = all.iter().position(|object| object[key].as_str().is_some_and(|text| text.contains(words)));
    all.swap_remove(found.unwrap_or_else(|| panic!("nothing says '{words}':\n{lines}")))
}

#[test]
fn they_are_json_if_that_is_asked_for() {
    if !requirements::namespaces_and(&[]) {
        return;
    }
    let run =
        |arguments: &str| Process::run(Command::new(warmlane()).args(arguments.split_whitespace()), LONG);
    let Finished { errors, .. } = run(&format!("{} --log json", forward("wljson0")));
    let of_port = said(&errors, "message", "port 'a': ");
    assert_eq!(
        ["level", "command", "interface"].map(|key| of_port[key].as_str()),
        ["info", "forward", "a"].map(Some),
        "{of_port:#}"
    );
    let time = of_port["time"].as_str().expect("a time");
    assert!(time.starts_with("20") && time.ends_with('Z'), "{time}");
    // How it ends is said likewise.
    let Finished { errors, .. } = run("forward --log json --port a=nosuch:0");
    let end = said(&errors, "level", "error");
    assert!(end["message"].as_str().is_some_and(|text| text.contains("nosuch")), "{end:#}");
}

/// A journal of systemd's own, in a place of its own, that ends when this is dropped.
struct Journal(Process);

impl Journal {
    const SERVER: &str = "/usr/lib/systemd/systemd-journald";

    fn start() -> Option<Self> {
        if !requirements::namespaces_and(&["unshare", "nsenter", "mount", "journalctl"]) {
            return None;
        }
        if !Path::new(Self::SERVER).exists() {
            requirements::missing("systemd's journal");
            return None;
        }
        let make = "mount -t tmpfs none /run && mkdir -p /run/systemd/journal /run/log/journal && touch /run/own && exec";
        let script = format!("{make} {}", Self::SERVER);
        let journal = Self(Process::spawn(Command::new("unshare").args(["--mount", "sh", "-c", &script])));
        // The machine may have a journal, which is seen until the process is in its own place.
        let listens = "test -e /run/own -a -S /run/systemd/journal/socket";
        until("the journal listens", || journal.run(listens).status.success());
        Some(journal)
    }

    /// Runs a command line where its journal is.
    fn run(&self, line: &str) -> Finished {
        let place = format!("--mount=/proc/{}/ns/mnt", self.0.id());
        Process::run(Command::new("nsenter").args([&place, "sh", "-c", line]), LONG)
    }

    /// All that it has from a program, entries as objects on lines.
    fn entries(&self) -> String {
        self.run("journalctl --directory /run/log/journal --output json --no-pager --identifier warmlane")
            .output
    }
}

#[test]
fn they_are_entries_of_the_journal_if_standard_error_leads_there() {
    let Some(journal) = Journal::start() else { return };
    let command = format!("exec {} {}", warmlane().display(), forward("wljournal0"));
    // As systemd starts it.
    let here = "exec 2>/run/errors; export JOURNAL_STREAM=$(stat -L -c %d:%i /proc/self/fd/2);";
    let forwarder = journal.run(&format!("{here} {command}"));
    forwarder.expect_success("warmlane forward");
    until("the message is there", || journal.entries().contains("port 'a': "));
    let entry = said(&journal.entries(), "MESSAGE", "port 'a': ");
    assert_eq!(
        ["PRIORITY", "WARMLANE_COMMAND", "INTERFACE"].map(|field| entry[field].as_str()),
        ["5", "forward", "a"].map(Some),
        "{entry:#}"
    );
    assert!(entry["CODE_LINE"].is_string(), "{entry:#}");
    assert_eq!(journal.run("grep --count . /run/errors").output.trim(), "0", "nothing is said twice");
    // Another one, whose standard error only has a name like it, doesn't write there.
    let plain = journal.run(&format!("export JOURNAL_STREAM=1:1; {command}"));
    assert!(plain.errors.contains("note: port 'a': "), "{}", plain.errors);
}

#[test]
fn a_journal_that_is_not_there_is_told() {
    if Path::new("/run/systemd/journal/socket").exists() {
        requirements::skip("systemd's journal is here");
        return;
    }
    let arguments = format!("{} --log journal", forward("wlnone0"));
    let finished = Process::run(Command::new(warmlane()).args(arguments.split_whitespace()), LONG);
    assert!(
        !finished.status.success()
            && finished.errors.contains("warmlane: messages can't go to systemd's journal: "),
        "{}",
        finished.errors
    );
}

/// What a router says of one interface is said, though the next one is in the way of starting at all.
#[test]
fn a_warning_is_said_before_the_error_that_follows() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    let router = |options: &str, socket: &str| {
        let mut command = lab.router.command(warmlane());
        command.args(["router", "w0", "e0", "--quiet", "--path", options, "--socket"]);
        command.arg(lab.directory().join(socket));
        Process::spawn(&mut command)
    };
    let mut other = router("tc", "other.sock");
    other.wait_for("note: forwarding between", SHORT);
    let refused = router("best", "router.sock").finish(SHORT);
    assert_refused(&refused, &["another tc program", "\"e0\""]);
    let warning = "interface 'w0' is left to the kernel: another tc program";
    assert!(refused.errors.contains(warning), "{}", refused.errors);
    RouterLab::end(other);
}

/// Whoever hangs up has the forwarder end in order, as by SIGTERM, unless it was started by `nohup`.
#[test]
fn a_hang_up_is_an_end_in_order() {
    let socket = tempfile::tempdir().expect("a temporary directory");
    let port = format!("a=memif:{},role=server", socket.path().join("port.memif").display());
    let arguments = ["forward", "--no-socket", "--json", "--port", &port];
    let said = "can't connect to";
    let client = format!("b=memif:{}", socket.path().join("nobody.memif").display());
    let start = |command: &mut Command| {
        let mut process = Process::spawn(command.args(arguments).args(["--port", &client]));
        process.wait_for(said, SHORT);
        process
    };
    let process = start(&mut Command::new(warmlane()));
    process.signal("HUP");
    let finished = process.finish(SHORT);
    assert!(finished.expect_success("warmlane forward").contains("\"ports\""), "its report");
    let process = start(Command::new("nohup").arg(warmlane()));
    process.signal("HUP");
    process.signal("USR1");
    // It goes on, and can be ended as ever.
    process.interrupt();
    process.finish(SHORT).expect_success("warmlane forward by nohup");
}

/// Who is refused at a port, and why; who comes, and who goes.
#[test]
fn what_becomes_of_a_connection_is_said() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let socket = directory.path().join("port.memif");
    let forward = |options: &str| {
        let port = format!("a=memif:{},{options}", socket.display());
        let arguments = ["forward", "--no-socket", "--quiet", "--json", "--port", &port];
        Process::spawn(Command::new(warmlane()).args(arguments))
    };
    let end = |process: Process| {
        process.interrupt();
        process.finish(SHORT).expect_success("warmlane forward");
    };
    let mut server = forward("role=server,secret=word");
    let mut client = forward("secret=other");
    client.wait_for("note: port 'a': nobody is connected: the other side said: wrong secret", SHORT);
    server.wait_for("note: port 'a': nobody is connected: wrong secret", SHORT);
    end(client);
    let mut client = forward("secret=word");
    client.wait_for("note: port 'a': the other side is connected", SHORT);
    server.wait_for("note: port 'a': the other side is connected", SHORT);
    end(client);
    server
        .wait_for("note: port 'a': the other side is gone: the other side said: the port was closed", SHORT);
    end(server);
}
