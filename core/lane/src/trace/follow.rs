//! Which packets are followed, and what is known of them so far.

use super::{Step, Trace, TraceConfig, TraceEnd, TraceReader, head};
use crate::graph::Graph;
use crate::probe::Reminder;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use warmlane_counters::DropReason;
use warmlane_mem::{BufferId, Packet};

/// Packets that are followed at a time.
const AT_ONCE: usize = 256;

/// Traces that wait to be read.
const UNREAD: usize = 1_024;

/// Packets that are followed in one lane, for one reader. Nobody but the lane ever locks it.
pub(crate) struct Following {
    config: TraceConfig,
    /// Packets that may still be begun with.
    left: usize,
    open: Vec<Open>,
    traces: SyncSender<Trace>,
    alive: Weak<()>,
}

/// A packet on its way.
struct Open {
    /// Which buffer it is in; nobody else has that meanwhile.
    id: BufferId,
    trace: Trace,
    /// How it ended while a stage was still at work on it.
    end: Option<TraceEnd>,
    is_inside: bool,
}

/// The same, for all the places where the packets are seen.
#[derive(Clone)]
pub(crate) struct Follower(Arc<Mutex<Following>>);

impl Follower {
    pub(crate) fn new(graph: &Arc<Graph>, config: TraceConfig) -> (Self, TraceReader) {
        let (sender, receiver) = sync_channel(UNREAD);
        let alive = Arc::new(());
        let left = config.count;
        let weak = Arc::downgrade(&alive);
        let following = Following { config, left, open: Vec::new(), traces: sender, alive: weak };
        let reminder = Reminder(Arc::clone(graph));
        (Self(Arc::new(Mutex::new(following))), TraceReader { traces: receiver, alive, _reminder: reminder })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Following> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody reads any more, or there is nothing more to do.
    pub(crate) fn is_over(&self) -> bool {
        let following = self.lock();
        following.alive.strong_count() == 0 || following.left == 0 && following.open.is_empty()
    }
}

impl Following {
    /// Whether this packet is followed.
    pub(crate) fn has(&self, packet: &Packet) -> bool {
        let id = packet.id();
        self.open.iter().any(|open| open.id == id)
    }

    pub(crate) fn is_busy(&self) -> bool {
        !self.open.is_empty()
    }

    fn place(&self, id: BufferId) -> Option<usize> {
        self.open.iter().position(|open| open.id == id)
    }

    /// Follows a packet that has come in, if it is wanted.
    pub(crate) fn see(&mut self, input: usize, packet: &Packet) {
        // Whoever had this buffer last is gone, and nobody saw where.
        if let Some(place) = self.place(packet.id()) {
            self.finish(place, TraceEnd::Lost);
        }
        let is_wanted = || {
            let inputs = &self.config.inputs;
            (inputs.is_empty() || inputs.contains(&input))
                && self
                    .config
                    .filter
                    .as_ref()
                    .is_none_or(|filter| filter(packet.data(), packet.packet_length()))
        };
        if self.left > 0 && self.open.len() < AT_ONCE && is_wanted() {
            self.left -= 1;
            let trace = Trace::new(input, packet);
            self.open.push(Open { id: packet.id(), trace, end: None, is_inside: false });
        }
    }

    /// A stage begins to work on a packet.
    pub(crate) fn enter(&mut self, id: BufferId) {
        if let Some(place) = self.place(id) {
            self.open[place].is_inside = true;
        }
    }

    /// A stage has done its work on a packet, which has ended there if `end` says so.
    pub(crate) fn leave(&mut self, id: BufferId, step: Step, end: Option<TraceEnd>) {
        let Some(place) = self.place(id) else { return };
        let open = &mut self.open[place];
        open.is_inside = false;
        open.trace.steps.push(step);
        // What was seen outside of the stage is what happened last.
        if let Some(end) = open.end.take().or(end) {
            self.finish(place, end);
        }
    }

    /// A packet has ended, perhaps while a stage is still at work on its burst.
    pub(crate) fn end(&mut self, id: BufferId, end: TraceEnd) {
        let Some(place) = self.place(id) else { return };
        if self.open[place].is_inside {
            self.open[place].end.get_or_insert(end);
        } else {
            self.finish(place, end);
        }
    }

    /// Packets are about to be dropped.
    pub(crate) fn drop_all(&mut self, reason: &DropReason, packets: &[Packet]) {
        if self.is_busy() {
            for packet in packets {
                self.end(packet.id(), TraceEnd::Dropped(*reason));
            }
        }
    }

    /// A queue has taken a packet, whose first bytes these are.
    pub(crate) fn sent(&mut self, id: BufferId, output: usize) {
        self.end(id, TraceEnd::Sent(output));
    }

    fn finish(&mut self, place: usize, end: TraceEnd) {
        let Open { mut trace, .. } = self.open.swap_remove(place);
        trace.end = end;
        // Who doesn't read misses some.
        let _ = self.traces.try_send(trace);
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        while !self.open.is_empty() {
            self.finish(0, TraceEnd::Lost);
        }
    }
}

/// A step that has not been made: the packet as it is.
pub(crate) fn step(stage: usize, input: usize, packet: &Packet) -> Step {
    let (frame, length) = head(packet);
    Step {
        stage,
        input,
        explanation: super::Explanation::default(),
        grown: Vec::new(),
        others: Vec::new(),
        to: None,
        frame,
        length,
    }
}
