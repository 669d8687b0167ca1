//! The other end: what a modem does to MAC frames.

mod counters;
mod decode;
mod explain;
mod reason;
mod reassembly;
mod resequence;
mod stage;

pub use counters::{ModemCounters, ModemCountersView};
pub use decode::{Decoded, decode};
pub use reason::ModemDrop;
pub use reassembly::{Progress, Reassembler};
pub use resequence::{Resequenced, Resequencer};
pub use stage::Modems;
