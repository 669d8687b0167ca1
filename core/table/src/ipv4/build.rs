//! How routes become words and hops

use super::{CONTINUES, HOP_NUMBERS, HOST_WORDS, Ipv4Table, ROOT_BITS, ROOT_WORDS, UNITS};
use crate::arena::{Arena, OutOfMemory};
use crate::prefix::Ipv4Prefix;
use crate::rib::Stretch;
use crate::{Address, TableError};

/// The length of the prefix that a root word stands for
const ROOT_LENGTH: u8 = ROOT_BITS as u8;
/// The length of the prefix that a unit of a root word stands for
const UNIT_LENGTH: u8 = 24;

/// What a root word was before, to give its runs back or to take a failed change back
struct Change {
    slot: usize,
    before: u64,
}

/// Arenas for a table of about `routes` routes: the words of the root zeroed, and the hops that stand for themselves
pub(super) fn arenas(routes: usize) -> Result<(Arena<u64>, Arena<u16>), TableError> {
    let words = Arena::new(ROOT_WORDS, ROOT_WORDS + ROOT_WORDS / 8, usize::MAX)?;
    let mut hops = Arena::new(HOP_NUMBERS, HOP_NUMBERS + routes + routes / 2, i32::MAX as usize)?;
    for (number, hop) in (0..=u16::MAX).zip(hops.slots_mut()) {
        *hop = number;
    }
    Ok((words, hops))
}

impl From<OutOfMemory> for TableError {
    fn from(error: OutOfMemory) -> Self {
        Self::Memory { bytes: error.bytes }
    }
}

impl Ipv4Table {
    /// Brings the words in line with the routes after the route to `prefix` changed
    pub(super) fn refresh(&mut self, prefix: Ipv4Prefix) -> Result<(), TableError> {
        if prefix.length() < UNIT_LENGTH || !self.refresh_unit(prefix)? {
            self.refresh_area(Ipv4Prefix::containing(prefix.first(), prefix.length().min(ROOT_LENGTH)))?;
        }
        self.words.shrink_if_unused();
        self.hops.shrink_if_unused();
        if self.words.is_sparse() || self.hops.is_sparse() {
            self.rebuild();
        }
        Ok(())
    }

    /// Builds everything anew without gaps; without memory for that, the table stays as it is and is as right as before
    fn rebuild(&mut self) {
        let Ok((words, hops)) = arenas(self.rib.len()) else { return };
        let before = (std::mem::replace(&mut self.words, words), std::mem::replace(&mut self.hops, hops));
        if self.refresh_area(Ipv4Prefix::all()).is_err() {
            (self.words, self.hops) = before;
        }
    }

    /// Replaces the one /24 that `prefix` lies in, if its /19 continues and still has to; says whether that was the case
    fn refresh_unit(&mut self, prefix: Ipv4Prefix) -> Result<bool, TableError> {
        let root = self.words.slots()[(prefix.first() >> (32 - ROOT_BITS)) as usize];
        if root & CONTINUES == 0 {
            return Ok(false);
        }
        let unit = Ipv4Prefix::containing(prefix.first(), UNIT_LENGTH);
        let stretches = self.rib.stretches(unit);
        let slot = (root >> 32) as usize + (unit.first() >> 8) as usize % UNITS;
        if let [_] = stretches[..] {
            // It may have been the last long one, then the whole /19 gets simpler.
            return Ok(false);
        }
        let word = self.word(&stretches, unit)?;
        let before = std::mem::replace(&mut self.words.slots_mut()[slot], word);
        self.release(before, UNIT_LENGTH);
        Ok(true)
    }

    /// Replaces all root words of `area`, which is not longer than they are
    fn refresh_area(&mut self, area: Ipv4Prefix) -> Result<(), TableError> {
        let stretches = self.rib.stretches(area);
        let first = (area.first() >> (32 - ROOT_BITS)) as usize;
        let last = (area.last() >> (32 - ROOT_BITS)) as usize;
        let mut changes: Vec<Change> = Vec::new();
        let mut from = 0;
        for slot in first..=last {
            let prefix = Ipv4Prefix::containing((slot as u32) << (32 - ROOT_BITS), ROOT_LENGTH);
            let mut to = from + 1;
            while stretches.get(to).is_some_and(|stretch| stretch.first <= prefix.last()) {
                to += 1;
            }
            let inside = &stretches[from..to];
            from = match stretches.get(to) {
                Some(next) if next.first == prefix.last().wrapping_add(1) => to,
                _ => to - 1,
            };
            let before = self.words.slots()[slot];
            if self.says(before, inside, prefix) {
                continue;
            }
            match self.word(inside, prefix) {
                Ok(word) => {
                    self.words.slots_mut()[slot] = word;
                    changes.push(Change { slot, before });
                }
                Err(error) => {
                    for Change { slot, before } in changes {
                        let word = std::mem::replace(&mut self.words.slots_mut()[slot], before);
                        self.release(word, ROOT_LENGTH);
                    }
                    return Err(error.into());
                }
            }
        }
        for Change { before, .. } in changes {
            self.release(before, ROOT_LENGTH);
        }
        Ok(())
    }

    /// Whether `word` already gives what `inside` asks of the /19 `prefix`; false where it takes more than a look
    fn says(&self, word: u64, inside: &[Stretch<u32>], prefix: Ipv4Prefix) -> bool {
        if let [only] = inside {
            return word == single(*only);
        }
        let base = (word >> 32) as usize;
        word & CONTINUES == 0
            && fits_units(inside, UNIT_LENGTH)
            && word as u32 == bitmap(inside, prefix, UNIT_LENGTH)
            && inside
                .iter()
                .zip(&self.hops.slots()[base..])
                .all(|(stretch, &hop)| stretch.hop.stored() == hop)
    }

