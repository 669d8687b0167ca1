//! What Intel's 82574 and 82576 have in common: registers, rings of descriptors of 16 bytes, and ports on them.
//!
//! Each queue of a port is over rings and buffers in memory that nobody else uses: packets are copied, as on virtio rings. So a card that writes what or where it
//! shouldn't reaches no packet of ours, and what it says of a buffer is checked before it is used. With `zero-copy` it reaches the pool (`lent`), and is trusted not to.
//!
//! A card is a type that implements `chip::Chip` and one that implements `queue::Queue`.

pub(crate) mod chip;
pub(crate) mod counters;
pub(crate) mod descriptor;
mod drops;
pub(crate) mod lent;
mod look;
pub(crate) mod memory;
mod port;
pub(crate) mod queue;
pub(crate) mod receive;
pub(crate) mod registers;
mod requested;
pub(crate) mod rings;
mod segmentation;
pub(crate) mod transmit;

#[cfg(any(test, fuzzing))]
pub mod liar;
#[cfg(any(test, fuzzing))]
pub(crate) mod model;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use port::open;

/// Intel (PCI Code and ID Assignment).
pub(crate) const VENDOR: u16 = 0x8086;
