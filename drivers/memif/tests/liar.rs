//! Other sides that lie: on the control socket and in the rings. It costs them the connection, or a packet, and nobody else anything.

mod common;

use common::{connected, exchange, pool, until};
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
use warmlane_mem::{Burst, LaneThread};
use warmlane_memif::protocol::{AddRing, Direction, Hello, Init, Message, VERSION, padded_secret};
use warmlane_memif::{Connector, MemifOptions, MemifPort, Mode, Role, open};
use warmlane_sys::random::Random;
use warmlane_testkit::hostile::{alone, descriptors, lies};

/// One end of a control socket.
struct Liar(OwnedFd);

/// Behind two rings, each of which has 2048 bytes for 128 and 64 times 16.
const BUFFERS: usize = 4096;
const REGION_BYTES: usize = BUFFERS + 2 * 64 * 2048;

fn seqpacket() -> OwnedFd {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
}

/// A region with a ring of 64 descriptors in each direction, and buffers.
fn region(seals: SealFlags) -> File {
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

fn event() -> OwnedFd {
    rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap()
}

fn init() -> Init {
    Init { version: VERSION, id: 0, mode: 0, secret: padded_secret("word").unwrap(), name: "liar".to_owned() }
}

fn ring(direction: Direction) -> AddRing {
    let offset = if direction == Direction::ToServer { 0 } else { 2048 };
    AddRing { direction, index: 0, region: 0, offset, log2_size: 6, private_header: 0 }
}

impl Liar {
    /// Connects, and hears the greeting.
    fn new(socket: &str) -> Self {
        let fd = seqpacket();
        rustix::net::connect(&fd, &SocketAddrUnix::new(socket).unwrap()).unwrap();
        let liar = Self(fd);
        assert!(matches!(liar.hear(), Some((Message::Hello(_), _))));
        liar
    }

    fn send_bytes(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(fds));
        }
        // Whether the other side still listens is not the question.
        let _ = rustix::net::sendmsg(&self.0, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL);
    }

    fn say(&self, message: &Message, fds: &[BorrowedFd<'_>]) {
        self.send_bytes(&message.encode(), fds);
    }

    /// The next message and what came with it; `None` when it is over.
    fn hear(&self) -> Option<(Message, Option<OwnedFd>)> {
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
    fn dismissed(&self) -> String {
        loop {
            match self.hear() {
                Some((Message::Disconnect { reason, .. }, _)) => return reason,
                Some(_) => {}
                None => panic!("it was closed without a word"),
            }
        }
    }

    /// A client's part as it should be, up to the end.
    fn shake_hands(&self, file: &File) {
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

fn server(socket: &str, connector: &mut Connector) -> (MemifPort, warmlane_mem::Pool) {
    let pool = pool();
    let secret = Some("word".to_owned());
    let options = MemifOptions { secret, ..MemifOptions::new(socket, Role::Server) };
    (open("server", &options, 1, &pool, connector).unwrap(), pool)
}

#[test]
fn lies_on_the_socket_cost_the_connection() {
    let _alone = alone();
    let _lane = LaneThread::enter();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("memif.sock").to_str().unwrap().to_owned();
    let mut connector = Connector::default();
    let (mut port, server_pool) = server(&socket, &mut connector);
    let file = region(SealFlags::SHRINK);
    let unsealed = region(SealFlags::empty());
    let (fd, unsealed) = (file.as_fd(), unsealed.as_fd());
    let before = descriptors();
    let (greeted, with_region): (Vec<_>, Vec<_>) = (
        vec![(Message::Init(init()), vec![])],
        vec![
            (Message::Init(init()), vec![]),
            (Message::AddRegion { index: 0, size: REGION_BYTES as u64 }, vec![fd]),
        ],
    );
    let size = REGION_BYTES as u64;
    let bad_ring = |change: fn(&mut AddRing)| {
        let mut ring = ring(Direction::ToServer);
        change(&mut ring);
        vec![(Message::AddRing(ring), vec![fd]), (Message::Connect { interface: String::new() }, vec![])]
    };
    for (honest, lie, expected) in [
        (&vec![], vec![(Message::Ack, vec![])], "unexpected message"),
        (&vec![], vec![(Message::Init(Init { version: 0x0100, ..init() }), vec![])], "version 1.0"),
        (&vec![], vec![(Message::Init(Init { secret: [0; 24], ..init() }), vec![])], "wrong secret"),
        (&vec![], vec![(Message::Init(Init { mode: 1, ..init() }), vec![])], "Ethernet"),
        (&vec![], vec![(Message::Init(Init { id: 7, ..init() }), vec![])], "no interface with id 7"),
        (&greeted, vec![(Message::Init(init()), vec![])], "unexpected message"),
        (&greeted, vec![(Message::AddRegion { index: 0, size }, vec![])], "without a file"),
        (&greeted, vec![(Message::AddRegion { index: 1, size }, vec![fd, fd, fd])], "region 1: expected 0"),
        (&greeted, vec![(Message::AddRegion { index: 0, size: size + 1 }, vec![fd])], "in a file of"),
        (&greeted, vec![(Message::AddRegion { index: 0, size }, vec![unsealed])], "not sealed"),
        (&greeted, vec![(Message::Connect { interface: String::new() }, vec![])], "no rings"),
        (&with_region, vec![(Message::AddRing(ring(Direction::ToServer)), vec![])], "without an event"),
        (&with_region, bad_ring(|ring| ring.index = 1), "ring 1: expected 0"),
        (&with_region, bad_ring(|ring| ring.private_header = 1), "private"),
        (&with_region, bad_ring(|ring| ring.log2_size = 15), "2^15"),
        (&with_region, bad_ring(|ring| ring.region = 1), "outside"),
        (&with_region, bad_ring(|ring| ring.offset = u32::MAX - 15), "outside"),
        (&with_region, bad_ring(|ring| ring.offset = 8), "16 does not divide"),
        (&with_region, bad_ring(|ring| ring.offset = 128), "cookie"),
    ] {
        let liar = Liar::new(&socket);
        for (message, fds) in honest {
            liar.say(message, fds);
            assert!(matches!(liar.hear(), Some((Message::Ack, _))), "{expected}");
        }
        for (message, fds) in lie {
            liar.say(&message, &fds);
        }
        let reason = liar.dismissed();
        assert!(reason.contains(expected), "{reason}, expected {expected}");
    }
    for bytes in [&[2; 127][..], &[2; 129], &[2]] {
        let liar = Liar::new(&socket);
        liar.send_bytes(bytes, &[fd, fd]);
        assert!(liar.dismissed().contains("128 bytes"));
    }
    // Many that say nothing.
    let silent: Vec<_> = (0..16).map(|_| Liar::new(&socket)).collect();
    let last = Liar(seqpacket());
    rustix::net::connect(&last.0, &SocketAddrUnix::new(&socket).unwrap()).unwrap();
    assert!(last.dismissed().contains("too many"));
    drop((silent, last));

    let first = Liar::new(&socket);
    first.shake_hands(&file);
    let second = Liar::new(&socket);
    second.say(&Message::Init(init()), &[]);
    assert!(second.dismissed().contains("connection already"));
    assert!(connected(&port));
    first.say(&Message::Ack, &[]);
    assert!(first.dismissed().contains("unexpected"));
    until("the connection is over", || !connected(&port));
    drop((first, second));
    let mut burst = Burst::new();
    port.port.receive[0].receive(&mut burst);
    let mut nothing = Burst::new();
    port.port.transmit[0].transmit(&mut nothing);
    until("all descriptors are closed", || descriptors() == before);

    // And who tells the truth comes in.
    let pool = pool();
    let secret = Some("word".to_owned());
    let options = MemifOptions { secret, ..MemifOptions::new(&socket, Role::Client) };
    let mut client = open("client", &options, 1, &pool, &mut connector).unwrap();
    until("they are connected", || connected(&client) && connected(&port));
    exchange(&pool, &mut *client.port.transmit[0], &mut *port.port.receive[0], &[60, 1514, 9000], usize::MAX);
    drop((client, port));
    assert_eq!((pool.ledger().outstanding(), server_pool.ledger().outstanding()), (0, 0));
}

/// A region as the liar sees it. By its addresses, for files of huge pages can't be written to.
struct Shared {
    start: NonNull<u8>,
    length: usize,
}

impl Shared {
    fn new(file: &File) -> Self {
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

    fn write(&self, place: u64, bytes: &[u8]) {
        for (place, byte) in (place..).zip(bytes) {
            self.byte(place).store(*byte, Ordering::Relaxed);
        }
    }

    fn index(&self, place: u64) -> u16 {
        u16::from_ne_bytes([place, place + 1].map(|place| self.byte(place).load(Ordering::Relaxed)))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nobody else has an address in it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// Writes something wrong somewhere in the first two rings.
fn lie(memory: &Shared, random: &mut Random, rings: &[u64]) {
    let number = random.bits();
    let start = rings[(number >> 8) as usize % rings.len()];
    let word = random.bits();
    let value = match (number >> 16) % 4 {
        0 => word,
        1 => word & 0xff,
        // Close to what it may be.
        2 => word & 0x3f_ffff_0001,
        _ => u64::MAX - (word & 0xff),
    };
    let (place, bytes) = match number % 8 {
        0 => (start + 6, 2),
        1 => (start + 64, 2),
        2 => (start + 4, 2),
        3 => (start + 128 + (number >> 20) % 128 * 8, 8),
        _ => (start + 128 + (number >> 20) % 256 * 4, 4),
    };
    // Indices mostly go on as they should, so that descriptors are looked at.
    if number.is_multiple_of(8) || number % 8 == 1 {
        let next = memory.index(place).wrapping_add((word % 40) as u16);
        if !word.is_multiple_of(64) {
            return memory.write(place, &next.to_ne_bytes());
        }
    }
    memory.write(place, &value.to_ne_bytes()[..bytes]);
}

/// Lets both queues work on what there is.
fn work(port: &mut MemifPort, pool: &warmlane_mem::Pool, random: &mut Random) {
    let (mut burst, mut back) = (Burst::new(), Burst::new());
    port.port.receive[0].receive(&mut back);
    for packet in back.iter() {
        assert!(packet.packet_length() <= 65_535);
    }
    drop(back);
    pool.take_burst(&mut burst, (random.bits() % 32) as usize);
    for packet in burst.iter_mut() {
        let length = (random.bits() % 2048) as usize;
        packet.append(length).unwrap().fill(1);
    }
    port.port.transmit[0].transmit(&mut burst);
    port.port.transmit[0].flush();
}

/// Tells so many lies at most in these rings, until the port has ended the connection; says how many.
fn lie_until_found_out(
    liar: Liar,
    memory: &Shared,
    rings: &[u64],
    most: u64,
    (port, pool, random): (&mut MemifPort, &warmlane_mem::Pool, &mut Random),
) -> u64 {
    let mut told = 0;
    until("the port knows", || connected(port));
    while told < most && connected(port) {
        for _ in 0..4 {
            lie(memory, random, rings);
            told += 1;
        }
        work(port, pool, random);
    }
    drop(liar);
    until("the connection is over", || !connected(port));
    told
}

#[test]
fn a_client_that_lies_in_the_rings() {
    let _alone = alone();
    let _lane = LaneThread::enter();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("memif.sock").to_str().unwrap().to_owned();
    let mut connector = Connector::default();
    let (mut port, pool) = server(&socket, &mut connector);
    let mut random = Random::new(7);
    let (mut told, mut connections) = (0, 0);
    while told < lies() {
        let (liar, file) = (Liar::new(&socket), region(SealFlags::SHRINK));
        liar.shake_hands(&file);
        let memory = Shared::new(&file);
        connections += 1;
        told +=
            lie_until_found_out(liar, &memory, &[0, 2048], lies() - told, (&mut port, &pool, &mut random));
    }
    assert!(connections > 1, "no lie was found out");
    drop(port);
    assert_eq!(pool.ledger().outstanding(), 0);
}

/// Its packets are in front of the server, or the server's are to go to it, when its file is cut short: behind the rings, or all of it.
#[test]
fn a_client_that_cuts_its_memory_short() {
    let _alone = alone();
    let _lane = LaneThread::enter();
    let folder = tempfile::tempdir().unwrap();
    let [socket, other_socket] =
        ["memif.sock", "other.sock"].map(|name| folder.path().join(name).to_str().unwrap().to_owned());
    let (mut connector, pool) = (Connector::default(), pool());
    let secret = Some("word".to_owned());
    let options = MemifOptions { secret, allow_unsealed: true, ..MemifOptions::new(&socket, Role::Server) };
    let mut port = open("server", &options, 1, &pool, &mut connector).unwrap();
    // Somebody else's, through which packets go all the time.
    let others = [Role::Server, Role::Client];
    let [mut other_server, mut other_client] = others.map(|role| {
        open("other", &MemifOptions::new(&other_socket, role), 1, &pool, &mut connector).unwrap()
    });
    until("the others are connected", || connected(&other_client) && connected(&other_server));
    for (number, (left, transmit)) in
        [(4096, false), (0, false), (4096, true), (0, true)].into_iter().enumerate()
    {
        let (liar, file) = (Liar::new(&socket), region(SealFlags::empty()));
        liar.shake_hands(&file);
        let memory = Shared::new(&file);
        until("the server knows", || connected(&port));
        let mut burst = Burst::new();
        assert_eq!(port.port.receive[0].receive(&mut burst), 0);
        // 20 packets in the ring to the server, 20 empty buffers in the other one.
        memory.write(6, &20_u16.to_ne_bytes());
        memory.write(2048 + 6, &20_u16.to_ne_bytes());
        ftruncate(&file, left).unwrap();
        if transmit {
            pool.take_burst(&mut burst, 10);
            burst.iter_mut().for_each(|packet| packet.fill(&[1; 60]).unwrap());
            port.port.transmit[0].transmit(&mut burst);
            burst.clear();
        }
        until("the connection is over", || {
            assert_eq!(port.port.receive[0].receive(&mut burst), 0, "zeros are no packets");
            !connected(&port)
        });
        let status = port.monitor.status().unwrap();
        assert!(status.reason.contains("cut its memory short"), "{number}: {}", status.reason);
        drop(memory);
        let (from, to) = (&mut other_client.port.transmit[0], &mut other_server.port.receive[0]);
        exchange(&pool, &mut **from, &mut **to, &[60, 1514, 9000], usize::MAX);
    }
    assert_eq!(port.port.receive[0].counters().packets(), 0);
    drop((port, other_server, other_client));
    assert_eq!(pool.ledger().outstanding(), 0);
}

#[test]
fn a_server_that_lies_in_the_rings() {
    let _alone = alone();
    let _lane = LaneThread::enter();
    for mode in [Mode::Copy, Mode::ZeroCopy] {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("memif.sock").to_str().unwrap().to_owned();
        let listener = seqpacket();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&socket).unwrap()).unwrap();
        rustix::net::listen(&listener, 1).unwrap();
        let pool = pool();
        let options = MemifOptions { mode, ring_size: 64, ..MemifOptions::new(&socket, Role::Client) };
        let mut port = open("client", &options, 1, &pool, &mut Connector::default()).unwrap();
        let mut random = Random::new(11);
        let (mut told, mut connections) = (0, 0);
        while told < lies() {
            let liar = Liar(rustix::net::accept(&listener).unwrap());
            let (file, rings) = serve(&liar);
            let memory = Shared::new(&file);
            connections += 1;
            told +=
                lie_until_found_out(liar, &memory, &rings, lies() - told, (&mut port, &pool, &mut random));
        }
        assert!(connections > 1, "no lie was found out");
        drop(port);
        assert_eq!(pool.ledger().outstanding(), 0);
    }
}

/// A server's part as it should be. Returns the client's region 0, and where its rings are.
fn serve(liar: &Liar) -> (File, Vec<u64>) {
    liar.say(
        &Message::Hello(Hello {
            name: "liar".to_owned(),
            lowest_version: VERSION,
            highest_version: VERSION,
            last_region: 255,
            last_ring_to_server: 0,
            last_ring_to_client: 0,
            longest_ring: 14,
        }),
        &[],
    );
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
