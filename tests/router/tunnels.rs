//! `warmlane router` and tunnels that the kernel has: VXLAN devices, alone or in bridges, with other kernels at the far ends.
//!
//! ```text
//! west                  router                                     east (and a third host)
//! w0: 192.0.2.2 ------- w0: 192.0.2.1
//!                       br10: 10.9.0.1, 2001:db8:9::1 ── vx10 ~~~~ vx10: 10.9.0.2, 2001:db8:9::2
//!                       e0: 198.51.100.1 ------------------------- e0: 198.51.100.2
//! ```

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use warmlane::wire::{Frame, Ipv4Fields, MacAddress, checksum, vxlan};
use warmlane_system_tests::{RouterLab, SHORT, iperf, send_3_mib};
use warmlane_testkit::namespace::Namespace;
use warmlane_testkit::process::Process;
use warmlane_testkit::{Report, requirements};

/// Stations behind tunnel ends.
const STATION: &str = "02:00:00:00:00:22";
const STATION_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 0x22]);

/// Both versions of IP inside, as the station has them.
const INSIDE: [&str; 2] = ["10.9.0.2", "2001:db8:9::2"];
/// The host in the west.
const WEST: [&str; 2] = ["192.0.2.2", "2001:db8:1::2"];

/// What tunnels go through.
#[derive(Debug, Clone, Copy)]
struct Underlay {
    near: &'static str,
    far: &'static str,
}

const IPV4: Underlay = Underlay { near: "198.51.100.1", far: "198.51.100.2" };
const IPV6: Underlay = Underlay { near: "2001:db8:2::1", far: "2001:db8:2::2" };

/// A lab whose kernel has VXLAN devices; `None`, and said so, elsewhere.
fn lab() -> Option<RouterLab> {
    RouterLab::where_there_is("type vxlan id 9 dstport 4788")
}

/// A network of the router's behind a tunnel: br10 with vx10 in it. All stations that it doesn't know are behind the far end.
fn add_network(lab: &RouterLab, underlay: Underlay, options: &str) {
    let router = &lab.router;
    router.ip("link add br10 type bridge");
    router.ip("link set br10 up");
    router.ip("address add 10.9.0.1/24 dev br10");
    router.ip("address add 2001:db8:9::1/64 dev br10 nodad");
    add_device(lab, underlay, options);
}

fn add_device(lab: &RouterLab, underlay: Underlay, options: &str) {
    let router = &lab.router;
    router.ip(&format!("link add vx10 type vxlan id 10 local {} dstport 4789 {options}", underlay.near));
    router.ip("link set vx10 master br10");
    router.ip("link set vx10 up");
    fdb(lab, &format!("append 00:00:00:00:00:00 dev vx10 dst {}", underlay.far));
}

fn fdb(lab: &RouterLab, change: &str) {
    let line = format!("bridge fdb {change}");
    lab.router.run(&line).expect_success(&line);
}

/// The station at a far end, and its ways back through the tunnel.
fn add_station(host: &Namespace, underlay: Underlay) {
    let (near, far) = (underlay.near, underlay.far);
    host.ip(&format!("link add vx10 type vxlan id 10 local {far} remote {near} dstport 4789"));
    host.ip(&format!("link set vx10 address {STATION} up"));
    let overhead = if near.contains(':') { 70 } else { 50 };
    host.ip(&format!("link set vx10 mtu {}", 1500 - overhead));
    for (address, (network, gateway)) in
        INSIDE.iter().zip([("192.0.2.0/24", "10.9.0.1"), ("2001:db8:1::/64", "2001:db8:9::1")])
    {
        let length = if address.contains(':') { "64 nodad" } else { "24" };
        host.ip(&format!("address add {address}/{length} dev vx10"));
        host.ip(&format!("route add {network} via {gateway} dev vx10"));
    }
}

/// What `status` says of a tunnel.
#[track_caller]
fn tunnel(lab: &RouterLab, device: &str) -> Value {
    let status = lab.ask("status");
    let mut all = status["tunnels"].as_array().into_iter().flatten();
    all.find(|tunnel| tunnel["device"] == device).unwrap_or_else(|| panic!("{status:#}")).clone()
}

