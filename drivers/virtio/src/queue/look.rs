//! Which descriptors are available: several looked at and copied at once, where the processor has vectors.
//!
//! A vector's parts may be read in any order, so each is read twice: what the first reading says of flags orders the second, which is what
//! counts. What changes in between, as no driver does that keeps to the protocol, is left to who looks at one after the other.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", test))]
use crate::ring::packed::{AVAILABLE, USED};
use crate::ring::packed::{PackedRing, Position, Tail};
use crate::ring::{Descriptor, NEXT};
use warmlane_sys::simd::{self, Level};

/// Descriptors that are looked at together.
const TOGETHER: usize = 4;

/// The instructions to look with, which this processor has.
#[derive(Clone, Copy, Debug)]
pub struct LookLevel(Level);

impl LookLevel {
    /// `None`: this processor has not got them. A level that nothing was written for looks at one descriptor after the other.
    pub fn new(level: Level) -> Option<Self> {
        Level::available().contains(&level).then_some(Self(level))
    }

    /// The highest, or what the environment says.
    #[inline]
    fn detected() -> Self {
        Self(simd::detected())
    }
}

/// The flags that say whether a descriptor is available and alone, where they are in its second half.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const DECISIVE: i64 = ((AVAILABLE | USED | NEXT) as i64) << 48;

/// Reads a group twice, and gives the second reading; leaves the loop if either says that not all of it is available and alone.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! read_or_break {
    ($read:ident, $are_ready:ident) => {{
        if !$are_ready($read()) {
            break;
        }
        Self::acquire();
        let again = $read();
        if !$are_ready(again) {
            break;
        }
        again
    }};
}

impl PackedRing {
    /// Copies descriptors that are available to a device at this position, as many as fit, and none behind the first that goes on in another
    /// one. Returns how many.
    #[inline]
    pub fn available(&self, position: Position, found: &mut [Descriptor]) -> usize {
        // Most polls of an idle ring end here.
        if !position.is_available(self.tail(position).flags) {
            return 0;
        }
        if found.len() < TOGETHER {
            return self.one_by_one(position, found);
        }
        self.available_by(LookLevel::detected(), position, found)
    }

    /// The same by the instructions of a level. There are none at a place that the ring does not have.
    #[inline(always)]
    pub fn available_by(&self, level: LookLevel, position: Position, found: &mut [Descriptor]) -> usize {
        let size = self.size();
        let Some(to_end) = size.checked_sub(position.slot) else { return 0 };
        let most = found.len().min(size.into());
        let found = &mut found[..most];
        // Up to the ring's end, and from its start.
        let to_end = usize::from(to_end).min(most);
        let mut count = self.together(level, position, &mut found[..to_end]);
        if count == to_end {
            count += self.together(level, Position { slot: 0, wrap: !position.wrap }, &mut found[count..]);
        }
        count + self.one_by_one(position.advanced(count as u16, size), &mut found[count..])
    }

