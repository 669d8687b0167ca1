//! The downstream of a DOCSIS cable modem termination system (CMTS) as a network function.
//!
//! - [`control`] describes a service group: modems, their service flows, channels, the tunnel to the remote PHY.
//! - [`upper`] is the upper MAC: which modem, whether it may pass, which service flow, when.
//! - [`lower`] is the lower MAC: Ethernet frames get a MAC header and a CRC, are encrypted, and leave in R-DEPI packets.
//! - [`modem`] is the other end: what a remote PHY and modems do to get the Ethernet frames back.
//! - [`keys`] holds the traffic encryption keys of both.
//!
//! It promises that a frame which one end made comes out of the other byte for byte or is counted as a drop of a named reason, that
//! no input makes it panic, and that nothing on the data path allocates, locks or calls the system. It must not know a
//! driver by name. What the specifications have and this crate doesn't is listed in docs/docsis.md.

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

pub use instance::{Downstream, DownstreamViews, InstanceError, StageCost, downstream, modems};
pub use metered::CallCountersView;
pub use roll::KeyRoller;
pub use tag::Tag;
