//! What is said of a packet.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use warmlane_lane::{Graph, Node, Step, Trace, TraceEnd};

use super::fields;

/// What became of a packet, or would.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedPacket {
    /// The lane that it came to.
    pub lane: String,
    /// The port that it came in by, with the number of the queue if the lane has several of it.
    pub input: String,
    /// When it came in, in nanoseconds since 1970 (UTC); not in rehearsals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ns: Option<u64>,
    /// Bytes of the frame.
    pub length: usize,
    /// What its headers said when it came in.
    pub fields: BTreeMap<String, String>,
    /// The stages that it went through.
    pub steps: Vec<TracedStep>,
    /// What became of it: `sent`, `dropped`, `kept` by the last stage, `replaced` by others, given to another `lane`, `unknown` as the last stage can't
    /// say, `lost` from sight.
    pub end: String,
    /// The output that it left by, of `sent` and `lane`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// The name of the reason, of `dropped`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The reason in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

/// What a stage did with a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedStep {
    /// The stage's name.
    pub stage: String,
    /// What it looked up, and what it found.
    pub found: BTreeMap<String, String>,
    /// What it counted.
    pub counted: Vec<Counted>,
    /// What it changed in the headers: before and after; empty if it wasn't there.
    pub changed: BTreeMap<String, [String; 2]>,
    /// Other packets that it sent: errors, copies, fragments.
    pub others: Vec<Others>,
    /// The stage or port that the packet went to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// By which of the stage's outputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// A counter that grew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// The set that it is in.
    pub set: String,
    /// Its name there.
    pub name: String,
    /// Of drops: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// By how much.
    pub by: u64,
}

/// Other packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Others {
    /// The stage or port that they went to.
    pub to: String,
    /// How many.
    pub packets: usize,
}

impl TracedPacket {
    /// What a lane says. `time_ns` is when the packet came in.
    pub fn new(lane: &str, graph: &Graph, trace: &Trace, time_ns: Option<u64>) -> Self {
        let first = fields(&trace.frame);
        let (mut before, mut steps) = ((first.clone(), trace.length), Vec::new());
        for step in &trace.steps {
            let after = (fields(&step.frame), step.length);
            steps.push(traced_step(graph, step, &before, &after));
            before = after;
        }
        let name = |output: usize| Some(graph.name(Node::Output(output)).to_owned());
        let (end, output, reason) = match &trace.end {
            TraceEnd::Sent(output) => ("sent", name(*output), None),
            TraceEnd::Lane(output) => ("lane", name(*output), None),
            TraceEnd::Dropped(reason) => ("dropped", None, Some(reason)),
            TraceEnd::Replaced => ("replaced", None, None),
            TraceEnd::Kept => ("kept", None, None),
            TraceEnd::Unknown => ("unknown", None, None),
            TraceEnd::Lost => ("lost", None, None),
        };
        Self {
            lane: lane.to_owned(),
            input: graph.name(Node::Input(trace.input)).to_owned(),
            time_ns,
            length: trace.length,
            fields: first,
            steps,
            end: end.to_owned(),
            output,
            reason: reason.map(|reason| reason.name.to_owned()),
            help: reason.map(|reason| reason.sentence.to_owned()),
        }
    }
}

type Headers = (BTreeMap<String, String>, usize);

fn traced_step(graph: &Graph, step: &Step, before: &Headers, after: &Headers) -> TracedStep {
    let mut changed = BTreeMap::new();
    if step.to.is_some() {
        let value =
            |fields: &BTreeMap<String, String>, name: &str| fields.get(name).cloned().unwrap_or_default();
        for name in before.0.keys().chain(after.0.keys()) {
            let both = [value(&before.0, name), value(&after.0, name)];
            if both[0] != both[1] {
                changed.insert(name.clone(), both);
            }
        }
        if before.1 != after.1 {
            changed.insert("length".to_owned(), [before.1.to_string(), after.1.to_string()]);
        }
    }
    let from = Node::Stage(step.stage);
    let edges = || graph.edges.iter().filter(|edge| edge.from == from && Some(edge.to) == step.to);
    let by = edges().next().filter(|_| edges().count() == 1).and_then(|edge| edge.output.clone());
    TracedStep {
        stage: graph.name(from).to_owned(),
        found: step
            .explanation
            .notes()
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect(),
        counted: step
            .grown
            .iter()
            .map(|grown| Counted {
                set: grown.set.to_owned(),
                name: grown.name.to_owned(),
                reason: grown.reason.map(|reason| reason.name.to_owned()),
                by: grown.by,
            })
            .collect(),
        changed,
        others: step
            .others
            .iter()
            .map(|(node, packets)| Others { to: graph.name(*node).to_owned(), packets: *packets })
            .collect(),
        to: step.to.map(|node| graph.name(node).to_owned()),
        by,
    }
}
