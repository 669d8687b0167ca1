//! Builds a pipeline from inputs, stages and outputs.

mod edge;

pub use edge::{EdgeFrom, EdgeTo, InputId, OutputId, StageId};

use crate::counters::StageCounters;
use crate::ends::{Input, Output};
use crate::graph::{Edge, Graph, InputNode, Node, OutputNode, StageNode};
use crate::outputs::{End, Line, UNCONNECTED};
use crate::pipeline::{Pipeline, Slot, Source};
use crate::probe::{Orders, StageProbes};
use crate::stage::{PassThrough, Stage};
use crate::timing::StageTimedCounters;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use warmlane_mem::{BURST_CAPACITY, Burst};
use warmlane_port::{TransmitOffloads, software_offload};

/// Why a pipeline cannot be put together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// A stage has no output of that name.
    #[error("stage '{stage}' has no output '{output}': it has {known}")]
    UnknownOutput {
        /// The stage's name.
        stage: String,
        /// The output's.
        output: String,
        /// Those that there are.
        known: String,
    },
    /// A stage has no input of that name.
    #[error("stage '{stage}' has no input '{input}': it has {known}")]
    UnknownInput {
        /// The stage's name.
        stage: String,
        /// The input's.
        input: String,
        /// Those that there are.
        known: String,
    },
    /// An output leads to two places.
    #[error("{from} is connected twice: let a stage choose which packet goes where")]
    ConnectedTwice {
        /// What is.
        from: String,
    },
    /// An input leads nowhere.
    #[error("input '{input}' isn't connected: connect it to a stage or an output")]
    UnconnectedInput {
        /// The input's name.
        input: String,
    },
    /// No packet gets to a stage or output.
    #[error(
        "no packet gets to '{name}': '{before}' sends them all by its outputs, so connect one of these with it"
    )]
    Unreachable {
        /// The stage or output.
        name: String,
        /// What is before it.
        before: String,
    },
    /// Two nodes of a kind have one name.
    #[error("two are called '{name}': names tell nodes apart in reports and traces")]
    DuplicateName {
        /// The name.
        name: String,
    },
}

/// Collects inputs, stages, outputs and the edges between them; see [`Pipeline::builder`].
///
/// ```
/// use warmlane_lane::{Pipeline, branch, Poll, Task};
/// # use warmlane_lane::{GraphError, Input, Output};
/// # fn build(west: Input, long: Output, short: Output) -> Result<(), GraphError> {
/// let split = branch(&["long"], |burst, outputs| {
///     for packet in burst.drain() {
///         outputs.send(0, packet);
///     }
/// });
/// let mut builder = Pipeline::builder();
/// let west = builder.input("west", west);
/// let split = builder.stage("split", split);
/// let (long, short) = (builder.output("long", long), builder.output("short", short));
/// let pipeline = builder.connect(west, split).connect((split, "long"), long).connect(split, short).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct PipelineBuilder {
    inputs: Vec<(String, Option<u16>, Input)>,
    stages: Vec<(String, Box<dyn Stage>)>,
    outputs: Vec<(String, Output)>,
    edges: Vec<(EdgeFrom, EdgeTo)>,
}

impl PipelineBuilder {
    /// Adds an input.
    pub fn input(&mut self, name: impl Into<String>, input: impl Into<Input>) -> InputId {
        self.inputs.push((name.into(), None, input.into()));
        InputId(self.inputs.len() - 1)
    }

    /// Adds an input whose packets carry a port's number ([`Packet::port`](warmlane_mem::Packet::port)), for stages that must know where
    /// packets came in.
    pub fn port_input(&mut self, name: impl Into<String>, port: u16, input: impl Into<Input>) -> InputId {
        self.inputs.push((name.into(), Some(port), input.into()));
        InputId(self.inputs.len() - 1)
    }

    /// Adds a stage.
    pub fn stage(&mut self, name: impl Into<String>, stage: impl Stage + 'static) -> StageId {
        self.stages.push((name.into(), Box::new(stage)));
        StageId(self.stages.len() - 1)
    }

    /// Adds an output.
    pub fn output(&mut self, name: impl Into<String>, output: impl Into<Output>) -> OutputId {
        self.outputs.push((name.into(), output.into()));
        OutputId(self.outputs.len() - 1)
    }

