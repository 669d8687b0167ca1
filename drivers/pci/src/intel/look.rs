//! Which frames have come and need no closer look: several descriptors looked at at once, where the processor has vectors.
//!
//! A vector's parts may be read in any order, so each is read twice: what the first reading says of frames that are done orders the second, which is what counts.

use super::descriptor::Received;
#[cfg(target_arch = "x86_64")]
use std::sync::atomic::fence;
use std::sync::atomic::{AtomicU64, Ordering};
use warmlane_sys::simd::Level;

/// A descriptor, which the card may write to at any time.
pub(crate) type DescriptorWords = [AtomicU64; 2];

/// Descriptors that are looked at together.
const TOGETHER: usize = 4;

/// Copies what the card wrote to descriptors, from the first on, as far as each is of a whole frame of no more than `room` bytes, in order, and as many as fit. Returns
/// how many. By the instructions of a level, which the processor must have.
#[inline]
pub(crate) fn plain_frames(
    level: Level,
    descriptors: &[DescriptorWords],
    room: u16,
    found: &mut [Received],
) -> usize {
    // Most polls of an idle ring end here.
    let is_any =
        descriptors.first().is_some_and(|first| Received(first[1].load(Ordering::Relaxed)).is_done());
    if !is_any {
        return 0;
    }
    let most = descriptors.len().min(found.len());
    let (descriptors, found) = (&descriptors[..most], &mut found[..most]);
    let count = if most < TOGETHER { 0 } else { together(level, descriptors, room, found) };
    count + one_by_one(&descriptors[count..], room, &mut found[count..])
}

/// Copies whole groups, by the instructions of a level.
#[inline(always)]
fn together(level: Level, descriptors: &[DescriptorWords], room: u16, found: &mut [Received]) -> usize {
    match level {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the processor has the instructions of the level that was detected, and of those that tests go through.
        Level::Avx512 => unsafe { by_512_bits(descriptors, room, found) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx2 => unsafe { by_256_bits(descriptors, room, found) },
        _ => 0,
    }
}

#[inline(always)]
fn one_by_one(descriptors: &[DescriptorWords], room: u16, found: &mut [Received]) -> usize {
    let mut count = 0;
    for (descriptor, found) in descriptors.iter().zip(found) {
        // Acquire: the frame is read behind it.
        let received = Received(descriptor[1].load(Ordering::Acquire));
        if !received.is_plain(room) {
            break;
        }
        *found = received;
        count += 1;
    }
    count
}

/// Copies whole groups.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn by_256_bits(descriptors: &[DescriptorWords], room: u16, found: &mut [Received]) -> usize {
    use std::arch::x86_64::{
        _mm256_and_si256, _mm256_cmpgt_epi64, _mm256_loadu_si256, _mm256_or_si256, _mm256_permute4x64_epi64,
        _mm256_set1_epi64x, _mm256_storeu_si256, _mm256_testz_si256, _mm256_unpackhi_epi64, _mm256_xor_si256,
    };
    let [decisive, expected, length, least, most] =
        Received::plain_limits(room).map(|limit| _mm256_set1_epi64x(limit));
    let mut count = 0;
    let groups = descriptors.as_chunks::<TOGETHER>().0.iter().zip(found.as_chunks_mut::<TOGETHER>().0);
    for (group, found) in groups {
        let source = group.as_ptr();
        // SAFETY: a group has four descriptors, of 16 bytes each. The card may write meanwhile: then either reading is of no use, and no other harm is done.
        let read = || unsafe {
            let [first, last] = [source, source.add(2)].map(|half| _mm256_loadu_si256(half.cast()));
            // The second words, and in their order.
            _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_unpackhi_epi64(first, last))
        };
        let are_plain = |words| {
            let wrong = _mm256_xor_si256(_mm256_and_si256(words, decisive), expected);
            let lengths = _mm256_and_si256(words, length);
            let outside =
                _mm256_or_si256(_mm256_cmpgt_epi64(least, lengths), _mm256_cmpgt_epi64(lengths, most));
            let any = _mm256_or_si256(wrong, outside);
            _mm256_testz_si256(any, any) != 0
        };
        if !are_plain(read()) {
            break;
        }
        // The frames are read behind it, and what is said of them once more.
        fence(Ordering::Acquire);
        let words = read();
        if !are_plain(words) {
            break;
        }
        // SAFETY: four of these are 32 bytes, of plain data.
        unsafe { _mm256_storeu_si256(found.as_mut_ptr().cast(), words) };
        count += TOGETHER;
    }
    count
}

