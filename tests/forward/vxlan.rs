//! A network bridged over IP, with the kernel's own device at the other tunnel end: here by VXLAN (RFC 7348), beside by GENEVE.
//!
//! ```text
//! host                            gateway                             far
//! 10.9.0.1 ------ h0 (TAP) ------ warmlane forward ------ u0 -------- 192.0.2.2
//!                                 192.0.2.1                           t0: 10.9.0.2
//! ```

use std::fs;

use warmlane::wire::{Frame, Ipv4Fields, MacAddress, checksum, vxlan};
use warmlane_system_tests::{SHORT, forward, is_tcp_checksum_right, send_3_mib};
use warmlane_testkit::exchange::until;
use warmlane_testkit::namespace::{self, Namespace};
use warmlane_testkit::process::Process;
use warmlane_testkit::{Report, requirements};

const PROGRAMS: [&str; 6] = ["ip", "sysctl", "ping", "iperf3", "ethtool", "python3"];

pub(super) const VNI: u32 = 100;
pub(super) const HOST_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
pub(super) const FAR_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
pub(super) const BEHIND_FAR_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);

/// The addresses of one network in both versions of IP, by number.
fn inside(number: u8) -> [String; 2] {
    [format!("10.9.0.{number}"), format!("2001:db8:9::{number}")]
}

/// What is between the tunnel ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Underlay {
    /// `vxlan` or `geneve`.
    pub(super) protocol: &'static str,
    pub(super) driver: &'static str,
    pub(super) is_ipv6: bool,
    pub(super) mtu: u32,
    /// Frames of a flow are merged in the tunnel.
    pub(super) gro: bool,
    /// Questions for known hosts are answered by the gateway.
    pub(super) suppression: bool,
}

impl Underlay {
    fn address(self, number: u8) -> String {
        if self.is_ipv6 { format!("2001:db8:1::{number}") } else { format!("192.0.2.{number}") }
    }

    /// Longest IP packet inside.
    fn inner_mtu(self) -> u32 {
        self.mtu - if self.is_ipv6 { 70 } else { 50 }
    }

    /// The kernel's device of the far end.
    fn device(self) -> String {
        let (near, far) = (self.address(1), self.address(2));
        match self.protocol {
            "vxlan" => format!("type vxlan id {VNI} local {far} remote {near} dstport 4789"),
            protocol => format!("type {protocol} id {VNI} remote {near}"),
        }
    }

    fn config(self) -> String {
        let Self { gro, suppression, .. } = self;
        let (near, far, mtu, inner) = (self.address(1), self.address(2), self.mtu, self.inner_mtu());
        let (protocol, driver, length) = (self.protocol, self.driver, if self.is_ipv6 { 64 } else { 24 });
        format!(
            r#"
            lanes = 1

            [[port]]
            name = "underlay"
            driver = "{driver}:u0"
            addresses = ["{near}/{length}"]
            mtu = {mtu}
            gro = {gro}

            [[port]]
            name = "access"
            driver = "tap:h0,mtu={inner}"
            mac = "02:00:00:00:01:01"
            mtu = {inner}

            [[neighbour]]
            address = "{far}"
            mac = "{FAR_MAC}"
            port = "underlay"

            [[{protocol}]]
            vni = {VNI}
            local = "{near}"
            remotes = ["{far}"]
            access = [{{ port = "access" }}]
            mtu = {inner}
            inner-checksums = true
            neighbour-suppression = {suppression}
            "#
        )
    }
}

/// The three namespaces, and the gateway at work.
pub(super) struct Bridge {
    pub(super) host: Namespace,
    _gateway: Namespace,
    far: Namespace,
    pub(super) gateway_mac: MacAddress,
    process: Process,
    underlay: Underlay,
    directory: tempfile::TempDir,
}