    /// Adds an edge. Several edges may end at the same place. A stage can ask whether one of its outputs is connected
    /// ([`Outputs::is_connected`](crate::Outputs::is_connected)).
    pub fn connect(&mut self, from: impl Into<EdgeFrom>, to: impl Into<EdgeTo>) -> &mut Self {
        self.edges.push((from.into(), to.into()));
        self
    }

    /// Builds the pipeline; the builder is empty afterwards.
    ///
    /// # Errors
    /// [`GraphError`] names what doesn't fit.
    pub fn build(&mut self) -> Result<Pipeline, GraphError> {
        let mut parts = std::mem::take(self);
        parts.join_inputs_with_outputs();
        parts.check_names()?;
        let (names, stages): (Vec<String>, Vec<Box<dyn Stage>>) = parts.stages.into_iter().unzip();
        let (output_names, outputs): (Vec<String>, Vec<Output>) = parts.outputs.into_iter().unzip();
        let lines: Vec<_> = outputs.into_iter().map(Line::to).collect();
        let output_nodes = output_names
            .into_iter()
            .zip(&lines)
            .map(|(name, line)| OutputNode { name, counters: line.counters(), sent: line.sent.view() })
            .collect();
        let mut wiring = Wiring {
            slots: stages.into_iter().map(slot).collect(),
            has_inner: false,
            targets: vec![None; parts.inputs.len()],
            names,
            outputs: output_nodes,
            lines,
            edges: Vec::new(),
        };
        wiring.check_rows()?;
        for (from, to) in parts.edges {
            wiring.connect(from, to)?;
        }
        let mut needs = wiring.needs_of_stages();
        let (mut sources, mut input_nodes) = (Vec::new(), Vec::new());
        for ((name, port, input), target) in parts.inputs.into_iter().zip(&wiring.targets) {
            let Some((stage, stage_input)) = *target else {
                return Err(GraphError::UnconnectedInput { input: name });
            };
            let ways_out = wiring.ways_out(stage);
            let (input, left) = wiring.receive_by(input, stage);
            for &line in &ways_out.all {
                needs[usize::from(line)] = needs[usize::from(line)].or(left);
            }
            let counters = match &input {
                Input::Queue(queue) => Some(queue.counters()),
                Input::Channel(_) => None,
            };
            let node = (input_nodes.len(), port);
            let WaysOut { lossless, all } = ways_out;
            let source = Source::new(input, node, (stage, stage_input), lossless, all);
            input_nodes.push(InputNode { name, port, counters, received: source.received.view() });
            sources.push(source);
        }
        for stage in 0..wiring.slots.len() {
            wiring.slots[stage].waits_for = wiring.ways_out(stage).lossless;
        }
        for (line, needs) in wiring.lines.iter_mut().zip(needs) {
            line.complete(needs);
        }
        // With what is dropped in front of their queues.
        for (node, line) in wiring.outputs.iter_mut().zip(&wiring.lines) {
            node.counters = line.counters();
        }
        let Wiring { slots, names, outputs, lines, edges, has_inner, .. } = wiring;
        let timed: Vec<StageTimedCounters> = slots.iter().map(|_| StageTimedCounters::new()).collect();
        let stage_nodes = names.into_iter().zip(&slots).zip(&timed).map(|((name, slot), timed)| StageNode {
            name,
            counters: slot.stage.counters().into_iter().map(Arc::from).collect(),
            passed: slot.counters.view(),
            timed: timed.view(),
        });
        let drops = StageProbes::new();
        let graph = Graph {
            inputs: input_nodes,
            stages: stage_nodes.collect(),
            outputs,
            edges,
            drops: drops.counters.view(),
            failures: Mutex::default(),
            orders: Orders::default(),
        };
        let mut pipeline = Pipeline {
            has_polled: slots.iter().any(|slot| slot.is_polled),
            has_inner,
            waiting: 0,
            // Inputs go from one to the other while the lane runs, where nothing is to be allocated.
            vacant: Vec::with_capacity(sources.len()),
            sources,
            slots,
            timed: timed.into_iter().map(Some).collect(),
            lines,
            graph: Arc::new(graph),
            drops,
            burst: Box::new(Burst::new()),
            work: Box::new(Burst::with_limit(BURST_CAPACITY)),
            first: 0,
            idle: 0,
            busy: 0,
            passed_on: 0,
            is_stopping: false,
        };
        pipeline.set_bursts();
        Ok(pipeline)
    }

