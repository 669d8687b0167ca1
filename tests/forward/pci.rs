//! A machine whose network cards the command takes from the kernel and drives itself, behind an IOMMU, and gives back. The other end of each card's wire is
//! here. Two of them are of virtio, with split and packed rings, and two are Intel's; those with several queues are in a machine of their own.
//!
//! ```text
//! here (west) --- card 0 --- warmlane forward, or the kernel --- card 1 --- (east) here
//! ```

mod cards;
mod lanes;
mod offloads;
mod restarts;
mod tcp;
mod wire;

use std::cell::Cell;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use warmlane_system_tests::{GUEST_PORT, LONG, Machine, OBEY, OBEY_MODULE, SHORT};
use warmlane_testkit::exchange::until;
use warmlane_testkit::namespace::Namespace;
use warmlane_testkit::process::{Process, warmlane};
use warmlane_testkit::{Report, requirements};

use self::cards::{E1000E, IGB, Kind, TAKE, TAKEN, TAP, TWO_LANES, VIRTIO, VIRTIO_QUEUES, colons, dotted};
use self::wire::Look::{After, Before};
use self::wire::{Medium, Wire, data, echo, ethernet, ipv4};

/// Addresses of the machine's ports, and of the hosts here.
const PORTS: [[u8; 6]; 2] = [[2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 1, 2]];
const HOSTS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
const PORT_ADDRESSES: [[u8; 4]; 2] = [[192, 0, 2, 1], [198, 51, 100, 1]];
const HOST_ADDRESSES: [[u8; 4]; 2] = [[192, 0, 2, 2], [198, 51, 100, 2]];

/// How long one answer is waited for before the question is asked again.
const MOMENT: Duration = Duration::from_millis(500);

/// Of what is forwarded: one without ports (RFC 3692), so that nothing else is checked.
const PROTOCOL: u8 = 253;

const UDP: u8 = 17;

/// The hypervisor's socket for commands.
const MONITOR: &str = "monitor";

/// What the machine says when it is there.
const UP: &str = "guest is up";

/// The kernel's driver for those who drive devices themselves.
const VFIO: &str = "vfio-pci";

const MODULES: &str = "virtio_pci virtio_net vfio_pci vfio_iommu_type1 tun";

fn script(kinds: &[&Kind]) -> String {
    let files = kinds.iter().flat_map(|kind| {
        [TAKEN, TAKE, TAP, TWO_LANES]
            .map(|how| format!("cat >{} <<'END'\n{}END\n", kind.config_file(how), kind.config(how)))
    });
    let files = files.collect::<String>();
    format!(
        "{files}echo 32 >/proc/sys/vm/nr_hugepages\n\
         echo '{UP}' >{GUEST_PORT}\n\
         {OBEY}"
    )
}

struct Lab {
    machine: Machine,
    process: Process,
    /// Kinds of cards, with the other ends of their wires.
    kinds: Vec<(&'static Kind, [Wire; 2])>,
    has_iommu: bool,
    /// Of the last question.
    number: Cell<u8>,
    directory: tempfile::TempDir,
    /// What carries frames between the emulator and wires, and where it and TAP interfaces are.
    _carriers: Vec<Process>,
    namespace: Option<Namespace>,
}

impl Lab {
    /// A machine with virtio devices, and the 82574 if there is a kernel that knows it.
    fn new() -> Option<Self> {
        let modules = format!("{MODULES} {OBEY_MODULE}");
        let more = format!("{modules} {}", E1000E.driver);
        // Debian's kernel for clouds has drivers for few cards.
        let (kinds, modules) = if Machine::has_kernel(&more) {
            (vec![&VIRTIO, &E1000E], more)
        } else {
            requirements::missing("a kernel in /boot with the module e1000e (Debian's linux-image-amd64)");
            (vec![&VIRTIO], modules)
        };
        let machine = Machine::new(&modules, &[], &[(warmlane(), "/usr/bin/warmlane")], &script(&kinds))?;
        let command = machine.command(768);
        Some(Self::start(machine, command, kinds, true))
    }

    /// A machine with virtio devices that have several queues.
    fn with_virtio_queues() -> Option<Self> {
        if !requirements::namespaces_and(&["ip", "python3"]) {
            return None;
        }
        let modules = format!("{MODULES} {OBEY_MODULE}");
        let programs = [(warmlane(), "/usr/bin/warmlane")];
        let machine = Machine::new(&modules, &[], &programs, &script(&[&VIRTIO_QUEUES]))?;
        let command = machine.command(768);
        Some(Self::start(machine, command, vec![&VIRTIO_QUEUES], true))
    }

