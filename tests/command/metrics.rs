//! What Prometheus reads of running instances: the same as `warmlane stats` says, under names that docs/metrics.md lists.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use warmlane_system_tests::{RouterLab, SHORT, assert_refused, turn};
use warmlane_testkit::namespace::Namespace;
use warmlane_testkit::process::{Process, warmlane};
use warmlane_testkit::requirements;

use super::forwarder::{Forwarder, directory, directory_beside_others, read_to_end, stats, sum, wait_until};

const TABLE: &str = include_str!("../../docs/metrics.md");
const DASHBOARD: &str = include_str!("../../dist/grafana.json");

/// Sets that only some machines or settings have: their rows are not looked for in what these tests run.
const SELDOM: [&str; 6] = ["cache", "card", "xdp_cost", "vxlan", "probe", "tap"];

/// Asks for something, and returns the status line, the headers and the body.
pub(super) fn get(address: SocketAddr, path: &str, headers: &str) -> (String, String) {
    let mut client = TcpStream::connect(address).expect("it listens");
    client.set_read_timeout(Some(SHORT)).expect("not zero");
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n{headers}\r\n");
    client.write_all(request.as_bytes()).expect("it reads");
    let mut text = String::new();
    client.read_to_string(&mut text).expect("it answers");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no end of headers: {text}"));
    (head.to_owned(), body.to_owned())
}

fn scrape(address: SocketAddr) -> String {
    let (head, body) = get(address, "/metrics", "Accept: application/openmetrics-text\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("openmetrics-text"), "{head}");
    body
}

/// Where an instance says that its metrics are.
fn address_of(process: &mut Process) -> SocketAddr {
    process.wait_for("note: metrics are at http://", SHORT);
    process.wait_for("/metrics\n", SHORT);
    let said = process.errors();
    let (_, rest) = said.split_once("metrics are at http://").expect("it was waited for");
    rest.split_once('/').expect("a path").0.parse().expect("an address")
}

/// A forwarder whose metrics are on the loopback, and where.
pub(super) fn forwarder(directory: &Path, more: &[&str]) -> (Forwarder, SocketAddr) {
    let socket = directory.join("f.sock");
    let arguments = ["--socket", socket.to_str().expect("a plain path"), "--metrics", "0"];
    let mut forwarder =
        Forwarder::start_with(directory, "f", &[&arguments[..], more].concat(), socket.clone());
    let address = address_of(&mut forwarder.process);
    (forwarder, address)
}

/// A sample's name and its labels.
type Key = (String, BTreeMap<String, String>);

/// All samples. Labels in these tests have no quotation marks.
fn samples(text: &str) -> BTreeMap<Key, String> {
    let mut all = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (key, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        let (name, labels) = key.split_once('{').unwrap_or((key, "}"));
        let labels = labels.trim_end_matches('}').split("\",").filter(|label| !label.is_empty());
        let labels = labels.map(|label| {
            let (name, value) = label.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
            (name.to_owned(), value.trim_end_matches('"').to_owned())
        });
        let before = all.insert((name.to_owned(), labels.collect()), value.to_owned());
        assert!(before.is_none(), "twice: {line}");
    }
    all
}

/// What `warmlane stats --json` says, by the metrics' names without the `_total` of counters. Values that have all in common are added.
fn by_name(stats: &Value) -> BTreeMap<Key, u64> {
    let mut all = BTreeMap::new();
    for value in stats["values"].as_array().expect("a list") {
        let text = |field: &str| value[field].as_str().expect("a text");
        let labels = value["labels"].as_object().expect("an object").iter();
        let mut labels: BTreeMap<String, String> =
            labels.map(|(name, value)| (name.clone(), value.as_str().expect("a text").to_owned())).collect();
        if let Some(reason) = value["reason"].as_str() {
            labels.insert("reason".to_owned(), reason.to_owned());
        }
        let unit = match stats["descriptions"][text("set")][text("name")]["unit"].as_str().expect("a unit") {
            "times" => "",
            "nanoseconds" => "_seconds",
            unit => &format!("_{unit}"),
        };
        let name = format!("warmlane_{}_{}", text("set"), text("name")).replace('-', "_").replace("__", "_");
        let name = format!("{}{unit}", name.strip_suffix(unit).unwrap_or(&name));
        *all.entry((name, labels)).or_default() += value["value"].as_u64().expect("a number");
    }
    all
}

/// Checks that every value is there, and counters between what they were before and after it was read; and that there is nothing else.
/// Gauges are compared where nothing moves.
fn assert_as_stats_say(before: &Value, text: &str, after: &Value, is_at_rest: bool) {
    let (before, after) = (by_name(before), by_name(after));
    let mut samples = samples(text);
    for ((name, labels), low) in &before {
        let high = after[&(name.clone(), labels.clone())];
        let is_it = |(of, has): &&Key| {
            let mut has = has.clone();
            has.remove("severity");
            of.strip_suffix("_total").unwrap_or(of) == name && has == *labels
        };
        let key = samples.keys().find(is_it);
        let key = key.unwrap_or_else(|| panic!("no sample of {name} {labels:?} in\n{text}")).clone();
        let is_counter = key.0.ends_with("_total");
        let value = samples.remove(&key).expect("it was found");
        let value = match value.split_once('.') {
            Some((seconds, nanoseconds)) => format!("{seconds}{nanoseconds}"),
            None => value,
        };
        let value: u64 = value.parse().unwrap_or_else(|error| panic!("{key:?} {value}: {error}"));
        let range = *low.min(&high)..=*low.max(&high);
        assert!(
            range.contains(&value) || !(is_counter || is_at_rest),
            "{key:?} is {value}, not in {range:?}"
        );
    }
    let rest: Vec<&str> = samples.keys().map(|(name, _)| name.as_str()).collect();
    assert_eq!(rest, ["process_start_time_seconds", "warmlane_build_info"]);
}

/// The rows of the table in docs/metrics.md: name, type, meaning.
fn rows() -> BTreeSet<String> {
    TABLE.lines().filter(|line| line.starts_with("| `")).map(str::to_owned).collect()
}

/// What an instance exposes, as rows of that table.
fn exposed(text: &str) -> BTreeSet<String> {
    let of = |word: &str| -> BTreeMap<String, String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(&format!("# {word} ")));
        lines
            .filter_map(|line| line.split_once(' '))
            .map(|(name, rest)| (name.to_owned(), rest.to_owned()))
            .collect()
    };
    let helps = of("HELP");
    let row = |(name, kind): (&String, &String)| {
        let sample = match kind.as_str() {
            "counter" => format!("{name}_total"),
            "info" => format!("{name}_info"),
            _ => name.clone(),
        };
        let help = helps[name].replace("\\\"", "\"").replace('|', "\\|");
        format!("| `{sample}` | {kind} | {help} |")
    };
    of("TYPE").iter().map(row).collect()
}

