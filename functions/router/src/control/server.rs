//! The control socket: a Unix socket that only its owner can open, served between the kernel's events.

use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use serde_json::json;
use thiserror::Error;

use super::connection::{Answers, Connection};
use super::follow::Follower;
use super::protocol::{Answer, Host, Request};
use super::route_list::RouteList;

/// Connections at a time; more wait.
const CONNECTIONS: usize = 16;

/// The directory of the usual control socket, which is made if it isn't there. Others are their owners' business.
const DIRECTORY: &str = "/run/warmlane";

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
    /// It would be in a directory that isn't there.
    #[error("there is no directory {directory:?} for the control socket {path:?}: `mkdir {}`, or say --socket with another path", directory.display())]
    NoDirectory {
        /// Where.
        path: PathBuf,
        /// What there isn't.
        directory: PathBuf,
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

/// Answers requests.
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
            if directory == Path::new(DIRECTORY) {
                fs::DirBuilder::new().recursive(true).mode(0o755).create(directory).map_err(system)?;
            } else if !directory.is_dir() {
                return Err(ServerError::NoDirectory {
                    path: path.to_owned(),
                    directory: directory.to_owned(),
                });
            }
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

    /// What to wait for.
    pub fn descriptors(&self) -> Vec<PollFd<'_>> {
        let space = self.connections.len() < CONNECTIONS;
        let listener = space.then(|| PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN));
        listener.into_iter().chain(self.connections.iter().map(Connection::wait)).collect()
    }

    /// Answers what has been asked. Never waits.
    pub fn serve(&mut self, follower: &mut Follower, host: &mut dyn Host) {
        let now = Instant::now();
        self.connections.retain(|connection| !connection.is_stale(now));
        self.accept();
        let mut router = Router { follower, host };
        self.connections.retain_mut(|connection| connection.serve(&mut router));
    }

    fn accept(&mut self) {
        while self.connections.len() < CONNECTIONS
            && let Ok((stream, _)) = self.listener.accept()
        {
            self.connections.extend(Connection::new(stream).ok());
        }
    }
}

/// What answers.
struct Router<'a> {
    follower: &'a mut Follower,
    host: &'a mut dyn Host,
}

impl Answers for Router<'_> {
    fn answer(&mut self, line: &[u8]) -> Answer {
        match Request::parse(line) {
            Ok(request) => request.answer(self.follower, self.host),
            Err(sentence) => Answer::Whole(json!({ "error": sentence })),
        }
    }

    fn go_on(&mut self, list: &mut RouteList, text: &mut Vec<u8>) -> bool {
        list.write(self.follower, text)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader, Write as _};

    #[test]
    fn the_seventeenth_waits_until_another_has_gone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("router.sock");
        let mut server = Server::new(&path).unwrap();
        let mut clients: Vec<_> = (0..17).map(|_| UnixStream::connect(&path).unwrap()).collect();
        for client in &mut clients {
            client.write_all(b"how are you\n").unwrap();
            client.set_nonblocking(true).unwrap();
        }
        // As `serve` does, without a router.
        let turn = |server: &mut Server| {
            server.accept();
            server.connections.retain_mut(|connection| connection.serve(&mut |_: &[u8]| json!("well")));
        };
        let answered = |client: &UnixStream| {
            let mut line = String::new();
            BufReader::new(client).read_line(&mut line).is_ok_and(|_| line == "\"well\"\n")
        };
        turn(&mut server);
        assert_eq!((server.connections.len(), server.descriptors().len()), (CONNECTIONS, CONNECTIONS));
        assert_eq!(clients.iter().filter(|client| answered(client)).count(), CONNECTIONS);
        drop(clients.remove(3));
        turn(&mut server);
        turn(&mut server);
        assert!(answered(clients.last().unwrap()));
        assert!(UnixStream::connect(&path).is_ok(), "and more may wait");
    }
}
