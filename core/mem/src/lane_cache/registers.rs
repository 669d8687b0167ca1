//! What a lane does with registers of 8 bytes, or of 32, for its burst, its magazines and its buffers.

use crate::header::{Header, PacketState};
use crate::packet::{LINE_BYTES, Line, Packet};
use crate::variations::Offsets;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m256i, _mm_loadu_si128, _mm_storeu_si128, _mm256_add_epi64, _mm256_and_si256, _mm256_castsi256_si128,
    _mm256_cmpgt_epi8, _mm256_cvtepu32_epi64, _mm256_extract_epi64, _mm256_insert_epi64, _mm256_load_si256,
    _mm256_mul_epu32, _mm256_or_si256, _mm256_permutevar8x32_epi32, _mm256_set_epi64x, _mm256_set1_epi64x,
    _mm256_setr_epi32, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_store_si256, _mm256_storeu_si256,
    _mm256_xor_si256,
};
use std::ptr::NonNull;

/// Packets that are treated together.
pub(super) const FOUR: usize = 4;

/// Registers, and what is done with them: what doesn't change from packet to packet stays there.
pub(super) trait Registers {
    type Half: Copy;
    type Line: Copy;
    /// Where a copy's own numbers go.
    type Order: Copy;

    fn half(state: &PacketState) -> Self::Half;

    /// The half with another first word (`PacketState::first_word`).
    fn with_first_word(half: Self::Half, first: u64) -> Self::Half;

    fn line(line: &Line) -> Self::Line;

    /// # Safety
    /// A `PacketState` can be written there.
    unsafe fn write_half(half: Self::Half, place: *mut PacketState);

    /// Writes a line to any address.
    ///
    /// # Safety
    /// There is space for it, and nobody else touches it meanwhile.
    unsafe fn write_line(line: Self::Line, place: *mut [u8; LINE_BYTES]);

    fn order(offsets: &Offsets) -> Self::Order;

    /// The line with nothing where a copy's own numbers go, as `write_varied` takes it.
    fn cleared(line: Self::Line, order: Self::Order) -> Self::Line;

    /// Writes a line with a copy's own numbers in it.
    ///
    /// # Safety
    /// As for `write_line`.
    unsafe fn write_varied(
        line: Self::Line,
        order: Self::Order,
        numbers: [u32; 2],
        place: *mut [u8; LINE_BYTES],
    );

    /// Writes the packets at four indices into four places of a burst, and gives their headers: those at `base` + index × `stride`.
    ///
    /// # Safety
    /// They are buffers that the caller owns, and the places can be written.
    unsafe fn write_packets(
        base: NonNull<u8>,
        stride: u32,
        indices: &[u32; FOUR],
        places: *mut [Packet; FOUR],
    ) -> [NonNull<Header>; FOUR];

    /// Writes the lower halves of differences into packets' cells: from their identities to `single`, the one of the pool's first buffer if it is of
    /// one segment. Of a plain packet that is its index. Gives all differences, one over the other.
    ///
    /// # Safety
    /// This processor has the registers.
    unsafe fn write_differences(cells: &mut [u32], packets: &[Packet], single: u64) -> u64;
}

/// Those that all processors have.
pub(super) struct Plain;

impl Registers for Plain {
    type Half = PacketState;
    type Line = [u8; LINE_BYTES];
    type Order = Offsets;

    #[inline(always)]
    fn half(state: &PacketState) -> PacketState {
        *state
    }

    #[inline(always)]
    fn with_first_word(half: PacketState, first: u64) -> PacketState {
        half.with_first_word(first)
    }

    #[inline(always)]
    fn line(line: &Line) -> [u8; LINE_BYTES] {
        line.0
    }

    #[inline(always)]
    unsafe fn write_half(half: PacketState, place: *mut PacketState) {
        // SAFETY: the caller's condition.
        unsafe { place.write(half) };
    }

    #[inline(always)]
    unsafe fn write_line(line: [u8; LINE_BYTES], place: *mut [u8; LINE_BYTES]) {
        // SAFETY: the caller's condition.
        unsafe { place.write_unaligned(line) };
    }

    #[inline(always)]
    fn order(offsets: &Offsets) -> Offsets {
        *offsets
    }

    #[inline(always)]
    fn cleared(line: [u8; LINE_BYTES], _order: Offsets) -> [u8; LINE_BYTES] {
        line
    }

