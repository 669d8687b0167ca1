//! Front ends and drivers that lie: on the control socket, in the rings, in headers, about memory. It costs them the connection, or a packet,
//! and nobody else anything.

mod common;

use common::front_end::{
    BUFFER, FrontEnd, GUEST, MEMORY, PLAIN, RECEIVE, RING, SIZE, TRANSMIT, addresses, region,
};
use common::{World, connected, undisturbed, until};
use rustix::fs::ftruncate;
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd};
use warmlane_mem::Burst;
use warmlane_sys::random::Random;
use warmlane_testkit::exchange::{contents, packet_of};
use warmlane_testkit::hostile::{Lies, descriptors, end};
use warmlane_testkit::queues::{ShownDrops, drops};
use warmlane_virtio::features::{EVENT_INDEX, MERGEABLE, PACKED};
use warmlane_virtio::protocol::{
    Inflight, Log, MemoryRegion, Request, RingAddresses, RingDescriptor, RingState,
};

#[test]
fn lies_on_the_socket_cost_the_connection() {
    let world = World::vhost();
    let null = File::open("/dev/null").unwrap();
    let before = descriptors();
    let short = MemoryRegion { length: MEMORY + 1, ..region() };
    let last = MemoryRegion { guest: u64::MAX - 1, ..region() };
    let ring = |index, value| RingState { index, value };
    let far = RingAddresses { used: u64::MAX - 7, ..addresses(0) };
    let odd = RingAddresses { descriptors: addresses(0).descriptors + 8, ..addresses(0) };
    let with = RingDescriptor { index: 0, has_descriptor: true };
    let notes = |rings, ring_size| Inflight { length: 100, offset: 0, rings, ring_size };
    let start = |addresses: RingAddresses| {
        vec![
            (Request::SetRingSize(ring(0, 64)), 0),
            (Request::SetRingAddresses(addresses), 0),
            (Request::SetRingKick(RingDescriptor { index: 0, has_descriptor: false }), 0),
        ]
    };
    let cases = [
        (vec![(Request::SetFeatures(1 << 63), 0)], "offered"),
        (vec![(Request::SetProtocolFeatures(1 << 40), 0)], "offered"),
        (vec![(Request::SetMemoryTable(vec![region()]), 0)], "0 descriptors"),
        (vec![(Request::SetMemoryTable(vec![region()]), 2)], "2 descriptors"),
        (vec![(Request::SetMemoryTable(vec![short]), 1)], "in a file of"),
        (vec![(Request::SetMemoryTable(vec![last]), 1)], "behind the last address"),
        (vec![(Request::SetMemoryTable(vec![region(), region()]), 2)], "same addresses"),
        (vec![(Request::AddMemoryRegion(short), 1)], "in a file of"),
        (vec![(Request::AddMemoryRegion(MemoryRegion { user: 1 << 44, ..region() }), 1)], "same addresses"),
        (vec![(Request::RemoveMemoryRegion(short), 0)], "not there"),
        (vec![(Request::GetFeatures, 9)], "descriptors"),
        (vec![(Request::SetRingSize(ring(0, 65)), 0)], "power of two"),
        (vec![(Request::SetRingSize(ring(0, 65_536)), 0)], "power of two"),
        (vec![(Request::SetRingSize(ring(2, 64)), 0)], "1 pairs"),
        (vec![(Request::SetRingEnabled(ring(u32::MAX, 1)), 0)], "1 pairs"),
        (vec![(Request::SetRingKick(with), 0)], "0 descriptors"),
        (start(far), "outside"),
        (start(odd), "odd address"),
        ([(Request::SetMemoryTable(vec![]), 0)].into_iter().chain(start(addresses(0))).collect(), "share=on"),
        (vec![(Request::SendRarp(0), 0)], "not offered"),
        (vec![(Request::SetLogBase(Log { length: 8, offset: 0 }), 1)], "shorter than the memory"),
        (vec![(Request::SetLogBase(Log { length: u64::MAX, offset: 1 }), 1)], "a log of"),
        (vec![(Request::SetLogBase(Log { length: 8, offset: 0 }), 0)], "0 descriptors"),
        (vec![(Request::GetInflight(notes(0, 0)), 0)], "0 rings"),
        (vec![(Request::GetInflight(notes(2, u16::MAX)), 0)], "65535"),
        (vec![(Request::SetInflight(notes(2, 64)), 0)], "0 descriptors"),
        (vec![(Request::SetInflight(notes(2, 64)), 1)], "in 100 bytes"),
        (
            vec![(Request::SetInflight(Inflight { length: MEMORY + 1, ..notes(2, 64) }), 1)],
            "notes of buffers of",
        ),
        (
            [(Request::SetInflight(Inflight { length: 8192, ..notes(2, 32) }), 1)]
                .into_iter()
                .chain(start(addresses(0)))
                .collect(),
            "no place for notes",
        ),
    ];
    for (lie, expected) in cases {
        let front_end = FrontEnd::connect(&world.path, PLAIN);
        front_end.introduce();
        for (request, files) in lie {
            let fds: Vec<BorrowedFd<'_>> = (0..files).map(|_| front_end.file.as_fd()).collect();
            front_end.say(&request, &fds);
        }
        assert_eq!(front_end.hear(), None, "{expected}");
        until("it is known why", || world.port.monitor.status().unwrap().reason.contains(expected));
    }
    // An event that is none.
    let front_end = FrontEnd::connect(&world.path, PLAIN);
    front_end.introduce();
    front_end.say(&Request::SetRingCall(with), &[null.as_fd()]);
    assert_eq!(front_end.hear(), None);
    until("it is known why", || world.port.monitor.status().unwrap().reason.contains("no eventfd"));
    drop(front_end);
    // Bytes that are no message, and half a message, whose sender then goes.
    for (bytes, expected) in [(&[0xff; 40][..], "version 1"), (&[1, 0, 0, 0, 1, 0][..], "closed")] {
        let front_end = FrontEnd::connect(&world.path, PLAIN);
        front_end.send_bytes(bytes, &[]);
        rustix::net::shutdown(&front_end.socket, rustix::net::Shutdown::Write).unwrap();
        assert_eq!(front_end.hear(), None);
        until("it is known why", || world.port.monitor.status().unwrap().reason.contains(expected));
    }
    // A second one is refused, and the first undisturbed.
    let first = world.front_end(PLAIN);
    let second = FrontEnd::connect(&world.path, PLAIN);
    assert_eq!(second.hear(), None);
    assert!(connected(&world.port));
    drop((first, second));
    until("all descriptors are closed", || descriptors() == before);
}