    /// A machine without an IOMMU, with virtio devices and the 82574.
    fn without_iommu() -> Option<Self> {
        let modules = format!("{MODULES} {OBEY_MODULE} {}", E1000E.driver);
        let kinds = vec![&VIRTIO, &E1000E];
        let programs = [(warmlane(), "/usr/bin/warmlane")];
        let machine = Machine::with_noiommu(&modules, &[], &programs, &script(&kinds))?;
        let command = machine.command(768);
        Some(Self::start(machine, command, kinds, false))
    }

    /// A machine with the 82576.
    fn with_igb() -> Option<Self> {
        let emulator = Machine::emulator_with("igb")?;
        let modules = format!("{MODULES} {OBEY_MODULE} {}", IGB.driver);
        let programs = [(warmlane(), "/usr/bin/warmlane")];
        let machine = Machine::new(&modules, &[], &programs, &script(&[&IGB]))?;
        let command = machine.command_of(&emulator, 768);
        Some(Self::start(machine, command, vec![&IGB], true))
    }

    fn start(machine: Machine, mut command: Command, kinds: Vec<&'static Kind>, has_iommu: bool) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        if has_iommu {
            command.args(["-device", "intel-iommu,intremap=on"]);
        }
        machine.add_commands(&mut command);
        let media = || kinds.iter().flat_map(|kind| [&kind.medium; 2]).enumerate();
        let devices = kinds.iter().flat_map(|kind| kind.devices);
        for ((number, medium), device) in media().zip(devices) {
            command.args(["-netdev", &medium.netdev(directory.path(), number)]);
            // Behind a bridge of its own, from which it can be pulled out.
            let bridge = format!(
                "pcie-root-port,id=bridge{number},chassis={number},slot={number},addr=0x{}",
                10 + number
            );
            command.args(["-device", &bridge]);
            let card = format!(
                "{device},id=card{number},bus=bridge{number},netdev=n{number},mac={},romfile=",
                colons(PORTS[number % 2])
            );
            command.args(["-device", &card]);
        }
        let wires = |first: usize| [first, first + 1].map(|number| Wire::new(directory.path(), number));
        let wires: Vec<_> = (0..kinds.len()).map(|place| wires(2 * place)).collect();
        let monitor = directory.path().join(MONITOR);
        command.arg("-monitor").arg(format!("unix:{},server=on,wait=off", monitor.display()));
        let has_tap = kinds.iter().any(|kind| matches!(kind.medium, Medium::Tap { .. }));
        let namespace = has_tap.then(|| {
            let namespace = Namespace::new("pci");
            // Nothing is to be on the wires but what is sent there.
            namespace.set("net.ipv6.conf.default.disable_ipv6", "1");
            command = within(&namespace, &command);
            namespace
        });
        let (process, carriers) = match &namespace {
            None => (machine.boot(&mut command, UP), Vec::new()),
            Some(namespace) => {
                let mut process = Process::spawn(&mut command);
                let carrier = |(number, medium): (usize, &Medium)| {
                    medium.carrier(namespace, &mut process, directory.path(), number)
                };
                let carriers = media().filter_map(carrier).collect();
                process.wait_for(UP, LONG);
                (process, carriers)
            }
        };
        let kinds = kinds.into_iter().zip(wires).collect();
        let number = Cell::new(0);
        Self { machine, process, kinds, has_iommu, number, directory, _carriers: carriers, namespace }
    }

