//! A virtual machine behind a vhost port, and a host behind a TAP device, as neighbours.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use warmlane_system_tests::{GUEST_PORT, Machine, NEIGHBOURS, OBEY, OBEY_MODULE, SHORT, iperf};
use warmlane_testkit::exchange::until;
use warmlane_testkit::namespace::Namespace;
use warmlane_testkit::process::{Process, warmlane};
use warmlane_testkit::{Report, requirements};

const PROGRAMS: [&str; 5] = ["ip", "ping", "iperf3", "ethtool", "qemu-system-x86_64"];

/// What the machine does: it is a host with an iperf3 server, and does what it is told.
fn script() -> String {
    format!(
        "ip link set eth0 up\n\
         ip address add 198.51.100.2/24 dev eth0\n\
         ip route add default via 198.51.100.1\n\
         echo {UP} >{GUEST_PORT}\n\
         while :; do iperf3 --server --one-off; done >/dev/null 2>&1 &\n\
         {OBEY}"
    )
}

/// The machine's socket.
const HERE: &str = "vm.sock";

/// The hypervisor's socket for commands.
fn monitor_of(socket: &str) -> String {
    format!("{socket}.monitor")
}

/// Among the properties of a network card: it has two pairs of rings.
const SEVERAL: &str = "mq=on";

/// What it says when it is there.
const UP: &str = "guest is up";

fn config(socket: &Path) -> String {
    format!(
        r#"
        lanes = 1

        [[port]]
        name = "west"
        driver = {{ tap = {{ interface = "w0" }} }}
        addresses = ["192.0.2.1/24"]
        mac = "02:00:00:00:01:01"

        [[port]]
        name = "east"
        driver = {{ vhost = {{ socket = "{}", queues = 2 }} }}
        addresses = ["198.51.100.1/24"]
        mac = "02:00:00:00:01:02"

        {NEIGHBOURS}
        "#,
        socket.display()
    )
}

struct Lab {
    west: Namespace,
    machine: Machine,
    directory: tempfile::TempDir,
}

impl Lab {
    fn new() -> Option<Self> {
        if !requirements::namespaces_and(&PROGRAMS) {
            return None;
        }
        let modules = format!("virtio_pci virtio_net {OBEY_MODULE}");
        let machine = Machine::new(&modules, &["iperf3", "ethtool"], &[], &script())?;
        let directory = tempfile::tempdir().expect("a temporary directory");
        Some(Self { west: Namespace::new("west"), machine, directory })
    }

    /// The lab with a forwarder and a machine that has such a network card, which host and machine reach each other by; `None` where there
    /// can't be one.
    fn with_machine(properties: &str) -> Option<(Self, Process, Process)> {
        let lab = Self::new()?;
        let (process, machine) = (lab.forward(), lab.boot(properties));
        lab.check_ping();
        lab.check_streams();
        Some((lab, process, machine))
    }

    fn forward(&self) -> Process {
        self.forward_in(&self.west, HERE)
    }

