//! What happens to each packet.

mod counters;
mod fast;
mod flow_hash;
mod forward;
mod fragment;
mod icmp_error;
mod local;
mod odd;
mod rate_limit;
mod reason;
mod source_check;
mod validate;

pub use counters::ForwardCounters;
pub use forward::{Forwarder, Outputs, Punted};
pub use rate_limit::TokenBucket;
pub use reason::Reason;
