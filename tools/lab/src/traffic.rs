//! Frames for measurements.

use warmlane_memory::replay::{Frames, ReplayError};

/// `count` frames of `length` zero bytes.
///
/// # Errors
/// [`ReplayError::TooLarge`].
pub fn zeros(count: usize, length: usize) -> Result<Frames, ReplayError> {
    let mut frames = Frames::new();
    let frame = vec![0; length];
    for _ in 0..count {
        frames.push(&frame)?;
    }
    Ok(frames)
}
