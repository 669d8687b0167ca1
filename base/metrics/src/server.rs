//! Listens, and answers everybody in turn.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use thiserror::Error;
use warmlane_control::{Answer, Fixed, Serve, Service, Stats};
use warmlane_counters::Registry;

use crate::access::{Access, Token};
use crate::connection::Connection;
use crate::exposition::{Identity, expose};
use crate::request::Document;

/// Connections that are open at a time. When one more comes, the oldest goes.
pub const CONNECTIONS: usize = 128;

/// How many are let in before others are answered.
const AT_ONCE: usize = 32;

/// How long nobody is let in when the system has no descriptor for one more.
const REST: Duration = Duration::from_millis(100);

/// Why there are no metrics.
#[derive(Debug, Error)]
pub enum ServerError {
    /// Everybody could read them.
    #[error(
        "metrics at {address} could be read by anybody on the network: give a token, or an address of the loopback"
    )]
    NoToken {
        /// Where.
        address: SocketAddr,
    },
    /// The system refuses.
    #[error("metrics can't be offered at {address}: {source}")]
    System {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// A place where metrics will be asked for.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    access: Access,
}

impl Server {
    /// Listens at an address; port 0 is any that is free. Anywhere but on the loopback there must be a token.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn open(address: SocketAddr, token: Option<Token>) -> Result<Self, ServerError> {
        let system = |source| ServerError::System { address, source };
        let access = match token {
            Some(token) => Access::Bearer(token),
            None if address.ip().to_canonical().is_loopback() => Access::Local,
            None => return Err(ServerError::NoToken { address }),
        };
        let listener = TcpListener::bind(address).map_err(system)?;
        listener.set_nonblocking(true).map_err(system)?;
        let address = listener.local_addr().map_err(system)?;
        Ok(Self { listener, address, access })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets a thread answer with what a registry has, and with what else there is of the instance that counts there, until what this returns is
    /// dropped. The thread stays away from `lanes`, the CPUs of lanes, as that of the control socket.
    ///
    /// # Errors
    /// The system has no thread or no descriptors for it.
    pub fn start(
        self,
        registry: Registry,
        fixed: &Fixed,
        identity: Identity,
        lanes: Vec<usize>,
    ) -> io::Result<Service> {
        let answering = Answering {
            server: self,
            connections: Vec::new(),
            was_full: None,
            began: Instant::now(),
            registry,
            graphs: line(Answer::whole(&fixed.graphs)),
            layout: line(Answer::whole(&fixed.layout)),
            identity,
        };
        Service::serve("metrics", answering, lanes)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

/// A server, and who has come, the oldest first.
struct Answering {
    server: Server,
    connections: Vec<Connection<TcpStream>>,
    /// The system had no descriptor for one more then.
    was_full: Option<Instant>,
    began: Instant,
    registry: Registry,
    /// As they are sent.
    graphs: String,
    layout: String,
    identity: Identity,
}

impl Answering {
    fn may_accept(&self) -> bool {
        self.was_full.is_none_or(|then| then.elapsed() > REST)
    }

    fn accept(&mut self, now: Instant) {
        for _ in 0..AT_ONCE {
            match self.server.listener.accept() {
                Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => {
                    if self.connections.len() >= CONNECTIONS {
                        self.connections.remove(0);
                    }
                    self.connections.push(Connection::new(stream, now));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
                    ) => {}
                // It would be ready again at once.
                Err(_) => {
                    self.was_full = Some(now);
                    return;
                }
            }
        }
    }
}

/// What the control socket says of a registry.
fn stats(registry: &Registry, began: Instant) -> String {
    let age = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    line(Answer::whole(&Stats::read(registry, age)))
}

/// An answer of the control socket's: one line of JSON.
fn line(answer: Answer<Infallible>) -> String {
    match answer {
        Answer::Whole(line) => line + "\n",
        Answer::List(_) | Answer::TakeOver(..) => String::new(),
    }
}

impl Serve for Answering {
    fn descriptors(&self) -> Vec<PollFd<'_>> {
        let listener = &self.server.listener;
        let listener = self.may_accept().then(|| PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN));
        listener.into_iter().chain(self.connections.iter().map(Connection::wait)).collect()
    }

    fn serve(&mut self) {
        let now = Instant::now();
        if self.may_accept() {
            self.accept(now);
        }
        let Self { server, connections, began, registry, graphs, layout, identity, .. } = self;
        let mut make = |document| match document {
            Document::Metrics(format) => expose(registry, identity, format),
            Document::Stats => stats(registry, *began),
            Document::Graph => graphs.clone(),
            Document::Layout => layout.clone(),
        };
        connections.retain_mut(|connection| connection.serve(now, &server.access, &mut make));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    fn loopback() -> SocketAddr {
        (Ipv4Addr::LOCALHOST, 0).into()
    }

    fn scrape(address: SocketAddr) -> String {
        get(address, "/metrics")
    }

    fn get(address: SocketAddr, path: &str) -> String {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        text
    }

    fn start() -> (SocketAddr, Service) {
        let server = Server::open(loopback(), None).unwrap();
        let address = server.address();
        let started = server.start(Registry::new(), &Fixed::default(), Identity::new("forward"), Vec::new());
        (address, started.unwrap())
    }

    #[test]
    fn anywhere_but_on_the_loopback_there_must_be_a_token() {
        let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
        assert!(Server::open((mapped, 0).into(), None).is_ok() || !mapped.is_loopback());
        for open in [
            IpAddr::from(Ipv4Addr::UNSPECIFIED),
            Ipv6Addr::UNSPECIFIED.into(),
            Ipv4Addr::new(192, 0, 2, 1).into(),
        ] {
            let refused = Server::open((open, 0).into(), None).unwrap_err();
            assert!(matches!(refused, ServerError::NoToken { .. }), "{refused}");
        }
        let taken = Server::open(loopback(), None).unwrap();
        let second = Server::open(taken.address(), None).unwrap_err();
        assert!(second.to_string().contains(&taken.address().to_string()), "{second}");
    }

    #[test]
    fn it_answers_until_it_is_dropped() {
        let (address, service) = start();
        for _ in 0..3 {
            let text = scrape(address);
            assert!(text.contains("warmlane_build_info{kind=\"forward\""), "{text}");
        }
        assert!(get(address, "/graph.json").ends_with("\r\n\r\n{\"lanes\":[]}\n"));
        assert!(get(address, "/layout.json").ends_with("\r\n\r\n{\"cache\":null,\"pools\":[]}\n"));
        drop(service);
        assert!(TcpStream::connect(address).is_err());
    }

    #[test]
    fn idle_connections_keep_nobody_out() {
        let (address, _service) = start();
        let mut idle: Vec<TcpStream> = Vec::new();
        for _ in 0..2 * CONNECTIONS {
            idle.push(TcpStream::connect(address).unwrap());
        }
        assert!(scrape(address).starts_with("HTTP/1.1 200"));
        // The oldest had to go.
        idle[0].set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        assert_eq!(idle[0].read(&mut [0]).unwrap(), 0);
    }
}
