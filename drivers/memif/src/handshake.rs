//! How a connection comes about: what each side says, and in which order.

use crate::exchange::Exchange;
use crate::link::{Buffers, Connection, RingLink};
use crate::offer::Offer;
use crate::options::Mode;
use crate::own::{self, OwnRing, Plan};
use crate::protocol::{AddRing, Direction, Hello, Init, MODE_ETHERNET, Message, SECRET_BYTES, VERSION};
use crate::region::{MAXIMUM_REGIONS, PeerMemory};
use crate::ring;
use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use warmlane_driver_common::peer::Event;
use warmlane_mem::Region;
use warmlane_sys::pages::Mapping;

/// What programs are told that ask who we are.
const PROGRAM: &str = concat!("Warmlane ", env!("CARGO_PKG_VERSION"));

/// The rings of a connection that is up, by direction and index.
#[derive(Debug)]
pub(crate) struct Rings {
    pub(crate) connection: Arc<Connection>,
    pub(crate) to_server: Vec<RingLink>,
    pub(crate) to_client: Vec<RingLink>,
}

/// A server's greeting.
pub(crate) fn hello(rings: u16) -> Message {
    Message::Hello(Hello {
        name: PROGRAM.to_owned(),
        lowest_version: VERSION,
        highest_version: VERSION,
        last_region: MAXIMUM_REGIONS as u16 - 1,
        last_ring_to_server: rings - 1,
        last_ring_to_client: rings - 1,
        longest_ring: ring::LONGEST,
    })
}

/// Whether a client that wants the interface `init.id`, which this is, may have it.
///
/// # Errors
/// What it is told.
pub(crate) fn check_init(init: &Init, secret: [u8; SECRET_BYTES]) -> Result<(), String> {
    if init.version != VERSION {
        let [ours, theirs] =
            [VERSION, init.version].map(|version| format!("{}.{}", version >> 8, version & 0xff));
        return Err(format!("version {theirs} of the protocol: this side speaks {ours}"));
    }
    if init.mode != MODE_ETHERNET {
        return Err("only Ethernet mode is there".to_owned());
    }
    // All bytes are looked at, however many are right.
    let differing = init.secret.iter().zip(secret).fold(0, |sum, (theirs, ours)| sum | (theirs ^ ours));
    if secret[0] != 0 && differing != 0 {
        return Err("wrong secret".to_owned());
    }
    Ok(())
}

/// What a server does next.
#[derive(Debug)]
pub(crate) enum ServerStep {
    /// It answers.
    Reply(Message),
    /// It answers, and the connection is up.
    Ready(Message, Rings),
}

/// The server's part, from when it knows which of its interfaces the client wants.
#[derive(Debug)]
pub(crate) struct ServerHandshake {
    interface: String,
    allow_unsealed: bool,
    mode: Mode,
    rings: u16,
    memory: PeerMemory,
    to_server: Vec<(AddRing, OwnedFd)>,
    to_client: Vec<(AddRing, OwnedFd)>,
}

impl ServerHandshake {
    /// For an interface of this name with so many rings in each direction.
    pub(crate) fn new(interface: &str, rings: u16, allow_unsealed: bool, mode: Mode) -> Self {
        Self {
            interface: interface.to_owned(),
            allow_unsealed,
            mode,
            rings,
            memory: PeerMemory::default(),
            to_server: Vec::new(),
            to_client: Vec::new(),
        }
    }

