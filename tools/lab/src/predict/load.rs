//! How many packets of which sizes come in a second.

use thiserror::Error;
use warmlane_gen::control::{Rate, RateError, Sizes, SizesError};

/// Gbit/s of the fastest Ethernet port there is (IEEE 802.3df-2024).
const FASTEST_PORT: f64 = 800.0;

/// A load that can't be.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// It is no rate, or more than a core counts.
    #[error(transparent)]
    Rate(#[from] RateError),
    /// It depends on a line that nobody has named.
    #[error("'{0}' is no rate here: say Gbit/s, as in 10, or packets a second, as in 2.5Mpps")]
    Unbounded(String),
    /// No ports carry it.
    #[error(
        "{gbps:.0} Gbit/s for {ports} port(s): the fastest Ethernet carries {FASTEST_PORT} Gbit/s, so no machine has that"
    )]
    NoPort {
        /// What was asked for.
        gbps: f64,
        /// Ports that packets come in by.
        ports: usize,
    },
    /// They are no sizes.
    #[error(transparent)]
    Sizes(#[from] SizesError),
}

/// Packets that come.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// As it was asked for: a mix's name, or sizes.
    pub frames: String,
    /// Their sizes.
    pub sizes: Sizes,
    /// A second, by all ports of one instance.
    pub packets_per_second: f64,
}

impl Load {
    /// `rate` is a number of Gbit/s of frames, or a rate with its unit as `warmlane gen` has it; `frames` is a mix or a size.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn new(rate: &str, frames: &str, ports: usize) -> Result<Self, LoadError> {
        let sizes: Sizes = frames.parse()?;
        let is_plain = rate.parse::<f64>().is_ok();
        let asked: Rate = if is_plain { format!("{rate}Gbps").parse()? } else { rate.parse()? };
        if matches!(asked, Rate::Percent(_) | Rate::Unpaced) {
            return Err(LoadError::Unbounded(rate.to_owned()));
        }
        let packets = asked.packets_per_second(sizes.mean(), None)?;
        let packets_per_second = packets.ok_or_else(|| LoadError::Unbounded(rate.to_owned()))?;
        let load = Self { frames: frames.to_owned(), sizes, packets_per_second };
        if load.gbps() > FASTEST_PORT * ports.max(1) as f64 {
            return Err(LoadError::NoPort { gbps: load.gbps(), ports });
        }
        Ok(load)
    }

    /// Gbit/s of frames.
    pub fn gbps(&self) -> f64 {
        self.packets_per_second * self.sizes.mean() * 8.0 / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_gigabits_or_packets_and_others_are_named() {
        let load = |rate, frames| Load::new(rate, frames, 2);
        let plain = load("10", "1500").unwrap();
        assert!(
            (plain.packets_per_second - 10e9 / 12_000.0).abs() < 1e-6 && (plain.gbps() - 10.0).abs() < 1e-9
        );
        assert_eq!(load("10Gbps", "1500").unwrap(), plain);
        assert!((load("2.5Mpps", "imix").unwrap().packets_per_second - 2.5e6).abs() < 1e-3);
        let error = |rate, frames| load(rate, frames).unwrap_err().to_string();
        assert!(error("2000", "1518").contains("2000 Gbit/s for 2 port(s)"), "{}", error("2000", "1518"));
        assert!(error("50%", "64").contains("'50%' is no rate here"));
        assert!(error("max", "64").contains("'max' is no rate here"));
        assert!(error("0", "64").contains("is no rate"));
        assert!(error("-3", "64").contains("is no rate"));
        assert!(error("5Gpps", "64").contains("no core sends more"));
        assert!(error("10", "jumbo").contains("\"jumbo\" gives no frame sizes"));
    }
}
