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

impl Replacement {
    /// What the bytes of an empty set are.
    pub(super) fn fresh(self, set: &mut [u8]) {
        for (way, byte) in set.iter_mut().enumerate() {
            *byte = match self {
                Self::Lru => way as u8,
                // Byte n is node n of the tree; node 0 is not used.
                Self::Tree => 0,
                Self::QuadAge => OLDEST,
            };
        }
    }

    /// Takes note that a way is used, by an access to a line that was there or by a line that has `come`.
    #[inline]
    pub(super) fn touch(self, set: &mut [u8], way: usize, come: bool) {
        match self {
            Self::Lru => {
                let rank = set[way];
                for other in set.iter_mut() {
                    *other += u8::from(*other < rank);
                }
                set[way] = 0;
            }
            Self::Tree => {
                let mut node = set.len() + way;
                while node > 1 {
                    set[node / 2] = u8::from(node & 1 == 0);
                    node /= 2;
                }
            }
            Self::QuadAge => {
                set[way] = u8::from(come || set[way] >= 2);
                let oldest = set.iter().fold(0, |oldest, age| oldest.max(*age));
                for age in set {
                    *age += OLDEST - oldest;
                }
            }
        }
    }

    /// The way, among the first `allowed`, whose line goes.
    #[inline]
    pub(super) fn victim(self, set: &[u8], allowed: usize) -> usize {
        match self {
            // The first of the greatest age or rank.
            Self::Lru | Self::QuadAge => {
                let oldest = set[..allowed].iter().fold(0, |oldest, age| oldest.max(*age));
                set[..allowed].iter().position(|age| *age == oldest).unwrap_or(0)
            }
            Self::Tree => {
                let (mut node, ways) = (1, set.len());
                let (mut first, mut width) = (0, ways);
                while node < ways {
                    width /= 2;
                    // Where what lies to the right isn't allowed, it goes left.
                    let right = set[node] == 1 && first + width < allowed;
                    first += if right { width } else { 0 };
                    node = 2 * node + usize::from(right);
                }
                node - ways
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which ways go, one after the other, if each is used again by a line that comes.
    fn victims(replacement: Replacement, uses: &[usize], allowed: usize) -> Vec<usize> {
        let mut set = [0; 4];
        replacement.fresh(&mut set);
        for way in 0..4 {
            replacement.touch(&mut set, way, true);
        }
        for way in uses {
            replacement.touch(&mut set, *way, false);
        }
        (0..4)
            .map(|_| {
                let way = replacement.victim(&set, allowed);
                replacement.touch(&mut set, way, true);
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
