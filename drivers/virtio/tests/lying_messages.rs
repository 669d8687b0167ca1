//! Messages of vhost-user of which a field was changed at random, one in each connection, somewhere among right ones, while packets of others go
//! by. It costs the connection, or nothing.

mod common;

use common::back_end::BackEnd;
use common::front_end::{BUFFER, FrontEnd, GUEST, PLAIN, RECEIVE, RING, SIZE, TRANSMIT, addresses, region};
use common::{World, connected, undisturbed, until};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd};
use warmlane_mem::Burst;
use warmlane_sys::random::Random;
use warmlane_testkit::exchange::contents;
use warmlane_testkit::hostile::{Lies, descriptors, end, mutate};
use warmlane_virtio::Role;
use warmlane_virtio::features::{EVENT_INDEX, LOG_ALL, MULTIQUEUE, PACKED, PROTOCOL_FEATURES, VERSION_1};
use warmlane_virtio::protocol::{
    HEADER_BYTES, Header, Inflight, Log, MemoryRegion, Request, RingDescriptor, RingState,
};
use warmlane_virtio::virtio_user::{VirtioUserOptions, open};

fn file(bytes: u64) -> File {
    let file = memfd_create("lies", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, bytes).unwrap();
    file.into()
}

/// Memory of notes of buffers, and of the log.
const NOTES: u64 = 1 << 16;
const LOG: u64 = 4096;

/// The files of a front end, besides its memory.
struct Files {
    notes: File,
    log: File,
}

type Said<'a> = (Request, Option<BorrowedFd<'a>>);

/// All that a front end can say, in an order in which it can, up to rings that go, and what comes with each.
fn script<'a>(front_end: &'a FrontEnd, files: &'a Files, features: u64, protocol: u64) -> Vec<Said<'a>> {
    let memory = Some(front_end.file.as_fd());
    let (kick, call) = (Some(front_end.kick.as_fd()), Some(front_end.call.as_fd()));
    let inflight = Inflight { length: NOTES, offset: 0, rings: 2, ring_size: SIZE };
    let more = MemoryRegion { guest: 1 << 24, user: 1 << 44, ..region() };
    let state = |index, value| RingState { index, value };
    let mut said = vec![
        (Request::GetFeatures, None),
        (Request::SetOwner, None),
        (Request::GetProtocolFeatures, None),
        (Request::SetProtocolFeatures(protocol), None),
        (Request::GetQueueCount, None),
        (Request::GetMaximumMemorySlots, None),
        (Request::SetFeatures(features), None),
        (Request::SetStatus(7), None),
        (Request::GetStatus, None),
        (Request::SetMtu(1500), None),
        (Request::SetMemoryTable(vec![region()]), memory),
        (Request::AddMemoryRegion(more), memory),
        (Request::GetInflight(inflight), None),
        (Request::SetInflight(inflight), Some(files.notes.as_fd())),
        (Request::SetLogBase(Log { length: LOG, offset: 0 }), Some(files.log.as_fd())),
        (Request::SetLogDescriptor, kick),
    ];
    for index in [TRANSMIT, RECEIVE] {
        let with_file = RingDescriptor { index: index as u8, has_descriptor: true };
        said.extend([
            (Request::SetRingSize(state(index, SIZE.into())), None),
            (Request::SetRingBase(state(index, front_end.first_base())), None),
            (Request::SetRingAddresses(addresses(index)), None),
            (Request::SetRingError(with_file), call),
            (Request::SetRingCall(with_file), call),
            (Request::SetRingKick(with_file), kick),
            (Request::SetRingEnabled(state(index, 1)), None),
        ]);
    }
    said.extend([(Request::RemoveMemoryRegion(more), None), (Request::SetStatus(15), None)]);
    said
}

/// What stops rings again: changed, it is said, too, but not in order.
fn ends() -> [Said<'static>; 4] {
    [
        (Request::GetRingBase(RingState { index: TRANSMIT, value: 0 }), None),
        (Request::ResetOwner, None),
        (Request::ResetDevice, None),
        (Request::SendRarp(0x0300_0000_0002), None),
    ]
}

