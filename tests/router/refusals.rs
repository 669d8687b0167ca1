//! What `warmlane router` says where it can't work: what is wrong, and what to do. Nothing is changed then.

use std::fs;

use warmlane_system_tests::{RouterLab, SHORT, assert_refused};
use warmlane_testkit::process::{Process, warmlane};

/// What a router that refuses must not have changed: links, XDP programs, addresses, settings of the interfaces, the socket.
fn state(lab: &RouterLab) -> String {
    let links = lab.router.run("ip -oneline link show").output;
    // Without the state, which may be on its way from the test's own changes.
    let settings = |line: &str| {
        let what = line.split(" qdisc ").next().unwrap_or_default();
        let what = what.replace("NO-CARRIER,", "").replace(",LOWER_UP", "");
        format!("{what} {}\n", line.contains("prog/xdp"))
    };
    let links: String = links.lines().map(settings).collect();
    let addresses = lab.router.run("ip -4 -oneline address show").output;
    let rules = lab.router.run("ip rule show").output;
    format!("{links}{addresses}{rules}{}", lab.socket().exists())
}

#[track_caller]
fn refused(lab: &RouterLab, interfaces: &str, options: &str, parts: &[&str]) {
    let before = state(lab);
    assert_refused(&lab.spawn(interfaces, options).finish(SHORT), parts);
    assert_eq!(state(lab), before, "{interfaces} {options}");
}

#[test]
fn another_program_is_named_with_the_remedy() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    let process = lab.start("w0", "");
    // Another socket, so that it isn't the first router's that is in the way.
    let other = lab.directory().join("other.sock");
    let mut command = lab.router.command(warmlane());
    command.args(["router", "e0", "w0", "--path", "user", "--quiet", "--socket"]).arg(&other);
    let second = Process::run(&mut command, SHORT);
    assert_refused(&second, &["another XDP program (number ", "\"w0\"", "ip link set w0 xdp off"]);
    assert!(!other.exists());
    // The first goes on.
    RouterLab::check_ping(&lab.west, &["192.0.2.1"]);
    assert_eq!(lab.ask("status")["ports"][0]["up"], true);
    RouterLab::finish(process);
}

/// Whoever asks for what is best gets that where nothing is in the way, and elsewhere the kernel.
#[test]
fn on_the_best_path_the_kernel_keeps_what_others_have() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    let third = lab.third_host();
    let mut command = lab.router.command(warmlane());
    command
        .args(["router", "e0", "--path", "tc", "--quiet", "--socket"])
        .arg(lab.directory().join("other.sock"));
    let mut other = Process::spawn(&mut command);
    other.wait_for("note: forwarding between e0", SHORT);
    // A path that is asked for is that or nothing, and to forward nowhere is nothing.
    refused(&lab, "w0 e0 x0", "--path e0=tc", &["another tc program", "\"e0\""]);
    refused(&lab, "e0", "--path best", &["another tc program", "\"e0\""]);
    let mut process = lab.spawn("w0 e0 x0", "--path best");
    process.wait_for("interface 'e0' is left to the kernel: another tc program", SHORT);
    process.wait_for("note: forwarding between w0, x0", SHORT);
    let status = lab.ask("status");
    let paths = status["paths"].as_array().expect("a list");
    let names: Vec<&str> = paths.iter().filter_map(|path| path["interface"].as_str()).collect();
    assert_eq!(names, ["w0", "x0"], "{status:#}");
    assert!(status["warnings"].to_string().contains("interface 'e0' is left to the kernel"), "{status:#}");
    // All reach each other.
    RouterLab::check_ping(&lab.west, &["192.0.3.2", "2001:db8:3::2", "198.51.100.2", "2001:db8:2::2"]);
    RouterLab::check_ping(&lab.east, &["192.0.2.2", "192.0.3.2"]);
    RouterLab::check_ping(&third, &["192.0.2.2", "2001:db8:2::2"]);
    assert!(lab.forwarded_from("w0") > 0, "{:#}", lab.ask("counters"));
    lab.verify();
    RouterLab::end(process);
    // So it is with one that is added.
    let file = lab.directory().join("router.toml");
    let write = |text: &str| fs::write(&file, text).expect("a writable directory");
    write("interfaces = [\"w0\", \"x0\"]\npath = \"best\"\n");
    let mut command = lab.router.command(warmlane());
    command.args(["router", "--quiet", "--config"]).arg(&file).arg("--socket").arg(lab.socket());
    let mut process = Process::spawn(&mut command);
    process.wait_for("note: forwarding between w0, x0", SHORT);
    write("interfaces = [\"w0\", \"x0\", \"e0\"]\npath = [\"best\", \"e0=tc\"]\n");
    assert_refused(&lab.try_ask("reload"), &["nothing was changed", "another tc program", "\"e0\""]);
    write("interfaces = [\"w0\", \"x0\", \"e0\"]\npath = \"best\"\n");
    let changed = lab.ask("reload")["changed"].to_string();
    assert!(changed.contains("interface 'e0' is left to the kernel: another tc program"), "{changed}");
    assert!(lab.ask("status")["warnings"].to_string().contains("interface 'e0' is left to the kernel"));
    RouterLab::check_ping(&lab.west, &["192.0.3.2", "198.51.100.2"]);
    // The other goes on, and once it has ended its place is free.
    assert!(!other.has_ended());
    RouterLab::end(other);
    let changed = lab.ask("reload")["changed"].to_string();
    assert!(changed.contains("interface 'e0' is new: path tc"), "{changed}");
    assert!(!lab.ask("status")["warnings"].to_string().contains("left to the kernel"));
    let before = lab.forwarded_from("e0");
    RouterLab::check_ping(&lab.east, &["192.0.2.2", "192.0.3.2"]);
    assert!(lab.forwarded_from("e0") > before, "{:#}", lab.ask("counters"));
    lab.verify();
    RouterLab::end(process);
}

