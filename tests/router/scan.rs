//! Somebody scans a network on a link of `warmlane router`'s: all others must not notice.

use std::time::Instant;

use warmlane_system_tests::{Flood, RouterLab, SHORT};

/// More neighbours than are waited for at a time, all of which nobody is.
const NOBODY: u16 = 600;

/// Neighbours that a lane waits for at a time, where few are to do.
const FEW: u16 = 8;

/// The host in the west sends to all of those that nobody is, in turn.
fn scan(lab: &RouterLab) -> Flood {
    let addresses: Vec<String> =
        (0..NOBODY).map(|number| format!("10.9.{}.{}", 1 + number / 250, 1 + number % 250)).collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    Flood::start(&lab.west, 1000, &addresses)
}

fn refused(lab: &RouterLab) -> u64 {
    lab.ask("counters")["forward"]["drops"]["neighbour-queue-full"].as_u64().unwrap_or(0)
}

#[test]
fn a_scan_takes_neither_buffers_nor_places_from_others() {
    // The kernel's own bound of neighbours is for all namespaces together.
    let Some(lab) = RouterLab::alone(1500, &["python3"]) else { return };
    lab.router.ip("address add 10.9.0.1/16 dev e0");
    // An eighth of these may wait.
    let process = lab.start("w0 e0", "--buffers 1024");
    RouterLab::check_ping(&lab.west, &["198.51.100.2"]);
    let scan = scan(&lab);
    RouterLab::wait_until("no more can wait", SHORT, || refused(&lab) > 0);

    let known = lab.west.run("ping -n -q -c 200 -i 0.01 -W 5 198.51.100.2");
    let line = known.output.lines().find(|line| line.contains("received")).unwrap_or_default().to_owned();
    let received = line.split(", ").nth(1).and_then(|part| part.split(' ').next()?.parse::<u32>().ok());
    assert!(received >= Some(195), "{}", known.text());
    // Those whom nobody has asked for yet.
    for address in ["198.51.100.3", "2001:db8:2::3"] {
        let new = lab.west.run(&format!("ping -n -c 5 -i 0.3 -W 5 {address}"));
        assert!(new.status.success(), "{}", new.text());
    }
    let counters = lab.ask("counters");
    assert!(counters["pools"][0]["lowest"].as_u64() > Some(0), "{counters:#}");
    scan.stop();
    lab.verify();
    RouterLab::finish(process);
}

/// By the interface of the scan so many new neighbours are asked for in a second and no more; by another one they are all found.
#[test]
fn a_scan_uses_up_the_quota_of_its_own_interface() {
    let Some(lab) = RouterLab::alone(1500, &["python3"]) else { return };
    let third = lab.third_host();
    lab.router.ip("address add 10.9.0.1/16 dev e0");
    let process = lab.start("w0 e0 x0", &format!("--pending-neighbours {FEW}"));
    let asked = || lab.ask("counters")["kernel"]["neighbour_requests"].as_u64().expect("a number");
    let (before, begin) = (asked(), Instant::now());
    let scan = scan(&lab);
    RouterLab::wait_until("all have had their turn", SHORT, || refused(&lab) > 2 * u64::from(NOBODY));
    let (requests, seconds) = (asked() - before, begin.elapsed().as_secs() + 1);
    // Twice as many as can wait at once and as often again in each second; those that wait are asked for once more in each, and
    // there are the hosts themselves.
    let most = u64::from(FEW) * (2 + 3 * seconds) + 10;
    assert!(requests <= most, "{requests} in {seconds} seconds");
    for address in ["198.51.100.3", "2001:db8:2::3"] {
        let new = third.run(&format!("ping -n -c 5 -i 0.3 -W 5 {address}"));
        assert!(new.status.success(), "{}", new.text());
    }
    scan.stop();
    lab.verify();
    RouterLab::finish(process);
}
