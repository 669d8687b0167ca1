//! Registers that hold one AES block of each of several frames, and what is done to all of them at once.

use core::arch::x86_64::{
    __m128i, __m512i, _mm_add_epi8, _mm_aesenc_si128, _mm_aesenclast_si128, _mm_and_si128, _mm_bslli_si128,
    _mm_bsrli_si128, _mm_clmulepi64_si128, _mm_loadu_si128, _mm_shuffle_epi8, _mm_shuffle_epi32,
    _mm_srli_epi16, _mm_storeu_si128, _mm_sub_epi8, _mm_xor_si128, _mm512_add_epi8, _mm512_aesenc_epi128,
    _mm512_aesenclast_epi128, _mm512_and_si512, _mm512_broadcast_i32x4, _mm512_bslli_epi128,
    _mm512_bsrli_epi128, _mm512_castsi128_si512, _mm512_castsi512_si128, _mm512_clmulepi64_epi128,
    _mm512_extracti32x4_epi32, _mm512_inserti32x4, _mm512_shuffle_epi8, _mm512_shuffle_epi32,
    _mm512_srli_epi16, _mm512_sub_epi8, _mm512_xor_si512,
};

/// A register. Each method does the same to all of its blocks, and is inlined into functions that may use its instructions.
///
/// # Safety
/// Implementations do what the methods say. Who calls a method has made sure that the processor has the register's
/// instructions: AVX, AES and PCLMULQDQ for [`__m128i`]; AVX-512 F and BW, VAES and VPCLMULQDQ for [`__m512i`].
pub(super) unsafe trait Vector: Copy {
    /// Blocks in a register, one a frame.
    const BLOCKS: usize;

    /// The block at `offset` of each frame.
    ///
    /// # Safety
    /// There are [`BLOCKS`](Self::BLOCKS) pointers, each to at least `offset` and 16 more bytes that may be read.
    unsafe fn load(frames: &[*mut u8], offset: usize) -> Self;

    /// Writes the blocks to where `load` reads them.
    ///
    /// # Safety
    /// As for `load`, and they may be written.
    unsafe fn store(self, frames: &[*mut u8], offset: usize);

    /// The same block for each frame.
    unsafe fn splat(block: [u8; 16]) -> Self;

    unsafe fn xor(self, other: Self) -> Self;
    unsafe fn and(self, other: Self) -> Self;
    unsafe fn add_bytes(self, other: Self) -> Self;
    unsafe fn subtract_bytes(self, other: Self) -> Self;

    /// The block's bytes that have these numbers; 0 where a number's highest bit is set.
    unsafe fn pick_bytes(self, numbers: Self) -> Self;
    /// The block's second word of four, four times.
    unsafe fn second_word(self) -> Self;
    /// Moves bytes towards the block's first.
    unsafe fn move_down<const BYTES: i32>(self) -> Self;
    /// Moves bytes towards the block's last.
    unsafe fn move_up<const BYTES: i32>(self) -> Self;
    /// Shifts pairs of bytes right by four bits.
    unsafe fn shift_pairs(self) -> Self;

    unsafe fn aes_round(self, key: Self) -> Self;
    unsafe fn aes_last_round(self, key: Self) -> Self;
    /// The product without carries of one half of each block, high if `HALVES` has bit 0, and one of `other`'s, high if it has bit 4.
    unsafe fn multiply<const HALVES: i32>(self, other: Self) -> Self;
}

/// Methods that are one instruction.
macro_rules! instructions {
    ($($method:ident($($argument:ident),*) = $intrinsic:ident $(::<$constant:literal>)?;)*) => {
        $(
            #[inline(always)]
            unsafe fn $method(self $(, $argument: Self)*) -> Self {
                // SAFETY: the caller has made sure that the processor has the instruction.
                unsafe { $intrinsic$(::<$constant>)?(self $(, $argument)*) }
            }
        )*
    };
}

/// Methods that are one instruction with a constant in it.
macro_rules! instructions_with_constant {
    ($($method:ident<$constant:ident>($($argument:ident),*) = $intrinsic:ident;)*) => {
        $(
            #[inline(always)]
            unsafe fn $method<const $constant: i32>(self $(, $argument: Self)*) -> Self {
                // SAFETY: the caller has made sure that the processor has the instruction.
                unsafe { $intrinsic::<$constant>(self $(, $argument)*) }
            }
        )*
    };
}

