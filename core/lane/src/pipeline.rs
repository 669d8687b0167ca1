//! The usual task: an input, a stage, an output.

use crate::task::{Poll, Stage, Task};
use std::sync::Arc;
use warmlane_mem::{Burst, PacketReceiver, PacketSender};
use warmlane_port::{QueueStatus, ReceiveQueue, TransmitQueue};
use warmlane_sync::counter::Counter;

/// How often a port that refuses packets is asked again before they are dropped. A queue that is full for that
/// long is fuller than waiting helps: the sender is faster than the link.
const TRANSMIT_TRIES: u32 = 8;

/// Where a pipeline's packets come from.
pub enum Input {
    /// A port's queue.
    Queue(Box<dyn ReceiveQueue>),
    /// Another lane.
    Channel(PacketReceiver),
}

impl From<Box<dyn ReceiveQueue>> for Input {
    fn from(queue: Box<dyn ReceiveQueue>) -> Self {
        Self::Queue(queue)
    }
}

impl From<PacketReceiver> for Input {
    fn from(channel: PacketReceiver) -> Self {
        Self::Channel(channel)
    }
}

/// Where a pipeline's packets go.
pub enum Output {
    /// A port's queue. What it refuses for long is dropped and counted, unless it is lossless.
    Queue {
        /// The queue.
        queue: Box<dyn TransmitQueue>,
        /// Wait for as long as it takes instead of dropping: see `Capabilities::lossless`.
        lossless: bool,
    },
    /// Another lane, which is waited for.
    Channel(PacketSender),
}

impl From<Box<dyn TransmitQueue>> for Output {
    fn from(queue: Box<dyn TransmitQueue>) -> Self {
        Self::Queue { queue, lossless: false }
    }
}

impl From<PacketSender> for Output {
    fn from(channel: PacketSender) -> Self {
        Self::Channel(channel)
    }
}

/// A pipeline's books: `received = sent + taken_by_stage + refused`, once it is empty.
#[derive(Debug, Default)]
pub struct PipelineCounters {
    /// Packets that came in.
    pub received: Counter,
    /// Packets that went out.
    pub sent: Counter,
    /// Packets that the stage removed.
    pub taken_by_stage: Counter,
    /// Packets dropped because the output refused them for too long, or was gone.
    pub refused: Counter,
}

/// Receive, process, transmit, on one lane.
pub struct Pipeline<S> {
    input: Input,
    stage: S,
    output: Output,
    burst: Burst,
    tries: u32,
    stopping: bool,
    counters: Arc<PipelineCounters>,
}

impl<S: Stage> Pipeline<S> {
    /// Puts a pipeline together.
    pub fn new(input: impl Into<Input>, stage: S, output: impl Into<Output>) -> Self {
        Self {
            input: input.into(),
            stage,
            output: output.into(),
            burst: Burst::new(),
            tries: 0,
            stopping: false,
            counters: Arc::default(),
        }
    }

    /// How many packets to gather before the stage runs.
    #[must_use]
    pub fn with_burst(mut self, packets: usize) -> Self {
        self.burst = Burst::with_limit(packets);
        self
    }

    /// The pipeline's books, to keep when it moves to its lane.
    pub fn counters(&self) -> &Arc<PipelineCounters> {
        &self.counters
    }

    /// Sends what can be sent of the burst.
    fn transmit(&mut self) {
        let before = self.burst.len();
        let (sent, gone, waits) = match &mut self.output {
            Output::Queue { queue, lossless } => {
                let sent = queue.transmit(&mut self.burst);
                let gone = sent == 0 && queue.status() != QueueStatus::Running;
                (sent, gone, *lossless)
            }
            Output::Channel(channel) => {
                let sent = channel.send(&mut self.burst);
                (sent, sent == 0 && channel.is_disconnected(), true)
            }
        };
        debug_assert_eq!(sent + self.burst.len(), before);
        self.counters.sent.add(sent as u64);
        self.tries = if sent > 0 { 0 } else { self.tries + 1 };
        if gone || (!waits && self.tries > TRANSMIT_TRIES) {
            self.counters.refused.add(self.burst.len() as u64);
            self.burst.clear();
            self.tries = 0;
        }
    }

    fn idle(&mut self) -> Poll {
        if let Output::Queue { queue, .. } = &mut self.output {
            queue.flush();
        }
        let finished = match &self.input {
            Input::Queue(queue) => self.stopping || queue.status() != QueueStatus::Running,
            Input::Channel(channel) => channel.is_finished(),
        };
        if finished { Poll::Finished } else { Poll::Idle }
    }
}

impl<S: Stage> Task for Pipeline<S> {
    #[inline]
    fn poll(&mut self) -> Poll {
        if !self.burst.is_empty() {
            let before = self.burst.len();
            self.transmit();
            let moved = before - self.burst.len();
            // They were counted when they were received.
            return if moved == 0 { Poll::Idle } else { Poll::Worked(0) };
        }
        let received = match &mut self.input {
            // A stopped lane takes nothing new in from the world; what other lanes have sent it still carries.
            Input::Queue(_) if self.stopping => 0,
            Input::Queue(queue) => queue.receive(&mut self.burst),
            Input::Channel(channel) => channel.receive(&mut self.burst),
        };
        if received == 0 {
            return self.idle();
        }
        self.counters.received.add(received as u64);
        self.stage.process(&mut self.burst);
        self.counters.taken_by_stage.add((received - self.burst.len()) as u64);
        if !self.burst.is_empty() {
            self.transmit();
        }
        Poll::Worked(received)
    }

    fn stop(&mut self) {
        self.stopping = true;
    }

    fn finish(&mut self) {
        self.counters.refused.add(self.burst.len() as u64);
        self.burst.clear();
        if let Output::Queue { queue, .. } = &mut self.output {
            queue.flush();
        }
    }
}
