//! The downstream of a DOCSIS cable modem termination system (CMTS) as a network function.
//!
//! - [`lower`] is the lower MAC: Ethernet frames get a MAC header and a CRC, and are encrypted.
//! - [`modem`] is the other end: what a modem does to get the Ethernet frame back.
//! - [`keys`] holds the traffic encryption keys of both.
//!
//! It promises that a frame which one end made comes out of the other byte for byte or is counted as a drop of a named reason, that
//! no input makes it panic, and that nothing on the data path allocates, locks or calls the system. It must not know a
//! driver by name. What the specifications have and this crate doesn't is listed in docs/docsis.md.

#![forbid(unsafe_code)]

pub mod keys;
pub mod lower;
pub mod modem;
