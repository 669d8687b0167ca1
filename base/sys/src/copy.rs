//! Copies of some bytes to some thousands: packets and parts of them.
//!
//! The C library's `memcpy` is a call, and branches that serve every size. [`vector::run`] chooses vector instructions once
//! for many copies, and [`Vector::copy`] is compiled into the loop that needs it: a few loads and stores for a size that a
//! branch predictor knows.
//!
//! Up to 256 bytes, a copy is some words from the front and some from the back, which overlap. Longer ones go 256 bytes
//! at a time, from 512 bytes on stored at aligned addresses. Words have 32 bytes where there is AVX2, and with AVX-512 too: words
//! of 64 were slower on Zen 4, whose data paths have 32 bytes, as soon as lines had to come from memory. Prefetching the next lines of source or
//! destination, and stores past the caches, were tried and lost where data is in the cache, which a copy can't know.

use crate::vector::{self, Vector, Work};

/// Copies by words of `WORD` bytes as many bytes as both have, and says how many these were.
#[inline(always)]
pub(crate) fn by_words<const WORD: usize>(destination: &mut [u8], source: &[u8]) -> usize {
    let length = destination.len().min(source.len());
    let (destination, source) = (&mut destination[..length], &source[..length]);
    // In this order, not a `match`: the size of packets in a burst is mostly one, and each branch then free.
    if length <= 16 {
        small(destination, source);
    } else if length <= 32 {
        ends::<16, 16>(destination, source);
    } else if length <= 64 {
        ends::<32, WORD>(destination, source);
    } else if length <= 128 {
        ends::<64, WORD>(destination, source);
    } else if length <= 256 {
        first::<128, WORD>(destination, source);
        if length > 192 {
            first::<64, WORD>(&mut destination[128..], &source[128..]);
        }
        last::<64, WORD>(destination, source);
    } else {
        long::<WORD>(destination, source);
    }
    length
}

/// Up to 16 bytes.
#[inline(always)]
fn small(destination: &mut [u8], source: &[u8]) {
    if destination.len() >= 8 {
        ends::<8, 8>(destination, source);
    } else if destination.len() >= 4 {
        ends::<4, 4>(destination, source);
    } else if destination.len() >= 2 {
        ends::<2, 2>(destination, source);
    } else if let (Some(destination), Some(source)) = (destination.first_mut(), source.first()) {
        *destination = *source;
    }
}

/// The first and the last `SIZE` bytes, of at least as many.
#[inline(always)]
fn ends<const SIZE: usize, const WORD: usize>(destination: &mut [u8], source: &[u8]) {
    first::<SIZE, WORD>(destination, source);
    last::<SIZE, WORD>(destination, source);
}

#[inline(always)]
fn first<const SIZE: usize, const WORD: usize>(destination: &mut [u8], source: &[u8]) {
    if let (Some(destination), Some(source)) = (destination.first_chunk_mut(), source.first_chunk()) {
        words::<SIZE, WORD>(destination, source);
    }
}

#[inline(always)]
fn last<const SIZE: usize, const WORD: usize>(destination: &mut [u8], source: &[u8]) {
    if let (Some(destination), Some(source)) = (destination.last_chunk_mut(), source.last_chunk()) {
        words::<SIZE, WORD>(destination, source);
    }
}

/// A fixed size, a word at a time; the loop is unrolled.
#[inline(always)]
fn words<const SIZE: usize, const WORD: usize>(destination: &mut [u8; SIZE], source: &[u8; SIZE]) {
    for (destination, source) in
        destination.as_chunks_mut::<WORD>().0.iter_mut().zip(source.as_chunks::<WORD>().0)
    {
        *destination = *source;
    }
}

/// Bytes in a step of [`long`].
const STEP: usize = 256;
/// From here on it pays to store at aligned addresses.
const ALIGNED: usize = 512;

/// More than [`STEP`] bytes.
#[inline(always)]
fn long<const WORD: usize>(destination: &mut [u8], source: &[u8]) {
    let mut done = 0;
    if destination.len() > ALIGNED {
        first::<WORD, WORD>(destination, source);
        // To the next address that words divide: one word at most, which was just copied.
        done = WORD - destination.as_ptr().addr() % WORD;
    }
    // Without the last byte: so there is always something left for `last`, and nothing is written twice where sizes are round.
    let end = destination.len() - 1;
    let mut targets = destination[done..end].chunks_exact_mut(STEP);
    let mut sources = source[done..end].chunks_exact(STEP);
    for (target, source) in targets.by_ref().zip(sources.by_ref()) {
        no_call();
        first::<STEP, WORD>(target, source);
    }
    let mut targets = targets.into_remainder().chunks_exact_mut(64);
    for (target, source) in targets.by_ref().zip(sources.remainder().chunks_exact(64)) {
        no_call();
        first::<64, WORD>(target, source);
    }
    last::<64, WORD>(destination, source);
}

/// Keeps the compiler from replacing the loop that this stands in with a call of `memcpy`.
#[inline(always)]
fn no_call() {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    // SAFETY: no instruction, so nothing that could break; not saying `nomem` is the purpose.
    unsafe {
        std::arch::asm!("", options(nostack, preserves_flags));
    }
}

/// A single copy of as many bytes as both have; it says how many these were. Where there are many, [`vector::run`] makes each
/// cheaper.
#[inline]
pub fn copy(destination: &mut [u8], source: &[u8]) -> usize {
    struct One<'a>(&'a mut [u8], &'a [u8]);
    impl Work for One<'_> {
        type Output = usize;
        #[inline(always)]
        fn run<V: Vector>(self, vector: V) -> usize {
            vector.copy(self.0, self.1)
        }
    }
    vector::run(One(destination, source))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Level;

    struct All<'a>(&'a mut [u8], &'a [u8]);
    impl Work for All<'_> {
        type Output = ();
        #[inline(always)]
        fn run<V: Vector>(self, vector: V) {
            let Self(memory, source) = self;
            for length in (0..600).chain([1_023, 1_024, 1_518, 4_095, 8_192]) {
                for (from, to) in [(0, 0), (1, 0), (0, 1), (7, 31), (33, 64), (63, 3)] {
                    memory.fill(0xee);
                    let target = &mut memory[to..to + length];
                    assert_eq!(vector.copy(target, &source[from..from + length]), length);
                    assert!(memory[..to].iter().all(|byte| *byte == 0xee), "{length} bytes, before {to}");
                    assert!(
                        memory[to..to + length] == source[from..from + length],
                        "{length} bytes {from} {to}"
                    );
                    assert!(memory[to + length..].iter().all(|byte| *byte == 0xee), "{length} bytes, after");
                }
            }
        }
    }

    #[test]
    fn every_size_at_any_address_and_no_byte_around() {
        let source: Vec<u8> = (0..9_000_u32).map(|index| (index * 31 + index / 256) as u8 & 0x7f).collect();
        for level in [Level::Portable, Level::Avx2, Level::Avx512, Level::Neon] {
            vector::run_at(level, All(&mut vec![0; 9_000], &source));
        }
    }

    #[test]
    fn the_shorter_side_decides() {
        let mut target = [0; 5];
        assert_eq!(copy(&mut target, &[1, 2, 3]), 3);
        assert_eq!(target, [1, 2, 3, 0, 0]);
        assert_eq!(copy(&mut target[..2], &[9; 8]), 2);
        assert_eq!(target, [9, 9, 3, 0, 0]);
    }
}
