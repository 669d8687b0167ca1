//! What is asked.

use serde::{Deserialize, Serialize};
use warmlane_lane::Graph;

use crate::asked::parse;

/// Packets that one trace follows at most.
const MOST_PACKETS: u32 = 10_000;

/// What becomes of packets that come in: `{"ask":"trace", ...}`. All fields but `ask` may be left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceRequest {
    /// `trace`.
    pub ask: String,
    /// Names of ports that packets come in by; all if none is given.
    #[serde(default)]
    pub ports: Vec<String>,
    /// As in pcap-filter(7); see [`Filter`](crate::capture::Filter).
    #[serde(default)]
    pub filter: String,
    /// Packets until it ends, 1 to 10,000; 10 if not given.
    #[serde(default = "usual_count")]
    pub count: u32,
}

const fn usual_count() -> u32 {
    10
}

impl Default for TraceRequest {
    fn default() -> Self {
        Self { ask: TRACE.to_owned(), ports: Vec::new(), filter: String::new(), count: usual_count() }
    }
}

/// What would become of frames that the client sends afterwards: `{"ask":"rehearse"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RehearseRequest {
    /// `rehearse`.
    pub ask: String,
}

impl Default for RehearseRequest {
    fn default() -> Self {
        Self { ask: REHEARSE.to_owned() }
    }
}

const TRACE: &str = "trace";
const REHEARSE: &str = "rehearse";

/// A frame of a rehearsal: one JSON object a line. Each is answered with a [`TracedPacket`](super::TracedPacket), or an object with `error`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frame {
    /// The port that it would come in by; the first one if none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// The frame from its Ethernet header on, without a check sequence, in hexadecimal digits.
    pub frame: String,
}

/// Where packets come in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Places {
    /// To which lane.
    pub lane: String,
    /// By which port, with the number of the queue if the lane has several of it.
    pub port: String,
}

/// The answer to [`TraceRequest`], behind which [`TracedPacket`](super::TracedPacket)s come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tracing {
    /// Where packets are followed from.
    pub places: Vec<Places>,
}

/// The answer to [`RehearseRequest`], behind which the client says which frames it means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rehearsed {
    /// Where frames could come in.
    pub places: Vec<Places>,
}

impl TraceRequest {
    /// Reads it; `None` if it is none.
    pub(super) fn parse(line: &[u8]) -> Option<Result<Self, String>> {
        parse::<Self>(line, TRACE).map(|request| {
            let request = request?;
            if request.count == 0 || request.count > MOST_PACKETS {
                return Err(format!("1 to {MOST_PACKETS} packets can be traced"));
            }
            Ok(request)
        })
    }
}

impl RehearseRequest {
    /// Reads it; `None` if it is none.
    pub(super) fn parse(line: &[u8]) -> Option<Result<Self, String>> {
        parse(line, REHEARSE)
    }
}

/// The inputs of a lane that are ports', with their names.
pub(super) fn inputs(graph: &Graph) -> impl Iterator<Item = (usize, &str)> {
    let inputs = graph.inputs.iter().enumerate().filter(|(_, node)| node.counters.is_some());
    inputs.map(|(number, node)| (number, node.name.as_str()))
}

impl Frame {
    /// A frame that would come in by a port.
    pub fn new(port: Option<&str>, bytes: &[u8]) -> Self {
        let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        let digits = digits.filter_map(|digit| char::from_digit(u32::from(digit), 16));
        Self { port: port.map(str::to_owned), frame: digits.collect() }
    }

    /// Its bytes.
    ///
    /// # Errors
    /// A sentence: these are no pairs of hexadecimal digits.
    pub fn bytes(&self) -> Result<Vec<u8>, String> {
        let digit = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
        let (pairs, rest) = self.frame.as_bytes().as_chunks::<2>();
        let byte = |[high, low]: &[u8; 2]| Some(digit(*high)? << 4 | digit(*low)?);
        let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        bytes
            .filter(|_| rest.is_empty())
            .ok_or_else(|| "a frame is written in pairs of hexadecimal digits".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_written_in_hexadecimal_digits() {
        let bytes: Vec<u8> = (0..=255).collect();
        let frame = Frame::new(Some("west"), &bytes);
        assert!(frame.frame.starts_with("000102") && frame.frame.ends_with("feff"));
        assert_eq!(frame.bytes(), Ok(bytes));
        for wrong in ["0", "0g", "00 1", "é0", "0x00"] {
            assert!(Frame { port: None, frame: wrong.to_owned() }.bytes().is_err(), "{wrong}");
        }
    }

    #[test]
    fn requests_are_objects_with_known_fields() {
        let parse = |text: &str| TraceRequest::parse(text.as_bytes());
        assert_eq!(parse(r#"{"ask":"trace"}"#), Some(Ok(TraceRequest::default())));
        assert_eq!(parse(r#"["trace",[],"",1]"#), None);
        assert!(parse(r#"{"ask":"trace","count":0}"#).unwrap().unwrap_err().contains("10000"));
        assert!(parse(r#"{"ask":"trace","n":1}"#).unwrap().is_err());
        assert_eq!(RehearseRequest::parse(br#"{"ask":"rehearse"}"#), Some(Ok(RehearseRequest::default())));
        assert_eq!(RehearseRequest::parse(br#"{"ask":"trace"}"#), None);
    }
}
