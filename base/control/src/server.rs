//! The control socket: a Unix socket that only its owner can open.

use std::fs;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use thiserror::Error;
use warmlane_sys::socket_option::peer_user;

use crate::connection::{Answer, Answers, Connection};
use crate::place;

/// Connections that are served at a time; more wait.
pub const CONNECTIONS: usize = 128;

/// How long nobody is let in when the system has no descriptor for one more.
const REST: Duration = Duration::from_millis(100);

/// Why there is no control socket.
#[derive(Debug, Error)]
pub enum ServerError {
    /// Another instance answers there.
    #[error(
        "an instance is running already with control socket {path:?}: stop it, or say --socket with another path"
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
    /// A socket that serves something else is in the way.
    #[error("another program's socket is at {path:?}: say --socket with another path")]
    Foreign {
        /// Where.
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

/// A control socket, and who has connected to it. `L` is what lists there are among the answers.
pub struct Server<L> {
    listener: UnixListener,
    path: PathBuf,
    connections: Vec<Connection<L>>,
    /// The system had no descriptor for one more then.
    was_full: Option<Instant>,
}

impl<L> Server<L> {
    /// Listens at `path`, which only this user can open (mode 0600). A socket left over by an instance that was killed is
    /// taken away. The usual [directory](place::directory) is made if it isn't there; others are their owners' business.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn open(path: &Path) -> Result<Self, ServerError> {
        use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _};
        let system = |source| ServerError::System { path: path.to_owned(), source };
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            if directory == place::directory() || directory == Path::new(place::SYSTEM) {
                let mode = if directory == Path::new(place::SYSTEM) { 0o755 } else { 0o700 };
                fs::DirBuilder::new().recursive(true).mode(mode).create(directory).map_err(system)?;
                if directory == place::of_user() {
                    place::check_own(directory).map_err(system)?;
                }
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
            match UnixStream::connect(path) {
                Ok(_) => return Err(ServerError::InUse { path: path.to_owned() }),
                // Somebody listens, but by another kind of socket.
                Err(error) if error.raw_os_error() == Some(Errno::PROTOTYPE.raw_os_error()) => {
                    return Err(ServerError::Foreign { path: path.to_owned() });
                }
                Err(_) => fs::remove_file(path).map_err(system)?,
            }
        }
        // From the first moment, not only after a change of its mode.
        let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
        let listener = UnixListener::bind(path);
        rustix::process::umask(before);
        let listener = listener.map_err(system)?;
        listener.set_nonblocking(true).map_err(system)?;
        Ok(Self { listener, path: path.to_owned(), connections: Vec::new(), was_full: None })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What to wait for.
    pub fn descriptors(&self) -> Vec<PollFd<'_>> {
        let listener =
            self.may_accept().then(|| PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN));
        listener.into_iter().chain(self.connections.iter().map(Connection::wait)).collect()
    }

    /// Answers what has been asked. Never waits.
    pub fn serve(&mut self, answers: &mut dyn Answers<List = L>) {
        self.serve_at(Instant::now(), answers);
    }

    fn serve_at(&mut self, now: Instant, answers: &mut dyn Answers<List = L>) {
        self.connections.retain(|connection| !connection.is_stale(now));
        self.accept();
        self.connections.retain_mut(|connection| connection.serve(answers));
    }

    fn may_accept(&self) -> bool {
        self.connections.len() < CONNECTIONS && self.was_full.is_none_or(|then| then.elapsed() > REST)
    }

    fn accept(&mut self) {
        while self.may_accept() {
            match self.listener.accept() {
                Ok((stream, _)) => match refuse_strangers(&stream) {
                    None => self.connections.extend(Connection::new(stream).ok()),
                    Some(sentence) => {
                        if let Answer::Whole(line) = Answer::<L>::error(sentence) {
                            // It has space: nothing has been written yet.
                            let _ = (&stream).write_all(format!("{line}\n").as_bytes());
                        }
                    }
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // It would be ready again at once.
                Err(_) => self.was_full = Some(Instant::now()),
            }
        }
    }
}

/// What is said to users other than this one and root, however they have opened the socket (unix(7), `SO_PEERCRED`).
fn refuse_strangers(stream: &UnixStream) -> Option<String> {
    const ROOT: u32 = 0;
    let ours = rustix::process::geteuid().as_raw();
    match peer_user(stream) {
        Ok(user) if user == ours || user == ROOT => None,
        Ok(user) => Some(format!("this instance answers user {ours} and root only, and you are user {user}")),
        Err(error) => Some(format!("the system doesn't tell who you are: {error}")),
    }
}

