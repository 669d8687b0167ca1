//! One connection of the control socket: a request on a line in, an answer on a line out. Whoever says nothing, or doesn't read, is
//! let go after a while.

use std::convert::Infallible;
use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use serde::Serialize;

use crate::protocol::{Failure, LONGEST_REQUEST};

/// Requests that are answered before others have their turn.
const AT_ONCE: usize = 64;

/// How long a connection may be idle.
pub(crate) const IDLE: Duration = Duration::from_secs(60);

/// How long an answer may wait until some of it is read.
const UNREAD: Duration = Duration::from_secs(10);

/// What is said to a request. `L` is what lists there are.
pub enum Answer<L> {
    /// This line, without a newline.
    Whole(String),
    /// A list that is written piece by piece.
    List(L),
    /// This line, and then the connection is somebody else's, who is called when it has been written.
    TakeOver(String, TakeOver),
}

/// Takes over a connection, whose socket never waits ([`UnixStream::set_nonblocking`]). It is called on the thread that answers, so
/// it must not wait either.
pub type TakeOver = Box<dyn FnOnce(UnixStream) + Send>;

impl<L> Answer<L> {
    /// This value.
    pub fn whole(value: &impl Serialize) -> Self {
        let line = |value: &Failure| serde_json::to_string(value).unwrap_or_default();
        Self::Whole(
            serde_json::to_string(value).unwrap_or_else(|error| line(&Failure { error: error.to_string() })),
        )
    }

    /// A sentence that says why there is no answer.
    pub fn error(sentence: impl Into<String>) -> Self {
        Self::whole(&Failure { error: sentence.into() })
    }
}

impl Answer<Infallible> {
    /// The same for those that have lists, too.
    pub fn without_list<L>(self) -> Answer<L> {
        match self {
            Self::Whole(line) => Answer::Whole(line),
            Self::List(list) => match list {},
            Self::TakeOver(line, take_over) => Answer::TakeOver(line, take_over),
        }
    }
}

/// Who answers.
pub trait Answers {
    /// The lists among the answers.
    type List;

    /// Answers a request, a line without its newline.
    fn answer(&mut self, line: &[u8]) -> Answer<Self::List>;

    /// Appends a piece of a list to a text; `false` if that was the last.
    fn go_on(&mut self, list: &mut Self::List, text: &mut Vec<u8>) -> bool;
}

/// Who has no lists.
impl<S: Serialize, F: FnMut(&[u8]) -> S> Answers for F {
    type List = Infallible;

    fn answer(&mut self, line: &[u8]) -> Answer<Infallible> {
        Answer::whole(&self(line))
    }

    fn go_on(&mut self, list: &mut Infallible, _: &mut Vec<u8>) -> bool {
        match *list {}
    }
}

/// Takes requests as they come, in whatever pieces, and never waits: neither for the rest of a request, nor for whoever
/// does not read the answer.
pub struct Connection<L> {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    /// What is to be said behind `output`.
    list: Option<L>,
    /// Who takes the connection over behind `output`.
    take_over: Option<TakeOver>,
    /// When something was read or written for the last time.
    moved: Instant,
    /// No more requests come.
    is_over: bool,
}

