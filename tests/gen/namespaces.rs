//! `warmlane gen` measures `warmlane forward`, each in a network namespace of its own.
//!
//! ```text
//! tester                                   router
//! w0, from 192.0.2.2     ---------------   w1 192.0.2.1
//! e0, to 198.51.100.2    ---------------   e1 198.51.100.1
//! ```

use serde_json::Value;
use warmlane::sys::affinity;
use warmlane_system_tests::{LONG, SHORT, turn};
use warmlane_testkit::namespace::{self, Namespace};
use warmlane_testkit::process::{Process, warmlane};
use warmlane_testkit::promise::Watch;
use warmlane_testkit::requirements;

/// RFC 2544's tests of throughput and latency through a forwarder, by `driver` on all four ends.
fn measure(driver: &str) {
    if !requirements::namespaces_and(&["ip", "sysctl", "taskset"]) || !requirements::cpus(2) {
        return;
    }
    let _alone = turn::alone();
    let watch = Watch::start();
    let (tester, router) = (Namespace::new("tester"), Namespace::new("router"));
    for namespace in [&tester, &router] {
        // Nobody but the generator has anything to say.
        for scope in ["all", "default"] {
            namespace.set(&format!("net.ipv6.conf.{scope}.disable_ipv6"), "1");
        }
    }
    for (near, far) in [("w0", "w1"), ("e0", "e1")] {
        namespace::link((&tester, near), (&router, far), 1500);
    }
    let (program, cpus) = (warmlane(), affinity::allowed_cpus().unwrap());
    let on = |namespace: &Namespace, cpu: usize| {
        let mut command = namespace.command("taskset");
        command.args(["--cpu-list", &cpus[cpu].to_string()]).arg(program);
        command
    };
    // A tester's lanes go before others on their CPUs: the device gets one that has none of them.
    let mut forward = on(&router, 1);
    forward.args([
        "forward",
        "--json",
        "--port",
        &format!("west={driver}:w1"),
        "--port",
        &format!("east={driver}:e1"),
    ]);
    forward.args(["--address", "west=192.0.2.1/24", "--address", "east=198.51.100.1/24"]);
    forward.args(["--neighbour", &format!("198.51.100.2={}@east", tester.mac("e0"))]);
    let mut forwarder = Process::spawn(&mut forward);
    forwarder.wait_for("note: port 'east'", SHORT);

    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = |name: &str| directory.path().join(name);
    let mut generate = on(&tester, 0);
    generate.args([
        "gen",
        "rfc2544",
        "--transmit",
        &format!("{driver}:w0"),
        "--receive",
        &format!("{driver}:e0"),
    ]);
    generate.args(["--from", "192.0.2.2", "--to", "198.51.100.2", "--to-mac", &router.mac("w1")]);
    generate.args([
        "--test",
        "latency",
        "--frame-sizes",
        "64,512,1518",
        "--maximum",
        "4kpps",
        "--duration",
        "0.5",
    ]);
    // Lanes that never sleep share what CPUs there are with other tests.
    generate.args([
        "--repetitions",
        "2",
        "--width",
        "20",
        "--patience",
        "1000",
        "--drain",
        "1",
        "--settle",
        "0.1",
        "--tolerance",
        "5",
    ]);
    generate.arg("--result").arg(file("result.json")).arg("--report").arg(file("page.html"));
    let finished = Process::run(&mut generate, LONG);
    if finished.errors.contains("void") && watch.is_busy("trials are void") {
        return;
    }
    let text = finished.expect_success("warmlane gen");
    println!("{text}");
    let result: Value = serde_json::from_slice(&std::fs::read(file("result.json")).unwrap()).unwrap();
    for (number, size) in [64, 512, 1518].into_iter().enumerate() {
        let of = &result["sizes"][number];
        assert_eq!(of["size"].as_u64(), Some(size));
        let rate = of["throughput"]["packets_per_second"].as_f64();
        assert!(rate.is_some_and(|rate| rate > 0.0 && rate <= 4_000.0), "{text}");
        let latency = |part: &str| of["latency"]["all"][part].as_u64().unwrap();
        assert!(latency("minimum") > 0 && latency("minimum") <= latency("p99"), "{text}");
        let row = text.lines().filter(|line| line.trim_start().starts_with(&format!("{size} "))).count();
        assert_eq!(row, 2, "a row in both tables: {text}");
    }
    assert!(std::fs::read_to_string(file("page.html")).unwrap().contains("<svg"));
    forwarder.interrupt();
    let finished = forwarder.finish(SHORT);
    let report = warmlane_testkit::Report::parse(finished.expect_success("warmlane forward"));
    report.assert_balanced();
}

#[test]
fn a_forwarder_is_measured_over_packet_sockets() {
    measure("packet");
}

#[test]
fn a_forwarder_is_measured_over_xdp_sockets() {
    measure("xdp");
}