impl<L> Drop for Server<L> {
    fn drop(&mut self) {
        // Nobody answers there any more; if it is gone already, so much the better.
        let _ = fs::remove_file(&self.path);
    }
}

impl<L> std::fmt::Debug for Server<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("path", &self.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::io::{BufRead as _, BufReader, Read as _};

    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

    use crate::connection::IDLE;

    /// A server, and so many clients that have asked.
    fn asked(directory: &Path, count: usize) -> (Server<Infallible>, Vec<UnixStream>) {
        let server = Server::open(&directory.join("x.sock")).unwrap();
        let client = |_| {
            let mut client = UnixStream::connect(server.path()).unwrap();
            client.write_all(b"how are you\n").unwrap();
            client.set_nonblocking(true).unwrap();
            client
        };
        let clients = (0..count).map(client).collect();
        (server, clients)
    }

    fn is_answered(client: &UnixStream) -> bool {
        let mut line = String::new();
        BufReader::new(client).read_line(&mut line).is_ok_and(|_| line == "\"well\"\n")
    }

    #[test]
    fn who_is_too_many_waits_until_another_has_gone() {
        let directory = tempfile::tempdir().unwrap();
        let (mut server, mut clients) = asked(directory.path(), CONNECTIONS + 1);
        let turn = |server: &mut Server<_>| server.serve(&mut |_: &[u8]| "well");
        turn(&mut server);
        assert_eq!((server.connections.len(), server.descriptors().len()), (CONNECTIONS, CONNECTIONS));
        assert_eq!(clients.iter().filter(|client| is_answered(client)).count(), CONNECTIONS);
        drop(clients.remove(3));
        turn(&mut server);
        turn(&mut server);
        assert!(is_answered(clients.last().unwrap()));
        assert!(UnixStream::connect(server.path()).is_ok(), "and more may wait");
    }

    #[test]
    fn who_is_silent_too_long_makes_way_for_who_waits() {
        let directory = tempfile::tempdir().unwrap();
        let (mut server, mut clients) = asked(directory.path(), CONNECTIONS + 1);
        let begin = Instant::now();
        let mut serve = |after: Duration| server.serve_at(begin + after, &mut |_: &[u8]| "well");
        serve(Duration::ZERO);
        let waiting = clients.pop().unwrap();
        assert!(clients.iter().all(is_answered));
        serve(IDLE / 2);
        assert!(!is_answered(&waiting), "the others may still ask");
        serve(IDLE * 2);
        assert!(is_answered(&waiting));
        let has_ended = |mut client: &UnixStream| matches!(client.read(&mut [0]), Ok(0));
        assert!(clients.iter().all(has_ended) && !has_ended(&waiting));
    }

    #[test]
    fn a_socket_is_its_owners_only_and_goes_with_its_server() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let (server, _) = asked(directory.path(), 0);
        let path = server.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let second = Server::<Infallible>::open(&path).unwrap_err();
        assert!(matches!(second, ServerError::InUse { .. }), "{second}");
        drop(server);
        assert!(!path.exists());
        // One that was killed leaves its socket.
        drop(UnixListener::bind(&path).unwrap());
        let again = Server::<Infallible>::open(&path).unwrap();
        assert!(UnixStream::connect(again.path()).is_ok());
        drop(again);
        let foreign = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        rustix::net::bind(&foreign, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&foreign, 1).unwrap();
        let other = Server::<Infallible>::open(&path).unwrap_err();
        assert!(matches!(other, ServerError::Foreign { .. }) && path.exists(), "{other}");
        fs::remove_file(&path).unwrap();
        fs::write(&path, "a file").unwrap();
        let in_the_way = Server::<Infallible>::open(&path).unwrap_err();
        assert!(matches!(in_the_way, ServerError::InTheWay { .. }) && path.exists(), "{in_the_way}");
    }

    /// A connection that has all the system's descriptors is simulated: nobody can be let in for a while.
    #[test]
    fn nobody_is_let_in_for_a_while_when_there_are_no_descriptors() {
        let directory = tempfile::tempdir().unwrap();
        let (mut server, clients) = asked(directory.path(), 1);
        server.was_full = Some(Instant::now() + Duration::from_secs(3600));
        assert!(server.descriptors().is_empty());
        server.serve(&mut |_: &[u8]| "well");
        assert!(!is_answered(&clients[0]));
        server.was_full = Some(Instant::now().checked_sub(REST * 2).unwrap());
        server.serve(&mut |_: &[u8]| "well");
        assert!(is_answered(&clients[0]));
    }
}
