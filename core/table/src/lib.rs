//! Longest-prefix-match tables for IPv4 and IPv6, and exact match
//!
//! A table maps prefixes to next-hop numbers and finds, for an address, the number of the longest prefix around it.
//! Data paths ask for a whole burst at once ([`Ipv4Table::lookup_burst`], [`Ipv6Table::lookup_burst`]); the control
//! side inserts and removes routes one by one or builds a table from all of them.
//!
//! It promises that every kernel (portable and vector code alike) gives the same answers, that a change which fails
//! leaves the table as it was, and that removing all routes gives their memory back: with readers, once they have
//! reported and [`Ipv4Table::reclaim`] or [`Ipv6Table::reclaim`] was called.
//!
//! It must not know what a next hop is, read packets, or talk to the kernel: that is the forwarder's work.

mod arena;
mod error;
mod exact;
mod hop;
mod ipv4;
mod ipv6;
mod methods;
mod prefix;
mod rib;
mod work;

pub use error::TableError;
pub use exact::{ExactBurstError, ExactError, ExactKey, ExactReader, ExactTable, KeyWords, NO_VALUE, Sweep};
pub use hop::NextHopId;
pub use ipv4::{Ipv4Lookup, Ipv4Table, Ipv4View};
pub use ipv6::{Ipv6Lookup, Ipv6Table, Ipv6View};
pub use prefix::{Address, IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix, PrefixError};
