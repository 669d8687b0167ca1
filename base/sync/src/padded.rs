//! Keeping what different lanes write on different cache lines.

use std::ops::{Deref, DerefMut};

/// A value alone on its cache lines, so that writing it never takes a line away from a neighbour's lane.
///
/// 128 bytes, not 64, on x86_64 and aarch64: Intel's spatial prefetcher fetches 64-byte lines in aligned pairs
/// (Intel 64 and IA-32 Architectures Optimization Reference Manual, "Data Prefetching", L2 spatial prefetcher),
/// so that two values on neighbouring lines still pull at each other; some aarch64 cores have lines of 128 bytes
/// (Apple's M series; `CTR_EL0` tells). Elsewhere 64.
#[cfg_attr(any(target_arch = "x86_64", target_arch = "aarch64"), repr(align(128)))]
#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), repr(align(64)))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachePadded<T> {
    value: T,
}

impl<T> CachePadded<T> {
    /// Pads `value`.
    pub const fn new(value: T) -> Self {
        Self { value }
    }

    /// Gives the value back.
    pub fn into_inner(self) -> T {
        self.value
    }
}

impl<T> Deref for CachePadded<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for CachePadded<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> From<T> for CachePadded<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_never_share_a_pair_of_lines() {
        let pair = [CachePadded::new(1_u8), CachePadded::new(2)];
        let distance = (&raw const *pair[1]).addr() - (&raw const *pair[0]).addr();
        let line_pair = if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) { 128 } else { 64 };
        assert_eq!(distance, line_pair);
        assert_eq!((&raw const *pair[0]).addr() % line_pair, 0);
    }
}