impl Bridge {
    #[track_caller]
    pub(super) fn new(underlay: Underlay) -> Option<Self> {
        if !requirements::namespaces_and(&PROGRAMS) {
            return None;
        }
        let (host, gateway, far) = (Namespace::new("host"), Namespace::new("gateway"), Namespace::new("far"));
        let (far_end, kind) = (underlay.address(2), underlay.device());
        if !requirements::interface_kind(&far, &kind) {
            return None;
        }
        gateway.set("net.ipv6.conf.all.disable_ipv6", "1");
        gateway.set("net.ipv6.conf.default.disable_ipv6", "1");
        namespace::link((&gateway, "u0"), (&far, "u0"), underlay.mtu);
        far.ip(&format!("link set u0 address {FAR_MAC}"));
        far.ip(&format!("address add {far_end}/{} dev u0", if underlay.is_ipv6 { 64 } else { 24 }));
        // AF_XDP has no word for checksums that are left to hardware, nor for what is to be cut inside a tunnel.
        if underlay.driver == "xdp" {
            let off = "tx-udp_tnl-segmentation off tx-udp_tnl-csum-segmentation off";
            let line = format!("ethtool -K u0 tx off {off}");
            far.run(&line).expect_success(&line);
        }

        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("gateway.toml");
        fs::write(&path, underlay.config()).expect("a writable temporary directory");
        let outside = forward(&path);
        let mut command = gateway.command(outside.get_program());
        command.args(outside.get_args());
        let mut process = Process::spawn(&mut command);
        // It says so once its lanes run.
        process.wait_for("note: port 'access'", SHORT);
        gateway.ip(&format!("link set h0 netns {}", host.name()));
        host.ip(&format!("link set h0 address {HOST_MAC} mtu {} up", underlay.inner_mtu()));
        far.ip(&format!("link add t0 mtu {} {kind}", underlay.inner_mtu()));
        far.ip("link set t0 up");
        for (namespace, interface, number) in [(&host, "h0", 1), (&far, "t0", 2)] {
            let [ipv4, ipv6] = inside(number);
            namespace.ip(&format!("address add {ipv4}/24 dev {interface}"));
            namespace.ip(&format!("address add {ipv6}/64 dev {interface}"));
        }
        let gateway_mac = gateway.mac("u0").parse().expect("an Ethernet address");
        Some(Self { host, _gateway: gateway, far, gateway_mac, process, underlay, directory })
    }

    /// Both ways, both versions of IP inside, as long as the network carries, and longer in fragments.
    pub(super) fn check_pings(&self) {
        for (from, to) in [(&self.host, 2), (&self.far, 1)] {
            for (address, headers) in inside(to).iter().zip([28, 48]) {
                let longest = self.underlay.inner_mtu() - headers;
                for size in ["-s 56".to_owned(), format!("-M do -s {longest}"), format!("-s {}", longest * 3)]
                {
                    let line = format!("ping -n -c 3 -i 0.2 -W 10 {size} {address}");
                    from.run(&line).expect_success(&line);
                }
            }
        }
    }

    /// TCP both ways over both versions of IP inside.
    pub(super) fn check_transfers(&self) {
        let mut server = self.far.spawn("iperf3 --server --forceflush");
        server.wait_for("Server listening", SHORT);
        for address in inside(2) {
            for direction in ["", "--reverse"] {
                send_3_mib(&self.host, &address, direction);
            }
        }
    }

    /// The same, and what the gateway sends meanwhile as tshark reads it.
    fn check_transfers_on_the_wire(&self) {
        if !requirements::programs(&["tshark"]) {
            return self.check_transfers();
        }
        let capture = self.directory.path().join("wire.pcapng");
        let capture = capture.to_str().expect("a path in UTF-8");
        let near_end = self.underlay.address(1);
        let line = format!("tshark -i u0 -B 32 -w {capture} udp port 4789 and src host {near_end}");
        let mut tshark = self.far.spawn(&line);
        tshark.wait_for("Capture started", SHORT);
        self.check_transfers();
        tshark.interrupt();
        tshark.finish(SHORT).expect_success("tshark");
        self.check_capture(capture);
    }

