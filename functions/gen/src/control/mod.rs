//! From a description of traffic to what the data path works from.

pub mod cable;
mod config;
mod payload;
mod profile;
pub mod rate;
mod recording;
mod sizes;
mod template;

pub use config::{Config, ConfigError, PatternName, Place};
pub use payload::Payload;
pub use profile::{
    MAXIMUM_RULES, MAXIMUM_SHARES, Profile, ProfileError, Rule, RuleOrder, RuleProblem, RuleValues, Stream,
};
pub use rate::{Rate, RateError};
pub use recording::{Recording, Rewrite, RewriteError, Stations};
pub use sizes::{MAXIMUM_ROUND, MIXES, Sizes, SizesError};
pub use template::{ChecksumPlace, FCS, Field, Network, Template, TemplateError, Transport};
