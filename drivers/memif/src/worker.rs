//! What the control thread does: accepts, connects, talks, and tells queues.
//!
//! Nothing here waits for one other side: sockets don't block, each gets one message a round, and who takes too long or says what
//! isn't expected is told so and left.

use crate::control::{Command, Endpoint, Inbox};
use crate::handshake::{self, ClientHandshake, ClientStep, ServerHandshake, ServerStep};
use crate::link::Connection;
use crate::protocol::Message;
use crate::socket::{self, Received};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use warmlane_driver_common::peer::{Event, Listener, connect};

/// How long after a failed attempt or a lost connection a client tries again.
const RETRY: Duration = Duration::from_millis(250);

/// How long a handshake may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Connections to one socket that haven't said yet what they want.
const MAXIMUM_PENDING: usize = 16;

/// How long the thread's end waits for servers that still have packets in a client's buffers.
const FAREWELL: Duration = Duration::from_secs(1);

/// A port.
struct Member {
    number: u64,
    endpoint: Arc<Endpoint>,
    channel: Option<Channel>,
    /// Of a client: when to connect.
    retry: Instant,
    /// See [`Parting`].
    parted: Vec<Parting>,
}

/// A control connection.
struct Channel {
    socket: OwnedFd,
    phase: Phase,
    /// When the handshake must be over.
    deadline: Option<Instant>,
}

enum Phase {
    Server(Box<ServerHandshake>),
    Client(Box<ClientHandshake>),
    Up(Arc<Connection>),
}

/// A client's connection that is over, but whose server may still have packets in the client's buffers. It has not once it closes the socket.
struct Parting {
    socket: OwnedFd,
    connection: Arc<Connection>,
}

/// A connection that hasn't said yet what it wants.
struct PendingConnection {
    socket: OwnedFd,
    /// By which listener it came.
    listener: String,
    deadline: Instant,
}

pub(crate) struct Worker {
    inbox: Arc<Inbox>,
    wake: Event,
    members: Vec<Member>,
    listeners: Vec<Listener>,
    pending: Vec<PendingConnection>,
    partings: Vec<Parting>,
}

/// Says why it is over. Whether that arrives is the other side's affair.
fn dismiss(socket: &OwnedFd, reason: &str) {
    let _ = socket::send(socket, &Message::Disconnect { code: 0, reason: reason.to_owned() }, None);
}

impl Parting {
    /// Whether the server has nothing of this program any more.
    fn is_over(&self) -> bool {
        matches!(socket::receive(&self.socket), Received::Closed)
    }
}

impl Member {
    fn is_client(&self) -> bool {
        self.endpoint.settings.client.is_some()
    }

    /// Ends the connection; `tell`: the other side is told why.
    fn end(&mut self, reason: String, tell: bool) {
        if let Some(channel) = self.channel.take() {
            if tell {
                dismiss(&channel.socket, &reason);
            }
            if let Phase::Up(connection) = channel.phase
                && self.is_client()
                && connection.exchange.is_some()
            {
                self.parted.push(Parting { socket: channel.socket, connection });
            }
        }
        self.endpoint.take_down(reason);
        self.retry = Instant::now() + RETRY;
    }

    /// Connects, if it is time.
    fn connect(&mut self, now: Instant) {
        if self.channel.is_some() || now < self.retry {
            return;
        }
        let Some(client) = &self.endpoint.settings.client else { return };
        match connect(&self.endpoint.settings.address) {
            Ok(socket) => {
                let phase = Phase::Client(Box::new(ClientHandshake::new(client.clone())));
                self.channel = Some(Channel { socket, phase, deadline: Some(now + TIMEOUT) });
            }
            Err(error) => {
                let error = std::io::Error::from(error);
                self.end(
                    format!("can't connect to {:?}: {error}", self.endpoint.settings.address.as_str()),
                    false,
                );
            }
        }
    }

    /// Takes the next message.
    fn read(&mut self, alarm: &Event) {
        let Some(channel) = &mut self.channel else { return };
        let (bytes, fd) = match socket::receive(&channel.socket) {
            Received::Message(bytes, fd) => (bytes, fd),
            Received::Nothing => return,
            Received::WrongLength => return self.end("a message that has not 128 bytes".to_owned(), true),
            Received::Closed => {
                self.channel = None;
                return self.end("the other side closed the connection".to_owned(), false);
            }
        };
        let message = match Message::decode(&bytes) {
            Ok(Message::Disconnect { reason, .. }) => {
                return self.end(format!("the other side said: {reason}"), false);
            }
            Ok(message) => message,
            Err(error) => return self.end(error.to_string(), true),
        };
        if let Err(reason) = channel.take(message, fd, alarm, &self.endpoint) {
            self.end(reason, true);
        }
    }

