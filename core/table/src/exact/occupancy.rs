//! What the writer knows of buckets without looking at them

use super::ExactError;
use super::bucket::{Header, Layout};

/// Which slots of a bucket are taken, by [`Layout::SLOT_STEP`], and whether it is home to entries elsewhere
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Occupancy(u8);

/// Above the bits of all slots, so that what is crowded is what is full or more
const AWAY: u8 = 1 << 7;

impl Occupancy {
    #[inline(always)]
    pub(super) fn of(header: Header) -> Self {
        Self(header.taken() as u8 | if header.away() > 0 { AWAY } else { 0 })
    }

    #[inline(always)]
    pub(super) fn taken(self) -> u32 {
        u32::from(self.0 & !AWAY)
    }

    #[inline(always)]
    pub(super) fn is_full<B: Layout>(self) -> bool {
        self.taken() == B::EVERY_SLOT
    }

    /// Whether it is full or home to entries elsewhere
    #[inline(always)]
    pub(super) fn is_crowded<B: Layout>(self) -> bool {
        u32::from(self.0) >= B::EVERY_SLOT
    }

    #[inline(always)]
    pub(super) fn free_slot<B: Layout>(self) -> Option<usize> {
        let free = !self.taken() & B::EVERY_SLOT;
        (free != 0).then_some(free.trailing_zeros() as usize / B::SLOT_STEP)
    }

    #[inline(always)]
    fn with<B: Layout>(self, slot: usize) -> Self {
        Self(self.0 | 1 << (slot * B::SLOT_STEP))
    }
}

/// The occupancy of each bucket
///
/// Where a new entry goes follows from these alone. To learn it from the bucket is to wait for its line, and whatever waits for a
/// line keeps the processor from going on to the next insertions, of which it has only so many instructions under way; to
/// guess is to guess wrongly, and then to wait again. They are a sixty-fourth of the buckets' first lines and stay
/// in a cache of the core.
#[derive(Debug)]
pub(super) struct Occupancies {
    buckets: Box<[u8]>,
}

impl Occupancies {
    /// `count` empty buckets
    pub(super) fn new(count: usize) -> Result<Self, ExactError> {
        let mut buckets = Vec::new();
        buckets.try_reserve_exact(count).map_err(|_| ExactError::Memory { bytes: count })?;
        buckets.resize(count, 0);
        Ok(Self { buckets: buckets.into_boxed_slice() })
    }

    /// # Safety
    /// There must be such a bucket.
    #[inline(always)]
    pub(super) unsafe fn of(&self, bucket: u32) -> Occupancy {
        debug_assert!((bucket as usize) < self.buckets.len());
        // SAFETY: as the caller promises
        Occupancy(unsafe { *self.buckets.get_unchecked(bucket as usize) })
    }

    /// # Safety
    /// There must be such a bucket.
    #[inline(always)]
    pub(super) unsafe fn set(&mut self, bucket: u32, occupancy: Occupancy) {
        debug_assert!((bucket as usize) < self.buckets.len());
        // SAFETY: as the caller promises
        unsafe { *self.buckets.get_unchecked_mut(bucket as usize) = occupancy.0 };
    }

    /// Takes a free slot
    ///
    /// # Safety
    /// There must be such a bucket.
    #[inline(always)]
    pub(super) unsafe fn take<B: Layout>(&mut self, bucket: u32, slot: usize) {
        // SAFETY: as the caller promises
        unsafe { self.set(bucket, self.of(bucket).with::<B>(slot)) };
    }

    /// Notes that there are entries whose home it is elsewhere
    ///
    /// # Safety
    /// There must be such a bucket.
    #[inline(always)]
    pub(super) unsafe fn set_away(&mut self, bucket: u32) {
        // SAFETY: as the caller promises
        unsafe { self.set(bucket, Occupancy(self.of(bucket).0 | AWAY)) };
    }

    pub(super) fn clear(&mut self) {
        self.buckets.fill(0);
    }

    /// Bytes of memory
    pub(super) fn bytes(&self) -> usize {
        self.buckets.len()
    }
}
