//! `warmlane router` in trouble: what it says, what it refuses, what is left of it, and whether its tables are right.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use warmlane_system_tests::{Flood, RouterLab, SHORT, assert_refused};
use warmlane_testkit::process::{Process, warmlane};
use warmlane_testkit::promise::Watch;

const FAR: [&str; 2] = ["198.51.100.2", "2001:db8:2::2"];
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn it_says_how_it_is() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    let process = lab.start("w0 e0", "");
    RouterLab::check_ping(&lab.west, &FAR);
    let mode = std::fs::metadata(lab.socket()).expect("the control socket is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let status = lab.ask("status");
    assert_eq!(status["ports"][0]["interface"], "w0", "{status:#}");
    assert_eq!(status["ports"][1]["mtu"], 1500, "{status:#}");
    let neighbours = lab.ask("neighbours");
    let known = neighbours["neighbours"].as_array().expect("a list");
    assert!(known.iter().any(|each| each["address"] == "198.51.100.2" && each["interface"] == "e0"));
    let route = lab.ask("routes 198.51.100.2");
    assert_eq!(route["routes"][0]["prefix"], "198.51.100.2/32", "{route:#}");
    let counters = lab.ask("counters");
    assert!(counters["forward"]["forwarded"].as_u64() >= Some(12), "{counters:#}");
    assert!(counters["kernel"]["neighbour_requests"].as_u64() >= Some(1), "{counters:#}");
    lab.verify();
    // A table that isn't there, and a second router.
    assert_refused(&lab.try_ask("routes --table 7"), &["no table 7"]);
    let second = lab.spawn("w0 e0", "").finish(SHORT);
    assert_refused(&second, &["w0"]);
    RouterLab::finish(process);
    assert!(!lab.socket().exists());
    assert_refused(&lab.try_ask("status"), &["no router answers"]);
}

#[test]
fn the_kernel_forwards_again_at_once_when_it_is_killed() {
    let Some(lab) = RouterLab::new(1500, &["python3"]) else { return };
    let process = lab.start("w0 e0", "");
    RouterLab::check_ping(&lab.west, &FAR);
    let floods = [(&lab.west, "198.51.100.3"), (&lab.east, "192.0.2.2")]
        .map(|(host, address)| Flood::start(host, 0, &[address]));
    std::thread::sleep(Duration::from_millis(500));
    assert!(lab.router.run("ip -details link show").output.contains("prog/xdp"));
    let watch = Watch::start();
    process.signal("KILL");
    // One ping may get lost in the flood, but not all of a second's.
    let back = RouterLab::wait_until("the kernel forwards again", SHORT, || {
        lab.west.run("ping -n -q -c 50 -i 0.002 -W 0.1 198.51.100.2").status.success()
    });
    watch.check(back < SECOND, || format!("the kernel forwards again after {back:?}"));
    drop(process);
    let links = lab.router.run("ip -details link show").output;
    assert!(!links.contains("prog/xdp") && !links.contains("warmlane"), "{links}");
    // The socket that it left behind is no obstacle.
    assert!(lab.socket().exists());
    let process = lab.start("w0 e0", "");
    for flood in floods {
        flood.stop();
    }
    RouterLab::check_ping(&lab.west, &FAR);
    lab.verify();
    RouterLab::finish(process);
}

