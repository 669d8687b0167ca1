//! Two hosts and a router between them that the kernel could be: `warmlane router` takes over from it.
//!
//! ```text
//! west                      router                      east
//! 192.0.2.2 ----- w0 ----- 192.0.2.1
//!                           198.51.100.1 ----- e0 ----- 198.51.100.2, .3
//! 2001:db8:1::2             2001:db8:1::1
//!                           2001:db8:2::1               2001:db8:2::2, ::3
//! ```

use std::time::{Duration, Instant};

use serde_json::Value;
use warmlane_testkit::namespace::{self, Namespace};
use warmlane_testkit::process::{Finished, Process, warmlane};
use warmlane_testkit::{Report, requirements};

use crate::command::{SHORT, assert_refused};

/// The programs that the lab runs.
pub const PROGRAMS: [&str; 6] = ["ip", "sysctl", "ping", "traceroute", "iperf3", "ethtool"];

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
}

impl RouterLab {
    /// Builds the lab; `None` where it cannot be built. `programs` are needed besides the usual ones.
    ///
    /// # Panics
    /// If something that should work doesn't.
    pub fn new(test: &str, mtu: u32, programs: &[&str]) -> Option<Self> {
        Self::with_queues(test, mtu, 1, programs)
    }

    /// The same, with so many queues each way of each interface.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub fn with_queues(test: &str, mtu: u32, queues: usize, programs: &[&str]) -> Option<Self> {
        if !requirements::namespaces_and(test, &[&PROGRAMS[..], programs].concat()) {
            return None;
        }
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
        Some(Self { west, router, east, directory })
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

    /// Starts the router, which may refuse.
    pub fn spawn(&self, interfaces: &str, options: &str) -> Process {
        let mut command = self.router.command(warmlane());
        command.args(["router", "--json", "--quiet", "--socket"]).arg(self.socket());
        command.args(interfaces.split_whitespace()).args(options.split_whitespace());
        Process::spawn(&mut command)
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
        Process::run(&mut command, Duration::from_secs(60))
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

    /// A host reaches these addresses, each with the first packet.
    ///
    /// # Panics
    /// If it doesn't.
    #[track_caller]
    pub fn check_ping(host: &Namespace, addresses: &[&str]) {
        for address in addresses {
            let ping = host.run(&format!("ping -n -c 3 -i 0.2 -W 5 {address}"));
            assert!(ping.expect_success(address).contains(" 0% packet loss"), "{}", ping.text());
        }
    }

    /// Ends the router and checks its books.
    ///
    /// # Panics
    /// If something is missing.
    pub fn finish(process: Process) -> Report {
        process.interrupt();
        let finished = process.finish(SHORT);
        let report = Report::parse(finished.expect_success("warmlane router"));
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
        assert_refused(&finished, &[&format!("interface {interface:?} was deleted")]);
        let report = Report::parse(&finished.output);
        report.assert_balanced();
        (report, finished.errors)
    }
}
