//! Interfaces of `warmlane router` come and go while it runs, and the others go on.

use std::fs;

use warmlane_system_tests::flows::{self, Received, Receiver};
use warmlane_system_tests::{RouterLab, SHORT, assert_refused};
use warmlane_testkit::namespace::{self, Namespace};

/// Whether a link of the router's namespace says so.
fn links_say(lab: &RouterLab, what: &str) -> bool {
    lab.router.run("ip -details link show").output.contains(what)
}

fn path(lab: &RouterLab, interface: &str) -> Option<String> {
    let status = lab.ask("status");
    let paths = status["paths"].as_array().unwrap_or_else(|| panic!("no paths: {status:#}"));
    let found = paths.iter().find(|path| path["interface"] == interface)?;
    Some(found["path"].as_str().expect("a word").to_owned())
}

/// Three hosts that take redirected frames, and a route to an address behind the eastern one.
fn lab_with_third_host() -> Option<(RouterLab, Namespace)> {
    let lab = RouterLab::new(1500, &["python3"])?;
    let third = lab.third_host();
    lab.hosts_take_redirected();
    RouterLab::take_redirected(&third, "x0");
    lab.east.ip("address add 203.0.113.1/32 dev lo");
    lab.router.ip("route add 203.0.113.1 via 198.51.100.2");
    Some((lab, third))
}

#[test]
fn a_reload_adds_and_removes_them_without_a_packet_lost_of_the_others() {
    for path_of_all in ["tc", "xdp", "user"] {
        let Some((lab, third)) = lab_with_third_host() else { return };
        let file = lab.directory().join("router.toml");
        let write = |interfaces: &str| {
            fs::write(&file, format!("interfaces = [{interfaces}]\npath = \"{path_of_all}\"\n"))
                .expect("a writable directory");
        };
        write("\"w0\", \"e0\"");
        let mut process = lab.start("", &format!("--path {path_of_all} --config {}", file.display()));
        RouterLab::check_ping(&lab.west, &["203.0.113.1", "192.0.3.2"]);
        let receiver = Receiver::start(&lab.east, "203.0.113.1");
        let mut sender = flows::send(&lab.west, "203.0.113.1", &[&receiver]);
        let mut rounds = 0;
        // On a busy machine one round may take as long as all packets.
        while !sender.has_ended() || rounds < 2 {
            write("\"w0\", \"e0\", \"x0\"");
            let answer = lab.ask("reload");
            assert!(answer["changed"].to_string().contains("interface 'x0' is new: path "), "{answer:#}");
            write("\"w0\", \"e0\"");
            let answer = lab.ask("reload");
            assert_eq!(answer["changed"], serde_json::json!(["interface 'x0' is left to the kernel"]));
            rounds += 1;
        }
        sender.finish(SHORT).expect_success("send");
        assert_eq!(Receiver::finish([receiver]), [Received::ALL], "{path_of_all}");

        // By a signal; and it forwards there, both ways.
        let before = lab.forwarded_from("x0");
        RouterLab::check_ping(&third, &["198.51.100.2"]);
        assert_eq!(lab.forwarded_from("x0"), before, "it is the kernel's now");
        RouterLab::check_ping(&lab.west, &["192.0.3.2", "2001:db8:3::2"]);
        // What leads packets to the kernel has gone with it.
        assert!(!links_say(&lab, "warmlane2:"));
        write("\"w0\", \"e0\", \"x0\"");
        process.signal("HUP");
        process.wait_for("note: read again, interface 'x0' is new: path ", SHORT);
        assert_eq!(path(&lab, "x0").as_deref(), Some(path_of_all));
        RouterLab::check_ping(&third, &["198.51.100.2", "2001:db8:2::2"]);
        // One packet of each neighbour in a second is the kernel's, so that it checks whether that is there.
        assert!(lab.forwarded_from("x0") >= before + 2);

        // What can't be is refused, and all is as before.
        write("\"w0\", \"e0\", \"x0\", \"x7\"");
        assert_refused(&lab.try_ask("reload"), &["nothing was changed", "no interface \"x7\""]);
        write("\"w0\", \"x0\", \"x0\"");
        assert_refused(&lab.try_ask("reload"), &["nothing was changed", "'x0' is there twice"]);
        assert_eq!(path(&lab, "e0").as_deref(), Some(path_of_all));
        RouterLab::check_ping(&third, &["198.51.100.2"]);
        lab.verify();
        if path_of_all == "user" {
            // The box itself, and what only the kernel can do.
            RouterLab::check_ping(&third, &["192.0.3.1", "2001:db8:3::1"]);
            let trace = third.run("traceroute -n -q 1 -w 10 -m 3 192.0.2.2");
            assert!(trace.output.contains(" 192.0.3.1 "), "{}", trace.text());
            RouterLab::finish(process);
        } else {
            RouterLab::end(process);
        }
        assert!(!links_say(&lab, "prog/xdp"));
    }
}

