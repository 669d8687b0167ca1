//! Network namespaces and the links between them, by the `ip` command.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::process::{Finished, Process};

/// How long a command that should answer at once may take.
const LIMIT: Duration = Duration::from_secs(300);

/// A network namespace. Dropping it deletes it, with all interfaces in it.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes a namespace with loopback up and without IPv6 duplicate address detection, which would take a second for
    /// each address. Its name contains the label and is otherwise unique.
    ///
    /// # Panics
    /// If it can't be made.
    pub fn new(label: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("wl-{}-{number}-{label}", std::process::id());
        ip(&["netns", "add", &name]);
        let namespace = Self { name };
        namespace.ip("link set lo up");
        for scope in ["all", "default"] {
            namespace.set(&format!("net.ipv6.conf.{scope}.accept_dad"), "0");
        }
        namespace
    }

    /// Its name, as `ip netns` lists it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A command that runs inside.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        // `ip` becomes the program, so that the process is the program's.
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Runs a command line inside, split at blanks, to its end.
    ///
    /// # Panics
    /// If it takes longer than a minute.
    #[track_caller]
    pub fn run(&self, line: &str) -> Finished {
        Process::run(&mut self.words(line), LIMIT)
    }

    /// Starts a command line inside.
    #[track_caller]
    pub fn spawn(&self, line: &str) -> Process {
        Process::spawn(&mut self.words(line))
    }

    fn words(&self, line: &str) -> Command {
        let mut words = line.split_whitespace();
        let mut command = self.command(words.next().expect("a command line has a command"));
        command.args(words);
        command
    }

    /// Runs `ip` inside.
    ///
    /// # Panics
    /// If it fails.
    #[track_caller]
    pub fn ip(&self, line: &str) {
        let arguments: Vec<&str> = ["-n", &self.name].into_iter().chain(line.split_whitespace()).collect();
        ip(&arguments);
    }

    /// Sets a kernel parameter inside.
    ///
    /// # Panics
    /// If that isn't possible.
    #[track_caller]
    pub fn set(&self, parameter: &str, value: &str) {
        self.run(&format!("sysctl -q -w {parameter}={value}")).expect_success(parameter);
    }

    /// Whether it has an interface of this name.
    pub fn has_interface(&self, interface: &str) -> bool {
        self.run(&format!("ip link show dev {interface}")).status.success()
    }

    /// Waits for an interface of this name.
    ///
    /// # Panics
    /// If it doesn't come within ten seconds, or the process that should make it ends before, with what that said.
    #[track_caller]
    pub fn wait_for_interface(&self, interface: &str, maker: &mut Process) {
        let end = Instant::now() + Duration::from_secs(10);
        while !self.has_interface(interface) {
            if maker.has_ended() || Instant::now() > end {
                maker.wait_for(&format!("interface {interface} in {}", self.name), Duration::ZERO);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Says at which Ethernet address a station on the link is, so that nobody needs to ask.
    ///
    /// # Panics
    /// If `ip` fails.
    #[track_caller]
    pub fn neighbour(&self, interface: &str, address: &str, mac: &str) {
        self.ip(&format!("neighbour replace {address} lladdr {mac} dev {interface} nud permanent"));
    }

    /// The Ethernet address of an interface.
    ///
    /// # Panics
    /// If there is no such interface.
    #[track_caller]
    pub fn mac(&self, interface: &str) -> String {
        let path = format!("/sys/class/net/{interface}/address");
        self.run(&format!("cat {path}")).expect_success(&path).trim().to_owned()
    }

    /// Turns all of an interface's offloads on or off that `ethtool` can turn on a virtual link.
    ///
    /// # Panics
    /// If `ethtool` fails.
    #[track_caller]
    pub fn set_offloads(&self, interface: &str, on: bool) {
        let state = if on { "on" } else { "off" };
        let line = format!(
            "ethtool -K {interface} rx {state} tx {state} sg {state} tso {state} gso {state} gro {state}"
        );
        self.run(&line).expect_success(&line);
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Also while panicking: a failure here must not hide the first one.
        let _ = Command::new("ip").args(["netns", "delete", &self.name]).status();
    }
}

/// Makes a virtual link between two namespaces: an interface of the given name in each, set up, of the given MTU.
///
/// # Panics
/// If `ip` fails.
#[track_caller]
pub fn link(one: (&Namespace, &str), other: (&Namespace, &str), mtu: u32) {
    let mtu = mtu.to_string();
    let (name, other_name) = (one.1, other.1);
    let of_one = ["-n", one.0.name(), "link", "add", name, "mtu", &mtu, "type", "veth"];
    let of_other = ["peer", "name", other_name, "mtu", &mtu, "netns", other.0.name()];
    ip(&[&of_one[..], &of_other].concat());
    one.0.ip(&format!("link set {name} up"));
    other.0.ip(&format!("link set {other_name} up"));
}

/// Gives both ends of a virtual link so many receive and transmit queues.
///
/// # Panics
/// If `ethtool` fails.
#[track_caller]
pub fn set_queues(one: (&Namespace, &str), other: (&Namespace, &str), count: usize) {
    // A veth starts with one of each; being told so again would be an error.
    if count > 1 {
        for (namespace, interface) in [one, other] {
            let line = format!("ethtool -L {interface} rx {count} tx {count}");
            namespace.run(&line).expect_success(&line);
        }
    }
}

#[track_caller]
fn ip(arguments: &[&str]) {
    let what = format!("ip {}", arguments.join(" "));
    Process::run(Command::new("ip").args(arguments), LIMIT).expect_success(&what);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_namespaces_reach_each_other_and_leave_nothing_behind() {
        if !crate::requirements::namespaces_and(&["ip", "ping", "sysctl"]) {
            return;
        }
        let (a, b) = (Namespace::new("a"), Namespace::new("b"));
        link((&a, "left"), (&b, "right"), 1400);
        a.ip("address add 192.0.2.1/24 dev left");
        b.ip("address add 192.0.2.2/24 dev right");
        a.neighbour("left", "192.0.2.2", &b.mac("right"));
        a.run("ping -n -c 1 -W 5 192.0.2.2").expect_success("ping");
        assert!(!a.run("ping -n -c 1 -W 1 192.0.2.3").status.success());
        assert!(!a.has_interface("right"));
        let names = [a.name().to_owned(), b.name().to_owned()];
        drop((a, b));
        let list = Process::run(Command::new("ip").args(["netns", "list"]), LIMIT).output;
        assert!(names.iter().all(|name| !list.contains(name)), "{list}");
    }
}
