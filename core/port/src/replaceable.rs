//! Ports whose queues can be replaced while lanes have them, as those of an interface that is deleted and made again.
//!
//! A lane keeps the queue that it was started with. Behind it stands another one, which [`Replacer::replace`] changes: the lane takes the new
//! one at its next poll without packets, or as it flushes, and gives the old one back, for to close it may take long.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;

use warmlane_mem::Burst;
use warmlane_sync::mailbox::{Receiver, Sender, mailbox};
use warmlane_sync::ring::RingError;

use crate::port::Port;
use crate::queue::{QueueStatus, ReceiveQueue, TransmitQueue};

/// Changes the queues of a port. While it is there, a queue that breaks says that it goes on: it may be replaced yet.
pub struct Replacer {
    receive: Vec<Place<Box<dyn ReceiveQueue>>>,
    transmit: Vec<Place<Box<dyn TransmitQueue>>>,
}

impl fmt::Debug for Replacer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (receive, transmit) = (self.receive.len(), self.transmit.len());
        f.debug_struct("Replacer").field("receive", &receive).field("transmit", &transmit).finish()
    }
}

/// Where a new queue is left, and an old one is found.
struct Place<Q: Send> {
    new: Sender<Q>,
    old: Receiver<Q>,
}

/// The other end.
struct Current<Q: Send> {
    queue: Q,
    new: Receiver<Q>,
    old: Sender<Q>,
}

/// Lets the queues of a port be replaced. What they count is theirs: who replaces them registers the new port's, too.
///
/// # Errors
/// No memory.
pub fn wrap(port: Port) -> Result<(Port, Replacer), RingError> {
    let mut replacer = Replacer { receive: Vec::new(), transmit: Vec::new() };
    let mut wrapped = Port { receive: Vec::new(), transmit: Vec::new(), ..port };
    for queue in port.receive {
        let (current, place) = current(queue)?;
        wrapped.receive.push(Box::new(ReplaceableReceive { queue: current }));
        replacer.receive.push(place);
    }
    for queue in port.transmit {
        let (current, place) = current(queue)?;
        wrapped.transmit.push(Box::new(ReplaceableTransmit { queue: current }));
        replacer.transmit.push(place);
    }
    Ok((wrapped, replacer))
}

/// Replacements that a lane may have yet to take: it is behind only while it is stuck.
const WAITING: usize = 8;

fn current<Q: Send>(queue: Q) -> Result<(Current<Q>, Place<Q>), RingError> {
    let ((to_lane, new), (old, from_lane)) = (mailbox(WAITING)?, mailbox(WAITING)?);
    Ok((Current { queue, new, old }, Place { new: to_lane, old: from_lane }))
}

impl Replacer {
    /// Whether a port has as many queues as the one that it is to take the place of.
    pub fn fits(&self, port: &Port) -> bool {
        (port.receive.len(), port.transmit.len()) == (self.receive.len(), self.transmit.len())
    }

    /// Lets lanes go on with the queues of this port, which must [fit](Self::fits). Those that no lane takes any more are closed.
    pub fn replace(&mut self, port: Port) {
        self.collect();
        replace(&mut self.receive, port.receive);
        replace(&mut self.transmit, port.transmit);
    }

    /// Closes queues that lanes have given back.
    pub fn collect(&mut self) {
        collect(&mut self.receive);
        collect(&mut self.transmit);
    }
}

fn replace<Q: Send>(places: &mut [Place<Q>], queues: Vec<Q>) {
    for (place, queue) in places.iter_mut().zip(queues) {
        drop(place.new.send(queue));
    }
}

fn collect<Q: Send>(places: &mut [Place<Q>]) {
    for place in places {
        while place.old.receive().is_ok() {}
    }
}

impl<Q: Send> Current<Q> {
    /// Goes on with the new queue, if there is one.
    #[inline]
    fn look(&mut self) {
        if let Ok(new) = self.new.receive() {
            self.take(new);
        }
    }

    #[cold]
    fn take(&mut self, new: Q) {
        let old = std::mem::replace(&mut self.queue, new);
        // Nobody wants it any more: it is closed here.
        drop(self.old.send(old));
    }

    /// How it is with a queue that says this of itself.
    fn status_now(&self, status: QueueStatus) -> QueueStatus {
        match status {
            QueueStatus::Failed(_) if !self.new.is_disconnected() => QueueStatus::Running,
            other => other,
        }
    }
}

impl<Q: Send> Deref for Current<Q> {
    type Target = Q;

    fn deref(&self) -> &Q {
        &self.queue
    }
}

impl<Q: Send> DerefMut for Current<Q> {
    fn deref_mut(&mut self) -> &mut Q {
        &mut self.queue
    }
}

struct ReplaceableReceive {
    queue: Current<Box<dyn ReceiveQueue>>,
}

