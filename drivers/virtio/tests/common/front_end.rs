//! A front end and driver of a test: it says what it is told to, and writes to its rings by the specification, not by the code under test.

use super::{World, connected, until};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use warmlane_virtio::features::{
    CHECKSUM, HOST_TSO4, INDIRECT, MERGEABLE, PACKED, PROTOCOL_FEATURES, VERSION_1,
};
use warmlane_virtio::protocol::{Header, MemoryRegion, Request, RingAddresses, RingDescriptor, RingState};
use warmlane_virtio::vhost::{VhostOptions, open};
use warmlane_virtio::{Role, VirtioPort};

/// Descriptors of each ring.
pub(crate) const SIZE: u16 = 64;
/// Bytes of each buffer.
pub(crate) const BUFFER: u64 = 2048;
/// From one ring to the next, and from one of its parts to the next.
pub(crate) const RING: u64 = 0x8000;
const PART: u64 = 0x2000;
const BUFFERS: u64 = 0x2_0000;
/// Bytes of memory.
pub(crate) const MEMORY: u64 = BUFFERS + 2 * SIZE as u64 * BUFFER;
/// Where the memory is, for the driver and for the front end.
pub(crate) const GUEST: u64 = 1 << 20;
const USER: u64 = 1 << 40;

/// The ring that the driver receives by, and the one that it sends by.
pub(crate) const RECEIVE: u32 = 0;
pub(crate) const TRANSMIT: u32 = 1;

/// What a driver has that knows the usual and nothing else.
pub(crate) const PLAIN: u64 = VERSION_1 | MERGEABLE | PROTOCOL_FEATURES | INDIRECT | CHECKSUM | HOST_TSO4;

impl World {
    /// One of our back ends, which has the socket.
    pub(crate) fn vhost() -> Self {
        Self::new(|path, pool| open("ours", &VhostOptions::new(path, Role::Server), 1, pool).unwrap())
    }

    pub(crate) fn front_end(&self, features: u64) -> FrontEnd {
        let front_end = FrontEnd::connect(&self.path, features);
        front_end.run(&self.port);
        front_end
    }

    /// What came until this many buffers were used.
    pub(crate) fn receive_from(&mut self, front_end: &FrontEnd, used: u16) -> Vec<Vec<u8>> {
        self.receive_until(|_| front_end.used(TRANSMIT) == used)
    }
}

pub(crate) struct FrontEnd {
    pub(crate) socket: OwnedFd,
    pub(crate) file: File,
    pub(crate) kick: OwnedFd,
    pub(crate) call: OwnedFd,
    features: u64,
}

pub(crate) fn event() -> OwnedFd {
    let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
    rustix::event::eventfd(0, flags).unwrap()
}

/// All of the memory.
pub(crate) fn region() -> MemoryRegion {
    MemoryRegion { guest: GUEST, length: MEMORY, user: USER, offset: 0 }
}

pub(crate) fn addresses(index: u32) -> RingAddresses {
    let start = USER + u64::from(index) * RING;
    RingAddresses {
        index,
        flags: 0,
        descriptors: start,
        used: start + 2 * PART,
        available: start + PART,
        log: 0,
    }
}

impl FrontEnd {
    pub(crate) fn connect(path: &str, features: u64) -> Self {
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .unwrap();
        rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        Self::over(socket, features)
    }

