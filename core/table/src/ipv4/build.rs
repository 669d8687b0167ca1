//! How routes become words and hops

use std::ops::Range;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use super::hops::{self, HopIndex, NUMBER, SINGLES};
use super::routes::{Routes, slot_of};
use super::touched::{ALL_UNITS, Touched, UNIT_LENGTH};
use super::{DIVIDED, HOST_WORDS, Ipv4Table, ROOT_LENGTH, ROOT_WORDS, UNITS, portable};
use crate::TableError;
use crate::arena::{Arena, NoSpace};
use crate::prefix::Ipv4Prefix;

/// Addresses in a unit
const HOSTS: usize = 1 << (32 - UNIT_LENGTH);
/// Words that addresses are reserved for, 128 MiB: enough for an eighth of all /24s to have longer routes
const MOST_WORDS: usize = 1 << 24;
/// Pairs of bytes for next hops that addresses are reserved for, 64 MiB: less than indices can tell apart
const MOST_HOPS: usize = 1 << 25;
/// With more routes than this in a /19, a change looks only at those of the /24s that it touches
const FEW_ROUTES: usize = 128;
/// Changes that space is kept for
pub(super) const KEPT_CHANGES: usize = 4096;
/// Hops of a run that a stretch has no need of, so that it may be written in place. More are left only as long as they
/// are fewer than those needed.
const SPARE_HOPS: u32 = 8;

/// What was before, to give runs back or to take a failed change back
#[derive(Debug)]
pub(super) enum Change {
    Word { slot: u32, before: u64 },
    Hop { index: HopIndex, before: u16 },
}

/// Arenas for an empty table: the words of the root lead to no next hop, and the first hops stand for themselves
pub(super) fn arenas() -> Result<(Arena<AtomicU64>, Arena<AtomicU16>), NoSpace> {
    let words = Arena::<AtomicU64>::new(ROOT_WORDS, MOST_WORDS)?;
    let hops = Arena::<AtomicU16>::new(SINGLES, MOST_HOPS)?;
    for word in &words.memory()[..ROOT_WORDS] {
        word.store(single(u16::MAX), Ordering::Relaxed);
    }
    hops::fill_singles(hops.memory());
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

    /// The same for some /24s, without a look at routes elsewhere
    fn of_units(routes: &Routes, slot: usize, units: u32) -> Self {
        let mut division = Self { hops: [routes.around(slot); UNITS], divided: 0 };
        for unit in bits(units) {
            division.hops[unit] = routes.around_part(slot, unit * HOSTS, UNIT_LENGTH);
            if routes.starting_in(slot, unit_range(unit)).any(|route| route.length() > UNIT_LENGTH) {
                division.divided |= 1 << unit;
            }
        }
        division
    }

    /// The next hops of all addresses of a /24
    fn hosts(&self, routes: &Routes, slot: usize, unit: usize) -> [u16; HOSTS] {
        let mut hosts = [self.hops[unit]; HOSTS];
        for route in routes.starting_in(slot, unit_range(unit)) {
            if route.length() > UNIT_LENGTH {
                hosts[route.first() % HOSTS..=route.last() % HOSTS].fill(route.stored_hop());
            }
        }
        hosts
    }
}

/// The numbers of the bits that are set
fn bits(mut units: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let unit = units.trailing_zeros() as usize;
        units &= units.wrapping_sub(1);
        (unit < UNITS).then_some(unit)
    })
}

/// The addresses of a /24, less the first of the /19
fn unit_range(unit: usize) -> Range<usize> {
    unit * HOSTS..(unit + 1) * HOSTS
}

/// What the units of a word lead to
#[derive(Clone, PartialEq)]
struct Units {
    /// [`DIVIDED`] if there is a block
    hops: [u16; UNITS],
    blocks: [u32; UNITS],
}

impl Units {
    fn without_blocks(hops: &[u16; UNITS]) -> Self {
        Self { hops: *hops, blocks: [0; UNITS] }
    }

    /// The units at which the next hop changes. One with a block always counts, so that each has its own.
    fn bitmap(&self) -> u32 {
        // Without branches, so that vectors do it.
        let changes = (1..UNITS).map(|unit| u32::from(self.hops[unit] != self.hops[unit - 1]) << unit);
        changes.fold(self.divided() & !1, |bitmap, change| bitmap | change)
    }

