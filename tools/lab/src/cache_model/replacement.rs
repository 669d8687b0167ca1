//! Which line goes when another comes.

/// What a cache knows of the use of its lines, set by set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// The one that was used longest ago.
    Lru,
    /// The one that the bits of a binary tree point to; each use turns the bits on its way to the other side.
    Tree,
    /// Ages of two bits: a line comes with age 1, a use brings ages of 2 and 3 to 1 and others to 0; if none is 3 then, all grow older
    /// until one is; the first of age 3 goes. In the notation of Abel and Reineke ("nanoBench", ISPASS 2020): QLRU_H11_M1_R0_U0.
    QuadAge,
}

/// The oldest age.
const OLDEST: u8 = 3;

/// A word has a byte for each of so many ways. Words come in pairs, which are dealt with together: in which of two words a way is can't be predicted.
pub(super) const WAYS_OF_WORD: usize = 8;
pub(super) const WAYS_OF_PAIR: usize = 2 * WAYS_OF_WORD;

/// One, and the highest bit, of each byte of a word.
pub(super) const ONES: u64 = u64::MAX / 0xff;
pub(super) const HIGHEST: u64 = ONES << 7;

/// How a cache keeps the use of a set's lines: in words, not bytes, so that eight ways are dealt with at a time.
#[derive(Clone, Debug)]
pub(super) struct Uses {
    kind: Replacement,
    ways: usize,
    /// Words of a set. Of ranks and ages each way has a byte; of a tree, bit n of the first word is node n, and node 0 isn't used.
    pub(super) words: usize,
    /// Of each way, the nodes of a tree on the way to it, and those of them that point to the right once it is used.
    paths: Vec<[u64; 2]>,
}

impl Uses {
    pub(super) fn new(kind: Replacement, ways: usize) -> Self {
        let words = if kind == Replacement::Tree { 1 } else { 2 * ways.div_ceil(WAYS_OF_PAIR) };
        let path = |way: usize| {
            let mut path = [0, 0];
            let mut node = ways + way;
            while node > 1 {
                path[0] |= 1 << (node / 2);
                path[1] |= u64::from(node & 1 == 0) << (node / 2);
                node /= 2;
            }
            path
        };
        let paths = if kind == Replacement::Tree { (0..ways).map(path).collect() } else { Vec::new() };
        Self { kind, ways, words, paths }
    }

    /// What the words of an empty set are.
    pub(super) fn fresh(&self) -> Vec<u64> {
        let byte = |way: usize| match self.kind {
            // No rank is greater, so those of ways that aren't there stay.
            Replacement::Lru if way >= self.ways => 0x7f,
            Replacement::Lru => way as u8,
            Replacement::Tree => 0,
            Replacement::QuadAge => OLDEST,
        };
        (0..self.words)
            .map(|word| u64::from_le_bytes(std::array::from_fn(|at| byte(word * WAYS_OF_WORD + at))))
            .collect()
    }

    /// Takes note that a way is used, by an access to a line that was there or by a line that has `come`.
    #[inline(always)]
    pub(super) fn touch(&self, set: &mut [u64], way: usize, come: bool) {
        let (at, bits) = (way / WAYS_OF_WORD, way % WAYS_OF_WORD * 8);
        match self.kind {
            Replacement::Lru => {
                let rank = set[at] >> bits & 0x7f;
                for word in &mut *set {
                    // The highest bit of each byte stays if the byte is less than the rank.
                    let less = ((HIGHEST | (rank * ONES)) - *word - ONES) & HIGHEST;
                    *word += less >> 7;
                }
                set[at] &= !(0xff << bits);
            }
            Replacement::Tree => {
                let [nodes, to_right] = self.paths[way];
                set[0] = set[0] & !nodes | to_right;
            }
            Replacement::QuadAge => {
                let age = u64::from(come || set[at] >> bits & 0xff >= 2);
                set[at] = set[at] & !(0xff << bits) | age << bits;
                let oldest = (0..self.ways).fold(0, |oldest, way| oldest.max(byte(set, way)));
                for word in &mut *set {
                    *word += u64::from(OLDEST - oldest) * ONES;
                }
                for way in self.ways..self.words * WAYS_OF_WORD {
                    set[way / WAYS_OF_WORD] &= !(0xff << (way % WAYS_OF_WORD * 8));
                }
            }
        }
    }

