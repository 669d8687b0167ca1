//! `warmlane router` with the full Internet table in the kernel, with all of it changing at once, and with routes that flap.

use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;
use warmlane::functions::forward::control::full_table;
use warmlane_system_tests::RouterLab;
use warmlane_testkit::process;
use warmlane_testkit::promise::Watch;

/// How long routes flap: a minute in CI (`CI=true`), where nobody waits for it, else a few seconds.
fn flap_time() -> Duration {
    Duration::from_secs(if std::env::var_os("CI").is_some() { 60 } else { 5 })
}

const MINUTE: Duration = Duration::from_secs(60);

/// Flaps in a second: a route taken away, and added again with either next hop.
const FLAPS: u32 = 10_000;

const GATEWAYS: [[&str; 2]; 2] = [["198.51.100.2", "198.51.100.3"], ["2001:db8:2::2", "2001:db8:2::3"]];

/// The table's routes in a file for `routes.py`, without those that are the lab's own; says how many there are.
fn write_routes(lab: &RouterLab) -> u64 {
    let own =
        |prefix: &str| ["192.0.2.", "198.51.100.", "2001:db8:"].iter().any(|own| prefix.starts_with(own));
    let ipv4 =
        full_table::ipv4().expect("the table").into_iter().map(|prefix| (prefix.to_string(), GATEWAYS[0]));
    let ipv6 =
        full_table::ipv6().expect("the table").into_iter().map(|prefix| (prefix.to_string(), GATEWAYS[1]));
    let mut lines = String::new();
    let mut count = 0;
    for (prefix, [first, second]) in ipv4.chain(ipv6).filter(|(prefix, _)| !own(prefix)) {
        writeln!(lines, "{prefix} {first} {second}").expect("a string takes all");
        count += 1;
    }
    fs::write(lab.directory().join("routes"), lines).expect("a writable directory");
    count
}

/// Changes the kernel's routes by `routes.py`, and returns how many routes in how many seconds that was. All but a few must have
/// been taken.
fn change(lab: &RouterLab, what: &str) -> [f64; 2] {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/routes.py");
    let line = format!("python3 {script} {} {what}", lab.directory().join("routes").display());
    let finished = lab.router.spawn(&line).finish(15 * MINUTE);
    let numbers: Vec<f64> = finished
        .expect_success(&line)
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
    let verdict = lab.verify();
    let kernel = lab.ask("counters")["kernel"].take();
    eprintln!("{} routes are equal, found in {:?}; {kernel}", verdict["routes"], begin.elapsed());
    assert!(verdict["routes"].as_u64() >= Some(routes), "{verdict:#}");
    assert_eq!(kernel["table_errors"], 0, "{kernel:#}");
    RouterLab::check_ping(&lab.west, &["198.51.100.2", "2001:db8:2::2"]);
    kernel
}

#[test]
fn a_full_table_is_mirrored_and_stays_right_when_it_flaps() {
    let Some(lab) = RouterLab::new(1500, &["python3"]) else { return };
    // The second gateways are other hosts than the first, so that it shows by which one a route leads.
    for [_, second] in GATEWAYS {
        lab.router.neighbour("e0", second, "02:00:00:00:00:33");
    }
    let routes = write_routes(&lab);
    change(&lab, "fill");
    let least = routes * 99 / 100;

    // So that the start takes no time for building the command.
    process::warmlane();
    let begin = Instant::now();
    let process = lab.start("w0 e0", "--buffers 8192");
    let mirrored = process.cpu_time();
    eprintln!("mirrored in {:?}, {mirrored:?} on CPUs", begin.elapsed());
    assert!(mirrored < Duration::from_secs(10), "{mirrored:?} on CPUs");
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
}
