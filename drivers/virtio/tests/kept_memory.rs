//! A virtio port lends the next back end the memory that it lent the former one: what that one had not used is made available again, and what
//! it had sent is received.

mod common;

use common::back_end::{BackEnd, FROM_DRIVER, TO_DRIVER};
use common::{World, connected, pool, until};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use warmlane_mem::{Burst, LaneThread, Pool};
use warmlane_testkit::exchange::{bytes_of, contents, packet_of};
use warmlane_testkit::process::Process;
use warmlane_virtio::features::{IN_ORDER, MERGEABLE, VERSION_1};
use warmlane_virtio::vhost::{self, VhostOptions};
use warmlane_virtio::virtio_user::{VirtioUserOptions, open};
use warmlane_virtio::{Role, VirtioPort};

const HEADER: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];

fn driver(path: &str, packed: bool, in_order: bool, pool: &Pool) -> VirtioPort {
    let defaults = VirtioUserOptions::new(path, Role::Server);
    open("ours", &VirtioUserOptions { packed, in_order, ring_size: 64, ..defaults }, 1, pool).unwrap()
}

fn send(world: &mut World, frames: &[Vec<u8>]) {
    let mut burst = Burst::new();
    for frame in frames {
        burst.push(packet_of(&world.pool, frame)).unwrap();
    }
    until("they are sent", || {
        world.port.port.transmit[0].transmit(&mut burst);
        burst.is_empty()
    });
}

/// Names and frames that a split ring from the driver has, from index `first` on.
fn waiting(back_end: &BackEnd, first: u16) -> Vec<(u32, Vec<u8>)> {
    let addresses = back_end.addresses(FROM_DRIVER);
    let names = (first..back_end.available(FROM_DRIVER)).map(|index| {
        u16::from_ne_bytes(back_end.read_at(addresses.available + 4 + 2 * u64::from(index % back_end.size())))
    });
    let frame = |name: u16| {
        let (mut number, mut bytes) = (name, Vec::new());
        loop {
            let descriptor: [u8; 16] = back_end.read_at(addresses.descriptors + 16 * u64::from(number));
            let word = |at: usize| u16::from_ne_bytes([descriptor[at], descriptor[at + 1]]);
            let address = u64::from_ne_bytes(*descriptor.first_chunk().unwrap());
            bytes.extend((0..word(8)).map(|at| back_end.read_at::<1>(address + u64::from(at))[0]));
            if word(12) & 1 == 0 {
                return (name.into(), bytes.split_off(12));
            }
            number = word(14);
        }
    };
    names.map(frame).collect()
}

/// One back end after the other takes some packets, in order or not, and is gone: each packet waits for the next one until it is used.
#[test]
fn packets_wait_for_the_next_back_end() {
    for in_order in [true, false] {
        let mut world = World::new(|path, pool| driver(path, false, in_order, pool));
        let features = VERSION_1 | MERGEABLE | if in_order { IN_ORDER } else { 0 };
        let first = world.back_end(features);
        let file = first.file();
        let frames: Vec<_> = [60, 9_000, 61, 62, 4_000].map(|length| contents(7, length)).into();
        send(&mut world, &frames);
        let seen = waiting(&first, 0);
        assert!(seen.iter().map(|(_, frame)| frame).eq(&frames));
        let used = if in_order { [0, 1] } else { [2, 0] };
        let mut left: Vec<_> = frames.clone();
        for number in used {
            first.use_buffer(FROM_DRIVER, seen[number].0, 0);
            left.retain(|frame| *frame != frames[number]);
        }
        // It has sent two whole packets, and half of a third one.
        for number in 0..2 {
            first.send(number, HEADER, &contents(number.into(), 100));
        }
        let mut half = HEADER;
        half[10] = 2;
        first.send(2, half, &[1; 2036]);
        world.disconnect(first);

        let second = world.back_end(features);
        assert_eq!(second.file(), file, "the same memory");
        assert_eq!(second.available(TO_DRIVER), 62, "all that the driver has not to read");
        assert!(waiting(&second, 0).iter().map(|(_, frame)| frame).eq(&left));
        assert_eq!(world.receive_until(|received| received >= 2), [0, 1].map(|number| contents(number, 100)));
        // Once more, with nothing used.
        send(&mut world, &[contents(8, 70)]);
        left.push(contents(8, 70));
        world.disconnect(second);
        let third = world.back_end(features);
        let seen = waiting(&third, 0);
        assert!(seen.iter().map(|(_, frame)| frame).eq(&left));
        for (name, _) in &seen {
            third.use_buffer(FROM_DRIVER, *name, 0);
        }
        // As many as the ring has: none is missing.
        let all: Vec<_> = (0..64).map(|number| contents(number, 60)).collect();
        send(&mut world, &all);
        assert!(waiting(&third, left.len() as u16).iter().map(|(_, frame)| frame).eq(&all));
    }
}

