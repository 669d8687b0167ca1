//! Front ends and drivers that lie: on the control socket, in the rings, in headers, about memory. It costs them the connection, or a packet,
//! and nobody else anything.

mod common;

use common::front_end::{BUFFER, FrontEnd, GUEST, MEMORY, RECEIVE, RING, SIZE, TRANSMIT, addresses, region};
use common::{World, connected, until};
use rustix::fs::ftruncate;
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd};
use warmlane_mem::{Burst, LaneThread};
use warmlane_sys::random::Random;
use warmlane_testkit::exchange::{contents, packet_of};
use warmlane_testkit::hostile::{alone, descriptors, lies};
use warmlane_testkit::queues::drops;
use warmlane_virtio::Role;
use warmlane_virtio::features::{
    CHECKSUM, EVENT_INDEX, HOST_TSO4, INDIRECT, MERGEABLE, PACKED, PROTOCOL_FEATURES, VERSION_1,
};
use warmlane_virtio::protocol::{
    Inflight, Log, MemoryRegion, Request, RingAddresses, RingDescriptor, RingState,
};
use warmlane_virtio::vhost::{VhostOptions, open};

const PLAIN: u64 = VERSION_1 | MERGEABLE | PROTOCOL_FEATURES | INDIRECT | CHECKSUM | HOST_TSO4;

fn world() -> World {
    World::new(|path, pool| open("ours", &VhostOptions::new(path, Role::Server), 1, pool).unwrap())
}

impl World {
    fn front_end(&self, features: u64) -> FrontEnd {
        let front_end = FrontEnd::connect(&self.path, features);
        front_end.run(&self.port);
        front_end
    }

    /// What came until this many buffers were used.
    fn receive(&mut self, front_end: &FrontEnd, used: u16) -> Vec<Vec<u8>> {
        self.receive_until(|_| front_end.used(TRANSMIT) == used)
    }

    fn reason(&mut self) -> String {
        self.reason_while(|_| {})
    }
}

#[test]
fn lies_on_the_socket_cost_the_connection() {
    let _alone = alone();
    let _lane = LaneThread::enter();
    let world = world();
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
        (vec![(Request::AddMemoryRegion(region()), 1)], "same addresses"),
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
    world.end();
}

#[test]
fn what_a_driver_sends_comes_whatever_it_is_made_of() {
    let _alone = alone();
    let _lane = LaneThread::enter();
    let mut world = world();
    let front_end = world.front_end(PLAIN);
    let frame = contents(1, 4000);
    let place = FrontEnd::buffer(TRANSMIT, 0);
    front_end.write(place, &[&[0; 12][..], &frame].concat());
    let part = |number: u64| RING + number * 16;
    // The header alone, then parts of other sizes.
    let cuts = [0, 12, 13, 700, 2000, 4012];
    for (number, cut) in cuts.windows(2).enumerate() {
        let flags = u16::from(number < 4);
        let (start, length) = (GUEST + place + cut[0], (cut[1] - cut[0]) as u32);
        front_end.descriptor(part(number as u64), start, length, flags, number as u16 + 1);
    }
    front_end.make_available(TRANSMIT, 0);
    assert_eq!(world.receive(&front_end, 1), std::slice::from_ref(&frame));
    // The same by a table, in another order.
    let table = FrontEnd::buffer(TRANSMIT, 40);
    let order = [3, 1, 4, 0, 2];
    for (number, cut) in cuts.windows(2).enumerate() {
        let next = order.get(number + 1).copied().unwrap_or(0);
        let (start, length) = (GUEST + place + cut[0], (cut[1] - cut[0]) as u32);
        front_end.descriptor(table + order[number] * 16, start, length, u16::from(number < 4), next as u16);
    }
    // Tables begin with their first descriptor: that leads to the fourth.
    front_end.descriptor(table, GUEST + place, 12, 1, 1);
    front_end.descriptor(table + 16, GUEST + place + 12, 1, 1, 4);
    front_end.descriptor(table + 4 * 16, GUEST + place + 13, 687, 1, 3);
    front_end.descriptor(table + 3 * 16, GUEST + place + 700, 1300, 1, 2);
    front_end.descriptor(table + 2 * 16, GUEST + place + 2000, 2012, 0, 0);
    front_end.descriptor(part(7), GUEST + table, 5 * 16, 4, 0);
    front_end.make_available(TRANSMIT, 7);
    assert_eq!(world.receive(&front_end, 2), [frame]);
    assert_eq!(front_end.used_entry(TRANSMIT, 1), (7, 0));
    drop(front_end);
    world.end();
}

