//! The description of traffic: settings, which a file or a program fills, and what they come to once they are checked.

mod check;
mod settings;

use warmlane_settings::{SettingsError, from_toml};

pub use self::settings::{
    CableSettings, EthernetSettings, FieldValue, IcmpSettings, Ipv4Settings, Ipv6Settings, PacketSettings,
    StreamSettings, TcpSettings, TrafficSettings, UdpSettings, VarySettings, VlanSettings, VxlanSettings,
};
use super::profile::Profile;
use super::rate::Rate;

/// Traffic: what to send and how fast.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The streams.
    pub profile: Profile,
    /// How fast, if the text says so.
    pub rate: Option<Rate>,
    /// When packets leave, if the text says so.
    pub pattern: Option<PatternName>,
}

/// A pattern of departures by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatternName {
    /// Evenly spaced.
    Constant,
    /// Exponential gaps.
    Poisson,
    /// This many at once.
    Bursts(u32),
}

/// What is wrong with a description, where, and what was expected.
pub type ConfigError = SettingsError<String>;

impl Config {
    /// Reads a description; the frames it describes were built once, so it can be sent.
    ///
    /// # Errors
    /// [`ConfigError`]: the first thing that is wrong, with its place.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let settings: TrafficSettings = from_toml(text)?;
        settings.check().map_err(|fault| fault.in_text(text))
    }
}

impl std::str::FromStr for PatternName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bursts = |text: &str| text.parse().ok().filter(|bursts| (1..=65_536).contains(bursts));
        match text {
            "constant" => Ok(Self::Constant),
            "poisson" => Ok(Self::Poisson),
            _ => text.strip_prefix("bursts:").and_then(bursts).map(Self::Bursts).ok_or_else(|| {
                format!(
                    "\"{text}\" is no pattern: expected constant, poisson, or bursts:N with N from 1 to 65536"
                )
            }),
        }
    }
}