    fn check_capture(&self, capture: &str) {
        let checks = "-o ip.check_checksum:TRUE -o udp.check_checksum:TRUE -o tcp.check_checksum:TRUE";
        let fields = "-T fields -e frame.len -e vxlan.vni -e ip.checksum.status -e udp.checksum.status \
                      -e tcp.checksum.status -e tcp.checksum -e _ws.malformed";
        let read = self.far.run(&format!("tshark -n -r {capture} {checks} {fields}"));
        let longest = self.underlay.mtu as usize + 14;
        let (mut full, mut frames) = (0, 0);
        for line in read.expect_success("tshark").lines().filter(|line| line.contains('\t')) {
            let columns: Vec<_> = line.split('\t').collect();
            let [length, vni, ip, udp, tcp, checksum, malformed] = columns[..] else { panic!("{line:?}") };
            let length: usize = length.parse().expect("a length");
            assert!(length <= longest && vni == VNI.to_string() && malformed.is_empty(), "{line:?}");
            // 1 is right, 3 is that there is none: the outer one of UDP over IPv4 is left out unless it is asked for.
            assert!(ip.split(',').all(|status| ["", "1"].contains(&status)), "{line:?}");
            assert!(udp == if self.underlay.is_ipv6 { "1" } else { "3" }, "{line:?}");
            assert!(tcp.is_empty() || is_tcp_checksum_right(tcp, checksum), "{line:?}");
            full += usize::from(length == longest);
            frames += 1;
        }
        // 6 MB go there, in full frames for the most part; on a busy machine the capture misses some.
        assert!(full > 50, "{full} full frames of {frames}");
    }

    /// Sends frames to the gateway as another tunnel end would, past the far kernel.
    pub(super) fn send(&self, frames: &[Vec<u8>]) {
        let hexadecimal =
            |frame: &Vec<u8>| frame.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
        // Not by its path, which a guest doesn't have.
        let script = include_str!("../src/send_frames.py");
        let mut command = self.far.command("python3");
        command.args(["-c", script, "u0"]).args(frames.iter().map(hexadecimal));
        Process::run(&mut command, SHORT).expect_success("send_frames.py");
        // What was sent before is through when an answer to something later is here.
        let line = format!("ping -n -c 1 -W 60 {}", inside(1)[0]);
        self.far.run(&line).expect_success(&line);
    }

    /// Ends the gateway; the kernel found no wrong checksum in anything.
    pub(super) fn finish(self) -> Report {
        for namespace in [&self.host, &self.far] {
            for (family, counter) in
                [("Udp:", "InCsumErrors"), ("Tcp:", "InCsumErrors"), ("Ip:", "InHdrErrors")]
            {
                assert_eq!(counted(namespace, family, counter), 0, "{family} {counter}");
            }
        }
        self.process.interrupt();
        let report = Report::parse(self.process.finish(SHORT).expect_success("warmlane forward"));
        report.assert_balanced_behind_vxlan();
        report
    }
}

/// What the kernel of a namespace has counted under this name (`/proc/net/snmp`).
pub(super) fn counted(namespace: &Namespace, family: &str, counter: &str) -> u64 {
    let file = namespace.run("cat /proc/net/snmp");
    let mut lines = file.expect_success("cat").lines().filter(|line| line.starts_with(family));
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let named = names.split(' ').zip(values.split(' ')).find(|(name, _)| *name == counter);
    named.and_then(|(_, value)| value.parse().ok()).unwrap_or_else(|| panic!("no {family} {counter}"))
}

const IPV4: Underlay = Underlay {
    protocol: "vxlan",
    driver: "packet",
    is_ipv6: false,
    mtu: 1500,
    gro: false,
    suppression: false,
};

