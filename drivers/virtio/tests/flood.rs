//! Floods of a port's control socket: they cost nothing but the connections that they come by.

mod common;

use common::front_end::{FrontEnd, PLAIN, SIZE};
use common::{World, connected, undisturbed, until};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use warmlane_testkit::exchange::contents;
use warmlane_testkit::hostile::descriptors;
use warmlane_virtio::protocol::{Header, Request};

/// Connections of each kind.
const CONNECTIONS: usize = 300;
/// More than any machine takes to close one.
const LONG: Duration = Duration::from_secs(300);
/// As many at once as wait to be accepted, and more.
const AT_ONCE: usize = 50;

fn header(length: u32) -> Vec<u8> {
    Header { request: 5, is_reply: false, needs_reply: false, length }.encode().to_vec()
}

/// What is said in a flood: nothing, half a header, a message whose payload doesn't come, payloads that are too long, no message.
fn said(number: usize) -> Vec<u8> {
    match number % 6 {
        0 => Vec::new(),
        1 => header(8)[..7].to_vec(),
        2 => header(512),
        3 => header(u32::MAX),
        4 => header(513),
        _ => vec![0xff; 4096],
    }
}

fn connect(path: &str, number: usize) -> UnixStream {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    // It may have been closed already.
    let _ = stream.write_all(&said(number));
    stream
}

/// Waits until the other side has closed.
fn is_closed(mut stream: UnixStream) {
    let end = stream.read(&mut [0; 64]);
    assert!(
        matches!(&end, Ok(0)) || matches!(&end, Err(error) if error.kind() == ErrorKind::ConnectionReset),
        "{end:?}"
    );
}

/// A packet goes by a ring of the front end, the one of that number.
fn send(world: &mut World, front_end: &FrontEnd, number: u16) {
    front_end.send(number % SIZE, [0; 12], &contents(number.into(), 60));
    assert_eq!(world.receive_from(front_end, number + 1), [contents(number.into(), 60)]);
}

#[test]
fn a_flood_costs_the_connections_that_it_comes_by() {
    let mut world = World::vhost();
    let beside = undisturbed();
    let before = descriptors();
    // While a front end is there, all others are closed at once, however many there are.
    let front_end = world.front_end(PLAIN);
    for round in 0..CONNECTIONS / AT_ONCE {
        let path = &world.path;
        let all: Vec<_> = (0..AT_ONCE).map(|number| connect(path, number)).collect();
        send(&mut world, &front_end, round as u16);
        all.into_iter().for_each(is_closed);
    }
    assert!(connected(&world.port));
    assert_eq!(world.port.monitor.status().unwrap().connections, 1);
    world.disconnect(front_end);

    // While none is, one after the other is heard, and ends with what it says, or with half of it.
    for number in 0..CONNECTIONS {
        let stream = connect(&world.path, number);
        let _ = stream.shutdown(Shutdown::Write);
        is_closed(stream);
    }
    let reason = || world.port.monitor.status().unwrap().reason;
    for (number, expected) in [(3, "at most 512"), (4, "at most 512"), (5, "version 1"), (1, "closed")] {
        let stream = connect(&world.path, number);
        let _ = stream.shutdown(Shutdown::Write);
        is_closed(stream);
        until("it is known why", || reason().contains(expected));
    }
    // One that says nothing has the port, until it goes.
    let mut all: Vec<_> = (0..AT_ONCE).map(|number| connect(&world.path, 6 * number)).collect();
    let silent = all.remove(0);
    all.into_iter().for_each(is_closed);
    // Its last words, so that it is known when it has gone.
    (&silent).write_all(&said(5)).unwrap();
    until("it is known why", || reason().contains("version 1"));
    drop(silent);

    // One that asks and asks, and hears no answer, is given up when its socket is full.
    let mut deaf = UnixStream::connect(&world.path).unwrap();
    let question =
        Header { request: Request::GetFeatures.number(), is_reply: false, needs_reply: false, length: 0 };
    let questions = question.encode().repeat(100);
    let given_up = (0..10_000).find_map(|_| deaf.write_all(&questions).err());
    assert!(given_up.is_some(), "a million answers were kept");
    drop(deaf);
    until("it is known why", || reason().contains("can't write"));

    // And who behaves comes in.
    let front_end = world.front_end(PLAIN);
    send(&mut world, &front_end, 0);
    drop(front_end);
    until("all descriptors are closed", || descriptors() == before);
    beside.end();
}