    /// Copies whole groups of descriptors that are available and alone, of one turn.
    #[inline(always)]
    fn together(&self, level: LookLevel, position: Position, found: &mut [Descriptor]) -> usize {
        match level.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the processor has the instructions of every `LookLevel`.
            Level::Avx512 => unsafe { self.by_512_bits(position, found) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Level::Avx2 => unsafe { self.by_256_bits(position, found) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            Level::Neon => unsafe { self.by_128_bits(position, found) },
            _ => 0,
        }
    }

    #[inline(always)]
    fn one_by_one(&self, first: Position, found: &mut [Descriptor]) -> usize {
        let (mut position, mut count) = (first, 0);
        for found in found.iter_mut().take(self.size().into()) {
            let Tail { length, id, flags } = self.tail(position);
            if !position.is_available(flags) {
                break;
            }
            *found = Descriptor { address: 0, length, id, flags };
            count += 1;
            if flags & NEXT != 0 {
                break;
            }
            position = position.advanced(1, self.size());
        }
        Self::acquire();
        let mut position = first;
        for found in &mut found[..count] {
            found.address = self.address(position);
            position = position.advanced(1, self.size());
        }
        count
    }

    /// Copies whole groups of descriptors that are available and alone.
    #[cfg(target_arch = "aarch64")]
    #[target_feature(enable = "neon")]
    fn by_128_bits(&self, position: Position, found: &mut [Descriptor]) -> usize {
        use std::arch::aarch64::{
            uint64x2_t, vandq_u64, vcombine_u64, vcreate_u64, veorq_u64, vgetq_lane_u64, vld1q_u64,
            vorrq_u64, vst1q_u64,
        };
        let second_half = |word| vcombine_u64(vcreate_u64(0), vcreate_u64(word));
        let wanted = second_half(u64::from(position.available_flags()) << 48);
        let decisive = second_half(DECISIVE.cast_unsigned());
        let mut count = 0;
        for group in found.as_chunks_mut::<TOGETHER>().0 {
            let sources = [0, 1, 2, 3].map(|ahead| self.pointer(position, count + ahead));
            // SAFETY: a group from there on is in the ring, as `found` has no more than there are up to its end. The other side may
            // write meanwhile: then either reading is of no use, and no other harm is done.
            let read = || sources.map(|source| unsafe { vld1q_u64(source.cast()) });
            let are_ready = |all: [uint64x2_t; TOGETHER]| {
                let [a, b, c, d] = all.map(|one| veorq_u64(one, wanted));
                let others = vorrq_u64(vorrq_u64(a, b), vorrq_u64(c, d));
                vgetq_lane_u64::<1>(vandq_u64(others, decisive)) == 0
            };
            let all = read_or_break!(read, are_ready);
            for (target, descriptor) in group.iter_mut().zip(all) {
                // SAFETY: a descriptor is one of these, of plain data.
                unsafe { vst1q_u64(std::ptr::from_mut(target).cast(), descriptor) };
            }
            count += TOGETHER;
        }
        count
    }

    /// Copies whole groups of descriptors that are available and alone.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn by_256_bits(&self, position: Position, found: &mut [Descriptor]) -> usize {
        use std::arch::x86_64::{
            __m256i, _mm256_loadu_si256, _mm256_or_si256, _mm256_set_epi64x, _mm256_storeu_si256,
            _mm256_testz_si256, _mm256_xor_si256,
        };
        let wanted = i64::from(position.available_flags()) << 48;
        let (wanted, decisive) =
            (_mm256_set_epi64x(wanted, 0, wanted, 0), _mm256_set_epi64x(DECISIVE, 0, DECISIVE, 0));
        let mut count = 0;
        for group in found.as_chunks_mut::<TOGETHER>().0 {
            let sources = [0, 2].map(|ahead| self.pointer(position, count + ahead));
            // SAFETY: a group from there on is in the ring, as `found` has no more than there are up to its end. The other side may
            // write meanwhile: then either reading is of no use, and no other harm is done.
            let read = || sources.map(|source| unsafe { _mm256_loadu_si256(source.cast()) });
            let are_ready = |[a, b]: [__m256i; 2]| {
                let others = _mm256_or_si256(_mm256_xor_si256(a, wanted), _mm256_xor_si256(b, wanted));
                _mm256_testz_si256(others, decisive) != 0
            };
            let both = read_or_break!(read, are_ready);
            for (target, descriptors) in group.as_chunks_mut::<2>().0.iter_mut().zip(both) {
                // SAFETY: two descriptors are one of these, of plain data.
                unsafe { _mm256_storeu_si256(target.as_mut_ptr().cast(), descriptors) };
            }
            count += TOGETHER;
        }
        count
    }

