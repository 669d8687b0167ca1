//! What the upper MAC tells the lower one of a packet, in the packet's own bytes.

use warmlane_mem::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Fits the application's bytes of a buffer's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[zerocopy(crate = "warmlane_mem::zerocopy")]
#[repr(C)]
pub struct Tag {
    /// The service flow.
    pub flow: u32,
    /// The packet's number in its flow.
    pub sequence: u16,
    /// The channel that it is sent by.
    pub channel: u16,
}
