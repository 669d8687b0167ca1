//! Queues over rings: packets are copied out of the other side's buffers, or into them, by either side of rings of either format; but for those in buffers of a pool
//! that a device reaches (`driver::pool`).

mod collector;
pub(crate) mod device;
pub(crate) mod doorbell;
pub(crate) mod driver;
pub(crate) mod drops;
pub(crate) mod inflight;
pub(crate) mod look;
pub(crate) mod notify;
pub(crate) mod receive;
mod recovery;
pub(crate) mod ring;
pub(crate) mod side;
pub(crate) mod sides;
pub(crate) mod transmit;

#[cfg(test)]
mod suppression_model;
