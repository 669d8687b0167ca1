//! What would become of packets that never came.

use super::follow::step;
use super::{Trace, TraceEnd, TraceReader, end_inside, head, read};
use crate::graph::{Graph, Node};
use crate::outputs::{End, Line, Outputs};
use crate::pipeline::Pipeline;
use crate::probe::{Reminder, StageProbes};
use std::sync::Arc;
use std::sync::Weak;
use std::sync::mpsc::{SyncSender, sync_channel};
use warmlane_counters::Source;
use warmlane_mem::{BURST_CAPACITY, Burst, Packet};

/// How often a packet may go from stage to stage.
const STEPS: usize = 32;

/// Packets, with the inputs that they would come in by.
pub(crate) struct Rehearsal {
    packets: Vec<(usize, Packet)>,
    traces: SyncSender<Trace>,
    /// As long as there is this, the reader waits.
    _alive: Weak<()>,
}

impl Rehearsal {
    pub(crate) fn new(graph: &Arc<Graph>, packets: Vec<(usize, Packet)>) -> (Self, TraceReader) {
        let (sender, receiver) = sync_channel(packets.len());
        let alive = Arc::new(());
        let weak = Arc::downgrade(&alive);
        let reminder = Reminder(Arc::clone(graph));
        (
            Self { packets, traces: sender, _alive: weak },
            TraceReader { traces: receiver, alive, _reminder: reminder },
        )
    }

    pub(crate) fn run(self, pipeline: &mut Pipeline) {
        for (input, packet) in self.packets {
            let trace = pipeline.rehearse(input, packet);
            // There is space for all; nobody may be left who reads.
            let _ = self.traces.try_send(trace);
        }
    }
}

impl Pipeline {
    /// Says what would become of a packet that came in by an input, one of [`Graph::inputs`]. Nothing is sent, counted or learned. Where
    /// the packet ends is [`TraceEnd::Unknown`] if there is no such input, or a stage can't say without doing it.
    #[cold]
    pub fn rehearse(&mut self, input: usize, mut packet: Packet) -> Trace {
        let mut trace = Trace::new(input, &packet);
        trace.end = TraceEnd::Unknown;
        let source = self.sources.iter().chain(&self.vacant).find(|source| source.node == input);
        let Some(source) = source else { return trace };
        let (mut stage, mut stage_input) = (source.stage, source.stage_input);
        if let Some(port) = source.port {
            packet.set_port(port);
        }
        let mut lines: Vec<Line> = self.lines.iter().map(Line::rehearsal).collect();
        let drops = StageProbes::new();
        let mut next = Some(packet);
        while let Some(packet) = next.take().filter(|_| trace.steps.len() < STEPS) {
            let Some(slot) = self.slots.get_mut(stage) else { break };
            let (id, mut step) = (packet.id(), step(stage, stage_input, &packet));
            slot.stage.explain(stage_input, &packet, &mut step.explanation);
            let mut burst = Burst::with_limit(BURST_CAPACITY);
            let _ = burst.push(packet);
            let counted = slot.stage.rehearse(
                stage_input,
                &mut burst,
                &mut Outputs::new(&mut lines, &slot.edges, &drops),
            );
            let Some(mut counted) = counted else {
                trace.steps.push(step);
                break;
            };
            let lane_drops: Box<dyn Source> = Box::new(drops.counters.view());
            counted.push(lane_drops);
            step.grown = read(&counted).into_iter().filter(|grown| grown.by > 0).collect();
            // What it leaves in the burst goes on by a line, too.
            if let Some(line) = lines.get_mut(usize::from(slot.next)) {
                burst.move_to(&mut line.burst);
            }
            let mut end = None;
            for (number, line) in lines.iter_mut().enumerate() {
                let Some((node, to)) = self.lines.get(number).map(|real| place(number, &real.end)) else {
                    continue;
                };
                let mut others = 0;
                for packet in line.burst.drain() {
                    if packet.id() != id {
                        others += 1;
                        continue;
                    }
                    step.to = Some(node);
                    (step.frame, step.length) = head(&packet);
                    match to {
                        Way::Stage(to, input) => {
                            (stage, stage_input, next) = (to, input, Some(packet));
                        }
                        Way::Out => end = Some(TraceEnd::Sent(number)),
                        Way::Lane => end = Some(TraceEnd::Lane(number)),
                    }
                }
                if others > 0 {
                    step.others.push((node, others));
                }
            }
            if next.is_none() {
                trace.end = end.unwrap_or_else(|| end_inside(&step.grown, &step.others));
            }
            trace.steps.push(step);
        }
        trace
    }
}

/// Which way a line leads.
enum Way {
    Stage(usize, usize),
    Lane,
    Out,
}

fn place(number: usize, end: &End) -> (Node, Way) {
    match end {
        End::Stage { stage, input } => (Node::Stage(*stage), Way::Stage(*stage, *input)),
        End::Channel(_) => (Node::Output(number), Way::Lane),
        End::Queue(_) | End::Kept | End::Closed(_) => (Node::Output(number), Way::Out),
    }
}

impl Line {
    /// One that leads as far as this one, where packets stay.
    fn rehearsal(&self) -> Self {
        Self::new(match &self.end {
            End::Closed(status) => End::Closed(status.clone()),
            _ => End::Kept,
        })
    }
}
