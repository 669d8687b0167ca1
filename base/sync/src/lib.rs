//! What lanes share: rings, locks, quiescent-state RCU, a mailbox, an index stack, counters, padding.
//!
//! The bottom room beside `sys`. Between lanes stand rings of plain copyable elements with bulk (all or nothing), burst
//! (as many as fit) and in-place ends: [`spsc`] (one sends, one receives), [`mpsc`], [`mpmc`] (any number of each, with
//! variants for threads that share cores) and [`staged`] (worked on in place on the way). A [`mailbox`] carries messages
//! with destructors; [`index_stack`] hands small numbers round newest first. Locks, for what is too short to sleep over:
//! [`spin`], fair ones ([`ticket`], [`mcs`]), for many readers ([`phase_fair`], [`sequence`]). [`rcu`] lets readers use
//! what a writer replaces. [`counter`] counts without a locked instruction; [`padded`] keeps what different lanes write on
//! different cache lines.
//!
//! It promises that nothing here enters the kernel (but to yield, while it waits for a thread that may have lost its CPU)
//! or panics, that nothing allocates after construction but what RCU's writers do (to replace a value, and to leave a
//! queue behind), that each memory ordering is the weakest that is right and says which other
//! one it pairs with, and that the orderings are model-checked (`tests/loom*.rs`), stressed on real threads, and missed
//! when they are weakened (`cargo xtask mutate-orderings`).
//!
//! It must not know what a packet is, own what an element refers to, or start threads.

mod backoff;
#[cfg(not(loom))]
mod copy;
pub mod counter;
pub mod ends;
pub mod index_stack;
pub mod mailbox;
pub mod mcs;
pub mod mpmc;
pub mod mpsc;
pub mod padded;
pub mod phase_fair;
mod prefetch;
mod primitive;
pub mod rcu;
pub mod ring;
pub mod sequence;
mod shared;
pub mod side;
mod slots;
pub mod spin;
pub mod spsc;
pub mod staged;
pub mod ticket;
pub mod zero_copy;