    /// The cards of each kind.
    fn pairs(&self) -> impl Iterator<Item = Pair<'_>> {
        let all = self.kinds.iter().enumerate();
        all.map(|(place, (kind, wires))| Pair { lab: self, kind, wires, first: 2 * place })
    }

    fn tell(&self, line: &str) -> String {
        self.machine.tell(line)
    }

    /// Says something to the hypervisor.
    fn monitor(&self, line: &str) {
        Machine::monitor(&self.directory.path().join(MONITOR), line);
    }

    /// How often the forwarder has said this since it was started.
    fn count_notes(&self, note: &str) -> usize {
        self.tell("cat /notes").matches(note).count()
    }

    /// Does something, and waits until the forwarder says this once more.
    fn wait_for_note_of(&self, note: &str, action: impl FnOnce()) {
        let before = self.count_notes(note);
        action();
        until(note, || self.count_notes(note) > before);
    }

    /// How many of the forwarder's mappings have such a name.
    fn count_mappings(&self, name: &str) -> usize {
        let maps = self.tell("cat /proc/$(cat /pid)/maps");
        maps.lines().filter(|line| line.contains(name)).count()
    }

    /// The machine's list of devices.
    fn devices(&self) -> Vec<Value> {
        let said = self.tell("warmlane pci --json");
        let said = said.lines().find(|line| line.starts_with('[')).unwrap_or_else(|| panic!("{said}"));
        let devices: Vec<Value> = serde_json::from_str(said).expect("it is JSON");
        devices
    }

    fn finish(&self) -> Report {
        // If it doesn't end, it says where its threads are, and the console where the processors.
        self.tell(&format!(
            "pid=$(cat /pid); sleep {} & timer=$!; kill -INT $pid && wait -n $pid $timer; \
             if kill -0 $pid; then \
                 for thread in /proc/$pid/task/*; do cat $thread/comm $thread/syscall $thread/stack; done; \
                 echo 8 >/proc/sys/kernel/printk; echo l >/proc/sysrq-trigger; \
             fi 2>/dev/null; \
             kill $timer; wait $pid",
            SHORT.as_secs()
        ));
        let report = Report::parse(&self.tell("cat /report"));
        report.assert_balanced();
        report
    }
}

/// The same command in a namespace.
fn within(namespace: &Namespace, command: &Command) -> Command {
    let mut within = namespace.command(command.get_program());
    within.args(command.get_args());
    within
}

/// The cards of a kind.
struct Pair<'a> {
    lab: &'a Lab,
    kind: &'static Kind,
    wires: &'a [Wire; 2],
    /// The number of the first.
    first: usize,
}

