//! What is decided apart from packets: what the kernel's network is, and what that means for lanes.

mod connection;
mod fib;
mod follow;
pub mod kernel;
#[cfg(test)]
mod model_tests;
mod policy;
#[cfg(test)]
mod policy_tests;
mod protocol;
mod resolve;
mod server;
mod settings;
mod verify;
#[cfg(test)]
mod vlan_tests;
mod warnings;

pub use connection::Connection;
pub use fib::Fib;
pub use follow::{FollowCounters, Follower, StartError};
pub use protocol::{Host, Question};
pub use resolve::PortSettings;
pub use server::{Server, ServerError};
pub use settings::{RouterSettings, SourceChecks, SourceChecksError};
pub use verify::Verdict;
