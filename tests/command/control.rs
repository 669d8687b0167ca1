//! Running instances asked from outside: found, counted, and left alone by whoever means no good.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use warmlane_system_tests::{RouterLab, SHORT, as_nobody_with, assert_refused, turn};
use warmlane_testkit::process::{Process, install_warmlane, warmlane};
use warmlane_testkit::requirements;

use super::forwarder::{
    Forwarder, ask, directory, directory_beside_others, forwarder_beside_others, graphs, read_to_end, stats,
    sum, time_stages, wait_until,
};

/// What still comes until the other side ends.
fn rest(mut client: BufReader<UnixStream>) -> String {
    let mut rest = String::new();
    client.read_to_string(&mut rest).expect("it ends");
    rest
}

fn list(arguments: &[&str]) -> Vec<Value> {
    let finished = Process::run(Command::new(warmlane()).args(["ls", "--json"]).args(arguments), SHORT);
    serde_json::from_str(finished.expect_success("ls")).expect("a JSON list")
}

#[test]
fn instances_are_found_and_the_dead_among_them() {
    let (_turn, directory) = directory_beside_others();
    let here = directory.path().to_str().expect("a plain path");
    let west = Forwarder::start(directory.path(), "west");
    let east = Forwarder::start(directory.path(), "east");
    east.process.signal("KILL");
    drop(east.process);
    let found = list(&["--directory", here]);
    let states: Vec<_> = found.iter().map(|one| (one["name"].clone(), one["state"].clone())).collect();
    assert_eq!(states, [(json!("east"), json!("dead")), (json!("west"), json!("running"))]);
    assert_eq!((&found[1]["kind"], &found[1]["pid"]), (&json!("forward"), &json!(west.process.id())));
    assert!(found[1]["since"].as_str().expect("a time").starts_with("20"), "{found:?}");
    assert_eq!(found[1]["socket"], west.socket.to_str().expect("a plain path"));
    let text = Process::run(Command::new(warmlane()).args(["ls", "--directory", here]), SHORT);
    let text = text.expect_success("ls").to_owned();
    assert!(text.contains(&west.process.id().to_string()) && text.contains("dead"), "{text}");
    assert_refused(&ask(&east.socket, &[]), &["nobody answers", "refused"]);
    let pruned = Process::run(Command::new(warmlane()).args(["ls", "--prune", "--directory", here]), SHORT);
    let left = pruned.expect_success("ls --prune");
    assert!(left.contains("west") && !left.contains("east"), "{left}");
    assert!(pruned.errors.contains("note: removed ") && pruned.errors.contains("east"), "{}", pruned.errors);
    assert!(!east.socket.exists() && west.socket.exists());

    // One of the same name takes its place; one that would take a living one's doesn't start.
    std::fs::remove_file(&east.port).expect("it was left behind, too");
    let east = Forwarder::start(directory.path(), "east");
    let second = Command::new(warmlane())
        .args(["forward", "--port", "a=null", "--mac", "a=02:00:00:00:00:01", "--socket"])
        .arg(&east.socket)
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && said.contains("running already"), "{said}");
    assert!(list(&["--directory", here]).iter().all(|one| one["state"] == "running"));
    east.finish();
    west.finish();
    assert_eq!(list(&["--directory", here]), Vec::<Value>::new());
}

#[test]
fn an_instance_is_found_where_instances_are_and_asked_by_its_number_or_name() {
    let (_turn, directory) = directory_beside_others();
    let mut forwarder = Forwarder::start_with(directory.path(), "usual", &[], PathBuf::new());
    let number = forwarder.process.id();
    let of_ours = || list(&[]).into_iter().find(|one| one["pid"] == number);
    wait_until("it is found", || of_ours().is_some());
    let found = of_ours().expect("it was found");
    assert_eq!(found["name"], format!("forward-{number}"));
    for name in [number.to_string(), format!("forward-{number}")] {
        let asked = Process::run(Command::new(warmlane()).args(["stats", &name]), SHORT);
        assert!(asked.expect_success("stats").contains("port=west"), "{}", asked.text());
    }
    forwarder.socket = PathBuf::from(found["socket"].as_str().expect("a path"));
    let socket = forwarder.socket.clone();
    forwarder.finish();
    assert!(!socket.exists());
    let gone = Process::run(Command::new(warmlane()).args(["stats", "no-such-instance"]), SHORT);
    assert_refused(&gone, &["no-such-instance", "warmlane ls"]);
}

