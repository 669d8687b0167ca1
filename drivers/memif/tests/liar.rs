//! Other sides that lie: on the control socket and in the rings. It costs them the connection, or a packet, and nobody else anything.

mod common;

use common::liar::{Liar, REGION_BYTES, Shared, init, listen, region, ring, seqpacket, serve};
use common::{World, connected, exchange, notice_the_end, undisturbed, until};
use rustix::fs::{SealFlags, ftruncate};
use rustix::net::SocketAddrUnix;
use std::os::fd::AsFd as _;
use warmlane_mem::{Burst, Pool};
use warmlane_memif::protocol::{AddRing, Direction, Init, Message};
use warmlane_memif::{MemifOptions, MemifPort, Mode, Role};
use warmlane_sys::random::Random;
use warmlane_testkit::hostile::{Lies, descriptors, end};

#[test]
fn lies_on_the_socket_cost_the_connection() {
    let (mut world, mut port) = World::with_server();
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
        let liar = Liar::new(&world.socket);
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
        let liar = Liar::new(&world.socket);
        liar.send_bytes(bytes, &[fd, fd]);
        assert!(liar.dismissed().contains("128 bytes"));
    }
    // Many that say nothing.
    let silent: Vec<_> = (0..16).map(|_| Liar::new(&world.socket)).collect();
    let last = Liar(seqpacket());
    rustix::net::connect(&last.0, &SocketAddrUnix::new(&world.socket).unwrap()).unwrap();
    assert!(last.dismissed().contains("too many"));
    drop((silent, last));

    let first = Liar::new(&world.socket);
    first.shake_hands(&file);
    let second = Liar::new(&world.socket);
    second.say(&Message::Init(init()), &[]);
    assert!(second.dismissed().contains("connection already"));
    assert!(connected(&port));
    first.say(&Message::Ack, &[]);
    assert!(first.dismissed().contains("unexpected"));
    until("the connection is over", || !connected(&port));
    drop((first, second));
    notice_the_end(&mut port);
    until("all descriptors are closed", || descriptors() == before);
    world.lets_in(port);
}

/// Descriptors in each ring.
const SIZE: u16 = 64;
/// Where an index of a ring is: of a client, and of a server.
const HEAD: u64 = 6;
const TAIL: u64 = 64;

/// Where somebody lies, and whose index is his.
struct Rings<'a> {
    memory: &'a Shared,
    starts: &'a [u64],
    own_index: u64,
    /// One index in so many is wrong, by which a liar is found out.
    seldom: u64,
}

impl Rings<'_> {
    /// Writes something wrong somewhere in one of the rings.
    fn lie(&self, random: &mut Random) {
        let number = random.bits();
        let start = self.starts[(number >> 8) as usize % self.starts.len()];
        let word = random.bits();
        let value = match (number >> 16) % 4 {
            0 => word,
            1 => word & 0xff,
            // Close to what it may be.
            2 => word & 0x3f_ffff_0001,
            _ => u64::MAX - (word & 0xff),
        };
        let (place, bytes) = match number % 8 {
            0 => (start + HEAD, 2),
            1 => (start + TAIL, 2),
            2 => (start + 4, 2),
            3 => (start + 128 + (number >> 20) % 128 * 8, 8),
            _ => (start + 128 + (number >> 20) % 256 * 4, 4),
        };
        // Indices mostly go on as they should, so that descriptors are looked at.
        if number % 8 < 2 && !word.is_multiple_of(self.seldom) {
            return self.go_on(start, (word >> 32) as u16 % 40);
        }
        self.memory.write(place, &value.to_ne_bytes()[..bytes]);
    }

    /// Moves his index on as far as he may.
    fn go_on(&self, start: u64, step: u16) {
        let [head, tail] = [HEAD, TAIL].map(|index| self.memory.index(start + index));
        let under_way = head.wrapping_sub(tail);
        let (index, most) = if self.own_index == HEAD {
            (head, SIZE.saturating_sub(under_way))
        } else {
            (tail, under_way.min(SIZE))
        };
        let next = index.wrapping_add(step.min(most));
        self.memory.write(start + self.own_index, &next.to_ne_bytes());
    }
}

