//! One level.

use super::geometry::{Geometry, GeometryError, Shape};
use super::replacement::{HIGHEST, ONES, Uses, WAYS_OF_PAIR, WAYS_OF_WORD, equal_bytes, first_way};

/// An entry that has no line: addresses have 64 bits, so no line's bits are all set.
const EMPTY: u64 = u64::MAX;

/// What an entry says of its line, below the line's number, which has 58 bits.
const DIRTY: u64 = 1;
const EXCLUSIVE: u64 = 2;
const FLAGS: u32 = 2;

/// A set-associative cache: which lines it has, and which of them were written.
#[derive(Clone, Debug)]
pub struct Cache {
    shape: Shape,
    uses: Uses,
    /// Of each set, one after the other: a byte for each way, 0 if it is empty, or else a mark that few other lines have, so that eight ways are searched
    /// at a time; the words of its [`Uses`]; and of each way a line's number with its flags.
    sets: Vec<u64>,
    /// Words of a set that are marks, those before its first line, and all.
    marks: usize,
    before_lines: usize,
    words: usize,
}

/// A line that has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// Its address divided by the bytes of a line.
    pub line: u64,
    /// It was written.
    pub dirty: bool,
}

/// Where a line is in a cache, until the next line comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineIndex(usize);

impl Cache {
    /// An empty one.
    ///
    /// # Errors
    /// [`GeometryError`].
    pub fn new(geometry: &Geometry) -> Result<Self, GeometryError> {
        let shape = geometry.shape()?;
        let uses = Uses::new(geometry.replacement, shape.ways);
        let marks = 2 * shape.ways.div_ceil(WAYS_OF_PAIR);
        let mut set = vec![0; marks];
        set.extend(uses.fresh());
        let before_lines = set.len();
        set.resize(before_lines + shape.ways, EMPTY);
        Ok(Self { shape, uses, words: set.len(), sets: set.repeat(shape.sets()), marks, before_lines })
    }

    /// The mark of a line in each byte of a word: its highest bit is set, so that it is none of an empty way.
    #[inline]
    const fn mark(line: u64) -> u64 {
        (line.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 44 & 0x7f | 0x80) * ONES
    }

    /// Where a line's set begins.
    #[inline]
    const fn set(&self, line: u64) -> usize {
        self.shape.set(line) * self.words
    }

    /// Which way of the set that begins there has the line.
    #[inline(always)]
    fn way(&self, set: usize, line: u64) -> Option<usize> {
        let mark = Self::mark(line);
        let set = &self.sets[set..set + self.words];
        let mut pair = 0;
        while pair < self.marks {
            let mut alike = equal_bytes([set[pair] ^ mark, set[pair + 1] ^ mark]);
            while alike != 0 {
                let way = pair * WAYS_OF_WORD + first_way(alike);
                if set[self.before_lines + way] >> FLAGS == line {
                    return Some(way);
                }
                alike &= alike - 1;
            }
            pair += 2;
        }
        None
    }

    /// Where a line is.
    #[inline]
    pub fn find(&self, line: u64) -> Option<LineIndex> {
        let set = self.set(line);
        Some(LineIndex(set + self.before_lines + self.way(set, line)?))
    }

    /// Reads what will be searched for a line, so that it comes near while something else is done.
    #[inline]
    pub(super) fn prefetch(&self, line: u64) -> u64 {
        self.sets[self.set(line)]
    }

    /// Uses a line, if it is there.
    #[inline]
    pub fn touch(&mut self, line: u64) -> Option<LineIndex> {
        let set = self.set(line);
        let way = self.way(set, line)?;
        self.note_use(set, way, false);
        Some(LineIndex(set + self.before_lines + way))
    }

    #[inline(always)]
    fn note_use(&mut self, set: usize, way: usize, come: bool) {
        self.uses.touch(&mut self.sets[set + self.marks..set + self.before_lines], way, come);
    }

    /// Notes that the line there is written.
    #[inline]
    pub fn set_dirty(&mut self, index: LineIndex) {
        self.sets[index.0] |= DIRTY;
    }

