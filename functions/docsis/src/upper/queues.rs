//! The packets that wait, one queue a service flow, in a store that all share.

use warmlane_mem::Packet;

/// The end of a list.
const NONE: u32 = u32::MAX;

/// A slot for a packet.
#[derive(Debug)]
struct Slot {
    packet: Option<Packet>,
    /// When it came, in cycles.
    arrived: u64,
    /// The next in the same queue, or the next free slot.
    next: u32,
}

/// One flow's packets.
#[derive(Debug, Clone, Copy)]
struct Queue {
    first: u32,
    last: u32,
    count: u32,
}

/// All queues.
#[derive(Debug)]
pub(crate) struct Queues {
    slots: Box<[Slot]>,
    free: u32,
    flows: Box<[Queue]>,
    count: usize,
}

impl Queues {
    /// Empty queues, together for as many packets.
    pub(crate) fn new(flows: usize, packets: u32) -> Self {
        let slot = |number| Slot {
            packet: None,
            arrived: 0,
            next: if number + 1 == packets { NONE } else { number + 1 },
        };
        let free = if packets == 0 { NONE } else { 0 };
        let slots = (0..packets).map(slot).collect();
        let flows = vec![Queue { first: NONE, last: NONE, count: 0 }; flows].into();
        Self { slots, free, flows, count: 0 }
    }

    /// Packets in all queues.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Packets in a flow's queue.
    #[inline]
    pub(crate) fn len(&self, flow: u32) -> u32 {
        self.flows.get(flow as usize).map_or(0, |queue| queue.count)
    }

    /// Whether there is no slot left.
    pub(crate) const fn is_full(&self) -> bool {
        self.count == self.slots.len()
    }

    /// Puts a packet behind the others.
    ///
    /// # Errors
    /// The packet, if there is no slot left or no such flow.
    #[inline]
    pub(crate) fn push(&mut self, flow: u32, packet: Packet, arrived: u64) -> Result<(), Packet> {
        let number = self.free;
        let Some(queue) = self.flows.get_mut(flow as usize) else { return Err(packet) };
        let Some(slot) = self.slots.get_mut(number as usize) else { return Err(packet) };
        self.free = slot.next;
        *slot = Slot { packet: Some(packet), arrived, next: NONE };
        let before = std::mem::replace(&mut queue.last, number);
        match self.slots.get_mut(before as usize) {
            Some(before) => before.next = number,
            None => queue.first = number,
        }
        queue.count += 1;
        self.count += 1;
        Ok(())
    }

    /// The first packet's length and when it came.
    #[inline]
    pub(crate) fn front(&self, flow: u32) -> Option<(usize, u64)> {
        let slot = self.slots.get(self.flows.get(flow as usize)?.first as usize)?;
        slot.packet.as_ref().map(|packet| (packet.len(), slot.arrived))
    }

    /// Takes the first packet.
    #[inline]
    pub(crate) fn pop(&mut self, flow: u32) -> Option<Packet> {
        let queue = self.flows.get_mut(flow as usize)?;
        let number = queue.first;
        let slot = self.slots.get_mut(number as usize)?;
        let packet = slot.packet.take()?;
        queue.first = std::mem::replace(&mut slot.next, self.free);
        if queue.first == NONE {
            queue.last = NONE;
        }
        self.free = number;
        queue.count -= 1;
        self.count -= 1;
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use warmlane_mem::{Pool, PoolConfig};

    proptest! {
        #[test]
        fn they_are_first_in_first_out(steps in prop::collection::vec((0..3_u32, any::<bool>()), 0..200)) {
            let pool = Pool::new(&PoolConfig { buffers: 64, ..PoolConfig::default() }).unwrap();
            let mut queues = Queues::new(3, 20);
            let mut model = vec![VecDeque::new(); 3];
            for (number, (flow, pushes)) in steps.into_iter().enumerate() {
                let now = number as u64;
                if pushes {
                    let mut packet = pool.take().unwrap();
                    packet.fill(&vec![0; number]).unwrap();
                    let is_pushed = queues.push(flow, packet, now).is_ok();
                    prop_assert_eq!(is_pushed, model.iter().map(VecDeque::len).sum::<usize>() < 20);
                    if is_pushed {
                        model[flow as usize].push_back(number);
                    }
                } else {
                    let length = queues.pop(flow).map(|packet| packet.len());
                    prop_assert_eq!(length, model[flow as usize].pop_front());
                }
                for flow in 0..3 {
                    let front = model[flow as usize].front().map(|number| (*number, *number as u64));
                    prop_assert_eq!(queues.front(flow), front);
                    prop_assert_eq!(queues.len(flow) as usize, model[flow as usize].len());
                }
                prop_assert_eq!(queues.count(), model.iter().map(VecDeque::len).sum::<usize>());
            }
        }
    }
}