    /// Those that have a block
    fn divided(&self) -> u32 {
        (0..UNITS).fold(0, |divided, unit| divided | u32::from(self.hops[unit] == DIVIDED) << unit)
    }

    /// Whether they all have one next hop, and this bitmap of theirs says so
    fn is_single(&self, bitmap: u32) -> bool {
        bitmap == 0 && self.hops[0] != DIVIDED
    }

    /// The next hops in the run of this bitmap, which has all units of their own
    fn run(&self, bitmap: u32) -> impl Iterator<Item = u16> + '_ {
        bits(bitmap | 1).map(|unit| self.hops[unit])
    }

    /// The blocks whose numbers follow in the run
    fn run_blocks(&self) -> impl Iterator<Item = u32> + '_ {
        bits(self.divided()).map(|unit| self.blocks[unit])
    }
}

/// Pairs of bytes in a run of so many next hops and numbers of blocks
fn run_pairs(is_wide: bool, hops: u32, blocks: usize) -> usize {
    let hops = hops as usize;
    (if is_wide { 2 * hops } else { hops } + blocks * NUMBER).div_ceil(2)
}

impl Ipv4Table {
    /// Brings the words in line with the routes after those to `prefixes`, which are sorted, changed
    pub(super) fn refresh(&mut self, prefixes: &[Ipv4Prefix]) -> Result<(), TableError> {
        let mut changes = std::mem::take(&mut self.changes);
        let result = self.refresh_all(prefixes, &mut changes);
        match result {
            Ok(()) => {
                for change in changes.drain(..) {
                    if let Change::Word { slot, before } = change {
                        self.release(before, self.word_at(slot as usize));
                    }
                }
                self.words.shrink_if_unused();
                self.hops.shrink_if_unused();
            }
            Err(_) => {
                while let Some(change) = changes.pop() {
                    match change {
                        Change::Word { slot, before } => {
                            let word = self.word_at(slot as usize);
                            self.publish(slot as usize, before);
                            self.release(word, before);
                        }
                        Change::Hop { index, before } => self.publish_hop(index, before),
                    }
                }
            }
        }
        // Its space serves the next change, but not that of a change to half of all words.
        changes.shrink_to(KEPT_CHANGES);
        self.changes = changes;
        result.map_err(TableError::from)
    }

    fn refresh_all(&mut self, prefixes: &[Ipv4Prefix], changes: &mut Vec<Change>) -> Result<(), NoSpace> {
        let mut rest = prefixes;
        // Slots before this one are done, so that each word changes once at most.
        let mut done = 0;
        while let [prefix, others @ ..] = rest {
            rest = others;
            let (first, last) = (slot_of(prefix.first()), slot_of(prefix.last()));
            if prefix.length() < ROOT_LENGTH {
                for slot in first.max(done)..=last {
                    self.refresh_slot(slot, Touched::ALL, changes)?;
                }
                done = done.max(last + 1);
            } else if first >= done {
                let mut touched = Touched::by(*prefix);
                // Neighbours in the same /19 share its work.
                while let [next, others @ ..] = rest
                    && slot_of(next.first()) == first
                {
                    touched = touched.and(Touched::by(*next));
                    rest = others;
                }
                self.refresh_slot(first, touched, changes)?;
            }
        }
        Ok(())
    }

    /// Brings the word of a /19 and what is touched of its blocks in line with the routes
    fn refresh_slot(
        &mut self,
        slot: usize,
        touched: Touched,
        changes: &mut Vec<Change>,
    ) -> Result<(), NoSpace> {
        if self.routes.count_inside(slot) == 0 {
            self.replace_word(slot, single(self.routes.around(slot)), changes);
            return Ok(());
        }
        let units = touched.units;
        let (division, before, mut now);
        if units == ALL_UNITS || self.routes.count_inside(slot) <= FEW_ROUTES {
            division = Division::of(&self.routes, slot);
            now = Units::without_blocks(&division.hops);
            before = None;
        } else {
            // What lies beside stays as the word has it, so that a change costs the same however much that is.
            division = Division::of_units(&self.routes, slot, units);
            now = self.units(self.word_at(slot));
            before = Some(now.clone());
            bits(units).for_each(|unit| now.hops[unit] = division.hops[unit]);
        }
        let mut made = Vec::new();
        let result = self.divide(&division, slot, touched, &mut now, &mut made, changes);
        let leads_there = before.is_some_and(|before| before == now);
        match result.and_then(|()| if leads_there { Ok(()) } else { self.refresh_word(slot, &now, changes) })
        {
            Ok(()) => Ok(()),
            Err(no_space) => {
                for block in made {
                    self.release_block(block);
                }
                Err(no_space)
            }
        }
    }

