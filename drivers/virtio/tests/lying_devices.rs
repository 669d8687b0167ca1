//! Back ends and devices that lie: on the control socket, in the rings, in headers. It costs them the connection, or a packet, and nobody else
//! anything.

mod common;

use common::back_end::{BackEnd, FROM_DRIVER, TO_DRIVER};
use common::{World, connected, undisturbed, until};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use warmlane_mem::Burst;
use warmlane_sys::random::Random;
use warmlane_testkit::exchange::{contents, packet_of};
use warmlane_testkit::hostile::{Lies, descriptors, end};
use warmlane_testkit::queues::drops;
use warmlane_virtio::Role;
use warmlane_virtio::features::{EVENT_INDEX, IN_ORDER, MERGEABLE, PACKED, VERSION_1};
use warmlane_virtio::protocol::Request;
use warmlane_virtio::virtio_user::{VirtioUserOptions, open};

const ONE_BUFFER: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];

fn world(packed: bool) -> World {
    World::new(|path, pool| {
        let defaults = VirtioUserOptions::new(path, Role::Server);
        open("ours", &VirtioUserOptions { packed, ring_size: 64, ..defaults }, 1, pool).unwrap()
    })
}

impl World {
    fn receive(&mut self, count: usize) -> Vec<Vec<u8>> {
        self.receive_until(|received| received >= count)
    }

    fn send(&mut self, lengths: &[usize]) {
        let mut burst = Burst::new();
        for &length in lengths {
            burst.push(packet_of(&self.pool, &contents(1, length))).unwrap();
        }
        self.port.port.transmit[0].transmit(&mut burst);
    }

    /// Why the connection has ended, which the queues find out.
    fn reason(&mut self) -> String {
        let mut burst = Burst::new();
        let reason = self.reason_while(|world| {
            world.port.port.receive[0].receive(&mut burst);
            world.send(&[60; 32]);
        });
        assert!(burst.is_empty());
        reason
    }
}

#[test]
fn lies_on_the_socket_cost_the_connection() {
    let world = world(true);
    let reply = |request: u32, flags: u32, payload: &[u8]| {
        let length = payload.len() as u32;
        [request, flags, length]
            .into_iter()
            .flat_map(u32::to_ne_bytes)
            .chain(payload.iter().copied())
            .collect()
    };
    let modern = VERSION_1.to_ne_bytes();
    let cases: [(Vec<u8>, &str); 8] = [
        (reply(15, 5, &modern), "no answer"),
        (reply(1, 1, &modern), "no answer"),
        (reply(1, 5, &modern[..7]), "no answer"),
        (reply(1, 5, &[0; 16]), "no answer"),
        (reply(1, 6, &modern), "version 1"),
        (reply(1, 5, &[0; 600]), "at most 512"),
        (reply(1, 5, &[0; 8]), "before virtio 1.0"),
        (reply(1, 5, &modern), "no packed rings"),
    ];
    for (bytes, reason) in cases {
        let mut socket = UnixStream::connect(&world.path).unwrap();
        let mut question = [0; 12];
        socket.read_exact(&mut question).unwrap();
        socket.write_all(&bytes).unwrap();
        until("the connection is over", || world.port.monitor.status().unwrap().reason.contains(reason));
        assert!(matches!(socket.read(&mut question), Ok(0) | Err(_)), "{reason}");
    }
    // Whoever says more than he was asked for ends it, too.
    let good = VERSION_1 | PACKED;
    let back_end = world.back_end(good);
    back_end.answer(&Request::GetFeatures, &good.to_ne_bytes());
    until("the connection is over", || {
        world.port.monitor.status().unwrap().reason.contains("answer to nothing")
    });
}

type Lie = Box<dyn Fn(&BackEnd)>;