    /// By a socket that is connected.
    pub(crate) fn over(socket: OwnedFd, features: u64) -> Self {
        let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, MEMORY).unwrap();
        let [kick, call] = [event(), event()];
        Self { socket, file: file.into(), kick, call, features }
    }

    pub(crate) fn send_bytes(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(12))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(fds));
        }
        // Whether the other side still listens is not the question.
        let _ =
            rustix::net::sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL);
    }

    pub(crate) fn say(&self, request: &Request, fds: &[BorrowedFd<'_>]) {
        let payload = request.encode();
        let length = payload.len() as u32;
        let header = Header { request: request.number(), is_reply: false, needs_reply: false, length };
        self.send_bytes(&[&header.encode()[..], &payload].concat(), fds);
    }

    /// The payload of an answer; `None` when it is over.
    pub(crate) fn hear(&self) -> Option<Vec<u8>> {
        let mut header = [0; 12];
        let (count, _) = rustix::net::recv(&self.socket, &mut header, RecvFlags::WAITALL).ok()?;
        let length = (count == 12).then(|| Header::decode(header).unwrap().length)? as usize;
        let mut payload = vec![0; length];
        let (count, _) = rustix::net::recv(&self.socket, &mut payload[..], RecvFlags::WAITALL).ok()?;
        (count == length).then_some(payload)
    }

    /// The payload of an answer, and the file that came with it.
    pub(crate) fn hear_with_file(&self) -> (Vec<u8>, Option<OwnedFd>) {
        let mut bytes = [0; 512];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let received =
            rustix::net::recvmsg(&self.socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC).unwrap();
        let file = ancillary.drain().find_map(|part| match part {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        (bytes[12..received.bytes].to_vec(), file)
    }

    pub(crate) fn ask(&self, request: &Request) -> u64 {
        self.say(request, &[]);
        u64::from_ne_bytes(self.hear().unwrap().try_into().unwrap())
    }

    /// All that comes before the rings.
    pub(crate) fn introduce(&self) {
        let offered = self.ask(&Request::GetFeatures);
        assert_eq!(offered & self.features, self.features);
        self.say(&Request::SetOwner, &[]);
        if self.features & PROTOCOL_FEATURES != 0 {
            let protocol = self.ask(&Request::GetProtocolFeatures);
            self.say(&Request::SetProtocolFeatures(protocol), &[]);
        }
        self.say(&Request::SetFeatures(self.features), &[]);
        self.say(&Request::SetMemoryTable(vec![region()]), &[self.file.as_fd()]);
    }

    /// All that is said of a ring.
    pub(crate) fn start(&self, index: u32, base: u32) {
        let ring = RingDescriptor { index: index as u8, has_descriptor: true };
        self.say(&Request::SetRingSize(RingState { index, value: SIZE.into() }), &[]);
        self.say(&Request::SetRingBase(RingState { index, value: base }), &[]);
        self.say(&Request::SetRingAddresses(addresses(index)), &[]);
        self.say(&Request::SetRingCall(ring), &[self.call.as_fd()]);
        self.say(&Request::SetRingKick(ring), &[self.kick.as_fd()]);
        if self.features & PROTOCOL_FEATURES != 0 {
            self.say(&Request::SetRingEnabled(RingState { index, value: 1 }), &[]);
        }
    }

    /// Where both sides begin.
    pub(crate) fn first_base(&self) -> u32 {
        if self.features & PACKED != 0 { 0x8000_8000 } else { 0 }
    }

    /// Comes up, with both rings.
    pub(crate) fn run(&self, port: &VirtioPort) {
        self.introduce();
        for index in [TRANSMIT, RECEIVE] {
            self.start(index, self.first_base());
        }
        until("the port knows", || connected(port));
    }

    pub(crate) fn write(&self, place: u64, bytes: &[u8]) {
        // Where there is no such place any more, nothing is written.
        let _ = self.file.write_all_at(bytes, place);
    }

    pub(crate) fn read<const N: usize>(&self, place: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.file.read_exact_at(&mut bytes, place).unwrap();
        bytes
    }

    pub(crate) fn read16(&self, place: u64) -> u16 {
        u16::from_ne_bytes(self.read(place))
    }

    /// Where a buffer is in the memory.
    pub(crate) fn buffer(ring: u32, number: u16) -> u64 {
        BUFFERS + (u64::from(ring) * u64::from(SIZE) + u64::from(number)) * BUFFER
    }

    /// Writes a descriptor of a split ring, or one of a table at the same kind of place.
    pub(crate) fn descriptor(&self, place: u64, guest: u64, length: u32, flags: u16, next: u16) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&guest.to_ne_bytes());
        bytes[8..12].copy_from_slice(&length.to_ne_bytes());
        bytes[12..14].copy_from_slice(&flags.to_ne_bytes());
        bytes[14..].copy_from_slice(&next.to_ne_bytes());
        self.write(place, &bytes);
    }

    /// Makes the chain that starts with descriptor `head` of a split ring available.
    pub(crate) fn make_available(&self, ring: u32, head: u16) {
        let available = u64::from(ring) * RING + PART;
        let index = self.read16(available + 2);
        self.write(available + 4 + u64::from(index % SIZE) * 2, &head.to_ne_bytes());
        self.write(available + 2, &index.wrapping_add(1).to_ne_bytes());
    }

    /// How many buffers of a split ring were used.
    pub(crate) fn used(&self, ring: u32) -> u16 {
        self.read16(u64::from(ring) * RING + 2 * PART + 2)
    }

    /// The entry that was used at an index: which chain, and bytes.
    pub(crate) fn used_entry(&self, ring: u32, index: u16) -> (u32, u32) {
        let bytes: [u8; 8] = self.read(u64::from(ring) * RING + 2 * PART + 4 + u64::from(index % SIZE) * 8);
        let [id, length] =
            [&bytes[..4], &bytes[4..]].map(|word| u32::from_ne_bytes(word.try_into().unwrap()));
        (id, length)
    }

    /// Sends a frame by one buffer of a split ring, with this header in front.
    pub(crate) fn send(&self, number: u16, header: [u8; 12], frame: &[u8]) {
        let place = Self::buffer(TRANSMIT, number);
        self.write(place, &[&header[..], frame].concat());
        let descriptor = RING + u64::from(number) * 16;
        self.descriptor(descriptor, GUEST + place, (12 + frame.len()) as u32, 0, 0);
        self.make_available(TRANSMIT, number);
    }
}