#[test]
fn buffers_that_cannot_be_are_dropped_and_given_back() {
    let mut world = World::vhost();
    let front_end = world.front_end(PLAIN);
    let place = GUEST + FrontEnd::buffer(TRANSMIT, 0);
    let table = FrontEnd::buffer(TRANSMIT, 40);
    // A table whose only descriptor leads to itself, and one that leads out.
    front_end.descriptor(table, place, 60, 1, 0);
    front_end.descriptor(table + 16, place, 60, 1, 9);
    front_end.descriptor(table + 32, GUEST + table, 16, 4, 0);
    let table = GUEST + table;
    let cases = [
        (0, 100, 0),
        (GUEST - 1, 100, 0),
        (GUEST + MEMORY - 99, 100, 0),
        (u64::MAX, 100, 0),
        (place, u32::MAX, 0),
        // To be written, where it is to be read.
        (place, 100, 2),
        // Shorter than the header, or no more than it.
        (place, 0, 0),
        (place, 11, 0),
        (place, 12, 0),
        (table, 16, 4),
        (table + 16, 16, 4),
        (table + 32, 16, 4),
        (table, 15, 4),
        (table, 0, 4),
        (table + 1, 16, 4),
        (GUEST + MEMORY - 16, 32, 4),
        (table, 0xffff_fff0, 4),
    ];
    for (number, (address, length, flags)) in cases.into_iter().enumerate() {
        let number = number as u16;
        front_end.descriptor(RING + u64::from(number) * 16, address, length, flags, 0);
        front_end.make_available(TRANSMIT, number);
        assert!(world.receive_from(&front_end, number + 1).is_empty(), "{address:#x} {length} {flags}");
    }
    let counters = world.port.port.receive[0].counters();
    assert_eq!(drops(&counters), [("bad-descriptor", cases.len() as u64 - 3), ("runt", 3)]);
    // And a right one comes.
    let count = cases.len() as u16;
    front_end.send(count, [0; 12], &contents(1, 60));
    assert_eq!(world.receive_from(&front_end, count + 1), [contents(1, 60)]);
}

