//! Two network namespaces, a tester's and a router's, with two virtual links between them, by the `ip` command.
//!
//! ```text
//! tester                          router
//! w0, sends from 192.0.2.2  ----- w1 192.0.2.1
//! e0, receives              ----- e1 198.51.100.1, with 198.51.100.2 behind it
//! ```

use crate::error::LabError;
use std::process::{Command, Stdio};

/// Both, until this is dropped.
pub(crate) struct Namespaces {
    tester: String,
    router: String,
}

impl Namespaces {
    pub(crate) fn new() -> Result<Self, LabError> {
        let name = |role: &str| format!("warmlane-lab-{}-{role}", std::process::id());
        let made = Self { tester: name("tester"), router: name("router") };
        let Self { tester, router } = &made;
        for namespace in [tester, router] {
            ip(&format!("netns add {namespace}"))?;
            ip(&format!("-n {namespace} link set lo up"))?;
            // Nobody but the tester has anything to say.
            sysctl(namespace, "net.ipv6.conf.default.disable_ipv6=1")?;
        }
        for (near, far) in [("w0", "w1"), ("e0", "e1")] {
            ip(&format!("link add {near} netns {tester} type veth peer name {far} netns {router}"))?;
            ip(&format!("-n {tester} link set {near} up"))?;
            ip(&format!("-n {router} link set {far} up"))?;
        }
        ip(&format!("-n {router} address add 192.0.2.1/24 dev w1"))?;
        ip(&format!("-n {router} address add 198.51.100.1/24 dev e1"))?;
        sysctl(router, "net.ipv4.ip_forward=1")?;
        let behind = Self::address_of(tester, "e0")?;
        ip(&format!("-n {router} neighbour add 198.51.100.2 lladdr {behind} dev e1 nud permanent"))?;
        Ok(made)
    }

    /// A command on one CPU of the tester's.
    pub(crate) fn on_tester(&self, cpu: usize) -> Command {
        within(&self.tester, cpu)
    }

    /// The same of the router's.
    pub(crate) fn on_router(&self, cpu: usize) -> Command {
        within(&self.router, cpu)
    }

    /// Where the router is sent to.
    pub(crate) fn router_address(&self) -> Result<String, LabError> {
        Self::address_of(&self.router, "w1")
    }

    /// Where it sends to.
    pub(crate) fn next_address(&self) -> Result<String, LabError> {
        Self::address_of(&self.tester, "e0")
    }

    fn address_of(namespace: &str, interface: &str) -> Result<String, LabError> {
        let told = ip(&format!("-n {namespace} -o link show dev {interface}"))?;
        let mut words = told.split_whitespace().skip_while(|word| *word != "link/ether");
        words.nth(1).map(str::to_owned).ok_or_else(|| LabError::setup(format!("{interface} has no address")))
    }

    /// Whether an interface of the router's is there and up.
    pub(crate) fn is_up(&self, interface: &str) -> bool {
        ip(&format!("-n {} -o link show dev {interface}", self.router))
            .is_ok_and(|told| told.contains("LOWER_UP"))
    }

    /// Lets all that comes by one interface of the router's leave by another one, past its stack.
    pub(crate) fn redirect(&self, from: &str, to: &str) -> Result<(), LabError> {
        let router = &self.router;
        tc(&format!("-n {router} qdisc add dev {from} ingress"))?;
        let every = "protocol all u32 match u32 0 0";
        tc(&format!(
            "-n {router} filter add dev {from} parent ffff: {every} action mirred egress redirect dev {to}"
        ))
    }

    /// Whether an XDP program is at the interface by which the router sends.
    pub(crate) fn has_program(&self) -> bool {
        ip(&format!("-n {} -o link show dev e1", self.router)).is_ok_and(|told| told.contains("xdp"))
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for namespace in [&self.tester, &self.router] {
            // One that was never made can't be deleted.
            let _ = ip(&format!("netns delete {namespace}"));
        }
    }
}

fn within(namespace: &str, cpu: usize) -> Command {
    let mut command = Command::new("ip");
    // Each of them becomes the next, so that the process is the program's.
    command
        .args(["netns", "exec", namespace, "taskset", "--cpu-list", &cpu.to_string()])
        .stdin(Stdio::null());
    command
}

fn ip(line: &str) -> Result<String, LabError> {
    output(Command::new("ip").args(line.split_whitespace()), &format!("ip {line}"))
}

fn tc(line: &str) -> Result<(), LabError> {
    output(Command::new("tc").args(line.split_whitespace()), &format!("tc {line}")).map(|_| ())
}

fn sysctl(namespace: &str, setting: &str) -> Result<String, LabError> {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace, "sysctl", "-q", "-w", setting]);
    output(&mut command, &format!("sysctl -w {setting}"))
}

/// What a command printed.
pub(crate) fn output(command: &mut Command, name: &str) -> Result<String, LabError> {
    let output = command.output().map_err(|error| LabError::setup(format!("{name}: {error}")))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(LabError::setup(format!("{name}: {} (it needs root, and iproute2)", said.trim())))
    }
}