    /// Notes that the line there is as in the level behind.
    #[inline]
    pub(super) fn set_clean(&mut self, index: LineIndex) {
        self.sets[index.0] &= !DIRTY;
    }

    /// Whether the line there was written.
    #[inline]
    pub fn is_dirty(&self, index: LineIndex) -> bool {
        self.sets[index.0] & DIRTY != 0
    }

    /// Notes whether a core has the line there for itself.
    #[inline]
    pub(super) fn set_exclusive(&mut self, index: LineIndex, exclusive: bool) {
        let flag = if exclusive { EXCLUSIVE } else { 0 };
        self.sets[index.0] = self.sets[index.0] & !EXCLUSIVE | flag;
    }

    /// Whether a core has the line there for itself.
    #[inline]
    pub(super) fn is_exclusive(&self, index: LineIndex) -> bool {
        self.sets[index.0] & EXCLUSIVE != 0
    }

    /// Puts in a line that isn't there, in one of the first `allowed` ways of its set (all, if it has fewer), and says which line had to go.
    #[inline]
    pub fn insert(&mut self, line: u64, dirty: bool, allowed: usize) -> Option<Evicted> {
        self.put(self.set(line), line, flags(dirty, false), allowed)
    }

    /// The same of a line that a core has for itself, or not.
    #[inline]
    pub(super) fn insert_for(&mut self, line: u64, dirty: bool, exclusive: bool) -> Option<Evicted> {
        self.put(self.set(line), line, flags(dirty, exclusive), self.shape.ways)
    }

    /// The same of a line that may be there, and then is dirty if it was or if this one is.
    #[inline]
    pub(super) fn insert_or_keep(&mut self, line: u64, dirty: bool) -> Option<Evicted> {
        let set = self.set(line);
        if let Some(way) = self.way(set, line) {
            self.sets[set + self.before_lines + way] |= flags(dirty, false);
            return None;
        }
        self.put(set, line, flags(dirty, false), self.shape.ways)
    }

    #[inline]
    fn put(&mut self, set: usize, line: u64, flags: u64, allowed: usize) -> Option<Evicted> {
        let allowed = allowed.clamp(1, self.shape.ways);
        let way = self.free(set, allowed).unwrap_or_else(|| {
            self.uses.victim(&self.sets[set + self.marks..set + self.before_lines], allowed)
        });
        let byte = 0xff << (way % WAYS_OF_WORD * 8);
        let mark = &mut self.sets[set + way / WAYS_OF_WORD];
        *mark = *mark & !byte | Self::mark(line) & byte;
        let entry = &mut self.sets[set + self.before_lines + way];
        let gone = std::mem::replace(entry, line << FLAGS | flags);
        self.note_use(set, way, true);
        (gone != EMPTY).then_some(Evicted { line: gone >> FLAGS, dirty: gone & DIRTY != 0 })
    }

    /// The first way without a line, among the first `allowed`.
    #[inline]
    fn free(&self, set: usize, allowed: usize) -> Option<usize> {
        for (number, word) in self.sets[set..set + self.marks].iter().enumerate() {
            let empty = !word & HIGHEST;
            if empty != 0 {
                let way = number * WAYS_OF_WORD + empty.trailing_zeros() as usize / 8;
                return Some(way).filter(|way| *way < allowed);
            }
        }
        None
    }

    /// Puts written lines from `next` on into all ways that are free.
    pub(super) fn fill(&mut self, next: &mut u64) {
        let ways = self.shape.ways;
        let is_full = |cache: &Self, set: &usize| cache.free(set * cache.words, ways).is_none();
        let mut full = (0..self.shape.sets()).filter(|set| is_full(self, set)).count();
        while full < self.shape.sets() {
            let set = self.set(*next);
            if self.free(set, ways).is_some() {
                self.put(set, *next, flags(true, false), ways);
                full += usize::from(self.free(set, ways).is_none());
            }
            *next += 1;
        }
    }

