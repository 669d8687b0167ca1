//! One process between ports of several kinds: a virtual link by AF_XDP, another process by memif, and one by vhost. Behind the latter two are processes of
//! ours with a TAP device each, so that at each end there is a host that is the kernel's.
//!
//! ```text
//! host 1 ------------------------- x0 (xdp)
//! host 2 -- t2 (tap), memif ------ memif      hub
//! host 3 -- t3 (tap), virtio ----- vhost
//! ```

use std::fs;
use std::path::Path;

use warmlane_system_tests::{LONG, SHORT, check_wire, send_3_mib};
use warmlane_testkit::namespace::{self, Namespace};
use warmlane_testkit::process::{Process, warmlane};
use warmlane_testkit::{Report, requirements};

const PROGRAMS: [&str; 5] = ["ip", "ping", "iperf3", "ethtool", "tshark"];

/// The hosts that are behind another process, and how that is joined to the hub: the driver there, and here.
const BEHIND: [(u8, &str, &str); 2] =
    [(2, "memif:SOCKET,role=server", "memif:SOCKET"), (3, "vhost:SOCKET", "virtio:SOCKET")];

fn port(name: &str, driver: &str, address: &str, mac: &str) -> String {
    format!(
        "[[port]]\nname = \"{name}\"\ndriver = \"{driver}\"\naddresses = [\"{address}\"]\n{}\n",
        if mac.is_empty() { String::new() } else { format!("mac = \"{mac}\"") }
    )
}

fn neighbour(address: &str, mac: &str, port: &str) -> String {
    format!("[[neighbour]]\naddress = \"{address}\"\nmac = \"{mac}\"\nport = \"{port}\"\n")
}

fn route(prefix: &str, via: &str) -> String {
    format!("[[route]]\nprefix = \"{prefix}\"\nvia = \"{via}\"\n")
}

fn mac(kind: u8, number: u8) -> String {
    format!("02:00:00:00:{kind:02}:{number:02}")
}

fn hub(directory: &Path) -> String {
    let behind = BEHIND.map(|(number, there, _)| {
        let (name, driver) = (format!("p{number}"), there.replace("SOCKET", &socket(directory, number)));
        [
            port(&name, &driver, &format!("10.1.{number}.1/24"), &mac(3, number)),
            neighbour(&format!("10.1.{number}.2"), &mac(2, number), &name),
            route(&format!("10.0.{number}.0/24"), &format!("10.1.{number}.2")),
        ]
        .concat()
    });
    let first = [port("p1", "xdp:x0", "10.0.1.1/24", ""), neighbour("10.0.1.2", &mac(0, 1), "p1")].concat();
    format!("lanes = 1\n{first}{}", behind.concat())
}

fn leaf(directory: &Path, number: u8, driver: &str) -> String {
    let driver = driver.replace("SOCKET", &socket(directory, number));
    [
        "lanes = 1\n".to_owned(),
        port("host", &format!("tap:t{number}"), &format!("10.0.{number}.1/24"), &mac(1, number)),
        port("up", &driver, &format!("10.1.{number}.2/24"), &mac(2, number)),
        neighbour(&format!("10.0.{number}.2"), &mac(0, number), "host"),
        neighbour(&format!("10.1.{number}.1"), &mac(3, number), "up"),
        route("0.0.0.0/0", &format!("10.1.{number}.1")),
    ]
    .concat()
}

fn socket(directory: &Path, number: u8) -> String {
    directory.join(format!("{number}.sock")).display().to_string()
}

fn start(namespace: &Namespace, directory: &Path, name: &str, config: &str) -> Process {
    let path = directory.join(format!("{name}.toml"));
    fs::write(&path, config).expect("a writable directory");
    let mut command = namespace.command(warmlane());
    command.arg("forward").arg("--config").arg(&path).arg("--json");
    Process::spawn(&mut command)
}

fn host(namespace: &Namespace, interface: &str, number: u8) {
    namespace.ip(&format!("link set {interface} address {} up", mac(0, number)));
    namespace.ip(&format!("address add 10.0.{number}.2/24 dev {interface}"));
    namespace.ip(&format!("route add default via 10.0.{number}.1"));
}

fn finish(process: Process) -> Report {
    process.interrupt();
    let report = Report::parse(process.finish(SHORT).expect_success("warmlane forward"));
    report.assert_balanced();
    report
}

/// Bytes of the packets that went through a port, on average.
/// What host 3 leaves to hardware comes whole to the hub by vhost, and is done there for those that can't take it so: by AF_XDP and by memif.
#[test]
fn ports_of_all_kinds_in_one_process() {
    if !requirements::namespaces_and(&PROGRAMS) {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [middle, one, two, three] = ["hub", "one", "two", "three"].map(Namespace::new);
    middle.set("net.ipv6.conf.default.disable_ipv6", "1");
    namespace::link((&middle, "x0"), (&one, "t1"), 1500);
    namespace::set_queues((&middle, "x0"), (&one, "t1"), 1);
    // AF_XDP has no word for checksums that are left to hardware.
    one.run("ethtool -K t1 tx off").expect_success("ethtool");
    let mut process = start(&middle, directory.path(), "hub", &hub(directory.path()));
    process.wait_for("note: port 'p1'", SHORT);
    let leaves = BEHIND.map(|(number, _, here)| {
        let namespace = if number == 2 { &two } else { &three };
        let config = leaf(directory.path(), number, here);
        let mut process = start(namespace, directory.path(), &format!("leaf{number}"), &config);
        namespace.wait_for_interface(&format!("t{number}"), &mut process);
        host(namespace, &format!("t{number}"), number);
        process
    });
    host(&one, "t1", 1);
    for address in ["10.0.2.2", "10.0.3.2"] {
        one.run(&format!("ping -n -c 3 -i 0.2 -W 60 -w 120 {address}")).expect_success(address);
    }
    check_wire(&three, (&one, "t1"), &[("10.0.3.2", "10.0.1.2")]);
    check_wire(&three, (&two, "t2"), &[("10.0.3.2", "10.0.2.2")]);
    check_wire(&two, (&one, "t1"), &[("10.0.2.2", "10.0.1.2")]);
    let mut server = three.spawn("iperf3 --server --forceflush");
    server.wait_for("Server listening", LONG);
    for from in [&one, &two] {
        send_3_mib(from, "10.0.3.2", "");
    }
    for leaf in leaves {
        finish(leaf);
    }
    let report = finish(process);
    // More leave than come: some came longer than a frame may be.
    let packets = |direction: &str| {
        let of = |port| report.number(&format!("{}/{direction}/packets", report.port(port)));
        of("p1") + of("p2") + of("p3")
    };
    assert!(packets("transmitted") > packets("received"), "{:#}", report.value());
    for port in ["p1", "p2"] {
        assert!(report.mean_length(port, "transmitted") <= 1_514, "{:#}", report.value());
    }
}