/// Packets that lanes sent into a tunnel, and took out of it.
#[track_caller]
fn through(lab: &RouterLab, device: &str) -> [u64; 2] {
    let tunnel = tunnel(lab, device);
    ["encapsulated", "decapsulated"].map(|way| tunnel[way]["packets"].as_u64().expect("a count"))
}

/// Pings go through the tunnel by lanes, both ways, and the kernel sees none of them.
#[track_caller]
fn check_by_lanes(lab: &RouterLab, from: &Namespace, address: &str) {
    // The first few may be the kernel's: it has to learn who is where.
    RouterLab::wait_until(address, SHORT, || {
        let before = through(lab, "vx10");
        RouterLab::check_ping(from, &[address]);
        let after = through(lab, "vx10");
        after.iter().zip(before).all(|(after, before)| after - before >= 3)
    });
}

fn finish(process: Process) -> Report {
    let report = RouterLab::finish(process);
    assert_eq!(report.drops("/forward/drops").get("no-port"), None, "{:#}", report.value());
    report
}

#[test]
fn hosts_reach_each_other_through_a_tunnel_over_ipv4() {
    check_traffic(IPV4, "");
}

#[test]
fn hosts_reach_each_other_through_a_tunnel_over_ipv6() {
    check_traffic(IPV6, "");
}

fn check_traffic(underlay: Underlay, options: &str) {
    let Some(lab) = lab() else { return };
    add_network(&lab, underlay, options);
    add_station(&lab.east, underlay);
    let process = lab.start("w0 e0", "");
    for (from, addresses) in [(&lab.west, INSIDE), (&lab.east, WEST)] {
        for address in addresses {
            check_by_lanes(&lab, from, address);
        }
    }
    // The router itself is the kernel's, though datagrams for it come to lanes.
    RouterLab::check_ping(&lab.east, &["10.9.0.1", "2001:db8:9::1", "192.0.2.1"]);
    // As long as a tunnel carries, and longer in fragments; who may not cut is told.
    let mtu = if underlay.near.contains(':') { 1430 } else { 1450 };
    RouterLab::check_ping_with(&lab.west, &format!("-M do -s {} {}", mtu - 28, INSIDE[0]));
    RouterLab::check_ping_with(&lab.west, &format!("-M dont -s 1472 {}", INSIDE[0]));
    let refused = lab.west.run(&format!("ping -n -c 2 -i 0.2 -W 2 -M do -s {} {}", mtu - 27, INSIDE[0]));
    assert!(!refused.status.success(), "{}", refused.text());

    let mut server = lab.east.spawn("iperf3 --server --forceflush");
    server.wait_for("Server listening", SHORT);
    for address in INSIDE {
        for direction in ["", "--reverse"] {
            send_3_mib(&lab.west, address, direction);
        }
        let udp =
            iperf(&lab.west, &format!("--client {address} --udp --bandwidth 20M --time 1 --length 1200"));
        // On a busy machine the receiver's socket overflows.
        let lost = udp.pointer("/end/sum/lost_percent").and_then(Value::as_f64);
        assert!(lost.is_some_and(|lost| lost < 60.0), "{udp:#}");
    }
    let [encapsulated, decapsulated] = through(&lab, "vx10");
    assert!(encapsulated > 4_000 && decapsulated > 4_000, "{encapsulated}, {decapsulated}");
    lab.verify();
    let report = finish(process);
    let stage = report.stage("forwarder") + "/counters/tunnel";
    for (count, least) in [("encapsulated", encapsulated), ("decapsulated", decapsulated)] {
        assert!(report.number(&format!("{stage}/{count}")) >= least, "{:#}", report.value());
    }
}

/// On the paths inside the kernel its own devices do all of it: datagrams are for the box.
#[test]
fn paths_inside_the_kernel_leave_tunnels_to_it() {
    for path in ["xdp", "tc"] {
        let Some(lab) = lab() else { return };
        lab.hosts_take_redirected();
        add_network(&lab, IPV4, "");
        add_station(&lab.east, IPV4);
        let process = lab.start("w0 e0", &format!("--path {path}"));
        RouterLab::check_ping(&lab.west, &INSIDE);
        RouterLab::check_ping(&lab.east, &WEST);
        let mut server = lab.east.spawn("iperf3 --server --forceflush");
        server.wait_for("Server listening", SHORT);
        for direction in ["", "--reverse"] {
            send_3_mib(&lab.west, INSIDE[0], direction);
        }
        lab.verify();
        RouterLab::end(process);
    }
}

