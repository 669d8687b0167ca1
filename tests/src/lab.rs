//! A router between two hosts, each in a network namespace of its own, and what the hosts do to each other.
//!
//! ```text
//! west                      router                      east
//! 192.0.2.2 ----- w0 ----- 192.0.2.1
//!                           198.51.100.1 ----- e0 ----- 198.51.100.2
//! 2001:db8:1::2             2001:db8:1::1
//!                           2001:db8:2::1               2001:db8:2::2
//! ```
//!
//! The hosts are the kernel's: its ARP, neighbour discovery, ICMP, TCP. The router is `warmlane forward`; the kernel
//! of its namespace has no addresses and forwards nothing, so whatever gets through went through warmlane.

mod capture;

use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;
use warmlane_testkit::namespace::{self, Namespace};
use warmlane_testkit::process::Process;
use warmlane_testkit::{Report, requirements};

use crate::command::{SHORT, assert_refused, forward};
use crate::iperf::iperf;
use crate::wire::check_wire;

pub use capture::CAPTURE_PROGRAMS;

/// The programs that the lab runs.
pub const PROGRAMS: [&str; 6] = ["ip", "sysctl", "ping", "traceroute", "iperf3", "ethtool"];

const EAST: &str = "198.51.100.2";
const EAST_IPV6: &str = "2001:db8:2::2";

/// How the router gets at its links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// Packet sockets on the router's ends of virtual links.
    Packet,
    /// TAP devices whose kernel end belongs to the hosts.
    Tap,
    /// AF_XDP sockets on the router's ends of virtual links.
    Xdp,
    /// A TAP device in the west, an AF_XDP socket in the east whose frames are merged.
    TapAndXdp,
    /// Packet sockets, whose flows are spread over lanes in software.
    SpreadPackets,
}

impl Driver {
    /// West and east.
    const fn of_ports(self) -> [Self; 2] {
        match self {
            Self::TapAndXdp => [Self::Tap, Self::Xdp],
            Self::SpreadPackets => [Self::Packet; 2],
            _ => [self, self],
        }
    }
}

/// The three namespaces, and the router at work.
#[derive(Debug)]
pub struct Lab {
    west: Namespace,
    router: Namespace,
    east: Namespace,
    process: Process,
    driver: Driver,
    directory: tempfile::TempDir,
}

impl Lab {
    /// Builds the lab, with a router of so many lanes; `None` where it cannot be built. The router takes the eastern link's MTU for this, while all
    /// else is 1,500: as if the smaller link were further away, so that no host knows of it to begin with.
    ///
    /// # Panics
    /// If something that should work doesn't.
    #[track_caller]
    pub fn new(driver: Driver, lanes: usize, east_mtu: u32) -> Option<Self> {
        if !requirements::namespaces_and(&PROGRAMS) {
            return None;
        }
        let (west, router, east) = (Namespace::new("west"), Namespace::new("router"), Namespace::new("east"));
        for scope in ["all", "default"] {
            router.set(&format!("net.ipv6.conf.{scope}.disable_ipv6"), "1");
        }
        let drivers = driver.of_ports();
        for ((interface, host), driver) in [("w0", &west), ("e0", &east)].into_iter().zip(drivers) {
            if driver != Driver::Tap {
                let mtu = if driver == Driver::Xdp { east_mtu.max(1500) } else { 1500 };
                namespace::link((&router, interface), (host, interface), mtu);
                if driver == Driver::Xdp {
                    namespace::set_queues((&router, interface), (host, interface), lanes);
                    // AF_XDP has no word for checksums that are left to hardware.
                    let line = format!("ethtool -K {interface} tx off");
                    host.run(&line).expect_success(&line);
                }
            }
        }
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("router.toml");
        fs::write(&path, config(driver, lanes, east_mtu)).expect("a writable temporary directory");
        let outside = forward(&path);
        let mut command = router.command(outside.get_program());
        command.args(outside.get_args());
        let mut process = Process::spawn(&mut command);
        for interface in ["w0", "e0"].into_iter().zip(drivers).filter(|(_, driver)| *driver == Driver::Tap) {
            router.wait_for_interface(interface.0, &mut process);
        }
        // It says so once its lanes run.
        process.wait_for("note: port 'east'", SHORT);
        for ((interface, host), driver) in [("w0", &west), ("e0", &east)].into_iter().zip(drivers) {
            if driver == Driver::Tap {
                router.ip(&format!("link set {interface} netns {}", host.name()));
            }
        }
        let host_mtu = if driver == Driver::Xdp { east_mtu.max(1500) } else { 1500 };
        host(
            &west,
            "w0",
            host_mtu,
            "02:00:00:00:00:02",
            ["192.0.2.2/24", "2001:db8:1::2/64"],
            ["192.0.2.1", "2001:db8:1::1"],
        );
        host(
            &east,
            "e0",
            host_mtu,
            "02:00:00:00:00:03",
            ["198.51.100.2/24", "2001:db8:2::2/64"],
            ["198.51.100.1", "2001:db8:2::1"],
        );
        Some(Self { west, router, east, process, driver, directory })
    }