#[test]
fn rings_that_cannot_be_end_the_connection() {
    let mut world = world(false);
    let numbered = |count: u16| {
        let mut header = ONE_BUFFER;
        header[10..].copy_from_slice(&count.to_ne_bytes());
        header
    };
    let lies: [(Lie, u64, &str); 10] = [
        (Box::new(|device| device.use_buffer(TO_DRIVER, 64, 72)), 0, "doesn't have"),
        (Box::new(|device| device.use_buffer(TO_DRIVER, 1 << 16, 72)), 0, "doesn't have"),
        (Box::new(|device| device.use_buffer(TO_DRIVER, 3, 2049)), 0, "more bytes"),
        (Box::new(|device| device.use_buffer(FROM_DRIVER, 64, 0)), 0, "doesn't have"),
        (Box::new(|device| device.set_used_index(TO_DRIVER, 65)), 0, "impossible index"),
        (Box::new(|device| device.set_used_index(FROM_DRIVER, 65)), 0, "impossible index"),
        (
            Box::new(|device| {
                device.write(
                    device.addresses(TO_DRIVER).used + 4,
                    &[3, 0, 0, 0, 4, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0],
                );
                device.set_used_index(TO_DRIVER, 2);
            }),
            0,
            "not available",
        ),
        (Box::new(move |device| device.send(0, numbered(0), &[1; 60])), MERGEABLE, "in more buffers"),
        (Box::new(move |device| device.send(0, numbered(65), &[1; 60])), MERGEABLE, "in more buffers"),
        // In order, the sixth stands for six, and the index says two.
        (
            Box::new(|device| {
                device.use_buffer(TO_DRIVER, 5, 72);
                device.use_buffer(TO_DRIVER, 2, 72);
            }),
            IN_ORDER,
            "impossible index",
        ),
    ];
    for (number, (lie, more, expected)) in lies.into_iter().enumerate() {
        let back_end = world.back_end(VERSION_1 | more);
        assert_eq!((back_end.available(TO_DRIVER), back_end.size()), (64, 64));
        lie(&back_end);
        let reason = world.reason();
        assert!(reason.contains(expected), "{number}: {reason}, not {expected}");
    }
}

#[test]
fn what_a_device_sends_comes_or_is_dropped() {
    let mut world = world(false);
    let back_end = world.back_end(VERSION_1 | MERGEABLE);
    back_end.send(0, ONE_BUFFER, &contents(1, 60));
    assert_eq!(world.receive(1), [contents(1, 60)]);
    // Spread over three, which come one after the other.
    let frame = contents(2, 4000);
    let mut header = ONE_BUFFER;
    header[10] = 3;
    back_end.send(5, header, &frame[..2036]);
    assert_eq!(world.port.port.receive[0].receive(&mut Burst::with_limit(1)), 0);
    for (number, part) in [(6_u16, &frame[2036..3000]), (7, &frame[3000..])] {
        assert_eq!(world.port.port.receive[0].receive(&mut Burst::with_limit(1)), 0);
        back_end.write(back_end.buffer(TO_DRIVER, number), part);
        back_end.use_buffer(TO_DRIVER, number.into(), part.len() as u32);
    }
    assert_eq!(world.receive(1), [frame]);
    // Nothing but a header, less than that, and one that lies.
    back_end.send(8, ONE_BUFFER, &[]);
    for (number, length) in [(9, 11), (10, 0)] {
        back_end.use_buffer(TO_DRIVER, number, length);
    }
    back_end.send(11, [1, 0, 0, 0, 0, 0, 255, 255, 0, 0, 1, 0], &contents(1, 60));
    back_end.send(12, ONE_BUFFER, &contents(3, 60));
    assert_eq!(world.receive(1), [contents(3, 60)]);
    let counters = world.port.port.receive[0].counters();
    assert_eq!(drops(&counters), [("runt", 3), ("checksum-unknown", 1)]);
    // All but those under way are available again.
    assert_eq!(back_end.available(TO_DRIVER), 64 + 9);
    // What is sent is written by the specification.
    world.send(&[60, 3000]);
    assert_eq!(back_end.available(FROM_DRIVER), 2);
    let (first, second) = (back_end.buffer(FROM_DRIVER, 0), back_end.buffer(FROM_DRIVER, 1));
    assert_eq!(back_end.read_at::<12>(first), [0; 12]);
    assert_eq!(back_end.read_at::<60>(first + 12)[..], contents(1, 60)[..]);
    assert_eq!(back_end.read_at::<2036>(second + 12)[..], contents(1, 3000)[..2036]);
}

