//! What lanes do besides forwarding.

mod held;
mod hold;
mod punt;
mod tunnels;
mod waker;

pub use held::{HoldLimits, NeighbourKey};
pub use hold::Hold;
pub use punt::{Entrance, Entrances, Punt, PuntDrop};
pub(crate) use tunnels::{AllCounts, Tunnels};
pub use tunnels::{TunnelCounters, TunnelCountersView, TunnelEnds};
pub(crate) use waker::Waker;
