//! What goes from a stage to the next, for whoever captures that.
//!
//! A stage appends packets to lines that others use, too, so nothing in front of its target could tell which are its own. The lane puts a stage of
//! its own around it instead, which looks what has come to a line while that was at work.

use super::Probe;
use crate::graph::{Edge, Node};
use crate::inner::as_inner_stage;
use crate::outputs::{Line, Outputs};
use crate::pipeline::Pipeline;
use crate::stage::{PassThrough, Stage};
use crate::timing::behind_timing;
use crate::trace::behind_followers;
use std::any::Any;
use std::cell::RefCell;
use warmlane_mem::{Burst, Packet};

/// A probe of what a stage sends by a line, or leaves in its burst.
struct EdgeProbe {
    stage: usize,
    /// `None` of what it leaves.
    line: Option<usize>,
    /// While the stage is at work: packets of the line that have been looked at.
    seen: Option<usize>,
    probe: Probe,
}

impl EdgeProbe {
    /// Copies what has come to the line since.
    fn look(&mut self, waiting: &[Packet]) {
        if let Some(seen) = self.seen {
            self.probe.show(waiting.get(seen..).unwrap_or_default(), None);
            self.seen = Some(waiting.len());
        }
    }
}

/// All of a lane.
#[derive(Default)]
pub(crate) struct EdgeProbes(RefCell<Vec<EdgeProbe>>);

impl EdgeProbes {
    fn are_on(&self, stage: usize) -> bool {
        self.0.borrow().iter().any(|edge| edge.stage == stage)
    }

    /// A stage begins to work.
    fn begin(&self, stage: usize, lines: &[Line]) {
        for edge in self.0.borrow_mut().iter_mut().filter(|edge| edge.stage == stage) {
            edge.seen = edge.line.and_then(|line| lines.get(line)).map(|line| line.burst.len());
        }
    }

    /// It has done its work, and left these.
    fn end(&self, stage: usize, lines: &[Line], left: &[Packet]) {
        for edge in self.0.borrow_mut().iter_mut().filter(|edge| edge.stage == stage) {
            match edge.line.map(|line| lines.get(line)) {
                Some(Some(line)) => edge.look(&line.burst),
                Some(None) => {}
                None => edge.probe.show(left, None),
            }
            edge.seen = None;
        }
    }

    /// Whether anybody looks at anything.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        !self.0.borrow().is_empty()
    }

    /// Sends what waits in a line, as far as it is taken.
    #[cold]
    pub(crate) fn transmit_line(&self, number: usize, line: &mut Line) -> usize {
        let edges = &mut *self.0.borrow_mut();
        let at_work = |edge: &&mut EdgeProbe| edge.line == Some(number) && edge.seen.is_some();
        edges.iter_mut().filter(at_work).for_each(|edge| edge.look(&line.burst));
        let sent = line.transmit();
        edges.iter_mut().filter(at_work).for_each(|edge| edge.seen = Some(line.burst.len()));
        sent
    }

    /// Sends a burst at once, past what waits in the line, as far as it is taken.
    #[cold]
    pub(crate) fn transmit_burst(
        &self,
        number: usize,
        burst: &mut Burst,
        send: &mut dyn FnMut(&mut Burst) -> usize,
    ) -> usize {
        let edges = &mut *self.0.borrow_mut();
        let at_work = edges.iter_mut().filter(|edge| edge.line == Some(number) && edge.seen.is_some());
        let mut probes: Vec<&mut Probe> = at_work.map(|edge| &mut edge.probe).collect();
        transmit(&mut probes, burst, send)
    }

    /// Adds a probe, and takes away those that nobody reads any more.
    fn change(&self, new: Option<EdgeProbe>) {
        let mut edges = self.0.borrow_mut();
        edges.retain(|edge| !edge.probe.is_over());
        edges.extend(new);
    }
}

/// Copies are made before packets go, and count once they have gone.
fn transmit(
    probes: &mut [&mut Probe],
    burst: &mut Burst,
    send: &mut dyn FnMut(&mut Burst) -> usize,
) -> usize {
    let Some((probe, others)) = probes.split_first_mut() else { return send(burst) };
    let staged = probe.stage(burst, None);
    let taken = transmit(others, burst, send);
    staged.commit(taken);
    taken
}

