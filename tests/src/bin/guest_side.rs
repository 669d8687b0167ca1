//! One side of the comparisons of drivers in a virtual machine, where a program takes frames from a card and sends them back by it.
//!
//!     guest_side CARD PROGRAM BYTES CPU SECOND_CPU WARMLANE
//!
//! CARD is `virtio`, `virtio-packed`, `e1000e` or `igb`. PROGRAM is `warmlane` (`bench port-echo`) or `testpmd` (io, Debian's; also with `-vectorized` or `-1024`
//! behind it). Both drive the card by VFIO and by buffers of the pool (`zero-copy`, which DPDK always does), Intel's behind an IOMMU; virtio devices are without one, as
//! QEMU would not give them to a program outside. The emulator has CPU; what sends the frames and counts those that come back (`bench port-round`) has SECOND_CPU. It
//! is at the other end of the virtio device's rings, or of a TAP interface that the other cards are at. Frames have BYTES without their check sequence.
//!
//! It measures a round for each line "go SECONDS" on its standard input, and ends with that. In between the emulator is stopped.

#![forbid(unsafe_code)]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use warmlane_system_tests::{GUEST_PORT, Machine};
use warmlane_testkit::namespace::Namespace;
use warmlane_testkit::process::Process;

/// Where the card is in the machine.
const ADDRESS: &str = "0000:01:00.0";
/// Mebibytes of the machine's memory.
const MEMORY: u32 = 768;
/// How long it may take to boot and to start its program.
const BOOT: Duration = Duration::from_secs(240);
/// How long the emulator runs before a round: what had waited while it was stopped is none of it.
const WARM: Duration = Duration::from_millis(300);
const TAP: &str = "tap0";
/// Where Debian has testpmd's plugins, in a folder of DPDK's version.
const PLUGINS: &str = "/usr/lib/x86_64-linux-gnu/dpdk";

struct Card {
    /// How the emulator makes it, besides where it is.
    device: &'static str,
    is_virtio: bool,
    is_packed: bool,
    /// The part of DPDK that drives it.
    plugin: &'static str,
}

const fn virtio(device: &'static str, is_packed: bool) -> Card {
    Card { device, is_virtio: true, is_packed, plugin: "librte_net_virtio.so" }
}

const fn intel(device: &'static str) -> Card {
    Card { device, is_virtio: false, is_packed: false, plugin: "librte_net_e1000.so" }
}

fn card(name: &str) -> Card {
    match name {
        "virtio" => virtio("virtio-net-pci,disable-legacy=on,packed=off", false),
        "virtio-packed" => virtio("virtio-net-pci,disable-legacy=on,packed=on", true),
        "e1000e" => intel("e1000e"),
        "igb" => intel("igb"),
        name => panic!("{name} is no card: virtio, virtio-packed, e1000e, igb"),
    }
}

/// What the machine runs, the files that it needs for that, and what it says when that runs.
fn script(card: &Card, program: &str) -> (String, Vec<(PathBuf, String)>, &'static str) {
    let unsafe_mode = "echo 1 >/sys/module/vfio/parameters/enable_unsafe_noiommu_mode\n";
    let prepared = format!(
        "{}echo 128 >/proc/sys/vm/nr_hugepages\n\
         mkdir /dev/hugepages\n\
         mount -t hugetlbfs none /dev/hugepages\n\
         device=/sys/bus/pci/devices/{ADDRESS}\n\
         echo vfio-pci >$device/driver_override\n\
         [ -e $device/driver ] && echo {ADDRESS} >$device/driver/unbind\n\
         echo {ADDRESS} >/sys/bus/pci/drivers_probe\n",
        if card.is_virtio { unsafe_mode } else { "" }
    );
    let Some(variant) = program.strip_prefix("testpmd") else {
        let option = match (card.is_virtio, card.is_packed) {
            (false, _) => ",zero-copy=true,ring-size=1024",
            (true, false) => ",zero-copy=true",
            (true, true) => ",zero-copy=true,packed=true",
        };
        let line = format!(
            "{{ echo go 1000000; sleep 1000000; }} | warmlane bench port-echo --serve --cpu 1 --port pci:{ADDRESS},promiscuous=true{option}"
        );
        return (format!("{prepared}{line} >{GUEST_PORT} 2>&1"), Vec::new(), "ready");
    };
    let files: Vec<_> = ["librte_mempool_ring.so", card.plugin].map(plugin).to_vec();
    let loaded = files.iter().map(|(_, name)| format!("-d {name}")).collect::<Vec<_>>().join(" ");
    let (vectorized, rings) = match variant {
        "-vectorized" => (",vectorized=1", ""),
        "-1024" => ("", " --rxd=1024 --txd=1024"),
        _ => ("", ""),
    };
    let line = format!(
        "sleep 1000000 | dpdk-testpmd {loaded} -l 0,1 -m 128 --in-memory --no-telemetry -a {ADDRESS}{vectorized} -- --forward-mode=io \
         --port-topology=loop --auto-start --total-num-mbufs=8192 --burst=64 --nb-cores=1 --no-flush-rx{rings}"
    );
    (format!("{prepared}{line} >{GUEST_PORT} 2>&1"), files, "Press enter")
}

/// A part of DPDK, and where it is in the machine.
fn plugin(name: &str) -> (PathBuf, String) {
    let versions = fs::read_dir(PLUGINS).expect("Debian's DPDK has its plugins there");
    let found =
        versions.filter_map(|entry| Some(entry.ok()?.path().join(name))).filter(|path| path.is_file());
    (found.max().unwrap_or_else(|| panic!("DPDK has no {name}")), format!("/usr/lib/{name}"))
}

