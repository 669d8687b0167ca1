//! The thread that keeps a port's connection. Each port has its own, so that a peer that keeps it busy costs its port alone.

use super::inbound::{Got, Inbound, Message};
use super::outgoing::Outgoing;
use super::role::Role;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use warmlane_driver_common::peer::{Address, Connection, Event, Listener, connect};

/// How long after a failed attempt or a lost connection a client tries again.
const RETRY: Duration = Duration::from_millis(250);

/// Bytes of the thread's stack.
const STACK: usize = 256 << 10;

/// Why a connection is over.
pub(crate) type Refusal = String;

/// One connection, by either side of the protocol.
pub(crate) trait Session: Send {
    /// What is said first.
    fn begin(&mut self) -> Vec<Outgoing> {
        Vec::new()
    }

    /// Takes a message; returns what is said then.
    ///
    /// # Errors
    /// Why the connection is over.
    fn take(&mut self, message: Message) -> Result<Vec<Outgoing>, Refusal>;

    /// Whether packets can be sent.
    fn is_up(&self) -> bool;

    /// What the rings or the memory can't be used for any more, if so.
    fn broken(&self) -> Option<&'static str>;
}

/// Makes a session for a new connection.
pub(crate) type Introduce = dyn Fn() -> Result<Box<dyn Session>, Refusal> + Send + Sync;

/// A port as its control thread knows it.
pub(crate) struct Endpoint {
    pub(crate) address: Address,
    pub(crate) role: Role,
    pub(crate) introduce: Box<Introduce>,
    pub(crate) connection: Connection,
    /// Wakes up the thread.
    pub(crate) alarm: Event,
    pub(crate) stop: AtomicBool,
}

/// A port's thread. Dropped, it ends, and the other side's connection with it.
pub(crate) struct Membership {
    endpoint: Arc<Endpoint>,
    thread: Option<JoinHandle<()>>,
}

impl Membership {
    pub(crate) fn start(
        driver: &str,
        name: &str,
        endpoint: Arc<Endpoint>,
        listener: Option<Listener>,
    ) -> io::Result<Self> {
        let worker =
            Worker { endpoint: Arc::clone(&endpoint), listener, channel: None, retry: Instant::now() };
        let builder = std::thread::Builder::new().name(format!("{driver} {name}")).stack_size(STACK);
        let thread = builder.spawn(|| worker.run())?;
        Ok(Self { endpoint, thread: Some(thread) })
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.endpoint.stop.store(true, Ordering::Release);
        self.endpoint.alarm.signal();
        if let Some(thread) = self.thread.take() {
            // It doesn't panic, and if it did: it is over.
            let _ = thread.join();
        }
    }
}

/// A connection.
struct Channel {
    socket: OwnedFd,
    inbound: Inbound,
    session: Box<dyn Session>,
}

struct Worker {
    endpoint: Arc<Endpoint>,
    listener: Option<Listener>,
    channel: Option<Channel>,
    retry: Instant,
}

impl Worker {
    fn run(mut self) {
        while !self.endpoint.stop.load(Ordering::Acquire) {
            let [alarm, channel, listener] = self.wait();
            if alarm {
                self.endpoint.alarm.clear();
            }
            if channel {
                self.read();
            }
            if let Some(reason) = self.channel.as_ref().and_then(|channel| channel.session.broken()) {
                self.end(reason.to_owned());
            }
            if listener {
                self.accept();
            }
            self.connect();
        }
        self.end("the port was closed".to_owned());
    }

    /// Waits for something to do: says whether there is something of the alarm, the connection and the listener.
    fn wait(&self) -> [bool; 3] {
        let parts = [
            Some(self.endpoint.alarm.fd()),
            self.channel.as_ref().map(|channel| &channel.socket),
            self.listener.as_ref().map(Listener::fd),
        ];
        let mut fds: Vec<_> = parts.iter().flatten().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        let is_to_connect = self.listener.is_none() && self.channel.is_none();
        let timeout = is_to_connect.then(|| {
            let rest = self.retry.saturating_duration_since(Instant::now());
            Timespec::try_from(rest).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 })
        });
        // Interrupted or not: nothing is ready then.
        let _ = poll(&mut fds, timeout.as_ref());
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        parts.map(|part| part.is_some() && ready.next() == Some(true))
    }

    fn open(&mut self, socket: OwnedFd) {
        match (self.endpoint.introduce)() {
            Ok(mut session) => {
                let first = session.begin();
                self.channel = Some(Channel { socket, inbound: Inbound::default(), session });
                self.say(&first);
            }
            Err(reason) => {
                self.endpoint.connection.down(reason);
                self.retry = Instant::now() + RETRY;
            }
        }
    }

    fn accept(&mut self) {
        let Some(socket) = self.listener.as_ref().and_then(Listener::accept) else { return };
        // A second one is closed at once: memory and rings are those of the first.
        if self.channel.is_none() {
            self.open(socket);
        } else {
            self.endpoint.connection.refused("there is a connection already".to_owned());
        }
    }

    fn connect(&mut self) {
        let now = Instant::now();
        if self.endpoint.role == Role::Server || self.channel.is_some() || now < self.retry {
            return;
        }
        self.retry = now + RETRY;
        match connect(&self.endpoint.address) {
            Ok(socket) => self.open(socket),
            Err(error) => {
                let (socket, error) = (self.endpoint.address.as_str(), io::Error::from(error));
                self.endpoint.connection.down(format!("can't connect to {socket:?}: {error}"));
            }
        }
    }

    fn end(&mut self, reason: String) {
        if let Some(channel) = self.channel.take() {
            // Rings are taken away first: who sees that it is down finds none any more.
            drop(channel);
            self.endpoint.connection.down(reason);
            self.retry = Instant::now() + RETRY;
        }
    }

    fn say(&mut self, outgoing: &[Outgoing]) {
        let Some(Channel { socket, .. }) = &self.channel else { return };
        // Each side waits for the other's answers, so there is room for what is said between two of them.
        if !outgoing.iter().all(|message| message.send(socket)) {
            self.end("can't write to the control socket".to_owned());
        }
    }

    /// Takes the next message.
    fn read(&mut self) {
        let Some(Channel { socket, inbound, session }) = &mut self.channel else { return };
        let message = match inbound.read(socket) {
            Ok(Got::Message(message)) => message,
            Ok(Got::Nothing) => return,
            Ok(Got::Closed) => return self.end("the other side closed the connection".to_owned()),
            Err(reason) => return self.end(reason),
        };
        match session.take(message) {
            Ok(outgoing) => self.say(&outgoing),
            Err(reason) => return self.end(reason),
        }
        let Some(Channel { session, .. }) = &self.channel else { return };
        let (is_up, was_up) = (session.is_up(), self.endpoint.connection.status().connected);
        match (is_up, was_up) {
            (true, false) => self.endpoint.connection.up(),
            (false, true) => self.endpoint.connection.down("the rings were stopped".to_owned()),
            _ => {}
        }
    }
}
