//! A one-way ring of packets from one lane to another.

use crate::burst::{BURST_CAPACITY, Burst};
use crate::doorbell::Doorbell;
use crate::id::BufferId;
use crate::packet::Packet;
use crate::register;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use warmlane_counters::{Counter, CounterView};
use warmlane_sync::ring::RingError;
use warmlane_sync::spsc;

/// Packets that went through a channel, counted at both ends; the difference is inside.
#[derive(Clone, Debug)]
pub struct ChannelCounters {
    /// Counted by the sending lane.
    pub sent: CounterView,
    /// Counted by the receiving lane.
    pub received: CounterView,
}

/// What both ends know.
struct Shared {
    counters: ChannelCounters,
    /// Set when the receiver goes. Its end of the ring may live on in `close`, so the ring can't tell.
    receiver_gone: AtomicBool,
    close: Mutex<Close>,
    doorbell: Doorbell,
}

/// Who is gone already. The end that goes last frees what is inside; the lock decides which that is.
#[derive(Default)]
struct Close {
    sender_gone: bool,
    /// Left by a receiver that went first, for the sender to drain.
    consumer: Option<spsc::Consumer<u32>>,
}

/// Makes a channel for up to `capacity` packets, a power of two.
///
/// # Errors
/// [`RingError`], if the capacity is zero, not a power of two or too large.
pub fn channel(capacity: usize) -> Result<(PacketSender, PacketReceiver), RingError> {
    let (producer, consumer) = spsc::ring(capacity)?;
    let (sent, received) = (Counter::new(), Counter::new());
    let shared = Arc::new(Shared {
        counters: ChannelCounters { sent: sent.view(), received: received.view() },
        receiver_gone: AtomicBool::new(false),
        close: Mutex::default(),
        doorbell: Doorbell::default(),
    });
    Ok((
        PacketSender { producer, sent, shared: Arc::clone(&shared), _ring: RingAtEnd(Arc::clone(&shared)) },
        PacketReceiver { consumer: Some(consumer), received, shared },
    ))
}

/// The end of a channel that takes packets in.
pub struct PacketSender {
    producer: spsc::Producer<u32>,
    sent: Counter,
    shared: Arc<Shared>,
    /// Last: it is dropped when the producer's end shows that it is gone.
    _ring: RingAtEnd,
}

/// Lets a receiver that sleeps see that no more will come.
struct RingAtEnd(Arc<Shared>);

impl Drop for RingAtEnd {
    fn drop(&mut self) {
        self.0.doorbell.ring();
    }
}

impl PacketSender {
    /// Sends packets from the front of `burst`, as many as there is space for; returns how many. The rest stays.
    #[inline]
    pub fn send(&mut self, burst: &mut Burst) -> usize {
        let Some(mut slots) = self.producer.reserve_burst(burst.len()) else { return 0 };
        let (first, second) = slots.as_mut_slices();
        burst.names(0, first);
        burst.names(first.len(), second);
        let sent = slots.count();
        slots.commit();
        // SAFETY: no more slots were asked for than the burst has packets, so `sent` is at most its length and every slot
        // has a name; the ring holds them now, and whoever receives or drains them turns each back into a packet once.
        unsafe { burst.forget_front(sent) };
        self.shared.doorbell.ring();
        self.sent.add(sent as u64);
        sent
    }

    /// Whether the receiving end is gone, so that what is sent now would never be received.
    pub fn is_disconnected(&self) -> bool {
        self.shared.receiver_gone.load(Ordering::Relaxed)
    }

    /// The counts of both ends.
    pub fn counters(&self) -> &ChannelCounters {
        &self.shared.counters
    }
}

impl PacketSender {
    /// Ends it, and says how many packets were inside if the receiving end had gone before: nobody receives those.
    pub fn close(mut self) -> usize {
        self.leave()
    }

    fn leave(&mut self) -> usize {
        let mut close = self.shared.close.lock().unwrap_or_else(PoisonError::into_inner);
        close.sender_gone = true;
        close.consumer.take().map_or(0, |mut consumer| drain(&mut consumer))
    }
}

impl Drop for PacketSender {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The end of a channel that gives packets out.
pub struct PacketReceiver {
    /// `Some` until it is dropped.
    consumer: Option<spsc::Consumer<u32>>,
    received: Counter,
    shared: Arc<Shared>,
}

impl PacketReceiver {
    /// Appends packets to `burst`, as many as there are and it has space for; returns how many.
    #[inline]
    pub fn receive(&mut self, burst: &mut Burst) -> usize {
        let Some(consumer) = &mut self.consumer else { return 0 };
        let count = receive(consumer, burst);
        // An empty poll leaves the line alone.
        if count > 0 {
            self.received.add(count as u64);
        }
        count
    }

    /// Packets that wait inside, at least: the sender only adds.
    pub fn len(&self) -> usize {
        self.consumer.as_ref().map_or(0, spsc::Consumer::len)
    }

    /// A descriptor that becomes readable when packets come from now on, or the sending end goes. `None` if there are some already, and
    /// where the kernel lacks what it takes (membarrier(2)): then look again instead of waiting.
    pub fn event(&mut self) -> Option<BorrowedFd<'_>> {
        let event = self.shared.doorbell.wish()?;
        (self.is_empty() && !self.is_finished()).then(|| event.fd().as_fd())
    }

    /// Whether no packet waits inside.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the sending end is gone and all that it sent was received: no more will come.
    pub fn is_finished(&self) -> bool {
        // In this order: what was sent before the end went is seen by the second look.
        self.consumer.as_ref().is_none_or(|consumer| consumer.is_disconnected() && consumer.is_empty())
    }

    /// The counts of both ends.
    pub fn counters(&self) -> &ChannelCounters {
        &self.shared.counters
    }
}

impl PacketReceiver {
    /// Ends it, and says how many packets were inside if the sending end had gone before. Else the sender frees what is inside, and counts it
    /// ([`PacketSender::close`]).
    pub fn close(mut self) -> usize {
        self.leave()
    }

    fn leave(&mut self) -> usize {
        let mut close = self.shared.close.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut consumer) = self.consumer.take() else { return 0 };
        self.shared.receiver_gone.store(true, Ordering::Relaxed);
        if close.sender_gone {
            return drain(&mut consumer);
        }
        close.consumer = Some(consumer);
        0
    }
}

impl Drop for PacketReceiver {
    fn drop(&mut self) {
        self.leave();
    }
}

#[inline]
fn receive(consumer: &mut spsc::Consumer<u32>, burst: &mut Burst) -> usize {
    let Some(names) = consumer.peek_burst(burst.space()) else { return 0 };
    let (first, second) = names.as_slices();
    // They are in the sender's cache: all are asked for before the first is waited for.
    for &name in first.iter().chain(second) {
        register::prefetch(BufferId::from_bits(name));
    }
    for part in [first, second] {
        // SAFETY: each name was put in by `send`, which gave its packet up, and is taken out of the ring below: nothing
        // between here and there can unwind and leave it inside as well.
        let packets = part.iter().map(|&name| unsafe { Packet::from_id(BufferId::from_bits(name)) });
        // SAFETY: the burst has space for as many as were asked for, and the iterator does not panic.
        unsafe { burst.extend_unchecked(packets) };
    }
    let count = names.count();
    names.release();
    count
}

/// Frees what is inside, and says how many packets that were.
fn drain(consumer: &mut spsc::Consumer<u32>) -> usize {
    let (mut burst, mut count) = (Burst::with_limit(BURST_CAPACITY), 0);
    while receive(consumer, &mut burst) > 0 {
        count += burst.len();
        burst.clear();
    }
    count
}
