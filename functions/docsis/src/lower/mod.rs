//! The lower MAC: frames, CRCs, encryption.

mod framing;
mod reason;

pub use framing::{Framing, LONGEST_PAYLOAD, add_header, protect};
pub use reason::LowerDrop;
