//! A front end and driver that says and writes anything, against a vhost port: no panic, nothing read or written outside the memory that was
//! lent, every buffer back, and a front end that behaves is still served.
//!
//! The first byte of the input says what is agreed on (`FEATURES`). The rest is a list of records: a byte of what to do, a byte of how many
//! bytes follow, and those.
//!
//! | what | then |
//! |---|---|
//! | 0 | the next message of a correct beginning, with bytes replaced: pairs of a place and what to add there |
//! | 1 | a message: its number is the first byte, its payload the others |
//! | 2 | writes these bytes to the rings, at the place that the first two say |
//! | 3 | raises the index of available buffers of a split ring: the first byte says which, the second by how much |
//! | 4 | writes a descriptor: the first byte says which, the others are added to a right one, as in 0 |
//! | others | the port receives and sends |

#![no_main]

mod common;

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::{Mutex, OnceLock};

use common::{change, next, send, until};
use libfuzzer_sys::fuzz_target;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{RecvFlags, SocketAddrUnix, SocketType};
use warmlane_mem::{LaneThread, Pool};
use warmlane_virtio::features::{
    EVENT_INDEX, HASH_REPORT, INDIRECT, MERGEABLE, PACKED, PROTOCOL_FEATURES, VERSION_1,
};
use warmlane_virtio::protocol::{
    HEADER_BYTES, Header, MemoryRegion, Request, RingAddresses, RingDescriptor, RingState,
};
use warmlane_virtio::vhost::{VhostOptions, open};
use warmlane_virtio::{Role, VirtioPort};

const FEATURES: [u64; 5] = [PACKED, MERGEABLE, EVENT_INDEX, INDIRECT, HASH_REPORT];

/// Two rings of 16 descriptors, their parts 512 bytes apart, and buffers.
const SIZE: u64 = 16;
const PART: u64 = 512;
const RING: u64 = 4 * PART;
const BUFFERS: u64 = 4096;
const BUFFER: u64 = 256;
const MEMORY: u64 = BUFFERS + 2 * SIZE * BUFFER;
const GUEST: u64 = 1 << 20;
const USER: u64 = 1 << 40;

struct World {
    port: VirtioPort,
    pool: Pool,
    address: SocketAddrUnix,
}

fn world() -> &'static Mutex<World> {
    static WORLD: OnceLock<Mutex<World>> = OnceLock::new();
    WORLD.get_or_init(|| {
        let pool = common::pool();
        let (name, address) = common::address("vhost");
        let options = VhostOptions { hash_report: true, ..VhostOptions::new(&name, Role::Server) };
        let port = open("fuzz", &options, 1, &pool).expect("the name is free");
        Mutex::new(World { port, pool, address })
    })
}

fn memory() -> File {
    let file = memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("there is memory");
    ftruncate(&file, MEMORY).expect("it can grow");
    let file = File::from(file);
    for ring in 0..2 {
        for slot in 0..SIZE {
            let (place, descriptor) = descriptor(ring, slot, false);
            file.write_all_at(&descriptor, place).expect("it is long enough");
        }
    }
    file
}

/// Where a right descriptor is, and what it says.
fn descriptor(ring: u64, slot: u64, is_packed: bool) -> (u64, [u8; 16]) {
    let address = GUEST + BUFFERS + (ring * SIZE + slot) * BUFFER;
    // The port writes to those of ring 0.
    let write = if ring == 0 { 2_u64 } else { 0 };
    let rest = if is_packed { slot << 32 | (write | 0x80) << 48 } else { write << 32 };
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&address.to_ne_bytes());
    bytes[8..].copy_from_slice(&(BUFFER | rest).to_ne_bytes());
    (ring * RING + slot * 16, bytes)
}