#[test]
fn stats_are_what_was_counted_with_units_and_meanings() {
    let (_turn, _directory, forwarder) = forwarder_beside_others();
    assert_eq!(sum(&stats(&forwarder.socket), "queue", "packets", ("port", "west")), 0);
    let sent = forwarder.send(1_000);
    wait_until("all are forwarded", || {
        sum(&stats(&forwarder.socket), "output", "sent", ("output", "east")) == sent
    });
    let all = stats(&forwarder.socket);
    assert_eq!(sum(&all, "queue", "packets", ("direction", "receive")), sent, "{all:#}");
    assert_eq!(sum(&all, "forward", "forwarded", ("lane", "lane0")), sent, "{all:#}");
    for value in all["values"].as_array().expect("a list") {
        let described = &all["descriptions"][value["set"].as_str().unwrap()][value["name"].as_str().unwrap()];
        assert!(described["help"].as_str().is_some_and(|help| !help.is_empty()), "{value}");
        assert!(described["unit"].as_str().is_some_and(|unit| !unit.is_empty()), "{value}");
    }
    let text = ask(&forwarder.socket, &["--only", "forward"]);
    let text = text.expect_success("stats");
    let line =
        text.lines().find(|line| line.contains("forward forwarded")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains(&format!(" {sent} packets")), "{text}");
    assert!(!text.contains("port=west"), "{text}");

    // Again and again, until there is nobody any more.
    let mut watch = Process::spawn(
        Command::new(warmlane()).arg("stats").arg(&forwarder.socket).args(["--json", "--watch=0.05"]),
    );
    wait_until("several were printed", || watch.output().lines().count() >= 3);
    assert!(!watch.has_ended());
    forwarder.finish();
    let watched = watch.finish(SHORT);
    assert_refused(&watched, &["answer"]);
    let ages: Vec<u64> = watched
        .output
        .lines()
        .filter_map(|line| {
            serde_json::from_str::<Value>(line).expect("an object on each line")["age_ns"].as_u64()
        })
        .collect();
    assert!(ages.len() >= 3 && ages.is_sorted(), "{ages:?}");
}

#[test]
fn what_leads_where_is_told_with_the_names_of_edges() {
    let (_turn, _directory, forwarder) = forwarder_beside_others();
    let graphs = graphs(&forwarder.socket);
    let [lane] = &graphs.lanes[..] else { panic!("{graphs:?}") };
    assert_eq!(json!(lane.labels), json!({ "lane": "lane0" }));
    let edges = json!(lane.pipelines[0].edges);
    for edge in [
        json!({ "from": { "input": "west" }, "to": { "stage": "forwarder" } }),
        json!({ "from": { "stage": "forwarder" }, "output": "port1", "to": { "output": "east" } }),
    ] {
        assert!(edges.as_array().is_some_and(|edges| edges.contains(&edge)), "{edge} in {edges:#}");
    }
    forwarder.finish();
}

