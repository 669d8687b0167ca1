//! `warmlane router` with the full Internet table in the kernel, with all of it changing at once, and with routes that flap, on each path.

use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;
use warmlane::functions::forward::control::full_table;
use warmlane_system_tests::{Flood, RouterLab};
use warmlane_testkit::process::{self, Process};
use warmlane_testkit::promise::Watch;

/// How long routes flap: a minute in CI (`CI=true`), where nobody waits for it, else a few seconds.
fn flap_time() -> Duration {
    Duration::from_secs(if std::env::var_os("CI").is_some() { 60 } else { 5 })
}

const MINUTE: Duration = Duration::from_secs(60);

/// Flaps in a second: a route taken away, and added again with either next hop.
const FLAPS: u32 = 10_000;

const GATEWAYS: [[&str; 2]; 2] = [["198.51.100.2", "198.51.100.3"], ["2001:db8:2::2", "2001:db8:2::3"]];

/// What the process may need for news of routes that it doesn't keep: kept, they would take some 200 MB.
const MEMORY_FOR_NEWS: u64 = 16 << 20;

/// One in so many of the table's routes is in the file `some`; other ones than `flap` takes away at last.
const SOME: usize = 100;

/// The table's routes in a file for `routes.py`, and some of them in another one, without those that are the lab's own; says how many there are.
fn write_routes(lab: &RouterLab) -> u64 {
    let own =
        |prefix: &str| ["192.0.2.", "198.51.100.", "2001:db8:"].iter().any(|own| prefix.starts_with(own));
    let ipv4 =
        full_table::ipv4().expect("the table").into_iter().map(|prefix| (prefix.to_string(), GATEWAYS[0]));
    let ipv6 =
        full_table::ipv6().expect("the table").into_iter().map(|prefix| (prefix.to_string(), GATEWAYS[1]));
    let (mut all, mut some) = (String::new(), String::new());
    let mut count = 0;
    for (prefix, [first, second]) in ipv4.chain(ipv6).filter(|(prefix, _)| !own(prefix)) {
        let begin = all.len();
        writeln!(all, "{prefix} {first} {second}").expect("a string takes all");
        if count % SOME == SOME / 2 {
            some.push_str(&all[begin..]);
        }
        count += 1;
    }
    for (name, lines) in [("routes", all), ("some", some)] {
        fs::write(lab.directory().join(name), lines).expect("a writable directory");
    }
    count as u64
}

/// Changes the kernel's routes by `routes.py`, and returns how many routes in how many seconds that was. All but a few must have
/// been taken.
fn change(lab: &RouterLab, what: &str) -> [f64; 2] {
    finish_change(start_change(lab, "routes", what), what)
}

/// Starts to change routes of one of the files.
fn start_change(lab: &RouterLab, file: &str, what: &str) -> Process {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/routes.py");
    lab.router.spawn(&format!("python3 {script} {} {what}", lab.directory().join(file).display()))
}

fn finish_change(process: Process, what: &str) -> [f64; 2] {
    let finished = process.finish(15 * MINUTE);
    let numbers: Vec<f64> = finished
        .expect_success(what)
        .split_whitespace()
        .map(|word| word.parse().expect("a number"))
        .collect();
    let [routes, seconds, refused] = numbers[..] else { panic!("{numbers:?}") };
    eprintln!("{what}: {routes} routes in {seconds:.1} s, {refused} messages refused");
    // The kernel has no use for some prefixes, such as 127.0.0.0/8's.
    assert!(refused <= routes / 100.0, "{refused} of {routes}");
    [routes, seconds]
}

/// The tables are the kernel's, and there are so many routes at least; returns what the router counts of the kernel's news.
fn check(lab: &RouterLab, routes: u64) -> Value {
    let begin = Instant::now();
    let answer = lab.verify();
    let kernel = lab.ask("counters")["kernel"].take();
    eprintln!("{} routes are equal, found in {:?}; {kernel}", answer["routes"], begin.elapsed());
    assert!(answer["routes"].as_u64() >= Some(routes), "{answer:#}");
    assert_eq!(kernel["table_errors"], 0, "{kernel:#}");
    RouterLab::check_ping(&lab.west, &["198.51.100.2", "2001:db8:2::2"]);
    kernel
}