    /// In a namespace, with a host there, and a machine at `socket`.
    fn forward_in(&self, namespace: &Namespace, socket: &str) -> Process {
        let path = self.directory.path().join(format!("{socket}.toml"));
        fs::write(&path, config(&self.directory.path().join(socket))).expect("a writable directory");
        let mut command = namespace.command(warmlane());
        command.arg("forward").arg("--config").arg(&path).arg("--json");
        let mut process = Process::spawn(&mut command);
        namespace.wait_for_interface("w0", &mut process);
        process.wait_for("note: port 'west'", SHORT);
        for line in [
            "link set w0 address 02:00:00:00:00:02 up",
            "address add 192.0.2.2/24 dev w0",
            "route add default via 192.0.2.1",
        ] {
            namespace.ip(line);
        }
        process
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Boots the machine, with these properties of its network card.
    fn boot(&self, properties: &str) -> Process {
        self.machine.boot(&mut self.hypervisor(properties, HERE), UP)
    }

    /// The machine's hypervisor, with a network card behind `socket`.
    fn hypervisor(&self, properties: &str, socket: &str) -> Command {
        let at = |name: &str| self.path(name).display().to_string();
        let mut command = self.machine.command(512);
        self.machine.add_commands(&mut command);
        command.args(["-object", "memory-backend-memfd,id=m,size=512M,share=on", "-numa", "node,memdev=m"]);
        command.args(["-chardev", &format!("socket,id=c,path={},reconnect=1", at(socket))]);
        let pairs = if properties.contains(SEVERAL) { 2 } else { 1 };
        command.args(["-netdev", &format!("vhost-user,id=n,chardev=c,queues={pairs}")]);
        // Without KVM, QEMU 7.2 falls over its own interrupts when it has vectors.
        command.args(["-device", &format!("virtio-net-pci,netdev=n,mac=02:00:00:00:00:03,romfile=,disable-legacy=on,vectors=0,{properties}")]);
        command.args(["-monitor", &format!("unix:{},server=on,wait=off", at(&monitor_of(socket)))]);
        command
    }

    /// Says something to the hypervisor at `socket`, and returns its answer.
    fn monitor(&self, socket: &str, line: &str) -> String {
        Machine::monitor(&self.path(&monitor_of(socket)), line)
    }

    /// Presses the machine's reset button, and waits until it is up again.
    fn reset(&self, machine: &Process) {
        let before = machine.output().matches(UP).count();
        self.monitor(HERE, "system_reset");
        until("it is up again", || machine.output().matches(UP).count() > before);
    }

    fn check_ping(&self) {
        check_ping_from(&self.west);
    }

    fn check_streams(&self) {
        check_streams_from(&self.west);
    }
}

fn check_ping_from(host: &Namespace) {
    host.run("ping -n -c 5 -i 0.2 -W 60 -w 120 198.51.100.2").expect_success("ping");
    host.run("ping -n -c 2 -i 0.2 -W 60 -w 120 -s 1400 -M do 198.51.100.2").expect_success("ping -s 1400");
}

/// TCP in both directions, so much that each packet of it has gone round the rings.
fn check_streams_from(host: &Namespace) {
    for direction in ["", "--reverse"] {
        let result = iperf(host, &format!("--client 198.51.100.2 --bytes 30M {direction}"));
        let bytes = result.pointer("/end/sum_received/bytes").and_then(serde_json::Value::as_f64);
        // What the receiver had read when the sender was through, which is less than all.
        assert!(bytes.is_some_and(|bytes| bytes > 15e6), "{direction}: {result:#}");
    }
}

fn finish(process: Process) -> Report {
    process.interrupt();
    let report = Report::parse(process.finish(SHORT).expect_success("warmlane forward"));
    report.assert_balanced();
    report
}

fn kill(process: Process) {
    process.signal("KILL");
    drop(process.finish(SHORT));
}

/// Checks how long packets at the machine's port were: up to a frame, or longer because what they need done is left to others.
fn check_lengths(report: &Report, direction: &str, are_whole: bool) {
    let port = report.port("east");
    let number = |name| report.number(&format!("{port}/{direction}/{name}"));
    let mean = number("bytes") / number("packets").max(1);
    let is_right = if are_whole { mean > 2_000 } else { mean <= 1_514 };
    assert!(is_right, "{mean} bytes each {direction}: {:#}", report.value());
}

/// Pings and streams, while the machine leaves work to us; while it doesn't; while we are killed and come back, the machine boots again, and is killed, and
/// another one comes.
#[test]
fn machines_with_split_rings_come_and_go() {
    let Some((lab, process, machine)) = Lab::with_machine("packed=off") else { return };
    let report = finish(process);
    check_lengths(&report, "received", true);
    check_lengths(&report, "transmitted", true);

    let process = lab.forward();
    lab.machine.tell("ethtool -K eth0 tx off tso off gso off");
    lab.check_ping();
    lab.check_streams();
    lab.machine.tell("ethtool -K eth0 tx on tso on gso on");
    let report = finish(process);
    check_lengths(&report, "received", false);
    check_lengths(&report, "transmitted", true);

    let process = lab.forward();
    lab.check_ping();
    kill(process);
    let process = lab.forward();
    lab.check_ping();

    lab.reset(&machine);
    lab.check_ping();
    kill(machine);
    let _machine = lab.boot("packed=off");
    lab.check_ping();
    finish(process);
}

/// We are killed and come back, while the machine only knows that its rings, of which it has two pairs, once began; the machine boots again, and is killed, and
/// another one comes.
#[test]
fn machines_with_packed_rings_come_and_go() {
    let Some((lab, process, machine)) = Lab::with_machine("packed=on,mq=on") else { return };
    kill(process);
    let process = lab.forward();
    lab.check_ping();
    lab.check_streams();
    lab.reset(&machine);
    lab.check_streams();
    kill(machine);
    let _machine = lab.boot("packed=on,mq=on");
    lab.machine.tell("ethtool -K eth0 tx off tso off gso off");
    lab.check_streams();
    lab.machine.tell("ethtool -K eth0 tx on tso on gso on");
    lab.check_streams();
    let report = finish(process);
    check_lengths(&report, "received", true);
    check_lengths(&report, "transmitted", true);
}

/// What the host leaves to hardware is done here, for a machine whose card takes nothing but whole frames.
#[test]
fn a_machine_without_offloads() {
    let off = "csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off,host_tso4=off,host_tso6=off,mrg_rxbuf=off";
    let Some((_lab, process, machine)) = Lab::with_machine(off) else { return };
    let report = finish(process);
    check_lengths(&report, "received", false);
    check_lengths(&report, "transmitted", false);
    kill(machine);
}