impl Pair<'_> {
    fn tell(&self, line: &str) -> String {
        self.lab.tell(line)
    }

    /// Those of them that the machine has.
    fn devices(&self) -> Vec<Value> {
        let mut devices = self.lab.devices();
        devices.retain(|device| self.kind.cards.iter().any(|card| device["address"] == *card));
        devices
    }

    /// Both are taken from the kernel, by the command, until they are given back.
    fn take(&self) {
        for card in self.kind.cards {
            self.tell(&format!("warmlane pci take {card}"));
        }
        self.check_drivers(2, VFIO, Some(self.kind.driver));
    }

    fn give(&self) {
        for card in self.kind.cards {
            self.tell(&format!("warmlane pci give {card}"));
        }
        self.check_drivers(2, self.kind.driver, None);
        self.check_kernel();
    }

    fn check_drivers(&self, count: usize, driver: &str, taken_from: Option<&str>) {
        let devices = self.devices();
        let cards: Vec<_> = devices.iter().filter_map(|device| device["address"].as_str()).collect();
        assert_eq!(cards, self.kind.cards[..count]);
        for device in devices {
            let found = (device["driver"].as_str(), device["taken_from"].as_str());
            assert_eq!(found, (Some(driver), taken_from), "{device}");
            // Without an IOMMU the kernel makes one up for VFIO.
            let has_group = self.lab.has_iommu || driver == VFIO;
            assert_eq!(device["iommu_group"].is_string(), has_group, "{device}");
        }
    }

    fn launch(&self, how: &str) {
        let config = self.kind.config_file(how);
        self.tell(&format!("warmlane forward --config {config} --json >/report 2>/notes & echo $! >/pid"));
    }

    fn start(&self, how: &str) {
        self.launch(how);
        self.check_ping(0);
    }

    fn forward(&self, how: &str) {
        self.start(how);
        self.check_ping(1);
    }

    /// A port answers.
    fn check_ping(&self, side: usize) {
        let there = (HOST_ADDRESSES[side], PORT_ADDRESSES[side]);
        // Answers to former questions may still come.
        let number = self.lab.number.get().wrapping_add(1);
        self.lab.number.set(number);
        let question = ipv4(64, 1, there.0, there.1, &echo(8, number));
        let question = ethernet(PORTS[side], HOSTS[side], 0x0800, &question);
        let answer = ethernet(HOSTS[side], PORTS[side], 0x0800, &[]);
        let wire = &self.wires[side];
        let end = Instant::now() + LONG;
        loop {
            assert!(
                Instant::now() < end,
                "no answer: {}{}",
                self.tell("cat /notes"),
                self.lab.process.output()
            );
            if !wire.offer(&question) {
                continue;
            }
            while let Some(frame) = wire.receive() {
                let message = frame.get(34..).unwrap_or_default();
                if frame.starts_with(&answer) && message == echo(0, number) {
                    return;
                }
            }
        }
    }

    /// Frames of all lengths go through and come out as they should, and no others. Returns how many.
    fn check_forwarding(&self, from: usize) -> u64 {
        let to = 1 - from;
        let lengths: Vec<usize> = (60..1515)
            .step_by(7)
            .chain([1513, 1514, 14 + self.kind.mtu])
            .chain((0..600).map(|n| 60 + n % 5))
            .collect();
        let mut sent = 0;
        for received in 0..lengths.len() {
            // No more than the card's ring has space for.
            while sent < lengths.len() && sent < received + 32 {
                self.wires[from].send(&data(from, sent, lengths[sent], Before));
                sent += 1;
            }
            let end = Instant::now() + LONG;
            let got = loop {
                if let Some(got) = self.wires[to].receive_forwarded() {
                    break got;
                }
                assert!(Instant::now() < end, "packet {received} was lost: {}", self.tell("cat /notes"));
            };
            let is_right = got == data(from, received, lengths[received], After);
            // Else it says who dropped it, if it was dropped.
            assert!(is_right, "packet {received}: {}", self.tell("warmlane stats 2>&1; cat /notes"));
        }
        assert_eq!(self.wires[to].receive_forwarded(), None);
        lengths.len() as u64
    }

    /// While the link of the second card is down, what should leave there is dropped. Returns how much.
    fn check_link(&self) -> u64 {
        const COUNT: usize = 50;
        let link = format!("set_link n{}", self.first + 1);
        let set_link = |state: &str| self.lab.monitor(&format!("{link} {state}"));
        self.lab.wait_for_note_of("port 'east': its link is down", || set_link("off"));
        for number in 0..COUNT {
            self.wires[0].send(&data(0, number, 100, Before));
        }
        // When the second is answered, the lane is through with all that came before the first.
        self.check_ping(0);
        self.check_ping(0);
        self.lab.wait_for_note_of("port 'east': its link is up", || set_link("on"));
        COUNT as u64
    }

    /// The second card is pulled out while packets leave by it: the port lets go of it and its memory, and the other one goes on.
    fn check_unplug(&self) {
        const MEMORY: [&str; 2] = ["pci east", "vfio-device"];
        let before = MEMORY.map(|name| self.lab.count_mappings(name));
        assert!(before[0] > 0 && before[1] > 0, "{before:?}");
        let mut number = 0;
        let mut send = || {
            for _ in 0..32 {
                self.wires[0].send(&data(0, number, 200, Before));
                number += 1;
            }
            // Nobody else reads what leaves by it: soon all would wait in the card.
            self.wires[1].discard();
        };
        send();
        self.lab.monitor(&format!("device_del card{}", self.first + 1));
        until("it is pulled out", || {
            send();
            self.tell("cat /notes").contains("port 'east': the device is unplugged")
        });
        until("it is gone", || self.devices().len() == 1);
        self.check_ping(0);
        let after = MEMORY.map(|name| self.lab.count_mappings(name));
        assert_eq!((after[0], after[1]), (0, before[1] / 2), "of {before:?}");
    }

    /// The kernel's driver works: the machine answers as a host.
    fn check_kernel(&self) {
        for (side, device) in self.devices().iter().enumerate() {
            let interface = device["interfaces"][0].as_str().unwrap_or_else(|| panic!("{device}"));
            let address = dotted(PORT_ADDRESSES[side]);
            self.tell(&format!(
                "ip link set {interface} up && ip address replace {address}/24 dev {interface}"
            ));
            let arp = |operation: u8, from: ([u8; 6], [u8; 4]), to: ([u8; 6], [u8; 4])| {
                [&[0, 1, 8, 0, 6, 4, 0, operation][..], &from.0, &from.1, &to.0, &to.1].concat()
            };
            let (host, port) = ((HOSTS[side], HOST_ADDRESSES[side]), (PORTS[side], PORT_ADDRESSES[side]));
            let question = ethernet([0xff; 6], HOSTS[side], 0x0806, &arp(1, host, ([0; 6], port.1)));
            let answer = ethernet(HOSTS[side], PORTS[side], 0x0806, &arp(2, port, host));
            self.wires[side].ask(&question, &answer, &self.lab.process);
            self.tell(&format!("ip address flush dev {interface} && ip link set {interface} down"));
        }
    }
}

