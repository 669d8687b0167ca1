//! The thread that keeps the connections of a program's ports, and how ports reach it.

use crate::error::MemifError;
use crate::handshake::{ClientSettings, Rings};
use crate::link::Handover;
use crate::options::Mode;
use crate::protocol::SECRET_BYTES;
use crate::worker::Worker;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use warmlane_driver_common::peer::{Address, Connection, Event, Listener};
use warmlane_mem::LaneThread;

/// What is known of a port when it is opened.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) name: String,
    pub(crate) address: Address,
    pub(crate) id: u32,
    pub(crate) secret: [u8; SECRET_BYTES],
    /// Rings in each direction.
    pub(crate) rings: u16,
    pub(crate) allow_unsealed: bool,
    /// Of a server: whether it takes a client's buffers for its own.
    pub(crate) mode: Mode,
    /// Of a client.
    pub(crate) client: Option<ClientSettings>,
}

/// A port as the control thread knows it.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) settings: Settings,
    pub(crate) receive: Vec<Arc<Handover>>,
    pub(crate) transmit: Vec<Arc<Handover>>,
    pub(crate) connection: Connection,
}

impl Endpoint {
    pub(crate) fn new(settings: Settings) -> Self {
        let handovers = || (0..settings.rings).map(|_| Arc::new(Handover::default())).collect();
        let (receive, transmit) = (handovers(), handovers());
        Self { settings, receive, transmit, connection: Connection::default() }
    }

    /// Gives the queues their rings.
    pub(crate) fn bring_up(&self, rings: Rings) {
        let Rings { to_server, to_client, .. } = rings;
        let (receive, transmit) =
            if self.settings.client.is_some() { (to_client, to_server) } else { (to_server, to_client) };
        for (handovers, links) in [(&self.receive, receive), (&self.transmit, transmit)] {
            for (handover, link) in handovers.iter().zip(links) {
                handover.replace(Some(link));
            }
        }
        self.connection.up();
    }

    /// Takes the rings away.
    pub(crate) fn take_down(&self, reason: String) {
        if self.connection.status().connected {
            for handover in self.receive.iter().chain(&self.transmit) {
                handover.replace(None);
            }
        }
        // Who sees that it is down finds no ring any more.
        self.connection.down(reason);
    }
}

/// What the thread is to do.
pub(crate) enum Command {
    Add(u64, Arc<Endpoint>, Option<Listener>),
    Remove(u64, SyncSender<()>),
    Stop,
}

/// What ports and thread share.
#[derive(Default)]
pub(crate) struct Inbox(Mutex<Vec<Command>>);

impl Inbox {
    pub(crate) fn take(&self) -> Vec<Command> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put(&self, command: Command) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(command);
    }
}

/// The thread. It ends with the last port.
pub(crate) struct Control {
    inbox: Arc<Inbox>,
    wake: Event,
    thread: Option<JoinHandle<()>>,
    next: AtomicU64,
    /// The sockets that the thread listens on, and the ids behind each.
    served: Mutex<Vec<(String, Vec<u32>)>>,
}

impl Control {
    /// Starts it.
    pub(crate) fn start() -> io::Result<Self> {
        let (inbox, wake) = (Arc::new(Inbox::default()), Event::new()?);
        let worker = Worker::new(Arc::clone(&inbox), wake.clone());
        let thread = std::thread::Builder::new().name("memif".to_owned()).spawn(|| worker.run())?;
        Ok(Self { inbox, wake, thread: Some(thread), next: AtomicU64::new(0), served: Mutex::default() })
    }

    fn tell(&self, command: Command) {
        self.inbox.put(command);
        self.wake.signal();
    }

    fn served(&self) -> MutexGuard<'_, Vec<(String, Vec<u32>)>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the connection of a port until the membership is dropped.
    ///
    /// # Errors
    /// A server's socket can't be listened on.
    pub(crate) fn add(self: &Arc<Self>, endpoint: Endpoint) -> Result<Arc<Membership>, MemifError> {
        let listener = if endpoint.settings.client.is_some() { None } else { self.serve(&endpoint)? };
        let (number, endpoint) = (self.next.fetch_add(1, Ordering::Relaxed), Arc::new(endpoint));
        self.tell(Command::Add(number, Arc::clone(&endpoint), listener));
        Ok(Arc::new(Membership { number, endpoint, control: Arc::clone(self) }))
    }

    /// A listener, unless the thread has one on this socket already.
    fn serve(&self, endpoint: &Endpoint) -> Result<Option<Listener>, MemifError> {
        let (socket, id) = (endpoint.settings.address.as_str(), endpoint.settings.id);
        let mut served = self.served();
        if let Some((_, ids)) = served.iter_mut().find(|(there, _)| there == socket) {
            if ids.contains(&id) {
                return Err(MemifError::IdInUse { socket: socket.to_owned(), id });
            }
            ids.push(id);
            return Ok(None);
        }
        let listener = Listener::new(&endpoint.settings.address)?;
        served.push((socket.to_owned(), vec![id]));
        Ok(Some(listener))
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.tell(Command::Stop);
        if let Some(thread) = self.thread.take() {
            // It doesn't panic, and if it did: it is over.
            let _ = thread.join();
        }
    }
}

/// A port's part of the control thread. Dropped, the other side is told that the port is no more.
pub(crate) struct Membership {
    number: u64,
    pub(crate) endpoint: Arc<Endpoint>,
    control: Arc<Control>,
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut served = self.control.served();
        let (sender, receiver) = sync_channel(1);
        self.control.tell(Command::Remove(self.number, sender));
        // Until then the socket file may still be there.
        let _ = receiver.recv();
        // A client waits for its buffers.
        LaneThread::let_go();
        if self.endpoint.settings.client.is_none() {
            for (socket, ids) in served.iter_mut() {
                if socket == self.endpoint.settings.address.as_str() {
                    ids.retain(|id| *id != self.endpoint.settings.id);
                }
            }
            served.retain(|(_, ids)| !ids.is_empty());
        }
    }
}
