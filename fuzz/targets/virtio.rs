//! A back end and device that says and writes anything, against a virtio port: no panic, nothing read or written outside the memory that was
//! lent, every buffer back, and a back end that behaves is still served.
//!
//! The first byte of the input says what is offered (`FEATURES`). The rest is a list of records: a byte of what to do, a byte of how many
//! bytes follow, and those.
//!
//! | what | then |
//! |---|---|
//! | 0 | the right answer to the next question, with bytes replaced: pairs of a place and what to add there |
//! | 1 | a message of these bytes |
//! | 2 | writes these bytes to the memory, at the place that the first three say |
//! | 3 | says that a buffer was used, of the ring that the first byte says, by the number and the length (two bytes) that follow |
//! | others | the port receives and sends |

#![no_main]

mod common;

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, OnceLock};

use common::{change, next, send, until};
use libfuzzer_sys::fuzz_target;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix, SocketType};
use warmlane_driver_common::peer::{Event, Extent, PeerMapping};
use warmlane_mem::{LaneThread, Pool};
use warmlane_virtio::features::{EVENT_INDEX, HASH_REPORT, IN_ORDER, MERGEABLE, PACKED, VERSION_1};
use warmlane_virtio::protocol::{HEADER_BYTES, Header, MemoryRegion, Request, RingAddresses};
use warmlane_virtio::virtio_user::{VirtioUserOptions, open};
use warmlane_virtio::{Role, VirtioPort};

const FEATURES: [u64; 4] = [MERGEABLE, EVENT_INDEX, IN_ORDER, HASH_REPORT];

struct World {
    /// With split rings, and with packed ones.
    ports: [(VirtioPort, SocketAddrUnix); 2],
    pool: Pool,
}

fn world() -> &'static Mutex<World> {
    static WORLD: OnceLock<Mutex<World>> = OnceLock::new();
    WORLD.get_or_init(|| {
        let pool = common::pool();
        let ports = [false, true].map(|packed| {
            let (name, address) = common::address(&format!("virtio-{packed}"));
            let defaults = VirtioUserOptions::new(&name, Role::Server);
            let options = VirtioUserOptions { packed, hash_report: true, ring_size: 64, ..defaults };
            (open("fuzz", &options, 1, &pool).expect("the name is free"), address)
        });
        Mutex::new(World { ports, pool })
    })
}

/// A back end, and what it was told.
struct BackEnd {
    socket: OwnedFd,
    memory: Option<(MemoryRegion, PeerMapping)>,
    rings: Vec<RingAddresses>,
}

impl BackEnd {
    fn receive(&self, bytes: &mut [u8]) -> Option<Option<OwnedFd>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let wanted = bytes.len();
        let flags = RecvFlags::WAITALL | RecvFlags::CMSG_CLOEXEC;
        let received =
            rustix::net::recvmsg(&self.socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, flags).ok()?;
        let file = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        (received.bytes == wanted).then_some(file)
    }

    /// The next message; `None` when it is over.
    fn hear(&mut self) -> Option<Request> {
        let mut header = [0; HEADER_BYTES];
        let file = self.receive(&mut header)?;
        let header = Header::decode(header).expect("the port knows the protocol");
        let mut payload = vec![0; header.length as usize];
        if !payload.is_empty() {
            self.receive(&mut payload)?;
        }
        let request = Request::decode(header.request, &payload).expect("the port knows the protocol");
        match &request {
            Request::SetMemoryTable(regions) => {
                let (region, file) = (regions[0], file.expect("memory has a file"));
                let extent = Extent { offset: region.offset, length: region.length };
                let alarm = Event::new().expect("there are descriptors");
                let mapping = PeerMapping::new(&file, extent, false, &alarm).expect("it is as long");
                self.memory = Some((region, mapping));
            }
            Request::SetRingAddresses(addresses) => self.rings.push(*addresses),
            _ => {}
        }
        Some(request)
    }

    /// Whether the port has ended the connection, as it does once it has found nonsense in its rings.
    fn is_left(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match rustix::net::recv(&self.socket, &mut [0_u8; 1], flags) {
            Ok((_, length)) => length == 0,
            Err(error) => error != rustix::io::Errno::AGAIN,
        }
    }

    /// Writes bytes from a place in the memory on, as far as it goes.
    fn write(&self, place: u64, bytes: &[u8]) {
        let Some((_, mapping)) = &self.memory else { return };
        for (number, byte) in (0..).zip(bytes) {
            let length = mapping.length() as u64;
            let Some(pointer) = mapping.pointer((place + number) % length, 1) else { continue };
            // SAFETY: inside the mapping; nothing here refers to it.
            unsafe { pointer.write_volatile(*byte) };
        }
    }

    fn read16(&self, place: u64) -> u16 {
        let Some((_, mapping)) = &self.memory else { return 0 };
        let Some(pointer) = mapping.pointer(place, 2) else { return 0 };
        // SAFETY: as above.
        unsafe { pointer.cast::<u16>().read_unaligned() }
    }
}