/// Checks both formats by Prometheus's own tool where it is installed, and returns what is exposed.
fn check(address: SocketAddr, directory: &Path) -> BTreeSet<String> {
    let openmetrics = scrape(address);
    assert!(openmetrics.ends_with("\n# EOF\n"), "{openmetrics}");
    let (head, text) = get(address, "/metrics", "");
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    check_text(&text, directory);
    exposed(&openmetrics)
}

/// `promtool check metrics` has nothing to say.
fn check_text(text: &str, directory: &Path) {
    if !requirements::programs(&["promtool"]) {
        return;
    }
    let file = directory.join("metrics.txt");
    std::fs::write(&file, text).expect("a writable directory");
    let mut shell = Command::new("sh");
    shell.args(["-c", "promtool check metrics < \"$0\""]).arg(&file);
    let finished = Process::run(&mut shell, SHORT);
    assert!(finished.status.success() && finished.text().trim().is_empty(), "{}\n{text}", finished.text());
}

#[test]
fn metrics_are_what_stats_say() {
    let (_turn, directory) = directory_beside_others();
    let (forwarder, address) = forwarder(directory.path(), &[]);
    let sent = forwarder.send(1_000);
    let lost = forwarder.send_to("203.0.113.1", 100, "10kpps", 64);
    wait_until("all are forwarded", || {
        sum(&stats(&forwarder.socket), "output", "sent", ("output", "east")) == sent
    });
    let before = stats(&forwarder.socket);
    let text = scrape(address);
    assert_as_stats_say(&before, &text, &stats(&forwarder.socket), true);
    let samples = samples(&text);
    let total = |name: &str, label: (&str, &str)| -> u64 {
        let of = samples.iter().filter(|((of, labels), _)| {
            of == name && labels.get(label.0).map(String::as_str) == Some(label.1)
        });
        of.map(|(_, value)| value.parse::<u64>().expect("a number")).sum()
    };
    assert_eq!(total("warmlane_queue_packets_total", ("direction", "receive")), sent + lost, "{text}");
    assert_eq!(total("warmlane_forward_forwarded_packets_total", ("lane", "lane0")), sent, "{text}");
    assert_eq!(total("warmlane_forward_drops_packets_total", ("reason", "no-route")), lost, "{text}");
    forwarder.finish();
    assert!(TcpStream::connect(address).is_err(), "it has ended");
}

