//! The other end of a card's wire, and what goes over it.

use std::cell::Cell;
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Instant;

use warmlane_system_tests::{LONG, SHORT};
use warmlane_testkit::exchange::contents;
use warmlane_testkit::namespace::Namespace;
use warmlane_testkit::process::Process;

use self::Look::{After, Before};
use super::{HOST_ADDRESSES, HOSTS, MOMENT, PORTS, PROTOCOL, UDP};

/// What TAP interfaces are called, before their cards' numbers.
const TAP: &str = "wire";

/// One's complement sum of words (RFC 1071), complemented.
pub(super) fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

pub(super) fn ethernet(to: [u8; 6], from: [u8; 6], kind: u16, rest: &[u8]) -> Vec<u8> {
    [&to[..], &from, &kind.to_be_bytes(), rest].concat()
}

pub(super) fn ipv4(ttl: u8, protocol: u8, from: [u8; 4], to: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let [high, low] = (20 + payload.len() as u16).to_be_bytes();
    let mut header = [&[0x45, 0, high, low, 0, 0, 0x40, 0, ttl, protocol, 0, 0][..], &from, &to].concat();
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum);
    [header, payload.to_vec()].concat()
}

pub(super) fn echo(kind: u8, number: u8) -> Vec<u8> {
    let mut message = [&[kind, 0, 0, 0, 7, 7, 0, number][..], &[number; 56]].concat();
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum);
    message
}

/// Where a frame is looked at.
#[derive(Clone, Copy)]
pub(super) enum Look {
    Before,
    After,
}

/// The frame of a number that goes from one side to the other, before or after it has been forwarded.
pub(super) fn data(from: usize, number: usize, length: usize, look: Look) -> Vec<u8> {
    routed(from, PROTOCOL, &contents(number, length - 34), look)
}

/// The frame of UDP with a number of a flow, by its ports, from one side to the other, before or after it has been forwarded.
pub(super) fn flow(from: usize, ports: (u16, u16), number: usize, look: Look) -> Vec<u8> {
    let data = contents(number, 40 + number % 900);
    let length = (8 + data.len()) as u16;
    // Without a checksum, as over IPv4 it may be.
    let words = [ports.0, ports.1, length, 0].map(u16::to_be_bytes);
    routed(from, UDP, &[words.as_flattened(), &data].concat(), look)
}

/// A frame from one side to the other, before or after it has been forwarded.
fn routed(from: usize, protocol: u8, payload: &[u8], look: Look) -> Vec<u8> {
    let to = 1 - from;
    let (destination, source, ttl) = match look {
        Before => (PORTS[from], HOSTS[from], 64),
        After => (HOSTS[to], PORTS[to], 63),
    };
    let packet = ipv4(ttl, protocol, HOST_ADDRESSES[from], HOST_ADDRESSES[to], payload);
    ethernet(destination, source, 0x0800, &packet)
}

/// What a card's wire is made of, besides its other end here.
pub(super) enum Medium {
    /// A datagram socket, by which the emulator has one queue.
    Socket,
    /// A TAP interface, by which it has several.
    Tap {
        /// How many.
        queues: usize,
    },
}

/// The files at the ends of the wire of a card with this number.
fn ends(directory: &Path, number: usize) -> [PathBuf; 2] {
    ["card", "host"].map(|name| directory.join(format!("{name}{number}")))
}

impl Medium {
    /// How the emulator is told of it.
    pub(super) fn netdev(&self, directory: &Path, number: usize) -> String {
        let [card, host] = ends(directory, number).map(|path| path.display().to_string());
        match self {
            Self::Socket => format!(
                "dgram,id=n{number},local.type=unix,local.path={card},remote.type=unix,remote.path={host}"
            ),
            Self::Tap { queues } => format!(
                "tap,id=n{number},ifname={TAP}{number},queues={queues},vhost=off,script=no,downscript=no"
            ),
        }
    }

    /// What carries frames between the emulator, which runs in this namespace, and the other end, if that isn't the emulator.
    pub(super) fn carrier(
        &self,
        namespace: &Namespace,
        emulator: &mut Process,
        directory: &Path,
        number: usize,
    ) -> Option<Process> {
        let Self::Tap { .. } = self else { return None };
        let interface = format!("{TAP}{number}");
        namespace.wait_for_interface(&interface, emulator);
        namespace.ip(&format!("link set {interface} up"));
        let mut command = namespace.command("python3");
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tap_wire.py"));
        command.arg(interface).args(ends(directory, number));
        let mut process = Process::spawn(&mut command);
        process.wait_for("there", SHORT);
        Some(process)
    }
}

/// The other end of a card's wire.
pub(super) struct Wire {
    socket: UnixDatagram,
    card: PathBuf,
    /// How many frames have come.
    pub(super) received: Cell<u64>,
}

impl Wire {
    /// Of the card with this number.
    pub(super) fn new(directory: &Path, number: usize) -> Self {
        let [card, host] = ends(directory, number);
        let socket = UnixDatagram::bind(host).expect("a free name");
        socket.set_read_timeout(Some(MOMENT)).expect("it is no zero");
        // The machine takes no more than it has buffers for.
        socket.set_write_timeout(Some(LONG)).expect("it is no zero");
        Self { socket, card, received: Cell::new(0) }
    }

    pub(super) fn send(&self, frame: &[u8]) {
        assert!(self.offer(frame), "the machine takes nothing");
    }

    /// Sends a frame, unless the machine takes none for a long time: its card has nobody who drives it, say.
    pub(super) fn offer(&self, frame: &[u8]) -> bool {
        match self.socket.send_to(frame, &self.card) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            sent => sent.is_ok_and(|length| length == frame.len()),
        }
    }

    /// The next frame, unless none comes for a moment.
    pub(super) fn receive(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0; 16_384];
        match self.socket.recv(&mut frame) {
            Ok(length) => {
                self.received.set(self.received.get() + 1);
                Some(frame[..length].to_vec())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => self.receive(),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Forgets what has come so far.
    pub(super) fn discard(&self) {
        self.socket.set_nonblocking(true).expect("it is a socket");
        while self.socket.recv(&mut [0; 2048]).is_ok() {}
        self.socket.set_nonblocking(false).expect("it is a socket");
    }

    /// As [`receive`](Self::receive), but answers to questions that were asked again come late, and the machine's kernel says things of its own: not those.
    pub(super) fn receive_forwarded(&self) -> Option<Vec<u8>> {
        loop {
            let frame = self.receive()?;
            if frame.get(12..14) == Some(&[8, 0]) && frame.get(23) == Some(&PROTOCOL) {
                return Some(frame);
            }
        }
    }

    /// Sends a frame until this one comes.
    #[track_caller]
    pub(super) fn ask(&self, question: &[u8], answer: &[u8], process: &Process) {
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
