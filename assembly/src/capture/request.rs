//! What is to be captured.

use serde::{Deserialize, Serialize};
use warmlane_lane::{Edge, Graph, Node, Point};

use crate::asked::parse;

/// What stands for a port where a lane's drops are captured, which have come in by any port.
pub const WHOLE_LANE: &str = "lane";

/// A request for a capture: `{"ask":"capture", ...}`. All fields but `ask` may be left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureRequest {
    /// `capture`.
    pub ask: String,
    /// Names of ports; all if none is given.
    #[serde(default)]
    pub ports: Vec<String>,
    /// What to see. If nothing is given: what comes in, leaves and is dropped, or if there are [edges](Self::edges) or
    /// [stages](Self::stages), those.
    #[serde(default)]
    pub see: Vec<Seen>,
    /// Names of reasons for drops; all if none is given.
    #[serde(default)]
    pub reasons: Vec<String>,
    /// Edges between stages, by the name of the node where one begins, and behind a colon that of its output if it has one.
    #[serde(default)]
    pub edges: Vec<String>,
    /// Names of stages: of each, what comes to it and what goes from it.
    #[serde(default)]
    pub stages: Vec<String>,
    /// As in pcap-filter(7); see [`Filter`](super::Filter).
    #[serde(default)]
    pub filter: String,
    /// Bytes of each packet at most.
    #[serde(default = "snap_length")]
    pub snap_length: u32,
    /// One in so many packets; 0 counts as 1.
    #[serde(default)]
    pub one_in: u32,
    /// Packets until it ends; endless without.
    #[serde(default)]
    pub count: Option<u64>,
}

const fn snap_length() -> u32 {
    262_144
}

impl Default for CaptureRequest {
    fn default() -> Self {
        Self {
            ask: WORD.to_owned(),
            ports: Vec::new(),
            see: Vec::new(),
            reasons: Vec::new(),
            edges: Vec::new(),
            stages: Vec::new(),
            filter: String::new(),
            snap_length: snap_length(),
            one_in: 1,
            count: None,
        }
    }
}

const WORD: &str = "capture";

/// What packets are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Seen {
    /// Those that come in.
    In,
    /// Those that leave.
    Out,
    /// Those that are dropped.
    Drop,
    /// Those that go from stage to stage.
    Edge,
}

/// The answer, which packets follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capturing {
    /// Where packets are seen.
    pub points: Vec<Captured>,
}

/// Where packets are seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captured {
    /// By which lane, or on which path in the kernel (`path xdp`).
    pub lane: String,
    /// At which port; of drops it is `lane`, and of an edge the name of that.
    pub port: String,
    /// Which way.
    pub seen: Seen,
}

/// Names of the ports that a lane has.
pub(super) fn ports(graph: &Graph) -> impl Iterator<Item = &str> {
    let inputs = graph.inputs.iter().filter(|node| node.counters.is_some()).map(|node| node.name.as_str());
    inputs.chain(graph.outputs.iter().filter(|node| node.counters.is_some()).map(|node| node.name.as_str()))
}

/// What an edge is called: `west`, `vxlan` for what that stage passes on, `forwarder:port0` for what leaves by an output of it.
pub(super) fn edge_name(graph: &Graph, edge: &Edge) -> String {
    let from = graph.name(edge.from);
    match &edge.output {
        Some(output) => format!("{from}:{output}"),
        None => from.to_owned(),
    }
}

/// Where an edge leads.
pub(super) fn edge_description(graph: &Graph, edge: &Edge) -> String {
    let mut text = format!("from {}", graph.name(edge.from));
    for (word, part) in [
        (" by ", edge.output.as_deref()),
        (" to ", Some(graph.name(edge.to))),
        (" at ", edge.input.as_deref()),
    ] {
        if let Some(part) = part {
            text.push_str(word);
            text.push_str(part);
        }
    }
    text
}

impl CaptureRequest {
    /// Reads it; `None` if it is none.
    pub(super) fn parse(line: &[u8]) -> Option<Result<Self, String>> {
        parse::<Self>(line, WORD).map(|request| {
            let request = request?;
            if request.snap_length == 0 || request.snap_length > snap_length() {
                return Err(format!("a snapshot has 1 to {} bytes", snap_length()));
            }
            Ok(request)
        })
    }

    /// Where a lane's packets are to be seen, with the port's name.
    pub(super) fn points(&self, graph: &Graph) -> Vec<(Seen, String, Point)> {
        let has_edges = !self.edges.is_empty() || !self.stages.is_empty();
        let sees = |seen| match &self.see[..] {
            [] => has_edges == (seen == Seen::Edge),
            see => see.contains(&seen),
        };
        let has = |name: &str| self.ports.is_empty() || self.ports.iter().any(|port| port == name);
        let mut points = Vec::new();
        // Reasons are of drops only.
        if self.reasons.is_empty() {
            for (index, node) in graph.inputs.iter().enumerate() {
                if sees(Seen::In) && node.counters.is_some() && has(&node.name) {
                    points.push((Seen::In, node.name.clone(), Point::Input(index)));
                }
            }
            for (index, node) in graph.outputs.iter().enumerate() {
                if sees(Seen::Out) && node.counters.is_some() && has(&node.name) {
                    points.push((Seen::Out, node.name.clone(), Point::Output(index)));
                }
            }
        }
        for (index, edge) in graph.edges.iter().enumerate().filter(|_| sees(Seen::Edge)) {
            let name = edge_name(graph, edge);
            let is_of = |stage: &String| {
                [edge.from, edge.to]
                    .iter()
                    .any(|node| matches!(node, Node::Stage(_)) && graph.name(*node) == stage)
            };
            if has_edges && !self.edges.contains(&name) && !self.stages.iter().any(is_of) {
                continue;
            }
            match edge.from {
                Node::Input(input) => {
                    // What another lane sends can be seen there.
                    if graph.inputs.get(input).is_some_and(|node| node.counters.is_some()) {
                        points.push((Seen::Edge, name, Point::Input(input)));
                    }
                }
                _ => points.push((Seen::Edge, name, Point::Edge(index))),
            }
        }
        if sees(Seen::Drop) && (self.ports.is_empty() || ports(graph).any(has)) {
            points.push((Seen::Drop, WHOLE_LANE.to_owned(), Point::Drops));
        }
        points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_an_object_with_known_fields() {
        let parse = |text: &str| CaptureRequest::parse(text.as_bytes());
        assert_eq!(parse(r#" {"ask":"capture","one_in":1}"#), Some(Ok(CaptureRequest::default())));
        assert!(parse(r#"{"ask":"capture","sea":[]}"#).unwrap().unwrap_err().contains("sea"));
        assert!(parse(r#"{"ask":"capture","snap_length":0}"#).unwrap().unwrap_err().contains("262144"));
        // Serde takes a list of a struct's fields for one, too.
        assert_eq!(parse(r#"["capture"]"#), None);
        assert_eq!(parse(r#"["capture",[],[],[],"",96,1,null]"#), None);
        assert_eq!(parse(r#"{"ask":"stats"}"#), None);
    }
}
