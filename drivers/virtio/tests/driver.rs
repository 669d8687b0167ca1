//! What a front end and its driver may do by the specifications, and others that we are tested with don't: packets in odd parts, memory that
//! comes and goes, buffers one by one, events that are wanted now and then, a front end that has the socket.

mod common;

use common::front_end::{BUFFER, FrontEnd, GUEST, PLAIN, RECEIVE, RING, SIZE, TRANSMIT, region};
use common::{World, connected, until};
use std::os::fd::{AsFd as _, BorrowedFd};
use warmlane_mem::Burst;
use warmlane_testkit::exchange::{contents, packet_of};
use warmlane_virtio::Role;
use warmlane_virtio::features::EVENT_INDEX;
use warmlane_virtio::protocol::{MemoryRegion, Request, RingState};
use warmlane_virtio::vhost::{VhostOptions, open};

#[test]
fn what_a_driver_sends_comes_whatever_it_is_made_of() {
    let mut world = World::vhost();
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
    assert_eq!(world.receive_from(&front_end, 1), std::slice::from_ref(&frame));
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
    assert_eq!(world.receive_from(&front_end, 2), [frame]);
    assert_eq!(front_end.used_entry(TRANSMIT, 1), (7, 0));
}

/// Regions come and go while packets do, and rings go on where they were.
#[test]
fn memory_comes_and_goes() {
    let mut world = World::vhost();
    let front_end = world.front_end(PLAIN);
    front_end.send(0, [0; 12], &contents(1, 60));
    assert_eq!(world.receive_from(&front_end, 1), [contents(1, 60)]);
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
        assert_eq!(world.receive_from(&front_end, used), expected);
    }
    // Stopped, a ring says where it is, and goes on from there.
    front_end.say(&Request::GetRingBase(RingState { index: TRANSMIT, value: 0 }), &[]);
    let base = front_end.hear().unwrap();
    assert_eq!(base[4..], u32::from(used).to_ne_bytes());
    front_end.send(5, [0; 12], &contents(3, 60));
    assert_eq!(world.port.port.receive[0].receive(&mut Burst::new()), 0, "it is stopped");
    front_end.start(TRANSMIT, used.into());
    assert_eq!(world.receive_from(&front_end, used + 1), [contents(3, 60)]);
    // Without its memory a ring can't be.
    front_end.say(&Request::SetMemoryTable(vec![more]), &[front_end.file.as_fd()]);
    assert_eq!(front_end.hear(), None);
    assert!(world.reason_while(|_| {}).contains("outside the memory"), "{}", world.reason_while(|_| {}));
}

fn is_signalled(event: &impl std::os::fd::AsFd) -> bool {
    rustix::io::read(event, &mut [0; 8]) == Ok(8)
}

/// A packet that needs more buffers than there are waits for them, and goes when they come, though nothing else is to be sent.
#[test]
fn a_packet_waits_for_as_many_buffers_as_it_needs() {
    let mut world = World::vhost();
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
}

/// Each side tells the other only if that wants to know.
#[test]
fn who_waits_is_told_and_who_polls_is_not() {
    for features in [PLAIN, PLAIN | EVENT_INDEX] {
        let mut world = World::vhost();
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
            world.receive_from(&front_end, number + 1);
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
    }
}

/// Who connects to a front end's socket comes back after it was away.
#[test]
fn a_client_comes_back() {
    let mut world =
        World::new(|path, pool| open("ours", &VhostOptions::new(path, Role::Client), 1, pool).unwrap());
    for _ in 0..2 {
        let listener = std::os::unix::net::UnixListener::bind(&world.path).unwrap();
        let (socket, _) = listener.accept().unwrap();
        let front_end = FrontEnd::over(socket.into(), PLAIN);
        front_end.run(&world.port);
        front_end.send(0, [0; 12], &contents(1, 60));
        assert_eq!(world.receive_from(&front_end, 1), [contents(1, 60)]);
        drop((front_end, listener));
        std::fs::remove_file(&world.path).unwrap();
        until("the connection is over", || !connected(&world.port));
    }
}