/// So many as lanes have space for, and then no more; one that has gone makes space.
#[test]
fn lanes_say_when_they_have_no_space_for_more() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    let file = lab.directory().join("router.toml");
    let write = |more: &[String]| {
        let names: Vec<String> = ["w0", "e0"].iter().map(ToString::to_string).chain(more.to_vec()).collect();
        fs::write(&file, format!("interfaces = {names:?}\n")).expect("a writable directory");
    };
    let more: Vec<String> = (0..9).map(|number| format!("m{number}")).collect();
    for name in &more {
        lab.router.ip(&format!("link add {name} type veth peer name {name}p"));
        lab.router.ip(&format!("link set {name} up"));
        lab.router.ip(&format!("link set {name}p up"));
    }
    write(&[]);
    let process = lab.start("", &format!("--config {}", file.display()));
    write(&more);
    assert_refused(&lab.try_ask("reload"), &["nothing was changed", "'m8'", "10 ports", "started again"]);
    assert_eq!(lab.ask("status")["ports"].as_array().map(Vec::len), Some(2));
    assert!(!links_say(&lab, "warmlane2:"));
    write(&more[1..]);
    assert_eq!(lab.ask("reload")["changed"].as_array().map(Vec::len), Some(8));
    write(&[&more[..1], &more[2..]].concat());
    let answer = lab.ask("reload");
    assert_eq!(answer["changed"].as_array().map(Vec::len), Some(2), "{answer:#}");
    RouterLab::check_ping(&lab.west, &["198.51.100.2"]);
    RouterLab::finish(process);
}

/// What was done before something is refused is undone.
#[test]
fn a_reload_that_is_refused_halfway_leaves_all_as_it_was() {
    let Some(lab) = RouterLab::with_queues(1500, 2, &[]) else { return };
    let _third = lab.third_host();
    let file = lab.directory().join("router.toml");
    let write = |text: &str| fs::write(&file, format!("lanes = 2\n{text}\n")).expect("a writable directory");
    write("interfaces = [\"w0\", \"e0\"]\npath = \"user\"");
    let mut command = lab.router.command(warmlane_testkit::process::warmlane());
    command.args(["router", "--json", "--quiet", "--config"]).arg(&file).arg("--socket").arg(lab.socket());
    let mut process = warmlane_testkit::process::Process::spawn(&mut command);
    process.wait_for("note: forwarding between", SHORT);
    RouterLab::check_ping(&lab.west, &["198.51.100.2"]);
    write("interfaces = [\"w0\", \"e0\", \"x0\"]\npath = [\"user\", \"e0=tc\"]");
    // It has one queue only, and lanes are two.
    assert_refused(&lab.try_ask("reload"), &["nothing was changed", "'x0' can't come to path user", "queue"]);
    assert_eq!(path(&lab, "e0").as_deref(), Some("user"));
    assert_eq!(path(&lab, "x0"), None);
    let before = (lab.forwarded_from("w0"), lab.forwarded_from("e0"));
    RouterLab::check_ping(&lab.west, &["198.51.100.2", "2001:db8:2::2"]);
    RouterLab::check_ping(&lab.east, &["192.0.2.2"]);
    assert!(lab.forwarded_from("w0") >= before.0 + 9 && lab.forwarded_from("e0") >= before.1 + 9);
    lab.verify();
    RouterLab::finish(process);
}