/// What a forwarder with a VXLAN network and a rule exposes.
fn gateway(directory: &Path) -> BTreeSet<String> {
    let _turn = turn::beside_others();
    let port = |name: &str, number: u8| {
        let socket = directory.join(format!("{name}.sock"));
        format!(
            "[[port]]\nname = \"{name}\"\ndriver = \"memif:{}\"\nmac = \"02:00:00:00:01:0{number}\"\n",
            socket.display()
        )
    };
    let config = format!(
        "{}addresses = [\"192.0.2.1/24\"]\n{}\n[[neighbour]]\naddress = \"192.0.2.2\"\nmac = \"02:00:00:00:00:02\"\nport = \"underlay\"\n\n\
         [[vxlan]]\nvni = 100\nlocal = \"192.0.2.1\"\nremotes = [\"192.0.2.2\"]\naccess = [{{ port = \"access\" }}]\nmtu = 1450\n\n\
         [[rule]]\nport = \"underlay\"\nto-port = 9\nprotocol = \"udp\"\ndrop = true\n",
        port("underlay", 1),
        port("access", 2)
    );
    let path = directory.join("gateway.toml");
    std::fs::write(&path, config).expect("a writable directory");
    let mut command = Command::new(warmlane());
    command.args(["forward", "--json", "--no-socket", "--metrics", "0", "--config"]).arg(&path);
    let mut process = Process::spawn(&mut command);
    let seen = check(address_of(&mut process), directory);
    assert!(seen.iter().any(|row| row.contains("`warmlane_vxlan_learned_stations_total`")), "{seen:?}");
    process.interrupt();
    process.finish(SHORT);
    seen
}

/// What each kind of instance exposes is well-formed and in the table, and the table has nothing else.
#[test]
fn names_are_those_of_the_table() {
    let directory = directory();
    let mut seen = BTreeSet::new();
    {
        let _turn = turn::alone();
        for arguments in
            [&["gen", "self-test", "--duration", "600"][..], &["docsis", "--duration", "600", "--figures"]]
        {
            let mut command = Command::new(warmlane());
            command.args(arguments).args(["--json", "--no-socket", "--metrics", "0"]);
            let mut process = Process::spawn(&mut command);
            seen.extend(check(address_of(&mut process), directory.path()));
            process.interrupt();
            process.finish(SHORT);
        }
    }
    {
        let _turn = turn::beside_others();
        let (forwarder, address) = forwarder(directory.path(), &[]);
        seen.extend(check(address, directory.path()));
        forwarder.finish();
    }
    seen.extend(gateway(directory.path()));
    let has_routers = routers(&mut seen, directory.path());
    let rows = rows();
    let missing: Vec<&String> = seen.difference(&rows).collect();
    assert!(missing.is_empty(), "docs/metrics.md has not:\n{}", join(&missing));
    let is_seldom = |row: &&&String| SELDOM.iter().any(|set| row.contains(&format!("`warmlane_{set}_")));
    let gone: Vec<&String> = rows.difference(&seen).collect();
    let gone: Vec<&&String> = gone.iter().filter(|row| !is_seldom(row)).collect();
    assert!(!has_routers || gone.is_empty(), "nothing has these rows of docs/metrics.md:\n{}", join(&gone));
}

