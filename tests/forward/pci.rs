//! A machine whose network cards the command takes from the kernel and drives itself, behind an IOMMU, and gives back. The other end of each card's wire is
//! here.
//!
//! ```text
//! here (west) --- card 0, split rings --- warmlane forward, or the kernel --- card 1, packed rings --- (east) here
//! ```

use std::cell::Cell;
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use Look::{After, Before};
use serde_json::Value;
use warmlane_system_tests::{GUEST_PORT, LONG, Machine, OBEY, OBEY_MODULE};
use warmlane_testkit::Report;
use warmlane_testkit::exchange::{contents, until};
use warmlane_testkit::process::{Process, warmlane};

/// Where the cards are in the machine.
const CARDS: [&str; 2] = ["0000:01:00.0", "0000:02:00.0"];

/// Addresses of the machine's ports, and of the hosts here.
const PORTS: [[u8; 6]; 2] = [[2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 1, 2]];
const HOSTS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
const PORT_ADDRESSES: [[u8; 4]; 2] = [[192, 0, 2, 1], [198, 51, 100, 1]];
const HOST_ADDRESSES: [[u8; 4]; 2] = [[192, 0, 2, 2], [198, 51, 100, 2]];

/// How long one answer is waited for before the question is asked again.
const MOMENT: Duration = Duration::from_millis(500);

/// Of what is forwarded: one without ports (RFC 3692), so that nothing else is checked.
const PROTOCOL: u8 = 253;

/// The hypervisor's socket for commands.
const MONITOR: &str = "monitor";

/// What the machine says when it is there.
const UP: &str = "guest is up";

const MODULES: &str = "virtio_pci virtio_net vfio_pci vfio_iommu_type1";

fn script() -> String {
    let dotted = |address: [u8; 4]| address.map(|byte| byte.to_string()).join(".");
    let colons = |mac: [u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
    let part = |side: usize, options: &str| {
        format!(
            "[[port]]\nname = \"{name}\"\ndriver = \"pci:{card}{options}{rings}\"\naddresses = [\"{}/24\"]\n\
             [[neighbour]]\naddress = \"{}\"\nmac = \"{}\"\nport = \"{name}\"\n",
            dotted(PORT_ADDRESSES[side]),
            dotted(HOST_ADDRESSES[side]),
            colons(HOSTS[side]),
            name = ["west", "east"][side],
            card = CARDS[side],
            rings = ["", ",packed=true"][side],
        )
    };
    let config = |options: &str| format!("lanes = 1\n{}{}", part(0, options), part(1, options));
    format!(
        "cat >/taken.toml <<'END'\n{}END\ncat >/take.toml <<'END'\n{}END\n\
         echo 32 >/proc/sys/vm/nr_hugepages\n\
         echo '{UP}' >{GUEST_PORT}\n\
         {OBEY}",
        config(""),
        config(",take")
    )
}

/// One's complement sum of words (RFC 1071), complemented.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

fn ethernet(to: [u8; 6], from: [u8; 6], kind: u16, rest: &[u8]) -> Vec<u8> {
    [&to[..], &from, &kind.to_be_bytes(), rest].concat()
}

fn ipv4(ttl: u8, protocol: u8, from: [u8; 4], to: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let [high, low] = (20 + payload.len() as u16).to_be_bytes();
    let mut header = [&[0x45, 0, high, low, 0, 0, 0x40, 0, ttl, protocol, 0, 0][..], &from, &to].concat();
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum);
    [header, payload.to_vec()].concat()
}

fn echo(kind: u8, number: u8) -> Vec<u8> {
    let mut message = [&[kind, 0, 0, 0, 7, 7, 0, number][..], &[number; 56]].concat();
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum);
    message
}

/// Where a frame is looked at.
#[derive(Clone, Copy)]
enum Look {
    Before,
    After,
}

