//! Two hosts and a router between them that the kernel could be: `warmlane router` takes over from it.
//!
//! ```text
//! west                      router                      east
//! 192.0.2.2 ----- w0 ----- 192.0.2.1
//!                           198.51.100.1 ----- e0 ----- 198.51.100.2, .3
//! 2001:db8:1::2             2001:db8:1::1
//!                           2001:db8:2::1               2001:db8:2::2, ::3
//! ```

use std::process::Command;
use std::sync::RwLockWriteGuard;
use std::time::{Duration, Instant};

use serde_json::Value;
use warmlane_testkit::namespace::{self, Namespace};
use warmlane_testkit::process::{Finished, Process, install_warmlane, warmlane};
use warmlane_testkit::{Report, requirements};

use crate::command::{SHORT, as_nobody_with, assert_refused};
use crate::turn;

/// The programs that the lab runs.
pub(crate) const PROGRAMS: [&str; 6] = ["ip", "sysctl", "ping", "traceroute", "iperf3", "ethtool"];

/// The three namespaces; the kernel routes between them until a router is started.
#[derive(Debug)]
pub struct RouterLab {
    /// The host in the west.
    pub west: Namespace,
    /// The router's namespace.
    pub router: Namespace,
    /// The host in the east.
    pub east: Namespace,
    directory: tempfile::TempDir,
    _turn: Turn,
}

/// Whether other labs may be there at the same time; held for as long as this one is.
#[derive(Debug)]
enum Turn {
    BesideOthers { _guard: turn::BesideOthers },
    Alone { _guard: RwLockWriteGuard<'static, ()> },
}

impl RouterLab {
    /// Builds the lab; `None` where it cannot be built. `programs` are needed besides the usual ones.
    ///
    /// # Panics
    /// If something that should work doesn't.
    #[track_caller]
    pub fn new(mtu: u32, programs: &[&str]) -> Option<Self> {
        Self::with_queues(mtu, 1, programs)
    }

    /// The same, with so many queues each way of each interface.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    #[track_caller]
    pub fn with_queues(mtu: u32, queues: usize, programs: &[&str]) -> Option<Self> {
        let is_possible = requirements::namespaces_and(&[&PROGRAMS[..], programs].concat());
        is_possible.then(|| Self::build(mtu, queues, Turn::BesideOthers { _guard: turn::beside_others() }))
    }

    /// As [`new`](Self::new), while there is no other lab, for tests that promise something about time.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    #[track_caller]
    pub fn alone(mtu: u32, programs: &[&str]) -> Option<Self> {
        let is_possible = requirements::namespaces_and(&[&PROGRAMS[..], programs].concat());
        is_possible.then(|| Self::build(mtu, 1, Turn::Alone { _guard: turn::alone() }))
    }

    /// A lab where the router's kernel has interfaces of a kind, given as for `ip link add NAME`; `None`, and said so, elsewhere.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    #[track_caller]
    pub fn where_there_is(kind: &str) -> Option<Self> {
        Self::new(1500, &[]).filter(|lab| requirements::interface_kind(&lab.router, kind))
    }

    fn build(mtu: u32, queues: usize, turn: Turn) -> Self {
        let (west, router, east) = (Namespace::new("west"), Namespace::new("router"), Namespace::new("east"));
        router.set("net.ipv4.ip_forward", "1");
        router.set("net.ipv6.conf.all.forwarding", "1");
        for (interface, host) in [("w0", &west), ("e0", &east)] {
            namespace::link((&router, interface), (host, interface), mtu);
            namespace::set_queues((&router, interface), (host, interface), queues);
            // AF_XDP has no word for what is left to hardware.
            let line = format!("ethtool -K {interface} tx off txvlan off");
            host.run(&line).expect_success(&line);
            let line = format!("ethtool -K {interface} rxvlan off");
            router.run(&line).expect_success(&line);
        }
        for (namespace, interface, addresses) in [
            (&router, "w0", &["192.0.2.1/24", "2001:db8:1::1/64"][..]),
            (&router, "e0", &["198.51.100.1/24", "2001:db8:2::1/64"]),
            (&west, "w0", &["192.0.2.2/24", "2001:db8:1::2/64"]),
            (&east, "e0", &["198.51.100.2/24", "198.51.100.3/24", "2001:db8:2::2/64", "2001:db8:2::3/64"]),
        ] {
            for address in addresses {
                namespace.ip(&format!("address add {address} dev {interface}"));
            }
        }
        for (host, gateways) in
            [(&west, ["192.0.2.1", "2001:db8:1::1"]), (&east, ["198.51.100.1", "2001:db8:2::1"])]
        {
            for gateway in gateways {
                host.ip(&format!("route add default via {gateway}"));
            }
        }
        let directory = tempfile::tempdir().expect("a temporary directory");
        Self { west, router, east, directory, _turn: turn }
    }