    /// Takes what the client says on the socket.
    ///
    /// # Errors
    /// What it is told before the connection is closed.
    pub(crate) fn take(
        &mut self,
        message: Message,
        fd: Option<OwnedFd>,
        socket: &OwnedFd,
        alarm: &Event,
    ) -> Result<ServerStep, String> {
        match message {
            Message::AddRegion { index, size } => {
                let file = fd.ok_or("a region without a file")?;
                if usize::from(index) != self.memory.len() || self.memory.len() == MAXIMUM_REGIONS {
                    return Err(format!(
                        "region {index}: expected {}, of at most {MAXIMUM_REGIONS}",
                        self.memory.len()
                    ));
                }
                self.memory
                    .add(&file, size, self.allow_unsealed, alarm)
                    .map_err(|error| error.to_string())?;
                Ok(ServerStep::Reply(Message::Ack))
            }
            Message::AddRing(ring) => {
                let event = fd.ok_or("a ring without an event")?;
                if ring.private_header != 0 {
                    return Err("private headers are not known".to_owned());
                }
                let rings = match ring.direction {
                    Direction::ToServer => &mut self.to_server,
                    Direction::ToClient => &mut self.to_client,
                };
                if usize::from(ring.index) != rings.len() || ring.index >= self.rings {
                    return Err(format!(
                        "ring {}: expected {}, of at most {}",
                        ring.index,
                        rings.len(),
                        self.rings
                    ));
                }
                rings.push((ring, event));
                Ok(ServerStep::Reply(Message::Ack))
            }
            Message::Connect { .. } => {
                let rings = self.finish(socket, alarm)?;
                Ok(ServerStep::Ready(Message::Connected { interface: self.interface.clone() }, rings))
            }
            _ => Err("unexpected message".to_owned()),
        }
    }

    fn finish(&mut self, socket: &OwnedFd, alarm: &Event) -> Result<Rings, String> {
        if self.to_server.is_empty() && self.to_client.is_empty() {
            return Err("no rings".to_owned());
        }
        let memory = std::mem::take(&mut self.memory);
        let exchange = match (self.mode, socket.try_clone()) {
            (Mode::ZeroCopy, Ok(socket)) => Offer::take(&memory, &self.interface, self.rings.into(), socket),
            _ => None,
        };
        let connection = Arc::new(Connection::new(memory, None, exchange, alarm.clone()));
        let link = |(ring, event): (AddRing, OwnedFd)| {
            let found = connection.peer.ring(ring.region, ring.offset, ring.log2_size);
            Ok::<_, String>(RingLink {
                ring: found.map_err(|error| error.to_string())?,
                event: Event::of_peer(event).map_err(|error| format!("an event that is none: {error}"))?,
                buffers: Buffers::Peer,
                connection: Arc::clone(&connection),
            })
        };
        Ok(Rings {
            to_server: self.to_server.drain(..).map(link).collect::<Result<_, _>>()?,
            to_client: self.to_client.drain(..).map(link).collect::<Result<_, _>>()?,
            connection: Arc::clone(&connection),
        })
    }
}

/// What a client wants.
#[derive(Clone, Debug)]
pub(crate) struct ClientSettings {
    /// The port's name.
    pub(crate) interface: String,
    pub(crate) id: u32,
    pub(crate) secret: [u8; SECRET_BYTES],
    pub(crate) plan: Plan,
    /// The pool, to be shown to the server with [`Mode::ZeroCopy`].
    pub(crate) pool: Region,
}

/// What a client does next.
#[derive(Debug)]
pub(crate) enum ClientStep {
    /// It says the next thing.
    Say,
    /// The connection is up.
    Ready(Rings),
}

/// The client's part.
#[derive(Debug)]
pub(crate) struct ClientHandshake {
    settings: ClientSettings,
    /// From when the server has greeted.
    own: Option<(Mapping, Vec<OwnRing>)>,
    script: VecDeque<Message>,
    has_said_all: bool,
}

impl ClientHandshake {
    pub(crate) fn new(settings: ClientSettings) -> Self {
        Self { settings, own: None, script: VecDeque::new(), has_said_all: false }
    }

