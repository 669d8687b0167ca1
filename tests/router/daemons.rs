//! `warmlane router` beside routing daemons: they speak BGP through its interfaces, and it forwards by what they learn.

use std::time::{Duration, Instant};

use warmlane_system_tests::daemons::{ANNOUNCED, Bird, DAEMONS, End, Frr, HOLD, Speaker, address_in};
use warmlane_system_tests::{Flood, LONG, RouterLab, SHORT};
use warmlane_testkit::Report;
use warmlane_testkit::promise::Watch;

const NEAR: End = End { autonomous_system: 65_001, ipv4: "198.51.100.1", ipv6: "2001:db8:2::1" };
const FAR: End = End { autonomous_system: 65_002, ipv4: "198.51.100.2", ipv6: "2001:db8:2::2" };

const PATHS: [&str; 3] = ["user", "xdp", "tc"];

/// How long after the kernel Warmlane may forward by all routes.
const LAG: Duration = Duration::from_secs(2);

/// Packets of a flood in a second, one way, while routes come and go: much, and still something left of two cores for daemons.
const RATE: u32 = 20_000;

#[test]
fn what_bird_learns_from_frr_is_forwarded_and_sessions_stay() {
    for path in PATHS {
        let Some(lab) = RouterLab::alone(1500, &DAEMONS) else { return };
        learn_and_forget(
            &lab,
            path,
            || Bird::start(&lab.router, lab.directory(), NEAR, FAR),
            || Frr::start(&lab.east, lab.directory(), FAR, NEAR),
        );
    }
}

#[test]
fn what_frr_learns_from_bird_is_forwarded_and_sessions_stay() {
    for path in PATHS {
        let Some(lab) = RouterLab::alone(1500, &DAEMONS) else { return };
        learn_and_forget(
            &lab,
            path,
            || Frr::start(&lab.router, lab.directory(), NEAR, FAR),
            || Bird::start(&lab.east, lab.directory(), FAR, NEAR),
        );
    }
}

