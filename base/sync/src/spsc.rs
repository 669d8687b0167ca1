//! A ring from one thread to another: one producer, one consumer.
//!
//! Each side is a [single](crate::side) one: it owns a position, publishes it for the other, and looks at the other's only
//! when it must. Two edges order it, **written** and **read**, the same code with the roles exchanged: R1 to A1 in
//! `side/single.rs` hands filled slots to the consumer and emptied slots back to the producer.
//!
//! Elements are `Copy`: a ring that is dropped with elements inside has nothing to drop. What an element stands
//! for (a buffer, say) is its owner's to drain. Messages with a destructor travel in a [`mailbox`](crate::mailbox).

use crate::ends;
use crate::ring::RingError;
use crate::side::Single;

/// The end that puts elements in. There is only one.
pub type Producer<T> = ends::Producer<T, Single, Single>;
/// The end that takes elements out. There is only one.
pub type Consumer<T> = ends::Consumer<T, Single, Single>;

/// Makes a ring for up to `capacity` elements, a power of two.
///
/// ```
/// let (mut producer, mut consumer) = warmlane_sync::spsc::ring(4)?;
/// assert_eq!(producer.push_burst(&[1, 2, 3, 4, 5]), 4);
/// let mut values = [0; 2];
/// assert!(consumer.pop_bulk(&mut values));
/// assert_eq!((values, consumer.len()), ([1, 2], 2));
///
/// // The same without copying, in the ring's own memory.
/// let mut reserved = producer.reserve_burst(8).ok_or("full")?;
/// let (first, second) = reserved.as_mut_slices();
/// first.iter_mut().chain(second).zip(5..).for_each(|(slot, value)| *slot = value);
/// reserved.commit();
/// let peek = consumer.peek_bulk(4).ok_or("not enough")?;
/// assert_eq!(peek.as_slices(), (&[3, 4][..], &[5, 6][..]));
/// peek.release();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`RingError`], if the capacity is zero, not a power of two, too large, or no memory can be had for it.
pub fn ring<T: Copy>(capacity: usize) -> Result<(Producer<T>, Consumer<T>), RingError> {
    ends::new(capacity)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn bulk_is_all_or_none_and_burst_what_fits() {
        let (mut producer, mut consumer) = ring(4).unwrap();
        assert!(producer.push_bulk(&[1, 2, 3]));
        assert!(!producer.push_bulk(&[4, 5]));
        assert!(!producer.push_bulk(&[0; 5]));
        assert_eq!((producer.len(), producer.free()), (3, 1));
        assert_eq!(producer.push_burst(&[4, 5]), 1);
        assert_eq!(producer.push_burst(&[5]), 0);
        let mut values = [0; 5];
        assert!(!consumer.pop_bulk(&mut values));
        assert_eq!(values, [0; 5]);
        assert_eq!(consumer.pop_burst(&mut values), 4);
        assert_eq!(values, [1, 2, 3, 4, 0]);
        assert_eq!(consumer.pop_burst(&mut values), 0);
        assert!(consumer.is_empty() && producer.is_empty());
        assert!(producer.push_bulk(&[]) && consumer.pop_bulk(&mut []));
    }

    #[test]
    fn what_is_inside_outlives_the_producer() {
        let (mut producer, mut consumer) = ring(2).unwrap();
        assert!(producer.push_bulk(&[1]));
        assert!(!consumer.is_disconnected() && !producer.is_disconnected());
        drop(producer);
        assert!(consumer.is_disconnected());
        let mut value = [0];
        assert!(consumer.pop_bulk(&mut value));
        assert_eq!((value, consumer.len()), ([1], 0));
        let (producer, consumer) = ring::<u8>(2).unwrap();
        drop(consumer);
        assert!(producer.is_disconnected());
    }

    #[test]
    fn elements_of_no_size_are_counted() {
        let (mut producer, mut consumer) = ring::<()>(4).unwrap();
        assert_eq!(producer.push_burst(&[(); 9]), 4);
        assert_eq!(consumer.pop_burst(&mut [(); 3]), 3);
        assert_eq!(consumer.len(), 1);
    }
}
