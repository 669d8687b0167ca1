//! Which lines of memory a forwarded packet touches, as they were recorded.

use super::touches::{Lines, State, TouchesError};
use serde::{Deserialize, Serialize};

/// A forwarded packet of some length.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ForwardTouches {
    /// The frame's length with its frame check sequence.
    pub bytes: u32,
    /// Whether it is an IPv6 packet.
    pub ipv6: bool,
    /// Whether destinations are spread over many routes, or all in one.
    pub many: bool,
    /// When the receive queue takes its buffer.
    pub take: Lines,
    /// On the lane, to the transmit queue.
    pub lane: Lines,
    /// When the transmit queue frees it.
    pub free: Lines,
    /// What else is touched.
    pub state: State,
}

/// What one family's packets touch, whatever their length.
#[derive(Clone, Debug, PartialEq)]
pub struct FamilyTouches {
    /// The buffer when it is taken, on the lane, and when it is freed.
    pub take: Lines,
    /// On the lane.
    pub lane: Lines,
    /// When it is freed.
    pub free: Lines,
    /// Lines that each burst touches.
    pub hot: u32,
    /// Lines of tables that a packet's lookup touches: what packets to many routes touch more than those to one.
    pub lookup: f64,
}

/// All that were recorded.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Forwarding {
    /// Of each family, with one route and with many, short and long.
    pub packet: Vec<ForwardTouches>,
}

/// Of IPv4 recorded by `warmlane lab memory-traffic --record-forward`, but for the lines of a lookup, which are derived from the code, as is all of IPv6; the
/// file says why.
const RECORDED: &str = include_str!("forwarding.toml");

/// Bytes of the frames that are recorded: longer ones touch the same lines, as a test sees.
pub const BYTES: u32 = 64;

impl Forwarding {
    /// Those that came with the program.
    ///
    /// # Errors
    /// [`TouchesError`].
    pub fn recorded() -> Result<Self, TouchesError> {
        let touches: Self = toml::from_str(RECORDED)?;
        for ipv6 in [false, true] {
            touches.family(ipv6)?;
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

    fn find(&self, ipv6: bool, many: bool) -> Result<&ForwardTouches, TouchesError> {
        let is_it =
            |packet: &&ForwardTouches| (packet.ipv6, packet.many, packet.bytes) == (ipv6, many, BYTES);
        self.packet.iter().find(is_it).ok_or(TouchesError::NoPacket { ipv6, many })
    }

    /// What packets of a family touch: the same for all lengths, since a forwarder reads headers only.
    ///
    /// # Errors
    /// [`TouchesError::NoPacket`].
    pub fn family(&self, ipv6: bool) -> Result<FamilyTouches, TouchesError> {
        let (one, many) = (self.find(ipv6, false)?, self.find(ipv6, true)?);
        Ok(FamilyTouches {
            take: one.take.clone(),
            lane: one.lane.clone(),
            free: one.free.clone(),
            hot: one.state.hot,
            lookup: (many.state.touched - one.state.touched).max(0.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::forward_workload;
    use super::*;

    #[test]
    fn a_forwarder_touches_headers_only_and_a_line_or_more_of_a_table() {
        let recorded = Forwarding::recorded().unwrap();
        assert_eq!(recorded.packet.len(), 4);
        for packet in &recorded.packet {
            let ForwardTouches { take, lane, free, .. } = packet;
            // The header when it is taken; the frame's first line is rewritten.
            assert_eq!(take.written, [0], "{packet:?}");
            assert!(
                lane.written.contains(&3) && lane.read.iter().chain(&lane.written).all(|line| *line <= 4)
            );
            assert!(free.read.iter().chain(&free.written).all(|line| *line == 0), "{packet:?}");
        }
        // As recorded: a header, the frame's first line, and less than 16 KiB that each burst touches.
        let ipv4 = recorded.family(false).unwrap();
        assert_eq!((ipv4.lane.written, ipv4.hot), (vec![0, 3], 103));
        for ipv6 in [false, true] {
            let lookup = recorded.family(ipv6).unwrap().lookup;
            assert!((0.5..8.0).contains(&lookup), "{lookup}");
        }
        let error = Forwarding::default().family(true).unwrap_err().to_string();
        assert!(error.contains("no IPv6 packets to one route"), "{error}");
    }

    #[test]
    fn the_lines_of_a_frame_that_are_written_are_those_that_change() {
        let recorded = Forwarding::recorded().unwrap();
        for (bytes, ipv6) in [(64, false), (1_518, false), (64, true), (1_518, true)] {
            let lane = recorded.family(ipv6).unwrap().lane;
            let in_frame = |line: &u32| line.checked_sub(3).map(|line| line as usize);
            let written: Vec<usize> = lane.written.iter().filter_map(in_frame).collect();
            assert_eq!(forward_workload::changed_lines(bytes, ipv6).unwrap(), written, "{bytes} {ipv6}");
        }
    }
}
