//! The parts of a lookup that depend on the processor: the hash, and finding a key in a cache line

use super::hash::{self, Hash, Seed};
use super::primitive::{AtomicU64, Ordering};
use warmlane_sys::prefetch::prefetch_read;

/// Instructions to look up with; all kinds give the same answers
pub trait Kernel: Copy {
    /// The keyed hash of a key
    fn hash(self, seed: &Seed, key: &[u64]) -> Hash;

    /// Asks for the line of a bucket, to be read some dozens of lookups later
    fn prefetch<T>(self, value: &T);

    /// Which of the `keys` at the end of a line are this one: bits 0, 1, 2… for keys of one word, 0, 2, 4… for keys of two.
    /// The bits in between mean nothing.
    ///
    /// # Safety
    /// `line` must have 64 bytes, all of them atomics, and `keys` must be the last of them. Keys must have one or two words.
    unsafe fn matching<Line, const WORDS: usize, const SLOTS: usize>(
        self,
        line: &Line,
        keys: &[[AtomicU64; WORDS]; SLOTS],
        key: &[u64; WORDS],
    ) -> u32;
}

/// Plain Rust, for any processor
#[derive(Clone, Copy, Debug)]
pub(super) struct Portable;

impl Kernel for Portable {
    fn hash(self, seed: &Seed, key: &[u64]) -> Hash {
        hash::by_table(seed, key)
    }

    #[inline(always)]
    fn prefetch<T>(self, value: &T) {
        prefetch_read(value);
    }

    #[inline(always)]
    unsafe fn matching<Line, const WORDS: usize, const SLOTS: usize>(
        self,
        _line: &Line,
        keys: &[[AtomicU64; WORDS]; SLOTS],
        key: &[u64; WORDS],
    ) -> u32 {
        let mut matching = 0;
        for (slot, stored) in keys.iter().enumerate() {
            matching |= u32::from(holds(stored, key)) << (slot * WORDS);
        }
        matching
    }
}

#[inline(always)]
pub(super) fn holds<const WORDS: usize>(stored: &[AtomicU64; WORDS], key: &[u64; WORDS]) -> bool {
    let mut difference = 0;
    for (stored, word) in stored.iter().zip(key) {
        difference |= stored.load(Ordering::Relaxed) ^ word;
    }
    difference == 0
}

/// AES and AVX2 on x86_64. A value of it exists only where the processor has them.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub(super) struct X86(());

#[cfg(target_arch = "x86_64")]
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

#[cfg(target_arch = "x86_64")]
impl Kernel for X86 {
    #[inline(always)]
    fn hash(self, seed: &Seed, key: &[u64]) -> Hash {
        // SAFETY: `self` exists, so `detect` has found what the function was compiled for.
        unsafe { hash::by_aes_ni(seed, key) }
    }

    #[inline(always)]
    fn prefetch<T>(self, value: &T) {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};

        // Into the second level only. The first can wait for fewer lines at once than the second (on Zen 4, 24): where
        // buckets come from memory this is a fifth faster, and where they don't the way from the second level is short.
        // SAFETY: PREFETCHT1 is part of SSE and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(std::ptr::from_ref(value).cast()) };
    }

    #[inline(always)]
    unsafe fn matching<Line, const WORDS: usize, const SLOTS: usize>(
        self,
        line: &Line,
        _keys: &[[AtomicU64; WORDS]; SLOTS],
        key: &[u64; WORDS],
    ) -> u32 {
        // SAFETY: `self` exists, so the processor has AVX2 and BMI2; the line has 64 bytes, as the caller promises.
        let equal = unsafe { equal_words(std::ptr::from_ref(line).cast(), [key[0], key[WORDS - 1]]) };
        // Without the words before the keys
        let equal = equal >> (8 - WORDS * SLOTS);
        // Of two words, both must be equal.
        if WORDS == 1 { equal } else { equal & equal >> 1 }
    }
}

/// A bit for each of the eight words of a line that equals the wanted one: `wanted[0]` for even words, `wanted[1]` for odd
///
/// # Safety
/// There must be 64 readable bytes at `line`, which may change meanwhile.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn equal_words(line: *const u8, wanted: [u64; 2]) -> u32 {
    use std::arch::x86_64::{__m256i, _mm256_castsi256_pd, _mm256_movemask_pd, _mm256_set_epi64x};

    let [even, odd] = wanted.map(u64::cast_signed);
    let wanted = _mm256_set_epi64x(odd, even, odd, even);
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

/// The fastest that this processor has. As a kernel itself it asks each time which one it is: good enough for single keys.
#[derive(Clone, Copy, Debug)]
pub(super) enum Detected {
    Portable(Portable),
    #[cfg(target_arch = "x86_64")]
    X86(X86),
}

impl Detected {
    pub(super) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if !cfg!(loom)
            && let Some(kernel) = X86::detect()
        {
            return Self::X86(kernel);
        }
        Self::Portable(Portable)
    }
}

impl Kernel for Detected {
    #[inline]
    fn hash(self, seed: &Seed, key: &[u64]) -> Hash {
        match self {
            Self::Portable(kernel) => kernel.hash(seed, key),
            #[cfg(target_arch = "x86_64")]
            Self::X86(kernel) => kernel.hash(seed, key),
        }
    }

    #[inline(always)]
    fn prefetch<T>(self, value: &T) {
        prefetch_read(value);
    }

    #[inline(always)]
    unsafe fn matching<Line, const WORDS: usize, const SLOTS: usize>(
        self,
        line: &Line,
        keys: &[[AtomicU64; WORDS]; SLOTS],
        key: &[u64; WORDS],
    ) -> u32 {
        // SAFETY: the caller promises the same.
        unsafe { Portable.matching(line, keys, key) }
    }
}
