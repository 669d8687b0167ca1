//! Somebody scans a network on a link of `warmlane router`'s: all others must not notice.

use warmlane_system_tests::{Flood, RouterLab, SHORT};

/// More neighbours than are waited for at a time, all of which nobody is.
const NOBODY: u16 = 600;

#[test]
fn a_scan_takes_neither_buffers_nor_places_from_others() {
    // The kernel's own bound of neighbours is for all namespaces together.
    let Some(lab) = RouterLab::alone(1500, &["python3"]) else { return };
    lab.router.ip("address add 10.9.0.1/16 dev e0");
    // An eighth of these may wait.
    let process = lab.start("w0 e0", "--buffers 1024");
    RouterLab::check_ping(&lab.west, &["198.51.100.2"]);
    let addresses: Vec<String> =
        (0..NOBODY).map(|number| format!("10.9.{}.{}", 1 + number / 250, 1 + number % 250)).collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let scan = Flood::start(&lab.west, 1000, &addresses);
    let dropped = |reason: &str| lab.ask("counters")["forward"]["drops"][reason].as_u64().unwrap_or(0);
    RouterLab::wait_until("no more can wait", SHORT, || dropped("neighbour-queue-full") > 0);

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
