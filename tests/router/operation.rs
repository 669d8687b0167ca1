//! What whoever runs `warmlane router` is told, and can ask for.

use warmlane_system_tests::{RouterLab, SHORT};

#[test]
fn it_says_how_full_its_pool_is() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    let process = lab.start("w0 e0", "--buffers 8192");
    RouterLab::check_ping(&lab.west, &["198.51.100.2"]);
    let counters = lab.ask("counters");
    let pool = |name: &str| counters["pools"][0][name].as_u64().unwrap_or_else(|| panic!("{counters:#}"));
    // Receive queues hold some, so there were never all of them.
    assert!(pool("available") < pool("buffers") && pool("lowest") < pool("buffers"), "{counters:#}");
    assert_eq!(pool("refused"), 0, "{counters:#}");
    let report = RouterLab::finish(process);
    assert_eq!(report.number("/pools/0/available"), 8192, "{:#}", report.value());
    assert!(report.number("/pools/0/lowest") < 8192, "{:#}", report.value());
}

#[test]
fn expiring_packets_are_the_kernels_if_it_is_to_answer() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    // Everybody answers all that they are asked.
    for namespace in [&lab.router, &lab.east] {
        namespace.set("net.ipv4.icmp_ratelimit", "0");
        namespace.set("net.ipv6.icmp.ratelimit", "0");
    }
    for (options, by_us) in [("", 2), ("--pass-expiring", 0)] {
        let process = lab.start("w0 e0", options);
        for (address, hop) in [("198.51.100.2", "192.0.2.1"), ("2001:db8:2::2", "2001:db8:1::1")] {
            let line = format!("traceroute -n -q 1 -w 5 {address}");
            let trace = lab.west.run(&line).output;
            let hops: Vec<_> =
                trace.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
            assert_eq!(hops, [hop, address], "{options}: {trace}");
        }
        let report = RouterLab::finish(process);
        assert_eq!(report.number("/forward/icmp_errors"), by_us, "{options}: {:#}", report.value());
    }
}

#[test]
fn it_polls_the_interfaces_itself_if_asked() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    let file = lab.directory().join("router.toml");
    std::fs::write(&file, "interfaces = [\"w0\", \"e0\"]\nbusy-poll = true\n").expect("a writable directory");
    let mut process = lab.spawn("", &format!("--config {}", file.display()));
    process.wait_for("busy polling", SHORT);
    process.wait_for("note: forwarding between", SHORT);
    RouterLab::check_ping(&lab.west, &["198.51.100.2", "2001:db8:2::2"]);
    RouterLab::finish(process);
}

/// More in one answer than a socket holds, and questions behind it.
#[test]
fn questions_in_one_write_are_all_answered_also_to_who_reads_slowly() {
    use std::io::{BufRead as _, BufReader, Write as _};
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    let file = lab.directory().join("routes");
    let route =
        |number: u32| format!("route add 203.{}.{}.0/24 via 198.51.100.2\n", number / 250, number % 250);
    let routes: Vec<String> = (0..20_000).map(route).collect();
    std::fs::write(&file, routes.concat()).expect("a writable directory");
    lab.router.ip(&format!("-batch {}", file.display()));
    let process = lab.start("w0 e0", "");
    let mut client = std::os::unix::net::UnixStream::connect(lab.socket()).expect("it listens");
    client
        .write_all(b"{\"ask\":\"routes\",\"limit\":100000}\n{\"ask\":\"status\"}\n{\"ask\":\"verify\"}\n")
        .expect("it reads");
    std::thread::sleep(std::time::Duration::from_millis(500));
    // Meanwhile others are answered.
    lab.verify();
    let lines: Vec<serde_json::Value> = BufReader::new(client)
        .lines()
        .take(3)
        .map(|line| serde_json::from_str(&line.expect("it answers")).expect("JSON"))
        .collect();
    assert!(lines[0]["routes"].as_array().is_some_and(|routes| routes.len() > 20_000));
    assert!(lines[1]["ports"].is_array() && lines[2]["equal"] == true);
    RouterLab::finish(process);
}