#[test]
fn hosts_reach_each_other_over_ipv4() {
    let Some(bridge) = Bridge::new(IPV4) else { return };
    bridge.check_pings();
    bridge.check_transfers_on_the_wire();
    bridge.finish();
}

#[test]
fn hosts_reach_each_other_over_ipv6() {
    let Some(bridge) = Bridge::new(Underlay { is_ipv6: true, ..IPV4 }) else { return };
    bridge.check_pings();
    bridge.check_transfers_on_the_wire();
    bridge.finish();
}

#[test]
fn jumbo_frames_go_through_over_af_xdp() {
    let Some(bridge) = Bridge::new(Underlay { driver: "xdp", mtu: 9000, ..IPV4 }) else { return };
    bridge.check_pings();
    bridge.check_transfers_on_the_wire();
    bridge.finish();
}

/// The frames of a connection come in one by one, and the host gets packets of many: they were merged in their datagrams.
#[test]
fn frames_are_merged_in_the_tunnel() {
    let Some(bridge) = Bridge::new(Underlay { driver: "xdp", gro: true, ..IPV4 }) else { return };
    bridge.check_pings();
    let mut server = bridge.far.spawn("iperf3 --server --forceflush");
    server.wait_for("Server listening", SHORT);
    for address in inside(2) {
        send_3_mib(&bridge.host, &address, "--reverse");
    }
    let report = bridge.finish();
    assert!(report.mean_length("underlay", "received") <= 1514, "{:#}", report.value());
    assert!(report.mean_length("access", "transmitted") > 3_000, "{:#}", report.value());
}

/// The host asks anew, and the far one says nothing: the gateway answers in its name.
#[test]
fn questions_for_known_hosts_are_answered_by_the_gateway() {
    let Some(bridge) = Bridge::new(Underlay { suppression: true, ..IPV4 }) else { return };
    bridge.check_pings();
    // To no request at all (ip-sysctl.rst).
    bridge.far.set("net.ipv4.conf.t0.arp_ignore", "8");
    bridge.host.ip("neighbour flush dev h0");
    for address in inside(2) {
        let line = format!("ping -n -c 1 -W 10 {address}");
        bridge.host.run(&line).expect_success(&line);
    }
    let report = bridge.finish();
    let stage = report.stage("vxlan");
    assert!(report.number(&format!("{stage}/counters/vxlan/suppressed")) >= 2, "{:#}", report.value());
}

/// The far kernel leaves it to its link to cut what is in the tunnel, and here the host's device cuts it.
#[test]
fn what_the_kernel_leaves_uncut_in_a_tunnel_goes_through_as_one() {
    let Some(bridge) = Bridge::new(IPV4) else { return };
    let mut server = bridge.far.spawn("iperf3 --server --forceflush");
    server.wait_for("Server listening", SHORT);
    for address in inside(2) {
        send_3_mib(&bridge.host, &address, "--reverse");
    }
    let report = bridge.finish();
    for (port, direction) in [("underlay", "received"), ("access", "transmitted")] {
        assert!(report.mean_length(port, direction) > 3_000, "{port}: {:#}", report.value());
    }
}

/// The host's link carries more than the tunnel, and nobody has told it.
#[test]
fn senders_learn_what_the_tunnel_carries() {
    let Some(bridge) = Bridge::new(IPV4) else { return };
    bridge.host.ip("link set h0 mtu 1500");
    // The other end of a connection says that it takes what fits its own link: otherwise nothing longer would be sent.
    bridge.far.ip("route replace 10.9.0.0/24 dev t0 advmss 1460");
    let [_, ipv6] = inside(2);
    let too_big = bridge.host.run(&format!("ping -n -c 2 -i 0.2 -W 10 -M do -s 1452 {ipv6}"));
    assert!(too_big.text().contains("Packet too big: mtu=1450"), "{}", too_big.text());
    bridge.check_transfers_on_the_wire();
    let report = bridge.finish();
    let stage = report.stage("vxlan");
    // One for the ping, and at least one for the connection over IPv4.
    assert!(report.number(&format!("{stage}/counters/vxlan/errors")) >= 2, "{:#}", report.value());
}