    /// Sees to it that each divided /24 has a block, and that what is touched of those is as the routes say; notes in `made`
    /// which are new
    fn divide(
        &mut self,
        division: &Division,
        slot: usize,
        touched: Touched,
        now: &mut Units,
        made: &mut Vec<u32>,
        changes: &mut Vec<Change>,
    ) -> Result<(), NoSpace> {
        for unit in bits(division.divided) {
            let block = self.block_of(self.word_at(slot), unit);
            if let Some(block) = block.filter(|_| touched.units & 1 << unit == 0) {
                (now.hops[unit], now.blocks[unit]) = (DIVIDED, block);
                continue;
            }
            let hosts = division.hosts(&self.routes, slot, unit);
            if hosts.iter().all(|hop| *hop == hosts[0]) {
                now.hops[unit] = hosts[0];
                continue;
            }
            let (words, _) = hosts.as_chunks();
            now.hops[unit] = DIVIDED;
            now.blocks[unit] = if let Some(block) = block {
                self.refresh_block(block, words, touched.words, changes)?;
                block
            } else {
                let block = self.new_block(words)?;
                made.push(block);
                block
            };
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

    fn hop_at(&self, index: HopIndex) -> u16 {
        // SAFETY: only indices that this table's words lead to are asked for.
        unsafe { hops::load(self.hops.memory(), index) }
    }

    /// Into the run of a word, or one that no word leads to yet
    fn publish_hop(&self, index: HopIndex, hop: u16) {
        // SAFETY: a run has one width from when it was taken, which its indices tell; whoever has the table is its only writer.
        unsafe { hops::store(self.hops.memory(), index, hop) };
    }

    /// Sees to it that the word in `slot` leads to these units
    fn refresh_word(&mut self, slot: usize, units: &Units, changes: &mut Vec<Change>) -> Result<(), NoSpace> {
        let before = self.word_at(slot);
        if !(has_run(before) && self.write_in_place(before, units, changes)) {
            let word = self.word(units)?;
            self.replace_word(slot, word, changes);
        }
        Ok(())
    }

    fn replace_word(&self, slot: usize, word: u64, changes: &mut Vec<Change>) {
        let before = self.word_at(slot);
        if word != before {
            self.publish(slot, word);
            changes.push(Change::Word { slot: slot as u32, before });
        }
    }

    /// Writes the hops that differ into the run of a word that has one, if these units can be told by its bitmap. Lookups then wait for one line
    /// that was written, rather than for the word's and for that of a run in another place.
    fn write_in_place(&self, word: u64, units: &Units, changes: &mut Vec<Change>) -> bool {
        let (present, needed) = (word as u32, units.bitmap());
        let spare = (present & !needed).count_ones();
        if needed & !present != 0 || units.is_single(needed) || spare > SPARE_HOPS.max(needed.count_ones()) {
            return false;
        }
        // Each change of a hop is seen by itself, so blocks stay what and where they are; and a run its width.
        let base = portable::base(word);
        let indices = || (0..).map(|rank| base.after(rank));
        let fits = |(hop, index): (u16, HopIndex)| {
            (hop == DIVIDED) == (self.hop_at(index) == DIVIDED)
                && (base.is_wide() || hops::narrow(hop).is_some())
        };
        if !units.run(present).zip(indices()).all(fits) {
            return false;
        }
        for (hop, index) in units.run(present).zip(indices()) {
            let before = self.hop_at(index);
            if hop != before {
                self.publish_hop(index, hop);
                changes.push(Change::Hop { index, before });
            }
        }
        true
    }

    /// A word that leads to these units, with a new run if they need one
    fn word(&mut self, units: &Units) -> Result<u64, NoSpace> {
        let bitmap = units.bitmap();
        if units.is_single(bitmap) {
            return Ok(single(units.hops[0]));
        }
        let is_wide = units.run(bitmap).any(|hop| hops::narrow(hop).is_none());
        let count = bitmap.count_ones() + 1;
        let pairs = run_pairs(is_wide, count, units.divided().count_ones() as usize);
        let base = HopIndex::in_run(self.hops.take(pairs)?, is_wide);
        for (hop, rank) in units.run(bitmap).zip(0..) {
            self.publish_hop(base.after(rank), hop);
        }
        for (block, at) in units.run_blocks().zip((base.after(count).byte()..).step_by(NUMBER)) {
            // SAFETY: space was taken for it, and no word leads there yet.
            unsafe { hops::store_number(self.hops.memory(), at, block) };
        }
        Ok(u64::from(base.0) << 32 | u64::from(bitmap))
    }

    /// A block in which a /24 has these next hops
    fn new_block(&mut self, hosts: &[[u16; UNITS]]) -> Result<u32, NoSpace> {
        let block = self.words.take(HOST_WORDS)?;
        for (index, hops) in hosts.iter().enumerate() {
            match self.word(&Units::without_blocks(hops)) {
                Ok(word) => self.publish(block as usize + index, word),
                Err(no_space) => {
                    for index in 0..index {
                        self.release_run(self.word_at(block as usize + index));
                    }
                    self.words.give_unused(block, HOST_WORDS);
                    return Err(no_space);
                }
            }
        }
        Ok(block)
    }

    /// Replaces those words of a block that are touched and differ from these next hops
    fn refresh_block(
        &mut self,
        block: u32,
        hosts: &[[u16; UNITS]],
        words: u8,
        changes: &mut Vec<Change>,
    ) -> Result<(), NoSpace> {
        for (index, hops) in hosts.iter().enumerate().filter(|(index, _)| words & 1 << index != 0) {
            let slot = block as usize + index;
            self.refresh_word(slot, &Units::without_blocks(hops), changes)?;
        }
        Ok(())
    }

    /// The block of a unit of the word, if it has one
    fn block_of(&self, word: u64, unit: usize) -> Option<u32> {
        let index = portable::hop_index(word, unit as u32);
        // SAFETY: a word of this table.
        (self.hop_at(index) == DIVIDED).then(|| unsafe { portable::block(self.hops.memory(), word, index) })
    }

    /// What the units of a word lead to
    fn units(&self, word: u64) -> Units {
        let base = portable::base(word);
        let mut units = Units { hops: [0; UNITS], blocks: [0; UNITS] };
        let mut number = base.after((word as u32).count_ones() + 1).byte();
        let mut rank = 0;
        for unit in 0..UNITS {
            let starts = unit == 0 || word & 1 << unit != 0;
            rank += u32::from(starts && unit > 0);
            let hop = if starts { self.hop_at(base.after(rank)) } else { units.hops[unit - 1] };
            units.hops[unit] = hop;
            if hop == DIVIDED {
                // SAFETY: a word of this table, so as many numbers follow as units are divided. Such a unit always starts a
                // stretch.
                units.blocks[unit] = unsafe { hops::load_number(self.hops.memory(), number) };
                number += NUMBER;
            }
        }
        units
    }

    /// The blocks that the word leads to
    fn blocks(&self, word: u64) -> Vec<u32> {
        if has_run(word) { self.units(word).run_blocks().collect() } else { Vec::new() }
    }

    /// Gives back what one word led to and another one in its place does not
    fn release(&mut self, word: u64, other: u64) {
        let blocks = self.blocks(word);
        if !blocks.is_empty() {
            let kept = self.blocks(other);
            blocks
                .into_iter()
                .filter(|block| !kept.contains(block))
                .for_each(|block| self.release_block(block));
        }
        self.release_run(word);
    }

    fn release_block(&mut self, block: u32) {
        for index in 0..HOST_WORDS {
            self.release_run(self.word_at(block as usize + index));
        }
        self.words.retire(block, HOST_WORDS);
    }

    fn release_run(&mut self, word: u64) {
        if has_run(word) {
            let (base, count) = (portable::base(word), (word as u32).count_ones() + 1);
            let pairs = run_pairs(base.is_wide(), count, self.blocks(word).len());
            self.hops.retire(base.pair() as u32, pairs);
        }
    }
}

/// Whether a word has a run of its own
fn has_run(word: u64) -> bool {
    portable::base(word).is_in_run()
}

/// The word of one next hop
fn single(hop: u16) -> u64 {
    u64::from(HopIndex::of_single(hop).0) << 32
}

#[cfg(test)]
mod tests;
