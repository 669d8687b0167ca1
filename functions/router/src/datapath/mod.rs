//! What lanes do besides forwarding.

mod exceptions;
mod hold;

pub(crate) use exceptions::Bell;
pub use exceptions::{Entrance, PuntPort, RouterExceptions};
pub use hold::Station;