    /// Ends what is broken or late.
    fn check(&mut self, now: Instant) {
        let Some(channel) = &self.channel else { return };
        let reason = match &channel.phase {
            // Whatever else a queue found there then are zeros.
            Phase::Up(connection) if connection.peer.is_lost() => Some("the client has cut its memory short"),
            Phase::Up(connection) => connection.broken(),
            _ => channel
                .deadline
                .is_some_and(|deadline| deadline <= now)
                .then_some("the handshake took too long"),
        };
        if let Some(reason) = reason {
            self.end(reason.to_owned(), true);
        }
    }

    /// When it has to be looked after again.
    fn next_time(&self) -> Option<Instant> {
        match &self.channel {
            Some(channel) => channel.deadline,
            None => self.is_client().then_some(self.retry),
        }
    }
}

impl Channel {
    fn take(
        &mut self,
        message: Message,
        fd: Option<OwnedFd>,
        alarm: &Event,
        endpoint: &Endpoint,
    ) -> Result<(), String> {
        let lost = |error: rustix::io::Errno| format!("can't write to the control socket: {error}");
        let rings = match &mut self.phase {
            Phase::Server(handshake) => match handshake.take(message, fd, &self.socket, alarm)? {
                ServerStep::Reply(reply) => return socket::send(&self.socket, &reply, None).map_err(lost),
                ServerStep::Ready(reply, rings) => {
                    socket::send(&self.socket, &reply, None).map_err(lost)?;
                    rings
                }
            },
            Phase::Client(handshake) => match handshake.take(&message, alarm)? {
                ClientStep::Say => {
                    let (message, fd) = handshake.say().ok_or("nothing left to say")?;
                    return socket::send(&self.socket, &message, fd).map_err(lost);
                }
                ClientStep::Ready(rings) => rings,
            },
            Phase::Up(_) => return Err("unexpected message".to_owned()),
        };
        self.phase = Phase::Up(Arc::clone(&rings.connection));
        self.deadline = None;
        endpoint.bring_up(rings);
        Ok(())
    }
}

impl Worker {
    pub(crate) const fn new(inbox: Arc<Inbox>, wake: Event) -> Self {
        Self {
            inbox,
            wake,
            members: Vec::new(),
            listeners: Vec::new(),
            pending: Vec::new(),
            partings: Vec::new(),
        }
    }

    /// Until it is told to stop.
    pub(crate) fn run(mut self) {
        loop {
            let ready = self.wait();
            let mut ready = ready.into_iter();
            if ready.next() == Some(true) {
                self.wake.clear();
                if self.obey() {
                    return self.say_farewell();
                }
                // What was looked at is no longer what is there: look again.
                continue;
            }
            let now = Instant::now();
            for member in &mut self.members {
                let is_ready = member.channel.is_some() && ready.next() == Some(true);
                if is_ready {
                    member.read(&self.wake);
                }
                member.check(now);
                member.connect(now);
            }
            let pending = self.pending.split_off(0);
            for connection in pending {
                if ready.next() == Some(true) {
                    self.hear(connection);
                } else if connection.deadline <= now {
                    dismiss(&connection.socket, "the handshake took too long");
                } else {
                    self.pending.push(connection);
                }
            }
            let calling: Vec<usize> =
                (0..self.listeners.len()).filter(|_| ready.next() == Some(true)).collect();
            self.part(ready.collect());
            for listener in calling {
                self.greet(listener);
            }
        }
    }

    /// Looks at the connections that are over and that say something, and takes in those that ended now.
    fn part(&mut self, ready: Vec<bool>) {
        let mut ready = ready.into_iter();
        self.partings.retain(|parting| !(ready.next() == Some(true) && parting.is_over()));
        self.partings.extend(self.members.iter_mut().flat_map(|member| member.parted.drain(..)));
    }

    /// Waits for servers that still have packets in this program's buffers, but not for long. Buffers of who takes longer stay out.
    fn say_farewell(mut self) {
        let end = Instant::now() + FAREWELL;
        self.part(Vec::new());
        while !self.partings.is_empty() {
            let rest = end.saturating_duration_since(Instant::now());
            let Ok(rest) = Timespec::try_from(rest) else { break };
            let mut fds: Vec<_> =
                self.partings.iter().map(|parting| PollFd::new(&parting.socket, PollFlags::IN)).collect();
            if !matches!(poll(&mut fds, Some(&rest)), Ok(1..)) {
                break;
            }
            let ready = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            self.part(ready);
        }
        for Parting { connection, .. } in self.partings {
            std::mem::forget(connection);
        }
    }