    /// The hosts reach the router and each other.
    ///
    /// # Panics
    /// If they don't.
    pub fn check_ping(&self) {
        for address in ["192.0.2.1", EAST, "2001:db8:1::1", EAST_IPV6] {
            self.west.run(&format!("ping -n -c 3 -i 0.2 -W 10 {address}")).expect_success(address);
        }
        for address in ["198.51.100.1", "192.0.2.2", "2001:db8:2::1", "2001:db8:1::2"] {
            self.east.run(&format!("ping -n -c 3 -i 0.2 -W 10 {address}")).expect_success(address);
        }
        // One hop less than the 64 that Linux sends with.
        let far = self.west.run(&format!("ping -n -c 1 -W 10 {EAST}"));
        assert!(far.output.contains("ttl=63"), "{}", far.text());
        // A link has more addresses than stations.
        let nobody = self.west.run("ping -n -c 1 -W 10 198.51.100.77");
        assert!(nobody.output.contains("From 192.0.2.1"), "{}", nobody.text());
        assert!(nobody.output.contains("Destination Host Unreachable"), "{}", nobody.text());
        let nowhere = self.west.run("ping -n -c 1 -W 10 2001:db8:77::1");
        assert!(nowhere.output.contains("From 2001:db8:1::1"), "{}", nowhere.text());
        assert!(nowhere.output.contains("No route"), "{}", nowhere.text());
    }

    /// Packets of the given IP length go through in one piece.
    ///
    /// # Panics
    /// If they don't.
    pub fn check_jumbo(&self, mtu: u32) {
        for (address, headers) in [(EAST, 28), (EAST_IPV6, 48)] {
            let line = format!("ping -n -c 3 -i 0.2 -W 10 -M do -s {} {address}", mtu - headers);
            self.west.run(&line).expect_success(&line);
        }
        let mut server = self.east.spawn("iperf3 --server --forceflush");
        server.wait_for("Server listening", SHORT);
        self.check_tcp(EAST, "");
        self.check_tcp(EAST_IPV6, "--reverse");
    }

    /// Kills the router in full traffic. Nothing of it is left on the links, and another one can start at once.
    ///
    /// # Panics
    /// If that isn't so.
    pub fn check_killing(self) {
        let Self { west, router, east: _east, process, driver, directory } = self;
        let _flood = west.spawn(&format!("ping -n -q -i 0.002 -W 1 {EAST}"));
        std::thread::sleep(Duration::from_millis(300));
        let links = || router.run("ip -details link show").output;
        assert!(driver != Driver::Xdp || links().contains("prog/xdp"), "{}", links());
        process.signal("KILL");
        drop(process);
        let end = Instant::now() + SHORT;
        while links().contains("prog/xdp") {
            assert!(Instant::now() < end, "still attached: {}", links());
            std::thread::sleep(Duration::from_millis(10));
        }
        let outside = forward(&directory.path().join("router.toml"));
        let mut command = router.command(outside.get_program());
        command.args(outside.get_args());
        let mut process = Process::spawn(&mut command);
        process.wait_for("note: port 'east'", SHORT);
        west.run(&format!("ping -n -c 3 -i 0.2 -W 10 {EAST}")).expect_success("ping");
        process.interrupt();
        let finished = process.finish(SHORT);
        Report::parse(finished.expect_success("warmlane forward")).assert_balanced();
    }

