//! A neighbour that changes its Ethernet address without a word is found again no later than by the kernel alone.

use std::time::Duration;

use warmlane_system_tests::{RouterLab, SHORT};
use warmlane_testkit::promise::Watch;

const EAST: &str = "198.51.100.2";

/// What trying takes, and where in a second it begins.
const SLACK: Duration = Duration::from_secs(3);

/// Gives the host in the east another address, and says how long it takes until it is reached again.
fn time_without(lab: &RouterLab, number: u8) -> Duration {
    RouterLab::wait_for_answer(&lab.west, EAST);
    lab.east.ip(&format!("link set e0 address 02:00:00:00:00:{number:02}"));
    // It says nothing of it by asking for the router either.
    lab.east
        .ip(&format!("neighbour replace 198.51.100.1 lladdr {} dev e0 nud permanent", lab.router.mac("e0")));
    assert!(!RouterLab::answers(&lab.west, EAST), "its old address is no more");
    RouterLab::wait_until("it is found again", SHORT, || RouterLab::answers(&lab.west, EAST))
}

#[test]
fn a_silent_change_is_noticed_as_soon_as_by_the_kernel() {
    let Some(lab) = RouterLab::alone(1500, &[]) else { return };
    lab.hosts_take_redirected();
    // Of its own accord the host would be asked for only after half a minute.
    lab.router.set("net.ipv4.neigh.e0.base_reachable_time_ms", "3000");
    lab.router.set("net.ipv4.neigh.e0.delay_first_probe_time", "2");
    lab.router.set("net.ipv4.conf.e0.arp_accept", "0");
    let mut times = Vec::new();
    for number in 1..=2 {
        times.push(time_without(&lab, number));
    }
    let kernel = times.into_iter().max().unwrap_or_default();
    for (number, choice) in (3..).zip(["tc", "xdp", "user"]) {
        let process = lab.start("w0 e0", &format!("--path {choice}"));
        let watch = Watch::start();
        let time = time_without(&lab, number);
        eprintln!("{choice}: {time:?}, the kernel {kernel:?}");
        watch
            .check(time <= kernel + SLACK, || format!("{choice}: {time:?}, and the kernel alone {kernel:?}"));
        RouterLab::end(process);
    }
}
