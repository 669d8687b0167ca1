//! What freeing reads of packets and writes into a magazine.

use crate::packet::Packet;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    _mm_storeu_si128, _mm256_castsi256_si128, _mm256_or_si256, _mm256_permutevar8x32_epi32,
    _mm256_set_epi64x, _mm256_set1_epi64x, _mm256_setr_epi32, _mm256_setzero_si256, _mm256_storeu_si256,
    _mm256_xor_si256,
};

/// How differences are written: from packets' identities to `single`, the one of this pool's first buffer if it is of one segment.
/// The lower half of a difference goes into a packet's cell: of a plain packet it is its index. Gives all differences, one over the other.
pub(super) trait Differences {
    /// # Safety
    /// This processor has what it takes.
    unsafe fn write(cells: &mut [u32], packets: &[Packet], single: u64) -> u64;
}

/// One by one.
pub(super) struct OneByOne;

impl Differences for OneByOne {
    #[inline(always)]
    unsafe fn write(cells: &mut [u32], packets: &[Packet], single: u64) -> u64 {
        let mut differences = 0;
        let mut write = |(cell, packet): (&mut u32, &Packet)| {
            let difference = packet.identity().bits() ^ single;
            *cell = difference as u32;
            differences |= difference;
        };
        // Four in each turn: what counts the turns is half the work else.
        let (fours, rest) = packets.as_chunks::<4>();
        let (four_cells, cells) = cells.as_chunks_mut::<4>();
        let each_four = four_cells.iter_mut().zip(fours);
        each_four.for_each(|(cells, four)| cells.iter_mut().zip(four).for_each(&mut write));
        cells.iter_mut().zip(rest).for_each(write);
        differences
    }
}

/// Four by four, each four written by one store: a lane that takes what it has just freed reads four cells at once, and what was stored one by one
/// can't be forwarded to such a load.
#[cfg(target_arch = "x86_64")]
pub(super) struct Fours;

#[cfg(target_arch = "x86_64")]
impl Differences for Fours {
    #[inline(always)]
    unsafe fn write(cells: &mut [u32], packets: &[Packet], single: u64) -> u64 {
        let (fours, rest) = packets.as_chunks::<4>();
        let (four_cells, cells) = cells.as_chunks_mut::<4>();
        let mut any = [0; 4];
        // SAFETY: this processor has AVX2 (caller); four cells are 16 bytes, and four numbers 32.
        unsafe {
            let first = _mm256_set1_epi64x(single.cast_signed());
            let lower = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
            let mut differences = _mm256_setzero_si256();
            for (cells, packets) in four_cells.iter_mut().zip(fours) {
                let [one, two, three, four] =
                    packets.each_ref().map(|packet| packet.identity().bits().cast_signed());
                let difference = _mm256_xor_si256(_mm256_set_epi64x(four, three, two, one), first);
                let indices = _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(difference, lower));
                _mm_storeu_si128(cells.as_mut_ptr().cast(), indices);
                differences = _mm256_or_si256(differences, difference);
            }
            _mm256_storeu_si256(any.as_mut_ptr().cast(), differences);
        }
        let any = any.into_iter().fold(0, |all, differences| all | differences);
        // SAFETY: every processor has what it takes.
        any | unsafe { OneByOne::write(cells, rest, single) }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::header::Identity;
    use crate::id::BufferId;
    use crate::pool::{Pool, PoolConfig};
    use warmlane_sys::simd::Level;

    #[test]
    fn by_fours_it_is_the_same_as_one_by_one() {
        if !Level::available().contains(&Level::Avx2) {
            eprintln!("SKIPPED: needs AVX2");
            return;
        }
        let pool = || Pool::new(&PoolConfig { buffers: 64, ..PoolConfig::default() }).unwrap();
        let (ours, other) = (pool(), pool());
        let single = Identity::single(BufferId::new(ours.shared().slot, 0)).bits();
        let mut packets: Vec<Packet> = (0..23).map(|_| ours.take().unwrap()).collect();
        for foreign in [None, Some(0), Some(6), Some(21), Some(22)] {
            if let Some(place) = foreign {
                packets[place] = other.take().unwrap();
            }
            for length in 0..=packets.len() {
                let (mut expected, mut cells) = ([7; 24], [7; 24]);
                // SAFETY: the processor has AVX2.
                let (one_by_one, fours) = unsafe {
                    (
                        OneByOne::write(&mut expected[..length], &packets[..length], single),
                        Fours::write(&mut cells[..length], &packets[..length], single),
                    )
                };
                assert_eq!((fours, cells), (one_by_one, expected), "{length} with {foreign:?}");
                let is_plain = fours & Identity::POOL_MASK == 0;
                assert_eq!(is_plain, foreign.is_none_or(|place| place >= length));
            }
            if let Some(place) = foreign {
                packets[place] = ours.take().unwrap();
            }
        }
    }
}
