//! One level.

use super::geometry::{Geometry, GeometryError, Shape};
use super::replacement::Replacement;

/// No line has this number: addresses have 64 bits.
const EMPTY: u64 = u64::MAX;

/// A set-associative cache: which lines it has, and which of them were written.
#[derive(Clone, Debug)]
pub struct Cache {
    shape: Shape,
    replacement: Replacement,
    lines: Vec<u64>,
    dirty: Vec<bool>,
    uses: Vec<u8>,
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
        let lines = shape.sets() * shape.ways;
        let mut uses = vec![0; lines];
        uses.chunks_exact_mut(shape.ways).for_each(|set| geometry.replacement.fresh(set));
        let (dirty, lines) = (vec![false; lines], vec![EMPTY; lines]);
        Ok(Self { shape, replacement: geometry.replacement, lines, dirty, uses })
    }

    #[inline]
    fn first(&self, line: u64) -> usize {
        self.shape.set(line) * self.shape.ways
    }

    /// Where a line is.
    #[inline]
    pub fn find(&self, line: u64) -> Option<LineIndex> {
        let first = self.first(line);
        let set = &self.lines[first..first + self.shape.ways];
        set.iter().position(|known| *known == line).map(|way| LineIndex(first + way))
    }

    /// Uses a line, if it is there.
    #[inline]
    pub fn touch(&mut self, line: u64) -> Option<LineIndex> {
        let index = self.find(line)?;
        self.note_use(index.0, false);
        Some(index)
    }

    #[inline]
    fn note_use(&mut self, slot: usize, come: bool) {
        let ways = self.shape.ways;
        let first = slot / ways * ways;
        self.replacement.touch(&mut self.uses[first..first + ways], slot - first, come);
    }

    /// Notes that the line there is written.
    #[inline]
    pub fn set_dirty(&mut self, index: LineIndex) {
        self.dirty[index.0] = true;
    }

    /// Notes that the line there is as in the level behind.
    #[inline]
    pub(super) fn set_clean(&mut self, index: LineIndex) {
        self.dirty[index.0] = false;
    }

    /// Whether the line there was written.
    #[inline]
    pub fn is_dirty(&self, index: LineIndex) -> bool {
        self.dirty[index.0]
    }

    /// Puts in a line that isn't there, in one of the first `allowed` ways of its set (all, if it has fewer), and says which line had to go.
    #[inline]
    pub fn insert(&mut self, line: u64, dirty: bool, allowed: usize) -> Option<Evicted> {
        let first = self.first(line);
        let allowed = allowed.clamp(1, self.shape.ways);
        let free = self.lines[first..first + allowed].iter().position(|known| *known == EMPTY);
        let ways = self.shape.ways;
        let way = free.unwrap_or_else(|| self.replacement.victim(&self.uses[first..first + ways], allowed));
        let slot = first + way;
        let gone = Evicted { line: self.lines[slot], dirty: self.dirty[slot] };
        self.lines[slot] = line;
        self.dirty[slot] = dirty;
        self.note_use(slot, true);
        (gone.line != EMPTY).then_some(gone)
    }

    /// Takes a line out; says whether it was written, if it was there.
    #[inline]
    pub fn remove(&mut self, line: u64) -> Option<bool> {
        let LineIndex(slot) = self.find(line)?;
        self.lines[slot] = EMPTY;
        Some(std::mem::take(&mut self.dirty[slot]))
    }
}

#[cfg(test)]
mod tests {
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
        for (lines, ways) in [(40, 8), (100, 32), (200, 64)] {
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