/// The frame of a number that goes from one side to the other, before or after it has been forwarded.
fn data(from: usize, number: usize, length: usize, look: Look) -> Vec<u8> {
    let to = 1 - from;
    let payload = contents(number, length - 34);
    let (destination, source, ttl) = match look {
        Before => (PORTS[from], HOSTS[from], 64),
        After => (HOSTS[to], PORTS[to], 63),
    };
    let packet = ipv4(ttl, PROTOCOL, HOST_ADDRESSES[from], HOST_ADDRESSES[to], &payload);
    ethernet(destination, source, 0x0800, &packet)
}

/// The other end of a card's wire.
struct Wire {
    socket: UnixDatagram,
    card: PathBuf,
}

impl Wire {
    fn new(directory: &Path, side: usize) -> Self {
        let socket = UnixDatagram::bind(directory.join(format!("host{side}"))).expect("a free name");
        socket.set_read_timeout(Some(MOMENT)).expect("it is no zero");
        // The machine takes no more than it has buffers for.
        socket.set_write_timeout(Some(LONG)).expect("it is no zero");
        Self { socket, card: directory.join(format!("card{side}")) }
    }

    fn send(&self, frame: &[u8]) {
        self.socket.send_to(frame, &self.card).expect("the machine runs");
    }

    /// The next frame, unless none comes for a moment.
    fn receive(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0; 2048];
        match self.socket.recv(&mut frame) {
            Ok(length) => Some(frame[..length].to_vec()),
            Err(error) if error.kind() == ErrorKind::Interrupted => self.receive(),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Forgets what has come so far.
    fn discard(&self) {
        self.socket.set_nonblocking(true).expect("it is a socket");
        while self.socket.recv(&mut [0; 2048]).is_ok() {}
        self.socket.set_nonblocking(false).expect("it is a socket");
    }

    /// As [`receive`](Self::receive), but answers to questions that were asked again come late, and the machine's kernel says things of its own: not those.
    fn receive_forwarded(&self) -> Option<Vec<u8>> {
        loop {
            let frame = self.receive()?;
            if frame.get(12..14) == Some(&[8, 0]) && frame.get(23) == Some(&PROTOCOL) {
                return Some(frame);
            }
        }
    }

    /// Sends a frame until this one comes.
    #[track_caller]
    fn ask(&self, question: &[u8], answer: &[u8], process: &Process) {
        let end = Instant::now() + LONG;
        loop {
            assert!(Instant::now() < end, "no answer: {}", process.output());
            self.send(question);
            while let Some(frame) = self.receive() {
                // Short frames come filled up to 60 bytes.
                if frame.starts_with(answer) {
                    return;
                }
            }
        }
    }
}

struct Lab {
    machine: Machine,
    process: Process,
    wires: [Wire; 2],
    /// Of the last question.
    number: Cell<u8>,
    directory: tempfile::TempDir,
}

impl Lab {
    fn new() -> Option<Self> {
        let modules = format!("{MODULES} {OBEY_MODULE}");
        let machine = Machine::new(&modules, &[], &[(warmlane(), "/usr/bin/warmlane")], &script())?;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let wires = [0, 1].map(|side| Wire::new(directory.path(), side));
        let mut command = machine.command(768);
        command.args(["-device", "intel-iommu,intremap=on"]);
        machine.add_commands(&mut command);
        for side in [0, 1] {
            let at = |name: &str| directory.path().join(format!("{name}{side}")).display().to_string();
            let (card, host) = (at("card"), at("host"));
            command.args([
                "-netdev",
                &format!(
                    "dgram,id=n{side},local.type=unix,local.path={card},remote.type=unix,remote.path={host}"
                ),
            ]);
            let mac = PORTS[side].map(|byte| format!("{byte:02x}")).join(":");
            // With event indices, QEMU 7.2 forgets to ask for notifications of packed rings once its peer has been busy; the kernel's driver would wait for ever.
            let rings = ["packed=off", "packed=on,event_idx=off"][side];
            // Behind a bridge of its own, from which it can be pulled out.
            let bridge =
                format!("pcie-root-port,id=bridge{side},chassis={side},slot={side},addr=0x{}", 10 + side);
            command.args(["-device", &bridge]);
            let card = format!(
                "virtio-net-pci,id=card{side},bus=bridge{side},netdev=n{side},mac={mac},romfile=,disable-legacy=on,iommu_platform=on,{rings}"
            );
            command.args(["-device", &card]);
        }
        let monitor = directory.path().join(MONITOR);
        command.arg("-monitor").arg(format!("unix:{},server=on,wait=off", monitor.display()));
        let mut process = Process::spawn(&mut command);
        process.wait_for(UP, LONG);
        Some(Self { machine, process, wires, number: Cell::new(0), directory })
    }

