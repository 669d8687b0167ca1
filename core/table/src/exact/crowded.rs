//! What the writer knows of buckets without looking at them

use super::ExactError;

/// A bit for each bucket, set if it is full or is home to entries elsewhere
///
/// An insertion into a bucket that is neither needs that bucket alone, and finds room in it. To learn so from the bucket is to
/// wait for its line, and to guess wrongly costs all of that wait, once in five insertions; the bits are a five-hundredth
/// of the buckets and stay in a cache of the core.
#[derive(Debug)]
pub(super) struct Crowded {
    words: Box<[u64]>,
}

impl Crowded {
    /// None of `count` buckets
    pub(super) fn new(count: usize) -> Result<Self, ExactError> {
        let length = count.div_ceil(64);
        let mut words = Vec::new();
        words
            .try_reserve_exact(length)
            .map_err(|_| ExactError::Memory { bytes: length * size_of::<u64>() })?;
        words.resize(length, 0);
        Ok(Self { words: words.into_boxed_slice() })
    }

    /// # Safety
    /// There must be such a bucket.
    #[inline(always)]
    pub(super) unsafe fn has(&self, bucket: u32) -> bool {
        debug_assert!((bucket as usize) < 64 * self.words.len());
        // SAFETY: as the caller promises; there is a bit for each.
        let word = unsafe { self.words.get_unchecked(bucket as usize / 64) };
        word >> (bucket % 64) & 1 == 1
    }

    /// Without a branch: what it is set to comes from the bucket's line, for which the next insertion need not wait.
    ///
    /// # Safety
    /// There must be such a bucket.
    #[inline(always)]
    pub(super) unsafe fn set(&mut self, bucket: u32, crowded: bool) {
        debug_assert!((bucket as usize) < 64 * self.words.len());
        // SAFETY: as in `has`.
        let word = unsafe { self.words.get_unchecked_mut(bucket as usize / 64) };
        *word = *word & !(1 << (bucket % 64)) | u64::from(crowded) << (bucket % 64);
    }

    /// The same of a bucket that was not crowded
    ///
    /// # Safety
    /// There must be such a bucket.
    #[inline(always)]
    pub(super) unsafe fn set_if(&mut self, bucket: u32, crowded: bool) {
        debug_assert!((bucket as usize) < 64 * self.words.len());
        // SAFETY: as in `has`.
        let word = unsafe { self.words.get_unchecked_mut(bucket as usize / 64) };
        *word |= u64::from(crowded) << (bucket % 64);
    }

    pub(super) fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Bytes of memory
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }
}
