//! Which cores have a line.

/// Of each line that is in a core's second level, a bit for each such core: without it, every line would be looked for in all
/// cores. A line lies where its hash says, or in one of the next places.
#[derive(Clone, Debug)]
pub(super) struct Holders {
    /// A line and its cores; a power of two of them, and at least half without cores.
    places: Vec<(u64, u64)>,
    lines: usize,
}

/// The cores of a set of bits, from the lowest.
pub(super) struct Cores(u64);

impl Iterator for Cores {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let core = self.0.trailing_zeros();
        (core < u64::BITS).then(|| {
            self.0 &= self.0 - 1;
            core as usize
        })
    }
}

impl Default for Holders {
    fn default() -> Self {
        Self { places: vec![(0, 0); 1 << 10], lines: 0 }
    }
}

impl Holders {
    /// The place that a line would have if it were the only one.
    #[inline]
    const fn first(&self, line: u64) -> usize {
        // The upper bits depend on all bits of the line.
        (line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24) as usize & (self.places.len() - 1)
    }

    /// The place that a line has, or that it would get.
    #[inline]
    fn place(&self, line: u64) -> usize {
        let mut place = self.first(line);
        while let (other, cores) = self.places[place]
            && cores != 0
            && other != line
        {
            place = (place + 1) & (self.places.len() - 1);
        }
        place
    }

    /// A core gets the line, and the others lose it if it gets it alone. Who had it until now.
    #[inline]
    pub(super) fn add(&mut self, line: u64, core: usize, alone: bool) -> Cores {
        if 2 * self.lines >= self.places.len() {
            self.grow();
        }
        let place = self.place(line);
        let (known, cores) = &mut self.places[place];
        let before = *cores;
        self.lines += usize::from(before == 0);
        *known = line;
        *cores = if alone { 0 } else { before } | 1 << core;
        Cores(before & !(1 << core))
    }

    #[cold]
    fn grow(&mut self) {
        let twice = vec![(0, 0); 2 * self.places.len()];
        for (line, cores) in std::mem::replace(&mut self.places, twice) {
            if cores != 0 {
                let place = self.place(line);
                self.places[place] = (line, cores);
            }
        }
    }

    #[inline]
    pub(super) fn remove(&mut self, line: u64, core: usize) {
        let place = self.place(line);
        let cores = &mut self.places[place].1;
        let before = *cores;
        *cores &= !(1 << core);
        if before != 0 && *cores == 0 {
            self.close(place);
        }
    }

    /// A place has got empty: those that lie behind it, for it was taken, come nearer to where they belong.
    #[inline]
    fn close(&mut self, mut empty: usize) {
        self.lines -= 1;
        let mask = self.places.len() - 1;
        let mut place = empty;
        loop {
            place = (place + 1) & mask;
            let (line, cores) = self.places[place];
            if cores == 0 {
                return;
            }
            let away = place.wrapping_sub(self.first(line)) & mask;
            if away >= place.wrapping_sub(empty) & mask {
                self.places[empty] = (line, cores);
                self.places[place].1 = 0;
                empty = place;
            }
        }
    }

    /// Reads what will be searched for a line, so that it comes near while something else is done.
    #[inline]
    pub(super) fn prefetch(&self, line: u64) -> u64 {
        self.places[self.first(line)].0
    }

    /// Those that have the line.
    #[inline]
    pub(super) fn of(&self, line: u64) -> Cores {
        Cores(self.places[self.place(line)].1)
    }

    /// Those that had the line; none has it now.
    #[inline]
    pub(super) fn take(&mut self, line: u64) -> Cores {
        let place = self.place(line);
        let cores = std::mem::take(&mut self.places[place].1);
        if cores != 0 {
            self.close(place);
        }
        Cores(cores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Xorshift;
    use std::collections::HashMap;

    #[test]
    fn who_has_a_line_is_known_until_nobody_has_it() {
        let mut holders = Holders::default();
        assert_eq!(holders.add(7, 63, false).count(), 0);
        assert_eq!(holders.add(7, 0, false).collect::<Vec<_>>(), [63]);
        assert_eq!(holders.of(7).collect::<Vec<_>>(), [0, 63]);
        assert_eq!(holders.of(8).count(), 0);
        holders.remove(7, 0);
        assert_eq!(holders.take(7).collect::<Vec<_>>(), [63]);
        assert_eq!(holders.of(7).count(), 0);
        holders.remove(7, 63);
        holders.add(8, 1, false);
        assert_eq!(holders.add(8, 2, true).collect::<Vec<_>>(), [1]);
        assert_eq!(holders.take(8).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn many_lines_that_come_and_go_are_as_in_a_map() {
        let (mut holders, mut map) = (Holders::default(), HashMap::<u64, u64>::new());
        let mut random = Xorshift(Xorshift::SEED);
        for _ in 0..200_000 {
            // Many of them belong to the same places.
            let line = (random.below(3_000) as u64) << (random.below(3) * 20);
            let core = random.below(4);
            match random.below(6) {
                0 => assert_eq!(holders.take(line).0, map.remove(&line).unwrap_or(0)),
                1..=3 => {
                    holders.remove(line, core);
                    map.entry(line).and_modify(|cores| *cores &= !(1 << core));
                }
                alone => {
                    let cores = map.entry(line).or_default();
                    assert_eq!(holders.add(line, core, alone == 4).0, *cores & !(1 << core));
                    *cores = if alone == 4 { 0 } else { *cores } | 1 << core;
                }
            }
        }
        for line in (0..3_000).flat_map(|line| [line, line << 20, line << 40]) {
            assert_eq!(holders.of(line).0, map.get(&line).copied().unwrap_or(0));
        }
        assert_eq!(holders.lines, map.values().filter(|cores| **cores != 0).count());
    }
}