    /// Copies whole groups of descriptors that are available and alone.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    fn by_512_bits(&self, position: Position, found: &mut [Descriptor]) -> usize {
        use std::arch::x86_64::{
            _mm512_loadu_si512, _mm512_set_epi64, _mm512_storeu_si512, _mm512_test_epi64_mask,
            _mm512_xor_si512,
        };
        let second_halves = |word| _mm512_set_epi64(word, 0, word, 0, word, 0, word, 0);
        let wanted = second_halves(i64::from(position.available_flags()) << 48);
        let decisive = second_halves(DECISIVE);
        let mut count = 0;
        for group in found.as_chunks_mut::<TOGETHER>().0 {
            let source = self.pointer(position, count);
            // SAFETY: as above.
            let read = || unsafe { _mm512_loadu_si512(source.cast()) };
            let are_ready = |all| _mm512_test_epi64_mask(_mm512_xor_si512(all, wanted), decisive) == 0;
            let all = read_or_break!(read, are_ready);
            // SAFETY: a group is one of these, of plain data.
            unsafe { _mm512_storeu_si512(group.as_mut_ptr().cast(), all) };
            count += TOGETHER;
        }
        count
    }
}

// A vector is copied as it is.
const _: () = {
    assert!(size_of::<Descriptor>() == crate::ring::DESCRIPTOR_BYTES);
    assert!(std::mem::offset_of!(Descriptor, length) == 8);
    assert!(std::mem::offset_of!(Descriptor, id) == 12);
    assert!(std::mem::offset_of!(Descriptor, flags) == 14);
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::WRITE;
    use warmlane_sys::random::Random;

    /// By the specification, one after the other.
    fn expected(ring: &PackedRing, from: Position, most: usize) -> Vec<Descriptor> {
        let mut position = from;
        let mut found: Vec<Descriptor> = Vec::new();
        while found.len() < most.min(ring.size().into()) {
            let Tail { length, id, flags } = ring.tail(position);
            let is_behind_chained = found.last().is_some_and(|last| last.flags & NEXT != 0);
            if !position.is_available(flags) || is_behind_chained {
                break;
            }
            found.push(Descriptor { address: ring.address(position), length, id, flags });
            position = position.advanced(1, ring.size());
        }
        found
    }

    #[test]
    fn at_a_place_that_is_not_in_the_ring_is_nothing() {
        let ring = PackedRing::leaked(8);
        for slot in [8, 9, u16::MAX] {
            let position = Position { slot, wrap: true };
            for level in Level::available() {
                let look = LookLevel::new(*level).unwrap();
                assert_eq!(ring.available_by(look, position, &mut [Descriptor::default(); 8]), 0, "{slot}");
            }
        }
    }

    #[test]
    fn all_levels_find_the_same() {
        let mut random = Random::new(7);
        for size in [1, 2, 3, 4, 5, 7, 8, 31, 64] {
            let ring = PackedRing::leaked(size);
            for _ in 0..2_000 {
                let mut position =
                    Position { slot: random.below(size.into()) as u16, wrap: random.percent(50) };
                let from = position;
                // Available ones up to somewhere, few of them chained, and anything behind.
                let available = random.below(usize::from(size) + 1) as u16;
                for number in 0..size {
                    let free = [0, AVAILABLE | USED, if position.wrap { USED } else { AVAILABLE }];
                    let flags =
                        if number < available { position.available_flags() } else { random.pick(&free) };
                    let chained = if random.percent(6) { NEXT } else { 0 };
                    let write = if random.percent(50) { WRITE } else { 0 };
                    ring.set_address(position, random.bits());
                    let tail = Tail {
                        length: random.bits() as u32,
                        id: random.bits() as u16,
                        flags: flags | chained | write,
                    };
                    ring.set_tail(position, tail);
                    position = position.advanced(1, size);
                }
                for most in [0, 1, 3, 4, 5, 8, 64] {
                    let expected = expected(&ring, from, most);
                    for level in Level::available() {
                        let mut found = vec![Descriptor::default(); most];
                        let look = LookLevel::new(*level).unwrap();
                        let count = ring.available_by(look, from, &mut found);
                        assert_eq!(found[..count], expected, "{level} {size} {from:?}");
                    }
                }
            }
        }
    }
}
