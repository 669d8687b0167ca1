//! Which buffers are lent to the kernel or another process.

/// A mark for each buffer of the region. What the kernel returns is only believed if it is in here: a buffer that
/// came back twice would have two owners.
///
/// A byte each: to set or to read a bit takes three times as many instructions, and the lines of those that go round stay in
/// the first-level cache either way.
#[derive(Debug)]
pub struct LentBuffers {
    marks: Box<[bool]>,
}

impl LentBuffers {
    /// None, out of so many.
    pub fn new(buffers: u32) -> Self {
        Self { marks: vec![false; buffers as usize].into() }
    }

    /// The marks themselves: in a loop that also writes to memory they need not be looked up again.
    #[inline(always)]
    pub fn marks(&mut self) -> LentMarks<'_> {
        LentMarks(&mut self.marks)
    }

    /// All that the kernel has, which it no longer has afterwards.
    pub fn take_all(&mut self) -> Vec<u32> {
        let had = self.marks.iter_mut().enumerate().filter_map(|(index, mark)| {
            let had = std::mem::take(mark);
            had.then_some(index as u32)
        });
        had.collect()
    }
}

/// See [`LentBuffers::marks`].
pub struct LentMarks<'a>(&'a mut [bool]);

impl LentMarks<'_> {
    /// The kernel has this one now.
    #[inline(always)]
    pub fn lend(&mut self, index: u32) {
        if let Some(mark) = self.0.get_mut(index as usize) {
            *mark = true;
        }
    }

    /// The kernel says that it is done with this one; `false` if it did not have it.
    #[inline(always)]
    #[must_use]
    pub fn take_back(&mut self, index: u32) -> bool {
        self.0.get_mut(index as usize).is_some_and(std::mem::take)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_comes_back_once() {
        let mut lent = LentBuffers::new(130);
        for index in [0, 63, 64, 129] {
            lent.marks().lend(index);
        }
        assert!(lent.marks().take_back(63));
        assert!(!lent.marks().take_back(63));
        assert!(!lent.marks().take_back(1));
        assert!(!lent.marks().take_back(1_000_000));
        assert_eq!(lent.take_all(), [0, 64, 129]);
        assert!(lent.take_all().is_empty());
    }
}