    /// A word for `prefix`, a /19, /24 or /27, that `inside` divides
    fn word(&mut self, inside: &[Stretch<u32>], prefix: Ipv4Prefix) -> Result<u64, OutOfMemory> {
        if let [only] = inside {
            return Ok(single(*only));
        }
        match prefix.length() {
            UNIT_LENGTH => self.block(inside, prefix, HOST_WORDS),
            ROOT_LENGTH if fits_units(inside, UNIT_LENGTH) => self.run(inside, prefix, UNIT_LENGTH),
            ROOT_LENGTH => self.block(inside, prefix, UNITS),
            _ => self.run(inside, prefix, u32::BITS as u8),
        }
    }

    /// A word whose units are prefixes of `unit_length`, each of a single next hop
    fn run(
        &mut self,
        inside: &[Stretch<u32>],
        prefix: Ipv4Prefix,
        unit_length: u8,
    ) -> Result<u64, OutOfMemory> {
        let base = self.hops.take(inside.len())?;
        for (slot, stretch) in self.hops.slots_mut()[base as usize..].iter_mut().zip(inside) {
            *slot = stretch.hop.stored();
        }
        Ok(u64::from(base) << 32 | u64::from(bitmap(inside, prefix, unit_length)))
    }

    /// A word that continues in `size` words
    fn block(
        &mut self,
        inside: &[Stretch<u32>],
        prefix: Ipv4Prefix,
        size: usize,
    ) -> Result<u64, OutOfMemory> {
        let first = self.words.take(size)?;
        let length = prefix.length() + size.trailing_zeros() as u8;
        for index in 0..size {
            let address = prefix.first() | (index as u32) << (u32::BITS - u32::from(length));
            let part = Ipv4Prefix::containing(address, length);
            match self.word(within(inside, part), part) {
                Ok(word) => self.words.slots_mut()[first as usize + index] = word,
                Err(error) => {
                    self.release_block(first, index, length);
                    self.words.give(first, size);
                    return Err(error);
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
            self.words.give(base, size);
        } else if word as u32 != 0 {
            self.hops.give(base, (word as u32).count_ones() as usize + 1);
        }
    }

    /// Gives back what the first `count` words of a block led to, each of a prefix of `length` bits
    fn release_block(&mut self, first: u32, count: usize, length: u8) {
        for slot in first as usize..first as usize + count {
            self.release(self.words.slots()[slot], length);
        }
    }
}

/// The word of one next hop
fn single(stretch: Stretch<u32>) -> u64 {
    u64::from(stretch.hop.stored()) << 32
}

/// Whether each stretch starts where a prefix of `unit_length` does
fn fits_units(inside: &[Stretch<u32>], unit_length: u8) -> bool {
    inside[1..].iter().all(|stretch| stretch.first & !u32::mask(unit_length) == 0)
}

/// The units of `prefix` at which a stretch starts, its first excepted
fn bitmap(inside: &[Stretch<u32>], prefix: Ipv4Prefix, unit_length: u8) -> u32 {
    inside[1..].iter().fold(0, |bitmap, stretch| {
        bitmap | 1 << ((stretch.first - prefix.first()) >> (u32::BITS - u32::from(unit_length)))
    })
}

/// The stretches that reach into `part`; the first may start before it
fn within(stretches: &[Stretch<u32>], part: Ipv4Prefix) -> &[Stretch<u32>] {
    let from = stretches.partition_point(|stretch| stretch.first <= part.first());
    let to = stretches.partition_point(|stretch| stretch.first <= part.last());
    // The stretches start at or before the part, so one at least does.
    &stretches[from.saturating_sub(1)..to]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NextHopId;

    #[test]
    fn without_memory_the_table_stays_as_it_is() {
        let prefix = |text: &str| text.parse::<Ipv4Prefix>().unwrap();
        let hop = |number| NextHopId::new(number).unwrap();
        let mut table =
            Ipv4Table::from_routes([(prefix("10.0.0.0/8"), hop(1)), (prefix("10.1.0.0/24"), hop(2))])
                .unwrap();
        let end = table.hops.end();
        table.hops.set_limit(end);
        let full = TableError::Memory { bytes: (end + 3) * size_of::<u16>() };
        assert_eq!(table.insert(prefix("11.0.1.0/24"), hop(3)), Err(full));
        // Halfway through a block of words.
        assert_eq!(table.insert(prefix("11.0.1.1/32"), hop(3)), Err(full));
        assert_eq!(
            (table.len(), table.lookup(0x0b00_0101), table.lookup(0x0a01_0001)),
            (2, NextHopId::NONE, hop(2))
        );
        // Halfway through the root words: 10.0.0.0/19 is changed by then, the run in 10.1.0.0/19 cannot be written anew.
        let full = TableError::Memory { bytes: (end + 2) * size_of::<u16>() };
        assert_eq!(table.remove(prefix("10.0.0.0/8")), Err(full));
        assert_eq!(table.insert(prefix("0.0.0.0/1"), hop(5)), Ok(None), "needs no run");
        assert_eq!(table.remove(prefix("0.0.0.0/1")), Ok(hop(5)));
        assert_eq!(table.hops.end(), end);
        for (address, number) in [(0x0a00_0000, 1), (0x0aff_ffff, 1), (0x0a01_0000, 2), (0x0a01_0100, 1)] {
            assert_eq!(table.lookup(address), hop(number), "{address:x}");
        }
        table.hops.set_limit(usize::MAX);
        assert_eq!(table.insert(prefix("11.0.1.1/32"), hop(3)), Ok(None));
        assert_eq!(table.lookup(0x0b00_0101), hop(3));
    }
}
