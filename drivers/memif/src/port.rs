//! Opens a port.

use crate::control::{Control, Endpoint, Settings};
use crate::drops::LONGEST_PACKET;
use crate::error::MemifError;
use crate::handshake::ClientSettings;
use crate::options::{MemifOptions, Mode, Role};
use crate::own::Plan;
use crate::protocol::padded_secret;
use crate::receive::MemifReceive;
use crate::ring;
use crate::transmit::MemifTransmit;
use rustix::net::SocketType;
use std::sync::{Arc, Weak};
use std::time::Duration;
use warmlane_driver_common::SystemError;
use warmlane_driver_common::peer::{Address, ConnectionStatus};
use warmlane_mem::Pool;
use warmlane_port::{Capabilities, Port, ReceiveQueue, TransmitQueue};

/// What the ports of a program have in common: the thread that keeps their connections.
#[derive(Default)]
pub struct Connector(Weak<Control>);

impl Connector {
    fn control(&mut self) -> Result<Arc<Control>, MemifError> {
        if let Some(control) = self.0.upgrade() {
            return Ok(control);
        }
        let failed = |source| SystemError::Failed { action: "start the memif thread".to_owned(), source };
        let control = Arc::new(Control::start().map_err(failed)?);
        self.0 = Arc::downgrade(&control);
        Ok(control)
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Connector").finish_non_exhaustive()
    }
}

/// What can be looked at while a port's queues are with their lanes.
#[derive(Clone, Debug)]
pub struct Monitor(Weak<Endpoint>);

impl Monitor {
    /// How the connection is; `None` when the port is closed.
    pub fn status(&self) -> Option<ConnectionStatus> {
        Some(self.0.upgrade()?.connection.status())
    }
}

/// A port, and what can be looked at of it.
#[derive(Debug)]
pub struct MemifPort {
    /// Its queues go to lanes.
    pub port: Port,
    /// Stays.
    pub monitor: Monitor,
}

/// Opens a port with a queue for each of `lanes` in each direction, unless the options say how many. It connects, and connects again,
/// by itself; [`MemifOptions::wait`] waits for the first time.
///
/// # Errors
/// [`MemifError`] says what is wrong with the options or the socket, and the remedy.
pub fn open(
    name: &str,
    options: &MemifOptions,
    lanes: usize,
    pool: &Pool,
    connector: &mut Connector,
) -> Result<MemifPort, MemifError> {
    let endpoint = Endpoint::new(settings(name, options, lanes, pool)?);
    let membership = connector.control()?.add(endpoint)?;
    let endpoint = &membership.endpoint;
    if options.wait > 0 && !endpoint.connection.wait(Duration::from_secs(options.wait.into())) {
        let reason = endpoint.connection.status().reason;
        return Err(MemifError::Nobody {
            socket: options.socket.clone(),
            id: options.id,
            seconds: options.wait,
            reason: if reason.is_empty() { reason } else { format!(": {reason}") },
        });
    }
    let receive = endpoint.receive.iter().map(|handover| {
        let queue = MemifReceive::new(pool.region(), Arc::clone(handover), Arc::clone(&membership));
        Box::new(queue) as Box<dyn ReceiveQueue>
    });
    let transmit = endpoint.transmit.iter().map(|handover| {
        let (handover, membership) = (Arc::clone(handover), Arc::clone(&membership));
        let queue = MemifTransmit::new(pool.region(), options.buffer_size, handover, membership);
        Box::new(queue) as Box<dyn TransmitQueue>
    });
    let port = Port {
        name: name.to_owned(),
        driver: "memif",
        capabilities: Capabilities { maximum_frame: LONGEST_PACKET as u32, ..Capabilities::default() },
        receive: receive.collect(),
        transmit: transmit.collect(),
    };
    Ok(MemifPort { port, monitor: Monitor(Arc::downgrade(endpoint)) })
}

fn settings(name: &str, options: &MemifOptions, lanes: usize, pool: &Pool) -> Result<Settings, MemifError> {
    let MemifOptions { ring_size, buffer_size, .. } = *options;
    let address = Address::new(&options.socket, SocketType::SEQPACKET)?;
    let word = options.secret.as_deref().unwrap_or_default();
    let wrong_secret = || MemifError::Secret { length: word.len() };
    let secret = padded_secret(word).ok_or_else(wrong_secret)?;
    if options.secret.is_some() && secret[0] == 0 {
        return Err(wrong_secret());
    }
    let queues = options.queues.map_or(lanes.max(1), usize::from);
    let rings = u16::try_from(queues).ok().filter(|rings| (1..=255).contains(rings));
    let rings = rings.ok_or(MemifError::Queues { queues })?;
    if !ring_size.is_power_of_two() || !(2..=1 << ring::LONGEST).contains(&ring_size) {
        return Err(MemifError::RingSize { size: ring_size });
    }
    if !(64..=65_472).contains(&buffer_size) {
        return Err(MemifError::BufferSize { size: buffer_size });
    }
    let region = pool.region();
    if options.mode == Mode::ZeroCopy && u32::try_from(region.length()).is_err() {
        return Err(MemifError::PoolSize { bytes: region.length() });
    }
    let plan = Plan {
        to_server: rings,
        to_client: rings,
        log2_size: ring_size.trailing_zeros() as u8,
        buffer_size,
        mode: options.mode,
    };
    let client = ClientSettings { interface: name.to_owned(), id: options.id, secret, plan, pool: region };
    Ok(Settings {
        name: name.to_owned(),
        address,
        id: options.id,
        secret,
        rings,
        allow_unsealed: options.allow_unsealed,
        mode: options.mode,
        client: (options.role == Role::Client).then_some(client),
    })
}