#[test]
fn a_reload_moves_one_to_another_path() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    RouterLab::take_redirected(&lab.east, "e0");
    RouterLab::take_redirected(&lab.west, "w0");
    let file = lab.directory().join("router.toml");
    let write = |path: &str| {
        fs::write(&file, format!("interfaces = [\"w0\", \"e0\"]\npath = {path}\n"))
            .expect("a writable directory");
    };
    let start = |options: &[&str]| {
        let mut command = lab.router.command(warmlane_testkit::process::warmlane());
        command.args(["router", "--quiet", "--config"]).arg(&file).arg("--socket").arg(lab.socket());
        let mut process = warmlane_testkit::process::Process::spawn(command.args(options));
        process.wait_for("note: forwarding between", SHORT);
        process
    };
    // With established flows both paths have programs at the hooks of tc.
    for options in [&[][..], &["--offload-established"]] {
        write("\"tc\"");
        let process = start(options);
        RouterLab::check_ping(&lab.west, &["198.51.100.2"]);
        write("[\"tc\", \"w0=xdp\"]");
        let answer = lab.ask("reload");
        assert_eq!(
            answer["changed"],
            serde_json::json!(["interface 'w0' was on path tc: path xdp: as it was asked for"])
        );
        assert_eq!((path(&lab, "w0").as_deref(), path(&lab, "e0").as_deref()), (Some("xdp"), Some("tc")));
        assert!(lab.router.run("ip -details link show w0").output.contains("prog/xdp"));
        RouterLab::check_ping(&lab.west, &["198.51.100.2"]);
        RouterLab::check_ping(&lab.east, &["192.0.2.2"]);
        write("\"tc\"");
        lab.ask("reload");
        assert!(!lab.router.run("ip -details link show w0").output.contains("prog/xdp"));
        RouterLab::check_ping(&lab.west, &["198.51.100.2"]);
        // Nobody forwards in user space, and so nobody can begin to.
        write("[\"tc\", \"w0=user\"]");
        assert_refused(
            &lab.try_ask("reload"),
            &["nothing was changed", "there are no lanes", "started again"],
        );
        assert_eq!(path(&lab, "w0").as_deref(), Some("tc"));
        RouterLab::check_ping(&lab.west, &["198.51.100.2"]);
        RouterLab::end(process);
    }

    // From and to lanes, which others keep.
    write("\"user\"");
    let process = start(&[]);
    for (words, of_w0) in [
        ("[\"user\", \"w0=tc\"]", "tc"),
        ("\"user\"", "user"),
        ("[\"user\", \"w0=xdp\"]", "xdp"),
        ("\"user\"", "user"),
    ] {
        write(words);
        let answer = lab.ask("reload");
        assert_eq!(path(&lab, "w0").as_deref(), Some(of_w0), "{answer:#}");
        let before = lab.forwarded_from("w0");
        RouterLab::check_ping(&lab.west, &["198.51.100.2", "2001:db8:2::2"]);
        RouterLab::check_ping(&lab.east, &["192.0.2.2"]);
        // What xdp can't redirect to lanes' interfaces is the kernel's.
        assert!(of_w0 == "xdp" || lab.forwarded_from("w0") >= before + 4, "{of_w0}");
        lab.verify();
    }
    RouterLab::end(process);
}

#[test]
fn one_that_is_made_again_is_taken_again() {
    for path_of_all in ["tc", "xdp"] {
        let Some((lab, third)) = lab_with_third_host() else { return };
        let mut process = lab.start("w0 e0 x0", &format!("--path {path_of_all}"));
        RouterLab::check_ping(&lab.west, &["203.0.113.1", "192.0.3.2"]);
        let receiver = Receiver::start(&lab.east, "203.0.113.1");
        let sender = flows::send(&lab.west, "203.0.113.1", &[&receiver]);
        lab.router.ip("link delete x0");
        process.wait_for("interface x0 went away: it was deleted", SHORT);
        assert_eq!(lab.ask("status")["paths"][2]["gone"], true);
        drop(third);
        let third = lab.third_host();
        RouterLab::take_redirected(&third, "x0");
        process.wait_for(&format!("note: interface 'x0' is there again: path {path_of_all}"), SHORT);
        assert!(lab.ask("status")["paths"][2].get("gone").is_none());
        sender.finish(SHORT).expect_success("send");
        assert_eq!(Receiver::finish([receiver]), [Received::ALL], "{path_of_all}");
        let before = (lab.forwarded_from("x0"), lab.forwarded_from("w0"));
        RouterLab::check_ping(&third, &["192.0.2.2", "2001:db8:1::2"]);
        // What it counted before it went is not forgotten.
        assert!(before.0 > 0 && lab.forwarded_from("x0") >= before.0 + 2, "{before:?}");
        assert!(lab.forwarded_from("w0") >= before.1 + 2, "{before:?}");
        RouterLab::end(process);
    }
}