    /// An input that leads straight to an output gets a stage that does nothing.
    fn join_inputs_with_outputs(&mut self) {
        for index in 0..self.edges.len() {
            let (from, to) = &self.edges[index];
            if let (Node::Input(input), Node::Output(_)) = (from.node, to.node) {
                let wire = self.stages.len();
                self.stages.push((format!("wire{input}"), Box::new(PassThrough)));
                let end = self.edges[index].1.clone();
                self.edges[index].1 = EdgeTo::from(StageId(wire));
                self.edges.push((EdgeFrom::from(StageId(wire)), end));
            }
        }
    }

    fn check_names(&self) -> Result<(), GraphError> {
        let inputs = self.inputs.iter().map(|(name, ..)| name).collect::<Vec<_>>();
        let stages = self.stages.iter().map(|(name, _)| name).collect();
        let outputs = self.outputs.iter().map(|(name, _)| name).collect();
        for names in [inputs, stages, outputs] {
            let mut seen = HashSet::new();
            if let Some(name) = names.into_iter().find(|name| !seen.insert(name.as_str())) {
                return Err(GraphError::DuplicateName { name: name.clone() });
            }
        }
        Ok(())
    }
}

fn slot(stage: Box<dyn Stage>) -> Slot {
    Slot {
        is_polled: stage.is_polled(),
        edges: vec![UNCONNECTED; stage.output_count()],
        next: UNCONNECTED,
        waits_for: Vec::new(),
        stage,
        counters: StageCounters::new(),
    }
}

/// A pipeline whose edges are being connected.
struct Wiring {
    /// Of the stages.
    names: Vec<String>,
    slots: Vec<Slot>,
    outputs: Vec<OutputNode>,
    /// The outputs' lines, in their order, and then those between stages.
    lines: Vec<Line>,
    has_inner: bool,
    /// The stage, and its input, that each input of the pipeline leads to.
    targets: Vec<Option<(usize, usize)>>,
    edges: Vec<Edge>,
}

impl Wiring {
    fn connect(&mut self, from: EdgeFrom, to: EdgeTo) -> Result<(), GraphError> {
        let input = self.input_number(&to)?;
        let twice = match (from.node, to.node) {
            (Node::Input(index), Node::Stage(stage)) => {
                self.targets[index].replace((stage, input)).is_some().then(|| format!("input {index}"))
            }
            (Node::Stage(index), target) => {
                let output = self.output_number(index, from.output.as_deref())?;
                if output.is_none() && !self.slots[index].stage.passes_on() {
                    let name = self.name_of(target);
                    return Err(GraphError::Unreachable { name, before: self.names[index].clone() });
                }
                let line = self.line_to(target, input);
                let slot = &mut self.slots[index];
                let edge = output.map_or(&mut slot.next, |output| &mut slot.edges[output]);
                let before = std::mem::replace(edge, line);
                let output = from.output.as_deref().unwrap_or("what it passes on");
                (before != UNCONNECTED).then(|| format!("stage '{}' ({output})", self.names[index]))
            }
            _ => None,
        };
        if let Some(from) = twice {
            return Err(GraphError::ConnectedTwice { from });
        }
        self.edges.push(Edge { from: from.node, output: from.output, to: to.node, input: to.input });
        Ok(())
    }

    /// Whether packets get to each stage of each row.
    fn check_rows(&self) -> Result<(), GraphError> {
        for (before, slot) in self.names.iter().zip(&self.slots) {
            if let Some(name) = slot.stage.unreachable() {
                return Err(GraphError::Unreachable { name: name.into_owned(), before: before.clone() });
            }
        }
        Ok(())
    }

    fn name_of(&self, target: Node) -> String {
        match target {
            Node::Stage(index) => self.names.get(index).cloned(),
            Node::Output(index) => self.outputs.get(index).map(|node| node.name.clone()),
            Node::Input(_) => None,
        }
        .unwrap_or_default()
    }

    /// The line that leads to this node: one for each, however many edges end there.
    fn line_to(&mut self, node: Node, input: usize) -> u16 {
        let index = match node {
            Node::Input(index) | Node::Output(index) => index,
            Node::Stage(stage) => {
                let leads_there = |line: &Line| match line.end {
                    End::Stage { stage: other, input: at } => (other, at) == (stage, input),
                    _ => false,
                };
                self.lines.iter().position(leads_there).unwrap_or_else(|| {
                    self.has_inner = true;
                    self.lines.push(Line::new(End::Stage { stage, input }));
                    self.lines.len() - 1
                })
            }
        };
        u16::try_from(index).unwrap_or(UNCONNECTED)
    }