/// Copies whole groups.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx2")]
fn by_512_bits(descriptors: &[DescriptorWords], room: u16, found: &mut [Received]) -> usize {
    use std::arch::x86_64::{
        _mm256_storeu_si256, _mm512_and_si512, _mm512_castsi512_si256, _mm512_loadu_si512,
        _mm512_mask_cmpeq_epi64_mask, _mm512_mask_cmple_epi64_mask, _mm512_maskz_compress_epi64,
        _mm512_set1_epi64,
    };
    /// The second words.
    const SECOND: u8 = 0b1010_1010;
    let [decisive, expected, length, least, most] =
        Received::plain_limits(room).map(|limit| _mm512_set1_epi64(limit));
    let mut count = 0;
    let groups = descriptors.as_chunks::<TOGETHER>().0.iter().zip(found.as_chunks_mut::<TOGETHER>().0);
    for (group, found) in groups {
        let source = group.as_ptr();
        // SAFETY: as above.
        let read = || unsafe { _mm512_loadu_si512(source.cast()) };
        let are_plain = |words| {
            let right = _mm512_mask_cmpeq_epi64_mask(SECOND, _mm512_and_si512(words, decisive), expected);
            let lengths = _mm512_and_si512(words, length);
            let long_enough = _mm512_mask_cmple_epi64_mask(right, least, lengths);
            _mm512_mask_cmple_epi64_mask(long_enough, lengths, most) == SECOND
        };
        if !are_plain(read()) {
            break;
        }
        fence(Ordering::Acquire);
        let words = read();
        if !are_plain(words) {
            break;
        }
        let words = _mm512_castsi512_si256(_mm512_maskz_compress_epi64(SECOND, words));
        // SAFETY: as above.
        unsafe { _mm256_storeu_si256(found.as_mut_ptr().cast(), words) };
        count += TOGETHER;
    }
    count
}

// Vectors are loaded and stored as they are.
const _: () = assert!(size_of::<DescriptorWords>() == 16 && size_of::<Received>() == 8);

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_sys::random::Random;

    #[test]
    fn all_levels_find_the_same() {
        let mut random = Random::new(7);
        let done = Received::DONE | Received::END;
        let mut found_in_all = 0;
        for round in 0..20_000 {
            let room = random.pick(&[14_u16, 512, 2048, 9000]);
            let length = random.below(70);
            let mostly = random.below(length + 1);
            let descriptors: Vec<DescriptorWords> = (0..length)
                .map(|number| {
                    let bytes = match random.below(40) {
                        0 => random.bits() & 0xffff,
                        1 => random.pick(&[0, 13, u64::from(room) + 1, 0xffff]),
                        _ => random.pick(&[14, u64::from(room)]),
                    };
                    // Anything may be said of checksums and tags.
                    let beside = random.bits() & !(Received::DAMAGED | done | 0xffff << 32);
                    let harm = if random.percent(2) { random.bits() & Received::DAMAGED } else { 0 };
                    let state = if number < mostly { done } else { random.bits() & done };
                    [random.bits(), state | beside | harm | bytes << 32].map(AtomicU64::new)
                })
                .collect();
            for most in [0, 1, 3, 4, 5, 31, 64, 70] {
                let words = descriptors.iter().map(|words| Received(words[1].load(Ordering::Relaxed)));
                let expected: Vec<_> =
                    words.take(most).take_while(|received| received.is_plain(room)).collect();
                let look = |level: &Level| {
                    let mut found = vec![Received::default(); most];
                    let count = plain_frames(*level, &descriptors, room, &mut found);
                    found.truncate(count);
                    found
                };
                for level in Level::available() {
                    assert_eq!(look(level), expected, "{level}, {most} in round {round}");
                }
                found_in_all += expected.len();
            }
        }
        assert!(found_in_all > 500_000, "{found_in_all}: most are plain");
    }

    /// Else a level that finds nothing would be right, as what it leaves is looked at one by one.
    #[test]
    fn vectors_find_whole_groups() {
        let written = Received::DONE | Received::END | 60 << 32;
        let descriptors: Vec<_> = (0..11).map(|first| [first, written].map(AtomicU64::new)).collect();
        for level in Level::available().iter().filter(|level| matches!(level, Level::Avx2 | Level::Avx512)) {
            let mut found = [Received::default(); 11];
            assert_eq!(together(*level, &descriptors, 2048, &mut found), 8, "{level}");
            assert_eq!(found[..9], [[Received(written); 8].as_slice(), &[Received(0)]].concat());
        }
    }
}