/// Lets both queues work on what there is.
fn work(port: &mut MemifPort, pool: &Pool, random: &mut Random) {
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

/// Tells lies in these rings until the port has ended the connection, or none are left.
fn lie_until_found_out(
    liar: Liar,
    rings: &Rings<'_>,
    lies: &mut Lies,
    (port, pool, random): (&mut MemifPort, &Pool, &mut Random),
) {
    until("the port knows", || connected(port));
    lies.connected();
    while lies.go_on() && connected(port) {
        for _ in 0..4 {
            rings.lie(random);
            lies.told(1);
        }
        work(port, pool, random);
    }
    drop(liar);
    until("the connection is over", || !connected(port));
}

#[test]
fn a_client_that_lies_in_the_rings() {
    let (mut world, mut port) = World::with_server();
    let beside = undisturbed(&mut world.connector);
    let before = descriptors();
    let (mut lies, mut random) = (Lies::in_descriptors("a client"), Random::new(7));
    while lies.go_on() {
        let (liar, file) = (Liar::new(&world.socket), region(SealFlags::SHRINK));
        liar.shake_hands(&file);
        let rings = Rings { memory: &Shared::new(&file), starts: &[0, 2048], own_index: HEAD, seldom: 64 };
        lie_until_found_out(liar, &rings, &mut lies, (&mut port, &world.pool, &mut random));
    }
    notice_the_end(&mut port);
    end(lies, beside, before);
}

/// Its packets are in front of the server, or the server's are to go to it, when its file is cut short: behind the rings, or all of it.
#[test]
fn a_client_that_cuts_its_memory_short() {
    let mut world = World::new();
    let (secret, options) = (Some("word".to_owned()), MemifOptions::new(&world.socket, Role::Server));
    let mut port = world.open(&MemifOptions { secret, allow_unsealed: true, ..options });
    // Somebody else's, through which packets go all the time.
    let other_socket = format!("{}-other", world.socket);
    let [mut other_server, mut other_client] =
        [Role::Server, Role::Client].map(|role| world.open(&MemifOptions::new(&other_socket, role)));
    until("the others are connected", || connected(&other_client) && connected(&other_server));
    for (number, (left, transmit)) in
        [(4096, false), (0, false), (4096, true), (0, true)].into_iter().enumerate()
    {
        let (liar, file) = (Liar::new(&world.socket), region(SealFlags::empty()));
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
            world.pool.take_burst(&mut burst, 10);
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
        exchange(&world.pool, &mut **from, &mut **to, &[60, 1514, 9000], usize::MAX);
    }
    assert_eq!(port.port.receive[0].counters().packets(), 0);
}

#[test]
fn a_server_that_lies_in_the_rings() {
    for (who, mode) in [("a server", Mode::Copy), ("a server of a zero-copy client", Mode::ZeroCopy)] {
        let mut world = World::new();
        let listener = listen(&world.socket);
        let beside = undisturbed(&mut world.connector);
        let before = descriptors();
        let options = MemifOptions::new(&world.socket, Role::Client);
        let mut port = world.open(&MemifOptions { mode, ring_size: 64, ..options });
        let (mut lies, mut random) = (Lies::in_descriptors(who), Random::new(11));
        while lies.go_on() {
            let liar = Liar(rustix::net::accept(&listener).unwrap());
            let (file, starts) = serve(&liar);
            // A client that is found out waits a while: so seldom.
            let rings = Rings { memory: &Shared::new(&file), starts: &starts, own_index: TAIL, seldom: 1024 };
            lie_until_found_out(liar, &rings, &mut lies, (&mut port, &world.pool, &mut random));
        }
        drop(port);
        end(lies, beside, before);
    }
}