/// Each kind of instance has a socket: where lanes spin, the thread that answers there still has its turn.
#[test]
fn generators_downstreams_and_routers_are_asked_alike() {
    let directory = directory();
    {
        let _turn = turn::alone();
        for (kind, arguments, label) in [
            ("gen", &["self-test", "--duration", "600"][..], ("lane", "transmit")),
            ("docsis", &["--duration", "600"], ("lane", "upper")),
            ("docsis", &["--duration", "600", "--instances", "2"], ("downstream", "1")),
        ] {
            let socket = directory.path().join("x.sock");
            let mut command = Command::new(warmlane());
            command.arg(kind).args(arguments).arg("--json").arg("--socket").arg(&socket);
            let process = Process::spawn(&mut command);
            wait_until("it answers", || socket.exists() && ask(&socket, &[]).status.success());
            wait_until("its lanes have worked", || {
                sum(&stats(&socket), "lane", "packets", label) > 0
                    || sum(&stats(&socket), "lane", "packets", ("lane", "transmit and receive")) > 0
            });
            let pipelines = graphs(&socket).lanes.iter().map(|lane| lane.pipelines.len()).sum::<usize>();
            assert!(pipelines > 0, "{kind} has none");
            let found = list(&["--directory", directory.path().to_str().expect("a plain path")]);
            assert_eq!((&found[0]["kind"], &found[0]["pid"]), (&json!(kind), &json!(process.id())));
            process.interrupt();
            process.finish(SHORT);
            assert!(!socket.exists());
        }
    }
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    let process = lab.start("w0 e0", "");
    RouterLab::check_ping(&lab.west, &["198.51.100.2"]);
    let all = stats(&lab.socket());
    assert!(sum(&all, "queue", "packets", ("port", "w0")) > 0, "{all:#}");
    assert!(sum(&all, "kernel", "events", ("function", "router")) > 0, "{all:#}");
    assert!(!graphs(&lab.socket()).lanes[0].pipelines.is_empty());
    RouterLab::finish(process);
}

#[test]
fn hostile_clients_cost_their_own_connections_only() {
    let (_turn, _directory, forwarder) = forwarder_beside_others();
    let connect = || {
        let client = UnixStream::connect(&forwarder.socket).expect("it listens");
        client.set_read_timeout(Some(SHORT)).expect("not zero");
        client
    };
    let answers = || {
        let line = format!("{}\n", json!({ "ask": "instance" }));
        let mut client = connect();
        client.write_all(line.as_bytes()).expect("it reads");
        let mut answer = String::new();
        BufReader::new(client).read_line(&mut answer).expect("it answers");
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        assert_eq!(answer["pid"], forwarder.process.id());
    };

    // Half-open ones, which say nothing or half of something, for as long as the others are there.
    let half_open: Vec<UnixStream> = (0..40)
        .map(|number| {
            let mut client = connect();
            client.write_all(&b"{\"ask\":\"stats"[..number % 14]).expect("it reads");
            client
        })
        .collect();
    answers();
    // A line without an end.
    let mut bomb = connect();
    let _ = bomb.write_all(&vec![b'['; 16 << 20]);
    let said = read_to_end(bomb);
    assert!(said.contains("at most 4096 bytes") && said.lines().count() == 1, "{said}");
    answers();
    // No JSON, no text, and JSON as deep as a line has space.
    let mut garbage = connect();
    let deep =
        [&[b'['; 4000][..], b"\n\0\xff\xfe\n{\"ask\":7}\n{\"ask\":\"stats\",\"x\":1}\nnull\n\n"].concat();
    garbage.write_all(&deep).expect("it reads");
    garbage.shutdown(Shutdown::Write).expect("our own end");
    let said = read_to_end(garbage);
    assert_eq!(said.lines().count(), 6, "{said}");
    for line in said.lines() {
        let answer: Value = serde_json::from_str(line).expect("JSON");
        assert!(answer["error"].as_str().is_some_and(|sentence| !sentence.is_empty()), "{line}");
    }
    answers();
    // One that asks on and on and never reads: it is let go after ten seconds.
    let mut deaf = connect();
    deaf.set_nonblocking(true).expect("our own end");
    let question = "{\"ask\":\"stats\"}\n".repeat(1000);
    wait_until("it is let go", || {
        answers();
        deaf.write(question.as_bytes()).is_err_and(|error| error.kind() != std::io::ErrorKind::WouldBlock)
    });
    // And nobody's packets were in danger.
    let sent = forwarder.send(1_000);
    wait_until("all are forwarded", || {
        sum(&stats(&forwarder.socket), "output", "sent", ("output", "east")) == sent
    });
    drop(half_open);
    forwarder.finish();
}

