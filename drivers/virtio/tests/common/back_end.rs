//! A back end and device of a test: it answers what it is told to, and writes to rings by the specification, not by the code under test.

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use warmlane_driver_common::peer::{Event, Extent, PeerMapping};
use warmlane_virtio::protocol::{HEADER_BYTES, Header, MemoryRegion, Request, RingAddresses};

/// The driver receives by one, and sends by the other.
pub(crate) const TO_DRIVER: usize = 0;
pub(crate) const FROM_DRIVER: usize = 1;

pub(crate) struct BackEnd {
    socket: OwnedFd,
    features: u64,
    memory: Option<(MemoryRegion, PeerMapping)>,
    rings: Vec<(RingAddresses, u16)>,
    size: u16,
    /// Which file the memory is.
    file: u64,
}

impl BackEnd {
    pub(crate) fn connect(path: &str, features: u64) -> Self {
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        Self { socket, features, memory: None, rings: Vec::new(), size: 0, file: 0 }
    }

    /// Reads exactly so many bytes, and a descriptor if one comes. `None`: it is over.
    fn read(&self, length: usize) -> Option<(Vec<u8>, Option<OwnedFd>)> {
        let (mut bytes, mut done, mut file) = (vec![0; length], 0, None);
        while done < length {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let part = &mut [IoSliceMut::new(&mut bytes[done..])];
            let received =
                rustix::net::recvmsg(&self.socket, part, &mut ancillary, RecvFlags::CMSG_CLOEXEC).ok()?;
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(mut fds) = message {
                    file = fds.next().or(file);
                }
            }
            if received.bytes == 0 {
                return None;
            }
            done += received.bytes;
        }
        Some((bytes, file))
    }

    /// The next message, of which it takes note.
    pub(crate) fn hear(&mut self) -> Option<Request> {
        let (header, early) = self.read(HEADER_BYTES)?;
        let header = Header::decode(header.try_into().unwrap()).unwrap();
        let (payload, late) = self.read(header.length as usize)?;
        let request = Request::decode(header.request, &payload).unwrap();
        match &request {
            Request::SetMemoryTable(regions) => {
                let region = regions[0];
                let extent = Extent { offset: region.offset, length: region.length };
                let file = early.or(late).unwrap();
                self.file = rustix::fs::fstat(&file).unwrap().st_ino;
                let mapping = PeerMapping::new(&file, extent, false, &Event::new().unwrap()).unwrap();
                self.memory = Some((region, mapping));
            }
            Request::SetRingSize(state) => self.size = state.value as u16,
            Request::SetRingAddresses(addresses) => self.rings.push((*addresses, self.size)),
            _ => {}
        }
        Some(request)
    }

    pub(crate) fn say(&self, bytes: &[u8]) {
        // Whether the other side still listens is not the question.
        let _ = rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL);
    }

    /// It says no more, and still listens.
    pub(crate) fn is_silent(&self) {
        // If the other side is gone, so much the better.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write);
    }

    pub(crate) fn answer(&self, request: &Request, payload: &[u8]) {
        let length = payload.len() as u32;
        let header = Header { request: request.number(), is_reply: true, needs_reply: false, length };
        self.say(&[&header.encode()[..], payload].concat());
    }

    /// Answers until all is said.
    pub(crate) fn run(&mut self) {
        while let Some(request) = self.hear() {
            match request {
                Request::GetFeatures => self.answer(&request, &self.features.to_ne_bytes()),
                Request::GetProtocolFeatures => self.answer(&request, &[0; 8]),
                _ => continue,
            }
            if self.rings.len() == 2 {
                return;
            }
        }
        panic!("the front end has closed the connection");
    }

    /// Descriptors of each ring.
    pub(crate) fn size(&self) -> u16 {
        self.size
    }

    pub(crate) fn addresses(&self, ring: usize) -> RingAddresses {
        self.rings[ring].0
    }

    /// Which file the memory is.
    pub(crate) fn file(&self) -> u64 {
        self.file
    }

    /// Bytes of all memory.
    pub(crate) fn memory(&self) -> u64 {
        self.memory.as_ref().unwrap().0.length
    }

    /// The address of the first byte.
    pub(crate) fn start(&self) -> u64 {
        self.memory.as_ref().unwrap().0.guest
    }

    /// Whether the memory has these bytes, which is not certain of what stands in a descriptor.
    pub(crate) fn has(&self, address: u64, length: u64) -> bool {
        let place = address.checked_sub(self.start());
        place.is_some_and(|place| place < self.memory() && length <= self.memory() - place)
    }

    pub(crate) fn write(&self, address: u64, bytes: &[u8]) {
        let (region, mapping) = self.memory.as_ref().unwrap();
        let pointer = mapping.pointer(address - region.guest, bytes.len() as u64).unwrap();
        for (number, byte) in bytes.iter().enumerate() {
            // SAFETY: inside the mapping, by `pointer`; nothing here refers to it.
            unsafe { pointer.add(number).write_volatile(*byte) };
        }
    }

    pub(crate) fn read_at<const N: usize>(&self, address: u64) -> [u8; N] {
        let (region, mapping) = self.memory.as_ref().unwrap();
        let pointer = mapping.pointer(address - region.guest, N as u64).unwrap();
        // SAFETY: as in `write`.
        std::array::from_fn(|number| unsafe { pointer.add(number).read_volatile() })
    }

    /// Where a descriptor points.
    pub(crate) fn buffer(&self, ring: usize, number: u16) -> u64 {
        u64::from_ne_bytes(self.read_at(self.addresses(ring).descriptors + u64::from(number) * 16))
    }

    /// How many buffers of a split ring are available.
    pub(crate) fn available(&self, ring: usize) -> u16 {
        u16::from_ne_bytes(self.read_at(self.addresses(ring).available + 2))
    }

    /// Says of a split ring that a buffer was used.
    pub(crate) fn use_buffer(&self, ring: usize, id: u32, length: u32) {
        let used = self.addresses(ring).used;
        let index = u16::from_ne_bytes(self.read_at(used + 2));
        let place = used + 4 + u64::from(index % self.size) * 8;
        self.write(place, &[id.to_ne_bytes(), length.to_ne_bytes()].concat());
        self.set_used_index(ring, index.wrapping_add(1));
    }

    pub(crate) fn set_used_index(&self, ring: usize, index: u16) {
        self.write(self.addresses(ring).used + 2, &index.to_ne_bytes());
    }

    /// Sends a frame by one buffer of a split ring, with this header in front.
    pub(crate) fn send(&self, number: u16, header: [u8; 12], frame: &[u8]) {
        self.write(self.buffer(TO_DRIVER, number), &[&header[..], frame].concat());
        self.use_buffer(TO_DRIVER, number.into(), (12 + frame.len()) as u32);
    }
}
