//! Which lines of memory a frame touches on its way, as they were recorded.

use serde::{Deserialize, Serialize};

/// Lines of a buffer, counted from its header, that one part of the work touches.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Lines {
    /// Those that it reads only.
    pub read: Vec<u32>,
    /// Those that it writes, whether it reads them or not.
    pub written: Vec<u32>,
}

/// What becomes of the buffer that a frame is received into.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Received {
    /// When the receive queue takes it.
    pub take: Lines,
    /// On the upper MAC's lane.
    pub upper: Lines,
    /// On the lower MAC's lane, which also frees it.
    pub lower: Lines,
}

/// What becomes of the buffer of a packet to the remote PHY.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Sent {
    /// On the lower MAC's lane, which takes it.
    pub lower: Lines,
    /// When the transmit queue frees it.
    pub free: Lines,
}

/// What else is touched: tables, queues, counters, keys.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Lines that most bursts touch.
    pub hot: u32,
    /// All other lines that were touched, by a modem's frames or now and then.
    pub others: u32,
    /// How many of those a frame touches.
    pub touched: f64,
    /// How many of those a frame writes.
    pub written: f64,
}

/// A frame of some length on its way.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FrameTouches {
    /// The frame's length with its CRC.
    pub bytes: u32,
    /// Whether it gets a CRC on its way.
    pub crc: bool,
    /// Packets to the remote PHY for each frame.
    pub packets: f64,
    /// The buffer that it is received into.
    pub received: Received,
    /// The buffer of a packet to the remote PHY.
    pub sent: Sent,
    /// What else is touched.
    pub state: State,
}

/// The lengths of frames in the cable mix, with their CRC; the first is that of most.
pub const LENGTHS: [u32; 3] = [1_520, 932, 68];

/// Those of all frames.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Touches {
    /// A frame of each length, with CRC and without.
    pub frame: Vec<FrameTouches>,
}

/// Recorded by `warmlane lab memory-traffic --record`.
const RECORDED: &str = include_str!("touches.toml");

/// A record of touches that is none.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TouchesError {
    /// It says something else.
    #[error("the record of touched lines: {0}")]
    Text(#[from] toml::de::Error),
    /// It can't be written.
    #[error("the record of touched lines can't be written: {0}")]
    Written(#[from] toml::ser::Error),
    /// A frame is missing.
    #[error("the record of touched lines is cut off: it has no frames of {bytes} bytes {}", if *.crc { "with CRC" } else { "without CRC" })]
    CutOff {
        /// Its length.
        bytes: u32,
        /// Whether with CRC.
        crc: bool,
    },
    /// A forwarded packet is missing.
    #[error("the record of forwarded packets is cut off: it has no {} packets to {}", if *.ipv6 { "IPv6" } else { "IPv4" }, if *.many { "many routes" } else { "one route" })]
    NoPacket {
        /// Of which family.
        ipv6: bool,
        /// To many routes, or to one.
        many: bool,
    },
}

impl Touches {
    /// Those that came with the program.
    ///
    /// # Errors
    /// [`TouchesError`].
    pub fn recorded() -> Result<Self, TouchesError> {
        Self::parse(RECORDED)
    }

    /// From a text.
    ///
    /// # Errors
    /// [`TouchesError`].
    pub fn parse(text: &str) -> Result<Self, TouchesError> {
        let touches: Self = toml::from_str(text)?;
        for crc in [false, true] {
            touches.frames(crc)?;
        }
        Ok(touches)
    }

    /// As a text.
    ///
    /// # Errors
    /// [`TouchesError::Written`].
    pub fn to_text(&self) -> Result<String, TouchesError> {
        Ok(toml::to_string(self)?)
    }

    /// Frames of each of [`LENGTHS`], with CRC or without.
    ///
    /// # Errors
    /// [`TouchesError::CutOff`].
    pub fn frames(&self, crc: bool) -> Result<[&FrameTouches; 3], TouchesError> {
        let find = |bytes| {
            self.frame
                .iter()
                .find(|frame| (frame.bytes, frame.crc) == (bytes, crc))
                .ok_or(TouchesError::CutOff { bytes, crc })
        };
        let [most, some, few] = LENGTHS;
        Ok([find(most)?, find(some)?, find(few)?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_recorded_is_whole_and_what_is_cut_off_is_named() {
        let touches = Touches::recorded().unwrap();
        for crc in [false, true] {
            let [most, ..] = touches.frames(crc).unwrap();
            // All lines of the frame are written in place, and those of the packet that it is copied to.
            assert!(
                most.received.lower.written.len() >= 24 && most.sent.lower.written.len() >= 24,
                "{most:?}"
            );
        }
        assert_eq!(Touches::parse(&touches.to_text().unwrap()).unwrap(), touches);
        let half: String = RECORDED.split("[[frame]]").take(5).collect::<Vec<_>>().join("[[frame]]");
        let error = Touches::parse(&half).unwrap_err().to_string();
        assert!(error.contains("cut off: it has no frames of 932 bytes with CRC"), "{error}");
        assert!(Touches::parse("frame = 1").is_err());
    }
}