#[test]
fn stages_are_timed_for_four_clients_at_once_for_as_long_as_each_wants() {
    let (_turn, _directory, forwarder) = forwarder_beside_others();
    let begun = json!({ "one_in": 61 });
    let mut held: Vec<BufReader<UnixStream>> = Vec::new();
    for _ in 0..4 {
        let (answer, client) = time_stages(&forwarder.socket);
        assert_eq!(answer, begun);
        held.push(client);
    }
    let assert_full = || {
        let (answer, _) = time_stages(&forwarder.socket);
        assert!(answer["error"].as_str().is_some_and(|said| said.contains("4 clients")), "{answer}");
    };
    assert_full();

    // Whoever says that it is enough, or goes, leaves its turn to another.
    let next = || {
        let mut found = None;
        wait_until("there is a turn", || {
            let (answer, client) = time_stages(&forwarder.socket);
            found = (answer == begun).then_some(client);
            found.is_some()
        });
        found.expect("it was waited for")
    };
    let first = held.remove(0);
    first.get_ref().shutdown(Shutdown::Write).expect("our own end");
    assert_eq!(rest(first), "");
    held.push(next());
    assert_full();
    drop(held.remove(0));
    held.push(next());
    assert_full();

    // An instance that ends lets go of the others.
    forwarder.finish();
    for client in held {
        assert_eq!(rest(client), "");
    }
}

#[test]
fn a_hundred_clients_are_served_at_once() {
    let (_turn, _directory, forwarder) = forwarder_beside_others();
    let mut clients: Vec<BufReader<UnixStream>> = (0..100)
        .map(|_| BufReader::new(UnixStream::connect(&forwarder.socket).expect("it listens")))
        .collect();
    // Each has its answer while all others are connected, three times over.
    for _ in 0..3 {
        for client in &mut clients {
            client.get_mut().write_all(b"{\"ask\":\"stats\"}\n").expect("it reads");
        }
        for client in &mut clients {
            client.get_ref().set_read_timeout(Some(SHORT)).expect("not zero");
            let mut line = String::new();
            client.read_line(&mut line).expect("it answers");
            let answer: Value = serde_json::from_str(&line).expect("JSON");
            assert!(answer["values"].as_array().is_some_and(|values| !values.is_empty()), "{answer}");
        }
    }
    forwarder.finish();
}

#[test]
fn other_users_are_refused_also_where_the_file_would_let_them_in() {
    if !requirements::namespaces_and(&["setpriv"]) {
        return;
    }
    let (_turn, directory) = directory_beside_others();
    let permit = |path: &Path, mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(path, mode).expect("our own");
    };
    permit(directory.path(), 0o755);
    let copy = install_warmlane(directory.path());
    let forwarder = Forwarder::start(directory.path(), "f");
    let as_nobody = || {
        let mut command = Command::new("setpriv");
        as_nobody_with(&mut command, "--clear-groups", &[]);
        Process::run(command.arg(&copy).arg("stats").arg(&forwarder.socket), SHORT)
    };
    assert_refused(&as_nobody(), &["ermission denied"]);
    permit(&forwarder.socket, 0o666);
    assert_refused(&as_nobody(), &["answers user 0 and root only", "you are user 65534"]);
    forwarder.finish();

    // And root is answered by everybody's.
    let runtime = directory.path().join("run");
    std::fs::create_dir(&runtime).expect("a writable directory");
    permit(&runtime, 0o777);
    let mut command = Command::new("setpriv");
    as_nobody_with(&mut command, "--clear-groups", &[]);
    let port = format!("a=memif:{},role=server", runtime.join("theirs.memif").display());
    command.arg(&copy).args(["forward", "--quiet", "--port", &port, "--mac", "a=02:00:00:00:00:01"]);
    command.args(["--instance", "theirs"]).env("XDG_RUNTIME_DIR", &runtime);
    let theirs = Process::spawn(&mut command);
    let socket = runtime.join("warmlane/theirs.sock");
    wait_until("it answers root", || ask(&socket, &[]).status.success());
    theirs.interrupt();
    theirs.finish(SHORT).expect_success("the forwarder");
}