    #[inline(always)]
    unsafe fn write_varied(
        line: [u8; LINE_BYTES],
        order: Offsets,
        numbers: [u32; 2],
        place: *mut [u8; LINE_BYTES],
    ) {
        // SAFETY: the caller's condition. What is written is in the line.
        unsafe {
            Self::write_line(line, place);
            for (offset, bytes) in order.written(numbers) {
                place.byte_add(offset).cast::<[u8; 2]>().write_unaligned(bytes);
            }
        }
    }

    #[inline(always)]
    unsafe fn write_packets(
        base: NonNull<u8>,
        stride: u32,
        indices: &[u32; FOUR],
        places: *mut [Packet; FOUR],
    ) -> [NonNull<Header>; FOUR] {
        // SAFETY: the caller's condition.
        let header = |index: u32| unsafe { base.add(index as usize * stride as usize).cast::<Header>() };
        let [one, two, three, four] = *indices;
        let headers = [header(one), header(two), header(three), header(four)];
        // SAFETY: a packet is the address of its header; the caller's condition.
        unsafe { places.cast::<[NonNull<Header>; FOUR]>().write(headers) };
        headers
    }

    #[inline(always)]
    unsafe fn write_differences(cells: &mut [u32], packets: &[Packet], single: u64) -> u64 {
        let mut differences = 0;
        let mut write = |(cell, packet): (&mut u32, &Packet)| {
            let difference = packet.identity().bits() ^ single;
            *cell = difference as u32;
            differences |= difference;
        };
        // Four in each turn: what counts the turns is half the work else.
        let (fours, rest) = packets.as_chunks::<FOUR>();
        let (four_cells, cells) = cells.as_chunks_mut::<FOUR>();
        let each_four = four_cells.iter_mut().zip(fours);
        each_four.for_each(|(cells, four)| cells.iter_mut().zip(four).for_each(&mut write));
        cells.iter_mut().zip(rest).for_each(write);
        differences
    }
}

/// Those of 32 bytes, for functions that are compiled for AVX2 (`…_wide`).
#[cfg(target_arch = "x86_64")]
pub(super) struct Wide;

#[cfg(target_arch = "x86_64")]
impl Registers for Wide {
    type Half = __m256i;
    type Line = [__m256i; 2];
    type Order = [__m256i; 2];

    #[inline(always)]
    fn half(state: &PacketState) -> __m256i {
        // SAFETY: who uses this has AVX2.
        unsafe { state.in_register() }
    }

    #[inline(always)]
    fn with_first_word(half: __m256i, first: u64) -> __m256i {
        // SAFETY: who uses this has AVX2.
        unsafe { _mm256_insert_epi64::<0>(half, first.cast_signed()) }
    }

    #[inline(always)]
    fn line(line: &Line) -> [__m256i; 2] {
        let halves = std::ptr::from_ref(line).cast::<__m256i>();
        // SAFETY: a line is two registers, and aligned to its size; who uses this has AVX2.
        unsafe { [_mm256_load_si256(halves), _mm256_load_si256(halves.add(1))] }
    }

    #[inline(always)]
    unsafe fn write_half(half: __m256i, place: *mut PacketState) {
        // SAFETY: a `PacketState` has the size and the alignment of a register; the caller's condition.
        unsafe { _mm256_store_si256(place.cast(), half) };
    }

    #[inline(always)]
    unsafe fn write_line([first, second]: [__m256i; 2], place: *mut [u8; LINE_BYTES]) {
        // SAFETY: the caller's condition.
        unsafe {
            _mm256_storeu_si256(place.cast(), first);
            _mm256_storeu_si256(place.byte_add(LINE_BYTES / 2).cast(), second);
        }
    }

    #[inline(always)]
    fn order(offsets: &Offsets) -> [__m256i; 2] {
        Self::line(&offsets.order)
    }

    #[inline(always)]
    fn cleared([first, second]: [__m256i; 2], [first_order, second_order]: [__m256i; 2]) -> [__m256i; 2] {
        // Where the frame's bytes stay, the order has the highest bit.
        // SAFETY: who uses this has AVX2.
        unsafe {
            let none = _mm256_setzero_si256();
            let clear = |line, order| _mm256_and_si256(line, _mm256_cmpgt_epi8(none, order));
            [clear(first, first_order), clear(second, second_order)]
        }
    }

    #[inline(always)]
    unsafe fn write_varied(
        [first, second]: [__m256i; 2],
        [first_order, second_order]: [__m256i; 2],
        [low, high]: [u32; 2],
        place: *mut [u8; LINE_BYTES],
    ) {
        // SAFETY: who uses this has AVX2; the caller's condition.
        unsafe {
            let numbers = _mm256_set1_epi64x((u64::from(high) << 32 | u64::from(low)).cast_signed());
            let first = _mm256_or_si256(first, _mm256_shuffle_epi8(numbers, first_order));
            let second = _mm256_or_si256(second, _mm256_shuffle_epi8(numbers, second_order));
            Self::write_line([first, second], place);
        }
    }

