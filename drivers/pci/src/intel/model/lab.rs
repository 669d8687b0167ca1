//! A card that is played, and the queues of a port on it.

use super::{Model, Played};
use crate::intel::chip::Setup;
use crate::intel::counters::CardCounters;
use crate::intel::receive::{CardReceive, ReceiveRing};
use crate::intel::rings::{PortEnd, Rings};
use crate::intel::transmit::{CardTransmit, OFFLOADS, TransmitRing};
use std::cell::Cell;
use std::sync::Arc;
use warmlane_driver_common::Gather;
use warmlane_driver_common::SharedPool;
use warmlane_driver_common::peer::Event;
use warmlane_mem::{Burst, Packet, Pool, PoolConfig};
use warmlane_port::{ReceiveQueue as _, TransmitQueue as _};

/// Bytes of the longest frame here.
pub(crate) const LONGEST: usize = 9230;

pub(crate) const SETUP: Setup =
    Setup { longest: LONGEST as u32 + 4, is_promiscuous: false, looks_at_checksums: true };

thread_local! {
    static SHARES: Cell<bool> = const { Cell::new(false) };
}

/// Runs a test in which cards reach the pool.
#[cfg(test)]
pub(crate) fn with_zero_copy(test: fn()) {
    SHARES.set(true);
    test();
}

/// A card, the queues of a port on it that most tests use, and those behind.
pub(crate) struct Lab<C: Played> {
    pub(crate) model: Model,
    pub(crate) chip: C,
    pub(crate) pool: Pool,
    pub(crate) rings: Arc<Rings<C::Queue>>,
    pub(crate) receive: CardReceive<C::Queue>,
    pub(crate) transmit: CardTransmit<C::Queue>,
    pub(crate) others: Vec<Pair<C>>,
    pub(crate) counters: CardCounters,
    /// The pool, if the card reaches it, while the card runs.
    pub(crate) shared: Option<Arc<SharedPool>>,
}

/// The queues of a port on a pair of rings.
pub(crate) struct Pair<C: Played> {
    pub(crate) rings: Arc<Rings<C::Queue>>,
    pub(crate) receive: CardReceive<C::Queue>,
    pub(crate) transmit: CardTransmit<C::Queue>,
}

impl<C: Played> Pair<C> {
    fn new(pool: &Pool, counters: &CardCounters) -> Self {
        let event = || Event::new().expect("there are descriptors");
        let (rings, end): (_, PortEnd) = (Arc::new(Rings::new(event(), event())), Arc::new(()));
        let receive =
            CardReceive::new(Arc::clone(&rings), pool.region(), Some(counters.view()), Arc::clone(&end));
        let transmit = CardTransmit::new(Arc::clone(&rings), LONGEST, OFFLOADS, end);
        Self { rings, receive, transmit }
    }
}

impl<C: Played> Lab<C> {
    /// With rings of so many descriptors.
    pub(crate) fn new(size: u16) -> Self {
        Self::with_pool(size, &PoolConfig { buffers: 2048, ..PoolConfig::default() })
    }

    pub(crate) fn with_pool(size: u16, pool: &PoolConfig) -> Self {
        Self::with_queues(size, pool, 1)
    }

    pub(crate) fn with_queues(size: u16, pool: &PoolConfig, queues: usize) -> Self {
        let (model, pool) = (Model::new(C::KIND), Pool::new(pool).expect("there is memory"));
        let (chip, counters) = (C::new(model.clone()), CardCounters::new());
        let Pair { rings, receive, transmit } = Pair::<C>::new(&pool, &counters);
        let others = (1..queues).map(|_| Pair::new(&pool, &counters)).collect();
        let mut lab = Self { model, chip, pool, rings, receive, transmit, others, counters, shared: None };
        if SHARES.get() {
            lab.share();
        }
        lab.start(size);
        lab
    }

    /// The card reaches the pool when it is started the next time.
    pub(crate) fn share(&mut self) {
        self.shared = Some(self.model.share(&self.pool));
    }

    /// As the port's thread does.
    pub(crate) fn start(&mut self, size: u16) {
        self.chip.reset().expect("it can be reset");
        self.start_rings(size);
    }

    /// The same with a card that resets itself in no time.
    pub(crate) fn start_at_once(&mut self, size: u16) {
        self.model.reset();
        self.start_rings(size);
    }

    fn start_rings(&mut self, size: u16) {
        self.rings.stop();
        if self.shared.take().is_some() {
            // What the card had is free now that it was reset.
            self.share();
        }
        let memories = self.model.memories(size, 1 + self.others.len());
        self.chip.start(&memories, SETUP).expect("it starts");
        let all = std::iter::once(&self.rings).chain(self.others.iter().map(|pair| &pair.rings));
        for (number, (rings, memory)) in all.zip(&memories).enumerate() {
            let queue = || self.chip.queue(number);
            let transmit = TransmitRing::new(memory, queue(), true, self.shared.as_ref());
            rings.start(ReceiveRing::new(memory, queue(), self.shared.as_ref()), transmit);
        }
    }

    /// All that has come.
    pub(crate) fn take(&mut self) -> Vec<Packet> {
        take(&mut self.receive)
    }

    /// Sends frames. Says how many were taken.
    pub(crate) fn send_frames(&mut self, frames: impl IntoIterator<Item = Vec<u8>>) -> usize {
        let mut burst = Burst::new();
        for frame in frames {
            drop(burst.push(packet(&self.pool, &frame)));
        }
        self.transmit.transmit(&mut burst)
    }

    pub(crate) fn progress(&self) -> Option<u64> {
        self.rings.transmit.lock().as_mut().and_then(TransmitRing::progress)
    }

    /// Buffers of the pool that are neither there nor the card's.
    pub(crate) fn missing(&self) -> u64 {
        let receive = self.rings.receive.lock().as_ref().map_or(0, ReceiveRing::lent);
        let transmit = self.rings.transmit.lock().as_ref().map_or(0, TransmitRing::lent);
        self.pool.ledger().outstanding() - (receive + transmit) as u64
    }

    pub(crate) fn dropped(&self, reason: &str) -> u64 {
        let counted = [self.receive.counters(), self.transmit.counters()];
        let all = counted.iter().flat_map(|view| view.drops().iter().collect::<Vec<_>>());
        all.filter(|(there, _)| there.name == reason).map(|(_, count)| count).sum()
    }
}

/// All that a queue has.
pub(crate) fn take<Q: crate::intel::queue::Queue>(queue: &mut CardReceive<Q>) -> Vec<Packet> {
    let mut all = Vec::new();
    loop {
        let mut burst = Burst::new();
        if queue.receive(&mut burst) == 0 {
            return all;
        }
        all.extend(burst.drain());
    }
}

/// A packet with these contents, in as many buffers as it takes.
pub(crate) fn packet(pool: &Pool, data: &[u8]) -> Packet {
    let mut gather = Gather::new(pool).expect("the pool has buffers");
    gather.append(data).expect("the pool has buffers");
    gather.finish().expect("it is not too large")
}
