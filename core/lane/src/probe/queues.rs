//! Queues in front of a port's that show what passes, and what those drop.

use super::Probe;
use crate::trace::{Follower, end_received, transmit_followed};
use std::any::Any;
use warmlane_mem::Burst;
use warmlane_port::watched::{Watch, while_watched};
use warmlane_port::{QueueCountersView, QueueStatus, ReceiveQueue, TransmitQueue, as_inner_queue};

#[inline(always)]
fn watched<T>(watch: Option<&Watch>, work: impl FnOnce() -> T) -> T {
    match watch {
        Some(watch) => while_watched(watch, work),
        None => work(),
    }
}

/// In front of a receive queue.
pub(super) struct ProbedReceive {
    queue: Box<dyn ReceiveQueue>,
    probes: Vec<Probe>,
    /// With the number of the input.
    followers: Vec<(usize, Follower)>,
    watch: Option<Watch>,
}

impl ReceiveQueue for ProbedReceive {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        let before = burst.len();
        let count = watched(self.watch.as_ref(), || self.queue.receive(burst));
        let received = burst.get(before..).unwrap_or_default();
        for probe in &mut self.probes {
            probe.show(received, None);
        }
        if !self.followers.is_empty() {
            end_received(&self.followers, received);
        }
        count
    }

    fn as_any(&mut self) -> Option<&mut dyn Any> {
        Some(self)
    }

    as_inner_queue!(leaves, event, status, has_passed_on, stop, counters, own_counters);
}

/// In front of a transmit queue.
pub(super) struct ProbedTransmit {
    queue: Box<dyn TransmitQueue>,
    probes: Vec<Probe>,
    /// With the number of the output.
    followers: Vec<(usize, Follower)>,
    watch: Option<Watch>,
}

impl TransmitQueue for ProbedTransmit {
    fn transmit(&mut self, burst: &mut Burst) -> usize {
        let Self { queue, probes, followers, watch } = self;
        let mut work = |burst: &mut Burst| {
            if probes.iter_mut().any(|probe| probe.looks_at(burst, None)) {
                return transmit(probes, &mut **queue, burst);
            }
            let taken = queue.transmit(burst);
            for probe in probes.iter_mut() {
                probe.pass(taken);
            }
            taken
        };
        let mut watched = |burst: &mut Burst| watched(watch.as_ref(), || work(burst));
        if followers.is_empty() { watched(burst) } else { transmit_followed(followers, burst, &mut watched) }
    }

    fn flush(&mut self) {
        watched(self.watch.as_ref(), || self.queue.flush());
    }

    fn as_any(&mut self) -> Option<&mut dyn Any> {
        Some(self)
    }

    as_inner_queue!(
        offloads,
        offloads_change,
        is_holding,
        is_costly_to_call,
        is_lossless,
        event,
        status,
        counters,
        own_counters
    );
}

impl Drop for ProbedTransmit {
    /// What a queue still holds at its end is dropped, too.
    fn drop(&mut self) {
        let queue = std::mem::replace(&mut self.queue, Box::new(Nothing));
        watched(self.watch.as_ref(), || drop(queue));
    }
}

/// Copies are made before packets go, and count once they have gone.
#[inline(never)]
fn transmit(probes: &mut [Probe], queue: &mut dyn TransmitQueue, burst: &mut Burst) -> usize {
    let Some((probe, others)) = probes.split_first_mut() else { return queue.transmit(burst) };
    let staged = probe.stage(burst, None);
    let taken = transmit(others, queue, burst);
    staged.commit(taken);
    taken
}

/// Stands for a queue while that is moved.
struct Nothing;

impl ReceiveQueue for Nothing {
    fn receive(&mut self, _: &mut Burst) -> usize {
        0
    }

    fn status(&self) -> QueueStatus {
        QueueStatus::Finished
    }

    fn counters(&self) -> QueueCountersView {
        warmlane_port::QueueCounters::<warmlane_counters::NoDrops>::new().view()
    }
}

impl TransmitQueue for Nothing {
    fn transmit(&mut self, _: &mut Burst) -> usize {
        0
    }

    fn status(&self) -> QueueStatus {
        QueueStatus::Finished
    }

    fn counters(&self) -> QueueCountersView {
        warmlane_port::QueueCounters::<warmlane_counters::NoDrops>::new().view()
    }
}

/// Who wants to see what passes a queue.
pub(super) enum New {
    Probe(Probe),
    /// With the number of the input or output.
    Follower(usize, Follower),
    /// Only this one is shown what the queue drops, or nobody.
    Watch(Option<Watch>),
    /// Nobody new.
    Nothing,
}

/// Adds a probe or a follower to those of a queue, if there is one, and removes those whose readers have gone. A queue is wrapped only
/// while it has any, or is watched.
macro_rules! change {
    ($name:ident, $queue:ident, $probed:ident) => {
        pub(super) fn $name(queue: &mut Box<dyn $queue>, new: New) {
            if queue.as_any().is_none_or(|any| !any.is::<$probed>()) {
                if matches!(new, New::Nothing | New::Watch(None)) {
                    return;
                }
                let inner = std::mem::replace(queue, Box::new(Nothing));
                let (probes, followers) = (Vec::with_capacity(super::MOST), Vec::new());
                *queue = Box::new($probed { queue: inner, probes, followers, watch: None });
            }
            let Some(probed) = queue.as_any().and_then(|any| any.downcast_mut::<$probed>()) else { return };
            probed.probes.retain(|probe| !probe.is_over());
            probed.followers.retain(|(_, follower)| !follower.is_over());
            match new {
                New::Probe(probe) => probed.probes.push(probe),
                New::Follower(number, follower) => probed.followers.push((number, follower)),
                New::Watch(watch) => probed.watch = watch,
                New::Nothing => {}
            }
            if probed.probes.is_empty() && probed.followers.is_empty() && probed.watch.is_none() {
                let inner = std::mem::replace(&mut probed.queue, Box::new(Nothing));
                *queue = inner;
            }
        }
    };
}

change!(change_receive, ReceiveQueue, ProbedReceive);
change!(change_transmit, TransmitQueue, ProbedTransmit);
