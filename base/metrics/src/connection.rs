//! One request, one answer.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::net::Shutdown;

use crate::access::Access;
use crate::request::{Document, LONGEST_REQUEST, respond};

/// How long a request may take to come.
const ASKING: Duration = Duration::from_secs(10);

/// How long an answer may take to be read.
const ANSWERING: Duration = Duration::from_secs(30);

/// How long the other end has to close its side. If we closed first with something unread, it might lose the answer (RFC 9112, 9.6).
const PARTING: Duration = Duration::from_secs(2);

/// How much of what comes behind the request is read and thrown away at a time.
const DISCARDED: usize = 16;

/// What is next.
enum Step {
    /// The rest of the request.
    Read,
    /// The rest of the answer, from this byte.
    Write(Vec<u8>, usize),
    /// The other end's goodbye.
    Part,
}

/// A connection whose socket never waits.
pub(crate) struct Connection<S> {
    stream: S,
    input: Vec<u8>,
    step: Step,
    /// Until when the step is done, or nothing more is.
    deadline: Instant,
}

impl<S: Read + Write + AsFd> Connection<S> {
    /// Takes over a socket that never waits.
    pub(crate) fn new(stream: S, now: Instant) -> Self {
        Self { stream, input: Vec::new(), step: Step::Read, deadline: now + ASKING }
    }

    /// What to wait for.
    pub(crate) fn wait(&self) -> PollFd<'_> {
        let flags = if matches!(self.step, Step::Write(..)) { PollFlags::OUT } else { PollFlags::IN };
        PollFd::from_borrowed_fd(self.stream.as_fd(), flags)
    }

    /// Does what can be done without waiting; `false` when the connection is over.
    pub(crate) fn serve(
        &mut self,
        now: Instant,
        access: &Access,
        make: &mut dyn FnMut(Document) -> String,
    ) -> bool {
        if now > self.deadline {
            return false;
        }
        match self.advance(now, access, make) {
            Ok(is_over) => !is_over,
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        }
    }

    fn advance(
        &mut self,
        now: Instant,
        access: &Access,
        make: &mut dyn FnMut(Document) -> String,
    ) -> io::Result<bool> {
        loop {
            match &mut self.step {
                Step::Read => {
                    let mut bytes = [0; 1024];
                    let space = LONGEST_REQUEST.saturating_sub(self.input.len()).min(bytes.len());
                    let count = read(&mut self.stream, bytes.get_mut(..space).unwrap_or_default())?;
                    if count == 0 {
                        return Ok(true);
                    }
                    self.input.extend(bytes.get(..count).unwrap_or_default());
                    if let Some(answer) = respond(&self.input, access, &mut *make) {
                        self.input = Vec::new();
                        self.step = Step::Write(answer, 0);
                        self.deadline = now + ANSWERING;
                    }
                }
                Step::Write(answer, written) => match answer.get(*written..).unwrap_or_default() {
                    [] => {
                        rustix::net::shutdown(self.stream.as_fd(), Shutdown::Write)?;
                        self.step = Step::Part;
                        self.deadline = now + PARTING;
                    }
                    rest => match self.stream.write(rest) {
                        Ok(0) => return Ok(true),
                        Ok(count) => *written += count,
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(error),
                    },
                },
                Step::Part => {
                    for _ in 0..DISCARDED {
                        if read(&mut self.stream, &mut [0; 4096])? == 0 {
                            return Ok(true);
                        }
                    }
                    return Ok(false);
                }
            }
        }
    }
}

fn read(stream: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.read(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn pair() -> (UnixStream, Connection<UnixStream>, Instant) {
        let (client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        let now = Instant::now();
        (client, Connection::new(server, now), now)
    }

    /// Turns until the connection is over, while another thread reads to the end.
    fn answer(client: &mut UnixStream, connection: &mut Connection<UnixStream>, body: &str) -> String {
        let mut reader = client.try_clone().unwrap();
        let read = std::thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            // The end of ours is what the other waits for.
            let _ = reader.shutdown(std::net::Shutdown::Both);
            text
        });
        while connection.serve(Instant::now(), &Access::Local, &mut |_| body.to_owned()) {
            std::thread::yield_now();
        }
        read.join().unwrap()
    }

    #[test]
    fn a_request_in_single_bytes_is_answered_and_what_comes_behind_it_is_not() {
        let (mut client, mut connection, now) = pair();
        for byte in b"GET /metrics HTTP/1.1\r\n\r" {
            client.write_all(&[*byte]).unwrap();
            assert!(connection.serve(now, &Access::Local, &mut |_| unreachable!("it isn't whole")));
        }
        client.write_all(b"\nGET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let body = "x".repeat(3_000_000);
        let text = answer(&mut client, &mut connection, &body);
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with(&body));
        assert_eq!(text.matches("HTTP/1.1").count(), 1);
    }

    #[test]
    fn who_sends_too_much_hears_so() {
        let (mut client, mut connection, _) = pair();
        client.write_all(&[b'G'; 2 * LONGEST_REQUEST]).unwrap();
        let text = answer(&mut client, &mut connection, "never");
        assert!(text.starts_with("HTTP/1.1 431 "), "{text}");
    }

    #[test]
    fn each_step_has_its_time() {
        let (mut client, mut connection, now) = pair();
        let mut metrics = |_| "x".repeat(3_000_000);
        let late = |step| now + step + Duration::from_millis(1);
        client.write_all(b"GET").unwrap();
        assert!(connection.serve(now + ASKING, &Access::Local, &mut metrics));
        client.write_all(b" /metrics HTTP/1.1\r\n\r\n").unwrap();
        assert!(!connection.serve(late(ASKING), &Access::Local, &mut metrics), "it took too long to ask");
        assert!(connection.serve(now, &Access::Local, &mut metrics));
        assert!(connection.serve(now + ANSWERING, &Access::Local, &mut metrics), "there is time to read");
        assert!(!connection.serve(late(ANSWERING), &Access::Local, &mut metrics));
        // What it reads at its own pace is whole.
        client.set_nonblocking(true).unwrap();
        let mut count = 0;
        while !matches!(connection.step, Step::Part) {
            assert!(connection.serve(now, &Access::Local, &mut metrics));
            count += client.read(&mut vec![0; 1 << 20]).unwrap_or(0);
        }
        assert!(connection.serve(now + PARTING, &Access::Local, &mut metrics));
        assert!(!connection.serve(late(PARTING), &Access::Local, &mut metrics), "it says no goodbye");
        while let Ok(more @ 1..) = client.read(&mut vec![0; 1 << 20]) {
            count += more;
        }
        assert!(count > 3_000_000, "{count}");
    }

    #[test]
    fn who_goes_is_forgotten() {
        let (client, mut connection, now) = pair();
        drop(client);
        assert!(!connection.serve(now, &Access::Local, &mut |_| String::new()));
    }
}