/// Around a stage of which somebody looks at an edge.
struct ProbedStage {
    stage: Box<dyn Stage>,
    number: usize,
}

impl ProbedStage {
    fn watch<T>(
        &mut self,
        burst: &mut Burst,
        outputs: &mut Outputs<'_>,
        work: impl FnOnce(&mut dyn Stage, &mut Burst, &mut Outputs<'_>) -> T,
    ) -> T {
        outputs.edge_probes().begin(self.number, outputs.lines);
        let done = work(&mut *self.stage, burst, outputs);
        outputs.edge_probes().end(self.number, outputs.lines, burst);
        done
    }
}

#[deny(clippy::missing_trait_methods)]
impl Stage for ProbedStage {
    fn process(&mut self, burst: &mut Burst, outputs: &mut Outputs<'_>) {
        self.watch(burst, outputs, |stage, burst, outputs| stage.process(burst, outputs));
    }

    fn process_input(&mut self, input: usize, burst: &mut Burst, outputs: &mut Outputs<'_>) {
        self.watch(burst, outputs, |stage, burst, outputs| stage.process_input(input, burst, outputs));
    }

    fn poll(&mut self, now: u64, burst: &mut Burst, outputs: &mut Outputs<'_>) -> usize {
        self.watch(burst, outputs, |stage, burst, outputs| stage.poll(now, burst, outputs))
    }

    fn idle(&mut self, outputs: &mut Outputs<'_>) {
        self.watch(&mut Burst::with_limit(0), outputs, |stage, _, outputs| stage.idle(outputs));
    }

    fn finish(&mut self, burst: &mut Burst, outputs: &mut Outputs<'_>) -> usize {
        self.watch(burst, outputs, |stage, burst, outputs| stage.finish(burst, outputs))
    }

    as_inner_stage!(shape, is_polled, sleep, stop, is_done, counters, explain, rehearse, every);

    fn as_any(&mut self) -> Option<&mut dyn Any> {
        Some(self)
    }
}

impl Pipeline {
    /// Looks at what goes over this edge of a stage's.
    pub(crate) fn probe_edge(&mut self, edge: usize, probe: Probe) {
        let Some(Edge { from: Node::Stage(number), output, .. }) = self.graph.edges.get(edge) else { return };
        let Some(slot) = self.slots.get(*number) else { return };
        let line = match output {
            None => None,
            Some(name) => {
                let outputs = 0..slot.stage.output_count();
                let output = outputs.into_iter().find(|output| slot.stage.output_name(*output) == *name);
                let Some(line) = output.and_then(|output| slot.edges.get(output)) else { return };
                Some(usize::from(*line))
            }
        };
        self.drops.edges.change(Some(EdgeProbe { stage: *number, line, seen: None, probe }));
        self.wrap_probed_stages();
    }

    /// Takes away what nobody reads any more.
    pub(crate) fn forget_edges(&mut self) {
        self.drops.edges.change(None);
        self.wrap_probed_stages();
    }

    /// A stage is wrapped only while somebody looks at an edge of it.
    fn wrap_probed_stages(&mut self) {
        for (number, slot) in self.slots.iter_mut().enumerate() {
            let is_on = self.drops.edges.are_on(number);
            behind_followers(&mut slot.stage, |stage| {
                behind_timing(stage, |stage| wrap(stage, number, is_on));
            });
        }
    }
}

fn wrap(stage: &mut Box<dyn Stage>, number: usize, is_on: bool) {
    let probed = stage.as_any().and_then(|any| any.downcast_mut::<ProbedStage>());
    match probed {
        Some(probed) if !is_on => {
            let inner = std::mem::replace(&mut probed.stage, Box::new(PassThrough));
            *stage = inner;
        }
        None if is_on => {
            let inner = std::mem::replace(stage, Box::new(PassThrough));
            *stage = Box::new(ProbedStage { stage: inner, number });
        }
        _ => {}
    }
}
