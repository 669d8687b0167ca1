//! From a description of traffic to what the data path works from.

pub mod cable;
pub mod config;
mod payload;
mod profile;
pub mod rate;
mod recording;
mod sizes;
mod template;

pub use config::{Config, ConfigError, PatternName, TrafficSettings};
pub use payload::Payload;
pub use profile::{
    MAXIMUM_RULES, MAXIMUM_SHARES, Profile, ProfileError, Rule, RuleOrder, RuleProblem, RuleValues, Stream,
};
pub use rate::{Rate, RateError};
pub use recording::{Endpoints, Recording, Rewrite, RewriteError};
pub use sizes::{MAXIMUM_ROUND, MIXES, Sizes, SizesError};
pub use template::{ChecksumField, FCS, Field, Network, Template, TemplateError, Transport};
