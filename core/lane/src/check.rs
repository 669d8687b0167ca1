//! Now and then a pipeline looks which of its queues have ended, broken or come back.

use crate::ends::Input;
use crate::graph::{LaneDrop, Node};
use crate::outputs::End;
use crate::pipeline::{Pipeline, Source};
use warmlane_port::QueueStatus;

/// What may be expected of an input.
enum State {
    Open,
    Vacant,
    Ended,
}

impl Pipeline {
    /// Looks for queues that have ended or broken, and flushes. `true`: there is nothing left to do, ever.
    #[cold]
    pub(crate) fn check(&mut self) -> bool {
        self.check_sources();
        let (graph, drops) = (&self.graph, &self.drops);
        // The outputs' lines, in their order; those behind lead to stages.
        for (index, line) in self.lines.iter_mut().enumerate().take(graph.outputs.len()) {
            line.is_unflushed = false;
            let status = match &mut line.end {
                End::Queue(queue) => {
                    queue.flush();
                    line.is_unflushed = queue.is_holding();
                    queue.status()
                }
                End::Channel(channel) if channel.is_disconnected() => QueueStatus::Finished,
                End::Channel(_) | End::Stage { .. } | End::Kept | End::Closed(_) => continue,
            };
            if matches!(status, QueueStatus::Running | QueueStatus::Vacant) {
                continue;
            }
            if let QueueStatus::Failed(sentence) = &status {
                graph.fail(Node::Output(index), sentence.clone());
            }
            // From now on stages find no output there, and drop with that reason at once.
            line.is_unflushed = false;
            line.end = End::Closed(status);
            drops.drop_all(LaneDrop::OutputClosed, &mut line.burst);
        }
        let lines = &self.lines;
        let is_closed =
            |&line: &u16| lines.get(usize::from(line)).is_none_or(|line| matches!(line.end, End::Closed(_)));
        let is_useless =
            |source: &Source| !source.leads_to.is_empty() && source.leads_to.iter().all(is_closed);
        if self.sources.iter().any(is_useless) {
            // What comes in there can't leave.
            let (useless, useful) = std::mem::take(&mut self.sources).into_iter().partition(is_useless);
            self.sources = useful;
            self.drain_channels(useless, LaneDrop::OutputClosed);
        }
        self.is_finished()
    }

    /// Leaves inputs that have ended, and sorts the others by whether something can come in there.
    fn check_sources(&mut self) {
        self.look_at_vacant();
        let mut index = 0;
        while index < self.sources.len() {
            match self.state_of(&self.sources[index]) {
                State::Open => index += 1,
                State::Vacant => self.vacant.push(self.sources.swap_remove(index)),
                State::Ended => drop(self.sources.swap_remove(index)),
            }
        }
    }

    /// Looks whether there is something now where nothing was. What it brings is for the next poll.
    pub(crate) fn look_at_vacant(&mut self) {
        for index in (0..self.vacant.len()).rev() {
            if let Input::Queue(queue) = &mut self.vacant[index].input {
                queue.receive(&mut self.burst);
            }
            match self.state_of(&self.vacant[index]) {
                State::Open => self.sources.push(self.vacant.swap_remove(index)),
                State::Vacant => {}
                State::Ended => drop(self.vacant.swap_remove(index)),
            }
        }
    }

    fn state_of(&self, source: &Source) -> State {
        match &source.input {
            Input::Channel(channel) if channel.is_finished() => State::Ended,
            Input::Channel(_) => State::Open,
            Input::Queue(queue) => match queue.status() {
                QueueStatus::Running | QueueStatus::Vacant if self.is_stopping && !source.goes_on => {
                    State::Ended
                }
                QueueStatus::Running => State::Open,
                QueueStatus::Vacant => State::Vacant,
                QueueStatus::Finished => State::Ended,
                QueueStatus::Failed(sentence) => {
                    self.graph.fail(Node::Input(source.node), sentence);
                    State::Ended
                }
            },
        }
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.sources.is_empty()
            && self.vacant.is_empty()
            && self.lines.iter().all(|line| line.burst.is_empty() && !line.is_holding())
            && self.slots.iter().all(|slot| slot.stage.is_done())
    }
}
