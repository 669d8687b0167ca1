//! Ports whose queues can be replaced while lanes have them: those of an interface that is deleted and made again, or that comes or goes.
//!
//! A lane keeps the queue that it was started with. Behind it stands another one, which a [`Replacer`] changes: the lane takes the new
//! one at its next poll without packets, or as it flushes, and gives the old one back, for to close it may take long. A lane that sleeps has
//! to be woken for that. Where there is no interface, nothing stands behind it ([`QueueStatus::Vacant`]).

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use warmlane_mem::Burst;
use warmlane_sync::mailbox::{Receiver, Sender, mailbox};
use warmlane_sync::ring::RingError;

use crate::port::{Capabilities, Port};
use crate::queue::{QueueStatus, ReceiveQueue, TransmitQueue};

mod behind;

use behind::{Several, Vacancy};

/// Changes the queues of a port. While it is there, a queue that breaks says that it goes on: it may be replaced yet.
pub struct Replacer {
    receive: Vec<Slot<Box<dyn ReceiveQueue>>>,
    transmit: Vec<Slot<Box<dyn TransmitQueue>>>,
}

impl fmt::Debug for Replacer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (receive, transmit) = (self.receive.len(), self.transmit.len());
        f.debug_struct("Replacer").field("receive", &receive).field("transmit", &transmit).finish()
    }
}

/// Where a new queue is left, and an old one is found.
struct Slot<Q: Send> {
    new: Sender<Q>,
    old: Receiver<Q>,
    /// Old ones that have yet to be found.
    awaited: usize,
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
        let (current, slot) = current(queue)?;
        wrapped.receive.push(Box::new(ReplaceableReceive { queue: current }));
        replacer.receive.push(slot);
    }
    for queue in port.transmit {
        let (current, slot) = current(queue)?;
        wrapped
            .transmit
            .push(Box::new(ReplaceableTransmit { is_vacant: is_vacant(&*current.queue), queue: current }));
        replacer.transmit.push(slot);
    }
    Ok((wrapped, replacer))
}

/// A port of an interface that isn't there, or has yet to come, for so many lanes. It brings nothing, and what is sent by it is dropped.
pub fn vacant(name: impl Into<String>, driver: &'static str, lanes: usize) -> Port {
    Port {
        name: name.into(),
        driver,
        capabilities: Capabilities::default(),
        receive: (0..lanes).map(|_| vacancy()).collect(),
        transmit: (0..lanes).map(|_| vacancy_to_send_by()).collect(),
    }
}

fn vacancy() -> Box<dyn ReceiveQueue> {
    Box::new(Vacancy::default())
}

fn vacancy_to_send_by() -> Box<dyn TransmitQueue> {
    Box::new(Vacancy::default())
}

fn is_vacant(queue: &dyn TransmitQueue) -> bool {
    queue.status() == QueueStatus::Vacant
}

/// Replacements that a lane may have yet to take: it is behind only while it is stuck.
const WAITING: usize = 8;

/// How long lanes are waited for to let go of a queue.
const TIMEOUT: Duration = Duration::from_secs(1);

fn current<Q: Send>(queue: Q) -> Result<(Current<Q>, Slot<Q>), RingError> {
    let ((to_lane, new), (old, from_lane)) = (mailbox(WAITING)?, mailbox(WAITING)?);
    Ok((Current { queue, new, old }, Slot { new: to_lane, old: from_lane, awaited: 0 }))
}

impl Replacer {
    /// Whether a port has enough queues to take the slot: one to send by for each of so many lanes.
    pub fn fits(&self, port: &Port, lanes: usize) -> bool {
        port.transmit.len() >= lanes.min(self.transmit.len())
    }

    /// Lets lanes send by these queues from now on.
    pub fn send_by(&mut self, queues: Vec<Box<dyn TransmitQueue>>) {
        self.collect();
        replace(&mut self.transmit, queues, vacancy_to_send_by);
    }

    /// Lets lanes receive by these queues, and by no others, once those that they have bring nothing more. Of more than there were at first,
    /// lanes have several for one.
    pub fn receive_by(&mut self, mut queues: Vec<Box<dyn ReceiveQueue>>) {
        self.collect();
        let slots = self.receive.len();
        if slots > 0 && queues.len() > slots {
            let mut shares: Vec<Vec<_>> = (0..slots).map(|_| Vec::new()).collect();
            queues.into_iter().enumerate().for_each(|(number, queue)| shares[number % slots].push(queue));
            queues = shares.into_iter().map(Several::of).collect();
        }
        replace(&mut self.receive, queues, vacancy);
    }