    fn input_number(&self, to: &EdgeTo) -> Result<usize, GraphError> {
        let (Node::Stage(stage), Some(name)) = (to.node, &to.input) else { return Ok(0) };
        let target = &self.slots[stage].stage;
        let names: Vec<_> = (0..target.input_count()).map(|input| target.input_name(input)).collect();
        names.iter().position(|known| known == name).ok_or_else(|| GraphError::UnknownInput {
            stage: self.names[stage].clone(),
            input: name.clone(),
            known: names.join(", "),
        })
    }

    fn output_number(&self, stage: usize, name: Option<&str>) -> Result<Option<usize>, GraphError> {
        let Some(name) = name else { return Ok(None) };
        let source = &self.slots[stage].stage;
        let names: Vec<_> = (0..source.output_count()).map(|output| source.output_name(output)).collect();
        if names.iter().filter(|known| *known == name).count() > 1 {
            return Err(GraphError::DuplicateName { name: name.to_owned() });
        }
        let number = names.iter().position(|known| known == name);
        number.map(Some).ok_or_else(|| GraphError::UnknownOutput {
            stage: self.names[stage].clone(),
            output: name.to_owned(),
            known: if names.is_empty() { "none".to_owned() } else { names.join(", ") },
        })
    }

    /// The stages that packets given to this one can get to, itself included.
    fn stages_behind(&self, stage: usize) -> Vec<usize> {
        let (mut found, mut next) = (vec![stage], 0);
        while let Some(&stage) = found.get(next) {
            next += 1;
            let slot = &self.slots[stage];
            for &edge in slot.edges.iter().chain([&slot.next]) {
                if let Some(Line { end: End::Stage { stage, .. }, .. }) = self.lines.get(usize::from(edge))
                    && !found.contains(stage)
                {
                    found.push(*stage);
                }
            }
        }
        found
    }

    /// What packets that stages make may need, by line.
    fn needs_of_stages(&self) -> Vec<TransmitOffloads> {
        let mut needs = vec![TransmitOffloads::NONE; self.lines.len()];
        for (stage, slot) in self.slots.iter().enumerate() {
            let leaves = slot.stage.leaves();
            for line in self.ways_out(stage).all {
                needs[usize::from(line)] = needs[usize::from(line)].or(leaves);
            }
        }
        needs
    }

    /// The input as the stages that its packets get to can deal with it, and what those may need then.
    fn receive_by(&self, input: Input, stage: usize) -> (Input, TransmitOffloads) {
        let Input::Queue(queue) = input else { return (input, TransmitOffloads::NONE) };
        if queue.leaves().is_none() {
            return (Input::Queue(queue), TransmitOffloads::NONE);
        }
        let accepted = self.stages_behind(stage).into_iter().map(|stage| self.slots[stage].stage.accepts());
        let accepted = accepted.fold(TransmitOffloads::ALL, TransmitOffloads::and);
        let queue = software_offload::on_receive(queue, TransmitOffloads::ALL.without(accepted));
        let left = queue.leaves();
        (Input::Queue(queue), left)
    }

    /// The ways out that packets given to this stage can get to, and those of them that are to be waited for.
    fn ways_out(&self, stage: usize) -> WaysOut {
        let mut found = WaysOut::default();
        for (skips_optional, found) in [(true, &mut found.lossless), (false, &mut found.all)] {
            let mut seen = vec![false; self.slots.len()];
            let mut left = vec![stage];
            while let Some(stage) = left.pop() {
                if std::mem::replace(&mut seen[stage], true) {
                    continue;
                }
                let slot = &self.slots[stage];
                let outputs = slot.edges.iter().enumerate();
                let outputs =
                    outputs.filter(|(output, _)| !(skips_optional && slot.stage.is_optional(*output)));
                for &edge in outputs.map(|(_, edge)| edge).chain([&slot.next]) {
                    match self.lines.get(usize::from(edge)) {
                        Some(Line { end: End::Stage { stage, .. }, .. }) => left.push(*stage),
                        Some(line) if (line.is_lossless || !skips_optional) && !found.contains(&edge) => {
                            found.push(edge);
                        }
                        _ => {}
                    }
                }
            }
        }
        found
    }
}

/// Lines that lead out of a pipeline.
#[derive(Default)]
struct WaysOut {
    /// Those that are to be waited for.
    lossless: Vec<u16>,
    all: Vec<u16>,
}