    /// Takes what the server says.
    ///
    /// # Errors
    /// What it is told before the connection is closed.
    pub(crate) fn take(&mut self, message: &Message, alarm: &Event) -> Result<ClientStep, String> {
        match message {
            Message::Hello(hello) if self.own.is_none() => {
                self.greet(hello)?;
                Ok(ClientStep::Say)
            }
            Message::Ack if !self.script.is_empty() => Ok(ClientStep::Say),
            Message::Connected { .. } if self.has_said_all => {
                let (mapping, rings) = self.own.take().ok_or("unexpected message")?;
                let exchange = (self.settings.plan.mode == Mode::ZeroCopy && offer(&mapping).is_taken())
                    .then(|| Exchange::of_client(self.settings.pool.clone()));
                Ok(ClientStep::Ready(finish(mapping, rings, exchange, alarm)))
            }
            _ => Err("unexpected message".to_owned()),
        }
    }

    fn greet(&mut self, hello: &Hello) -> Result<(), String> {
        if hello.lowest_version > VERSION || hello.highest_version < VERSION {
            return Err("this side speaks version 2.0 of the protocol only".to_owned());
        }
        let ClientSettings { interface, id, secret, plan, pool } = &mut self.settings;
        plan.to_server = plan.to_server.min(hello.last_ring_to_server.saturating_add(1));
        plan.to_client = plan.to_client.min(hello.last_ring_to_client.saturating_add(1));
        plan.log2_size = plan.log2_size.min(hello.longest_ring).max(1);
        let (mapping, rings) = own::build(interface, *plan).map_err(|error| error.to_string())?;
        self.script.push_back(Message::Init(Init {
            version: VERSION,
            id: *id,
            mode: MODE_ETHERNET,
            secret: *secret,
            name: PROGRAM.to_owned(),
        }));
        self.script.push_back(Message::AddRegion { index: 0, size: mapping.length() as u64 });
        if plan.mode == Mode::ZeroCopy {
            offer(&mapping).make(pool);
            self.script.push_back(Message::AddRegion { index: 1, size: pool.length() as u64 });
        }
        for ring in &rings {
            self.script.push_back(Message::AddRing(AddRing {
                direction: ring.direction,
                index: ring.index,
                region: 0,
                offset: ring.offset,
                log2_size: plan.log2_size,
                private_header: 0,
            }));
        }
        self.script.push_back(Message::Connect { interface: interface.clone() });
        self.own = Some((mapping, rings));
        Ok(())
    }

    /// The next thing to say, and the descriptor that goes with it.
    pub(crate) fn say(&mut self) -> Option<(Message, Option<BorrowedFd<'_>>)> {
        let message = self.script.pop_front()?;
        self.has_said_all = self.script.is_empty();
        let (mapping, rings) = self.own.as_ref()?;
        let fd = match &message {
            Message::AddRegion { index: 0, .. } => Some(mapping.file()),
            Message::AddRegion { .. } => self.settings.pool.file(),
            Message::AddRing(ring) => rings
                .iter()
                .find(|own| own.direction == ring.direction && own.index == ring.index)
                .map(|own| own.event.fd().as_fd()),
            _ => None,
        };
        Some((message, fd))
    }
}

/// Of a client without copies, in its region 0.
fn offer(mapping: &Mapping) -> Offer {
    // SAFETY: whole pages, kept for longer than the handshake; `own::build` leaves so much at the end.
    unsafe { Offer::at_end(mapping.as_ptr(), mapping.length()) }
}

fn finish(mapping: Mapping, rings: Vec<OwnRing>, exchange: Option<Exchange>, alarm: &Event) -> Rings {
    let memory = PeerMemory::default();
    let connection = Arc::new(Connection::new(memory, Some(mapping), exchange, alarm.clone()));
    let (to_server, to_client): (Vec<_>, Vec<_>) =
        rings.into_iter().partition(|ring| ring.direction == Direction::ToServer);
    let link = |own: OwnRing| RingLink {
        ring: own.ring,
        event: own.event,
        buffers: own.buffers,
        connection: Arc::clone(&connection),
    };
    Rings {
        to_server: to_server.into_iter().map(link).collect(),
        to_client: to_client.into_iter().map(link).collect(),
        connection: Arc::clone(&connection),
    }
}
