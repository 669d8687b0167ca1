//! Names of buffers in the order in which the device has them.

/// As many as there are buffers, in a circle.
#[derive(Debug)]
pub(super) struct Names {
    circle: Box<[u16]>,
    first: u16,
    end: u16,
}

impl Names {
    /// For `count` names, a power of two.
    pub(super) fn new(count: u16) -> Self {
        debug_assert!(count.is_power_of_two());
        Self { circle: vec![0; usize::from(count)].into(), first: 0, end: 0 }
    }

    #[inline(always)]
    fn place(&self, index: u16) -> usize {
        usize::from(index) & (self.circle.len() - 1)
    }

    /// Adds a name. There is space: no buffer is in it twice.
    #[inline(always)]
    pub(super) fn push(&mut self, name: u16) {
        let place = self.place(self.end);
        self.circle[place] = name;
        self.end = self.end.wrapping_add(1);
    }

    /// The oldest name.
    #[inline(always)]
    pub(super) fn first(&self) -> Option<u16> {
        (self.first != self.end).then(|| self.circle[self.place(self.first)])
    }

    /// Goes on behind the oldest name, which is there.
    #[inline(always)]
    pub(super) fn skip(&mut self) {
        self.first = self.first.wrapping_add(1);
    }

    pub(super) fn clear(&mut self) {
        self.first = self.end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_in_order_however_often() {
        let mut names = Names::new(4);
        assert_eq!(names.first(), None);
        // Beyond the last number that an index can have.
        for round in 0..20_000_u16 {
            for name in 0..4 {
                names.push(round ^ name);
            }
            for name in 0..4 {
                assert_eq!(names.first(), Some(round ^ name));
                names.skip();
            }
            assert_eq!(names.first(), None);
        }
        names.push(7);
        names.clear();
        assert_eq!(names.first(), None);
    }
}
