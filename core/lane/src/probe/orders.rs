//! How a lane hears of what it is to show: probes, traces, rehearsals, what stages take.

use super::queues::{New, change_receive, change_transmit};
use super::{Point, Probe, ProbeConfig, ProbeReader, Reminder};
use crate::ends::Input;
use crate::graph::{Graph, Node};
use crate::outputs::{End, Line};
use crate::pipeline::Pipeline;
use crate::timing::StageTiming;
use crate::trace::{Follower, Rehearsal, TraceConfig, TraceReader, follow_stage};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use warmlane_mem::Packet;
use warmlane_port::watched::Watch;
use warmlane_sync::ring::RingError;

/// Probes at one point, usually.
pub(crate) const MOST: usize = 4;

/// What a lane is asked for. It looks once per poll whether there is anything new.
#[derive(Default)]
pub(crate) struct Orders {
    is_new: AtomicBool,
    list: Mutex<List>,
}

enum Order {
    Probe(Point, Probe),
    Follow(Follower),
    Rehearse(Rehearsal),
    Time(Weak<()>),
}

#[derive(Default)]
struct List {
    new: Vec<Order>,
    /// The lane has ended: nobody will take any.
    is_closed: bool,
}

impl Orders {
    /// Whether the lane should look: a plain load.
    #[inline(always)]
    pub(crate) fn are_new(&self) -> bool {
        // Relaxed: it is set under the lock, by which the lane sees what was done before.
        self.is_new.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the lane look: at rings that nobody reads any more.
    pub(crate) fn remind(&self) {
        let _list = self.lock();
        self.is_new.store(true, Ordering::Relaxed);
    }

    fn add(&self, order: Order) {
        let mut list = self.lock();
        if !list.is_closed {
            list.new.push(order);
            self.is_new.store(true, Ordering::Relaxed);
        }
    }

    /// The lane ends. Readers of what it has not taken see that theirs are over.
    pub(crate) fn close(&self) {
        *self.lock() = List { new: Vec::new(), is_closed: true };
    }

    /// What is new; `None` if somebody is adding to it, so that it is to be looked at again.
    fn take(&self) -> Option<Vec<Order>> {
        // Before the list is read: what is added behind that announces itself.
        self.is_new.store(false, Ordering::Relaxed);
        match self.list.try_lock() {
            Ok(mut list) => Some(std::mem::take(&mut list.new)),
            Err(TryLockError::Poisoned(list)) => Some(std::mem::take(&mut list.into_inner().new)),
            Err(TryLockError::WouldBlock) => {
                self.is_new.store(true, Ordering::Relaxed);
                None
            }
        }
    }
}

impl std::fmt::Debug for Orders {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Orders").field("is_new", &self.are_new()).finish_non_exhaustive()
    }
}

impl Graph {
    /// Asks the lane for copies of packets at a point. They begin when it next polls. If there is no such point, or the lane has ended, the
    /// reader soon [is over](ProbeReader::is_over).
    ///
    /// # Errors
    /// There is no memory for the ring, or its size is no power of two.
    pub fn probe(self: &Arc<Self>, point: Point, config: ProbeConfig) -> Result<ProbeReader, RingError> {
        let (probe, reader) = Probe::with_reader(config, Some(Reminder(Arc::clone(self))))?;
        self.orders.add(Order::Probe(point, probe));
        Ok(reader)
    }

    /// Asks the lane to say what becomes of packets that come in from its next poll on. If the lane has ended, the reader
    /// [is over](TraceReader::is_over).
    pub fn trace(self: &Arc<Self>, config: TraceConfig) -> TraceReader {
        let (follower, reader) = Follower::new(self, config);
        self.orders.add(Order::Follow(follower));
        reader
    }

    /// Asks the lane what would become of packets that came in by these of its [inputs](Self::inputs). It says so in their order when it next
    /// polls. Nothing is sent, counted or learned.
    pub fn rehearse(self: &Arc<Self>, packets: Vec<(usize, Packet)>) -> TraceReader {
        let (rehearsal, reader) = Rehearsal::new(self, packets);
        self.orders.add(Order::Rehearse(rehearsal));
        reader
    }

    /// Asks the lane to time its stages, one burst in [`TIMED_ONE_IN`](crate::TIMED_ONE_IN), from its next poll on until what this returns is
    /// dropped. [`StageNode::timed`](crate::StageNode::timed) has the figures.
    pub fn time_stages(self: &Arc<Self>) -> StageTiming {
        let (asker, timing) = StageTiming::new(self);
        self.orders.add(Order::Time(asker));
        timing
    }
}

impl Pipeline {
    /// Does what is asked for, and takes away what nobody reads any more.
    #[cold]
    pub(crate) fn follow_orders(&mut self) {
        let Some(orders) = self.graph.orders.take() else { return };
        for order in orders {
            match order {
                Order::Probe(point, probe) => self.add_probe(point, probe),
                Order::Follow(follower) => self.change_all(Some(&follower)),
                Order::Rehearse(rehearsal) => rehearsal.run(self),
                Order::Time(asker) => self.time_stages(Some(&asker)),
            }
        }
        self.change_all(None);
    }

    fn add_probe(&mut self, point: Point, probe: Probe) {
        match point {
            Point::Input(node) => {
                let source = self.sources.iter_mut().chain(&mut self.vacant).find(|one| one.node == node);
                if let Some(Input::Queue(queue)) = source.map(|source| &mut source.input) {
                    change_receive(queue, New::Probe(probe));
                }
            }
            Point::Output(node) => {
                let line = self.lines.iter_mut().take(self.graph.outputs.len()).nth(node);
                if let Some(End::Queue(queue)) = line.map(|line| &mut line.end) {
                    change_transmit(queue, New::Probe(probe));
                }
            }
            Point::Edge(edge) => self.probe_edge(edge, probe),
            Point::Drops => self.drops.change(Some(probe)),
        }
    }

    /// Takes away what nobody reads any more, and follows packets everywhere for this one.
    fn change_all(&mut self, follower: Option<&Follower>) {
        self.drops.change(None);
        self.drops.follow(follower);
        let watcher = self.drops.watcher();
        let new = |number| match follower {
            Some(follower) => New::Follower(number, follower.clone()),
            None => New::Nothing,
        };
        let watch = |port| watcher.clone().map(|watcher| Watch { watcher, port });
        for source in self.sources.iter_mut().chain(&mut self.vacant) {
            if let Input::Queue(queue) = &mut source.input {
                change_receive(queue, New::Watch(watch(source.port)));
                change_receive(queue, new(source.node));
            }
        }
        let leads_to = |(number, line): (usize, &Line)| match line.end {
            End::Stage { stage, .. } => Node::Stage(stage),
            _ => Node::Output(number),
        };
        let nodes: Vec<Node> = self.lines.iter().enumerate().map(leads_to).collect();
        for (number, line) in self.lines.iter_mut().enumerate() {
            if let End::Queue(queue) = &mut line.end {
                change_transmit(queue, New::Watch(watch(None)));
                change_transmit(queue, new(number));
            }
        }
        for (number, slot) in self.slots.iter_mut().enumerate() {
            follow_stage(&mut slot.stage, number, nodes.get(usize::from(slot.next)).copied(), follower);
        }
        self.time_stages(None);
        self.forget_edges();
    }
}