    /// The way, among the first `allowed`, whose line goes.
    #[inline]
    pub(super) fn victim(&self, set: &[u64], allowed: usize) -> usize {
        let ways = self.ways;
        match self.kind {
            Replacement::Lru if allowed == ways => {
                let last = (ways as u64 - 1) * ONES;
                for (pair, ranks) in set.chunks_exact(2).enumerate() {
                    let found = equal_bytes([ranks[0] ^ last, ranks[1] ^ last]);
                    if found != 0 {
                        return pair * WAYS_OF_PAIR + first_way(found);
                    }
                }
                0
            }
            // The first of the greatest age or rank.
            Replacement::Lru | Replacement::QuadAge => {
                let (mut victim, mut oldest) = (0, byte(set, 0));
                for way in 1..allowed {
                    let age = byte(set, way);
                    if age > oldest {
                        (victim, oldest) = (way, age);
                    }
                }
                victim
            }
            Replacement::Tree if allowed == ways => {
                let (bits, mut node) = (set[0], 1);
                while node < ways {
                    node = (2 * node) | (bits >> node & 1) as usize;
                }
                node - ways
            }
            Replacement::Tree => {
                let bits = set[0];
                let (mut node, mut first, mut width) = (1, 0, ways);
                while node < ways {
                    width /= 2;
                    // Where what lies to the right isn't allowed, it goes left.
                    let right = bits >> node & 1 == 1 && first + width < allowed;
                    first += if right { width } else { 0 };
                    node = 2 * node + usize::from(right);
                }
                node - ways
            }
        }
    }
}

#[inline]
const fn byte(set: &[u64], way: usize) -> u8 {
    (set[way / WAYS_OF_WORD] >> (way % WAYS_OF_WORD * 8)) as u8
}

/// A bit for each byte of a pair of words that is 0, see [`first_way`]. Where one is, bytes above it in its word may have theirs, too.
#[inline]
pub(super) const fn equal_bytes([low, high]: [u64; 2]) -> u64 {
    in_turn([low.wrapping_sub(ONES) & !low & HIGHEST, high.wrapping_sub(ONES) & !high & HIGHEST])
}

/// The highest bits of bytes of two words as bits of one: those of the first in the even places, those of the other in the odd ones.
#[inline]
pub(super) const fn in_turn([low, high]: [u64; 2]) -> u64 {
    low >> 7 | high >> 6
}

/// Which way the lowest of such bits belongs to; of two in the same place of both words, the first word's.
#[inline]
pub(super) const fn first_way(bits: u64) -> usize {
    let bit = bits.trailing_zeros() as usize;
    bit / 8 + bit % 2 * WAYS_OF_WORD
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which ways go, one after the other, if each is used again by a line that comes.
    fn victims(replacement: Replacement, uses: &[usize], allowed: usize) -> Vec<usize> {
        let kept = Uses::new(replacement, 4);
        let mut set = kept.fresh();
        for way in 0..4 {
            kept.touch(&mut set, way, true);
        }
        for way in uses {
            kept.touch(&mut set, *way, false);
        }
        (0..4)
            .map(|_| {
                let way = kept.victim(&set, allowed);
                kept.touch(&mut set, way, true);
                way
            })
            .collect()
    }

    #[test]
    fn each_kind_lets_go_by_its_rule() {
        assert_eq!(victims(Replacement::Lru, &[0, 2], 4), [1, 3, 0, 2]);
        assert_eq!(victims(Replacement::Lru, &[], 2), [0, 1, 0, 1]);
        // Worked by hand: after 0, 1, 2, 3, 0 the root points right and there to 2.
        assert_eq!(victims(Replacement::Tree, &[0], 4), [2, 1, 3, 0]);
        assert_eq!(victims(Replacement::Tree, &[], 2), [0, 1, 0, 1]);
        // When the last has come, all grow from 1 to 3; uses of 0 and 2 make them 1. After 1 and 3 have gone, all are 1 and grow again.
        assert_eq!(victims(Replacement::QuadAge, &[0, 2], 4), [1, 3, 0, 1]);
        assert_eq!(victims(Replacement::QuadAge, &[1], 4), [0, 2, 3, 0]);
    }
}
