//! What happens to each packet.

mod copies;
mod counters;
mod eight;
mod examine;
mod explain;
mod fast;
mod flows;
mod forward;
mod fragment;
mod icmp_error;
mod local;
mod rate_limit;
mod reason;
mod rewrite;
mod scratch;
mod shown;
mod slow_path;
mod source_check;
mod tagged;
mod validate;

pub use counters::{ForwardCounters, ForwardCountersView};
pub use forward::Forwarder;
pub use rate_limit::TokenBucket;
pub use reason::Reason;
pub use slow_path::mark_of_table;