#[test]
fn buffers_that_cannot_be_are_dropped_and_given_back() {
    let _alone = alone();
    let _lane = LaneThread::enter();
    let mut world = world();
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
        assert!(world.receive(&front_end, number + 1).is_empty(), "{address:#x} {length} {flags}");
    }
    let counters = world.port.port.receive[0].counters();
    assert_eq!(drops(&counters), [("bad-descriptor", cases.len() as u64 - 3), ("runt", 3)]);
    // And a right one comes.
    let count = cases.len() as u16;
    front_end.send(count, [0; 12], &contents(1, 60));
    assert_eq!(world.receive(&front_end, count + 1), [contents(1, 60)]);
    drop(front_end);
    world.end();
}

#[test]
fn headers_that_lie_are_refused() {
    let _alone = alone();
    let _lane = LaneThread::enter();
    let mut world = world();
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
        assert_eq!(world.receive(&front_end, used), [contents(1, 60), contents(3, 60)]);
        let after = drops(&world.port.port.receive[0].counters());
        assert_eq!(count(&after), count(&before) + 1, "{header:?}");
    }
    drop(front_end);
    world.end();
}

#[test]
fn rings_that_cannot_be_end_the_connection() {
    let _alone = alone();
    let _lane = LaneThread::enter();
    let mut world = world();
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
        assert!(world.reason().contains(expected), "{} {expected}", world.reason());
        assert_eq!(front_end.hear(), None);
    }
    world.end();
}

#[test]
fn memory_that_is_cut_short_costs_the_connection() {
    let _alone = alone();
    let _lane = LaneThread::enter();
    let mut world = world();
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
        assert!(world.reason().contains("cut its memory short"), "{}", world.reason());
    }
    let front_end = world.front_end(PLAIN);
    front_end.send(0, [0; 12], &contents(1, 60));
    assert_eq!(world.receive(&front_end, 1), [contents(1, 60)]);
    drop(front_end);
    world.end();
}

/// Regions come and go while packets do, and rings go on where they were.
#[test]
fn memory_comes_and_goes() {
    let _alone = alone();
    let _lane = LaneThread::enter();
    let mut world = world();
    let front_end = world.front_end(PLAIN);
    front_end.send(0, [0; 12], &contents(1, 60));
    assert_eq!(world.receive(&front_end, 1), [contents(1, 60)]);
    // The same file again, elsewhere for the driver.
    let more = MemoryRegion { guest: 1 << 32, user: 1 << 44, ..region() };
    let place = FrontEnd::buffer(TRANSMIT, 1);
    let mut used = 1;
    for is_there in [false, true, false, true] {
        if is_there {
            front_end.say(&Request::AddMemoryRegion(more), &[front_end.file.as_fd()]);
        } else if used > 1 {
            front_end.say(&Request::RemoveMemoryRegion(more), &[]);
        }
        assert_eq!(front_end.ask(&Request::GetQueueCount), 1);
        front_end.write(place, &[&[0; 12][..], &contents(2, 60)].concat());
        front_end.descriptor(RING + 16, (1 << 32) + place, 72, 0, 0);
        front_end.make_available(TRANSMIT, 1);
        used += 1;
        let expected = if is_there { vec![contents(2, 60)] } else { vec![] };
        assert_eq!(world.receive(&front_end, used), expected);
    }
    // Stopped, a ring says where it is, and goes on from there.
    front_end.say(&Request::GetRingBase(RingState { index: TRANSMIT, value: 0 }), &[]);
    let base = front_end.hear().unwrap();
    assert_eq!(base[4..], u32::from(used).to_ne_bytes());
    front_end.send(5, [0; 12], &contents(3, 60));
    assert_eq!(world.port.port.receive[0].receive(&mut Burst::new()), 0, "it is stopped");
    front_end.start(TRANSMIT, used.into());
    assert_eq!(world.receive(&front_end, used + 1), [contents(3, 60)]);
    // Without its memory a ring can't be.
    front_end.say(&Request::SetMemoryTable(vec![more]), &[front_end.file.as_fd()]);
    assert_eq!(front_end.hear(), None);
    assert!(world.reason().contains("outside the memory"), "{}", world.reason());
    world.end();
}

fn is_signalled(event: &impl std::os::fd::AsFd) -> bool {
    rustix::io::read(event, &mut [0; 8]) == Ok(8)
}

/// A packet that needs more buffers than there are waits for them, and goes when they come, though nothing else is to be sent.
#[test]
fn a_packet_waits_for_as_many_buffers_as_it_needs() {
    let _alone = alone();
    let _lane = LaneThread::enter();
    let mut world = world();
    let front_end = world.front_end(PLAIN);
    let mut burst = Burst::new();
    burst.push(packet_of(&world.pool, &contents(1, 5000))).unwrap();
    for number in 0..3 {
        assert_eq!(world.port.port.transmit[0].transmit(&mut burst), 0, "{number} buffers");
        let place = GUEST + FrontEnd::buffer(RECEIVE, number);
        front_end.descriptor(u64::from(number) * 16, place, BUFFER as u32, 2, 0);
        front_end.make_available(RECEIVE, number);
    }
    assert_eq!(world.port.port.transmit[0].transmit(&mut burst), 1);
    let lengths: Vec<_> = (0..3).map(|index| front_end.used_entry(RECEIVE, index)).collect();
    assert_eq!(lengths, [(0, 2048), (1, 2048), (2, 916)]);
    drop(front_end);
    world.end();
}

