//! Intel's 82574 (e1000e), by its datasheet: "Intel 82574 GbE Controller Family Datasheet", revision 3.4. Sections of that are in parentheses.
//!
//! One queue each way, over rings and buffers in memory that nobody else uses: packets are copied, as on virtio rings. So a card that writes what or where it
//! shouldn't reaches no packet of ours, and what it says of a buffer is checked before it is used.

mod chip;
mod counters;
mod descriptor;
mod drops;
pub mod look;
mod memory;
mod port;
mod receive;
mod registers;
mod rings;
mod segmentation;
mod transmit;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

pub(crate) use port::open;

/// Intel (PCI Code and ID Assignment).
pub(crate) const VENDOR: u16 = 0x8086;

/// The 82574L, which QEMU's `e1000e` is, and the 82574IT.
pub(crate) const DEVICES: [u16; 2] = [0x10d3, 0x10f6];
