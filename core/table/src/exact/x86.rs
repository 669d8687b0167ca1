//! Kernels of x86_64: AES with AVX2, and vector AES with AVX-512

use std::arch::x86_64::{
    __m128i, __m512i, _mm_add_epi32, _mm_aesenc_si128, _mm_blend_epi32, _mm_loadl_epi64, _mm_loadu_si128,
    _mm_min_epu32, _mm_mul_epu32, _mm_set_epi64x, _mm_set1_epi32, _mm_shuffle_epi32, _mm_sub_epi32,
    _mm_xor_si128, _mm256_broadcastsi128_si256, _mm256_castsi256_pd, _mm256_movemask_pd, _mm512_add_epi32,
    _mm512_aesenc_epi128, _mm512_broadcast_i32x4, _mm512_castsi128_si512, _mm512_inserti32x4,
    _mm512_mask_min_epu32, _mm512_mask_shuffle_epi32, _mm512_mul_epu32, _mm512_set1_epi32,
    _mm512_shuffle_epi32, _mm512_storeu_si512, _mm512_sub_epi32, _mm512_xor_si512,
};

use super::Candidates;
use super::hash::{Hash, ROUNDS, Seed};
use super::kernel::{BLOCK, BlockCandidates, Kernel, compiled_methods};
use super::key::{ExactKey, KeyWords};

/// AES and AVX2. A value of it exists only where the processor has them.
#[derive(Clone, Copy, Debug)]
pub(super) struct X86(());

impl X86 {
    /// Also asks for BMI, with which the code around it is compiled
    pub(super) fn detect() -> Option<Self> {
        let has_all = is_x86_feature_detected!("aes")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("lzcnt");
        has_all.then_some(Self(()))
    }
}

impl Kernel for X86 {
    compiled_methods!();

    #[inline(always)]
    fn prefetch<T>(self, value: &T) {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};

        // Into the second level only. The first can wait for fewer lines at once than the second (on Zen 4, 24): where
        // buckets come from memory this is a fifth faster, and where they don't the way from the second level is short.
        // SAFETY: PREFETCHT1 is part of SSE and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(std::ptr::from_ref(value).cast()) };
    }

    #[inline(always)]
    unsafe fn equal_words<Line>(self, line: &Line, wanted: [u64; 2]) -> Option<u32> {
        // SAFETY: `self` exists, so the processor has AVX2; the line has 64 bytes, as the caller promises.
        Some(unsafe { equal_words(std::ptr::from_ref(line).cast(), wanted) })
    }
}

/// Vector AES and AVX-512. A value of it exists only where the processor has them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx512(pub(super) X86);

impl Avx512 {
    pub(super) fn detect() -> Option<Self> {
        let has_all = is_x86_feature_detected!("vaes")
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        has_all.then(X86::detect).flatten().map(Self)
    }
}

impl Kernel for Avx512 {
    #[inline(always)]
    fn hash(self, seed: &Seed, key: &[u64]) -> Hash {
        self.0.hash(seed, key)
    }

    #[inline(always)]
    fn candidates<K: ExactKey>(self, seed: &Seed, count: u32, keys: &[K], candidates: &mut BlockCandidates) {
        // SAFETY: `self` exists, so `detect` has found what the function was compiled for.
        unsafe {
            match <&[K; BLOCK]>::try_from(keys) {
                Ok(keys) => candidates_by_four(seed, count, keys, candidates),
                Err(_) => candidates_one_by_one(seed, count, keys, candidates),
            }
        }
    }

    #[inline(always)]
    fn prefetch<T>(self, value: &T) {
        self.0.prefetch(value);
    }

    #[inline(always)]
    fn run<R>(self, work: impl FnOnce() -> R) -> R {
        // SAFETY: `self` exists, so `detect` has found what the function was compiled for.
        unsafe { run_avx512(work) }
    }