/// Stations move, tunnel ends change, devices go and come: packets follow within a second.
#[test]
fn changes_of_tunnels_are_followed() {
    let Some(lab) = lab() else { return };
    let third = lab.third_host();
    add_network(&lab, IPV4, "nolearning");
    lab.router.run("bridge link set dev vx10 learning off").expect_success("bridge link");
    fdb(&lab, &format!("add {STATION} dev vx10 master static"));
    fdb(&lab, &format!("add {STATION} dev vx10 dst {} self", IPV4.far));
    add_station(&lab.east, IPV4);
    let elsewhere = Underlay { near: "192.0.3.1", far: "192.0.3.2" };
    // Both ends of what is sent there have addresses of that link; what comes back is for another address of the router's.
    add_station(&third, Underlay { near: IPV4.near, ..elsewhere });
    let process = lab.start("w0 e0 x0", "");
    check_by_lanes(&lab, &lab.west, INSIDE[0]);

    let received = |host: &Namespace| -> u64 {
        let text = host.run("cat /sys/class/net/vx10/statistics/rx_packets");
        text.expect_success("cat").trim().parse().expect("a count")
    };
    let moved_within = |what: &str, host: &Namespace, change: &dyn Fn()| {
        let before = received(host);
        change();
        let since = Instant::now();
        RouterLab::wait_until(what, Duration::from_secs(1), || {
            lab.west.run(&format!("ping -n -c 1 -W 0.1 {}", INSIDE[0]));
            received(host) > before
        });
        eprintln!("{what}: {:?}", since.elapsed());
        lab.verify();
        check_by_lanes(&lab, &lab.west, INSIDE[0]);
    };
    moved_within("to the third host", &third, &|| {
        fdb(&lab, &format!("append 00:00:00:00:00:00 dev vx10 dst {}", elsewhere.far));
        fdb(&lab, &format!("replace {STATION} dev vx10 dst {} self", elsewhere.far));
    });
    let remotes = tunnel(&lab, "vx10")["remotes"].clone();
    assert_eq!(remotes, serde_json::json!([elsewhere.far, IPV4.far]));
    moved_within("back to the east", &lab.east, &|| {
        fdb(&lab, &format!("replace {STATION} dev vx10 dst {} self", IPV4.far));
    });
    // By the only tunnel end that there is for all that is unknown.
    moved_within("by default", &third, &|| {
        fdb(&lab, &format!("del 00:00:00:00:00:00 dev vx10 dst {} self", IPV4.far));
        fdb(&lab, &format!("del {STATION} dev vx10 dst {} self", IPV4.far));
    });

    // Without its device there is no way; the kernel knows, and tells.
    lab.router.ip("link delete vx10");
    RouterLab::wait_until("no tunnel", Duration::from_secs(1), || {
        lab.ask("status")["tunnels"].as_array().is_some_and(Vec::is_empty)
    });
    assert!(!RouterLab::answers(&lab.west, INSIDE[0]));
    lab.verify();
    add_device(&lab, IPV4, "");
    check_by_lanes(&lab, &lab.west, INSIDE[0]);
    // Set down, and up.
    lab.router.ip("link set vx10 down");
    assert!(!RouterLab::answers(&lab.west, INSIDE[0]));
    lab.verify();
    lab.router.ip("link set vx10 up");
    check_by_lanes(&lab, &lab.west, INSIDE[0]);
    // Out of its bridge, and back.
    lab.router.ip("link set vx10 nomaster");
    assert!(!RouterLab::answers(&lab.west, INSIDE[0]));
    lab.verify();
    lab.router.ip("link set vx10 master br10");
    check_by_lanes(&lab, &lab.west, INSIDE[0]);
    lab.verify();
    finish(process);
}

