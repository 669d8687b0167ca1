//! Rings and locks for special cases, and for comparing with: the data path uses none of them.
//!
//! They keep the same promises as the rest of the crate, and have models of their own.
//!
//! | take | when |
//! |---|---|
//! | [`HtsRing`], [`RtsRing`] | an [`mpmc::Ring`](crate::mpmc::Ring) has to work in place, or no push may wait for another |
//! | [`mpsc`] | several lanes feed one, which looks at elements in place |
//! | [`staged`] | several lanes work on the same elements in turn, in place and in order |
//! | [`sequence`] | a few words change together, and readers must not write |
//! | [`phase_fair`] | a lock has mostly readers, and writers must not starve |
//! | [`ticket`] | a lock has to serve its threads in turn |
//! | [`mcs`] | many threads contend for one lock |

mod head_tail;
pub mod mcs;
pub mod mpsc;
pub mod phase_fair;
mod relaxed_tail;
mod rings;
pub mod sequence;
pub mod staged;
pub mod ticket;

pub use head_tail::HeadTail;
pub use relaxed_tail::RelaxedTail;
pub use rings::{HtsRing, RtsRing};