    /// Waits for something to do. Says of the event, each member's socket, each pending connection's, each listener and each parting whether there is something.
    fn wait(&self) -> Vec<bool> {
        let members = self.members.iter().filter_map(|member| Some(&member.channel.as_ref()?.socket));
        let pending = self.pending.iter().map(|connection| &connection.socket);
        let listeners = self.listeners.iter().map(Listener::fd);
        let partings = self.partings.iter().map(|parting| &parting.socket);
        let all =
            std::iter::once(self.wake.fd()).chain(members).chain(pending).chain(listeners).chain(partings);
        let mut fds: Vec<_> = all.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        let times = self.members.iter().filter_map(Member::next_time);
        let next = times.chain(self.pending.iter().map(|connection| connection.deadline)).min();
        let timeout = next.map(|next| {
            let rest = next.saturating_duration_since(Instant::now());
            Timespec::try_from(rest).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 })
        });
        // Interrupted or not: nothing is ready then.
        let _ = poll(&mut fds, timeout.as_ref());
        fds.iter().map(|fd| !fd.revents().is_empty()).collect()
    }

    /// Does what ports asked for, and ends connections that queues found broken. `true`: stop.
    fn obey(&mut self) -> bool {
        let now = Instant::now();
        for command in self.inbox.take() {
            match command {
                Command::Add(number, endpoint, listener) => {
                    self.listeners.extend(listener);
                    self.members.push(Member {
                        number,
                        endpoint,
                        channel: None,
                        retry: now,
                        parted: Vec::new(),
                    });
                }
                Command::Remove(number, done) => {
                    for member in self.members.iter_mut().filter(|member| member.number == number) {
                        member.end("the port was closed".to_owned(), true);
                        self.partings.append(&mut member.parted);
                    }
                    self.members.retain(|member| member.number != number);
                    let members = &self.members;
                    self.listeners.retain(|listener| {
                        let socket = listener.address().as_str();
                        members.iter().any(|member| {
                            !member.is_client() && member.endpoint.settings.address.as_str() == socket
                        })
                    });
                    // Who asked may have given up.
                    let _ = done.send(());
                }
                Command::Stop => return true,
            }
        }
        for member in &mut self.members {
            member.check(now);
            member.connect(now);
        }
        false
    }

    /// Accepts a connection.
    fn greet(&mut self, listener: usize) {
        let listener = &self.listeners[listener];
        let socket_name = listener.address().as_str();
        let Some(socket) = listener.accept() else { return };
        let of_this = |connection: &&PendingConnection| connection.listener == socket_name;
        if self.pending.iter().filter(of_this).count() >= MAXIMUM_PENDING {
            return dismiss(&socket, "too many connections that don't say what they want");
        }
        let served = self.members.iter().filter(|member| !member.is_client());
        let served = served.filter(|member| member.endpoint.settings.address.as_str() == socket_name);
        // Which of them it wants it has yet to say: so many rings each of them has.
        let rings = served.map(|member| member.endpoint.settings.rings).min().unwrap_or(1);
        if socket::send(&socket, &handshake::hello(rings), None).is_ok() {
            let deadline = Instant::now() + TIMEOUT;
            self.pending.push(PendingConnection { socket, listener: socket_name.to_owned(), deadline });
        }
    }

    /// Hears what a connection wants.
    fn hear(&mut self, connection: PendingConnection) {
        let message = match socket::receive(&connection.socket) {
            Received::Message(bytes, _) => Message::decode(&bytes),
            Received::Nothing => return self.pending.push(connection),
            Received::WrongLength => return dismiss(&connection.socket, "a message that has not 128 bytes"),
            Received::Closed => return,
        };
        let Ok(Message::Init(init)) = message else {
            return dismiss(&connection.socket, "unexpected message");
        };
        let wanted = self.members.iter_mut().find(|member| {
            let endpoint = &member.endpoint;
            !member.is_client()
                && endpoint.settings.id == init.id
                && endpoint.settings.address.as_str() == connection.listener
        });
        let Some(member) = wanted else {
            return dismiss(&connection.socket, &format!("there is no interface with id {}", init.id));
        };
        let endpoint = &member.endpoint;
        // The secret first: a peer without it isn't told more.
        let refusal = handshake::check_init(&init, endpoint.settings.secret).err().or_else(|| {
            let is_taken = member.channel.is_some();
            is_taken.then(|| format!("interface {} has a connection already", init.id))
        });
        if let Some(reason) = refusal {
            dismiss(&connection.socket, &reason);
            return endpoint.connection.refused(reason);
        }
        let handshake = ServerHandshake::new(
            &endpoint.settings.name,
            endpoint.settings.rings,
            endpoint.settings.allow_unsealed,
            endpoint.settings.mode,
        );
        if socket::send(&connection.socket, &Message::Ack, None).is_ok() {
            let phase = Phase::Server(Box::new(handshake));
            let deadline = Some(Instant::now() + TIMEOUT);
            member.channel = Some(Channel { socket: connection.socket, phase, deadline });
        }
    }
}
