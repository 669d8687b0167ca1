//! Exact match: keys of 8 to 40 bytes to values of 32 bits
//!
//! A cuckoo table with buckets (Pagh and Rodler, "Cuckoo hashing", Journal of Algorithms 51(2), 2004; Dietzfelbinger and
//! Weidling, "Balanced allocation and dictionaries with tightly packed constant size bins", TCS 380, 2007): a key
//! stands in one of two buckets, which a keyed hash chooses. The first of them is its *home*. A key goes
//! elsewhere only when its home is full, and a bucket counts how many of those it is home to did; so most lookups, found
//! or not, end in one bucket. An insertion that finds both buckets full moves others, along a shortest way
//! to a free slot (Li, Andersen, Kaminsky, Freedman: "Algorithmic improvements for fast concurrent cuckoo hashing", EuroSys 2014).
//!
//! Keys stand in the buckets themselves, not behind an index. Three keys of two words with their values and a header fill one
//! cache line, so the usual lookup waits for one line; DPDK's rte_hash reads a line of signatures and then a key
//! elsewhere.
//!
//! There is one writer, the [`ExactTable`], and any number of [`ExactReader`]s, which wait for nobody and write nothing but
//! marks for aging. [`bucket`] says how a bucket is read while it changes. Between buckets it goes like this: an entry that
//! moves is written to its new bucket before it is taken from the old one, so it is always in one of the two. A reader
//! who found it in neither looks whether its home has changed since, and begins again if so. It is enough to look at the home:
//! if the key was missing there all the time, it was in the other bucket all the time, and was seen there. The count of entries away
//! changes in the same store that takes an entry from its home or puts it back, so nobody relies on a count of zero
//! wrongly. Memory is never given back while a reader exists, and slots that are used again are told apart by
//! versions; so there is nothing for RCU to do here. What values stand for is another matter: whoever gives a number
//! to something new after removing its entry must first wait until no reader can have the old answer in hand.

mod bucket;
mod displace;
mod error;
mod hash;
mod key;
mod lookup;
mod memory;
mod primitive;
mod table;

pub use error::ExactError;
pub use key::{ExactKey, KeyWords};
pub use lookup::ExactReader;
pub use table::{ExactTable, Sweep};

use bucket::Layout;
use hash::{Hasher, Portable, Seed};
use memory::{Ages, Buckets};

/// What a lookup answers where there is no entry; no entry has this value
pub const NO_VALUE: u32 = u32::MAX;

/// The two places of a key
#[derive(Clone, Copy, Debug)]
struct Places {
    home: usize,
    other: usize,
    tag: u8,
}

/// What the writer and the readers have in common
struct Shared<B> {
    buckets: Buckets<B>,
    seed: Seed,
    /// How many sweeps ago each slot was last hit, if entries age: those of a bucket side by side
    ages: Option<Ages>,
}

impl<B: Layout> Shared<B> {
    #[inline(always)]
    fn places(&self, hasher: impl Hasher, key: &B::Words) -> Places {
        use key::KeyWords;

        let [low, high] = hasher.hash(&self.seed, key.as_slice());
        let count = self.buckets.len() as u64;
        // Multiplying and keeping the upper half takes 32 random bits to a range without a division (Lemire: "Fast random
        // integer generation in an interval", TOMACS 29(1), 2019). `count` is at most 2^31.
        let home = (low & 0xffff_ffff) * count >> 32;
        // From 1 to count - 1, so that the two differ.
        let distance = 1 + ((high & 0xffff_ffff) * (count - 1) >> 32);
        let other = home + distance;
        let other = if other >= count { other - count } else { other };
        Places { home: home as usize, other: other as usize, tag: (low >> 32) as u8 }
    }
}

/// Which code hashes
#[derive(Clone, Copy, Debug)]
enum HashKernel {
    Portable(Portable),
    #[cfg(target_arch = "x86_64")]
    AesNi(hash::AesNi),
}

impl HashKernel {
    fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(aes) = hash::AesNi::detect() {
            return Self::AesNi(aes);
        }
        Self::Portable(Portable)
    }
}