impl<L> Connection<L> {
    /// Takes over a connected socket.
    ///
    /// # Errors
    /// The system can't make it one that never waits.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let (input, output) = (Vec::new(), Vec::new());
        let (list, take_over) = (None, None);
        Ok(Self { stream, input, output, list, take_over, moved: Instant::now(), is_over: false })
    }

    /// What to wait for: until the other end reads if there is something for it, else until it asks.
    pub fn wait(&self) -> PollFd<'_> {
        let has_work = self.is_answering() || self.end_of_line().is_some();
        let flags = if has_work { PollFlags::OUT } else { PollFlags::IN };
        PollFd::from_borrowed_fd(self.stream.as_fd(), flags)
    }

    fn is_answering(&self) -> bool {
        !self.output.is_empty() || self.list.is_some() || self.take_over.is_some()
    }

    /// Whether the other end has been silent, or hasn't read its answer, for too long.
    pub fn is_stale(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.moved) > if self.is_answering() { UNREAD } else { IDLE }
    }

    /// Does what can be done without waiting, of a list one piece; `false` when the connection is over.
    pub fn serve(&mut self, answers: &mut dyn Answers<List = L>) -> bool {
        let mut may_go_on = true;
        for _ in 0..AT_ONCE {
            if !self.write() {
                return false;
            }
            // Whoever doesn't read answers gets no more of them.
            if !self.output.is_empty() {
                return true;
            }
            if let Some(take_over) = self.take_over.take() {
                if let Ok(stream) = self.stream.try_clone() {
                    take_over(stream);
                }
                return false;
            }
            if let Some(list) = &mut self.list {
                if !std::mem::take(&mut may_go_on) {
                    return true;
                }
                if !answers.go_on(list, &mut self.output) {
                    self.output.push(b'\n');
                    self.list = None;
                }
                continue;
            }
            match self.end_of_line() {
                Some(end) if end <= LONGEST_REQUEST => {
                    let line: Vec<u8> = self.input.drain(..=end).collect();
                    match answers.answer(line.get(..end).unwrap_or_default()) {
                        Answer::Whole(line) => self.say(&line),
                        Answer::List(list) => self.list = Some(list),
                        Answer::TakeOver(line, take_over) => {
                            self.say(&line);
                            self.take_over = Some(take_over);
                        }
                    }
                }
                None if self.input.len() <= LONGEST_REQUEST => {
                    if self.is_over {
                        return false;
                    }
                    match self.read() {
                        Ok(()) => {}
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                        Err(_) => return false,
                    }
                }
                _ => {
                    let sentence =
                        format!("a request has at most {LONGEST_REQUEST} bytes, and ends with a newline");
                    if let Answer::Whole(line) = Answer::<L>::error(sentence) {
                        self.say(&line);
                    }
                    self.input.clear();
                    self.is_over = true;
                }
            }
        }
        true
    }

    fn end_of_line(&self) -> Option<usize> {
        self.input.iter().position(|byte| *byte == b'\n')
    }

    fn read(&mut self) -> io::Result<()> {
        let mut bytes = [0; LONGEST_REQUEST];
        match self.stream.read(&mut bytes) {
            Ok(0) => self.is_over = true,
            Ok(count) => {
                self.moved = Instant::now();
                self.input.extend(bytes.get(..count).unwrap_or_default());
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn say(&mut self, line: &str) {
        self.output.extend(line.as_bytes());
        self.output.push(b'\n');
    }

    /// Writes what can be written; `false` when nobody listens any more.
    fn write(&mut self) -> bool {
        let mut written = 0;
        let alive = loop {
            let Some(rest) = self.output.get(written..).filter(|rest| !rest.is_empty()) else { break true };
            match self.stream.write(rest) {
                Ok(0) => break false,
                Ok(count) => {
                    self.moved = Instant::now();
                    written += count;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break false,
            }
        };
        self.output.drain(..written);
        alive
    }
}

impl<L> fmt::Debug for Connection<L> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Connection").field("stream", &self.stream).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use std::net::Shutdown;

    /// Answers anything with its own words, and hands over whoever asks for that.
    struct HandsOver(std::sync::mpsc::Sender<UnixStream>);

    impl Answers for HandsOver {
        type List = Infallible;

        fn answer(&mut self, line: &[u8]) -> Answer<Infallible> {
            let text = String::from_utf8_lossy(line).into_owned();
            if text != "stream" {
                return Answer::Whole(text);
            }
            let sender = self.0.clone();
            Answer::TakeOver("here it comes".to_owned(), Box::new(move |stream| sender.send(stream).unwrap()))
        }

        fn go_on(&mut self, list: &mut Infallible, _: &mut Vec<u8>) -> bool {
            match *list {}
        }
    }

    #[test]
    fn a_connection_is_handed_over_behind_its_last_answer() {
        let (mut client, server) = UnixStream::pair().unwrap();
        let (sender, taken) = std::sync::mpsc::channel();
        let mut connection = Connection::new(server).unwrap();
        client.write_all(b"one\nstream\nnever\n").unwrap();
        assert!(!connection.serve(&mut HandsOver(sender)));
        drop(connection);
        taken.recv().unwrap().write_all(b"the rest").unwrap();
        let mut text = String::new();
        client.set_nonblocking(false).unwrap();
        // Reset, as what came behind was not read.
        let _ = client.read_to_string(&mut text);
        assert_eq!(text, "one\nhere it comes\nthe rest");
    }

    #[test]
    fn who_is_silent_or_does_not_read_is_let_go() {
        let (mut client, server) = UnixStream::pair().unwrap();
        let mut connection = Connection::new(server).unwrap();
        let answer = &mut |_: &[u8]| json!("x".repeat(1_000_000));
        let after = |time: Duration| Instant::now() + time + Duration::from_secs(1);
        assert!(!connection.is_stale(after(UNREAD)) && connection.is_stale(after(IDLE)));
        client.write_all(b"q\n").unwrap();
        assert!(connection.serve(answer));
        assert!(!connection.is_stale(Instant::now()) && connection.is_stale(after(UNREAD)));
        // Who reads may take their time.
        let moved = connection.moved;
        client.read_exact(&mut vec![0; 100_000]).unwrap();
        assert!(connection.serve(answer));
        assert!(connection.moved > moved);
    }

    /// What the other end reads in all, if it sends `text` in pieces of these sizes and, after each, reads as many bytes
    /// as the other number says, and the rest when all has been sent. A request is answered with its length, a thousand
    /// times if it starts with 'L'.
    fn talk(text: &[u8], pieces: &[(usize, usize)]) -> Vec<String> {
        let (mut client, server) = UnixStream::pair().unwrap();
        let mut connection = Connection::new(server).unwrap();
        let mut answer =
            |line: &[u8]| json!(vec![line.len(); if line.first() == Some(&b'L') { 100_000 } else { 1 }]);
        client.set_nonblocking(true).unwrap();
        let (mut sent, mut received) = (0, Vec::new());
        let mut alive = true;
        for &(send, read) in pieces.iter().cycle() {
            let piece = &text[sent..(sent + send).min(text.len())];
            // The connection is over for who said too much, and full for who doesn't read.
            sent += client.write(piece).unwrap_or(if alive { 0 } else { piece.len() });
            alive = alive && connection.serve(&mut answer);
            assert!(connection.input.len() <= 2 * LONGEST_REQUEST);
            let mut bytes = vec![0; read];
            let count = client.read(&mut bytes).unwrap_or(0);
            received.extend(&bytes[..count]);
            if sent == text.len() {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Write);
        while alive {
            alive = connection.serve(&mut answer);
            let mut bytes = vec![0; 65_536];
            let count = client.read(&mut bytes).unwrap_or(0);
            received.extend(&bytes[..count]);
        }
        drop(connection);
        client.set_nonblocking(false).unwrap();
        // Reset, if it had not read all that was said.
        let _ = client.read_to_end(&mut received);
        String::from_utf8(received).unwrap().lines().map(str::to_owned).collect()
    }

    fn expected(lines: &[Vec<u8>]) -> Vec<String> {
        let mut all = Vec::new();
        for line in lines {
            if line.len() > LONGEST_REQUEST {
                let sentence = "a request has at most 4096 bytes, and ends with a newline";
                all.push(json!({ "error": sentence }).to_string());
                break;
            }
            let times = if line.first() == Some(&b'L') { 100_000 } else { 1 };
            all.push(json!(vec![line.len(); times]).to_string());
        }
        all
    }

    fn line() -> impl Strategy<Value = Vec<u8>> {
        let length = prop_oneof![6 => 0..60_usize, 1 => 4090..4100_usize, 1 => 9000..9010_usize];
        (prop_oneof![9 => Just(b'x'), 1 => Just(b'L')], length).prop_map(|(byte, length)| vec![byte; length])
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn each_request_is_answered_once_and_in_order_however_it_comes(
            lines in prop::collection::vec(line(), 0..12),
            pieces in prop::collection::vec((1..6000_usize, 1..100_000_usize), 1..8),
        ) {
            let text: Vec<u8> = lines.iter().flat_map(|line| [&line[..], b"\n"].concat()).collect();
            prop_assert_eq!(talk(&text, &pieces), expected(&lines));
        }
    }

    #[test]
    fn several_requests_in_one_write_are_all_answered_at_once() {
        let (mut client, server) = UnixStream::pair().unwrap();
        let mut connection = Connection::new(server).unwrap();
        client.write_all(b"one\ntwo\nthree").unwrap();
        let mut asked = Vec::new();
        assert!(connection.serve(&mut |line: &[u8]| {
            asked.push(line.to_vec());
            json!(1)
        }));
        assert_eq!(asked, [b"one", b"two"]);
    }

    #[test]
    fn who_does_not_read_is_not_answered_on_and_on() {
        let (mut client, server) = UnixStream::pair().unwrap();
        let mut connection = Connection::new(server).unwrap();
        client.write_all(&b"q\n".repeat(2000)).unwrap();
        let mut answered = 0;
        for _ in 0..100 {
            assert!(connection.serve(&mut |_: &[u8]| {
                answered += 1;
                json!("x".repeat(100_000))
            }));
        }
        // As many as the socket has space for, and one.
        assert!((1..20).contains(&answered), "{answered}");
        assert!(connection.output.len() <= 100_003);
    }
}
