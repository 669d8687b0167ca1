//! Fixtures for tests: traffic, network namespaces, processes and their reports.
//!
//! - [`traffic`] makes capture files that a router chews on; [`bytes`] writes the packets in them, [`capture`] the files.
//! - [`oracle`] asks other people's programs what is right.
//! - [`namespace`] makes network namespaces and the links between them, and takes them away again.
//! - [`process`] runs programs, the `warmlane` command above all, and reads what they say.
//! - [`queues`] are ports' queues without a port, for what stands between them.
//! - [`testpmd`] is DPDK's, to talk to.
//! - [`exchange`] sends packets through a port and compares them.
//! - [`hostile`] is for tests of other sides that lie.
//! - [`requirements`] says loudly what is skipped for want of what; [`promise`] checks figures that only an idle machine can keep.
//!
//! It promises that whatever it made is gone when a test ends, also one that fails, and that it uses none of the code
//! under test to say what is right. It must not decide what a test expects.

#![forbid(unsafe_code)]

pub mod bytes;
pub mod capture;
pub mod exchange;
pub mod hostile;
pub mod namespace;
pub mod oracle;
pub mod process;
pub mod promise;
pub mod queues;
mod report;
pub mod requirements;
pub mod testpmd;
pub mod traffic;

pub use report::Report;