    /// Waits until lanes have let go of all that was replaced, and closes it. Says whether that was within a second, as it is unless a
    /// lane hangs.
    pub fn settle(&mut self) -> bool {
        let end = Instant::now() + TIMEOUT;
        while self.receive.iter().any(Slot::is_awaited) || self.transmit.iter().any(Slot::is_awaited) {
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(Duration::from_micros(100));
            self.collect();
        }
        true
    }

    /// Closes queues that lanes have given back.
    pub fn collect(&mut self) {
        collect(&mut self.receive);
        collect(&mut self.transmit);
    }
}

/// Puts the queues in their slots; where there is none left, a vacancy. Those that find no slot, or no lane any more, are closed.
fn replace<Q: Send>(slots: &mut [Slot<Q>], queues: Vec<Q>, vacancy: fn() -> Q) {
    let mut queues = queues.into_iter();
    for slot in slots {
        let queue = queues.next().unwrap_or_else(vacancy);
        slot.awaited += usize::from(slot.new.send(queue).is_ok());
    }
}

fn collect<Q: Send>(slots: &mut [Slot<Q>]) {
    for slot in slots {
        while slot.old.receive().is_ok() {
            slot.awaited = slot.awaited.saturating_sub(1);
        }
    }
}

impl<Q: Send> Slot<Q> {
    /// Whether a lane has yet to give a queue back.
    fn is_awaited(&self) -> bool {
        self.awaited > 0 && !self.new.is_disconnected()
    }
}

impl<Q: Send> Current<Q> {
    /// Goes on with the new queue, if there is one; says so.
    #[inline]
    fn look(&mut self) -> bool {
        match self.new.receive() {
            Ok(new) => {
                self.take(new);
                true
            }
            Err(_) => false,
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
        match (status, self.new.is_disconnected()) {
            (QueueStatus::Failed(_), false) => QueueStatus::Running,
            (QueueStatus::Vacant, true) => QueueStatus::Finished,
            (other, _) => other,
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
            // What the new one brings is for the next poll. A lane that stood still may find several.
            while self.queue.look() && self.queue.status() == QueueStatus::Vacant {}
        }
        count
    }

    fn event(&mut self) -> Option<BorrowedFd<'_>> {
        // A broken one may tell of nothing, or all the time. And who has to take another one is not to wait for this one.
        let is_current = self.queue.status() == QueueStatus::Running && self.queue.new.is_empty();
        is_current.then(|| self.queue.event()).flatten()
    }

    fn status(&self) -> QueueStatus {
        self.queue.status_now(self.queue.status())
    }

    crate::as_inner_queue!(leaves, counters, own_counters);
}

struct ReplaceableTransmit {
    queue: Current<Box<dyn TransmitQueue>>,
    is_vacant: bool,
}

impl ReplaceableTransmit {
    #[cold]
    fn look(&mut self) {
        while self.queue.look() {
            self.is_vacant = is_vacant(&**self.queue);
        }
    }
}

impl TransmitQueue for ReplaceableTransmit {
    #[inline]
    fn transmit(&mut self, burst: &mut Burst) -> usize {
        // Who has packets for it knows that something is there.
        if self.is_vacant {
            self.look();
        }
        self.queue.transmit(burst)
    }