    /// The router is a hop that a traceroute sees.
    ///
    /// # Panics
    /// If it isn't.
    pub fn check_traceroute(&self) {
        for (options, hop, target) in [("-4", "192.0.2.1", EAST), ("-6", "2001:db8:1::1", EAST_IPV6)] {
            let trace = self.west.run(&format!("traceroute {options} -n -q 2 -w 10 -m 5 {target}"));
            let hops: Vec<&str> = trace.output.lines().skip(1).map(str::trim).collect();
            let seen = |number: usize, address: &str| {
                let line = hops.get(number - 1);
                line.is_some_and(|line| line.starts_with(&format!("{number}  {address} ")))
            };
            assert!(seen(1, hop) && seen(2, target) && hops.len() == 2, "{}", trace.text());
        }
    }

    /// TCP and UDP over both families in both directions, with offloads on and off.
    ///
    /// # Panics
    /// If too little arrives.
    pub fn check_streams(&self) {
        let mut server = self.east.spawn("iperf3 --server --forceflush");
        server.wait_for("Server listening", SHORT);
        // AF_XDP has no word for what is left to hardware.
        let settings: &[bool] = if self.driver == Driver::Xdp { &[false] } else { &[true, false] };
        for &offloads in settings {
            self.west.set_offloads("w0", offloads);
            self.east.set_offloads("e0", offloads && self.driver != Driver::TapAndXdp);
            if !self.driver.of_ports().contains(&Driver::Tap) {
                self.router.set_offloads("w0", offloads);
                self.router.set_offloads("e0", offloads);
            }
            for address in [EAST, EAST_IPV6] {
                for direction in ["", "--reverse"] {
                    self.check_tcp(address, direction);
                    self.check_udp(address, direction);
                }
            }
        }
    }

    /// TCP of both families reaches the east, and tshark finds each packet right and no longer than the link's MTU.
    ///
    /// # Panics
    /// If not.
    pub fn check_wire(&self) {
        let ways = [("192.0.2.2", EAST), ("2001:db8:1::2", EAST_IPV6)];
        check_wire(&self.west, (&self.east, "e0"), &ways);
    }

    /// TCP of both families goes through, west to east.
    ///
    /// # Panics
    /// If it doesn't.
    pub fn check_transfer(&self) {
        let mut server = self.east.spawn("iperf3 --server --forceflush");
        server.wait_for("Server listening", SHORT);
        self.check_tcp(EAST, "");
        self.check_tcp(EAST_IPV6, "");
    }

    /// The same the other way.
    ///
    /// # Panics
    /// If it doesn't.
    pub fn check_transfer_back(&self) {
        let mut server = self.east.spawn("iperf3 --server --forceflush");
        server.wait_for("Server listening", SHORT);
        self.check_tcp(EAST, "--reverse");
        self.check_tcp(EAST_IPV6, "--reverse");
    }

    fn check_tcp(&self, address: &str, direction: &str) {
        let result = iperf(&self.west, &format!("--client {address} --time 1 {direction}"));
        let bytes = number(&result, "/end/sum_received/bytes");
        // The slowest way there is makes 100 times that.
        assert!(bytes > 1e6, "only {bytes} bytes of TCP to {address} {direction}: {result:#}");
    }