impl World {
    fn work(&mut self, number: usize) {
        common::work(&mut self.ports[number].0.port, &self.pool, 65_600, 400);
    }

    /// Connects, as often as it takes: while it hasn't let go of others before, the port refuses more. Who is served is asked for his features.
    fn connect(&self, number: usize) -> BackEnd {
        let mut served = None;
        until("the port serves somebody", || {
            let socket = common::connect(&self.ports[number].1, SocketType::STREAM);
            let mut back_end = BackEnd { socket, memory: None, rings: Vec::new() };
            served = (back_end.hear() == Some(Request::GetFeatures)).then_some(back_end);
            served.is_some()
        });
        served.expect("somebody is served")
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((chosen, mut input)) = input.split_first() else { return };
    let which = usize::from(chosen >> 7);
    let chosen = (0..).zip(FEATURES).filter(|(number, _)| chosen >> number & 1 != 0);
    let features = chosen.fold(VERSION_1 | PACKED, |all, (_, feature)| all | feature);
    let mut world = world().lock().expect("no test panicked");
    let lane = LaneThread::enter();
    let mut back_end = world.connect(which);
    let mut question = Some(Request::GetFeatures);
    while let Some((what, data)) = next(&mut input) {
        match (what, data) {
            (0, data) => {
                let Some(asked) = question.take() else { continue };
                let payload = if asked == Request::GetFeatures { features } else { 0 };
                let header =
                    Header { request: asked.number(), is_reply: true, needs_reply: false, length: 8 };
                let mut bytes = [&header.encode()[..], &payload.to_ne_bytes()].concat();
                change(&mut bytes, data);
                send(&back_end.socket, &bytes, None);
                // After the last ring nothing more is said.
                if back_end.rings.len() == 2 {
                    until("the port knows", || {
                        world.ports[which].0.monitor.status().is_some_and(|status| status.connected)
                            || !data.is_empty()
                            || back_end.is_left()
                    });
                    continue;
                }
                question = loop {
                    match back_end.hear() {
                        Some(Request::GetFeatures) => break Some(Request::GetFeatures),
                        Some(Request::GetProtocolFeatures) => break Some(Request::GetProtocolFeatures),
                        Some(_) => {}
                        None => break None,
                    }
                };
                if question.is_none() {
                    break;
                }
            }
            (1, data) => {
                send(&back_end.socket, data, None);
                break;
            }
            (2, [low, middle, high, bytes @ ..]) => {
                back_end.write(u32::from_le_bytes([*low, *middle, *high, 0]).into(), bytes);
            }
            (3, [ring, number, low, high, ..]) => {
                let Some(addresses) = back_end.rings.get(usize::from(ring & 1)) else { continue };
                let Some((region, _)) = &back_end.memory else { continue };
                let (number, length) = (u32::from(*number), u32::from(u16::from_le_bytes([*low, *high])));
                if which == 0 {
                    let used = addresses.used - region.guest;
                    let index = back_end.read16(used + 2);
                    let entry = [number.to_ne_bytes(), length.to_ne_bytes()].concat();
                    back_end.write(used + 4 + u64::from(index % 64) * 8, &entry);
                    back_end.write(used + 2, &index.wrapping_add(1).to_ne_bytes());
                } else {
                    // The first turn's flags.
                    let tail = u64::from(length) | u64::from(number) << 32 | 0x8080 << 48;
                    let place = addresses.descriptors - region.guest + u64::from(number % 64) * 16 + 8;
                    back_end.write(place, &tail.to_ne_bytes());
                }
            }
            _ => world.work(which),
        }
    }
    drop(back_end);
    until("the port sees that the back end is gone", || {
        !world.ports[which].0.monitor.status().is_some_and(|status| status.connected)
    });
    world.work(which);
    drop(lane);
    assert_eq!(world.pool.ledger().outstanding(), 0);
});