/// Each side tells the other only if that wants to know.
#[test]
fn who_waits_is_told_and_who_polls_is_not() {
    let _alone = alone();
    let _lane = LaneThread::enter();
    for features in [PLAIN, PLAIN | EVENT_INDEX] {
        let mut world = world();
        let front_end = world.front_end(features);
        let (available, used) = (RING + 0x2000, RING + 0x4000);
        let has_index = features & EVENT_INDEX != 0;
        is_signalled(&front_end.call);
        let want = |at: u16, wanted: bool| {
            // Of the driver: behind which used entry, or at all.
            let event = if wanted { at } else { at.wrapping_sub(1) };
            front_end.write(available + 4 + 2 * u64::from(SIZE), &event.to_ne_bytes());
            front_end.write(available, &u16::from(!wanted).to_ne_bytes());
        };
        for number in 0..6 {
            let wanted = number % 2 == 1;
            want(number, wanted);
            front_end.send(number, [0; 12], &contents(1, 60));
            world.receive(&front_end, number + 1);
            assert_eq!(is_signalled(&front_end.call), wanted, "{number}");
        }
        // What the device wants: nothing while it polls.
        let wants = |next: u16| {
            if has_index {
                front_end.read16(used + 4 + 8 * u64::from(SIZE)) == next
            } else {
                front_end.read16(used) == 0
            }
        };
        assert!(!wants(6));
        let queue = &mut world.port.port.receive[0];
        assert!(queue.event().is_some() && wants(6));
        let ready = |fd: BorrowedFd<'_>| {
            let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            let mut fds = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut fds, Some(&now)).unwrap() == 1
        };
        let _ = queue.receive(&mut Burst::new());
        assert!(!ready(queue.event().unwrap()), "nothing has come");
        rustix::io::write(&front_end.kick, &1_u64.to_ne_bytes()).unwrap();
        assert!(ready(queue.event().unwrap()));
        front_end.send(6, [0; 12], &contents(1, 60));
        assert!(queue.event().is_none(), "there is a packet already");
        assert_eq!(queue.receive(&mut Burst::new()), 1);
        assert!(!wants(7), "it polls again");
        drop(front_end);
        world.end();
    }
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

fn liar_in_the_rings(features: u64, seed: u64) {
    let _alone = alone();
    let _lane = LaneThread::enter();
    let (mut world, mut random) = (world(), Random::new(seed));
    let mut honest = self::world();
    let undisturbed = honest.front_end(PLAIN);
    let (mut told, mut connections, mut came) = (0, 0, 0_u64);
    while told < lies() {
        let front_end = world.front_end(features);
        connections += 1;
        while told < lies() && connected(&world.port) {
            for _ in 0..4 {
                lie(&front_end, &mut random, features & PACKED != 0);
                told += 1;
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
        drop(front_end);
        until("the connection is over", || !connected(&world.port));
    }
    assert!(connections > 1 && came > 0, "{connections} connections, {came} packets");
    undisturbed.send(0, [0; 12], &contents(1, 60));
    assert_eq!(honest.receive(&undisturbed, 1), [contents(1, 60)]);
    drop(undisturbed);
    honest.end();
    world.end();
}

#[test]
fn a_driver_that_lies_in_split_rings() {
    liar_in_the_rings(PLAIN, 3);
    liar_in_the_rings(PLAIN | EVENT_INDEX, 4);
}

#[test]
fn a_driver_that_lies_in_packed_rings() {
    liar_in_the_rings(PLAIN | PACKED, 5);
    liar_in_the_rings((PLAIN | PACKED | EVENT_INDEX) & !MERGEABLE, 6);
}

/// Who connects to a front end's socket comes back after it was away.
#[test]
fn a_client_comes_back() {
    let _alone = alone();
    let _lane = LaneThread::enter();
    let mut world =
        World::new(|path, pool| open("ours", &VhostOptions::new(path, Role::Client), 1, pool).unwrap());
    for _ in 0..2 {
        let listener = std::os::unix::net::UnixListener::bind(&world.path).unwrap();
        let (socket, _) = listener.accept().unwrap();
        let front_end = FrontEnd::over(socket.into(), PLAIN);
        front_end.run(&world.port);
        front_end.send(0, [0; 12], &contents(1, 60));
        assert_eq!(world.receive(&front_end, 1), [contents(1, 60)]);
        drop((front_end, listener));
        std::fs::remove_file(&world.path).unwrap();
        until("the connection is over", || !connected(&world.port));
    }
    world.end();
}
