//! The lower MAC: frames, CRCs, encryption.

mod counters;
mod delay;
mod depi;
mod explain;
mod framing;
mod reason;
mod stage;

pub use counters::{FlowDelayCounters, FlowDelayCountersView, LowerCounters, LowerCountersView};
pub use delay::ChannelDelayViews;
pub use depi::{Finished, MINIMUM_MTU, Segmenter, Tunnel, TunnelAddresses, TunnelError};
pub use framing::{Framing, LONGEST_PAYLOAD, add_header, protect};
pub use reason::LowerDrop;
pub use stage::{LowerError, LowerMac};
pub(crate) use stage::{cycles_of, first_keys};