    /// 20 Mbit/s for a second are 2,083 packets. A busy machine may take a lane's CPU away for most of it, but not each time.
    fn check_udp(&self, address: &str, direction: &str) {
        let line = format!("--client {address} --udp --bitrate 20M --length 1200 --time 1 {direction}");
        let mut results = Vec::new();
        while results.len() < 5 {
            let result = iperf(&self.west, &line);
            let packets = number(&result, "/end/sum/packets");
            let lost = number(&result, "/end/sum/lost_packets");
            if packets > 1000.0 && lost < packets / 4.0 {
                return;
            }
            results.push(format!("{lost} of {packets} lost"));
        }
        panic!("UDP to {address} {direction}: {results:?}");
    }

    /// All that hosts do on links of the usual size.
    ///
    /// # Panics
    /// If something doesn't get through.
    pub fn check_hosts(self) {
        self.check_ping();
        self.check_traceroute();
        self.check_streams();
        self.finish();
    }

    /// The eastern link is smaller: the hosts find that out, and the report tells what was cut and what was too large.
    ///
    /// # Panics
    /// If that isn't so.
    pub fn check_smaller_link(self, mtu: u32) {
        self.check_path_mtu(mtu);
        let report = self.finish();
        assert!(report.number("/forward/fragmented") > 0, "{:#}", report.value());
        // One for each ping, and at least one for each family's TCP.
        assert!(report.drops("/forward/drops")["mtu-exceeded"] >= 4, "{:#}", report.value());
    }

    /// Two lanes share the ports' queues, over which the kernel spreads flows; where there are as many CPUs.
    ///
    /// # Panics
    /// If one of them gets nothing.
    pub fn check_both_lanes(driver: Driver) {
        if !requirements::cpus(2) {
            return;
        }
        let Some(lab) = Self::new(driver, 2, 1500) else { return };
        lab.two_lanes_work();
    }

    fn two_lanes_work(self) {
        self.check_ping();
        self.check_streams();
        let report = self.finish();
        for lane in ["/lanes/0/packets", "/lanes/1/packets"] {
            assert!(report.number(lane) > 0, "{:#}", report.value());
        }
    }

    /// Senders learn that the eastern link carries less, fragments are made where that is allowed, and TCP adapts.
    fn check_path_mtu(&self, mtu: u32) {
        // 3,000 bytes leave in fragments that fit the first link, and the router cuts these again.
        self.west.run(&format!("ping -n -c 3 -i 0.2 -W 10 -M dont -s 3000 {EAST}")).expect_success("ping");
        let too_big = self.west.run(&format!("ping -n -c 2 -i 0.2 -W 10 -M do -s 1472 {EAST}"));
        assert!(too_big.text().contains("From 192.0.2.1"), "{}", too_big.text());
        assert!(
            too_big.text().contains(&format!("Frag needed and DF set (mtu = {mtu})")),
            "{}",
            too_big.text()
        );
        let too_big = self.west.run(&format!("ping -n -c 2 -i 0.2 -W 10 -M do -s 1452 {EAST_IPV6}"));
        assert!(too_big.text().contains("From 2001:db8:1::1"), "{}", too_big.text());
        assert!(too_big.text().contains(&format!("Packet too big: mtu={mtu}")), "{}", too_big.text());
        // What just fits.
        self.west.run(&format!("ping -n -c 1 -W 10 -M do -s {} {EAST}", mtu - 28)).expect_success("ping");
        self.west
            .run(&format!("ping -n -c 1 -W 10 -M do -s {} {EAST_IPV6}", mtu - 48))
            .expect_success("ping");

        let mut server = self.east.spawn("iperf3 --server --forceflush");
        server.wait_for("Server listening", SHORT);
        for direction in ["", "--reverse"] {
            for address in [EAST, EAST_IPV6] {
                // The connection itself has to find out.
                self.west.ip("route flush cache");
                self.west.ip("-6 route flush cache");
                self.check_tcp(address, direction);
            }
        }
    }