impl ReceiveQueue for ReplaceableReceive {
    #[inline]
    fn receive(&mut self, burst: &mut Burst) -> usize {
        let count = self.queue.receive(burst);
        if count == 0 {
            self.queue.look();
        }
        count
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        // A broken one may tell of nothing, or all the time.
        (self.queue.status() == QueueStatus::Running).then(|| self.queue.event()).flatten()
    }

    fn status(&self) -> QueueStatus {
        self.queue.status_now(self.queue.status())
    }

    crate::as_inner_queue!(leaves, counters, own_counters);
}

struct ReplaceableTransmit {
    queue: Current<Box<dyn TransmitQueue>>,
}

impl TransmitQueue for ReplaceableTransmit {
    #[inline]
    fn transmit(&mut self, burst: &mut Burst) -> usize {
        self.queue.transmit(burst)
    }

    fn flush(&mut self) {
        self.queue.look();
        self.queue.flush();
    }

    fn status(&self) -> QueueStatus {
        self.queue.status_now(self.queue.status())
    }

    crate::as_inner_queue!(offloads, offloads_change, is_holding, is_costly_to_call, is_lossless);
    crate::as_inner_queue!(event, counters, own_counters);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::Capabilities;
    use crate::queue::{QueueCounters, QueueCountersView};
    use crate::test_queue::Numbers;
    use warmlane_mem::{Pool, PoolConfig};

    /// Brings numbers, and breaks when there are no more.
    struct Breaks(Numbers);

    impl ReceiveQueue for Breaks {
        fn receive(&mut self, burst: &mut Burst) -> usize {
            self.0.receive(burst)
        }

        fn status(&self) -> QueueStatus {
            match self.0.status() {
                QueueStatus::Finished => QueueStatus::Failed("it broke".to_owned()),
                other => other,
            }
        }

        fn counters(&self) -> QueueCountersView {
            self.0.counters()
        }
    }

    fn port(pool: &Pool, end: u8) -> Port {
        Port {
            name: "p".to_owned(),
            driver: "numbers",
            capabilities: Capabilities::default(),
            receive: vec![Box::new(Breaks(Numbers::new(pool, end)))],
            transmit: Vec::new(),
        }
    }

    #[test]
    fn a_queue_that_breaks_is_replaced() {
        let pool = Pool::new(&PoolConfig { buffers: 64, ..PoolConfig::default() }).unwrap();
        let (mut wrapped, mut replacer) = wrap(port(&pool, 3)).unwrap();
        let queue = &mut wrapped.receive[0];
        let mut burst = Burst::new();
        assert_eq!((queue.receive(&mut burst), queue.receive(&mut burst)), (3, 0));
        assert_eq!(queue.status(), QueueStatus::Running, "it may be replaced yet");
        let next = port(&pool, 2);
        assert!(replacer.fits(&next));
        replacer.replace(next);
        assert_eq!((queue.receive(&mut burst), queue.receive(&mut burst)), (0, 2));
        assert_eq!(queue.counters().packets(), 2);
        replacer.collect();
        queue.receive(&mut burst);
        assert_eq!(queue.status(), QueueStatus::Running);
        drop(replacer);
        assert_eq!(queue.status(), QueueStatus::Failed("it broke".to_owned()), "nobody replaces it any more");
    }

    #[test]
    fn another_number_of_queues_does_not_fit() {
        let pool = Pool::new(&PoolConfig { buffers: 64, ..PoolConfig::default() }).unwrap();
        let (_wrapped, replacer) = wrap(port(&pool, 3)).unwrap();
        let mut two = port(&pool, 3);
        two.receive.push(Box::new(Breaks(Numbers::new(&pool, 1))));
        assert!(!replacer.fits(&two));
    }

    /// Says what no default does.
    struct Sends(QueueCounters);

    impl TransmitQueue for Sends {
        fn transmit(&mut self, burst: &mut Burst) -> usize {
            burst.drain().count()
        }

        fn offloads_change(&self) -> bool {
            true
        }

        fn is_lossless(&self) -> bool {
            true
        }

        fn status(&self) -> QueueStatus {
            QueueStatus::Finished
        }

        fn counters(&self) -> QueueCountersView {
            self.0.view()
        }
    }

    #[test]
    fn what_a_transmit_queue_says_is_said_by_the_one_in_front() {
        let pool = Pool::new(&PoolConfig { buffers: 64, ..PoolConfig::default() }).unwrap();
        let transmit: Vec<Box<dyn TransmitQueue>> = vec![Box::new(Sends(QueueCounters::new()))];
        let (wrapped, _replacer) = wrap(Port { transmit, ..port(&pool, 3) }).unwrap();
        let queue = &wrapped.transmit[0];
        assert_eq!(queue.status(), QueueStatus::Finished);
        assert!(queue.offloads_change() && queue.is_lossless());
    }
}
