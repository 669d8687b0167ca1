//! Ports over rings, of either side of the protocol.

use crate::connection::control::{Endpoint, Introduce, Membership};
use crate::connection::role::Role;
use crate::error::VirtioError;
use crate::queue::drops::LONGEST_PACKET;
use crate::queue::receive::RingReceive;
use crate::queue::ring::{PortEnd, Ring};
use crate::queue::sides::RingSide;
use crate::queue::transmit::RingTransmit;
use rustix::net::SocketType;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;
use warmlane_driver_common::SystemError;
use warmlane_driver_common::peer::{Address, Connection, ConnectionStatus, Event, Listener};
use warmlane_mem::Pool;
use warmlane_port::{Capabilities, Offloads, Port, ReceiveQueue, TransmitQueue};

/// Pairs of rings, at most: a message names one of 256 rings.
const MAXIMUM_PAIRS: usize = 128;

/// What can be looked at while a port's queues are with their lanes.
#[derive(Clone, Debug)]
pub struct Monitor {
    endpoint: Weak<Endpoint>,
    rings: Vec<Weak<Ring>>,
}

impl Monitor {
    /// How the connection is; `None` when the port is closed.
    pub fn status(&self) -> Option<ConnectionStatus> {
        Some(self.endpoint.upgrade()?.connection.status())
    }

    /// What was agreed on for a pair of rings; 0 until both are in use.
    pub fn features(&self, pair: usize) -> u64 {
        let rings = self.rings.chunks_exact(2).nth(pair).into_iter().flatten();
        let features = rings.map(|ring| ring.upgrade().map_or(0, |ring| ring.features()));
        features.reduce(|one, other| one & other).unwrap_or(0)
    }
}

/// A port, and what can be looked at of it.
#[derive(Debug)]
pub struct VirtioPort {
    /// Its queues go to lanes.
    pub port: Port,
    /// Stays.
    pub monitor: Monitor,
}

/// What a port is made of.
pub(crate) struct Plan<'a> {
    pub(crate) name: &'a str,
    pub(crate) driver: &'static str,
    /// What the other side is.
    pub(crate) peer: &'static str,
    pub(crate) ring_side: RingSide,
    pub(crate) socket: &'a str,
    pub(crate) role: Role,
    pub(crate) queues: Option<u16>,
    pub(crate) lanes: usize,
    /// Seconds.
    pub(crate) wait: u32,
}

impl Plan<'_> {
    /// How many pairs of rings the port has.
    ///
    /// # Errors
    /// [`VirtioError::Queues`].
    pub(crate) fn pairs(&self) -> Result<usize, VirtioError> {
        let pairs = self.queues.map_or(self.lanes.max(1), usize::from);
        if (1..=MAXIMUM_PAIRS).contains(&pairs) {
            Ok(pairs)
        } else {
            Err(VirtioError::Queues { queues: pairs })
        }
    }

    /// Opens the port. `offered` are features that this side can have; `introduce` makes what begins a connection, for these
    /// rings, of each pair first the one that the driver receives by.
    ///
    /// # Errors
    /// [`VirtioError`] says what is wrong with the options or the socket, and the remedy.
    pub(crate) fn open(
        self,
        pool: &Pool,
        offered: u64,
        introduce: impl FnOnce(Vec<Arc<Ring>>, &Event) -> Box<Introduce>,
    ) -> Result<VirtioPort, VirtioError> {
        let Plan { name, driver, peer, ring_side, socket, role, wait, .. } = self;
        let address = Address::new(socket, SocketType::STREAM)?;
        let pairs = self.pairs()?;
        let listener = match role {
            Role::Server => Some(Listener::new(&address)?),
            Role::Client => None,
        };
        let action = "start the thread of the port";
        let failed = |source: io::Error| SystemError::Failed { action: action.to_owned(), source };
        let alarm = Event::new().map_err(failed)?;
        let rings = (0..2 * pairs).map(|_| Ring::new(&alarm).map(Arc::new)).collect::<io::Result<Vec<_>>>();
        let rings = rings.map_err(failed)?;
        let endpoint = Arc::new(Endpoint {
            address,
            role,
            introduce: introduce(rings.clone(), &alarm),
            connection: Connection::default(),
            alarm,
            stop: AtomicBool::new(false),
        });
        let membership = Membership::start(driver, name, Arc::clone(&endpoint), listener).map_err(failed)?;
        let end: PortEnd = Arc::new(membership);
        if wait > 0 && !endpoint.connection.wait(Duration::from_secs(wait.into())) {
            let reason = endpoint.connection.status().reason;
            return Err(VirtioError::Nobody {
                who: peer,
                socket: socket.to_owned(),
                seconds: wait,
                reason: if reason.is_empty() { reason } else { format!(": {reason}") },
            });
        }
        let port = over_rings((name, driver), pool, &rings, (ring_side, offered), &end);
        let rings = rings.iter().map(Arc::downgrade).collect();
        Ok(VirtioPort { port, monitor: Monitor { endpoint: Arc::downgrade(&endpoint), rings } })
    }
}

/// A port over pairs of rings, of which the driver receives by the first and sends by the second. `features` are those that can be agreed on;
/// `end` is dropped with the last of its queues.
pub(crate) fn over_rings(
    (name, driver): (&str, &'static str),
    pool: &Pool,
    rings: &[Arc<Ring>],
    (ring_side, features): (RingSide, u64),
    end: &PortEnd,
) -> Port {
    let leaves = ring_side.peer_leaves(features);
    let (ours, theirs) = match ring_side {
        RingSide::Device => (0, 1),
        RingSide::Driver => (1, 0),
    };
    let pairs = rings.chunks_exact(2);
    let receive = pairs.clone().map(|pair| {
        let (ring, end) = (Arc::clone(&pair[theirs]), PortEnd::clone(end));
        Box::new(RingReceive::new(pool.region(), ring, (ring_side, leaves), end)) as Box<dyn ReceiveQueue>
    });
    let transmit = pairs.map(|pair| {
        let (ring, end) = (Arc::clone(&pair[ours]), PortEnd::clone(end));
        Box::new(RingTransmit::new(ring, ring_side, end)) as Box<dyn TransmitQueue>
    });
    Port {
        name: name.to_owned(),
        driver,
        capabilities: Capabilities {
            maximum_frame: LONGEST_PACKET as u32,
            offloads: Offloads { leaves, transmit: ring_side.peer_does(features), ..Offloads::default() },
            ..Capabilities::default()
        },
        receive: receive.collect(),
        transmit: transmit.collect(),
    }
}