#[test]
fn interfaces_that_can_not_are_named_with_the_remedy() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    refused(&lab, "w0 e0", "--lanes 2", &["w0", "has 1 queue(s), and 2 are needed", "ethtool -L w0"]);
    refused(&lab, "w0 lo0", "", &["\"lo0\"", "ip link"]);
    lab.router.ip("link add br0 type bridge");
    lab.router.ip("link set br0 up");
    lab.router.ip("link set e0 master br0");
    refused(&lab, "w0 e0", "", &["member of bridge \"br0\"", "ip link set e0 nomaster"]);
    refused(&lab, "w0 br0", "", &["\"br0\" is a bridge", "open its members"]);
    lab.router.ip("link set e0 nomaster");
    refused(
        &lab,
        "w0 e0",
        "--mode zero-copy",
        &["\"w0\" can't exchange packets without copies", "mode=best"],
    );
    for path in ["user", "tc", "best"] {
        refused(&lab, "w0 lo", &format!("--path {path}"), &["\"lo\" is the loopback", "leave it out"]);
    }
    refused(&lab, "w0 e0", "--buffers 10", &["10 buffers are too few", "--buffers 1024"]);
    lab.router.ip("link set e0 down");
    refused(&lab, "w0 e0", "", &["\"e0\" is down", "ip link set e0 up"]);
}

#[test]
fn the_control_socket_makes_no_directories() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    let directory = lab.directory().join("none");
    let mut command = lab.router.command(warmlane());
    command.args(["router", "w0", "e0", "--socket"]).arg(directory.join("router.sock"));
    let before = state(&lab);
    assert_refused(
        &Process::run(&mut command, SHORT),
        &["no directory", &format!("mkdir {}", directory.display())],
    );
    assert!(!directory.exists());
    assert_eq!(state(&lab), before);
}

#[test]
fn typos_are_named_with_their_place() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    let file = lab.directory().join("router.toml");
    for (text, parts) in [
        ("interfaces = [\"w0\"]\nicmp_rate = 7", &["router.toml", "line 2, column 1"][..]),
        ("interfaces = [\"w0\"]\nmode = \"fast\"", &["router.toml", "line 2, column 8"]),
        ("interfaces = \"w0\"", &["router.toml", "line 1, column 14"]),
        ("interfaces = [\"w0\"", &["router.toml", "line 1"]),
        ("interfaces = [\"w0\"]\nurpf = 1", &["router.toml", "line 2, column 8"]),
        ("interfaces = [\"w0\", \"e0\"]\nurpf = [\"e1=strict\"]", &["urpf names 'e1'", "ip link"]),
        ("interfaces = []", &["which interfaces", "warmlane router eth0 eth1"]),
    ] {
        std::fs::write(&file, text).expect("a writable directory");
        refused(&lab, "", &format!("--config {}", file.display()), parts);
    }
    refused(&lab, "", "--config /nowhere/router.toml", &["can't read /nowhere/router.toml"]);
}

/// Without privilege, and with all but one of the capabilities: which one is missing is said.
#[test]
fn missing_permission_is_named() {
    let Some(lab) = RouterLab::new(1500, &["setpriv"]) else { return };
    let all = ["net_admin", "net_raw", "bpf", "ipc_lock"];
    for without in [None, Some("net_admin"), Some("net_raw"), Some("bpf")] {
        let all = all.iter().copied().filter(|name| Some(*name) != without && without.is_some());
        let mut command = lab.as_nobody_with(&all.collect::<Vec<_>>(), &[]);
        let before = state(&lab);
        let finished = Process::run(&mut command, SHORT);
        let missing = without.map_or("CAP_".to_owned(), |name| format!("CAP_{}", name.to_uppercase()));
        assert_refused(&finished, &[&missing]);
        assert_eq!(state(&lab), before, "without {without:?}");
    }
}