/// Writes something wrong somewhere in the memory, or says that something was used, mostly in `turn`: of each ring how many were.
fn lie(back_end: &BackEnd, random: &mut Random, is_packed: bool, turn: &mut [u64; 2]) {
    let (number, word) = (random.bits(), random.bits());
    let ring = (number >> 40 & 1) as usize;
    let addresses = back_end.addresses(ring);
    let size = u64::from(back_end.size());
    // Seldom another one than that whose turn it is.
    let slot = if word.is_multiple_of(64) { (number >> 8) % size } else { turn[ring] % size };
    let id = if word.is_multiple_of(96) { (word >> 20) as u16 } else { slot as u16 };
    let length = if (word >> 8).is_multiple_of(512) { word as u32 } else { (word >> 40) as u32 % 2049 };
    match number % 64 {
        0 => {
            let place = (word >> 10) % (back_end.memory() - 8);
            back_end.write(back_end.start() + place, &word.to_ne_bytes());
        }
        1 => back_end.write(addresses.used + (word >> 30) % 4, &word.to_ne_bytes()[..2]),
        2..=20 => {
            // What stands in front of a packet.
            let header = [
                (word >> 3) as u8 & 1,
                0,
                0,
                0,
                0,
                0,
                (word >> 12) as u8,
                0,
                16,
                0,
                (word >> 20) as u8 % 4,
                0,
            ];
            // A ring that begins anew is empty as long as what came by the former one is not received.
            let buffer = back_end.buffer(ring, slot as u16);
            if back_end.has(buffer, header.len() as u64) {
                back_end.write(buffer, &header);
            }
        }
        _ if is_packed => {
            let flags = if (turn[ring] / size).is_multiple_of(2) { 0x8080_u64 } else { 0 };
            let tail = u64::from(length) | u64::from(id) << 32 | flags << 48;
            back_end.write(addresses.descriptors + slot * 16 + 8, &tail.to_ne_bytes());
            turn[ring] += 1;
        }
        _ => {
            back_end.use_buffer(ring, id.into(), length);
            turn[ring] += 1;
        }
    }
}

fn liar_in_the_rings(who: &str, features: u64, seed: u64) {
    let is_packed = features & PACKED != 0;
    let mut world = world(is_packed);
    let beside = undisturbed();
    let mut random = Random::new(seed);
    // What is lent stays open from the first connection on.
    world.disconnect(world.back_end(features));
    let before = descriptors();
    let (mut lies, mut came, mut told) = (Lies::in_descriptors(who), 0, 0);
    // On a busy machine the port's thread may be late, and many lies come before the queues have the rings.
    let most = 1_000 * lies.left();
    let goes_on = |lies: &Lies, came, told| lies.go_on() || came == 0 && told < most;
    while goes_on(&lies, came, told) {
        let back_end = world.back_end(features);
        let mut turn = [0; 2];
        lies.connected();
        while goes_on(&lies, came, told) && connected(&world.port) {
            for _ in 0..4 {
                lie(&back_end, &mut random, is_packed, &mut turn);
                lies.told(1);
                told += 1;
            }
            let mut burst = Burst::new();
            came += world.port.port.receive[0].receive(&mut burst);
            assert!(burst.iter().all(|packet| packet.packet_length() <= 65_600));
            let lengths = [60, (random.bits() % 9000) as usize + 1];
            world.send(&lengths);
        }
        world.disconnect(back_end);
    }
    assert!(came > 0, "no packet came");
    end(lies, beside, before);
}

#[test]
fn a_device_that_lies_in_split_rings() {
    liar_in_the_rings("a device, split rings", VERSION_1 | MERGEABLE, 3);
    liar_in_the_rings("a device, split rings in order", VERSION_1 | EVENT_INDEX | IN_ORDER, 4);
}

#[test]
fn a_device_that_lies_in_packed_rings() {
    liar_in_the_rings("a device, packed rings", VERSION_1 | PACKED | MERGEABLE, 5);
    let features = VERSION_1 | PACKED | EVENT_INDEX | IN_ORDER;
    liar_in_the_rings("a device, packed rings in order", features, 6);
}