fn join<T: AsRef<str>>(rows: &[T]) -> String {
    rows.iter().map(AsRef::as_ref).collect::<Vec<_>>().join("\n")
}

/// Routers on each path, if there can be any here.
fn routers(seen: &mut BTreeSet<String>, directory: &Path) -> bool {
    let Some(lab) = RouterLab::new(1500, &["curl"]) else { return false };
    for path in ["user", "xdp", "tc"] {
        let mut process = lab.start("w0 e0", &format!("--path {path} --metrics 0"));
        let address = address_of(&mut process);
        let before = stats(&lab.socket());
        let text = curl(&lab.router, address, "Accept: application/openmetrics-text");
        assert_as_stats_say(&before, &text, &stats(&lab.socket()), false);
        check_text(&curl(&lab.router, address, "Accept: text/plain"), directory);
        seen.extend(exposed(&text));
        RouterLab::end(process);
    }
    true
}

fn curl(namespace: &Namespace, address: SocketAddr, header: &str) -> String {
    let mut command = namespace.command("curl");
    command.args(["--silent", "--fail", "--header", header]).arg(format!("http://{address}/metrics"));
    Process::run(&mut command, SHORT).expect_success("curl").to_owned()
}

/// A file with a token, readable by its owner.
pub(super) fn token_file(directory: &Path, token: &str) -> PathBuf {
    let path = directory.join("token");
    std::fs::write(&path, format!("{token}\n")).expect("a writable directory");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("our own");
    path
}

#[test]
fn a_real_prometheus_scrapes_with_the_token_and_knows_what_the_dashboard_asks() {
    if !requirements::programs(&["prometheus"]) {
        return;
    }
    let (_turn, directory) = directory_beside_others();
    let token = token_file(directory.path(), "a-token-of-enough-letters");
    let token = token.to_str().expect("a plain path");
    let (forwarder, address) = forwarder(directory.path(), &["--metrics-token-file", token]);
    assert!(get(address, "/metrics", "").0.starts_with("HTTP/1.1 401 "));
    let shown = "Authorization: Bearer a-token-of-enough-letters\r\n";
    assert!(get(address, "/metrics", shown).0.starts_with("HTTP/1.1 200 "));
    let sent = forwarder.send(1_000);

    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let config = directory.path().join("prometheus.yml");
    let text = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: warmlane\n  authorization: {{credentials_file: {token}}}\n  static_configs:\n  - targets: ['{address}']\n"
    );
    std::fs::write(&config, text).expect("a writable directory");
    let mut command = Command::new("prometheus");
    command.arg(format!("--config.file={}", config.display())).arg(format!("--web.listen-address={free}"));
    command.arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()));
    let prometheus = Process::spawn(&mut command);
    wait_until("Prometheus is ready", || {
        TcpStream::connect(free).is_ok() && get(free, "/-/ready", "").0.contains(" 200 ")
    });
    let ask = |expression: &str| -> Value {
        let path = format!("/api/v1/query?query={}", percent_encoded(expression));
        let (_, body) = get(free, &path, "");
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"))
    };
    let is = |expression: &str, expected: &str| {
        let answer = ask(expression);
        answer["data"]["result"][0]["value"][1].as_str() == Some(expected)
    };
    let received = "sum(warmlane_queue_packets_total{direction=\"receive\"})";
    wait_until("it has scraped what was sent", || is(received, &sent.to_string()));
    assert!(is("up{job=\"warmlane\"}", "1"), "{}", ask("up"));
    for expression in expressions() {
        let plain = expression.replace("$__rate_interval", "1m").replace("$instance", ".*");
        let answer = ask(&plain);
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
    }
    // What it knows of metrics comes from the format's own lines.
    let (_, body) = get(free, "/api/v1/metadata?metric=warmlane_queue_packets", "");
    assert!(body.contains("counter") && body.contains("\"unit\":\"packets\""), "{body}");
    prometheus.signal("TERM");
    prometheus.finish(SHORT);
    forwarder.finish();
}

