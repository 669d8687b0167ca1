//! A memif client that says and writes anything, against a server port: no panic, nothing read or written outside the memory that was shared,
//! every buffer back, and a client that behaves is still served.
//!
//! The input is a list of records: a byte of what to do, a byte of how many bytes follow, and those.
//!
//! | what | then |
//! |---|---|
//! | 0 | the next message of a correct handshake, with bytes replaced: pairs of a place and what to add there |
//! | 1 | a message of these bytes, filled up with zeros |
//! | 2 | writes these bytes to the shared memory, at the place that the first two say |
//! | 3 | raises the index that the first byte chooses (head or tail, of either ring) by the second |
//! | others | the port receives and sends |

#![no_main]

mod common;

use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::{Mutex, OnceLock};

use common::{change, next, send, until};
use libfuzzer_sys::fuzz_target;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{RecvFlags, SocketAddrUnix, SocketType};
use warmlane_mem::{LaneThread, Pool};
use warmlane_memif::protocol::{AddRing, Direction, Init, Message, VERSION};
use warmlane_memif::{Connector, MemifOptions, MemifPort, Role, open};

/// Two rings of 16 descriptors, 512 bytes apart, and buffers.
const RING: u64 = 512;
const BUFFERS: u64 = 4096;
const BUFFER: u64 = 256;
const REGION: u64 = BUFFERS + 32 * BUFFER;

struct World {
    port: MemifPort,
    pool: Pool,
    address: SocketAddrUnix,
    _connector: Connector,
}

fn world() -> &'static Mutex<World> {
    static WORLD: OnceLock<Mutex<World>> = OnceLock::new();
    WORLD.get_or_init(|| {
        let pool = common::pool();
        let (name, address) = common::address("memif");
        let options = MemifOptions::new(&name, Role::Server);
        let mut connector = Connector::default();
        let port = open("fuzz", &options, 1, &pool, &mut connector).expect("the name is free");
        Mutex::new(World { port, pool, address, _connector: connector })
    })
}

/// Memory with correct rings.
fn region() -> File {
    let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
    let file = memfd_create("fuzz", flags).expect("there is memory");
    ftruncate(&file, REGION).expect("it can grow");
    fcntl_add_seals(&file, SealFlags::SHRINK).expect("it is ours");
    let file = File::from(file);
    for ring in 0..2 {
        let mut bytes = [0; 128 + 16 * 16];
        bytes[..4].copy_from_slice(&0x03E3_1F20_u32.to_ne_bytes());
        for (slot, descriptor) in bytes[128..].chunks_mut(16).enumerate() {
            let place = BUFFERS + (ring * 16 + slot as u64) * BUFFER;
            descriptor[4..8].copy_from_slice(&(BUFFER as u32).to_ne_bytes());
            descriptor[8..12].copy_from_slice(&(place as u32).to_ne_bytes());
        }
        file.write_all_at(&bytes, ring * RING).expect("it is long enough");
    }
    file
}

/// What a correct client says.
fn script() -> Vec<Message> {
    let ring = |direction, offset| {
        Message::AddRing(AddRing { direction, index: 0, region: 0, offset, log2_size: 4, private_header: 0 })
    };
    vec![
        Message::Init(Init { version: VERSION, id: 0, mode: 0, secret: [0; 24], name: "fuzz".to_owned() }),
        Message::AddRegion { index: 0, size: REGION },
        ring(Direction::ToServer, 0),
        ring(Direction::ToClient, RING as u32),
        Message::Connect { interface: "fuzz".to_owned() },
    ]
}

/// The next answer; `false` when it is over.
fn hear(socket: &OwnedFd) -> bool {
    let mut bytes = [0; 128];
    let mut none = Default::default();
    let received =
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut none, RecvFlags::empty());
    received.is_ok_and(|received| received.bytes == 128)
        && !matches!(Message::decode(&bytes), Ok(Message::Disconnect { .. }))
}

impl World {
    /// Connects, as often as it takes: while it hasn't let go of clients before, the port refuses more.
    fn connect(&self) -> OwnedFd {
        let mut greeted = None;
        until("the port serves somebody", || {
            greeted = self.greeted();
            greeted.is_some()
        });
        greeted.expect("somebody is served")
    }

    fn greeted(&self) -> Option<OwnedFd> {
        let socket = common::connect(&self.address, SocketType::SEQPACKET);
        hear(&socket).then_some(socket)
    }

    fn is_connected(&self) -> bool {
        self.port.monitor.status().is_some_and(|status| status.connected)
    }

    /// Receives and sends what there is.
    fn work(&mut self) {
        common::work(&mut self.port.port, &self.pool, 65_535, 300);
    }
}

fuzz_target!(|input: &[u8]| {
    let mut world = world().lock().expect("no test panicked");
    let lane = LaneThread::enter();
    let (socket, file) = (world.connect(), region());
    let mut script = script().into_iter();
    let mut input = input;
    while let Some((what, data)) = next(&mut input) {
        match (what, data) {
            (0, data) => {
                let Some(message) = script.next() else { continue };
                let mut bytes = message.encode();
                change(&mut bytes, data);
                let has_file = matches!(message, Message::AddRegion { .. } | Message::AddRing(_));
                send(&socket, &bytes, has_file.then_some(file.as_fd()));
                if !hear(&socket) {
                    break;
                }
            }
            (1, data) => {
                let mut bytes = [0; 128];
                let length = data.len().min(128);
                bytes[..length].copy_from_slice(&data[..length]);
                send(&socket, &bytes, Some(file.as_fd()));
                if !hear(&socket) {
                    break;
                }
            }
            (2, record) => common::write(&file, record, 2 * RING),
            (3, [which, by, ..]) => {
                let ring = u64::from(which & 1) * RING;
                let place = ring + if which & 2 == 0 { 6 } else { 64 };
                common::raise(&file, place, *by);
            }
            _ => world.work(),
        }
    }
    drop(socket);
    until("the port sees that the client is gone", || !world.is_connected());
    // The queues see it, too, and let go of the memory.
    world.work();
    drop(lane);
    assert_eq!(world.pool.ledger().outstanding(), 0);
});
