//! A traffic generator and tester as a network function.
//!
//! - [`control`] turns a description of traffic (streams of packets by protocol, sizes, rules for fields; or a recording)
//!   into a [`Plan`](datapath::Plan).
//! - [`datapath`] sends what a plan says, exactly when it is due, each packet with a signature, and finds out at the
//!   other end what was lost, duplicated, reordered, damaged or late.
//!
//! - [`Tester`] runs trials: a sending and a receiving lane, and counts what happened.
//! - [`methods`] decide which trials to run: RFC 2544's and MLRsearch.
//!
//! It promises that every packet it sends has right lengths and checksums, that offered = sent + unsent, and that a
//! trial in which the generator itself did not keep the rate is void and says so. Nothing on the data path allocates,
//! locks or calls the system while a trial runs. It must not know a driver by name.

#![forbid(unsafe_code)]

pub mod control;
pub mod datapath;
mod judge;
mod lane;
pub mod methods;
mod result;
mod samples;
mod trial;

pub use lane::{ReceivingSide, SendingSide, pipeline};
pub use result::{Departures, Latency, Received, StreamResult, TrialResult, Unsent};
pub use samples::{Interval, Sample};
pub use trial::{Tester, TrialConfig, TrialError};