/// Routes to a tunnel end, with its Ethernet address as that of a neighbour, as EVPN's routes of type 5 have them; and a device without a bridge.
#[test]
fn routes_lead_to_routers_behind_tunnels() {
    let Some(lab) = lab() else { return };
    let router = &lab.router;
    for (network, device, vni) in [("br30", "vx30", 30), ("vx31", "vx31", 31)] {
        let bridged = network != device;
        if bridged {
            router.ip(&format!("link add {network} type bridge"));
            router.ip(&format!("link set {network} up"));
        }
        router.ip(&format!(
            "link add {device} type vxlan id {vni} local {} dstport 4789 nolearning",
            IPV4.near
        ));
        if bridged {
            router.ip(&format!("link set {device} master {network}"));
            router.run(&format!("bridge link set dev {device} learning off")).expect_success("bridge link");
        }
        router.ip(&format!("link set {device} up"));
        let mac = format!("02:00:00:00:{vni}:02");
        if bridged {
            fdb(&lab, &format!("add {mac} dev {device} master extern_learn static"));
        }
        fdb(&lab, &format!("add {mac} dev {device} dst {} self extern_learn", IPV4.far));
        router.ip(&format!("neigh add {} lladdr {mac} dev {network} nud noarp extern_learn", IPV4.far));
        router.ip(&format!("route add 10.{vni}.0.0/16 via {} dev {network} onlink", IPV4.far));
        let own = router.mac(network);
        let east = &lab.east;
        east.ip(&format!(
            "link add {device} type vxlan id {vni} local {} remote {} dstport 4789",
            IPV4.far, IPV4.near
        ));
        east.ip(&format!("link set {device} address {mac} up"));
        east.ip(&format!("address add 10.{vni}.0.1/32 dev lo"));
        east.ip(&format!("neigh add {} lladdr {own} dev {device}", IPV4.near));
        east.ip(&format!("route add 192.0.2.0/24 via {} dev {device} onlink metric {vni}", IPV4.near));
    }
    let process = lab.start("w0 e0", "");
    for (device, address) in [("vx30", "10.30.0.1"), ("vx31", "10.31.0.1")] {
        let before = through(&lab, device)[0];
        RouterLab::check_ping(&lab.west, &[address]);
        assert!(through(&lab, device)[0] >= before + 3, "{:#}", tunnel(&lab, device));
    }
    assert!(through(&lab, "vx30")[1] >= 6, "all answers come by the better route");
    lab.verify();
    // A route of the underlay that leads elsewhere: there is no way for datagrams by lanes.
    router.ip(&format!("route add {}/32 dev lo", IPV4.far));
    lab.verify();
    router.ip(&format!("route delete {}/32 dev lo", IPV4.far));
    RouterLab::check_ping(&lab.west, &["10.30.0.1"]);
    lab.verify();
    finish(process);
}

