//! An 82576 that isn't there: a program turns its descriptors over, and no data moves. What the driver's part of a packet costs is measured on it.

use super::descriptor;
use crate::error::PciError;
use crate::intel::descriptor::{Context, DataDescriptor, Piece, Received, Tso};
use crate::intel::memory::{BUFFER_BYTES, RingMemory, Side};
use crate::intel::queue::Queue;
use crate::intel::receive::{CardReceive, ReceiveRing};
use crate::intel::rings::{PortEnd, Rings};
use crate::intel::transmit::{CardTransmit, TransmitRing};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering, fence};
use warmlane_driver_common::SharedPool;
use warmlane_driver_common::peer::Event;
use warmlane_mem::{Packet, Pool};
use warmlane_port::{ReceiveQueue, TransmitOffloads, TransmitQueue};
use warmlane_sys::simd::Level;

/// Descriptors of a ring.
const SIZES: std::ops::RangeInclusive<usize> = 64..=4096;

/// Where a card has the tails of its rings, in the order of [`Side`].
#[derive(Debug, Default)]
struct Tails([AtomicU16; 2]);

impl Tails {
    fn set(&self, side: Side, position: u16) {
        // Release: as a card finds in memory what was stored before its register was.
        self.0[side as usize].store(position, Ordering::Release);
    }

    fn get(&self, side: Side) -> u16 {
        self.0[side as usize].load(Ordering::Acquire)
    }
}

/// Its pair of rings, whose registers are in memory.
#[derive(Debug)]
struct NullQueue(Arc<Tails>);

impl Queue for NullQueue {
    const MOST_PAYLOAD: usize = descriptor::LONGEST as usize;

    #[inline(always)]
    fn set_receive_tail(&self, position: u16) {
        self.0.set(Side::Receive, position);
    }

    #[inline(always)]
    fn set_transmit_tail(&self, position: u16) {
        self.0.set(Side::Transmit, position);
    }

    /// It interrupts nobody.
    fn arm(&self) {}

    fn disarm(&self) {}

    #[inline(always)]
    fn data(piece: Piece) -> u64 {
        descriptor::data(piece)
    }

    fn checksum(packet: &Packet, start: u16, offset: u8) -> Option<Context> {
        descriptor::checksum(packet.data(), start, offset)
    }

    fn segmentation(tso: Tso) -> Option<Context> {
        descriptor::segmentation(tso)
    }
}

/// A card that isn't there. It finds nothing on the wire but what is in its buffers already, and what it sends goes nowhere.
#[derive(Debug)]
pub struct NullCard {
    memory: Arc<RingMemory>,
    tails: Arc<Tails>,
    /// The next descriptor that it fills, and the next that it empties.
    heads: [u16; 2],
    /// Bytes that a buffer has for a frame.
    longest: u16,
}

/// A [`NullCard`] and the queues of a port on it.
#[expect(missing_debug_implementations, reason = "queues are shown by their reports")]
pub struct NullCardPort {
    /// The card.
    pub card: NullCard,
    /// What it receives.
    pub receive: Box<dyn ReceiveQueue>,
    /// What it sends.
    pub transmit: Box<dyn TransmitQueue>,
}