fn percent_encoded(text: &str) -> String {
    let byte = |byte: &u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(*byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.as_bytes().iter().map(byte).collect()
}

/// All that the dashboard asks.
fn expressions() -> Vec<String> {
    fn collect(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("expr").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|value| collect(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| collect(value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    collect(&serde_json::from_str(DASHBOARD).expect("JSON"), &mut found);
    found
}

#[test]
fn the_dashboard_asks_for_metrics_that_are_in_the_table() {
    let known: BTreeSet<&str> =
        TABLE.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let expressions = expressions();
    let mut asked = BTreeSet::new();
    for expression in &expressions {
        let words = expression.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        asked.extend(words.filter(|word| word.starts_with("warmlane_") || word.starts_with("process_")));
    }
    let unknown: Vec<_> = asked.difference(&known).collect();
    assert!(asked.len() >= 10 && unknown.is_empty(), "{unknown:?} of {asked:?}");
}

#[test]
fn hostile_clients_cost_their_own_connections_only() {
    let (_turn, directory) = directory_beside_others();
    let (forwarder, address) = forwarder(directory.path(), &[]);
    let connect = || {
        let client = TcpStream::connect(address).expect("it listens");
        client.set_read_timeout(Some(SHORT)).expect("not zero");
        client
    };
    let answers = || assert!(scrape(address).contains("warmlane_build_info"));
    // More than there is space for: whoever is silent goes when others come.
    let half_open: Vec<TcpStream> = (0..200)
        .map(|number| {
            let mut client = connect();
            let _ = client.write_all(&b"GET /metrics HTT"[..number % 16]);
            client
        })
        .collect();
    answers();
    let mut bomb = connect();
    let _ = bomb.write_all(&vec![b'G'; 16 << 20]);
    assert!(read_to_end(bomb).starts_with("HTTP/1.1 4"));
    let mut headers = connect();
    let _ = headers.write_all(format!("GET /metrics HTTP/1.1\r\n{}", "a: b\r\n".repeat(100_000)).as_bytes());
    assert!(read_to_end(headers).starts_with("HTTP/1.1 431 "));
    let mut garbage = connect();
    let _ = garbage.write_all(b"\x16\x03\x01\x02\x00\0\xff\r\n\r\n");
    assert!(read_to_end(garbage).starts_with("HTTP/1.1 400 "));
    let mut changes = connect();
    changes.write_all(b"POST /metrics HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}").expect("it reads");
    assert!(read_to_end(changes).starts_with("HTTP/1.1 405 "));
    answers();
    // Many that ask and never read.
    let deaf: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut client = connect();
            client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("it reads");
            client
        })
        .collect();
    answers();
    // And nobody's packets were in danger.
    let sent = forwarder.send(1_000);
    wait_until("all are forwarded", || {
        sum(&stats(&forwarder.socket), "output", "sent", ("output", "east")) == sent
    });
    drop((half_open, deaf));
    forwarder.finish();
}

#[test]
fn metrics_are_not_offered_where_anybody_could_read_them() {
    let (_turn, directory) = directory_beside_others();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(warmlane());
        command.args(["forward", "--no-socket", "--port", "a=null", "--mac", "a=02:00:00:00:00:01"]);
        Process::run(command.args(arguments), SHORT)
    };
    assert_refused(&run(&["--metrics", "0.0.0.0:0"]), &["anybody", "--metrics-token-file"]);
    assert_refused(&run(&["--metrics", "[::]:0"]), &["anybody"]);
    let token = token_file(directory.path(), "short");
    let path = token.to_str().expect("a plain path");
    assert_refused(&run(&["--metrics", "0", "--metrics-token-file", path]), &["no token", "openssl rand"]);
    let token = token_file(directory.path(), "a-token-of-enough-letters");
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o644)).expect("our own");
    assert_refused(&run(&["--metrics", "0", "--metrics-token-file", path]), &["other users", "chmod 600"]);
    assert_refused(&run(&["--metrics-token-file", path]), &["--metrics"]);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("it listens").to_string();
    assert_refused(&run(&["--metrics", &address]), &[&address, "in use"]);
    let asked = Process::run(Command::new(warmlane()).args(["router", "status", "--metrics", "0"]), SHORT);
    assert_refused(&asked, &["not for a question"]);
}
