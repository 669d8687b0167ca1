//! Which buffers the kernel has.

/// One bit for each buffer of the region. What the kernel gives back is only believed if it is in here: a buffer that
/// came back twice would have two owners.
#[derive(Debug)]
pub(crate) struct Outstanding {
    words: Box<[u64]>,
}

impl Outstanding {
    /// None, out of so many.
    pub(crate) fn new(buffers: u32) -> Self {
        Self { words: vec![0; (buffers as usize).div_ceil(64)].into() }
    }

    /// The kernel has this one now.
    #[inline(always)]
    pub(crate) fn give(&mut self, index: u32) {
        if let Some(word) = self.words.get_mut(index as usize / 64) {
            *word |= 1 << (index % 64);
        }
    }

    /// The kernel says that it is done with this one; `false` if it did not have it.
    #[inline(always)]
    #[must_use]
    pub(crate) fn end(&mut self, index: u32) -> bool {
        let Some(word) = self.words.get_mut(index as usize / 64) else { return false };
        let bit = 1 << (index % 64);
        let had = *word & bit != 0;
        *word &= !bit;
        had
    }

    /// All that the kernel has, which it no longer has afterwards.
    pub(crate) fn take_all(&mut self) -> Vec<u32> {
        let mut indices = Vec::new();
        for (number, word) in self.words.iter_mut().enumerate() {
            let mut bits = std::mem::take(word);
            while bits != 0 {
                indices.push(number as u32 * 64 + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
        indices
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_comes_back_once() {
        let mut outstanding = Outstanding::new(130);
        for index in [0, 63, 64, 129] {
            outstanding.give(index);
        }
        assert!(outstanding.end(63));
        assert!(!outstanding.end(63));
        assert!(!outstanding.end(1));
        assert!(!outstanding.end(1_000_000));
        assert_eq!(outstanding.take_all(), [0, 64, 129]);
        assert!(outstanding.take_all().is_empty());
    }
}
