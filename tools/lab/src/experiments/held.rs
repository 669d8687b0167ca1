//! Packets under way: what a transmit ring holds until the device is done with them.

use crate::error::LabError;
use crate::modelled::{self, Access, Order, Step, Workload};
use warmlane_mem::{Burst, PoolConfig};
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

/// One lane that takes buffers, writes a header and a line of data, and frees so many packets later: for a model of caches.
pub(super) fn workload(pool: &PoolConfig, under_way: usize) -> Result<Workload, LabError> {
    let packets = modelled::rounds(pool.buffers as usize, under_way);
    let order = modelled::order(pool, packets, AT_ONCE, under_way, false)?;
    Ok(of_order(order, modelled::BEFORE_DATA, &[(0, Access::Write)], &[(0, Access::Read)]))
}

/// The same with these buffers, of which these lines of the header are touched when one is sent, and when it is freed.
pub(super) fn of_order(
    order: Order,
    data_line: u64,
    sent: &'static [(u64, Access)],
    freed: &'static [(u64, Access)],
) -> Workload {
    let after = order.behind;
    let steps = vec![
        Step { after: 0, by_second: false, lines: sent, data: Some(Access::Write) },
        Step { after, by_second: false, lines: freed, data: None },
    ];
    // Of a short frame one line is touched.
    Workload { order, burst: AT_ONCE, lengths: vec![1], data_line, steps }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_mem::Pool;

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
