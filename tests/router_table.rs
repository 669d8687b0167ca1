//! `warmlane router` with the full Internet table in the kernel, and with routes that flap.

#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

use warmlane::functions::forward::control::full_table;
use warmlane_system_tests::RouterLab;
use warmlane_testkit::random::Random;

/// How long routes flap: a minute in CI (`CI=true`), where nobody waits for it, else a few seconds.
fn flap_time() -> Duration {
    Duration::from_secs(if std::env::var_os("CI").is_some() { 60 } else { 5 })
}

/// Flaps in a second: a route taken away, and added again with another next hop.
const FLAPS: usize = 10_000;

#[test]
fn a_full_table_is_mirrored_and_stays_right_when_it_flaps() {
    let Some(lab) = RouterLab::new("router: full_table", 1500, &[]) else { return };
    let ipv4: Vec<String> = full_table::ipv4().expect("the table").iter().map(ToString::to_string).collect();
    let ipv6: Vec<String> = full_table::ipv6().expect("the table").iter().map(ToString::to_string).collect();
    let gateways = [["198.51.100.2", "2001:db8:2::2"], ["198.51.100.3", "2001:db8:2::3"]];
    let file = lab.directory().join("batch");
    let mut lines = String::new();
    let own =
        |prefix: &str| ["192.0.2.", "198.51.100.", "2001:db8:"].iter().any(|own| prefix.starts_with(own));
    let all: Vec<(usize, &String)> =
        ipv4.iter().map(|prefix| (0, prefix)).chain(ipv6.iter().map(|prefix| (1, prefix))).collect();
    let all: Vec<(usize, &String)> = all.into_iter().filter(|(_, prefix)| !own(prefix)).collect();
    for (family, prefix) in &all {
        writeln!(lines, "route add {prefix} via {}", gateways[0][*family]).expect("a string takes all");
    }
    fs::write(&file, lines).expect("a writable directory");
    // Prefixes that the kernel has no use for are left out.
    let begin = Instant::now();
    lab.router.run(&format!("ip -force -batch {}", file.display()));
    eprintln!("the kernel took {} routes in {:?}", all.len(), begin.elapsed());

    let begin = Instant::now();
    let process = lab.start("w0 e0", "--buffers 8192");
    let mirrored = begin.elapsed();
    let verdict = lab.verify();
    eprintln!("{} routes mirrored in {mirrored:?}", verdict["routes"]);
    assert!(verdict["routes"].as_u64() >= Some(all.len() as u64 * 9 / 10), "{verdict:#}");
    assert!(mirrored < Duration::from_secs(10), "{mirrored:?}");
    RouterLab::check_ping(&lab.west, &["198.51.100.2", "2001:db8:2::2"]);

    // Flaps, as fast as is asked for, by a second's worth at a time.
    let mut random = Random::new(7);
    let begin = Instant::now();
    let mut flaps = 0;
    while begin.elapsed() < flap_time() {
        let mut lines = String::new();
        for _ in 0..FLAPS / 4 {
            let (family, prefix) = all[random.below(all.len())];
            let gateway = gateways[random.below(2)][family];
            writeln!(lines, "route del {prefix}\nroute add {prefix} via {gateway}")
                .expect("a string takes all");
            flaps += 1;
        }
        fs::write(&file, lines).expect("a writable directory");
        lab.router.run(&format!("ip -force -batch {}", file.display()));
        let ahead = Duration::from_secs_f64(flaps as f64 / FLAPS as f64).saturating_sub(begin.elapsed());
        std::thread::sleep(ahead);
    }
    let rate = flaps as f64 / begin.elapsed().as_secs_f64();
    eprintln!("{flaps} flaps in {:?}: {rate:.0} a second", begin.elapsed());
    // A machine may be slow, but far fewer would be another test.
    assert!(rate > FLAPS as f64 / 4.0, "{rate}");
    let verdict = lab.verify();
    let counters = lab.ask("counters");
    eprintln!("{} {}", verdict["routes"], counters["kernel"]);
    RouterLab::check_ping(&lab.west, &["198.51.100.2", "2001:db8:2::2"]);
    assert_eq!(counters["kernel"]["table_errors"], 0, "{counters:#}");
    RouterLab::finish(process);
}