/// After a ring that made no sense, and with other features, all is new.
#[test]
fn nonsense_is_not_kept() {
    let mut world = World::new(|path, pool| driver(path, false, false, pool));
    let features = VERSION_1 | MERGEABLE;
    let first = world.back_end(features);
    let file = first.file();
    send(&mut world, &[contents(1, 60)]);
    // Found by nobody before the next connection.
    first.set_used_index(FROM_DRIVER, 17);
    first.use_buffer(TO_DRIVER, 5, 12);
    first.write(first.buffer(TO_DRIVER, 5), &[0xff; 12]);
    world.disconnect(first);
    let second = world.back_end(features);
    assert_eq!((second.available(FROM_DRIVER), second.available(TO_DRIVER)), (0, 64));
    assert_eq!(second.file(), file);
    world.disconnect(second);
    let third = world.back_end(VERSION_1);
    assert_ne!(third.file(), file);
}

/// Where the socket is of the side that is to be killed.
const SOCKET: &str = "WARMLANE_TEST_KEPT_MEMORY";
const DRIVER: &str = "WARMLANE_TEST_KEPT_MEMORY_DRIVER";

/// The side of the next test that is killed, in a process of its own: it sends back what it receives, as a device, or sends, as a driver.
#[test]
fn a_side_that_is_killed() {
    let Some(path) = std::env::var_os(SOCKET) else { return };
    let _lane = LaneThread::enter();
    let (path, pool) = (path.to_str().unwrap(), pool());
    let packed = std::env::var(DRIVER).map(|packed| packed == "packed");
    let mut port = match packed {
        Ok(packed) => {
            let defaults = VirtioUserOptions::new(path, Role::Client);
            open("ours", &VirtioUserOptions { packed, ..defaults }, 1, &pool).unwrap()
        }
        Err(_) => vhost::open("ours", &VhostOptions::new(path, Role::Client), 1, &pool).unwrap(),
    };
    let mut burst = Burst::new();
    while rustix::process::getppid().is_some_and(|parent| parent.as_raw_nonzero().get() != 1) {
        if packed.is_ok() {
            while burst.len() < 32 {
                burst.push(packet_of(&pool, &contents(1, 60))).unwrap();
            }
        } else {
            port.port.receive[0].receive(&mut burst);
        }
        if connected(&port) {
            port.port.transmit[0].transmit(&mut burst);
        }
    }
}

fn start(path: &Path, driver: Option<&str>) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_side_that_is_killed"]).env(SOCKET, path);
    driver.inspect(|format| {
        command.env(DRIVER, format);
    });
    Process::spawn(&mut command)
}

fn kill(process: Process) {
    process.signal("KILL");
    drop(process.finish(Duration::from_secs(60)));
}

/// A device that is killed at any moment: the driver goes on with the next one, packets keep their bytes and their order, and none comes twice,
/// as this device gives back what it has taken before it sends it on.
#[test]
fn a_device_that_is_killed_is_followed_by_the_next() {
    for (packed, in_order) in [(false, true), (false, false), (true, true), (true, false)] {
        let mut world = World::new(|path, pool| driver(path, packed, in_order, pool));
        let (mut sent, mut next) = (0_usize, 0);
        let (mut out, mut back) = (Burst::new(), Burst::new());
        for round in 1..=5 {
            let process = start(Path::new(&world.path), None);
            until("the port knows", || connected(&world.port));
            let goal = next + 500 + 37 * round;
            until("it sends back", || {
                while connected(&world.port) && out.len() < 32 {
                    let frame = [&sent.to_ne_bytes()[..], &contents(sent % 200, 60)].concat();
                    out.push(packet_of(&world.pool, &frame)).unwrap();
                    sent += 1;
                }
                world.port.port.transmit[0].transmit(&mut out);
                world.port.port.receive[0].receive(&mut back);
                for packet in back.drain() {
                    let bytes = bytes_of(&packet);
                    let number = usize::from_ne_bytes(*bytes.first_chunk().unwrap());
                    assert!((next..sent).contains(&number), "{number} after {next}");
                    assert!(bytes[8..] == contents(number % 200, 60), "{number}");
                    next = number + 1;
                }
                next >= goal
            });
            kill(process);
            until("the connection is over", || !connected(&world.port));
        }
        out.clear();
    }
}

/// A driver that is killed takes its memory with it; the device is there for the next one.
#[test]
fn a_driver_that_is_killed_is_followed_by_the_next() {
    let mut world = World::new(|path, pool| {
        vhost::open("ours", &VhostOptions::new(path, Role::Server), 1, pool).unwrap()
    });
    for round in 0..6 {
        let format = if round % 2 == 0 { "split" } else { "packed" };
        let process = start(Path::new(&world.path), Some(format));
        until("the port knows", || connected(&world.port));
        let frames = world.receive_until(|received| received >= 300 + 50 * round);
        assert!(frames.iter().all(|frame| *frame == contents(1, 60)));
        kill(process);
        until("the connection is over", || !connected(&world.port));
    }
}
