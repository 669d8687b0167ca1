//! Intel's 82576 (igb). In parentheses are sections of its datasheet ("Intel 82576EB Gigabit Ethernet Controller Datasheet"), which are still to be held against it: it
//! could not be had.
//!
//! Up to 16 pairs of queues, over which the card spreads flows (RSS). What it has in common with others is in [`intel`](crate::intel).

mod chip;
mod descriptor;
mod null_card;
mod queue;
mod registers;

#[cfg(any(test, fuzzing))]
mod model;
#[cfg(test)]
mod tests;

pub(crate) use chip::Igb;
pub use null_card::{NullCard, NullCardPort};

/// The 82576 with copper, which QEMU's `igb` is, with four ports of copper (twice), and the 82576NS with copper.
pub(crate) const DEVICES: [u16; 4] = [0x10c9, 0x10e8, 0x1526, 0x150a];