    fn tell(&self, line: &str) -> String {
        self.machine.tell(line)
    }

    /// Says something to the hypervisor.
    fn monitor(&self, line: &str) {
        Machine::monitor(&self.directory.path().join(MONITOR), line);
    }

    /// Waits until the forwarder has said this.
    fn wait_for_note(&self, note: &str) {
        until(note, || self.tell("cat /notes").contains(note));
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

    fn check_drivers(&self, cards: &[&str], driver: &str, taken_from: Option<&str>) {
        let devices = self.devices();
        assert_eq!(devices.iter().filter_map(|device| device["address"].as_str()).collect::<Vec<_>>(), cards);
        for device in devices {
            let found = (device["driver"].as_str(), device["taken_from"].as_str());
            assert_eq!(found, (Some(driver), taken_from), "{device}");
            assert!(device["iommu_group"].is_string(), "{device}");
        }
    }

    fn forward(&self, config: &str) {
        self.tell(&format!("warmlane forward --config {config} --json >/report 2>/notes & echo $! >/pid"));
        for side in [0, 1] {
            self.check_ping(side);
        }
    }

    /// A port answers.
    fn check_ping(&self, side: usize) {
        let there = (HOST_ADDRESSES[side], PORT_ADDRESSES[side]);
        // Answers to former questions may still come.
        let number = self.number.get().wrapping_add(1);
        self.number.set(number);
        let question = ipv4(64, 1, there.0, there.1, &echo(8, number));
        let question = ethernet(PORTS[side], HOSTS[side], 0x0800, &question);
        let answer = ethernet(HOSTS[side], PORTS[side], 0x0800, &[]);
        let wire = &self.wires[side];
        let end = Instant::now() + LONG;
        loop {
            assert!(Instant::now() < end, "no answer: {}{}", self.tell("cat /notes"), self.process.output());
            wire.send(&question);
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
        let lengths: Vec<usize> =
            (60..1515).step_by(7).chain([1513, 1514]).chain((0..600).map(|n| 60 + n % 5)).collect();
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
            assert_eq!(got, data(from, received, lengths[received], After), "packet {received}");
        }
        assert_eq!(self.wires[to].receive_forwarded(), None);
        lengths.len() as u64
    }

    /// While the link of the second card is down, what should leave there is dropped. Returns how much.
    fn check_link(&self) -> u64 {
        const COUNT: usize = 50;
        self.monitor("set_link n1 off");
        self.wait_for_note("port 'east': its link is down");
        for number in 0..COUNT {
            self.wires[0].send(&data(0, number, 100, Before));
        }
        // When the second is answered, the lane is through with all that came before the first.
        self.check_ping(0);
        self.check_ping(0);
        self.monitor("set_link n1 on");
        self.wait_for_note("port 'east': its link is up");
        COUNT as u64
    }

    /// The second card is pulled out while packets leave by it: the port lets go of it and its memory, and the other one goes on.
    fn check_unplug(&self) {
        const MEMORY: [&str; 2] = ["pci east", "vfio-device"];
        let before = MEMORY.map(|name| self.count_mappings(name));
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
        self.monitor("device_del card1");
        until("it is pulled out", || {
            send();
            self.tell("cat /notes").contains("port 'east': the device is unplugged")
        });
        until("it is gone", || self.devices().len() == 1);
        self.check_ping(0);
        let after = MEMORY.map(|name| self.count_mappings(name));
        assert_eq!((after[0], after[1]), (0, before[1] / 2), "of {before:?}");
    }

    fn finish(&self) -> Report {
        self.tell("kill -INT $(cat /pid); wait $(cat /pid)");
        let report = Report::parse(&self.tell("cat /report"));
        report.assert_balanced();
        report
    }

    /// The kernel's driver works: the machine answers as a host.
    fn check_kernel(&self) {
        for (side, device) in self.devices().iter().enumerate() {
            let interface = device["interfaces"][0].as_str().unwrap_or_else(|| panic!("{device}"));
            let address = PORT_ADDRESSES[side].map(|byte| byte.to_string()).join(".");
            self.tell(&format!(
                "ip link set {interface} up && ip address replace {address}/24 dev {interface}"
            ));
            let arp = |operation: u8, from: ([u8; 6], [u8; 4]), to: ([u8; 6], [u8; 4])| {
                [&[0, 1, 8, 0, 6, 4, 0, operation][..], &from.0, &from.1, &to.0, &to.1].concat()
            };
            let (host, port) = ((HOSTS[side], HOST_ADDRESSES[side]), (PORTS[side], PORT_ADDRESSES[side]));
            let question = ethernet([0xff; 6], HOSTS[side], 0x0806, &arp(1, host, ([0; 6], port.1)));
            let answer = ethernet(HOSTS[side], PORTS[side], 0x0806, &arp(2, port, host));
            self.wires[side].ask(&question, &answer, &self.process);
            self.tell(&format!("ip address flush dev {interface} && ip link set {interface} down"));
        }
    }
}

/// Taken by the command and given back by it; then taken by the port that is killed; then by one whose second card is pulled out.
#[test]
fn cards_are_taken_driven_and_given_back() {
    let Some(lab) = Lab::new() else { return };
    lab.check_drivers(&CARDS, "virtio-pci", None);
    lab.check_kernel();
    for card in CARDS {
        lab.tell(&format!("warmlane pci take {card}"));
    }
    lab.check_drivers(&CARDS, "vfio-pci", Some("virtio-pci"));
    lab.forward("/taken.toml");
    let said = lab.tell(&format!("warmlane pci give {} 2>&1 || true", CARDS[0]));
    assert!(said.contains("is in use"), "{said}");
    let [first, second] = [0, 1].map(|from| lab.check_forwarding(from));
    let dropped = lab.check_link();
    let third = lab.check_forwarding(0);
    let report = lab.finish();
    let text = format!("{:#}", report.value());
    assert_eq!(report.number("/forward/forwarded"), first + second + dropped + third, "{text}");
    let drops = report.drops(&format!("{}/transmitted/drops", report.port("east")));
    assert_eq!(drops.into_iter().collect::<Vec<_>>(), [("not-connected".to_owned(), dropped)], "{text}");
    for card in CARDS {
        lab.tell(&format!("warmlane pci give {card}"));
    }
    lab.check_drivers(&CARDS, "virtio-pci", None);
    lab.check_kernel();

    lab.forward("/take.toml");
    lab.check_drivers(&CARDS, "vfio-pci", Some("virtio-pci"));
    lab.tell("kill -KILL $(cat /pid); wait $(cat /pid); true");
    assert!(lab.tell("warmlane pci 2>&1").contains("given back"));
    lab.check_drivers(&CARDS, "virtio-pci", None);
    lab.check_kernel();

    lab.forward("/take.toml");
    lab.check_unplug();
    lab.finish();
    lab.check_drivers(&CARDS[..1], "virtio-pci", None);
    assert_eq!(lab.tell("echo /run/warmlane-pci/*").trim(), "/run/warmlane-pci/*");
    lab.check_kernel();
}