    /// Takes a line out; says whether it was written, if it was there.
    #[inline]
    pub fn remove(&mut self, line: u64) -> Option<bool> {
        let set = self.set(line);
        let way = self.way(set, line)?;
        self.sets[set + way / WAYS_OF_WORD] &= !(0xff << (way % WAYS_OF_WORD * 8));
        let gone = std::mem::replace(&mut self.sets[set + self.before_lines + way], EMPTY);
        Some(gone & DIRTY != 0)
    }
}

#[inline]
const fn flags(dirty: bool, exclusive: bool) -> u64 {
    let exclusive = if exclusive { EXCLUSIVE } else { 0 };
    if dirty { DIRTY | exclusive } else { exclusive }
}

#[cfg(test)]
mod tests {
    use super::super::replacement::Replacement;
    use super::*;
    use crate::random::Xorshift;

    /// Misses of a fully associative cache with LRU, by stack distances (Mattson and others, "Evaluation techniques for storage
    /// hierarchies", 1970): a line is missed if as many others as there is space for were used since.
    fn misses_by_distance(trace: &[u64], space: usize) -> usize {
        let mut stack: Vec<u64> = Vec::new();
        let mut misses = 0;
        for line in trace {
            let distance = stack.iter().rev().position(|other| other == line);
            misses += usize::from(distance.is_none_or(|distance| distance >= space));
            stack.retain(|other| other != line);
            stack.push(*line);
        }
        misses
    }

    fn misses(cache: &mut Cache, trace: &[u64]) -> usize {
        let miss = |line: &&u64| {
            let missed = cache.touch(**line).is_none();
            if missed {
                cache.insert(**line, false, usize::MAX);
            }
            missed
        };
        trace.iter().filter(miss).count()
    }

    fn trace(lines: usize, length: usize) -> Vec<u64> {
        let mut random = Xorshift(Xorshift::SEED);
        // Near ones more often than far ones.
        (0..length).map(|_| (random.below(lines) * random.below(lines) / lines) as u64).collect()
    }

    #[test]
    fn least_recently_used_misses_what_stack_distances_say() {
        for (lines, ways) in [(40, 8), (40, 11), (100, 20), (100, 32), (200, 64)] {
            let trace = trace(lines, 5_000);
            let geometry =
                Geometry { bytes: 64 * u64::from(ways), ways, slices: 1, replacement: Replacement::Lru };
            let mut cache = Cache::new(&geometry).unwrap();
            assert_eq!(misses(&mut cache, &trace), misses_by_distance(&trace, ways as usize), "{ways}");
        }
    }

    #[test]
    fn sets_are_small_caches_of_their_own() {
        let trace = trace(3_000, 20_000);
        let geometry = Geometry { bytes: 16 << 10, ways: 4, slices: 1, replacement: Replacement::Lru };
        let by_set: usize = (0..64)
            .map(|set| {
                let own: Vec<u64> = trace.iter().copied().filter(|line| line % 64 == set).collect();
                misses_by_distance(&own, 4)
            })
            .sum();
        assert_eq!(misses(&mut Cache::new(&geometry).unwrap(), &trace), by_set);
    }

    #[test]
    fn what_goes_is_told_and_whether_it_was_written() {
        let geometry = Geometry { bytes: 128, ways: 2, slices: 1, replacement: Replacement::Lru };
        let mut cache = Cache::new(&geometry).unwrap();
        assert_eq!(cache.insert(1, false, 2), None);
        assert_eq!(cache.insert(2, true, 2), None);
        let index = cache.touch(1).unwrap();
        cache.set_dirty(index);
        assert_eq!(cache.insert(3, false, 2), Some(Evicted { line: 2, dirty: true }));
        assert_eq!((cache.remove(1), cache.remove(1), cache.remove(3)), (Some(true), None, Some(false)));
        // Of a device that may use one way, the next line pushes out the last one.
        assert_eq!(cache.insert(4, true, 1), None);
        assert_eq!(cache.insert(5, false, 1), Some(Evicted { line: 4, dirty: true }));
        assert_eq!(cache.insert(6, false, 2), None);
    }
}