/// 100,000 routes come and go between two daemons, while small packets flood both interfaces.
fn learn_and_forget<N: Speaker, F: Speaker>(
    lab: &RouterLab,
    path: &str,
    near: impl FnOnce() -> N,
    far: impl FnOnce() -> F,
) {
    // Programs inside the kernel ask its own table, and there is nothing that could lag behind.
    let has_tables = path == "user";
    let table_routes = || if has_tables { table_routes(lab) } else { [0; 2] };
    for (host, interface) in [(&lab.west, "w0"), (&lab.east, "e0")] {
        host.run(&format!("ethtool -K {interface} gro on")).expect_success("ethtool");
    }
    // The first and the last of each family, and one in between.
    let probes: Vec<String> = [false, true]
        .into_iter()
        .flat_map(|is_ipv6| {
            let count = ANNOUNCED[usize::from(is_ipv6)];
            [0, count / 2, count - 1].map(|number| address_in(is_ipv6, number))
        })
        .collect();
    let probes: Vec<&str> = probes.iter().map(String::as_str).collect();
    for address in &probes {
        let length = if address.contains(':') { 128 } else { 32 };
        lab.east.ip(&format!("address add {address}/{length} dev lo"));
    }

    // The sessions are made through the interfaces that Warmlane has.
    let process = lab.start("w0 e0", &format!("--path {path}"));
    let (near, far) = (near(), far());
    let mut sessions = None;
    RouterLab::wait_until("sessions", SHORT, || {
        sessions = near.sessions().zip(far.sessions());
        sessions.is_some()
    });
    assert!(!lab.west.run(&format!("ping -n -c 1 -W 1 {}", probes[0])).status.success());
    let (in_kernel, in_tables) = (kernel_routes(lab), table_routes());

    let begin = Instant::now();
    let floods = |rate| {
        let eastward = Flood::start(&lab.west, rate, &["198.51.100.3", "198.51.100.2", probes[0], probes[1]]);
        [eastward, Flood::start(&lab.east, rate, &["192.0.2.2"])]
    };
    let both = floods(RATE);
    let (asked, watch) = (Instant::now(), Watch::start());
    far.announce();
    let all = ANNOUNCED;
    let seen =
        wait_for_kernel(lab, |[ipv4, ipv6]| ipv4 >= in_kernel[0] + all[0] && ipv6 >= in_kernel[1] + all[1]);
    RouterLab::wait_until("all routes in the tables", SHORT, || {
        let now = table_routes();
        !has_tables || (0..2).all(|family| now[family] >= in_tables[family] + all[family])
    });
    let in_tables_after = seen.elapsed();
    for address in &probes {
        // A flood may well push the one or the other out.
        RouterLab::wait_until(address, SHORT, || {
            lab.west.run(&format!("ping -n -c 1 -W 0.2 {address}")).status.success()
        });
    }
    let lag = seen.elapsed();
    eprintln!(
        "{path}: the kernel learned in {:?}; all in the tables {in_tables_after:?} later, forwarded {lag:?} later",
        seen - asked
    );
    watch.check(lag < LAG, || format!("{lag:?} behind the kernel"));
    assert_eq!(near.sessions().zip(far.sessions()), sessions);

    let watch = Watch::start();
    far.withdraw();
    let gone = wait_for_kernel(lab, |now| now == in_kernel);
    RouterLab::wait_until("all routes gone from the tables", SHORT, || {
        let now = table_routes();
        // Neighbours that were found meanwhile are there, too.
        (0..2).all(|family| now[family] < in_tables[family] + 10)
    });
    let lag = gone.elapsed();
    eprintln!("Warmlane forgot {lag:?} after the kernel");
    watch.check(lag < LAG, || format!("{lag:?} behind the kernel"));

    let mut sent: u64 = both.map(Flood::stop).iter().sum();
    // More than can be forwarded, for longer than either end waits for a word from the other.
    let both = floods(0);
    std::thread::sleep(HOLD + Duration::from_secs(1));
    assert_eq!(near.sessions().zip(far.sessions()), sessions);
    sent += both.map(Flood::stop).iter().sum::<u64>();
    lab.verify();
    // It is the kernel that tells senders, each once a second, and the flood was of the same one.
    RouterLab::wait_until("the sender is told", SHORT, || {
        lab.west.run(&format!("ping -n -c 1 -W 1 {}", probes[0])).output.contains("nreachable")
    });
    RouterLab::check_ping(&lab.west, &["198.51.100.2", "2001:db8:2::2"]);
    let (report, forwarded) = if has_tables {
        let report = RouterLab::finish(process);
        let forwarded = report.number("/forward/forwarded");
        (report, forwarded)
    } else {
        process.interrupt();
        let finished = process.finish(SHORT);
        let report = Report::parse(finished.expect_success("warmlane router"));
        let forwarded = (0..2).map(|number| report.number(&format!("/paths/{number}/forwarded"))).sum();
        (report, forwarded)
    };
    eprintln!("{sent} packets of floods sent, {forwarded} packets forwarded in {:?}", begin.elapsed());
    assert!(forwarded > sent / 10, "{sent} sent: {:#}", report.value());
}

/// The routes of both families in the kernel's main table.
fn kernel_routes(lab: &RouterLab) -> [usize; 2] {
    ["-4", "-6"].map(|family| {
        let line = format!("ip {family} route show table main");
        lab.router.run(&line).expect_success(&line).lines().count()
    })
}

/// Waits until the kernel has what it should, and says since when at least.
fn wait_for_kernel(lab: &RouterLab, mut is_right: impl FnMut([usize; 2]) -> bool) -> Instant {
    let mut asked = Instant::now();
    RouterLab::wait_until("the kernel's routes", LONG, || {
        asked = Instant::now();
        is_right(kernel_routes(lab))
    });
    asked
}

/// The prefixes of both families that Warmlane has.
fn table_routes(lab: &RouterLab) -> [usize; 2] {
    let status = lab.ask("status");
    ["ipv4", "ipv6"].map(|family| {
        let count = status["routes"][family].as_u64();
        usize::try_from(count.unwrap_or_else(|| panic!("{status:#}"))).expect("a count fits")
    })
}
