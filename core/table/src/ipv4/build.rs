//! How routes become words and hops

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use super::routes::{Routes, slot_of};
use super::{CONTINUES, HOP_NUMBERS, HOST_WORDS, Ipv4Table, ROOT_LENGTH, ROOT_WORDS, UNITS};
use crate::TableError;
use crate::arena::{Arena, NoRoom};
use crate::prefix::Ipv4Prefix;

/// The length of the prefix that a unit of a root word stands for
const UNIT_LENGTH: u8 = 24;
/// Addresses in a unit
const HOSTS: usize = 1 << (32 - UNIT_LENGTH);
/// All units of a /19
const ALL_UNITS: u32 = u32::MAX;
/// Words that addresses are reserved for, 128 MiB: enough for two thirds of all /19s to continue
const MOST_WORDS: usize = 1 << 24;
/// Hops that addresses are reserved for: 64 MiB
const MOST_HOPS: usize = 1 << 25;
// Places of hops are gathered as signed 32-bit numbers.
const _: () = assert!(MOST_HOPS < i32::MAX as usize);

/// What a word was before, to give its runs back or to take a failed change back
#[derive(Debug)]
pub(super) struct Change {
    slot: usize,
    before: u64,
    /// Of the prefix that the word stands for
    length: u8,
}

/// Arenas for an empty table: the words of the root lead to no next hop, and the first hops stand for themselves
pub(super) fn arenas() -> Result<(Arena<AtomicU64>, Arena<AtomicU16>), NoRoom> {
    let words = Arena::<AtomicU64>::new(ROOT_WORDS, MOST_WORDS)?;
    let hops = Arena::<AtomicU16>::new(HOP_NUMBERS, MOST_HOPS)?;
    for word in &words.memory()[..ROOT_WORDS] {
        word.store(single(u16::MAX), Ordering::Relaxed);
    }
    for (number, hop) in (0..=u16::MAX).zip(hops.memory().iter()) {
        hop.store(number, Ordering::Relaxed);
    }
    Ok((words, hops))
}

/// A /19 as its routes divide it
struct Division {
    /// The next hop of each /24, routes longer than that left out
    hops: [u16; UNITS],
    /// The /24s that have longer routes
    divided: u32,
}

impl Division {
    fn of(routes: &Routes, slot: usize) -> Self {
        let mut division = Self { hops: [routes.around(slot); UNITS], divided: 0 };
        for route in routes.inside(slot) {
            let first = route.first() / HOSTS;
            if route.length() > UNIT_LENGTH {
                division.divided |= 1 << first;
            } else {
                // What lies in another route comes after it and paints over it.
                division.hops[first..=route.last() / HOSTS].fill(route.stored_hop());
            }
        }
        division
    }

    /// The next hops of all addresses of a /24
    fn hosts(&self, routes: &Routes, slot: usize, unit: usize) -> [u16; HOSTS] {
        let mut hosts = [self.hops[unit]; HOSTS];
        for route in routes.inside(slot) {
            if route.length() > UNIT_LENGTH && route.first() / HOSTS == unit {
                hosts[route.first() % HOSTS..=route.last() % HOSTS].fill(route.stored_hop());
            }
        }
        hosts
    }
}

impl Ipv4Table {
    /// Brings the words in line with the routes after those to `prefixes`, which are sorted, changed
    pub(super) fn refresh(&mut self, prefixes: &[Ipv4Prefix]) -> Result<(), TableError> {
        let mut changes = std::mem::take(&mut self.changes);
        let result = self.refresh_all(prefixes, &mut changes);
        match result {
            Ok(()) => {
                for Change { before, length, .. } in changes.drain(..) {
                    self.release(before, length);
                }
                self.words.shrink_if_unused();
                self.hops.shrink_if_unused();
            }
            // The last one first, for it may be inside what an earlier one made.
            Err(_) => {
                while let Some(Change { slot, before, length }) = changes.pop() {
                    let word = self.word_at(slot);
                    self.publish(slot, before);
                    self.release(word, length);
                }
            }
        }
        // Its room serves the next change.
        self.changes = changes;
        result.map_err(TableError::from)
    }

