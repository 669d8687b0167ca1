//! Messages of memif of which a field was changed at random, one in each connection, somewhere among right ones, while packets of others go by. It
//! costs the connection, or nothing.

mod common;

use common::liar::{Liar, REGION_BYTES, event, hello, init, listen, region, ring};
use common::{World, connected, notice_the_end, undisturbed, until};
use rustix::fs::SealFlags;
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use warmlane_mem::Burst;
use warmlane_memif::protocol::{Direction, MESSAGE_BYTES, Message};
use warmlane_memif::{MemifOptions, Role};
use warmlane_sys::random::Random;
use warmlane_testkit::hostile::{Lies, descriptors, end, mutate};

/// A message with one or two of its fields changed; seldom with another length.
fn changed(message: &Message, random: &mut Random) -> Vec<u8> {
    let mut bytes = message.encode().to_vec();
    for _ in 0..random.between(1, 2) {
        // Most fields are in front; mostly it is left what message it is.
        let from = if random.percent(15) { 0 } else { 2 };
        let end = if random.percent(80) { 20 } else { MESSAGE_BYTES };
        mutate(random, &mut bytes[from..end]);
    }
    match random.below(32) {
        0 => bytes.truncate(random.below(MESSAGE_BYTES)),
        1 => bytes.resize(MESSAGE_BYTES + random.between(1, 100), 0),
        _ => {}
    }
    bytes
}

/// All that a client says, and what comes with each.
fn script<'a>(file: &'a File, events: &'a [OwnedFd; 2]) -> [(Message, Option<BorrowedFd<'a>>); 6] {
    [
        (Message::Init(init()), None),
        (Message::AddRegion { index: 0, size: REGION_BYTES as u64 }, Some(file.as_fd())),
        (Message::AddRegion { index: 1, size: REGION_BYTES as u64 }, Some(file.as_fd())),
        (Message::AddRing(ring(Direction::ToServer)), Some(events[0].as_fd())),
        (Message::AddRing(ring(Direction::ToClient)), Some(events[1].as_fd())),
        (Message::Connect { interface: "liar".to_owned() }, None),
    ]
}

#[test]
fn a_client_that_lies_in_messages() {
    let (mut world, mut port) = World::with_server();
    let beside = undisturbed(&mut world.connector);
    let before = descriptors();
    let (mut lies, mut random) = (Lies::in_messages("a client", 1), Random::new(13));
    let mut refused = 0;
    while lies.left() > 0 {
        let (liar, file, events) = (Liar::new(&world.socket), region(SealFlags::SHRINK), [event(), event()]);
        // Packets are in the ring to the server, and buffers in the other one.
        for start in [0, 2048] {
            file.write_all_at(&60_u16.to_ne_bytes(), start + 6).unwrap();
        }
        let script = script(&file, &events);
        let place = random.below(script.len() + 1);
        for (number, (message, fd)) in script.iter().enumerate() {
            if number == place {
                lie(&liar, &script, &mut random);
            }
            liar.say(message, fd.as_slice());
        }
        if place == script.len() {
            lie(&liar, &script, &mut random);
        }
        lies.connected();
        lies.told(1);
        // Packets go, if it comes up.
        let (mut came, mut goes) = (Burst::new(), Burst::new());
        if random.percent(5) {
            std::thread::yield_now();
        }
        for _ in 0..random.below(60) {
            port.port.receive[0].receive(&mut came);
            came.clear();
            world.pool.take_burst(&mut goes, 4);
            for packet in goes.iter_mut() {
                packet.append(random.between(1, 1500)).unwrap().fill(1);
            }
            port.port.transmit[0].transmit(&mut goes);
            goes.clear();
        }
        liar.hang_up();
        until("the connection is over", || !connected(&port));
        let reason = port.monitor.status().unwrap().reason;
        refused += u64::from(!reason.is_empty() && !reason.contains("other side closed"));
    }
    let connections = port.monitor.status().unwrap().connections;
    assert!(refused > 0 && connections > 0, "{refused} refused, {connections} came up");
    notice_the_end(&mut port);
    end(lies, beside, before);
    world.lets_in(port);
}

/// Says one of the messages with something changed, or with other files.
fn lie(liar: &Liar, script: &[(Message, Option<BorrowedFd<'_>>)], random: &mut Random) {
    let (message, fd) = &script[random.below(script.len())];
    let files: Vec<BorrowedFd<'_>> = script.iter().filter_map(|(_, fd)| *fd).collect();
    let fds = match random.below(16) {
        0 => Vec::new(),
        1 => vec![random.pick(&files)],
        2 => vec![random.pick(&files); 3],
        _ => fd.iter().copied().collect(),
    };
    liar.send_bytes(&changed(message, random), &fds);
}

/// Messages of a server whose client has a ring in each direction: its greeting, an answer to each but the last, and the last.
const ANSWERS: usize = 6;

#[test]
fn a_server_that_lies_in_messages() {
    let mut world = World::new();
    let listener = listen(&world.socket);
    let beside = undisturbed(&mut world.connector);
    let before = descriptors();
    let port = world.open(&MemifOptions::new(&world.socket, Role::Client));
    // A client that ends a connection waits a quarter of a second before the next.
    let (mut lies, mut random) = (Lies::in_messages("a server", 128), Random::new(17));
    while lies.left() > 0 {
        let liar = Liar(rustix::net::accept(&listener).unwrap());
        lies.connected();
        let place = random.below(ANSWERS + 1);
        for number in 0..=ANSWERS {
            let answer = match number {
                0 => hello(),
                5 => Message::Connected { interface: "liar".to_owned() },
                _ => Message::Ack,
            };
            if number == place {
                liar.send_bytes(&changed(&answer, &mut random), &[]);
                lies.told(1);
                break;
            }
            liar.say(&answer, &[]);
            // When all is said, the client says no more.
            if number < 5 {
                assert!(liar.hear().is_some(), "{number}");
            }
        }
        liar.hang_up();
        until("the connection is over", || !connected(&port));
    }
    drop(port);
    end(lies, beside, before);
}
