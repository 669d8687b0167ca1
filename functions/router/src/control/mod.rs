//! What is decided apart from packets: what the kernel's network is, and what that means for lanes.

mod affected;
mod desired;
mod fib;
mod follow;
#[cfg(test)]
mod gone_tests;
mod hook_watch;
pub mod kernel;
mod lane_tables;
pub(crate) mod local;
#[cfg(test)]
mod model_tests;
mod next_hops;
mod policy;
#[cfg(test)]
mod policy_tests;
mod protocol;
mod route_list;
mod settings;
pub(crate) mod tunnels;
mod verify;
#[cfg(test)]
mod vlan_tests;
mod warnings;

pub use desired::RoutedPort;
pub use fib::Fib;
pub use follow::{FollowError, Follower, KernelCounters, KernelCountersView};
pub use protocol::{Host, Request, RouterAnswers};
pub use route_list::RouteList;
pub use settings::{RouterSettings, SourceChecks};
pub use tunnels::LocalEnd;
pub use verify::{Comparison, Reference};