/// One frame.
// SAFETY: the intrinsics do what the methods say.
unsafe impl Vector for __m128i {
    const BLOCKS: usize = 1;

    #[inline(always)]
    unsafe fn load(frames: &[*mut u8], offset: usize) -> Self {
        // SAFETY: the caller vouches for the pointer, and for the instruction.
        unsafe { _mm_loadu_si128(frames[0].add(offset).cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, frames: &[*mut u8], offset: usize) {
        // SAFETY: as in `load`.
        unsafe { _mm_storeu_si128(frames[0].add(offset).cast(), self) }
    }

    #[inline(always)]
    unsafe fn splat(block: [u8; 16]) -> Self {
        // SAFETY: the block is there, and the caller vouches for the instruction.
        unsafe { _mm_loadu_si128(block.as_ptr().cast()) }
    }

    instructions! {
        xor(other) = _mm_xor_si128;
        and(other) = _mm_and_si128;
        add_bytes(other) = _mm_add_epi8;
        subtract_bytes(other) = _mm_sub_epi8;
        pick_bytes(numbers) = _mm_shuffle_epi8;
        second_word() = _mm_shuffle_epi32::<0x55>;
        shift_pairs() = _mm_srli_epi16::<4>;
        aes_round(key) = _mm_aesenc_si128;
        aes_last_round(key) = _mm_aesenclast_si128;
    }

    instructions_with_constant! {
        move_down<BYTES>() = _mm_bsrli_si128;
        move_up<BYTES>() = _mm_bslli_si128;
        multiply<HALVES>(other) = _mm_clmulepi64_si128;
    }
}

/// Four frames.
// SAFETY: the intrinsics do what the methods say.
unsafe impl Vector for __m512i {
    const BLOCKS: usize = 4;

    #[inline(always)]
    unsafe fn load(frames: &[*mut u8], offset: usize) -> Self {
        let block = |number: usize| {
            // SAFETY: the caller vouches for the pointers, and for the instructions.
            unsafe { _mm_loadu_si128(frames[number].add(offset).cast()) }
        };
        // SAFETY: as in `block`.
        unsafe {
            let blocks = _mm512_castsi128_si512(block(0));
            let blocks = _mm512_inserti32x4::<1>(blocks, block(1));
            let blocks = _mm512_inserti32x4::<2>(blocks, block(2));
            _mm512_inserti32x4::<3>(blocks, block(3))
        }
    }

    #[inline(always)]
    unsafe fn store(self, frames: &[*mut u8], offset: usize) {
        // SAFETY: as in `load`.
        unsafe {
            _mm_storeu_si128(frames[0].add(offset).cast(), _mm512_castsi512_si128(self));
            _mm_storeu_si128(frames[1].add(offset).cast(), _mm512_extracti32x4_epi32::<1>(self));
            _mm_storeu_si128(frames[2].add(offset).cast(), _mm512_extracti32x4_epi32::<2>(self));
            _mm_storeu_si128(frames[3].add(offset).cast(), _mm512_extracti32x4_epi32::<3>(self));
        }
    }

    #[inline(always)]
    unsafe fn splat(block: [u8; 16]) -> Self {
        // SAFETY: the block is there, and the caller vouches for the instructions.
        unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(block.as_ptr().cast())) }
    }

    instructions! {
        xor(other) = _mm512_xor_si512;
        and(other) = _mm512_and_si512;
        add_bytes(other) = _mm512_add_epi8;
        subtract_bytes(other) = _mm512_sub_epi8;
        pick_bytes(numbers) = _mm512_shuffle_epi8;
        second_word() = _mm512_shuffle_epi32::<0x55>;
        shift_pairs() = _mm512_srli_epi16::<4>;
        aes_round(key) = _mm512_aesenc_epi128;
        aes_last_round(key) = _mm512_aesenclast_epi128;
    }

    instructions_with_constant! {
        move_down<BYTES>() = _mm512_bsrli_epi128;
        move_up<BYTES>() = _mm512_bslli_epi128;
        multiply<HALVES>(other) = _mm512_clmulepi64_epi128;
    }
}
