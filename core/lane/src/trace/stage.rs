//! A stage around another one, which notes what that does with packets that are followed.

use super::follow::step;
use super::{Follower, TraceEnd, end_inside, grown, head, read};
use crate::graph::Node;
use crate::inner::as_inner_stage;
use crate::outputs::{End, Outputs};
use crate::stage::{PassThrough, Stage};
use std::any::Any;
use warmlane_counters::Source;
use warmlane_mem::{BURST_CAPACITY, Burst, Packet};

struct FollowedStage {
    stage: Box<dyn Stage>,
    number: usize,
    /// Where what it leaves in the burst goes.
    next: Option<Node>,
    sources: Vec<Box<dyn Source>>,
    followers: Vec<Follower>,
    /// What has not been processed yet.
    rest: Box<Burst>,
}

/// Adds a follower to those of a stage, if there is one, and removes those whose readers have gone. A stage is wrapped only while it has
/// followers.
pub(crate) fn follow_stage(
    stage: &mut Box<dyn Stage>,
    number: usize,
    next: Option<Node>,
    follower: Option<&Follower>,
) {
    if stage.as_any().is_none_or(|any| !any.is::<FollowedStage>()) {
        if follower.is_none() {
            return;
        }
        let inner = std::mem::replace(stage, Box::new(PassThrough));
        let (sources, followers) = (inner.counters(), Vec::new());
        let rest = Box::new(Burst::with_limit(BURST_CAPACITY));
        *stage = Box::new(FollowedStage { stage: inner, number, next, sources, followers, rest });
    }
    let Some(followed) = stage.as_any().and_then(|any| any.downcast_mut::<FollowedStage>()) else { return };
    followed.followers.retain(|follower| !follower.is_over());
    followed.followers.extend(follower.cloned());
    if followed.followers.is_empty() {
        let inner = std::mem::replace(&mut followed.stage, Box::new(PassThrough));
        *stage = inner;
    }
}

/// Gives `change` the stage, or what is inside of it while it is followed: that is always outside.
pub(crate) fn behind_followers<T>(
    stage: &mut Box<dyn Stage>,
    change: impl FnOnce(&mut Box<dyn Stage>) -> T,
) -> T {
    if let Some(followed) = stage.as_any().and_then(|any| any.downcast_mut::<FollowedStage>()) {
        return change(&mut followed.stage);
    }
    change(stage)
}

impl FollowedStage {
    fn follows(&self, packet: &Packet) -> bool {
        self.followers.iter().any(|follower| follower.lock().has(packet))
    }

    /// Gives one packet to the stage, and notes what that does.
    fn one(&mut self, input: usize, part: &mut Burst, outputs: &mut Outputs<'_>) {
        let Some(packet) = part.first() else { return };
        let (id, mut step) = (packet.id(), step(self.number, input, packet));
        self.stage.explain(input, packet, &mut step.explanation);
        self.followers.iter().for_each(|follower| follower.lock().enter(id));
        let (before, waiting) = (read(&self.sources), outputs.waiting_by_line());
        self.stage.process_input(input, part, outputs);
        step.grown = grown(&before, read(&self.sources));

        let stays = part.iter().find(|packet| packet.id() == id);
        let found = outputs.find(|packet| packet.id() == id);
        (step.to, (step.frame, step.length)) = match (stays, found) {
            (Some(packet), _) => (self.next, head(packet)),
            (None, Some((node, packet))) => (Some(node), head(packet)),
            (None, None) => (None, (step.frame, step.length)),
        };
        let is_elsewhere = stays.is_some() || found.is_some();
        for (line, (before, now)) in waiting.iter().zip(outputs.waiting_by_line()).enumerate() {
            let Some(node) = outputs.node(line) else { continue };
            let is_here = stays.is_none() && step.to == Some(node);
            let others = now.saturating_sub(*before).saturating_sub(usize::from(is_here));
            if others > 0 {
                step.others.push((node, others));
            }
        }
        if let Some(next) = self.next.filter(|_| part.len() > usize::from(stays.is_some())) {
            step.others.push((next, part.len() - usize::from(stays.is_some())));
        }
        let end = match step.to {
            Some(Node::Output(output)) if outputs.is_lane(output) => Some(TraceEnd::Lane(output)),
            _ if is_elsewhere => None,
            _ => Some(end_inside(&step.grown, &step.others)),
        };
        for follower in &self.followers {
            follower.lock().leave(id, step.clone(), end.clone());
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl Stage for FollowedStage {
    fn process(&mut self, burst: &mut Burst, outputs: &mut Outputs<'_>) {
        self.process_input(0, burst, outputs);
    }

    fn process_input(&mut self, input: usize, burst: &mut Burst, outputs: &mut Outputs<'_>) {
        let is_busy = self.followers.iter().any(|follower| follower.lock().is_busy());
        if !is_busy || !burst.iter().any(|packet| self.follows(packet)) {
            return self.stage.process_input(input, burst, outputs);
        }
        let mut rest = std::mem::take(&mut self.rest);
        burst.move_to(&mut rest);
        while let Some(first) = rest.first() {
            let is_followed = self.follows(first);
            let run = if is_followed { 1 } else { rest.iter().take_while(|one| !self.follows(one)).count() };
            // There is as much space for copies as there would be in the whole burst.
            let mut part = Burst::with_limit(burst.limit().saturating_sub(burst.len() + rest.len() - run));
            rest.move_front_to(run, &mut part);
            if is_followed {
                self.one(input, &mut part, outputs);
            } else {
                self.stage.process_input(input, &mut part, outputs);
            }
            part.move_to(burst);
        }
        self.rest = rest;
    }

    as_inner_stage!(
        shape, is_polled, poll, idle, sleep, stop, is_done, finish, counters, explain, rehearse, every
    );

    fn as_any(&mut self) -> Option<&mut dyn Any> {
        Some(self)
    }
}

impl Outputs<'_> {
    /// Packets that wait in each of the lane's lines.
    fn waiting_by_line(&self) -> Vec<usize> {
        self.lines.iter().map(|line| line.burst.len()).collect()
    }

    /// The first waiting packet for which `is_it` is true, and where it waits.
    fn find(&self, is_it: impl Fn(&Packet) -> bool) -> Option<(Node, &Packet)> {
        self.lines.iter().enumerate().find_map(|(number, line)| {
            let packet = line.burst.iter().find(|packet| is_it(packet))?;
            Some((self.node(number)?, packet))
        })
    }

    /// What a line leads to. Those of outputs come first, in their order.
    fn node(&self, line: usize) -> Option<Node> {
        Some(match self.lines.get(line)?.end {
            End::Stage { stage, .. } => Node::Stage(stage),
            _ => Node::Output(line),
        })
    }

    fn is_lane(&self, output: usize) -> bool {
        self.lines.get(output).is_some_and(|line| matches!(line.end, End::Channel(_)))
    }
}
