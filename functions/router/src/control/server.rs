//! The control socket: a Unix socket that only its owner can open, served between the kernel's news.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use thiserror::Error;

use super::follow::Follower;
use super::protocol::{Host, LONGEST_QUESTION, Question};

/// Connections at a time; more wait.
const CONNECTIONS: usize = 16;

/// Why there is no control socket.
#[derive(Debug, Error)]
pub enum ServerError {
    /// Another instance answers there.
    #[error(
        "a router is running already, with control socket {path:?}: stop it, or say --socket with another path"
    )]
    InUse {
        /// Where.
        path: PathBuf,
    },
    /// Something that is no socket is in the way.
    #[error("{path:?} is there and is no socket: say --socket with another path")]
    InTheWay {
        /// What.
        path: PathBuf,
    },
    /// The system refuses.
    #[error("can't make the control socket {path:?}: {source}; say --socket with another path")]
    System {
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

struct Connection {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    /// No more questions come.
    is_over: bool,
}

/// Answers questions.
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
    connections: Vec<Connection>,
}

impl Server {
    /// Listens at `path`, which only this user can open (mode 0600). A socket left over by an instance that was killed is
    /// taken away.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn new(path: &Path) -> Result<Self, ServerError> {
        use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _};
        let system = |source| ServerError::System { path: path.to_owned(), source };
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            fs::DirBuilder::new().recursive(true).mode(0o755).create(directory).map_err(system)?;
        }
        if let Ok(there) = fs::symlink_metadata(path) {
            if !there.file_type().is_socket() {
                return Err(ServerError::InTheWay { path: path.to_owned() });
            }
            if UnixStream::connect(path).is_ok() {
                return Err(ServerError::InUse { path: path.to_owned() });
            }
            fs::remove_file(path).map_err(system)?;
        }
        // From the first moment, not only after a change of its mode.
        let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
        let listener = UnixListener::bind(path);
        rustix::process::umask(before);
        let listener = listener.map_err(system)?;
        listener.set_nonblocking(true).map_err(system)?;
        Ok(Self { listener, path: path.to_owned(), connections: Vec::new() })
    }

    /// What to wait on.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let room = self.connections.len() < CONNECTIONS;
        let listener = room.then(|| self.listener.as_fd());
        listener.into_iter().chain(self.connections.iter().map(|each| each.stream.as_fd())).collect()
    }

    /// Answers what has been asked. Never waits.
    pub fn serve(&mut self, follower: &mut Follower, host: &mut dyn Host) {
        while self.connections.len() < CONNECTIONS
            && let Ok((stream, _)) = self.listener.accept()
        {
            if stream.set_nonblocking(true).is_ok() {
                let connection = Connection { stream, input: Vec::new(), output: Vec::new(), is_over: false };
                self.connections.push(connection);
            }
        }
        self.connections.retain_mut(|connection| connection.serve(follower, host));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nobody answers there any more; if it is gone already, so much the better.
        let _ = fs::remove_file(&self.path);
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Connection {
    /// Does what can be done without waiting; `false` when the connection is over.
    fn serve(&mut self, follower: &mut Follower, host: &mut dyn Host) -> bool {
        if !self.write() {
            return false;
        }
        // Whoever doesn't read answers gets no more of them.
        while self.output.is_empty() && !self.is_over {
            let mut bytes = [0; LONGEST_QUESTION];
            match self.stream.read(&mut bytes) {
                Ok(0) => self.is_over = true,
                Ok(count) => self.input.extend(bytes.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
            while self.output.is_empty()
                && let Some(end) = self.input.iter().position(|byte| *byte == b'\n')
            {
                let line: Vec<u8> = self.input.drain(..=end).collect();
                self.answer(&line, follower, host);
            }
            if self.input.len() > LONGEST_QUESTION {
                let sentence =
                    format!("a question has at most {LONGEST_QUESTION} bytes, and ends with a newline");
                self.say(&json!({ "error": sentence }));
                self.input.clear();
                self.is_over = true;
            }
            if !self.write() {
                return false;
            }
        }
        !(self.is_over && self.output.is_empty())
    }

    fn answer(&mut self, line: &[u8], follower: &mut Follower, host: &mut dyn Host) {
        let answer = match Question::parse(line) {
            Ok(question) => question.answer(follower, host),
            Err(sentence) => json!({ "error": sentence }),
        };
        self.say(&answer);
    }

    fn say(&mut self, answer: &Value) {
        self.output.extend(answer.to_string().into_bytes());
        self.output.push(b'\n');
    }

    /// Writes what can be written; `false` when nobody listens any more.
    fn write(&mut self) -> bool {
        let mut written = 0;
        let alive = loop {
            let Some(rest) = self.output.get(written..).filter(|rest| !rest.is_empty()) else { break true };
            match self.stream.write(rest) {
                Ok(0) => break false,
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break false,
            }
        };
        self.output.drain(..written);
        alive
    }
}