/// Taken by the command and given back by it; then taken by the port that is killed; then by ports one after the other, and by one whose second card is pulled out.
#[test]
fn cards_are_taken_driven_and_given_back() {
    let Some(lab) = Lab::new() else { return };
    lab.pairs().for_each(|pair| check(&lab, &pair));
}

/// The same with cards that have several queues, which lanes share besides.
#[test]
fn cards_with_several_queues_are_taken_driven_and_given_back() {
    let Some(lab) = Lab::with_igb() else { return };
    lab.pairs().for_each(|pair| {
        pair.take();
        pair.check_lanes();
        pair.give();
        check(&lab, &pair);
    });
}

/// Virtio devices with several queues: lanes share them, and go on when one is pulled out.
#[test]
fn virtio_devices_with_several_queues_are_shared_by_lanes() {
    let Some(lab) = Lab::with_virtio_queues() else { return };
    lab.pairs().for_each(|pair| {
        pair.take();
        pair.check_lanes();
        pair.forward(TWO_LANES);
        for (card, times) in pair.kind.cards.into_iter().zip([1, 0]) {
            let note = format!("PCI device {card} has rings of 256 descriptors, and 512 are asked for");
            assert_eq!(lab.count_notes(&note), times, "{}", lab.tell("cat /notes"));
        }
        pair.check_unplug();
        lab.finish();
    });
}

/// Without an IOMMU: only if root allows it, and with a warning.
#[test]
fn cards_are_driven_without_an_iommu() {
    let Some(lab) = Lab::without_iommu() else { return };
    let said = lab.tell(&format!("warmlane pci take {} 2>&1 || true", VIRTIO.cards[0]));
    assert!(said.contains("has no IOMMU group") && said.contains("enable_unsafe_noiommu_mode"), "{said}");
    lab.pairs().for_each(|pair| pair.check_drivers(2, pair.kind.driver, None));
    lab.tell("echo 1 >/sys/module/vfio/parameters/enable_unsafe_noiommu_mode");
    lab.pairs().for_each(|pair| {
        eprintln!("cards of {}", pair.kind.driver);
        pair.take();
        pair.forward(TAKEN);
        for card in pair.kind.cards {
            let warning = format!("there is no IOMMU between PCI device {card}");
            assert_eq!(lab.count_notes(&warning), 1, "{}", lab.tell("cat /notes"));
        }
        pair.check_forwarding(0);
        pair.check_forwarding(1);
        lab.finish();
        if pair.kind.resets {
            pair.check_resets();
        }
        pair.give();
        pair.check_up_downs();
        pair.forward(TAKE);
        pair.check_unplug();
        lab.finish();
        pair.check_drivers(1, pair.kind.driver, None);
    });
}

fn check(lab: &Lab, pair: &Pair<'_>) {
    let Kind { driver, cards, .. } = *pair.kind;
    eprintln!("cards of {driver}");
    pair.check_drivers(2, driver, None);
    pair.check_kernel();
    pair.take();
    pair.forward(TAKEN);
    let said = lab.tell(&format!("warmlane pci give {} 2>&1 || true", cards[0]));
    assert!(said.contains("is in use"), "{said}");
    let [first, second] = [0, 1].map(|from| pair.check_forwarding(from));
    let dropped = pair.check_link();
    let third = pair.check_forwarding(0);
    let report = lab.finish();
    let text = format!("{:#}", report.value());
    assert_eq!(report.number("/forward/forwarded"), first + second + dropped + third, "{text}");
    let drops = report.drops(&format!("{}/transmitted/drops", report.port("east")));
    assert_eq!(drops.into_iter().collect::<Vec<_>>(), [("not-connected".to_owned(), dropped)], "{text}");
    pair.check_offloads();
    if pair.kind.resets {
        pair.check_resets();
    }
    pair.give();

    pair.forward(TAKE);
    pair.check_drivers(2, VFIO, Some(driver));
    lab.tell("kill -KILL $(cat /pid); wait $(cat /pid); true");
    assert!(lab.tell("warmlane pci 2>&1").contains("given back"));
    pair.check_drivers(2, driver, None);
    pair.check_kernel();

    pair.check_up_downs();

    pair.forward(TAKE);
    pair.check_unplug();
    lab.finish();
    pair.check_drivers(1, driver, None);
    assert_eq!(lab.tell("echo /run/warmlane-pci/*").trim(), "/run/warmlane-pci/*");
    pair.check_kernel();
}
