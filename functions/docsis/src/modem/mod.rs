//! The other end: what a modem does to MAC frames.

mod decode;
mod reason;

pub use decode::{Decoded, decode};
pub use reason::ModemDrop;