    fn refresh_all(&mut self, prefixes: &[Ipv4Prefix], changes: &mut Vec<Change>) -> Result<(), NoRoom> {
        let mut rest = prefixes;
        // Slots before this one are done.
        let mut done = 0;
        while let [prefix, others @ ..] = rest {
            rest = others;
            let (first, last) = (slot_of(prefix.first()), slot_of(prefix.last()));
            if prefix.length() < ROOT_LENGTH {
                for slot in first.max(done)..=last {
                    self.refresh_slot(slot, ALL_UNITS, changes)?;
                }
                done = done.max(last + 1);
            } else if first >= done {
                let mut units = units_of(*prefix);
                // Neighbours in the same /19 share its work.
                while let [next, others @ ..] = rest
                    && slot_of(next.first()) == first
                {
                    units |= units_of(*next);
                    rest = others;
                }
                self.refresh_slot(first, units, changes)?;
            }
        }
        Ok(())
    }

    /// Replaces the word of a /19, or if it continues and has to go on doing so, the words of `units` only
    fn refresh_slot(&mut self, slot: usize, units: u32, changes: &mut Vec<Change>) -> Result<(), NoRoom> {
        let division = Division::of(&self.routes, slot);
        let before = self.word_at(slot);
        if division.divided == 0 {
            if !self.says(before, &division.hops) {
                let word = self.run(&division.hops)?;
                self.publish(slot, word);
                changes.push(Change { slot, before, length: ROOT_LENGTH });
            }
            return Ok(());
        }
        if before & CONTINUES == 0 {
            let word = self.block(&division, slot)?;
            self.publish(slot, word);
            changes.push(Change { slot, before, length: ROOT_LENGTH });
            return Ok(());
        }
        let block = (before >> 32) as usize;
        for unit in (0..UNITS).filter(|unit| units & 1 << unit != 0) {
            let before = self.word_at(block + unit);
            let word = self.unit(&division, slot, unit)?;
            if word != before {
                self.publish(block + unit, word);
                changes.push(Change { slot: block + unit, before, length: UNIT_LENGTH });
            }
        }
        Ok(())
    }

    fn word_at(&self, slot: usize) -> u64 {
        // Relaxed: who writes reads what it has written.
        self.words.memory()[slot].load(Ordering::Relaxed)
    }

    /// Puts a word into sight, with all that it leads to
    fn publish(&self, slot: usize, word: u64) {
        // Release: a reader that finds this word finds what it leads to as it is now.
        self.words.memory()[slot].store(word, Ordering::Release);
    }

    /// Whether `word` already gives these next hops
    fn says(&self, word: u64, hops: &[u16; UNITS]) -> bool {
        let place = (word >> 32) as usize;
        let run = &self.hops.memory()[place..];
        word & CONTINUES == 0
            && word as u32 == bitmap(hops)
            && starts(hops).zip(run).all(|(hop, stored)| hop == stored.load(Ordering::Relaxed))
    }

    /// A word whose units have these next hops
    fn run(&mut self, hops: &[u16; UNITS]) -> Result<u64, NoRoom> {
        let bitmap = bitmap(hops);
        if bitmap == 0 {
            return Ok(single(hops[0]));
        }
        let place = self.hops.take(bitmap.count_ones() as usize + 1)?;
        for (hop, slot) in starts(hops).zip(&self.hops.memory()[place as usize..]) {
            // Relaxed: the word that leads here is published with release.
            slot.store(hop, Ordering::Relaxed);
        }
        Ok(u64::from(place) << 32 | u64::from(bitmap))
    }

    /// A word that continues in a word for each of its /24s
    fn block(&mut self, division: &Division, slot: usize) -> Result<u64, NoRoom> {
        let first = self.words.take(UNITS)?;
        self.fill_block(first, UNITS, UNIT_LENGTH, |table, unit| table.unit(division, slot, unit))
    }

    /// The word of a /24
    fn unit(&mut self, division: &Division, slot: usize, unit: usize) -> Result<u64, NoRoom> {
        if division.divided & 1 << unit == 0 {
            return Ok(single(division.hops[unit]));
        }
        let hosts = division.hosts(&self.routes, slot, unit);
        if hosts.iter().all(|hop| *hop == hosts[0]) {
            return Ok(single(hosts[0]));
        }
        let first = self.words.take(HOST_WORDS)?;
        let (words, _) = hosts.as_chunks();
        self.fill_block(first, HOST_WORDS, UNIT_LENGTH + 3, |table, index| table.run(&words[index]))
    }

    /// A word that continues in `size` words, each for a prefix of `length` bits
    fn fill_block(
        &mut self,
        first: u32,
        size: usize,
        length: u8,
        word: impl Fn(&mut Self, usize) -> Result<u64, NoRoom>,
    ) -> Result<u64, NoRoom> {
        for index in 0..size {
            match word(self, index) {
                Ok(word) => self.publish(first as usize + index, word),
                Err(no_room) => {
                    self.release_block(first, index, length);
                    self.words.give_unused(first, size);
                    return Err(no_room);
                }
            }
        }
        Ok(u64::from(first) << 32 | CONTINUES)
    }

