//! What a router hears: anything on its control socket, in any pieces, and any message of the kernel's.

#![no_main]

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use libfuzzer_sys::fuzz_target;
use serde_json::json;
use warmlane_router::control::kernel::{View, decode};
use warmlane_router::control::{Connection, Request};

fuzz_target!(|data: &[u8]| {
    if let Err(sentence) = Request::parse(data) {
        assert!(!sentence.is_empty());
    }
    converse(data);
    // Messages one after the other: kind, flags and length in front of each.
    let mut view = View::default();
    let mut rest = data;
    while let Some(([kind, flags, length], body)) = rest.split_first_chunk() {
        let (body, after) = body.split_at(body.len().min(usize::from(*length)));
        // Kinds from 16 to 111, the flags that routes look at.
        if let Some(event) = decode(16 + u16::from(*kind % 96), u16::from(*flags) << 4, body) {
            view.apply(event);
        }
        rest = after;
    }
    let mut other = View::default();
    other.become_like(view);
});

/// The first byte says in how large pieces the others are sent. Each line is answered once, unless one was too long.
fn converse(data: &[u8]) {
    let Some((&size, text)) = data.split_first() else { return };
    let (mut client, server) = UnixStream::pair().expect("two more descriptors");
    let mut connection = Connection::new(server).expect("a socket that never waits");
    let mut lines = Vec::new();
    let mut answer = |line: &[u8]| {
        lines.push(line.to_vec());
        json!(Request::parse(line).is_ok())
    };
    let mut answers: Vec<u8> = Vec::new();
    let mut read = |client: &mut UnixStream| {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = client.read(&mut buffer) {
            answers.extend(&buffer[..count]);
        }
    };
    client.set_nonblocking(true).expect("our own end");
    let mut alive = true;
    for piece in text.chunks(usize::from(size) * 8 + 1) {
        if alive {
            client.write_all(piece).expect("there is space: the other end has read what came before");
            alive = connection.serve(&mut answer);
            read(&mut client);
        }
    }
    client.shutdown(Shutdown::Write).expect("our own end");
    while alive {
        alive = connection.serve(&mut answer);
        read(&mut client);
    }
    drop(connection);
    // Where it ends with what was too long, the rest is thrown away.
    read(&mut client);
    let count = answers.iter().filter(|byte| **byte == b'\n').count();
    let mut expected = text.split(|byte| *byte == b'\n').collect::<Vec<_>>();
    let rest = expected.pop().unwrap_or_default();
    match expected.iter().position(|line| line.len() > 4096) {
        Some(place) => assert_eq!((lines.len(), count), (place, place + 1)),
        None => assert_eq!(
            (lines.len(), count),
            (expected.len(), expected.len() + usize::from(rest.len() > 4096))
        ),
    }
    assert!(lines.iter().zip(expected).all(|(asked, sent)| asked == sent));
}