/// Makes all buffers of both rings available, with empty packets' headers in front of zeros.
fn post(front_end: &FrontEnd, features: u64) {
    for ring in [TRANSMIT, RECEIVE] {
        let write = if ring == RECEIVE { 2 } else { 0 };
        for number in 0..SIZE {
            let place = u64::from(ring) * RING + u64::from(number) * 16;
            let buffer = GUEST + FrontEnd::buffer(ring, number);
            if features & PACKED != 0 {
                front_end.descriptor(place, buffer, BUFFER as u32, number, write | 0x80);
            } else {
                front_end.descriptor(place, buffer, BUFFER as u32, write, 0);
                front_end.make_available(ring, number);
            }
        }
    }
}

fn say_all(front_end: &FrontEnd, said: &[Said<'_>]) {
    for (request, file) in said {
        front_end.say(request, file.as_slice());
    }
}

/// Says one of the messages with a field of its header or its payload changed, or cut, or with other files.
fn lie(front_end: &FrontEnd, said: &[Said<'_>], random: &mut Random) {
    let ends = ends();
    let number = random.below(said.len() + ends.len());
    let (request, file) = said.get(number).unwrap_or_else(|| &ends[number - said.len()]);
    let payload = request.encode();
    let header = Header {
        request: request.number(),
        is_reply: false,
        needs_reply: random.percent(20),
        length: payload.len() as u32,
    };
    let mut bytes = [&header.encode()[..], &payload].concat();
    // Mostly what it says rather than which it is.
    let from = if payload.is_empty() || random.percent(20) { 0 } else { HEADER_BYTES };
    for _ in 0..random.between(1, 2) {
        mutate(random, &mut bytes[from..]);
    }
    if random.percent(3) {
        bytes.truncate(random.below(bytes.len()));
    }
    let mut files: Vec<BorrowedFd<'_>> = file.iter().copied().collect();
    match random.below(16) {
        0 => files.clear(),
        1 => files = vec![front_end.call.as_fd()],
        2 => files = vec![front_end.file.as_fd(); random.between(1, 12)],
        _ => {}
    }
    front_end.send_bytes(&bytes, &files);
}

/// Lets both queues work on what there is.
fn work(world: &mut World, random: &mut Random) {
    let (mut came, mut goes) = (Burst::new(), Burst::new());
    world.port.port.receive[0].receive(&mut came);
    assert!(came.iter().all(|packet| packet.packet_length() <= 65_600));
    world.pool.take_burst(&mut goes, 4);
    for packet in goes.iter_mut() {
        packet.append(random.between(1, 1500)).unwrap().fill(1);
    }
    world.port.port.transmit[0].transmit(&mut goes);
}

/// Says no more, and waits until the other side has closed, whatever it has to say.
fn hang_up(front_end: &FrontEnd) {
    // It may have closed already.
    let _ = shutdown(&front_end.socket, Shutdown::Write);
    let mut answers = [0; 512];
    while recv(&front_end.socket, &mut answers[..], RecvFlags::empty()).is_ok_and(|(count, _)| count > 0) {}
}

/// Whether the last connection that got so far did not end because the other side hung up.
fn is_refused(world: &World) -> bool {
    let reason = world.port.monitor.status().unwrap().reason;
    !reason.is_empty() && !reason.contains("other side closed")
}

fn front_end_that_lies(who: &str, features: u64, seed: u64) {
    let (mut world, mut random) = (World::vhost(), Random::new(seed));
    let beside = undisturbed();
    let before = descriptors();
    let protocol = FrontEnd::connect(&world.path, features).ask(&Request::GetProtocolFeatures);
    let (mut lies, mut refused) = (Lies::in_messages(who, 1), 0);
    while lies.left() > 0 {
        let front_end = FrontEnd::connect(&world.path, features);
        let files = Files { notes: file(NOTES), log: file(LOG) };
        post(&front_end, features);
        let logged = if random.percent(50) { LOG_ALL } else { 0 };
        let mut said = script(&front_end, &files, features | logged, protocol);
        if random.percent(50) {
            // Then the ring itself says where it goes on.
            said.retain(|(request, _)| !matches!(request, Request::SetInflight(_)));
        }
        let (earlier, later) = said.split_at(random.below(said.len() + 1));
        say_all(&front_end, earlier);
        lie(&front_end, &said, &mut random);
        say_all(&front_end, later);
        lies.connected();
        lies.told(1);
        // Packets go, if it comes up.
        if random.percent(5) {
            std::thread::yield_now();
        }
        for _ in 0..random.below(60) {
            work(&mut world, &mut random);
        }
        hang_up(&front_end);
        until("the connection is over", || !connected(&world.port));
        refused += u64::from(is_refused(&world));
    }
    // Some lies were found out, and some rings went in spite of one.
    let connections = world.port.monitor.status().unwrap().connections;
    assert!(refused > 0 && connections > 0, "{refused} refused, {connections} came up");
    let front_end = world.front_end(PLAIN);
    front_end.send(0, [0; 12], &contents(1, 60));
    assert_eq!(world.receive_from(&front_end, 1), [contents(1, 60)]);
    drop(front_end);
    end(lies, beside, before);
}

#[test]
fn a_front_end_that_lies_in_messages() {
    front_end_that_lies("a front end, split rings", PLAIN, 7);
    front_end_that_lies("a front end, packed rings", PLAIN | PACKED | EVENT_INDEX, 8);
}

/// Pairs of rings, and answers until they go: features, protocol features, the number of pairs, one behind each ring.
const PAIRS: usize = 2;
const ANSWERS: usize = 3 + 2 * PAIRS;

fn back_end_that_lies(who: &str, packed: bool, seed: u64) {
    let world = World::new(|path, pool| {
        let options = VirtioUserOptions::new(path, Role::Server);
        open("ours", &VirtioUserOptions { packed, ring_size: 64, ..options }, PAIRS, pool).unwrap()
    });
    let beside = undisturbed();
    let features = VERSION_1 | PACKED | MULTIQUEUE | PROTOCOL_FEATURES;
    let tells_the_truth = || world.disconnect(world.back_end(features));
    // What is lent stays open from the first connection on.
    tells_the_truth();
    let before = descriptors();
    let (mut lies, mut random, mut refused) = (Lies::in_messages(who, 1), Random::new(seed), 0);
    while lies.left() > 0 {
        let mut back_end = BackEnd::connect(&world.path, features);
        lies.connected();
        // Which answer is changed, or that one more comes, which nobody has asked for.
        let place = random.below(ANSWERS + 1);
        let mut answers = 0;
        while let Some(request) = back_end.hear() {
            let number = match request {
                Request::GetFeatures => features,
                Request::GetProtocolFeatures => 1,
                Request::GetQueueCount => PAIRS as u64,
                _ => continue,
            };
            let header = Header { request: request.number(), is_reply: true, needs_reply: false, length: 8 };
            let mut bytes = [&header.encode()[..], &number.to_ne_bytes()].concat();
            if answers == place {
                mutate(&mut random, &mut bytes);
            }
            back_end.say(&bytes);
            answers += 1;
            if place == ANSWERS && answers == ANSWERS {
                mutate(&mut random, &mut bytes);
                back_end.say(&bytes);
                answers += 1;
            }
            if answers > place {
                lies.told(1);
                back_end.is_silent();
                while back_end.hear().is_some() {}
                break;
            }
        }
        world.disconnect(back_end);
        refused += u64::from(is_refused(&world));
    }
    assert!(refused > 0, "no lie was refused");
    tells_the_truth();
    end(lies, beside, before);
}

#[test]
fn a_back_end_that_lies_in_messages() {
    back_end_that_lies("a back end, split rings", false, 9);
    back_end_that_lies("a back end, packed rings", true, 10);
}
