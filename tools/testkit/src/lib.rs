//! Fixtures for tests: traffic, network namespaces, processes and their reports.
//!
//! - [`traffic`] makes capture files with all kinds of packets for a router; [`bytes`] writes the packets in them, [`capture`] the files.
//! - [`oracle`] asks independent programs for the right answer.
//! - [`namespace`] makes network namespaces and the links between them, and takes them away again.
//! - [`process`] runs programs, the `warmlane` command above all, and reads what they say.
//! - [`queues`] are queues without a port, to test stages between them.
//! - [`testpmd`] runs DPDK's testpmd as the peer of a port.
//! - [`exchange`] sends packets through a port and compares them.
//! - [`test_lane`] is what a test of a port to another process has; [`hostile`] helps where that one lies.
//! - [`requirements`] says loudly what is skipped, and why; [`promise`] checks figures that only an idle machine can keep.
//!
//! Promises: whatever it made is gone when a test ends, even if the test fails; it uses none of the code under test to say what is
//! right. Must not: decide what a test expects.

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
pub mod test_lane;
pub mod testpmd;
pub mod traffic;

pub use report::Report;