#[test]
fn links_change_and_the_rest_goes_on() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    let _third = lab.third_host();
    let mut process = lab.start("w0 e0 x0", "");
    RouterLab::check_ping(&lab.west, &["198.51.100.2", "192.0.3.2"]);

    lab.router.ip("link set e0 down");
    process.wait_for("interface e0 was set down", SHORT);
    let gone = lab.west.run("ping -n -c 1 -W 2 198.51.100.2");
    assert!(!gone.status.success() && gone.output.contains("nreachable"), "{}", gone.text());
    RouterLab::check_ping(&lab.west, &["192.0.3.2"]);
    lab.verify();
    lab.router.ip("link set e0 up");
    process.wait_for("interface e0 was set up again", SHORT);
    // The kernel has dropped the interface's IPv6 address and its routes meanwhile.
    RouterLab::wait_for_answer(&lab.west, "198.51.100.2");
    lab.verify();

    lab.router.ip("link set e0 mtu 1400");
    process.wait_for("interface e0 has an MTU of 1400", SHORT);
    lab.west.ip("route flush cache");
    let large = lab.west.run("ping -n -c 1 -W 2 -M do -s 1472 198.51.100.2");
    assert!(large.text().contains("mtu = 1400"), "{}", large.text());

    lab.router.ip("link set w0 down");
    lab.router.ip("link set w0 name west9");
    lab.router.ip("link set west9 up");
    process.wait_for("interface w0 is now called west9", SHORT);
    RouterLab::wait_for_answer(&lab.west, "192.0.3.2");
    assert_eq!(lab.ask("status")["ports"][0]["interface"], "west9");

    lab.router.ip("link delete x0");
    process.wait_for("interface x0 went away: it was deleted", SHORT);
    RouterLab::check_ping(&lab.west, &["198.51.100.2"]);
    lab.verify();
    RouterLab::finish_without("x0", process);
}

#[test]
fn what_goes_by_other_interfaces_is_left_to_the_kernel() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    let third = lab.third_host();
    let process = lab.start("w0 e0", "");
    RouterLab::check_ping(&lab.west, &["192.0.3.2", "2001:db8:3::2"]);
    RouterLab::check_ping(&third, &["192.0.2.2", "2001:db8:1::2"]);
    lab.verify();
    let report = RouterLab::finish(process);
    assert!(report.number("/forward/punted") >= 6, "{:#}", report.value());
}

#[test]
fn what_can_not_work_is_refused_before_anything_changes() {
    let Some(lab) = RouterLab::new(1500, &["setpriv"]) else { return };
    let refused = |interfaces: &str, options: &str, parts: &[&str]| {
        assert_refused(&lab.spawn(interfaces, options).finish(SHORT), parts);
        assert!(!lab.router.run("ip -details link show").output.contains("prog/xdp"));
    };
    refused("w0 e7", "", &["e7"]);
    refused("w0 w0", "", &["w0", "twice"]);
    refused("w0 e0", "--lanes 0", &["at least one lane"]);
    refused("w0 e0", "--lanes 2", &["w0", "queue"]);
    lab.router.ip("link add br0 type bridge");
    lab.router.ip("link set e0 master br0");
    refused("w0 e0", "", &["e0", "bridge", "br0"]);
    refused("w0 br0", "", &["br0", "bridge"]);
    lab.router.ip("link set e0 nomaster");
    lab.router.ip("link set e0 down");
    refused("w0 e0", "", &["e0", "up"]);
    lab.router.ip("link set e0 up");
    lab.router.set("net.ipv4.ip_forward", "0");
    lab.router.set("net.ipv6.conf.all.forwarding", "0");
    refused("w0 e0", "", &["sysctl -w net.ipv4.ip_forward=1"]);
    lab.router.set("net.ipv4.ip_forward", "1");
    std::fs::write(lab.socket(), "a file").expect("a writable directory");
    refused("w0 e0", "", &["no socket", "--socket"]);
    std::fs::remove_file(lab.socket()).expect("it is there");

    // Without privilege.
    assert_refused(&Process::run(&mut lab.as_nobody_with(&[], &[]), SHORT), &["CAP_"]);
    let mut command = Command::new(warmlane());
    command.args(["router"]);
    let nothing = Process::run(&mut command, SHORT);
    assert_refused(&nothing, &["which interfaces"]);
    let file = lab.directory().join("router.toml");
    std::fs::write(&file, "interfaces = [\"w0\", \"e0\"]\nlane = 2\n").expect("a writable directory");
    refused("", &format!("--config {}", file.display()), &["router.toml", "line 2, column 1"]);
}
