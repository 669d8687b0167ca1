//! What becomes of single packets, stage by stage: for whoever asks why.
//!
//! A [`TraceReader`] is asked for by any thread. [`Graph::trace`](crate::Graph::trace) follows packets that come in: the lane then puts a
//! stage of its own around each of its stages, which gives a packet that is followed to the stage alone, and notes what the stage counted,
//! where the packet went and what was changed in it. [`Graph::rehearse`](crate::Graph::rehearse) asks stages what they would do with
//! packets that never came ([`Stage::rehearse`](crate::Stage::rehearse)), so that nothing is sent or counted. While nobody asks, there is nothing in
//! the way of packets; a packet that is followed costs memory and time, its neighbours in the burst wait for it, and others go as always.

mod follow;
mod queues;
mod rehearse;
mod stage;

use std::fmt::Display;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use warmlane_counters::{DropReason, Source};
use warmlane_mem::Packet;

use crate::graph::Node;
use crate::probe::{Filter, Reminder};

pub(crate) use follow::Follower;
pub(crate) use queues::{end_received, transmit_followed};
pub(crate) use rehearse::Rehearsal;
pub(crate) use stage::{behind_followers, follow_stage};

/// Bytes of a frame that are kept before and behind each stage.
pub(crate) const HEAD: usize = 192;

/// What a stage says of a packet: what it looks up, and what it finds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    notes: Vec<(&'static str, String)>,
    is_closed: bool,
}

impl Explanation {
    /// Adds something, under a name in lower case with hyphens, as it is part of machine-readable output.
    pub fn note(&mut self, name: &'static str, value: impl Display) {
        self.notes.push((name, value.to_string()));
    }

    /// Says that stages behind this one, in the same tuple, won't get the packet as it is now: they aren't asked.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// What was said, in that order.
    pub fn notes(&self) -> &[(&'static str, String)] {
        &self.notes
    }
}

/// What is to be followed.
#[derive(Clone)]
pub struct TraceConfig {
    /// Only these; all if there is none. It is asked at the input.
    pub filter: Option<Filter>,
    /// Indices of [`Graph::inputs`](crate::Graph::inputs); all that are ports' if there is none.
    pub inputs: Vec<usize>,
    /// Packets to follow.
    pub count: usize,
}

/// A counter that grew by a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grown {
    /// The set that it is in.
    pub set: &'static str,
    /// Its name there.
    pub name: &'static str,
    /// Of drops: why.
    pub reason: Option<&'static DropReason>,
    /// By how much.
    pub by: u64,
}

/// What a stage did with a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// One of [`Graph::stages`](crate::Graph::stages).
    pub stage: usize,
    /// The number of the input that the packet came by.
    pub input: usize,
    /// What the stage looked up, before.
    pub explanation: Explanation,
    /// What it counted.
    pub grown: Vec<Grown>,
    /// Other packets that it sent, by where: errors, copies, fragments.
    pub others: Vec<(Node, usize)>,
    /// Where the packet went, if it went on.
    pub to: Option<Node>,
    /// The packet's first bytes then.
    pub frame: Vec<u8>,
    /// Bytes that it had then.
    pub length: usize,
}

/// What became of a packet at last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceEnd {
    /// The queue of this output took it, or would.
    Sent(usize),
    /// It went to another lane by this output.
    Lane(usize),
    /// It was dropped for this reason.
    Dropped(DropReason),
    /// The last stage sent others in its place.
    Replaced,
    /// The last stage has it.
    Kept,
    /// The last stage can't say what it would do without doing it.
    Unknown,
    /// It could not be followed to its end: it was on its way when its lane ended or too much was asked.
    Lost,
}

/// What became of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// When it came in, by [`clock::cycles`](warmlane_sys::clock::cycles).
    pub cycles: u64,
    /// By which of [`Graph::inputs`](crate::Graph::inputs).
    pub input: usize,
    /// Its first bytes, as it came.
    pub frame: Vec<u8>,
    /// Bytes that it had.
    pub length: usize,
    /// The stages that it went through.
    pub steps: Vec<Step>,
    /// What became of it at last.
    pub end: TraceEnd,
}

impl Trace {
    pub(crate) fn new(input: usize, packet: &Packet) -> Self {
        let (frame, length) = head(packet);
        let cycles = warmlane_sys::clock::cycles();
        Self { cycles, input, frame, length, steps: Vec::new(), end: TraceEnd::Lost }
    }
}

/// The first bytes of a packet, and how many it has.
pub(crate) fn head(packet: &Packet) -> (Vec<u8>, usize) {
    let length = packet.packet_length();
    let mut bytes = vec![0; length.min(HEAD)];
    packet.copy_to(&mut bytes);
    (bytes, length)
}

/// All values of some sources.
pub(crate) fn read(sources: &[Box<dyn Source>]) -> Vec<Grown> {
    let mut all = Vec::new();
    for source in sources {
        source.read(&mut |entry| {
            let (set, name) = (entry.description.set, entry.description.name);
            all.push(Grown { set, name, reason: entry.reason, by: entry.value });
        });
    }
    all
}

/// What grew between two readings of the same sources.
pub(crate) fn grown(before: &[Grown], after: Vec<Grown>) -> Vec<Grown> {
    let mut before = before.iter().peekable();
    let mut all = Vec::new();
    for mut now in after {
        // Values that have come meanwhile were zero.
        let then =
            before.next_if(|then| (then.set, then.name, then.reason) == (now.set, now.name, now.reason));
        now.by = now.by.saturating_sub(then.map_or(0, |then| then.by));
        if now.by > 0 {
            all.push(now);
        }
    }
    all
}

/// How a packet ended that went nowhere from a stage, which counted this and sent so many others.
pub(crate) fn end_inside(grown: &[Grown], others: &[(Node, usize)]) -> TraceEnd {
    match grown.iter().find_map(|grown| grown.reason) {
        Some(reason) => TraceEnd::Dropped(*reason),
        None if others.is_empty() => TraceEnd::Kept,
        None => TraceEnd::Replaced,
    }
}

/// The other end of a trace or a rehearsal. Dropping it ends that.
pub struct TraceReader {
    pub(crate) traces: Receiver<Trace>,
    /// Its other ends see by this whether anybody reads. In front of the reminder: gone when that is.
    pub(crate) alive: Arc<()>,
    pub(crate) _reminder: Reminder,
}

impl TraceReader {
    /// The next packet's, if there is one; never waits.
    pub fn read(&mut self) -> Option<Trace> {
        self.traces.try_recv().ok()
    }

    /// Whether no more will come: the lane has ended, or there have been as many as were asked for. Ask before the last
    /// [`read`](Self::read).
    pub fn is_over(&self) -> bool {
        // What is over at once is only found by asking, which would take a trace out.
        Arc::weak_count(&self.alive) == 0
    }
}

impl std::fmt::Debug for TraceReader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TraceReader").field("is_over", &self.is_over()).finish_non_exhaustive()
    }
}