    #[inline(always)]
    unsafe fn equal_words<Line>(self, line: &Line, wanted: [u64; 2]) -> Option<u32> {
        // SAFETY: `self` exists, so the processor has AVX-512; the line has 64 bytes, as the caller promises.
        Some(unsafe { equal_words_at_once(std::ptr::from_ref(line).cast(), wanted) })
    }
}

#[target_feature(enable = "aes,avx2,bmi1,bmi2,popcnt,lzcnt")]
fn run<R>(work: impl FnOnce() -> R) -> R {
    work()
}

#[target_feature(enable = "aes,vaes,avx2,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512dq,avx512vl")]
fn run_avx512<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// The hash, by the AES instructions
#[target_feature(enable = "aes,avx2,bmi1,bmi2,popcnt,lzcnt")]
#[inline]
fn hash(seed: &Seed, key: &[u64]) -> Hash {
    // SAFETY: both are 128 bits of integers, the lower half first.
    unsafe { std::mem::transmute::<__m128i, Hash>(hash_vector(seed, key)) }
}

#[target_feature(enable = "aes,avx2,bmi1,bmi2,popcnt,lzcnt")]
#[inline]
fn hash_vector(seed: &Seed, key: &[u64]) -> __m128i {
    let mut state = pair(&seed.keys[0]);
    for block in key.chunks(2) {
        state = _mm_xor_si128(state, pair(block));
        for round in 1..=ROUNDS {
            state = _mm_aesenc_si128(state, pair(&seed.keys[round]));
        }
    }
    state
}

/// One word or two, the first one lower; a zero for a missing second one
#[target_feature(enable = "avx2")]
#[inline]
fn pair(words: &[u64]) -> __m128i {
    match words {
        // SAFETY: the slice has 16 bytes.
        [_, _, ..] => unsafe { _mm_loadu_si128(words.as_ptr().cast()) },
        // SAFETY: the slice has 8 bytes.
        [_] => unsafe { _mm_loadl_epi64(words.as_ptr().cast()) },
        [] => _mm_set_epi64x(0, 0),
    }
}

/// [`Candidates::new`] for each key, in vectors of one
#[target_feature(enable = "aes,avx2,bmi1,bmi2,popcnt,lzcnt")]
#[inline]
fn candidates_one_by_one<K: ExactKey>(seed: &Seed, count: u32, keys: &[K], candidates: &mut BlockCandidates) {
    let counts = _mm_set_epi64x(i64::from(count - 1), i64::from(count));
    let count = _mm_set1_epi32(count.cast_signed());
    for (key, candidates) in keys.iter().zip(candidates) {
        let hash = hash_vector(seed, key.to_words().as_slice());
        // The upper halves of these products are the home and the way from the one after it to the other bucket.
        let product = _mm_mul_epu32(hash, counts);
        let sum = _mm_add_epi32(product, _mm_shuffle_epi32::<0b01_01_01_01>(product));
        let other = _mm_sub_epi32(sum, _mm_set1_epi32(-1));
        let other = _mm_min_epu32(other, _mm_sub_epi32(other, count));
        let both = _mm_blend_epi32::<0b1000>(product, other);
        let all = _mm_blend_epi32::<0b0001>(both, _mm_shuffle_epi32::<0b01>(hash));
        // SAFETY: both are 128 bits of integers: the tag, the home, what means nothing, the other.
        candidates.write(unsafe { std::mem::transmute::<__m128i, Candidates>(all) });
    }
}