/// What is wrong is counted, or is the kernel's, and what is not for lanes gets there as it came.
#[test]
fn broken_datagrams_are_dropped_and_counted() {
    let Some(lab) = lab() else { return };
    add_network(&lab, IPV4, "");
    add_station(&lab.east, IPV4);
    let process = lab.start("w0 e0", "");
    check_by_lanes(&lab, &lab.west, INSIDE[0]);
    let (network, outside) = (lab.router.mac("br10"), lab.router.mac("e0"));
    let [network, outside]: [MacAddress; 2] = [network, outside].map(|mac| mac.parse().expect("an address"));
    let far: MacAddress = lab.east.mac("e0").parse().expect("an address");
    let packet = |change: &dyn Fn(&mut Vec<u8>)| {
        let fields = Ipv4Fields::new([10, 9, 0, 2].into(), [192, 0, 2, 2].into());
        let frame = Frame::new().ethernet(network, STATION_MAC).ipv4(fields).udp(7, 4242);
        let mut frame = frame.payload(b"who reads this?").to_vec().expect("a frame");
        change(&mut frame);
        frame
    };
    let tunnelled = |vni: u32, frame: &[u8]| {
        let fields = Ipv4Fields::new([198, 51, 100, 2].into(), [198, 51, 100, 1].into());
        let data = [&vxlan::header(vni)[..], frame].concat();
        let around = Frame::new().ethernet(outside, far).ipv4(fields);
        around.udp(50_000, vxlan::PORT).payload(&data).to_vec().expect("a frame")
    };
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut datagram = tunnelled(10, &packet(&|_| {}));
        change(&mut datagram);
        datagram
    };
    let with_outer_sum = |change: &dyn Fn(&mut [u8]), datagram: &mut Vec<u8>| {
        change(&mut datagram[14..34]);
        datagram[24..26].fill(0);
        let header = datagram[14..].first_chunk().expect("a header");
        let sum = checksum::ipv4_header_checksum20(header).to_be_bytes();
        datagram[24..26].copy_from_slice(&sum);
    };
    let before = through(&lab, "vx10")[1];
    let punted = lab.ask("counters")["forward"]["punted"].as_u64().expect("a count");
    let frames = [
        with(&|_| {}),
        // Outside: the checksum of UDP, and a length that isn't there.
        with(&|datagram| datagram[90] ^= 1),
        with(&|datagram| datagram[38..40].copy_from_slice(&[0, 9])),
        // Inside: the checksum of IP, and its length.
        tunnelled(10, &packet(&|frame| frame[24] ^= 1)),
        tunnelled(10, &packet(&|frame| frame[16] = 9)),
        // Congestion that the packet inside can't say.
        with(&|datagram| with_outer_sum(&|ip| ip[1] |= 3, datagram)),
        // For the kernel: another network, an extension, a frame that is to be bridged, and a tag.
        tunnelled(11, &packet(&|_| {})),
        with(&|datagram| {
            datagram[42] |= 0x80;
            datagram[40..42].fill(0);
        }),
        tunnelled(10, &packet(&|frame| frame[5] ^= 0x40)),
        tunnelled(10, &packet(&|frame| frame[12..14].copy_from_slice(&[0x81, 0]))),
        // Without a checksum outside it is as good.
        with(&|datagram| datagram[40..42].fill(0)),
    ];
    let hexadecimal =
        |frame: &Vec<u8>| frame.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/send_frames.py");
    let mut command = lab.east.command("python3");
    command.arg(script).arg("e0").args(frames.iter().map(hexadecimal));
    Process::run(&mut command, SHORT).expect_success("send_frames.py");
    RouterLab::wait_until("both that are right", SHORT, || through(&lab, "vx10")[1] >= before + 2);
    RouterLab::wait_until("what is the kernel's", SHORT, || {
        lab.ask("counters")["forward"]["punted"].as_u64() >= Some(punted + 4)
    });
    assert_eq!(through(&lab, "vx10")[1], before + 2);
    let report = finish(process);
    let drops = report.drops(&(report.stage("forwarder") + "/drops"));
    let expected = [
        ("outer-checksum", 1),
        ("outer-length", 1),
        ("inner-checksum", 1),
        ("inner-length", 1),
        ("congestion-not-capable", 1),
    ];
    for (reason, count) in expected {
        assert_eq!(drops.get(reason), Some(&count), "{reason}: {:#}", report.value());
    }
}

/// Rules for what the box itself gets would be passed by, and devices for several networks aren't followed: all of it is the kernel's, and
/// an operator is told.
#[test]
fn what_lanes_must_not_take_is_left_to_the_kernel() {
    let Some(lab) = lab().filter(|_| requirements::programs(&["nft"])) else { return };
    add_network(&lab, IPV4, "");
    add_station(&lab.east, IPV4);
    lab.router.ip("link add several type vxlan external dstport 4790");
    let process = lab.start("w0 e0", "");
    check_by_lanes(&lab, &lab.west, INSIDE[0]);
    let warned = |words: &str| {
        let status = lab.ask("status");
        let mut all = status["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
        all.any(|warning| warning.contains(words))
    };
    assert!(warned("tunnel several is one for several networks (external, vnifilter)"));
    let nft = |line: &str| {
        let line = format!("nft {line}");
        lab.router.run(&line).expect_success(&line);
    };
    nft("add table ip mine");
    nft("add chain ip mine input { type filter hook input priority 0 ; }");
    nft("add rule ip mine input udp dport 9 drop");
    RouterLab::wait_until("the rules are seen", SHORT, || warned("IPv4 of tunnels is left to the kernel"));
    let before = through(&lab, "vx10");
    RouterLab::check_ping(&lab.west, &INSIDE);
    RouterLab::check_ping(&lab.east, &WEST);
    assert_eq!((through(&lab, "vx10"), &tunnel(&lab, "vx10")["by_lanes"]), (before, &Value::Bool(false)));
    lab.verify();
    nft("delete table ip mine");
    RouterLab::wait_until("the rules are gone", SHORT, || !warned("of tunnels is left"));
    check_by_lanes(&lab, &lab.west, INSIDE[0]);
    lab.verify();
    finish(process);
}