#[test]
fn broken_packets_are_dropped_and_counted() {
    let Some(bridge) = Bridge::new(IPV4) else { return };
    // Only what tunnel ends send can be told apart by its counters.
    let datagram = |change: &dyn Fn(&mut Vec<u8>)| {
        let fields = Ipv4Fields::new([10, 9, 0, 9].into(), [10, 9, 0, 1].into());
        let frame = Frame::new().ethernet(HOST_MAC, BEHIND_FAR_MAC).ipv4(fields).udp(7, 4242);
        let mut frame = frame.payload(b"who reads this?").to_vec().expect("a frame");
        change(&mut frame);
        frame
    };
    let tunnelled = |source: u8, vni: u32, frame: &[u8]| {
        let fields = Ipv4Fields::new([192, 0, 2, source].into(), [192, 0, 2, 1].into());
        let data = [&vxlan::header(vni)[..], frame].concat();
        let around = Frame::new().ethernet(bridge.gateway_mac, FAR_MAC).ipv4(fields);
        around.udp(50_000, vxlan::PORT).payload(&data).to_vec().expect("a frame")
    };
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut packet = tunnelled(2, VNI, &datagram(&|_| {}));
        change(&mut packet);
        packet
    };
    let right = with(&|_| {});
    let fragment = |offset: u16, packet: &mut Vec<u8>| {
        packet[20..22].copy_from_slice(&offset.to_be_bytes());
        packet[24..26].fill(0);
        let header = packet[14..].first_chunk().expect("a header");
        let sum = checksum::ipv4_header_checksum20(header).to_be_bytes();
        packet[24..26].copy_from_slice(&sum);
    };
    let unanswered = counted(&bridge.host, "Udp:", "NoPorts");
    bridge.send(&[
        right.clone(),
        // Outside: the checksums of UDP and of IP.
        with(&|packet| packet[60] ^= 1),
        with(&|packet| packet[24] ^= 1),
        // Inside, the same.
        tunnelled(2, VNI, &datagram(&|frame| frame[50] ^= 1)),
        tunnelled(2, VNI, &datagram(&|frame| frame[24] ^= 1)),
        tunnelled(2, VNI, &datagram(&|frame| frame[16] = 9)),
        tunnelled(2, VNI + 1, &datagram(&|_| {})),
        tunnelled(9, VNI, &datagram(&|_| {})),
        tunnelled(2, VNI, &datagram(&|frame| frame[12..14].copy_from_slice(&[0x81, 0]))),
        // The first and the last of several.
        with(&|packet| fragment(0x2000, packet)),
        with(&|packet| fragment(0x0010, packet)),
        // Without a checksum outside it is as good.
        with(&|packet| packet[40..42].fill(0)),
        right.clone(),
    ]);
    // They may wait on the backlog of another CPU than the ping did.
    until("those that are right have come", || counted(&bridge.host, "Udp:", "NoPorts") >= unanswered + 3);
    assert_eq!(
        counted(&bridge.host, "Udp:", "NoPorts") - unanswered,
        3,
        "those that are right, and no others"
    );
    let report = bridge.finish();
    let drops = report.drops(&(report.stage("vxlan") + "/drops"));
    let expected = [
        ("outer-checksum", 1),
        ("inner-checksum", 2),
        ("inner-length", 1),
        ("unknown-network", 1),
        ("unknown-remote", 1),
        ("inner-tag", 1),
        ("fragment", 2),
    ];
    for (reason, count) in expected {
        assert_eq!(drops.get(reason), Some(&count), "{reason}: {:#}", report.value());
    }
    assert_eq!(report.drops("/forward/drops").get("ipv4-checksum"), Some(&1), "{:#}", report.value());
}
