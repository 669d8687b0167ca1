//! What a service group is made of, checked, so that the data path can't meet a number that stands for nothing.

mod error;
mod generate;
mod keys;
mod service_group;
mod settings;

pub(crate) use service_group::PEAK_BURST;

pub use error::ConfigError;
pub use generate::{Generated, generate};
pub use keys::KeySource;
pub use service_group::{
    Action, Channel, ChannelKind, Classifier, FilterGroup, FilterRule, Group, LARGEST_FRAME, Limits, Modem,
    ServiceFlow, ServiceGroup,
};
pub use settings::{ParseGroupError, parse_group};