/// What sends frames, and counts those that come back.
struct Feeder {
    process: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Feeder {
    fn start(mut command: Command) -> Self {
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("warmlane starts");
        let requests = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().expect("piped"));
        Self { process, requests, answers }
    }

    /// What it says, from the first line that is wanted.
    fn hear(&mut self, wanted: impl Fn(&str) -> bool) -> String {
        let mut line = String::new();
        while !wanted(&line) {
            line.clear();
            let length = self.answers.read_line(&mut line).expect("a pipe can be read");
            assert!(length > 0, "what sends frames has ended");
        }
        line
    }

    fn round(&mut self, seconds: f64) -> Value {
        let requests = self.requests.as_mut().expect("open until the end");
        writeln!(requests, "go {seconds}").expect("it listens");
        serde_json::from_str(&self.hear(|line| line.starts_with('{'))).expect("it is JSON")
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.requests = None;
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Seconds that the hypervisor took from these CPUs.
fn stolen(cpus: [&str; 2]) -> f64 {
    let names = cpus.map(|cpu| format!("cpu{cpu}"));
    let text = fs::read_to_string("/proc/stat").expect("Linux has it");
    let rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let ours = rows.filter(|row| row.first().is_some_and(|name| names.iter().any(|one| one == name)));
    ours.filter_map(|row| row.get(8)?.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// A command in a namespace, on this CPU.
fn pinned(namespace: &Namespace, command: &Command, cpu: &str) -> Command {
    let mut pinned = namespace.command("taskset");
    pinned.args(["--cpu-list", cpu]).arg(command.get_program()).args(command.get_args());
    pinned
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, program, bytes, cpu, second_cpu, warmlane] = &arguments[..] else {
        panic!("guest_side CARD PROGRAM BYTES CPU SECOND_CPU WARMLANE")
    };
    let card = card(name);
    let (script, mut files, up) = script(&card, program);
    let mut programs = Vec::new();
    if files.is_empty() {
        files.push((PathBuf::from(warmlane), "/usr/bin/warmlane".to_owned()));
    } else {
        programs.push("dpdk-testpmd");
    }
    let extra: Vec<(&Path, &str)> =
        files.iter().map(|(path, name)| (path.as_path(), name.as_str())).collect();
    let make = if card.is_virtio { Machine::with_noiommu } else { Machine::new };
    let machine = make("vfio_pci vfio_iommu_type1", &programs, &extra, &script);
    let machine = machine.expect("what is missing is said above");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let socket = directory.path().join("socket").display().to_string();
    let namespace = Namespace::new("guest-side");
    // Nothing is to be on the wire but what is sent there.
    namespace.set("net.ipv6.conf.default.disable_ipv6", "1");

    // The older one knows no igb, and without KVM falls over interrupts of virtio devices that are played outside.
    let emulator = Machine::emulator_with("igb").expect("what is missing is said above");
    let mut command = machine.command_of(&emulator, MEMORY);
    if card.is_virtio {
        command.args([
            "-object",
            &format!("memory-backend-memfd,id=m,size={MEMORY}M,share=on"),
            "-numa",
            "node,memdev=m",
        ]);
        command.args(["-chardev", &format!("socket,id=c,path={socket},reconnect=1")]);
        command.args(["-netdev", "vhost-user,id=n,chardev=c"]);
    } else {
        command.args(["-device", "intel-iommu,intremap=on"]);
        command.args(["-netdev", &format!("tap,id=n,ifname={TAP},vhost=off,script=no,downscript=no")]);
    }
    command.args(["-device", "pcie-root-port,id=bridge,chassis=1,slot=1"]);
    command.args(["-device", &format!("{},netdev=n,bus=bridge,romfile=", card.device)]);
    let mut command = pinned(&namespace, &command, cpu);
    let feed = |port: &str| {
        let mut command = Command::new(warmlane);
        command.args([
            "bench",
            "port-round",
            "--serve",
            "--cpu",
            second_cpu,
            "--frame-bytes",
            bytes,
            "--port",
            port,
        ]);
        Feeder::start(pinned(&namespace, &command, second_cpu))
    };
    let (mut feeder, mut emulator);
    if card.is_virtio {
        // It waits there for the emulator.
        feeder = feed(&format!("vhost:{socket},wait={}", BOOT.as_secs()));
        emulator = Process::spawn(&mut command);
        emulator.wait_for(up, BOOT);
    } else {
        emulator = Process::spawn(&mut command);
        namespace.wait_for_interface(TAP, &mut emulator);
        namespace.ip(&format!("link set {TAP} up"));
        emulator.wait_for(up, BOOT);
        feeder = feed(&format!("packet:{TAP}"));
    }
    feeder.hear(|line| line == "ready\n");
    println!("ready");
    for (number, line) in std::io::stdin().lines().enumerate() {
        let line = line.expect("a pipe can be read");
        let seconds: f64 = line.strip_prefix("go ").and_then(|text| text.parse().ok()).expect("go SECONDS");
        emulator.signal("CONT");
        std::thread::sleep(WARM);
        let before = stolen([cpu, second_cpu]);
        let mut round = feeder.round(seconds);
        let share = (stolen([cpu, second_cpu]) - before) / seconds;
        emulator.signal("STOP");
        round["round"] = number.into();
        round["disturbed"] = if share > 0.02 { "the hypervisor took the CPUs".into() } else { "".into() };
        println!("{round}");
    }
}
