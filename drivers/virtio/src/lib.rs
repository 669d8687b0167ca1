//! Rings of virtio, and ports over them.
//!
//! [`ring`] has both formats of rings as they lie in memory, for either side; [`features`] what the sides agree on; [`protocol`] the messages of
//! vhost-user, by which another process lends its memory and its rings.
//!
//! Must not: know what the packets are for.

pub mod features;
pub mod protocol;
pub mod ring;
