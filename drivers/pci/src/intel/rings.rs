//! A pair of rings as lanes and the port's thread share them.
//!
//! A lane holds a ring's lock for the length of a burst, the thread for that of a change. So when a ring was taken away, no lane uses its memory.

use super::receive::ReceiveRing;
use super::transmit::TransmitRing;
use std::sync::Arc;
use warmlane_driver_common::peer::Event;
use warmlane_sync::spin::SpinLock;

/// What a port's queues hold together, and the last of them drops: it stops the card.
pub(crate) type PortEnd = Arc<dyn Send + Sync>;

/// What the card did that can't be. The ring is not to be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken(pub(crate) &'static str);

/// A pair of rings, while the card runs.
#[derive(Debug)]
pub(crate) struct Rings<Q> {
    pub(crate) receive: SpinLock<Option<ReceiveRing<Q>>>,
    pub(crate) transmit: SpinLock<Option<TransmitRing<Q>>>,
    broken: SpinLock<Option<Broken>>,
    /// Lanes wait for it: the card has received something, or the ring is another one.
    pub(crate) received: Event,
    /// Tells the port's thread.
    pub(crate) alarm: Event,
}

impl<Q> Rings<Q> {
    /// None yet. The card signals `received`, and lanes `alarm`.
    pub(crate) fn new(received: Event, alarm: Event) -> Self {
        Self {
            receive: SpinLock::new(None),
            transmit: SpinLock::new(None),
            broken: SpinLock::new(None),
            received,
            alarm,
        }
    }

    /// Lanes use these from now on.
    pub(crate) fn start(&self, receive: ReceiveRing<Q>, transmit: TransmitRing<Q>) {
        *self.broken.lock() = None;
        *self.receive.lock() = Some(receive);
        *self.transmit.lock() = Some(transmit);
        // Whoever waits has the card's new ring tell it.
        self.received.signal();
    }

    /// No lane uses any.
    pub(crate) fn stop(&self) {
        *self.receive.lock() = None;
        *self.transmit.lock() = None;
    }

    /// A ring in its place is not to be used any more.
    #[cold]
    pub(crate) fn break_off<T>(&self, place: &mut Option<T>, broken: Broken) {
        *place = None;
        *self.broken.lock() = Some(broken);
        self.alarm.signal();
    }

    /// Why a ring is not used any more, if the card gave a reason.
    pub(crate) fn broken(&self) -> Option<Broken> {
        *self.broken.lock()
    }

    /// The link is up or down. While it is down, what is to be sent is dropped and counted.
    pub(crate) fn set_link(&self, is_up: bool) {
        if let Some(ring) = &mut *self.transmit.lock() {
            ring.is_link_up = is_up;
        }
    }
}