    fn flush(&mut self) {
        self.look();
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
    use crate::queue::{QueueCounters, QueueCountersView};
    use crate::test_queue::Numbers;
    use std::os::fd::AsFd as _;
    use warmlane_mem::{Pool, PoolConfig};
    use warmlane_sys::event::Event;

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

    fn pool() -> Pool {
        Pool::new(&PoolConfig { buffers: 64, ..PoolConfig::default() }).unwrap()
    }

    fn numbers(pool: &Pool, end: u8) -> Vec<Box<dyn ReceiveQueue>> {
        vec![Box::new(Breaks(Numbers::new(pool, end)))]
    }

    fn port(pool: &Pool, end: u8) -> Port {
        Port {
            name: "p".to_owned(),
            driver: "numbers",
            capabilities: Capabilities::default(),
            receive: numbers(pool, end),
            transmit: Vec::new(),
        }
    }

    #[test]
    fn a_queue_that_breaks_is_replaced() {
        let pool = pool();
        let (mut wrapped, mut replacer) = wrap(port(&pool, 3)).unwrap();
        let queue = &mut wrapped.receive[0];
        let mut burst = Burst::new();
        assert_eq!((queue.receive(&mut burst), queue.receive(&mut burst)), (3, 0));
        assert_eq!(queue.status(), QueueStatus::Running, "it may be replaced yet");
        replacer.receive_by(numbers(&pool, 2));
        assert_eq!((queue.receive(&mut burst), queue.receive(&mut burst)), (0, 2));
        assert_eq!(queue.counters().packets(), 2);
        replacer.collect();
        queue.receive(&mut burst);
        assert_eq!(queue.status(), QueueStatus::Running);
        drop(replacer);
        assert_eq!(queue.status(), QueueStatus::Failed("it broke".to_owned()), "nobody replaces it any more");
    }

    #[test]
    fn a_vacant_place_is_taken_and_left_again() {
        let pool = pool();
        let (mut spare, mut replacer) = wrap(vacant("spare", "none", 1)).unwrap();
        let mut burst = Burst::new();
        assert_eq!(
            (spare.receive[0].receive(&mut burst), spare.receive[0].status()),
            (0, QueueStatus::Vacant)
        );
        let (mut lane, mut queue) = (spare.transmit.remove(0), spare.receive.remove(0));
        replacer.receive_by(numbers(&pool, 4));
        assert_eq!((queue.receive(&mut burst), queue.receive(&mut burst)), (0, 4));
        assert_eq!(lane.status(), QueueStatus::Vacant);
        // What is sent to nobody is counted as lost.
        assert_eq!((lane.transmit(&mut burst), lane.counters().drops().total()), (4, 4));
        // A lane that hangs is not waited for without end; one that doesn't lets go as soon as nothing comes.
        replacer.receive_by(Vec::new());
        assert!(!replacer.settle());
        queue.receive(&mut burst);
        assert!(replacer.settle());
        assert_eq!(queue.status(), QueueStatus::Vacant);
        drop(replacer);
        assert_eq!((queue.status(), lane.status()), (QueueStatus::Finished, QueueStatus::Finished));
    }

    /// One that stood still meanwhile, and sleeps after a poll that brought nothing.
    #[test]
    fn a_lane_that_is_behind_does_not_sleep_before_it_has_the_last_replacement() {
        let pool = pool();
        let (mut wrapped, mut replacer) = wrap(vacant("spare", "none", 1)).unwrap();
        let mut burst = Burst::new();
        for queues in [Vec::new(), numbers(&pool, 2)] {
            replacer.receive_by(queues);
            replacer.send_by(vec![Box::new(Sends(QueueCounters::new()))]);
        }
        let queue = &mut wrapped.receive[0];
        assert_eq!([(); 3].map(|()| queue.receive(&mut burst)), [0, 2, 0], "past the vacancy");
        wrapped.transmit[0].flush();
        assert!(replacer.settle());
        // Of queues that bring something, one after the other.
        let wakes = || -> Vec<Box<dyn ReceiveQueue>> { vec![Box::new(Wakes(Event::new().unwrap()))] };
        replacer.receive_by(wakes());
        replacer.receive_by(wakes());
        assert_eq!(queue.receive(&mut burst), 0);
        assert!(queue.event().is_none(), "another one is to be taken first");
        assert_eq!(queue.receive(&mut burst), 0);
        assert!(queue.event().is_some());
    }

    /// Brings nothing, and tells when it would.
    struct Wakes(Event);

    impl ReceiveQueue for Wakes {
        fn receive(&mut self, _burst: &mut Burst) -> usize {
            0
        }

        fn event(&mut self) -> Option<BorrowedFd<'_>> {
            Some(self.0.fd().as_fd())
        }

        fn status(&self) -> QueueStatus {
            QueueStatus::Running
        }

        fn counters(&self) -> QueueCountersView {
            QueueCounters::<warmlane_counters::NoDrops>::new().view()
        }
    }

    #[test]
    fn more_queues_than_places_share_them_and_fewer_leave_some_vacant() {
        let pool = pool();
        let (mut spare, mut replacer) = wrap(vacant("spare", "none", 2)).unwrap();
        let three = [4, 5, 6].map(|end| numbers(&pool, end).remove(0));
        replacer.receive_by(three.into());
        let mut burst = Burst::with_limit(64);
        let mut come = |queue: &mut Box<dyn ReceiveQueue>| {
            burst.clear();
            (0..9).map(|_| queue.receive(&mut burst)).sum::<usize>()
        };
        assert_eq!(spare.receive.iter_mut().map(&mut come).collect::<Vec<_>>(), [4 + 6, 5]);
        replacer.receive_by(numbers(&pool, 3));
        assert_eq!(spare.receive.iter_mut().map(&mut come).collect::<Vec<_>>(), [3, 0]);
        assert_eq!(spare.receive[1].status(), QueueStatus::Vacant);
    }

    #[test]
    fn each_lane_must_have_a_queue_to_send_by() {
        let pool = pool();
        let (_spare, replacer) = wrap(vacant("spare", "none", 2)).unwrap();
        assert!(!replacer.fits(&port(&pool, 3), 2));
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
