//! How fast to send: in packets, in bits or as part of the line.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Bytes that a frame takes on the wire beside its own: preamble, start delimiter, gap (IEEE 802.3 clauses 3.2 and 4.4.2).
pub const WIRE_OVERHEAD: f64 = 20.0;

/// A rate as it was asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rate {
    /// As fast as the port takes packets.
    Unpaced,
    /// Packets a second.
    Packets(f64),
    /// Bits a second of frames, frame check sequence counted.
    BitsLayer2(f64),
    /// Bits a second on the wire: with preamble and gap.
    BitsLayer1(f64),
    /// Percent of the line's rate on the wire.
    Percent(f64),
}

/// Why a rate can't be used.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum RateError {
    /// A text that says no rate.
    #[error(
        "\"{text}\" is no rate: expected a number above 0 with a unit, as in \"2.5Mpps\", \"10Gbps\" (frames), \"10Gbps-l1\" (with preamble and gap), \"50%\" (of the line), or \"max\""
    )]
    Text {
        /// What was given.
        text: String,
    },
    /// Percent of an unknown line.
    #[error("{percent} % of the line, whose rate is not known: say it, as in --line 10Gbps")]
    NoLine {
        /// What was asked for.
        percent: f64,
    },
    /// More than the line carries.
    #[error(
        "{rate} is {packets:.0} packets a second, and a line of {line:.0} bit/s carries {most:.0} of {size:.1} bytes: ask for less"
    )]
    AboveLine {
        /// What was asked for.
        rate: Rate,
        /// The same in packets a second.
        packets: f64,
        /// Bits a second of the line.
        line: f64,
        /// Packets a second that fit it.
        most: f64,
        /// Mean bytes of a frame.
        size: f64,
    },
    /// More than a core can count.
    #[error(
        "{rate} is {packets:.0} packets a second: no core sends more than one a nanosecond, ask for less"
    )]
    TooFast {
        /// What was asked for.
        rate: Rate,
        /// The same in packets a second.
        packets: f64,
    },
}

impl Rate {
    /// Packets a second, for frames of `size` bytes in the mean, on a line of `line` bits a second if that is known;
    /// `None` for as many as possible.
    ///
    /// # Errors
    /// [`RateError`], if the line doesn't carry that, or isn't known where it must be.
    pub fn packets_per_second(self, size: f64, line: Option<f64>) -> Result<Option<f64>, RateError> {
        let on_wire = (size + WIRE_OVERHEAD) * 8.0;
        let packets = match self {
            Self::Unpaced => return Ok(None),
            Self::Packets(packets) => packets,
            Self::BitsLayer2(bits) => bits / (size * 8.0),
            Self::BitsLayer1(bits) => bits / on_wire,
            Self::Percent(percent) => line.ok_or(RateError::NoLine { percent })? / on_wire * percent / 100.0,
        };
        if packets > 1e9 {
            return Err(RateError::TooFast { rate: self, packets });
        }
        match line.map(|line| (line, line / on_wire)) {
            // A rounding error above 100 % is 100 %.
            Some((line, most)) if packets > most * 1.000_001 => {
                Err(RateError::AboveLine { rate: self, packets, line, most, size })
            }
            _ => Ok(Some(packets)),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unpaced => f.write_str("max"),
            Self::Packets(packets) => write!(f, "{packets}pps"),
            Self::BitsLayer2(bits) => write!(f, "{bits}bps"),
            Self::BitsLayer1(bits) => write!(f, "{bits}bps-l1"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let error = || RateError::Text { text: text.to_owned() };
        if text == "max" {
            return Ok(Self::Unpaced);
        }
        let number_ends =
            text.find(|letter: char| !letter.is_ascii_digit() && letter != '.' && letter != '_');
        let (number, unit) = text.split_at(number_ends.ok_or_else(error)?);
        let number: f64 = number.replace('_', "").parse().map_err(|_| error())?;
        let unit = unit.trim();
        let (scale, unit) = match unit.as_bytes().first() {
            Some(b'k') => (1e3, &unit[1..]),
            Some(b'M') => (1e6, &unit[1..]),
            Some(b'G') => (1e9, &unit[1..]),
            _ => (1.0, unit),
        };
        let value = number * scale;
        if value.partial_cmp(&0.0) != Some(std::cmp::Ordering::Greater) || !value.is_finite() {
            return Err(error());
        }
        match unit {
            "pps" => Ok(Self::Packets(value)),
            "bps" | "bps-l2" => Ok(Self::BitsLayer2(value)),
            "bps-l1" => Ok(Self::BitsLayer1(value)),
            "%" if scale.to_bits() == 1.0_f64.to_bits() => Ok(Self::Percent(value)),
            _ => Err(error()),
        }
    }
}

/// Bits a second of a line, as in `10Gbps`.
///
/// # Errors
/// [`RateError::Text`], if it is none.
pub fn line(text: &str) -> Result<f64, RateError> {
    match text.parse()? {
        Rate::BitsLayer1(bits) | Rate::BitsLayer2(bits) => Ok(bits),
        _ => Err(RateError::Text { text: text.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets(text: &str, size: f64, line: Option<f64>) -> f64 {
        text.parse::<Rate>().unwrap().packets_per_second(size, line).unwrap().unwrap()
    }

    #[test]
    fn line_rate_of_smallest_frames() {
        // 14,880,952 packets a second is what everyone knows of 10 Gbit/s Ethernet.
        for text in ["100%", "10Gbps-l1", "14880952.38pps"] {
            assert!((packets(text, 64.0, Some(1e10)) - 14_880_952.0).abs() < 1.0, "{text}");
        }
        assert!((packets("1Gbps", 1250.0, None) - 100_000.0).abs() < 1e-6);
        assert!((packets("2.5 Mpps", 64.0, None) - 2.5e6).abs() < 1e-6);
        assert_eq!("max".parse(), Ok(Rate::Unpaced));
    }

    #[test]
    fn impossible_rates_say_what_is_possible() {
        for text in ["", "10", "fast", "-1pps", "0pps", "5 packets", "1e400pps", "10k%", "Mpps"] {
            let error = text.parse::<Rate>().unwrap_err().to_string();
            assert!(error.contains("expected a number above 0 with a unit"), "{error}");
        }
        let error =
            |text: &str, line| text.parse::<Rate>().unwrap().packets_per_second(64.0, line).unwrap_err();
        assert!(error("50%", None).to_string().contains("--line 10Gbps"));
        assert!(error("15Mpps", Some(1e10)).to_string().contains("carries 14880952 of 64.0 bytes"));
        assert!(error("2000Mpps", None).to_string().contains("one a nanosecond"));
    }
}
