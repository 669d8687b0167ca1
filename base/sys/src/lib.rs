//! What the machine is, and what it gives to a data plane.
//!
//! The bottom room: huge-page and shared memory ([`pages`]), the shape of processors, caches
//! and NUMA nodes ([`topology`]), pinning ([`affinity`]), the cycle counter ([`clock`]), vector instruction
//! levels ([`simd`]), cache-line hints ([`prefetch`]), and the facts that a measurement must carry
//! ([`machine`]).
//!
//! It promises that nothing here needs privilege: what can't be had is an error that names the remedy, or a
//! stated fallback; and that a missing file under `/sys` or `/proc` (containers, small virtual machines) is a
//! missing value, never a failure. All the operating-system calls that later rooms need for these things are
//! made here, behind safe functions.
//!
//! It must not know what a packet is, choose a policy (which CPU, which stride), or print.

pub mod affinity;
pub mod clock;
#[cfg(target_arch = "x86_64")]
mod cpuid;
pub mod huge_pages;
pub mod machine;
mod memory;
pub mod pages;
pub mod prefetch;
pub mod simd;
mod text;
pub mod topology;