    /// Starts the router, and waits until it forwards.
    ///
    /// # Panics
    /// If it doesn't start.
    pub fn start(&self, interfaces: &str, options: &str) -> Process {
        let mut process = self.spawn(interfaces, options);
        process.wait_for("note: forwarding between", SHORT);
        process
    }

    /// Starts the router, which may refuse: on the user path, unless `options` say another.
    pub fn spawn(&self, interfaces: &str, options: &str) -> Process {
        let mut command = self.router.command(warmlane());
        command.args(["router", "--json", "--quiet", "--socket"]).arg(self.socket());
        command.args(interfaces.split_whitespace()).args(options.split_whitespace());
        if !options.contains("--path") {
            command.args(["--path", "user"]);
        }
        Process::spawn(&mut command)
    }

    /// A third host, behind the router's interface x0: 192.0.3.2 and 2001:db8:3::2, the router's last numbers are 1.
    ///
    /// # Panics
    /// If it can't be made.
    pub fn third_host(&self) -> Namespace {
        let third = Namespace::new("third");
        namespace::link((&self.router, "x0"), (&third, "x0"), 1500);
        third.run("ethtool -K x0 tx off txvlan off").expect_success("ethtool");
        for (host, last) in [(&self.router, 1), (&third, 2)] {
            host.ip(&format!("address add 192.0.3.{last}/24 dev x0"));
            host.ip(&format!("address add 2001:db8:3::{last}/64 dev x0 nodad"));
        }
        third.ip("route add default via 192.0.3.1");
        third.ip("route add default via 2001:db8:3::1");
        third
    }

    /// For frames that are redirected to a veth interface, its other end must be ready: that of a host.
    ///
    /// # Panics
    /// If it can't be told.
    #[track_caller]
    pub fn take_redirected(host: &Namespace, interface: &str) {
        let line = format!("ethtool -K {interface} gro on");
        host.run(&line).expect_success(&line);
    }

    /// So for both hosts.
    ///
    /// # Panics
    /// If they can't be told.
    #[track_caller]
    pub fn hosts_take_redirected(&self) {
        Self::take_redirected(&self.west, "w0");
        Self::take_redirected(&self.east, "e0");
    }

    /// Packets that the program of an interface has forwarded, or that lanes have received from it.
    ///
    /// # Panics
    /// If the router doesn't say.
    #[track_caller]
    pub fn forwarded_from(&self, interface: &str) -> u64 {
        let counters = self.ask("counters");
        let of = |list: &str| counters[list].as_array().cloned().unwrap_or_default();
        let paths = of("paths").into_iter().filter(|path| path["interface"] == interface);
        let ports = of("ports").into_iter().filter(|port| port["name"] == interface);
        let by_program = paths.filter_map(|path| path["forwarded"].as_u64());
        by_program.chain(ports.filter_map(|port| port["received"]["packets"].as_u64())).sum()
    }

    /// Gives the host in the east an address in a network of its own of each family, to which nobody has a route yet; returns
    /// each with the network and two gateways that lead there.
    ///
    /// # Panics
    /// If it can't be done.
    pub fn networks_behind_east(&self) -> [[&'static str; 4]; 2] {
        let networks = [
            ["203.0.113.1", "203.0.113.0/24", "198.51.100.2", "198.51.100.3"],
            ["2001:db8:3::1", "2001:db8:3::/48", "2001:db8:2::2", "2001:db8:2::3"],
        ];
        for ([address, ..], length) in networks.iter().zip([32, 128]) {
            self.east.ip(&format!("address add {address}/{length} dev lo"));
        }
        networks
    }

    /// The host in the west reaches one of the [networks behind the east](Self::networks_behind_east) as soon as there is a
    /// route to it, by each of its gateways, and not before. The route stays.
    ///
    /// # Panics
    /// If it doesn't.
    #[track_caller]
    pub fn check_route_is_followed(&self, [address, prefix, gateway, second]: [&str; 4]) {
        let nowhere = self.west.run(&format!("ping -n -c 1 -W 1 {address}"));
        assert!(!nowhere.status.success() && nowhere.output.contains("nreachable"), "{}", nowhere.text());
        self.router.ip(&format!("route add {prefix} via {gateway}"));
        Self::check_ping(&self.west, &[address]);
        self.router.ip(&format!("route replace {prefix} via {second}"));
        Self::check_ping(&self.west, &[address]);
    }

    /// The router's command line for both interfaces, for an ordinary user with these capabilities and no others; `wrapper` is
    /// run in front. Needs `setpriv`.
    ///
    /// # Panics
    /// If it can't be copied to where such a user can run it.
    pub fn as_nobody_with(&self, capabilities: &[&str], wrapper: &[&str]) -> Command {
        self.as_nobody_on("user", capabilities, wrapper)
    }

    /// The same on another path.
    ///
    /// # Panics
    /// As [`as_nobody_with`](Self::as_nobody_with).
    pub fn as_nobody_on(&self, path: &str, capabilities: &[&str], wrapper: &[&str]) -> Command {
        // The socket is made here, too.
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(self.directory(), everybody).expect("our own");
        let copy = self.directory().join("warmlane");
        let copy = if copy.exists() { copy } else { install_warmlane(self.directory()) };
        let mut words = wrapper.iter().copied().chain(["setpriv"]);
        let mut command = self.router.command(words.next().expect("at least one"));
        // The group is the unit's.
        as_nobody_with(command.args(words), "--groups=0", capabilities).arg(copy);
        command
            .args(["router", "w0", "e0", "--path", path, "--json", "--quiet", "--socket"])
            .arg(self.socket());
        command
    }

    /// Where the router is asked.
    pub fn socket(&self) -> std::path::PathBuf {
        self.directory.path().join("router.sock")
    }

    /// A directory for files of the test's own.
    pub fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }

    /// Asks the router, by `warmlane router QUESTION --json`.
    ///
    /// # Panics
    /// If it doesn't answer.
    pub fn ask(&self, question: &str) -> Value {
        let finished = self.try_ask(question);
        let text = finished.expect_success(question);
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{question}: {error}: {text}"))
    }

    /// Asks the router, which may refuse.
    pub fn try_ask(&self, question: &str) -> Finished {
        let mut command = self.router.command(warmlane());
        command
            .arg("router")
            .args(question.split_whitespace())
            .args(["--json", "--socket"])
            .arg(self.socket());
        Process::run(&mut command, SHORT)
    }

    /// Checks that the tables are the kernel's.
    ///
    /// # Panics
    /// If they aren't.
    pub fn verify(&self) -> Value {
        let answer = self.ask("verify");
        assert_eq!(answer["equal"], true, "{answer:#}");
        answer
    }

    /// Waits until something holds.
    ///
    /// # Panics
    /// If it doesn't in time.
    #[track_caller]
    pub fn wait_until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) -> Duration {
        let begin = Instant::now();
        while !holds() {
            assert!(begin.elapsed() < limit, "{what}: not within {limit:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        begin.elapsed()
    }

    /// Whether one ping is answered within a second.
    pub fn answers(host: &Namespace, address: &str) -> bool {
        host.run(&format!("ping -n -c 1 -W 1 {address}")).status.success()
    }

    /// Waits until a ping is answered.
    ///
    /// # Panics
    /// If none is in time.
    #[track_caller]
    pub fn wait_for_answer(host: &Namespace, address: &str) {
        Self::wait_until(&format!("{address} answers"), SHORT, || Self::answers(host, address));
    }

    /// A host reaches these addresses, each with the first packet.
    ///
    /// # Panics
    /// If it doesn't.
    #[track_caller]
    pub fn check_ping(host: &Namespace, addresses: &[&str]) {
        for address in addresses {
            Self::check_ping_with(host, address);
        }
    }

    /// The same for one address, behind options of ping.
    ///
    /// # Panics
    /// If a ping is not answered.
    #[track_caller]
    pub fn check_ping_with(host: &Namespace, options: &str) {
        // One at a time: after the last of several ping doesn't wait long for the others, and the machine may be busy.
        for _ in 0..3 {
            host.run(&format!("ping -n -c 1 -W 60 {options}")).expect_success(options);
        }
    }

    /// Ends the router; returns its report as it is printed.
    ///
    /// # Panics
    /// If it fails.
    #[track_caller]
    pub fn end(process: Process) -> String {
        process.interrupt();
        process.finish(SHORT).expect_success("warmlane router").to_owned()
    }

    /// Ends the router and checks its books.
    ///
    /// # Panics
    /// If something is missing.
    #[track_caller]
    pub fn finish(process: Process) -> Report {
        let report = Report::parse(&Self::end(process));
        report.assert_balanced();
        report
    }

    /// Ends a router that has lost an interface, and checks its books; returns what it said on standard error, too.
    ///
    /// # Panics
    /// If something is missing, or its exit status says nothing of the loss.
    pub fn finish_without(interface: &str, process: Process) -> (Report, String) {
        process.interrupt();
        let finished = process.finish(SHORT);
        assert_refused(&finished, &[&format!("interface {interface} went away: it was deleted")]);
        let report = Report::parse(&finished.output);
        report.assert_balanced();
        (report, finished.errors)
    }
}
