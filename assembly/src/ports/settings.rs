//! What a port is opened with.

use super::{DriverSettings, ParsePortError};
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// A port, by name.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PortSettings {
    /// Its name, unique in the program.
    pub name: String,
    /// Its driver, with the driver's options.
    pub driver: DriverSettings,
}

/// From `NAME=DRIVER` or `NAME=DRIVER:OPTIONS`.
impl FromStr for PortSettings {
    type Err = ParsePortError;

    fn from_str(text: &str) -> Result<Self, ParsePortError> {
        match text.split_once('=') {
            Some((name, driver)) if !name.is_empty() => {
                Ok(Self { name: name.to_owned(), driver: driver.parse()? })
            }
            _ => Err(ParsePortError::Form { text: text.to_owned() }),
        }
    }
}