/// The same in vectors of four
#[target_feature(enable = "aes,vaes,avx2,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn candidates_by_four<K: ExactKey>(
    seed: &Seed,
    count: u32,
    keys: &[K; BLOCK],
    candidates: &mut BlockCandidates,
) {
    const FOUR: usize = 4;
    const { assert!(BLOCK.is_multiple_of(FOUR) && size_of::<[Candidates; FOUR]>() == size_of::<__m512i>()) };
    let counts = _mm512_broadcast_i32x4(_mm_set_epi64x(i64::from(count - 1), i64::from(count)));
    let count = _mm512_set1_epi32(count.cast_signed());
    let words = K::Words::ZERO.as_slice().len();
    for (keys, candidates) in keys.chunks_exact(FOUR).zip(candidates.chunks_exact_mut(FOUR)) {
        let mut state = _mm512_broadcast_i32x4(pair(&seed.keys[0]));
        for first in (0..words).step_by(2) {
            let block = |key: usize| pair(&keys[key].to_words().as_slice()[first..]);
            let four = _mm512_castsi128_si512(block(0));
            let four = _mm512_inserti32x4::<1>(four, block(1));
            let four = _mm512_inserti32x4::<2>(four, block(2));
            let four = _mm512_inserti32x4::<3>(four, block(3));
            state = _mm512_xor_si512(state, four);
            for round in 1..=ROUNDS {
                state = _mm512_aesenc_epi128(state, _mm512_broadcast_i32x4(pair(&seed.keys[round])));
            }
        }
        let product = _mm512_mul_epu32(state, counts);
        let sum = _mm512_add_epi32(product, _mm512_shuffle_epi32::<0b01_01_01_01>(product));
        let other = _mm512_sub_epi32(sum, _mm512_set1_epi32(-1));
        let both = _mm512_mask_min_epu32(product, 0x8888, other, _mm512_sub_epi32(other, count));
        let all = _mm512_mask_shuffle_epi32::<0b01>(both, 0x1111, state);
        // SAFETY: there are 64 bytes of four candidates, each of them the tag, the home, what means nothing, the other.
        unsafe { _mm512_storeu_si512(candidates.as_mut_ptr().cast(), all) };
    }
}

/// A bit for each of the eight words of a line that equals the wanted one: `wanted[0]` for even words, `wanted[1]` for odd
///
/// # Safety
/// There must be 64 readable bytes at `line`, which may change meanwhile.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn equal_words(line: *const u8, wanted: [u64; 2]) -> u32 {
    use std::arch::x86_64::__m256i;

    let wanted = _mm256_broadcastsi128_si256(pair(&wanted));
    let (low, high): (__m256i, __m256i);
    // SAFETY: reads the bytes that the caller promises. It is written in assembly because the writer may change them meanwhile, which
    // for a load of the language would be a data race; for the processor each aligned word of the load is one atomic load, in
    // order with the loads before and after (Intel SDM volume 3, section 9.2.2; AMD APM volume 2, section 7.1.1). What is torn between
    // words, the reader finds out by the bucket's version.
    unsafe {
        std::arch::asm!(
            "vpcmpeqq {low}, {wanted}, ymmword ptr [{line}]",
            "vpcmpeqq {high}, {wanted}, ymmword ptr [{line} + 32]",
            line = in(reg) line,
            wanted = in(ymm_reg) wanted,
            low = out(ymm_reg) low,
            high = lateout(ymm_reg) high,
            options(nostack, preserves_flags, readonly),
        );
    }
    let mask = |vector| _mm256_movemask_pd(_mm256_castsi256_pd(vector)).cast_unsigned();
    mask(low) | mask(high) << 4
}

/// The same with one comparison
///
/// # Safety
/// As for [`equal_words`].
#[target_feature(enable = "avx512f,avx512dq")]
#[inline]
unsafe fn equal_words_at_once(line: *const u8, wanted: [u64; 2]) -> u32 {
    let wanted = _mm512_broadcast_i32x4(pair(&wanted));
    let equal: u8;
    // SAFETY: as in `equal_words`.
    unsafe {
        std::arch::asm!(
            "vpcmpeqq {equal}, {wanted}, zmmword ptr [{line}]",
            line = in(reg) line,
            wanted = in(zmm_reg) wanted,
            equal = lateout(kreg) equal,
            options(nostack, preserves_flags, readonly),
        );
    }
    u32::from(equal)
}
