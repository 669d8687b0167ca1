//! The parts of a lookup that depend on the processor: the hash, and finding a key in a cache line

use std::mem::MaybeUninit;

use super::Candidates;
#[cfg(target_arch = "aarch64")]
use super::arm::Arm;
use super::hash::{self, Hash, Seed};
use super::key::{ExactKey, KeyWords};
use super::primitive::{AtomicU64, Ordering};
#[cfg(target_arch = "x86_64")]
use super::x86::{Avx512, X86};
use warmlane_sys::prefetch::prefetch_read;
use warmlane_sys::simd::{self, Level};

/// Keys that are hashed together
pub(super) const BLOCK: usize = 8;
/// Space for their candidates
pub(super) type BlockCandidates = [MaybeUninit<Candidates>; BLOCK];

/// Instructions to look up with; all kinds give the same answers
pub trait Kernel: Copy {
    /// The keyed hash of a key
    fn hash(self, seed: &Seed, key: &[u64]) -> Hash;

    /// The candidates of up to [`BLOCK`] keys in a table of `count` buckets. Writes one for each key.
    #[inline(always)]
    fn candidates<K: ExactKey>(self, seed: &Seed, count: u32, keys: &[K], candidates: &mut BlockCandidates) {
        for (key, candidates) in keys.iter().zip(candidates) {
            candidates.write(Candidates::new(self.hash(seed, key.to_words().as_slice()), count));
        }
    }

    /// Asks for the line of a bucket, to be read some dozens of lookups later
    #[inline(always)]
    fn prefetch<T>(self, value: &T) {
        prefetch_read(value);
    }

    /// Does something in code that has this kernel's instructions. Those of a function marked with `inline(never)` are
    /// the processor's least ones, and each hash a call.
    #[inline(always)]
    fn run<R>(self, work: impl FnOnce() -> R) -> R {
        work()
    }

    /// A bit for each of the eight words of a line that equals the wanted one: `wanted[0]` for even words, `wanted[1]` for odd.
    /// `None` if this kernel can't compare them together.
    ///
    /// # Safety
    /// `line` must have 64 readable bytes, all of them atomics.
    #[inline(always)]
    unsafe fn equal_words<Line>(self, _line: &Line, _wanted: [u64; 2]) -> Option<u32> {
        None
    }

    /// Which of the `keys` at the end of a line are this one: bits 0, 1, 2… for keys of one word, 0, 2, 4… for keys of two.
    /// The bits in between mean nothing.
    ///
    /// # Safety
    /// `line` must have 64 bytes, all of them atomics, and `keys` must be the last of them. Keys must have one or two words.
    #[inline(always)]
    unsafe fn matching<Line, const WORDS: usize, const SLOTS: usize>(
        self,
        line: &Line,
        keys: &[[AtomicU64; WORDS]; SLOTS],
        key: &[u64; WORDS],
    ) -> u32 {
        // SAFETY: as the caller promises.
        if let Some(equal) = unsafe { self.equal_words(line, [key[0], key[WORDS - 1]]) } {
            // Without the words before the keys
            let equal = equal >> (8 - WORDS * SLOTS);
            // Of two words, both must be equal.
            return if WORDS == 1 { equal } else { equal & equal >> 1 };
        }
        // Word by word: each load is atomic, as none of a vector would be.
        let mut matching = 0;
        for (slot, stored) in keys.iter().enumerate() {
            matching |= u32::from(holds(stored, key)) << (slot * WORDS);
        }
        matching
    }
}

/// The methods of a [`Kernel`] whose functions `hash`, `candidates_one_by_one` and `run` were compiled for instructions that the
/// processor has if there is a value of the kernel.
macro_rules! compiled_methods {
    () => {
        #[inline(always)]
        fn hash(self, seed: &Seed, key: &[u64]) -> Hash {
            // SAFETY: `self` exists, so `detect` has found what the function was compiled for.
            unsafe { hash(seed, key) }
        }

        #[inline(always)]
        fn candidates<K: ExactKey>(
            self,
            seed: &Seed,
            count: u32,
            keys: &[K],
            candidates: &mut BlockCandidates,
        ) {
            // SAFETY: as in `hash`.
            unsafe { candidates_one_by_one(seed, count, keys, candidates) };
        }

        #[inline(always)]
        fn run<R>(self, work: impl FnOnce() -> R) -> R {
            // SAFETY: as in `hash`.
            unsafe { run(work) }
        }
    };
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) use compiled_methods;

/// Plain Rust, for any processor
#[derive(Clone, Copy, Debug)]
pub(super) struct Portable;

impl Kernel for Portable {
    fn hash(self, seed: &Seed, key: &[u64]) -> Hash {
        hash::by_table(seed, key)
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

/// The fastest that this processor has. As a kernel itself it asks each time which one it is: good enough for single keys.
#[derive(Clone, Copy, Debug)]
pub(super) enum Detected {
    Portable(Portable),
    #[cfg(target_arch = "x86_64")]
    X86(X86),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    #[cfg(target_arch = "aarch64")]
    Arm(Arm),
}

impl Detected {
    pub(super) fn detect() -> Self {
        Self::of(simd::detected())
    }

    /// Those of a level, or what comes nearest: a hash needs instructions that not each processor of a level has.
    pub(super) fn of(level: Level) -> Self {
        // The model checker knows no vectors.
        #[cfg(target_arch = "x86_64")]
        if !cfg!(loom) {
            let avx512 = || Avx512::detect().map(Self::Avx512);
            let x86 = || X86::detect().map(Self::X86);
            let kernel = match level {
                Level::Avx512 => avx512().or_else(x86),
                Level::Avx2 => x86(),
                Level::Portable | Level::Neon => None,
            };
            if let Some(kernel) = kernel {
                return kernel;
            }
        }
        #[cfg(target_arch = "aarch64")]
        if !cfg!(loom)
            && level == Level::Neon
            && let Some(kernel) = Arm::detect()
        {
            return Self::Arm(kernel);
        }
        Self::Portable(Portable)
    }

    /// All that this processor has
    #[cfg(all(test, not(loom)))]
    pub(super) fn available() -> Vec<Self> {
        let mut kernels = vec![Self::Portable(Portable)];
        #[cfg(target_arch = "x86_64")]
        kernels.extend(X86::detect().map(Self::X86));
        #[cfg(target_arch = "x86_64")]
        kernels.extend(Avx512::detect().map(Self::Avx512));
        #[cfg(target_arch = "aarch64")]
        kernels.extend(Arm::detect().map(Self::Arm));
        kernels
    }
}

impl Kernel for Detected {
    #[inline]
    fn hash(self, seed: &Seed, key: &[u64]) -> Hash {
        match self {
            Self::Portable(kernel) => kernel.hash(seed, key),
            #[cfg(target_arch = "x86_64")]
            Self::X86(kernel) => kernel.hash(seed, key),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(kernel) => kernel.hash(seed, key),
            #[cfg(target_arch = "aarch64")]
            Self::Arm(kernel) => kernel.hash(seed, key),
        }
    }
}
