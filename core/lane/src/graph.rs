//! What a pipeline is made of, for others to read: reports, traces, pictures.

use crate::counters::StageCountersView;
use crate::probe::Orders;
use crate::timing::StageTimedCountersView;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use warmlane_counters::{
    CounterView, Description, DropReason, DropView, Labels, Registry, Role, Source, drop_reasons,
};
use warmlane_port::QueueCountersView;

drop_reasons! {
    /// Why a lane drops packets by itself, whatever its stages do.
    pub enum LaneDrop {
        /// The packet went on from a stage or by an output behind which there is nothing.
        Unconnected: "unconnected", Loss;
        /// The packet was on its way to a queue that has ended or broken.
        OutputClosed: "output-closed", Loss;
        /// The packet found no space in front of the queue or stage that it was to go to.
        OutputFull: "output-full", Loss;
        /// The packet had not left when its lane ended.
        Unsent: "unsent", Loss;
    }
}

const RECEIVED: Description = Description {
    set: "input",
    name: "received",
    unit: "packets",
    help: "Packets that came in by this input of the lane.",
    role: Role::Note,
};

const SENT: Description = Description {
    set: "output",
    name: "sent",
    unit: "packets",
    help: "Packets that left by this output of the lane.",
    role: Role::Note,
};

/// Where packets of a pipeline come in.
#[derive(Debug)]
pub struct InputNode {
    /// Its name, unique among the inputs.
    pub name: String,
    /// The number that its packets carry as [`Packet::port`](warmlane_mem::Packet::port), if they do.
    pub port: Option<u16>,
    /// What the port's queue counts; `None` for a channel from another lane.
    pub counters: Option<QueueCountersView>,
    pub(crate) received: CounterView,
}

impl InputNode {
    /// Packets that came in.
    pub fn received(&self) -> u64 {
        self.received.get()
    }
}

/// A stage of a pipeline.
pub struct StageNode {
    /// Its name, unique among the stages.
    pub name: String,
    /// What it counts itself.
    pub counters: Vec<Arc<dyn Source>>,
    pub(crate) passed: StageCountersView,
    pub(crate) timed: StageTimedCountersView,
}

impl StageNode {
    /// Packets that it was given.
    pub fn processed(&self) -> u64 {
        self.passed.processed()
    }

    /// Packets that it made, or had held and let go.
    pub fn made(&self) -> u64 {
        self.passed.made()
    }

    /// What it took, of the bursts that were timed ([`Graph::time_stages`]).
    pub const fn timed(&self) -> &StageTimedCountersView {
        &self.timed
    }

    /// What it has dropped so far, by reason, without those that are zero.
    pub fn drops(&self) -> Vec<(&'static DropReason, u64)> {
        let mut drops = Vec::new();
        for source in &self.counters {
            source.read(&mut |entry| {
                if let Some(reason) = entry.reason.filter(|_| entry.value > 0) {
                    drops.push((reason, entry.value));
                }
            });
        }
        drops
    }
}

impl std::fmt::Debug for StageNode {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("StageNode").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Where packets of a pipeline leave.
#[derive(Debug)]
pub struct OutputNode {
    /// Its name, unique among the outputs.
    pub name: String,
    /// What the port's queue counts; `None` for a channel to another lane.
    pub counters: Option<QueueCountersView>,
    pub(crate) sent: CounterView,
}

impl OutputNode {
    /// Packets that left.
    pub fn sent(&self) -> u64 {
        self.sent.get()
    }
}

/// One of a pipeline's nodes, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// One of [`Graph::inputs`].
    Input(usize),
    /// One of [`Graph::stages`].
    Stage(usize),
    /// One of [`Graph::outputs`].
    Output(usize),
}

/// An edge from one node to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Where it begins.
    pub from: Node,
    /// The output's name; `None` for packets that a stage leaves in the burst, and for inputs.
    pub output: Option<String>,
    /// Where it ends.
    pub to: Node,
    /// The input's name; `None` for a stage's first, and for outputs.
    pub input: Option<String>,
}

