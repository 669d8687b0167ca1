//! How a lane hears of probes.

use super::queues::{change_receive, change_transmit};
use super::{Point, Probe, ProbeConfig, ProbeReader, Reminder};
use crate::ends::Input;
use crate::graph::Graph;
use crate::outputs::End;
use crate::pipeline::Pipeline;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use warmlane_sync::ring::RingError;
use warmlane_sync::spsc;

/// Probes at one point, usually.
pub(super) const MOST: usize = 4;

/// Probes that a lane is asked for. It looks once per poll whether there is anything new.
#[derive(Default)]
pub(crate) struct Orders {
    is_new: AtomicBool,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    new: Vec<(Point, Probe)>,
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

    fn add(&self, point: Point, probe: Probe) {
        let mut list = self.lock();
        if !list.is_closed {
            list.new.push((point, probe));
            self.is_new.store(true, Ordering::Relaxed);
        }
    }

    /// The lane ends. Readers of what it has not taken see that theirs are over.
    pub(crate) fn close(&self) {
        *self.lock() = List { new: Vec::new(), is_closed: true };
    }

    /// What is new; `None` if somebody is adding to it, so that it is to be looked at again.
    fn take(&self) -> Option<Vec<(Point, Probe)>> {
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
        let (producer, consumer) = spsc::ring(config.ring)?;
        let probe = Probe::new(producer, config);
        let counters = probe.counters().view();
        self.orders.add(point, probe);
        let reminder = Reminder(Arc::clone(self));
        Ok(ProbeReader { ring: consumer, counters, bytes: Vec::new(), _reminder: reminder })
    }
}

impl Pipeline {
    /// Puts new probes in their places, and takes those away that nobody reads any more.
    #[cold]
    pub(crate) fn change_probes(&mut self) {
        let Some(orders) = self.graph.orders.take() else { return };
        for (point, probe) in orders {
            match point {
                Point::Input(node) => {
                    let source = self.sources.iter_mut().chain(&mut self.vacant).find(|one| one.node == node);
                    if let Some(Input::Queue(queue)) = source.map(|source| &mut source.input) {
                        change_receive(queue, Some(probe));
                    }
                }
                Point::Output(node) => {
                    let line = self.lines.iter_mut().take(self.graph.outputs.len()).nth(node);
                    if let Some(End::Queue(queue)) = line.map(|line| &mut line.end) {
                        change_transmit(queue, Some(probe));
                    }
                }
                Point::Drops => self.drops.change(Some(probe)),
            }
        }
        for source in self.sources.iter_mut().chain(&mut self.vacant) {
            if let Input::Queue(queue) = &mut source.input {
                change_receive(queue, None);
            }
        }
        for line in &mut self.lines {
            if let End::Queue(queue) = &mut line.end {
                change_transmit(queue, None);
            }
        }
        self.drops.change(None);
    }
}