/// What a correct front end says.
fn script(features: u64) -> Vec<Request> {
    let region = MemoryRegion { guest: GUEST, length: MEMORY, user: USER, offset: 0 };
    let base = if features & PACKED != 0 { 0x8000_8000 } else { 0 };
    let rings = (0..2).flat_map(|index| {
        let start = USER + u64::from(index) * RING;
        let with_file = RingDescriptor { index: index as u8, has_descriptor: true };
        let addresses = RingAddresses {
            index,
            flags: 0,
            descriptors: start,
            available: start + PART,
            used: start + 2 * PART,
            log: 0,
        };
        [
            Request::SetRingSize(RingState { index, value: SIZE as u32 }),
            Request::SetRingBase(RingState { index, value: base }),
            Request::SetRingAddresses(addresses),
            Request::SetRingCall(with_file),
            Request::SetRingKick(with_file),
            Request::SetRingEnabled(RingState { index, value: 1 }),
        ]
    });
    let first = [
        Request::GetFeatures,
        Request::SetOwner,
        Request::GetProtocolFeatures,
        Request::SetFeatures(features),
        Request::SetMemoryTable(vec![region]),
    ];
    first.into_iter().chain(rings).collect()
}

fn message(number: u32, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u32;
    let header = Header { request: number, is_reply: false, needs_reply: false, length };
    [&header.encode()[..], payload].concat()
}

/// Waits until what was said before is done; `false` when it is over.
fn is_done(socket: &OwnedFd) -> bool {
    let question = Request::GetQueueCount.number();
    send(socket, &message(question, &[]), None);
    loop {
        let mut header = [0; HEADER_BYTES];
        let received = rustix::net::recv(socket, &mut header[..], RecvFlags::WAITALL);
        if received.map(|(count, _)| count) != Ok(HEADER_BYTES) {
            return false;
        }
        let header = Header::decode(header).expect("the port knows the protocol");
        let mut payload = vec![0; header.length as usize];
        let received = rustix::net::recv(socket, &mut payload[..], RecvFlags::WAITALL);
        if received.map(|(count, _)| count) != Ok(payload.len()) {
            return false;
        }
        if header.request == question {
            return true;
        }
    }
}

impl World {
    /// Connects, as often as it takes: while it hasn't let go of others before, the port refuses more.
    fn connect(&self) -> OwnedFd {
        let mut connected = None;
        until("the port serves somebody", || {
            let socket = common::connect(&self.address, SocketType::STREAM);
            connected = is_done(&socket).then_some(socket);
            connected.is_some()
        });
        connected.expect("somebody is served")
    }

    fn work(&mut self) {
        common::work(&mut self.port.port, &self.pool, 65_600, 300);
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((chosen, mut input)) = input.split_first() else { return };
    let chosen = (0..).zip(FEATURES).filter(|(number, _)| chosen >> number & 1 != 0);
    let features = chosen.fold(VERSION_1 | PROTOCOL_FEATURES, |all, (_, feature)| all | feature);
    let mut world = world().lock().expect("no test panicked");
    let lane = LaneThread::enter();
    let (socket, file) = (world.connect(), memory());
    let event =
        rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).expect("there are descriptors");
    let mut script = script(features).into_iter();
    while let Some((what, data)) = next(&mut input) {
        match (what, data) {
            (0, data) => {
                let Some(request) = script.next() else { continue };
                let mut bytes = message(request.number(), &request.encode());
                change(&mut bytes, data);
                let with = match request {
                    Request::SetMemoryTable(_) => Some(file.as_fd()),
                    Request::SetRingCall(_) | Request::SetRingKick(_) => Some(event.as_fd()),
                    _ => None,
                };
                send(&socket, &bytes, with);
                if !is_done(&socket) {
                    break;
                }
            }
            (1, [number, payload @ ..]) => {
                send(&socket, &message((*number).into(), payload), Some(file.as_fd()));
                if !is_done(&socket) {
                    break;
                }
            }
            (2, record) => common::write(&file, record, 2 * RING),
            (3, [which, by, ..]) => {
                let place = u64::from(which & 1) * RING + PART + 2;
                common::raise(&file, place, *by);
            }
            (4, [which, data @ ..]) => {
                let (ring, slot) = (u64::from(which & 1), u64::from(which >> 1) % SIZE);
                let (place, mut bytes) = descriptor(ring, slot, features & PACKED != 0);
                change(&mut bytes, data);
                file.write_all_at(&bytes, place).expect("it is long enough");
            }
            _ => world.work(),
        }
    }
    drop(socket);
    until("the port sees that the front end is gone", || {
        !world.port.monitor.status().is_some_and(|status| status.connected)
    });
    world.work();
    drop(lane);
    assert_eq!(world.pool.ledger().outstanding(), 0);
});