    /// Takes the western link away while packets flow. The eastern one goes on; when that is gone, too, the command
    /// ends with a message that names what happened, and its books are closed.
    ///
    /// # Panics
    /// If that isn't so.
    pub fn check_vanishing(self) {
        let Self { west, east, mut process, router: _router, .. } = self;
        // Without a route it goes on and fails; that is its own business.
        let _flood = west.spawn(&format!("ping -n -q -i 0.002 -W 1 {EAST}"));
        std::thread::sleep(Duration::from_millis(300));
        west.ip("link delete w0");
        std::thread::sleep(Duration::from_millis(500));
        assert!(!process.has_ended(), "one of two ports is still there");
        east.run("ping -n -c 2 -i 0.2 -W 10 198.51.100.1").expect_success("the other port");
        east.ip("link delete e0");
        let finished = process.finish(SHORT);
        assert_refused(&finished, &["w0", "e0"]);
        let report = Report::parse(&finished.output);
        report.assert_balanced();
        assert!(report.number("/forward/forwarded") > 0, "{:#}", report.value());
    }

    /// Ends the router and checks its books.
    ///
    /// # Panics
    /// If something is missing.
    pub fn finish(self) -> Report {
        self.process.interrupt();
        let finished = self.process.finish(SHORT);
        let report = Report::parse(finished.expect_success("warmlane forward"));
        report.assert_balanced();
        assert!(report.number("/forward/forwarded") > 0 && report.number("/forward/answered") > 0);
        report
    }
}

fn number(result: &Value, path: &str) -> f64 {
    let number = result.pointer(path).and_then(Value::as_f64);
    number.unwrap_or_else(|| panic!("iperf3 says nothing of {path}: {result:#}"))
}

/// The hosts of the lab by their IPv4 addresses, for a configuration with ports west and east.
pub const NEIGHBOURS: &str = r#"
        [[neighbour]]
        address = "192.0.2.2"
        mac = "02:00:00:00:00:02"
        port = "west"

        [[neighbour]]
        address = "198.51.100.2"
        mac = "02:00:00:00:00:03"
        port = "east"
"#;

fn config(driver: Driver, lanes: usize, east_mtu: u32) -> String {
    let port = |driver: Driver, mac| match driver {
        // The port has the interface's address.
        Driver::Packet | Driver::SpreadPackets => ("packet", ""),
        Driver::Xdp => ("xdp", ""),
        // The interface's address is the host's.
        Driver::Tap | Driver::TapAndXdp => ("tap", mac),
    };
    let [west, east] = driver.of_ports();
    let (west_driver, west_mac) = port(west, "mac = \"02:00:00:00:01:01\"");
    let (east_driver, east_mac) = port(east, "mac = \"02:00:00:00:01:02\"");
    let west_mtu = east_mtu.max(1500);
    let gro = driver == Driver::TapAndXdp;
    let rss = if driver == Driver::SpreadPackets { "rss = \"symmetric\"" } else { "" };
    format!(
        r#"
        lanes = {lanes}

        [[port]]
        name = "west"
        driver = {{ {west_driver} = {{ interface = "w0" }} }}
        addresses = ["192.0.2.1/24", "2001:db8:1::1/64"]
        mtu = {west_mtu}
        {rss}
        {west_mac}

        [[port]]
        name = "east"
        driver = {{ {east_driver} = {{ interface = "e0" }} }}
        addresses = ["198.51.100.1/24", "2001:db8:2::1/64"]
        mtu = {east_mtu}
        gro = {gro}
        {rss}
        {east_mac}

        {NEIGHBOURS}

        [[neighbour]]
        address = "2001:db8:1::2"
        mac = "02:00:00:00:00:02"
        port = "west"

        [[neighbour]]
        address = "2001:db8:2::2"
        mac = "02:00:00:00:00:03"
        port = "east"
        "#
    )
}

/// Gives a host its addresses and its way out.
fn host(
    namespace: &Namespace,
    interface: &str,
    mtu: u32,
    mac: &str,
    addresses: [&str; 2],
    gateways: [&str; 2],
) {
    namespace.ip(&format!("link set {interface} address {mac}"));
    namespace.ip(&format!("link set {interface} mtu {mtu} up"));
    for address in addresses {
        namespace.ip(&format!("address add {address} dev {interface}"));
    }
    for gateway in gateways {
        namespace.ip(&format!("route add default via {gateway}"));
    }
}
