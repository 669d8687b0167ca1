//! The downstream of a DOCSIS cable modem termination system (CMTS) as a network function.
//!
//! - [`control`] describes a service group: modems, their service flows, channels, the tunnel to the remote PHY.
//! - [`upper`] is the upper MAC: it finds the modem, filters, classifies into service flows and schedules.
//! - [`lower`] is the lower MAC: Ethernet frames get a MAC header and a CRC, are encrypted, and leave in R-DEPI packets.
//! - [`modem`] is the other end: a remote PHY and modems, which recover the Ethernet frames.
//! - [`keys`] holds the traffic encryption keys of both.
//!
//! Promises: a frame leaves the other end byte for byte as it came, or is counted as a drop under a named reason; no input makes it
//! panic; nothing on the data path allocates, locks or calls the system. Must not: know a driver by name. docs/docsis.md lists what of
//! the specifications is missing.

#![forbid(unsafe_code)]

pub mod control;
mod instance;
pub mod keys;
pub mod lower;
mod metered;
pub mod modem;
mod outbox;
mod roll;
mod tag;
pub mod upper;

pub use instance::{Downstream, DownstreamViews, InstanceError, Queues, StageCost, downstream, modems};
pub use metered::CallCountersView;
pub use roll::KeyRoller;
pub use tag::Tag;
