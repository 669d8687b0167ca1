//! A ring from any number of threads to one.
//!
//! Producers as in [`mpmc::Ring`](crate::mpmc::Ring), a consumer as in [`spsc`](crate::spsc), which takes elements out
//! without a locked instruction and can look at them in place.

use crate::ends;
use crate::ring::RingError;
use crate::side::{Queued, Single};

/// An end that puts elements in. Clone it for each thread that does.
pub type Producer<T> = ends::Producer<T, Queued, Single>;
/// The end that takes elements out. There is only one.
pub type Consumer<T> = ends::Consumer<T, Queued, Single>;

/// Makes a ring for up to `capacity` elements, a power of two.
///
/// ```
/// let (mut producer, mut consumer) = warmlane_sync::extra::mpsc::ring(4)?;
/// let mut other = producer.clone();
/// std::thread::scope(|scope| {
///     scope.spawn(|| assert!(other.push_bulk(&[1, 2])));
///     assert!(producer.push_bulk(&[3, 4]));
/// });
/// let mut values = [0; 4];
/// assert!(consumer.pop_bulk(&mut values));
/// assert!(values == [1, 2, 3, 4] || values == [3, 4, 1, 2]);
/// # Ok::<(), warmlane_sync::ring::RingError>(())
/// ```
///
/// # Errors
/// [`RingError`], if the capacity is zero, not a power of two, too large, or no memory can be had for it.
pub fn ring<T: Copy>(capacity: usize) -> Result<(Producer<T>, Consumer<T>), RingError> {
    ends::new(capacity)
}