/// On the paths inside the kernel it is the kernel's own table that is asked, also while routes flap that packets take; and the process
/// keeps nothing of it.
fn check_inside_the_kernel(lab: &RouterLab, process: Process, most: u64) {
    let file = fs::read_to_string(lab.directory().join("some")).expect("it was written");
    let networks: Vec<&str> = file.lines().filter_map(|line| line.split('/').next()).collect();
    let far: Vec<&str> = networks.iter().step_by(networks.len() / 10).copied().collect();
    for address in &far {
        let length = if address.contains(':') { 128 } else { 32 };
        lab.east.ip(&format!("address replace {address}/{length} dev lo"));
    }
    RouterLab::check_ping(&lab.west, &far);

    let ipv4: Vec<&str> = networks.iter().filter(|address| !address.contains(':')).copied().collect();
    let taken: Vec<&str> = ipv4.iter().step_by(ipv4.len() / 256).copied().collect();
    let flood = Flood::start(&lab.west, 2_000, &taken);
    let what = format!("flap {FLAPS} 5");
    let mut flaps = start_change(lab, "some", &what);
    let mut rounds = 0;
    while !flaps.has_ended() {
        lab.verify();
        rounds += 1;
    }
    finish_change(flaps, &what);
    let mut decisions = 0;
    RouterLab::wait_until("decisions that can be compared", MINUTE, || {
        decisions = lab.verify()["decisions"].as_u64().expect("a number");
        decisions > 10
    });
    flood.stop();
    let forwarded = lab.forwarded_from("w0");
    let peak = process.peak_memory();
    eprintln!(
        "{rounds} times equal while routes flapped, then {decisions} decisions; {forwarded} packets; {} of {} KiB",
        peak >> 10,
        most >> 10
    );
    assert!(forwarded > 1_000, "{:#}", lab.ask("counters"));
    assert!(peak < most, "{peak} bytes, {most} at most");
    RouterLab::end(process);
}

#[test]
fn a_full_table_is_followed_on_each_path_and_stays_right_when_it_flaps() {
    let Some(lab) = RouterLab::new(1500, &["ethtool", "python3"]) else { return };
    let routes = write_routes(&lab);
    let least = routes * 99 / 100;
    // So that the start takes no time for building the command.
    process::warmlane();

    // All of them as news, of which nothing is kept.
    let process = lab.start("w0 e0", "--path tc");
    let most = process.peak_memory() + MEMORY_FOR_NEWS;
    change(&lab, "fill");
    RouterLab::wait_until("all news was heard", MINUTE * 5, || {
        let kernel = lab.ask("counters")["kernel"].take();
        kernel["events"].as_u64() > Some(least) || kernel["overruns"].as_u64() > Some(0)
    });
    check_inside_the_kernel(&lab, process, most);

    // The second gateways are other hosts than the first, so that it shows by which one a route leads.
    for [_, second] in GATEWAYS {
        lab.router.neighbour("e0", second, "02:00:00:00:00:33");
    }
    let (begin, watch) = (Instant::now(), Watch::start());
    let process = lab.start("w0 e0", "--buffers 8192");
    let mirrored = process.cpu_time();
    eprintln!("mirrored in {:?}, {mirrored:?} on CPUs", begin.elapsed());
    watch.check(mirrored < Duration::from_secs(10), || format!("{mirrored:?} on CPUs"));
    check(&lab, least);

    // All of them as news.
    change(&lab, "turn");
    let before = check(&lab, least);

    let watch = Watch::start();
    let [flaps, seconds] = change(&lab, &format!("flap {FLAPS} {}", flap_time().as_secs()));
    let rate = flaps / seconds;
    watch.check(rate > f64::from(FLAPS) * 0.98, || format!("the kernel took only {rate} flaps a second"));
    // Every hundredth is gone now.
    let after = check(&lab, routes * 98 / 100);
    // Each was heard of, as two pieces of news, unless the kernel lost some and everything was listed anew.
    let [heard, overruns] = ["events", "overruns"].map(|name| {
        let [before, after] = [&before, &after].map(|counters| counters[name].as_u64().expect("a number"));
        after - before
    });
    let told = 2.0 * flaps;
    assert!(heard as f64 > told * 0.95 || overruns > 0, "{heard} of {told}, {overruns} overruns");
    RouterLab::finish(process);

    // And all of it at the start; the second gateways are the same host as the first again.
    for [_, second] in GATEWAYS {
        lab.router.ip(&format!("neighbour del {second} dev e0"));
    }
    lab.hosts_take_redirected();
    let process = lab.start("w0 e0", "--path xdp");
    check_inside_the_kernel(&lab, process, most);
}