impl NullCard {
    /// One that fills the pool's buffers, as with `zero-copy`. Its rings have `size` descriptors, brought to 64 to 4,096 and rounded up to a power of two. With
    /// `by_vector` the driver looks at several descriptors at once, if the processor can; else at one after the other.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn open(pool: &Pool, size: usize, by_vector: bool) -> Result<NullCardPort, PciError> {
        let size = size.clamp(*SIZES.start(), *SIZES.end()).next_power_of_two() as u16;
        let region = pool.region();
        // Nobody uses addresses of a card that isn't there.
        let memory = Arc::new(RingMemory::new("null card", size, |_| Ok(0))?);
        let shared = SharedPool::new(region.clone(), 0);
        let event = || Event::new().map_err(PciError::Thread);
        let (rings, end): (_, PortEnd) = (Arc::new(Rings::new(event()?, event()?)), Arc::new(()));
        let tails = Arc::new(Tails::default());
        let queue = || NullQueue(Arc::clone(&tails));
        let mut ring = ReceiveRing::new(&memory, queue(), Some(&shared));
        if !by_vector {
            ring.level = Level::Portable;
        }
        rings.start(ring, TransmitRing::new(&memory, queue(), true, Some(&shared)));
        let longest = region.data_size().min(BUFFER_BYTES.into()) as u16;
        let receive = CardReceive::new(Arc::clone(&rings), region, None, Arc::clone(&end));
        let transmit = CardTransmit::new(rings, longest.into(), TransmitOffloads::NONE, end);
        let card = Self { memory, tails, heads: [0; 2], longest };
        Ok(NullCardPort { card, receive: Box::new(receive), transmit: Box::new(transmit) })
    }

    /// Takes the next descriptor of a ring, up to its tail.
    #[inline]
    fn take(&mut self, side: Side) -> Option<u16> {
        let head = &mut self.heads[side as usize];
        let position = *head;
        if position == self.tails.get(side) {
            return None;
        }
        *head = position.wrapping_add(1) & self.memory.mask();
        Some(position)
    }

    /// Up to `count` frames come, as many as the driver has posted buffers for, of `bytes` bytes, or as many as a buffer takes (2,048 at most). In them is what was in
    /// their buffers before. Returns how many.
    pub fn deliver(&mut self, count: usize, bytes: u16) -> usize {
        let word = Received::DONE | Received::END | u64::from(bytes.min(self.longest)) << 32;
        let mut delivered = 0;
        while delivered < count {
            let Some(position) = self.take(Side::Receive) else { break };
            self.memory.status(Side::Receive, position).store(word, Ordering::Release);
            delivered += 1;
        }
        // A card's writes are long done when the driver reads; these must be, or a wide load would wait for narrow stores.
        fence(Ordering::SeqCst);
        delivered
    }

    /// Sends all that is in its ring, and reports it where the driver asked for a report. Returns the number of descriptors.
    pub fn send(&mut self) -> usize {
        let mut sent = 0;
        while let Some(position) = self.take(Side::Transmit) {
            let word = self.memory.status(Side::Transmit, position);
            let written = word.load(Ordering::Relaxed);
            if written & DataDescriptor::REPORT != 0 {
                word.store(written | DataDescriptor::DONE, Ordering::Release);
            }
            sent += 1;
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_mem::{Burst, PoolConfig};

    #[test]
    fn what_comes_goes_many_times_round_the_rings_and_nothing_is_lost() {
        for by_vector in [false, true] {
            let pool = Pool::new(&PoolConfig { buffers: 512, ..PoolConfig::default() }).unwrap();
            let NullCardPort { mut card, mut receive, mut transmit } =
                NullCard::open(&pool, 100, by_vector).unwrap();
            assert_eq!(card.deliver(1_000, 60), 127, "one of 128 is left out");
            let mut burst = Burst::with_limit(32);
            let (mut all, mut sent) = (0, 0);
            for _ in 0..100 {
                while receive.receive(&mut burst) > 0 {
                    assert!(burst.iter().all(|packet| packet.len() == 60));
                    all += transmit.transmit(&mut burst);
                }
                sent += card.send();
                card.deliver(40, 60);
            }
            assert_eq!((all, sent), (127 + 99 * 40, all));
            drop((receive, transmit));
            assert_eq!(pool.ledger().outstanding(), 0);
        }
    }

    #[test]
    fn frames_are_no_longer_than_buffers() {
        for (data_size, longest) in [(1_024, 1_024), (4_096, 2_048)] {
            let pool = Pool::new(&PoolConfig { data_size, ..PoolConfig::default() }).unwrap();
            let NullCardPort { mut card, mut receive, .. } = NullCard::open(&pool, 64, true).unwrap();
            assert_eq!(card.deliver(5, 9_000), 5);
            let mut burst = Burst::new();
            assert_eq!((receive.receive(&mut burst), burst[4].len()), (5, longest));
        }
    }
}
