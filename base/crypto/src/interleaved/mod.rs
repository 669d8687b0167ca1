//! Encryption of several frames at once, with their CRCs in the same pass.

mod group;
mod vector;

use core::arch::x86_64::{
    __m128i, __m512i, _mm_aeskeygenassist_si128, _mm_bslli_si128, _mm_loadu_si128, _mm_shuffle_epi32,
    _mm_storeu_si128, _mm_xor_si128,
};

use warmlane_sys::simd::{Level, detected};

use crate::{BLOCK, CRC_LENGTH, Protection};

/// Bytes of the addresses, which stay in clear: what encryption begins behind in DOCSIS.
const ADDRESSES: usize = 12;

/// Bytes behind the addresses of the longest frame that is taken here.
const LONGEST: usize = 2_048;

/// Lanes of the widest kernel.
const WIDEST: usize = 16;

/// Frames that are sorted at once.
const BATCH: usize = 64;

/// Bytes of the shortest frame that is taken here, its CRC included: its last block has to be behind the addresses.
const SHORTEST: usize = ADDRESSES + BLOCK;

/// A key and its vector as the kernels want them.
#[derive(Clone)]
pub(crate) struct Rounds {
    rounds: [[u8; BLOCK]; 11],
    vector: [u8; BLOCK],
}

/// What a place without a job has.
static NO_KEY: Rounds = Rounds { rounds: [[0; BLOCK]; 11], vector: [0; BLOCK] };

impl Rounds {
    /// Expands a key; `None` where the processor can't.
    pub(crate) fn new(key: &[u8; BLOCK], vector: [u8; BLOCK]) -> Option<Self> {
        // SAFETY: the processor was asked.
        let rounds = is_x86_feature_detected!("aes").then(|| unsafe { expanded(key) })?;
        Some(Self { rounds, vector })
    }
}

/// The round keys of AES-128 (FIPS 197 section 5.2).
///
/// # Safety
/// The processor must have AES.
#[target_feature(enable = "aes,sse2")]
unsafe fn expanded(key: &[u8; BLOCK]) -> [[u8; BLOCK]; 11] {
    // SAFETY: the arrays are as long as a register.
    let mut round = unsafe { _mm_loadu_si128(key.as_ptr().cast()) };
    let mut rounds = [*key; 11];
    macro_rules! next {
        ($($number:literal: $constant:literal),*) => { $(
            let last = _mm_shuffle_epi32::<0xff>(_mm_aeskeygenassist_si128::<$constant>(round));
            // Each word is combined with all before it.
            round = _mm_xor_si128(round, _mm_bslli_si128::<4>(round));
            round = _mm_xor_si128(round, _mm_bslli_si128::<8>(round));
            round = _mm_xor_si128(round, last);
            // SAFETY: as above.
            unsafe { _mm_storeu_si128(rounds[$number].as_mut_ptr().cast(), round) };
        )* };
    }
    next!(1: 0x01, 2: 0x02, 3: 0x04, 4: 0x08, 5: 0x10, 6: 0x20, 7: 0x40, 8: 0x80, 9: 0x1b, 10: 0x36);
    rounds
}

/// A frame for the kernels.
struct Job<'a> {
    /// From the destination address to the end of the CRC: [`SHORTEST`] to [`ADDRESSES`] and [`LONGEST`] bytes.
    frame: &'a mut [u8],
    key: &'a Rounds,
}

impl Job<'_> {
    /// Bytes between the addresses and the CRC.
    fn payload(&self) -> usize {
        self.frame.len() - ADDRESSES - CRC_LENGTH
    }

    /// Whole blocks of them.
    fn blocks(&self) -> usize {
        self.payload() / BLOCK
    }

    /// Bytes of payload behind these.
    fn rest(&self) -> usize {
        self.payload() % BLOCK
    }
}

/// Runs one group of jobs, at most as many as the kernel has lanes, those with fewest blocks first.
type Kernel = unsafe fn(&mut [Job<'_>], &mut [u8; LONGEST], bool);

/// Four registers of four frames: as many rounds of AES under way as Zen 4 can have, and half as many as Zen 5.
#[target_feature(enable = "avx512f,avx512bw,vaes,vpclmulqdq")]
unsafe fn wide(jobs: &mut [Job<'_>], scratch: &mut [u8; LONGEST], crc: bool) {
    // SAFETY: the caller has asked the processor.
    unsafe { group::protect::<__m512i, 4>(jobs, scratch, crc) };
}

/// Eight registers of one frame.
#[target_feature(enable = "avx2,aes,pclmulqdq")]
unsafe fn narrow(jobs: &mut [Job<'_>], scratch: &mut [u8; LONGEST], crc: bool) {
    // SAFETY: the caller has asked the processor.
    unsafe { group::protect::<__m128i, 8>(jobs, scratch, crc) };
}

/// The widest kernel that this processor has, and its lanes.
fn kernel(level: Level) -> Option<(Kernel, usize)> {
    let has_wide = || is_x86_feature_detected!("vaes") && is_x86_feature_detected!("vpclmulqdq");
    let has_narrow = || is_x86_feature_detected!("aes") && is_x86_feature_detected!("pclmulqdq");
    match level {
        Level::Avx512 if has_wide() => Some((wide, 16)),
        Level::Avx512 | Level::Avx2 if has_narrow() => Some((narrow, 8)),
        _ => None,
    }
}

/// Frames that wait for each other.
pub(crate) struct Batch<'a> {
    jobs: [Job<'a>; BATCH],
    count: usize,
    /// Whether CRCs are to be written to these.
    crc: bool,
    kernel: Option<(Kernel, usize)>,
    /// What lanes without a frame work on.
    scratch: [u8; LONGEST],
}

impl<'a> Batch<'a> {
    /// An empty batch for this processor.
    pub(crate) fn new() -> Self {
        Self::with(kernel(detected()))
    }

    fn with(kernel: Option<(Kernel, usize)>) -> Self {
        let jobs = std::array::from_fn(|_| Job { frame: &mut [], key: &NO_KEY });
        Self { jobs, count: 0, crc: false, kernel, scratch: [0; LONGEST] }
    }

    /// Takes a frame.
    ///
    /// # Errors
    /// The frame, if it isn't one for the kernels.
    #[inline]
    pub(crate) fn push(&mut self, frame: Protection<'a>) -> Result<(), Protection<'a>> {
        let is_fit = self.kernel.is_some()
            && frame.encrypt_from == ADDRESSES
            && (SHORTEST..=ADDRESSES + LONGEST).contains(&frame.frame.len());
        let Some(key) = frame.key.and_then(|key| key.rounds()).filter(|_| is_fit) else { return Err(frame) };
        if self.count == BATCH || self.crc != frame.crc {
            self.finish();
            self.crc = frame.crc;
        }
        self.jobs[self.count] = Job { frame: frame.frame, key };
        self.count += 1;
        Ok(())
    }

    /// Does what there is to do.
    pub(crate) fn finish(&mut self) {
        let Some((kernel, lanes)) = self.kernel else { return };
        let jobs = &mut self.jobs[..std::mem::take(&mut self.count)];
        // Frames of a group that are alike end at the same time.
        if !jobs.is_sorted_by_key(Job::blocks) {
            jobs.sort_unstable_by_key(Job::blocks);
        }
        for group in jobs.chunks_mut(lanes) {
            // SAFETY: the processor was asked for the kernel's instructions.
            unsafe { kernel(group, &mut self.scratch, self.crc) };
        }
    }
}

#[cfg(test)]
mod tests;
