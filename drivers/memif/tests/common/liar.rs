//! The other side of a memif connection, by the specification and not by the code under test: it says and writes what it is told to.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};
use warmlane_memif::protocol::{AddRing, Direction, Hello, Init, Message, VERSION, padded_secret};

/// One end of a control socket.
pub(crate) struct Liar(pub(crate) OwnedFd);

/// Behind two rings, each of which has 2048 bytes for 128 and 64 times 16.
pub(crate) const BUFFERS: usize = 4096;
pub(crate) const REGION_BYTES: usize = BUFFERS + 2 * 64 * 2048;

pub(crate) fn seqpacket() -> OwnedFd {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
}

/// A region with a ring of 64 descriptors in each direction, and buffers.
pub(crate) fn region(seals: SealFlags) -> File {
    let file = memfd_create("liar", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, REGION_BYTES as u64).unwrap();
    fcntl_add_seals(&file, seals).unwrap();
    let file = File::from(file);
    for ring in 0..2 {
        let start = (ring * 2048) as u64;
        file.write_all_at(&0x03E3_1F20_u32.to_ne_bytes(), start).unwrap();
        for slot in 0..64 {
            let place = BUFFERS + (ring * 64 + slot) * 2048;
            let mut descriptor = [0; 16];
            descriptor[4..8].copy_from_slice(&2048_u32.to_ne_bytes());
            descriptor[8..12].copy_from_slice(&(place as u32).to_ne_bytes());
            file.write_all_at(&descriptor, start + 128 + slot as u64 * 16).unwrap();
        }
    }
    file
}

pub(crate) fn event() -> OwnedFd {
    rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap()
}

pub(crate) fn init() -> Init {
    Init { version: VERSION, id: 0, mode: 0, secret: padded_secret("word").unwrap(), name: "liar".to_owned() }
}

pub(crate) fn ring(direction: Direction) -> AddRing {
    let offset = if direction == Direction::ToServer { 0 } else { 2048 };
    AddRing { direction, index: 0, region: 0, offset, log2_size: 6, private_header: 0 }
}

impl Liar {
    /// Connects, and hears the greeting.
    pub(crate) fn new(socket: &str) -> Self {
        let fd = seqpacket();
        rustix::net::connect(&fd, &SocketAddrUnix::new(socket).unwrap()).unwrap();
        let liar = Self(fd);
        assert!(matches!(liar.hear(), Some((Message::Hello(_), _))));
        liar
    }

    pub(crate) fn send_bytes(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(fds));
        }
        // Whether the other side still listens is not the question.
        let _ = rustix::net::sendmsg(&self.0, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL);
    }

    pub(crate) fn say(&self, message: &Message, fds: &[BorrowedFd<'_>]) {
        self.send_bytes(&message.encode(), fds);
    }

    /// Says no more, and hears the rest.
    pub(crate) fn hang_up(&self) {
        // The other side may have closed already.
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Write);
        while self.hear().is_some() {}
    }

    /// The next message and what came with it; `None` when it is over.
    pub(crate) fn hear(&self) -> Option<(Message, Option<OwnedFd>)> {
        let mut bytes = [0; 128];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let mut receive =
            || rustix::net::recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags);
        let got = match receive() {
            // The other side has not read all; what it said comes after.
            Err(rustix::io::Errno::CONNRESET) => receive(),
            other => other,
        };
        let got = got.ok()?;
        let fd = ancillary.drain().find_map(|part| match part {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        (got.bytes == 128).then(|| (Message::decode(&bytes).unwrap(), fd))
    }

    /// Why the other side ended it.
    pub(crate) fn dismissed(&self) -> String {
        loop {
            match self.hear() {
                Some((Message::Disconnect { reason, .. }, _)) => return reason,
                Some(_) => {}
                None => panic!("it was closed without a word"),
            }
        }
    }

    /// A client's part as it should be, up to the end.
    pub(crate) fn shake_hands(&self, file: &File) {
        let (to_server, to_client) = (event(), event());
        for (message, fd) in [
            (Message::Init(init()), None),
            (Message::AddRegion { index: 0, size: REGION_BYTES as u64 }, Some(file.as_fd())),
            (Message::AddRing(ring(Direction::ToServer)), Some(to_server.as_fd())),
            (Message::AddRing(ring(Direction::ToClient)), Some(to_client.as_fd())),
            (Message::Connect { interface: "liar".to_owned() }, None),
        ] {
            self.say(&message, fd.as_slice());
            assert!(
                matches!(self.hear(), Some((Message::Ack | Message::Connected { .. }, _))),
                "{message:?}"
            );
        }
    }
}

/// A region as the liar sees it. By its addresses, for files of huge pages can't be written to.
pub(crate) struct Shared {
    start: NonNull<u8>,
    length: usize,
}

impl Shared {
    pub(crate) fn new(file: &File) -> Self {
        let length = file.metadata().unwrap().len() as usize;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping where the kernel likes.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        assert_ne!(start, libc::MAP_FAILED);
        Self { start: NonNull::new(start.cast()).unwrap(), length }
    }

    fn byte(&self, place: u64) -> &AtomicU8 {
        let place = place as usize;
        assert!(place < self.length);
        // SAFETY: inside the mapping, which lives as long as this.
        unsafe { AtomicU8::from_ptr(self.start.add(place).as_ptr()) }
    }

    pub(crate) fn write(&self, place: u64, bytes: &[u8]) {
        for (place, byte) in (place..).zip(bytes) {
            self.byte(place).store(*byte, Ordering::Relaxed);
        }
    }

    pub(crate) fn index(&self, place: u64) -> u16 {
        u16::from_ne_bytes([place, place + 1].map(|place| self.byte(place).load(Ordering::Relaxed)))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nobody else has an address in it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// A server's greeting.
pub(crate) fn hello() -> Message {
    Message::Hello(Hello {
        name: "liar".to_owned(),
        lowest_version: VERSION,
        highest_version: VERSION,
        last_region: 255,
        last_ring_to_server: 0,
        last_ring_to_client: 0,
        longest_ring: 14,
    })
}

/// A server's socket.
pub(crate) fn listen(socket: &str) -> OwnedFd {
    let listener = seqpacket();
    rustix::net::bind(&listener, &SocketAddrUnix::new(socket).unwrap()).unwrap();
    rustix::net::listen(&listener, 1).unwrap();
    listener
}

/// A server's part as it should be. Returns the client's region 0, and where its rings are.
pub(crate) fn serve(liar: &Liar) -> (File, Vec<u64>) {
    liar.say(&hello(), &[]);
    let (mut file, mut rings) = (None, Vec::new());
    loop {
        let (message, fd) = liar.hear().unwrap();
        match message {
            Message::AddRegion { index: 0, .. } => file = fd,
            Message::AddRing(ring) => rings.push(u64::from(ring.offset)),
            Message::Connect { .. } => {
                liar.say(&Message::Connected { interface: "liar".to_owned() }, &[]);
                return (file.unwrap().into(), rings);
            }
            _ => {}
        }
        liar.say(&Message::Ack, &[]);
    }
}
