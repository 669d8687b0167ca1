//! Opens a port.

use super::control::{Endpoint, Membership};
use super::drops::LONGEST_PACKET;
use super::error::VhostError;
use super::negotiated::{device_does, driver_does};
use super::options::{Role, VhostOptions};
use super::receive::VhostReceive;
use super::ring::Ring;
use super::session;
use super::transmit::VhostTransmit;
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
pub struct Monitor(Weak<Endpoint>);

impl Monitor {
    /// How the connection is; `None` when the port is closed.
    pub fn status(&self) -> Option<ConnectionStatus> {
        Some(self.0.upgrade()?.connection.status())
    }

    /// What was agreed on for the ring that the driver receives by, of a pair; 0 while that isn't in use.
    pub fn features(&self, pair: usize) -> u64 {
        self.0.upgrade().and_then(|endpoint| Some(endpoint.rings.get(2 * pair)?.features())).unwrap_or(0)
    }
}

/// A port, and what can be looked at of it.
#[derive(Debug)]
pub struct VhostPort {
    /// Its queues go to lanes.
    pub port: Port,
    /// Stays.
    pub monitor: Monitor,
}

/// Opens a port with a pair of queues for each of `lanes`, unless the options say how many. Drivers come and go;
/// [`VhostOptions::wait`] waits for the first time.
///
/// # Errors
/// [`VhostError`] says what is wrong with the options or the socket, and the remedy.
pub fn open(name: &str, options: &VhostOptions, lanes: usize, pool: &Pool) -> Result<VhostPort, VhostError> {
    let address = Address::new(&options.socket, SocketType::STREAM)?;
    let pairs = options.queues.map_or(lanes.max(1), usize::from);
    if !(1..=MAXIMUM_PAIRS).contains(&pairs) {
        return Err(VhostError::Queues { queues: pairs });
    }
    let listener = match options.role {
        Role::Server => Some(Listener::new(&address)?),
        Role::Client => None,
    };
    let failed =
        |source: io::Error| SystemError::Failed { action: "start the thread of the port".to_owned(), source };
    let alarm = Event::new().map_err(failed)?;
    let rings = (0..2 * pairs).map(|_| Ring::new(&alarm).map(Arc::new)).collect::<io::Result<Vec<_>>>();
    let offered = session::offered(pairs, options.offloads);
    let endpoint = Arc::new(Endpoint {
        address,
        role: options.role,
        offered,
        rings: rings.map_err(failed)?,
        connection: Connection::default(),
        alarm,
        stop: AtomicBool::new(false),
    });
    let membership = Arc::new(Membership::start(name, Arc::clone(&endpoint), listener).map_err(failed)?);
    if options.wait > 0 && !endpoint.connection.wait(Duration::from_secs(options.wait.into())) {
        let reason = endpoint.connection.status().reason;
        return Err(VhostError::Nobody {
            socket: options.socket.clone(),
            seconds: options.wait,
            reason: if reason.is_empty() { reason } else { format!(": {reason}") },
        });
    }
    let leaves = device_does(offered);
    let pairs = endpoint.rings.chunks_exact(2);
    let receive = pairs.clone().map(|pair| {
        let queue = VhostReceive::new(pool.region(), Arc::clone(&pair[1]), leaves, Arc::clone(&membership));
        Box::new(queue) as Box<dyn ReceiveQueue>
    });
    let transmit = pairs.map(|pair| {
        let queue = VhostTransmit::new(Arc::clone(&pair[0]), Arc::clone(&membership));
        Box::new(queue) as Box<dyn TransmitQueue>
    });
    let port = Port {
        name: name.to_owned(),
        driver: "vhost",
        capabilities: Capabilities {
            maximum_frame: LONGEST_PACKET as u32,
            offloads: Offloads { leaves, transmit: driver_does(offered), ..Offloads::default() },
            ..Capabilities::default()
        },
        receive: receive.collect(),
        transmit: transmit.collect(),
    };
    Ok(VhostPort { port, monitor: Monitor(Arc::downgrade(&endpoint)) })
}