/// It is planned for as what it is then, and if that can't take the path that was asked for, the kernel has it.
#[test]
fn one_that_is_made_again_as_another_kind_gets_what_that_can_do() {
    for (path_of_all, said, is_taken) in [
        ("best", "note: interface 'x0' is there again: path tc", true),
        ("xdp", "interface 'x0' is there again, and left to the kernel: ", false),
    ] {
        let Some((lab, third)) = lab_with_third_host() else { return };
        let mut process = lab.start("w0 e0 x0", &format!("--path {path_of_all}"));
        RouterLab::check_ping(&lab.west, &["203.0.113.1", "192.0.3.2"]);
        lab.router.ip("link delete x0");
        process.wait_for("interface x0 went away: it was deleted", SHORT);
        // A bridge, with the host behind it.
        lab.router.ip("link add x0 type bridge");
        namespace::link((&lab.router, "p0"), (&third, "x0"), 1500);
        lab.router.ip("link set p0 master x0");
        for (host, last) in [(&lab.router, 1), (&third, 2)] {
            host.ip(&format!("address add 192.0.3.{last}/24 dev x0"));
        }
        third.ip("route add default via 192.0.3.1");
        lab.router.ip("link set x0 up");
        process.wait_for(said, SHORT);
        RouterLab::wait_for_answer(&third, "192.0.2.2");
        let before = lab.forwarded_from("x0");
        RouterLab::check_ping(&third, &["192.0.2.2", "198.51.100.2"]);
        assert_eq!(lab.forwarded_from("x0") > before, is_taken, "{:#}", lab.ask("counters"));
        RouterLab::check_ping(&lab.west, &["203.0.113.1", "192.0.3.2"]);
        lab.verify();
        RouterLab::end(process);
    }
}

/// On path `user`: lanes go on with other queues, while packets between the others flow.
#[test]
fn one_that_is_made_again_is_taken_again_by_lanes() {
    let Some(lab) = RouterLab::new(1500, &["python3", "setpriv"]) else { return };
    let third = lab.third_host();
    lab.east.ip("address add 203.0.113.1/32 dev lo");
    lab.router.ip("route add 203.0.113.1 via 198.51.100.2");
    // With no more capabilities than the service has.
    let mut command = lab.as_nobody_on("user", &["net_admin", "net_raw", "bpf", "ipc_lock"], &[]);
    let mut process = warmlane_testkit::process::Process::spawn(command.arg("x0"));
    process.wait_for("note: forwarding between", SHORT);
    RouterLab::check_ping(&lab.west, &["203.0.113.1", "192.0.3.2"]);
    let receiver = Receiver::start(&lab.east, "203.0.113.1");
    let mut sender = flows::send(&lab.west, "203.0.113.1", &[&receiver]);
    let (mut third, mut rounds) = (Some(third), 0);
    while !sender.has_ended() || rounds < 2 {
        lab.router.ip("link delete x0");
        process.wait_for("interface x0 went away: it was deleted", SHORT);
        RouterLab::wait_until("it is gone", SHORT, || lab.ask("status")["paths"][2]["gone"] == true);
        drop(third.take());
        let host = third.insert(lab.third_host());
        process.wait_for("note: interface 'x0' is there again: path user", SHORT);
        let forwarded = || lab.ask("counters")["forward"]["forwarded"].as_u64().expect("a number");
        let before = forwarded();
        RouterLab::wait_for_answer(host, "192.0.2.2");
        RouterLab::check_ping(host, &["192.0.2.2", "2001:db8:1::2"]);
        RouterLab::check_ping(&lab.west, &["192.0.3.2", "2001:db8:3::2"]);
        assert!(forwarded() >= before + 24);
        // The box itself, what only the kernel can do, and the tables.
        RouterLab::check_ping(host, &["192.0.3.1", "2001:db8:3::1"]);
        let trace = host.run("traceroute -n -q 1 -w 10 -m 3 192.0.2.2");
        assert!(trace.output.contains(" 192.0.3.1 "), "{}", trace.text());
        lab.verify();
        rounds += 1;
    }
    sender.finish(SHORT).expect_success("send");
    assert_eq!(Receiver::finish([receiver]), [Received::ALL]);
    RouterLab::finish(process);
}
