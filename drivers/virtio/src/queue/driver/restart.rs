//! A driver that goes on with another device, when the former one is gone: first [`Driver::settle`], then [`Driver::restart`] in a ring that
//! is all zero again.

use super::{Driver, DriverRing, Lent, Post};
use crate::memory::Addresses;
use crate::queue::side::Broken;
use crate::ring::{NEXT, WRITE};

impl<R: DriverRing> Driver<R> {
    /// Takes back what the former device has used. A packet for this side that it had not written whole is none.
    ///
    /// # Errors
    /// It left what can't be: nothing can be made of this driver.
    pub(crate) fn settle(&mut self, addresses: &mut Addresses<'_>) -> Result<(), Broken> {
        self.reap(self.buffers.count)?;
        for _ in 0..self.unfinished(addresses)? {
            self.end = self.end.wrapping_sub(1);
            let number = self.at(self.count_mine()).number;
            self.lent[usize::from(number)].length = self.buffers.room as u16;
            self.lend(number, 1);
        }
        Ok(())
    }

    /// How many of the last buffers are the beginning of a packet whose end is missing.
    fn unfinished(&self, addresses: &mut Addresses<'_>) -> Result<u16, Broken> {
        let mut from = 0;
        while self.buffers.is_filled_by_device && from < self.count_mine() {
            let buffers = self.spread(from, addresses)?;
            if buffers > self.count_mine() - from {
                return Ok(self.count_mine() - from);
            }
            from += buffers;
        }
        Ok(0)
    }

    /// Goes on in `ring`, which is new: makes available what the former device has not used, in the same order.
    pub(crate) fn restart(mut self, ring: R) -> Self {
        // Queues and the control thread take turns by whole bursts.
        debug_assert!(self.open.is_none());
        let lent = self.lent.iter().enumerate().filter(|(_, lent)| lent.parts > 0);
        let mut lent: Vec<(u16, Lent)> = lent.map(|(name, lent)| (name as u16, *lent)).collect();
        // The oldest first: the counter has come farthest since.
        lent.sort_unstable_by_key(|(_, lent)| lent.stamp.wrapping_sub(self.stamp));
        self.ring = ring;
        self.needed = 0;
        self.ring.want_events(false);
        let mut place = self.end;
        for (name, Lent { parts, .. }) in lent {
            self.post_again(name, parts, place);
            place = place.wrapping_add(parts);
        }
        self.ring.publish();
        self
    }

    /// Posts a buffer of so many parts, which are put into the circle from `place` on.
    fn post_again(&mut self, name: u16, parts: u16, place: u16) {
        let mut number = name;
        for taken in 0..parts {
            let behind = parts - 1 - taken;
            let place = self.place(place.wrapping_add(taken));
            self.mine[place].number = number;
            let Lent { next, length, .. } = self.lent[usize::from(number)];
            let kind = if self.buffers.is_filled_by_device { WRITE } else { 0 };
            let flags = kind | if behind > 0 { NEXT } else { 0 };
            let address = self.address(number);
            self.ring.post(Post { number, name, address, length: length.into(), flags, next });
            number = next;
        }
        self.lend(name, parts);
    }
}
