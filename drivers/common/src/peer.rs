//! Another process that shares memory with this one: its socket, its events, its memory. It may be hostile.

mod lost_memory;
mod memory;
mod socket;
mod status;

pub use memory::{Extent, MappingError, PeerMapping, shared, shared_mut};
pub use socket::{Address, Listener, SocketError, connect};
pub use status::{Connection, ConnectionStatus};
pub use warmlane_sys::event::Event;
