//! What lanes share: rings, a mailbox, RCU, a lock.
//!
//! | to | use |
//! |---|---|
//! | send elements from one lane to another, or between several | [`spsc`], [`mpmc`] |
//! | send messages that have destructors | [`mailbox`] |
//! | replace what other lanes read | [`rcu`] |
//! | pass small numbers around, newest first | [`index_stack`] |
//! | lock for a moment, off the data path | [`spin`] |
//! | keep what different lanes write on different cache lines | [`padded`] |
//! | ask for a cache line before it is used | [`prefetch`] |
//!
//! Rings hold plain copyable elements. They push and pop in bulk (all or nothing) and in bursts (as many as fit), and some
//! work in place ([`zero_copy`]). [`ends`] and [`side`] are what they are made of; [`extra`] has more rings and locks.
//!
//! Nothing here panics, or enters the kernel except to yield while it waits for a thread that may have lost its CPU.
//! After construction only RCU's writers allocate. Each memory ordering is the weakest that is correct and names the one
//! it pairs with. The orderings are model-checked (`tests/loom*.rs`) and stressed on real threads, and a test fails when
//! one is weakened (`cargo xtask mutate-orderings`).
//!
//! The bottom crate. It must not know what a packet is, own what an element refers to, or start threads.

mod backoff;
#[cfg(not(loom))]
mod copy;
pub mod ends;
pub mod extra;
pub mod index_stack;
mod lock;
pub mod mailbox;
pub mod mpmc;
pub mod padded;
pub mod prefetch;
mod primitive;
pub mod rcu;
pub mod ring;
mod shared;
pub mod side;
mod slots;
pub mod spin;
pub mod spsc;
pub mod zero_copy;
