//! What the rings have in common.

/// The most elements that a ring can be made for: 2³⁰, far above any queue, so that the distance of two positions fits 31
/// bits.
pub const MAXIMUM_CAPACITY: usize = 1 << 30;

/// Why a ring could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// A ring for nothing.
    #[error("ring capacity is 0; use a power of two from 1 to {MAXIMUM_CAPACITY}")]
    Zero,
    /// Positions are turned into slots by a mask, so the capacity has to be a power of two.
    #[error("ring capacity {capacity} is not a power of two; the next larger one is {}", .capacity.next_power_of_two())]
    NotPowerOfTwo {
        /// Elements asked for.
        capacity: usize,
    },
    /// Above [`MAXIMUM_CAPACITY`].
    #[error("ring capacity {capacity} is too large; use at most {MAXIMUM_CAPACITY}")]
    TooLarge {
        /// Elements asked for.
        capacity: usize,
    },
    /// The memory for the elements could not be had.
    #[error("no memory for a ring of {capacity} elements of {element_bytes} bytes; use a smaller capacity")]
    OutOfMemory {
        /// Elements asked for.
        capacity: usize,
        /// Size of one.
        element_bytes: usize,
    },
}

/// Whether a ring, or a mailbox, can have this capacity.
pub(crate) const fn check(capacity: usize) -> Result<(), RingError> {
    if capacity == 0 {
        return Err(RingError::Zero);
    }
    if capacity > MAXIMUM_CAPACITY {
        return Err(RingError::TooLarge { capacity });
    }
    if !capacity.is_power_of_two() {
        return Err(RingError::NotPowerOfTwo { capacity });
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::extra::mpsc;
    use crate::extra::{HtsRing, RtsRing};
    use crate::{mpmc, spsc};

    #[test]
    fn a_capacity_that_cannot_be_is_refused_with_the_reason() {
        for (capacity, error) in [
            (0, RingError::Zero),
            (48, RingError::NotPowerOfTwo { capacity: 48 }),
            (MAXIMUM_CAPACITY * 2, RingError::TooLarge { capacity: MAXIMUM_CAPACITY * 2 }),
            (usize::MAX, RingError::TooLarge { capacity: usize::MAX }),
        ] {
            assert_eq!(spsc::ring::<u32>(capacity).err(), Some(error));
            assert_eq!(mpsc::ring::<u32>(capacity).err(), Some(error));
            assert_eq!(mpmc::Ring::<u32>::new(capacity).err(), Some(error));
            assert_eq!(HtsRing::<u32>::new(capacity).err(), Some(error));
            assert_eq!(RtsRing::<u32>::new(capacity).err(), Some(error));
        }
        assert_eq!(
            RingError::NotPowerOfTwo { capacity: 48 }.to_string(),
            "ring capacity 48 is not a power of two; the next larger one is 64"
        );
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri's memory has no end but that of the machine")]
    fn memory_that_cannot_be_had_is_an_error() {
        type Page = [u8; 1 << 18];
        let error = RingError::OutOfMemory { capacity: 1 << 30, element_bytes: size_of::<Page>() };
        assert_eq!(spsc::ring::<Page>(1 << 30).err(), Some(error));
    }
}
