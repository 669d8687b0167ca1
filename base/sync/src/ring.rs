//! What the rings have in common.

/// The most elements that a ring can be made for: 2³¹, far above any queue, so that bursts and fill levels fit 32
/// bits.
pub const MAXIMUM_CAPACITY: usize = 1 << 31;

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
