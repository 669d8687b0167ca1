//! Packets under way: what a transmit ring holds until the device is done with them.

use warmlane_mem::Burst;
use warmlane_port::{QueueCounters, TransmitQueue, queue_report};

/// Packets that are freed at a time, as transmit rings do it.
pub(super) const AT_ONCE: usize = 32;

/// Descriptors in transmit rings; the first is what drivers have by default.
pub(super) const RINGS: [usize; 4] = [512, 4_096, 16_384, 65_536];

/// A ring of bursts, the oldest of which is freed when its slot is needed.
pub(super) struct Held {
    slots: Vec<Burst>,
    next: usize,
    free: fn(&mut Burst),
}

impl Held {
    /// Holds `packets` packets, in bursts of 32; `free` frees those of a burst.
    pub(super) fn new(packets: usize, free: fn(&mut Burst)) -> Self {
        let slots = (0..packets.div_ceil(AT_ONCE).max(1)).map(|_| Burst::with_limit(AT_ONCE)).collect();
        Self { slots, next: 0, free }
    }

    /// Takes all packets of `burst`, and frees as many that it took long ago.
    #[inline]
    pub(super) fn pass(&mut self, burst: &mut Burst) {
        while !burst.is_empty() {
            let slot = &mut self.slots[self.next];
            if slot.space() == 0 {
                (self.free)(slot);
            }
            burst.move_to(slot);
            if slot.space() == 0 {
                self.next += 1;
                if self.next == self.slots.len() {
                    self.next = 0;
                }
            }
        }
    }
}

/// [`Held`] as the end of a forwarder.
pub(super) struct HoldingQueue {
    held: Held,
    counters: QueueCounters,
}

impl HoldingQueue {
    /// A queue that holds so many packets; `free` frees those of a burst.
    pub(super) fn new(packets: usize, free: fn(&mut Burst)) -> Self {
        Self { held: Held::new(packets, free), counters: QueueCounters::new() }
    }
}

impl TransmitQueue for HoldingQueue {
    fn transmit(&mut self, burst: &mut Burst) -> usize {
        let count = burst.len();
        self.held.pass(burst);
        self.counters.packets().add(count as u64);
        count
    }

    queue_report!(always running, counters);
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_mem::{Pool, PoolConfig};

    #[test]
    fn as_many_are_under_way_as_it_was_told() {
        let pool = Pool::new(&PoolConfig { buffers: 512, ..PoolConfig::default() }).unwrap();
        let mut queue = HoldingQueue::new(128, Burst::clear);
        let mut burst = Burst::with_limit(64);
        for _ in 0..20 {
            pool.take_burst(&mut burst, 48);
            assert_eq!(queue.transmit(&mut burst), 48);
            assert!(burst.is_empty() && pool.ledger().outstanding() <= 128);
        }
        assert!(pool.ledger().outstanding() > 128 - AT_ONCE as u64);
        drop(queue);
        assert_eq!(pool.ledger().outstanding(), 0);
    }
}
