//! What an instance hears on its control socket: anything, in any pieces.

#![no_main]

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use libfuzzer_sys::fuzz_target;
use warmlane_control::{Connection, LONGEST_REQUEST, Request};

// The first byte says in how large pieces the others are sent. Each line is answered once, unless one was too long.
fuzz_target!(|data: &[u8]| {
    let Some((&size, text)) = data.split_first() else { return };
    let (mut client, server) = UnixStream::pair().expect("two more descriptors");
    let mut connection = Connection::new(server).expect("a socket that never waits");
    let mut lines = Vec::new();
    let mut answer = |line: &[u8]| {
        lines.push(line.to_vec());
        // As an instance that knows no other requests.
        match Request::parse(line) {
            Some(Err(sentence)) => assert!(!sentence.is_empty()),
            Some(Ok(request)) => {
                let again = serde_json::to_vec(&request).expect("it has no map with other keys");
                assert_eq!(Request::parse(&again), Some(Ok(request)));
            }
            None => {}
        }
        true
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
    match expected.iter().position(|line| line.len() > LONGEST_REQUEST) {
        Some(place) => assert_eq!((lines.len(), count), (place, place + 1)),
        None => assert_eq!(
            (lines.len(), count),
            (expected.len(), expected.len() + usize::from(rest.len() > LONGEST_REQUEST))
        ),
    }
    assert!(lines.iter().zip(expected).all(|(asked, sent)| asked == sent));
});