    /// Gives back what the word of a prefix of `length` bits led to
    fn release(&mut self, word: u64, length: u8) {
        let base = (word >> 32) as u32;
        if word & CONTINUES != 0 {
            let size = if length == ROOT_LENGTH { UNITS } else { HOST_WORDS };
            self.release_block(base, size, length + size.trailing_zeros() as u8);
            self.words.retire(base, size);
        } else if word as u32 != 0 {
            self.hops.retire(base, (word as u32).count_ones() as usize + 1);
        }
    }

    /// Gives back what the first `count` words of a block led to, each of a prefix of `length` bits
    fn release_block(&mut self, first: u32, count: usize, length: u8) {
        for slot in first as usize..first as usize + count {
            self.release(self.word_at(slot), length);
        }
    }
}

/// The word of one next hop
fn single(hop: u16) -> u64 {
    u64::from(hop) << 32
}

/// Which /24 of its /19 an address lies in
fn unit_of(address: u32) -> usize {
    (address >> 8) as usize % UNITS
}

/// The /24s of its /19 that a prefix, no shorter than that, covers or lies in
fn units_of(prefix: Ipv4Prefix) -> u32 {
    let (first, last) = (unit_of(prefix.first()), unit_of(prefix.last()));
    ALL_UNITS << first & ALL_UNITS >> (UNITS - 1 - last)
}

/// The units whose next hop differs from that of the unit before
fn bitmap(hops: &[u16; UNITS]) -> u32 {
    (1..UNITS).fold(0, |bitmap, unit| bitmap | u32::from(hops[unit] != hops[unit - 1]) << unit)
}

/// The next hops without repetitions side by side
fn starts(hops: &[u16; UNITS]) -> impl Iterator<Item = u16> + '_ {
    (0..UNITS).filter(|&unit| unit == 0 || hops[unit] != hops[unit - 1]).map(|unit| hops[unit])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NextHopId;

    #[test]
    fn without_room_the_table_stays_as_it_is() {
        let prefix = |text: &str| text.parse::<Ipv4Prefix>().unwrap();
        let hop = |number| NextHopId::new(number).unwrap();
        let mut table =
            Ipv4Table::from_routes([(prefix("10.0.0.0/8"), hop(1)), (prefix("10.1.0.0/24"), hop(2))])
                .unwrap();
        let end = table.hops.end();
        table.hops.set_limit(end);
        let full = TableError::Full { bytes: (end + 3) * size_of::<u16>() };
        assert_eq!(table.insert(prefix("11.0.1.0/24"), hop(3)), Err(full));
        // Halfway through a block of words.
        let full = TableError::Full { bytes: (end + 3) * size_of::<u16>() };
        assert_eq!(table.insert(prefix("11.0.1.1/32"), hop(3)), Err(full));
        assert_eq!(
            (table.len(), table.lookup(0x0b00_0101), table.lookup(0x0a01_0001)),
            (2, NextHopId::NONE, hop(2))
        );
        // Halfway through the root words: 10.0.0.0/19 is changed by then, the run in 10.1.0.0/19 cannot be written anew.
        let full = TableError::Full { bytes: (end + 2) * size_of::<u16>() };
        assert_eq!(table.remove(prefix("10.0.0.0/8")), Err(full));
        // A batch, of which the last change has no room.
        let batch =
            [("10.1.0.0/24", Some(hop(1))), ("12.0.0.0/8", Some(hop(4))), ("13.0.1.0/24", Some(hop(5)))];
        let batch = batch.map(|(text, hop)| (prefix(text), hop));
        assert!(matches!(table.apply(batch), Err(TableError::Full { .. })));
        assert_eq!((table.len(), table.lookup(0x0c00_0000)), (2, NextHopId::NONE));
        assert_eq!(table.insert(prefix("0.0.0.0/1"), hop(5)), Ok(None), "needs no run");
        assert_eq!(table.remove(prefix("0.0.0.0/1")), Ok(hop(5)));
        for (address, number) in [(0x0a00_0000, 1), (0x0aff_ffff, 1), (0x0a01_0000, 2), (0x0a01_0100, 1)] {
            assert_eq!(table.lookup(address), hop(number), "{address:x}");
        }
        table.hops.set_limit(usize::MAX);
        assert_eq!(table.insert(prefix("11.0.1.1/32"), hop(3)), Ok(None));
        assert_eq!(table.lookup(0x0b00_0101), hop(3));
    }
}