#[test]
fn headers_that_lie_are_refused() {
    let mut world = World::vhost();
    let front_end = world.front_end(PLAIN);
    let header = |flags: u8, kind: u8, words: [u16; 4]| {
        let mut header = [flags, kind, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for (place, word) in header[2..10].chunks_exact_mut(2).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        header
    };
    // Length of headers, size of segments, start of the checksum, its offset.
    let cases = [
        (header(1, 0, [0, 0, 59, 0]), "checksum-unknown"),
        (header(1, 0, [0, 0, u16::MAX, u16::MAX]), "checksum-unknown"),
        (header(1, 0, [0, 0, 34, u16::MAX]), "checksum-unknown"),
        (header(1, 1, [54, 0, 34, 16]), "gso-unknown"),
        (header(1, 1, [54, 1, 34, 16]), "gso-unknown"),
        (header(0, 0x7f, [0, 0, 0, 0]), "gso-unknown"),
        (header(1, 3, [42, 100, 34, 6]), "gso-unknown"),
    ];
    let mut used = 0;
    for (header, reason) in cases {
        let before = drops(&world.port.port.receive[0].counters());
        let count = |drops: &[(&str, u64)]| {
            drops.iter().find(|(name, _)| *name == reason).map_or(0, |(_, count)| *count)
        };
        // With others around it, so that it is one of a burst.
        front_end.send(used, [0; 12], &contents(1, 60));
        front_end.send(used + 1, header, &contents(2, 60));
        front_end.send(used + 2, [0; 12], &contents(3, 60));
        used += 3;
        let (came, shown) = ShownDrops::during(Some(5), || world.receive_from(&front_end, used));
        assert_eq!(came, [contents(1, 60), contents(3, 60)]);
        assert_eq!(shown, [(reason, contents(2, 60), Some(5))]);
        let after = drops(&world.port.port.receive[0].counters());
        assert_eq!(count(&after), count(&before) + 1, "{header:?}");
    }
}

#[test]
fn rings_that_cannot_be_end_the_connection() {
    let mut world = World::vhost();
    let place = GUEST + FrontEnd::buffer(TRANSMIT, 0);
    for (what, expected) in
        [(0, "index"), (1, "doesn't have"), (2, "without an end"), (3, "doesn't have"), (4, "to be filled")]
    {
        let front_end = world.front_end(PLAIN);
        match what {
            0 => front_end.write(RING + 0x2000 + 2, &(SIZE + 1).to_ne_bytes()),
            1 => front_end.make_available(TRANSMIT, SIZE),
            2 => {
                front_end.descriptor(RING, place, 60, 1, 1);
                front_end.descriptor(RING + 16, place, 60, 1, 0);
                front_end.make_available(TRANSMIT, 0);
            }
            3 => {
                front_end.descriptor(RING, place, 60, 1, SIZE);
                front_end.make_available(TRANSMIT, 0);
            }
            _ => {
                front_end.descriptor(0, place, 2048, 0, 0);
                front_end.make_available(RECEIVE, 0);
            }
        }
        let mut burst = Burst::new();
        until("it was found out", || {
            assert_eq!(world.port.port.receive[0].receive(&mut burst), 0);
            let mut goes = Burst::new();
            goes.push(packet_of(&world.pool, &contents(1, 60))).unwrap();
            world.port.port.transmit[0].transmit(&mut goes);
            !connected(&world.port)
        });
        assert!(world.reason_while(|_| {}).contains(expected), "{} {expected}", world.reason_while(|_| {}));
        assert_eq!(front_end.hear(), None);
    }
}

#[test]
fn memory_that_is_cut_short_costs_the_connection() {
    let mut world = World::vhost();
    for length in [0, 4096, FrontEnd::buffer(TRANSMIT, 0)] {
        let front_end = world.front_end(PLAIN);
        front_end.send(0, [0; 12], &contents(1, 60));
        ftruncate(&front_end.file, length).unwrap();
        let mut burst = Burst::new();
        until("it was found out", || {
            world.port.port.receive[0].receive(&mut burst);
            burst.clear();
            !connected(&world.port)
        });
        assert!(
            world.reason_while(|_| {}).contains("cut its memory short"),
            "{}",
            world.reason_while(|_| {})
        );
    }
    let front_end = world.front_end(PLAIN);
    front_end.send(0, [0; 12], &contents(1, 60));
    assert_eq!(world.receive_from(&front_end, 1), [contents(1, 60)]);
}

/// Writes something wrong somewhere in the rings, or makes something available.
fn lie(front_end: &FrontEnd, random: &mut Random, is_packed: bool) {
    let (number, word) = (random.bits(), random.bits());
    let ring = (number >> 40 & 1) * RING;
    let slot = (number >> 8) % u64::from(SIZE);
    let address = match word % 8 {
        0 => word,
        1 => GUEST + MEMORY - word % 4096,
        2 => GUEST + ring + word % 0x6000,
        _ => GUEST + FrontEnd::buffer((ring > 0).into(), slot as u16),
    };
    let length = match word >> 8 & 7 {
        0 => (word >> 16) as u32,
        1 => (word >> 16) as u32 & 0xf0,
        _ => BUFFER as u32,
    };
    // A direction, mostly the right one; seldom a chain, seldom a table.
    let direction = if (ring == 0) == word.is_multiple_of(16) { 0 } else { 2 };
    let kind = [0, 0, 0, 1, 1, 4, 5, 0][(word >> 48 & 7) as usize];
    match number % 8 {
        0 => front_end.write(ring + (word >> 20) % 0x6000, &word.to_ne_bytes()),
        // An index, or what suppresses events.
        1 => front_end.write(ring + 0x2000 + (word >> 20) % 4, &word.to_ne_bytes()[..2]),
        _ if is_packed => {
            let turn = [0x80, 0x8000][(number >> 50 & 1) as usize];
            let flags = turn | direction | kind;
            let tail = u64::from(length) | slot << 32 | u64::from(flags) << 48;
            front_end.write(ring + slot * 16, &[address.to_ne_bytes(), tail.to_ne_bytes()].concat());
        }
        _ => {
            let next = (word >> 52) as u16 % (SIZE + u16::from(word.is_multiple_of(64)));
            front_end.descriptor(ring + slot * 16, address, length, direction | kind, next);
            front_end.make_available((ring > 0).into(), slot as u16);
        }
    }
}

fn liar_in_the_rings(who: &str, features: u64, seed: u64) {
    let (mut world, mut random) = (World::vhost(), Random::new(seed));
    let beside = undisturbed();
    let before = descriptors();
    let (mut lies, mut came) = (Lies::in_descriptors(who), 0_u64);
    while lies.go_on() {
        let front_end = world.front_end(features);
        lies.connected();
        while lies.go_on() && connected(&world.port) {
            for _ in 0..4 {
                lie(&front_end, &mut random, features & PACKED != 0);
                lies.told(1);
            }
            let (mut burst, mut goes) = (Burst::new(), Burst::new());
            came += world.port.port.receive[0].receive(&mut burst) as u64;
            assert!(burst.iter().all(|packet| packet.packet_length() <= 65_600));
            world.pool.take_burst(&mut goes, (random.bits() % 32) as usize);
            for packet in goes.iter_mut() {
                packet.append((random.bits() % 2048) as usize).unwrap().fill(1);
            }
            world.port.port.transmit[0].transmit(&mut goes);
        }
        world.disconnect(front_end);
    }
    assert!(came > 0, "no packet came");
    end(lies, beside, before);
}

#[test]
fn a_driver_that_lies_in_split_rings() {
    liar_in_the_rings("a driver, split rings", PLAIN, 3);
    liar_in_the_rings("a driver, split rings with event indices", PLAIN | EVENT_INDEX, 4);
}

#[test]
fn a_driver_that_lies_in_packed_rings() {
    liar_in_the_rings("a driver, packed rings", PLAIN | PACKED, 5);
    let features = (PLAIN | PACKED | EVENT_INDEX) & !MERGEABLE;
    liar_in_the_rings("a driver, packed rings with event indices", features, 6);
}
