//! What the machine is, and what it gives to a data plane.
//!
//! At the bottom of all: huge-page and shared memory ([`pages`]), the shape of processors, caches
//! and NUMA nodes ([`topology`]), pinning ([`affinity`]), priority ([`priority`]), frequency ([`frequency`]), a thread's time ([`cpu_time`]), the cycle counter ([`clock`]), vector
//! instruction levels ([`simd`]) and work done with them ([`vector`], [`mod@copy`]), cache-line hints ([`prefetch`]), barriers of which one side pays for both
//! ([`barrier`]), events ([`event`]), rests without a system call ([`mod@rest`]), random numbers ([`random`]), what control
//! groups let a process have ([`cgroup`]), energy ([`energy`]), shares of the cache
//! ([`resctrl`]), and the
//! facts that a measurement must carry
//! ([`machine`]).
//!
//! It promises that nothing here needs privilege: what can't be had is an error that names the remedy, or a
//! stated fallback; and that a missing file under `/sys` or `/proc` (containers, small virtual machines) is a
//! missing value, never a failure. All the operating-system calls that the crates above need for these things are
//! made here, behind safe functions.
//!
//! It must not know what a packet is, choose a policy (which CPU, which stride), or print.
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
pub mod cgroup;
pub mod clock;
pub mod copy;
pub mod cpu_time;
#[cfg(target_arch = "x86_64")]
mod cpuid;
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
pub mod simd;
#[cfg(test)]
mod skipped;
pub mod socket_option;
mod text;
pub mod topology;
pub mod vector;

pub use text::format_list;
pub use warmlane_sync::prefetch;