/// A queue that broke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The input or output whose queue it was.
    pub node: Node,
    /// A sentence that names the thing and the remedy.
    pub reason: String,
}

/// A pipeline's inputs, stages, outputs and the edges between them, with what they count. It can be read at any time.
#[derive(Debug)]
pub struct Graph {
    /// Where packets come in.
    pub inputs: Vec<InputNode>,
    /// What is done with them.
    pub stages: Vec<StageNode>,
    /// Where they leave.
    pub outputs: Vec<OutputNode>,
    /// What leads where.
    pub edges: Vec<Edge>,
    pub(crate) drops: DropView,
    pub(crate) failures: Mutex<Vec<Failure>>,
    pub(crate) orders: Orders,
}

impl Graph {
    /// Packets that came in.
    pub fn received(&self) -> u64 {
        self.inputs.iter().map(InputNode::received).sum()
    }

    /// Packets that left.
    pub fn sent(&self) -> u64 {
        self.outputs.iter().map(OutputNode::sent).sum()
    }

    /// Packets that stages made, or let go after having held them.
    pub fn made(&self) -> u64 {
        self.stages.iter().map(StageNode::made).sum()
    }

    /// What the lane itself had to drop, by [`LaneDrop`].
    pub const fn drops(&self) -> &DropView {
        &self.drops
    }

    /// Registers all that is counted here, under `labels` and the names of the nodes.
    pub fn register(&self, registry: &Registry, labels: &Labels) {
        for input in &self.inputs {
            registry.add(labels.clone().with("input", &input.name), (RECEIVED, input.received.clone()));
        }
        for stage in &self.stages {
            let labels = labels.clone().with("stage", &stage.name);
            registry.add(labels.clone(), stage.passed.clone());
            registry.add(labels.clone(), stage.timed.clone());
            for source in &stage.counters {
                registry.add_shared(labels.clone(), Arc::clone(source));
            }
        }
        for output in &self.outputs {
            registry.add(labels.clone().with("output", &output.name), (SENT, output.sent.clone()));
        }
        registry.add(labels.clone(), self.drops.clone());
    }

    /// The queues that have broken so far, in that order. Queues of one interface may give the same reason.
    pub fn failures(&self) -> Vec<Failure> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes a failure. Only called when a queue breaks, so the lock costs no packet anything.
    #[cold]
    pub(crate) fn fail(&self, node: Node, reason: String) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(Failure { node, reason });
    }

    /// The name of a node.
    pub fn name(&self, node: Node) -> &str {
        match node {
            Node::Input(index) => self.inputs.get(index).map(|node| node.name.as_str()),
            Node::Stage(index) => self.stages.get(index).map(|node| node.name.as_str()),
            Node::Output(index) => self.outputs.get(index).map(|node| node.name.as_str()),
        }
        .unwrap_or_default()
    }

    /// The graph in Graphviz's language: `dot -Tsvg` draws it.
    pub fn dot(&self) -> String {
        let mut text = String::from("digraph {\n  rankdir=LR;\n");
        let id = |node: Node| match node {
            Node::Input(index) => format!("input{index}"),
            Node::Stage(index) => format!("stage{index}"),
            Node::Output(index) => format!("output{index}"),
        };
        let nodes = (0..self.inputs.len())
            .map(|index| (Node::Input(index), "cds"))
            .chain((0..self.stages.len()).map(|index| (Node::Stage(index), "box")))
            .chain((0..self.outputs.len()).map(|index| (Node::Output(index), "cds")));
        // Writing to a string cannot fail.
        for (node, shape) in nodes {
            let _ = writeln!(text, "  {} [shape={shape}, label={:?}];", id(node), self.name(node));
        }
        for edge in &self.edges {
            let label = edge.output.as_deref().unwrap_or_default();
            let head = edge.input.as_deref().unwrap_or_default();
            let (from, to) = (id(edge.from), id(edge.to));
            let _ = writeln!(text, "  {from} -> {to} [label={label:?}, headlabel={head:?}];");
        }
        text + "}\n"
    }
}