    #[inline(always)]
    unsafe fn write_packets(
        base: NonNull<u8>,
        stride: u32,
        indices: &[u32; FOUR],
        places: *mut [Packet; FOUR],
    ) -> [NonNull<Header>; FOUR] {
        // SAFETY: four indices are 16 bytes, and four packets, which are the addresses of their headers, 32; the caller's condition.
        let addresses = unsafe {
            let indices = _mm256_cvtepu32_epi64(_mm_loadu_si128(indices.as_ptr().cast()));
            let offsets = _mm256_mul_epu32(indices, _mm256_set1_epi64x(stride.into()));
            let addresses = _mm256_add_epi64(offsets, _mm256_set1_epi64x(base.as_ptr() as i64));
            _mm256_storeu_si256(places.cast(), addresses);
            addresses
        };
        let header = |address: i64| {
            let offset = address.cast_unsigned() as usize - base.as_ptr() as usize;
            // SAFETY: the caller's condition.
            unsafe { base.add(offset).cast() }
        };
        // SAFETY: this processor has AVX2 (caller).
        unsafe {
            [
                header(_mm256_extract_epi64::<0>(addresses)),
                header(_mm256_extract_epi64::<1>(addresses)),
                header(_mm256_extract_epi64::<2>(addresses)),
                header(_mm256_extract_epi64::<3>(addresses)),
            ]
        }
    }

    #[inline(always)]
    unsafe fn write_differences(cells: &mut [u32], packets: &[Packet], single: u64) -> u64 {
        let (fours, rest) = packets.as_chunks::<FOUR>();
        let (four_cells, cells) = cells.as_chunks_mut::<FOUR>();
        let mut any = [0; 4];
        // SAFETY: this processor has AVX2 (caller); four cells are 16 bytes, and four numbers 32.
        unsafe {
            let first = _mm256_set1_epi64x(single.cast_signed());
            let lower = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
            let mut differences = _mm256_setzero_si256();
            for (cells, packets) in four_cells.iter_mut().zip(fours) {
                let bits = |packet: &Packet| packet.identity().bits().cast_signed();
                let [one, two, three, four] = packets;
                let identities = _mm256_set_epi64x(bits(four), bits(three), bits(two), bits(one));
                let difference = _mm256_xor_si256(identities, first);
                let indices = _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(difference, lower));
                _mm_storeu_si128(cells.as_mut_ptr().cast(), indices);
                differences = _mm256_or_si256(differences, difference);
            }
            _mm256_storeu_si256(any.as_mut_ptr().cast(), differences);
        }
        let any = any.into_iter().fold(0, |all, differences| all | differences);
        // SAFETY: every processor has what it takes.
        any | unsafe { Plain::write_differences(cells, rest, single) }
    }
}

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
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
                        Plain::write_differences(&mut expected[..length], &packets[..length], single),
                        Wide::write_differences(&mut cells[..length], &packets[..length], single),
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

    #[test]
    fn both_put_a_copys_own_numbers_in_their_places() {
        if !Level::available().contains(&Level::Avx2) {
            eprintln!("SKIPPED: needs AVX2");
            return;
        }
        let line = Line(std::array::from_fn(|place| place as u8 | 0xc0));
        let numbers = [0x0304_0102_u32, 0x0708_0586];
        for offsets in [
            [None; 4],
            [Some(0), Some(2), Some(24), Some(40)],
            [Some(62), Some(31), Some(32), None],
            [Some(5); 4],
        ] {
            let known = Offsets::new(offsets).unwrap();
            let mut expected = line.0;
            for (number, offset) in offsets.into_iter().enumerate() {
                let own = [[1, 2], [3, 4], [5, 0x86], [7, 8]][number];
                if let Some(offset) = offset {
                    expected[offset..offset + 2].copy_from_slice(&own);
                }
            }
            let mut written = [[0; LINE_BYTES]; 2];
            // SAFETY: the processor has AVX2, and each line has space.
            unsafe {
                let order = Plain::order(&known);
                Plain::write_varied(Plain::cleared(line.0, order), order, numbers, &raw mut written[0]);
                let order = Wide::order(&known);
                Wide::write_varied(
                    Wide::cleared(Wide::line(&line), order),
                    order,
                    numbers,
                    &raw mut written[1],
                );
            }
            assert_eq!(written, [expected; 2], "{offsets:?}");
        }
    }
}
