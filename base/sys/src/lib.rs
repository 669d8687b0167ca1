//! The machine: its shape, and what a data plane needs from it.
//!
//! - What it is: processors, caches and NUMA nodes ([`topology`]), vector instruction levels ([`simd`]), the limits of control groups
//!   ([`cgroup`]), and the description that goes with a measurement ([`machine`]).
//! - Memory: huge pages and shared memory ([`pages`]), prefetching ([`prefetch`]), shares of the cache ([`resctrl`]).
//! - Threads: pinning ([`affinity`]), priority ([`priority`]), CPU time ([`cpu_time`]), asymmetric barriers ([`barrier`]), events
//!   ([`event`]), pauses without a system call ([`mod@rest`]).
//! - Devices: memory and registers in order ([`device_order`]).
//! - Time and power: the cycle counter ([`clock`]), frequency ([`frequency`]), energy ([`energy`]); instructions where a program is
//!   counted ([`callgrind`]).
//! - Work: with vector instructions ([`vector`], [`mod@copy`], [`mod@sum`], [`bit_matrix`]), random numbers ([`random`]).
//!
//! Promises: nothing here needs privileges; what isn't available is an error that names the remedy, or a fallback that says so. A
//! missing file under `/sys` or `/proc` (in containers or small virtual machines) is a missing value, never a failure. The crates above
//! make no system calls of their own for any of this; it is done here, behind safe functions.
//!
//! Must not: know what a packet is, choose a policy (which CPU, which stride), or print.
//!
//! ```
//! use warmlane_sys::pages::{Mapping, MappingRequest, PagePreference};
//! use warmlane_sys::{affinity, topology::Topology};
//!
//! let topology = Topology::read()?;
//! // First the CPU, then the memory: it comes from the NUMA node that the thread runs on.
//! let cpu = affinity::allowed_cpus()?[0];
//! affinity::pin_current_thread(cpu)?;
//! let request = MappingRequest { name: "buffers".into(), length: 4 << 20, pages: PagePreference::Best };
//! let memory = Mapping::new(&request)?;
//! if let Some(sentence) = memory.fallback() {
//!     eprintln!("{sentence}");
//! }
//! let cache = topology.cpu(cpu).and_then(|cpu| cpu.data_cache(2));
//! println!("{} on {}, beside {cache:?}", memory.length(), memory.page_size());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod affinity;
pub mod barrier;
pub mod bit_matrix;
pub mod callgrind;
pub mod cgroup;
pub mod clock;
pub mod copy;
pub mod cpu_time;
#[cfg(target_arch = "x86_64")]
mod cpuid;
pub mod crc32c;
pub mod device_order;
pub mod energy;
pub mod event;
pub mod frequency;
pub mod huge_pages;
pub mod machine;
pub mod memory;
pub mod pages;
pub mod priority;
pub mod random;
pub mod resctrl;
pub mod rest;
mod scheduling;
pub mod simd;
#[cfg(test)]
mod skipped;
pub mod socket_option;
pub mod sum;
mod text;
pub mod topology;
pub mod tracepoints;
pub mod vector;

pub use text::{format_list, parse_list};
pub use warmlane_sync::prefetch;
