//! What copies cost, by size, and from and to where.

use crate::bench::Bench;
use crate::error::LabError;
use crate::measure::Measure;
use crate::random::Xorshift;
use crate::setting::Lanes;
use std::hint::black_box;
use warmlane_sys::clock;
use warmlane_sys::pages::{MappingError, TableMemory};
use warmlane_sys::vector::{self, Vector, Work};

pub(super) const BENCHES: &[Bench] = &[
    Bench {
        name: "copy",
        unit: "copy",
        sentence: "copy 1 to 8,192 bytes from cache to cache, the geometric mean over 37 sizes",
        lanes: Lanes::One,
        prepare: |_| prepare(COLUMNS[0]),
    },
    Bench {
        name: "copy-to-memory",
        unit: "copy",
        sentence: "the same from cache to memory",
        lanes: Lanes::One,
        prepare: |_| prepare(COLUMNS[1]),
    },
    Bench {
        name: "copy-from-memory",
        unit: "copy",
        sentence: "the same from memory to cache",
        lanes: Lanes::One,
        prepare: |_| prepare(COLUMNS[2]),
    },
    Bench {
        name: "copy-in-memory",
        unit: "copy",
        sentence: "the same from memory to memory",
        lanes: Lanes::One,
        prepare: |_| prepare(COLUMNS[3]),
    },
];

/// The sizes of DPDK's own measurement, `app/test/test_memcpy_perf.c`, from which the talk's table comes; but 0.
pub(crate) const SIZES: [usize; 37] = [
    1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 320, 384, 511, 512, 513,
    1023, 1024, 1025, 1518, 1522, 1600, 2048, 3072, 4096, 5120, 6144, 7168, 8192,
];
const LARGEST: usize = 8_192;
/// Copies begin at a multiple of so many bytes, as in the talk's table.
const ALIGNMENT: usize = 32;
/// Where copies from the cache come from, in such steps: half a page away from where copies to the cache go. Lines at the same place of two pages can have the same tag in the
/// first-level cache of AMD's processors (docs/performance-pools.md), in some processes and not in others; so half a page keeps copies of up to 2,048 bytes apart.
const CACHED_SOURCE: usize = 2_048 / ALIGNMENT;
/// So many such addresses are in no cache.
const SLOTS: usize = 1 << 22;
/// Bytes from the first of them to the end of a copy at the last.
const MEMORY: usize = SLOTS * ALIGNMENT + LARGEST;
/// Copies between two looks at the clock, each elsewhere.
pub(crate) const BATCH: usize = 100;

/// Where copies go from and to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endpoints {
    /// The word for it in tables.
    pub(crate) name: &'static str,
    /// The words for it on the peer's command line.
    pub(crate) argument: &'static str,
    from_memory: bool,
    to_memory: bool,
}

/// The columns of the talk's table.
pub(crate) const COLUMNS: [Endpoints; 4] = [
    Endpoints { name: "cache to cache", argument: "cache-cache", from_memory: false, to_memory: false },
    Endpoints { name: "cache to memory", argument: "cache-memory", from_memory: false, to_memory: true },
    Endpoints { name: "memory to cache", argument: "memory-cache", from_memory: true, to_memory: false },
    Endpoints { name: "memory to memory", argument: "memory-memory", from_memory: true, to_memory: true },
];

/// What copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    /// [`Vector::copy`].
    Ours,
    /// The C library's `memcpy`.
    Library,
}

/// The memory that copies take place in. Only random addresses in much of it are cold, so all of it is written once.
pub(crate) struct Memory {
    destination: TableMemory<[u8; MEMORY]>,
    source: TableMemory<[u8; MEMORY]>,
}

impl Memory {
    pub(crate) fn new() -> Result<Self, MappingError> {
        let (mut destination, mut source) =
            (TableMemory::<[u8; MEMORY]>::zeroed(1)?, TableMemory::<[u8; MEMORY]>::zeroed(1)?);
        destination[0].fill(1);
        source[0].fill(2);
        Ok(Self { destination, source })
    }
}

/// Copies of all sizes. The random walk through memory begins anew in every round, and in `peers/copy.c` alike: so all variants take
/// the same addresses in the same order, however many copies they came to in the round before.
pub(crate) struct Copies {
    endpoints: Endpoints,
    variant: Variant,
    random: Xorshift,
    /// The cycles of all batches, size by size, since the round began.
    cycles: [u64; SIZES.len()],
    sweeps: u64,
    counted: f64,
}

impl Copies {
    pub(crate) fn new(endpoints: Endpoints, variant: Variant) -> Self {
        Self {
            endpoints,
            variant,
            random: Xorshift(Xorshift::SEED),
            cycles: [0; SIZES.len()],
            sweeps: 0,
            counted: 0.0,
        }
    }

    pub(crate) fn begin(&mut self) {
        *self = Self::new(self.endpoints, self.variant);
    }

    /// One batch of each size; returns how many copies these were.
    pub(crate) fn sweep(&mut self, memory: &mut Memory) -> u64 {
        let mut logarithms = 0.0;
        for (index, &size) in SIZES.iter().enumerate() {
            let cycles = self.batch(memory, black_box(size));
            self.cycles[index] += cycles;
            logarithms += (cycles.max(1) as f64).ln();
        }
        self.sweeps += 1;
        let copies = (SIZES.len() * BATCH) as f64;
        // The geometric mean of what a batch takes, for each batch.
        self.counted += (logarithms / SIZES.len() as f64).exp() / BATCH as f64 * copies;
        (SIZES.len() * BATCH) as u64
    }

    /// Where the copies of a batch go from and to.
    fn slots(&mut self) -> [(usize, usize); BATCH] {
        let mut slots = [(0, 0); BATCH];
        for (from, to) in &mut slots {
            *from = if self.endpoints.from_memory { self.anywhere() } else { CACHED_SOURCE };
            *to = if self.endpoints.to_memory { self.anywhere() } else { 0 };
        }
        slots
    }

    fn batch(&mut self, memory: &mut Memory, size: usize) -> u64 {
        let slots = self.slots();
        let Memory { destination, source } = memory;
        let (destination, source) = (&mut destination[0], &source[0]);
        let begin = clock::cycles_ordered();
        let batch = Batch { destination, source, slots: &slots, size };
        match self.variant {
            Variant::Ours => vector::run(batch),
            Variant::Library => library(batch),
        }
        clock::cycles_ordered() - begin
    }

    fn anywhere(&mut self) -> usize {
        self.random.upper() as usize % SLOTS
    }

    /// Cycles a copy of each size since the round began.
    pub(crate) fn of_sizes(&self) -> Vec<f64> {
        let copies = self.sweeps.max(1) * BATCH as u64;
        self.cycles.iter().map(|cycles| *cycles as f64 / copies as f64).collect()
    }
}

struct Batch<'a> {
    destination: &'a mut [u8; MEMORY],
    source: &'a [u8; MEMORY],
    slots: &'a [(usize, usize); BATCH],
    size: usize,
}

impl Work for Batch<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self, vector: V) {
        let size = self.size.min(LARGEST);
        for &(from, to) in self.slots {
            // The compiler sees that these are inside, and checks nothing, as the peers don't.
            let (from, to) = (from % SLOTS * ALIGNMENT, to % SLOTS * ALIGNMENT);
            vector.copy(&mut self.destination[to..to + size], &self.source[from..from + size]);
        }
    }
}

#[inline(never)]
fn library(batch: Batch<'_>) {
    let Batch { destination, source, slots, size } = batch;
    let size = size.min(LARGEST);
    for &(from, to) in slots {
        let (from, to) = (from % SLOTS * ALIGNMENT, to % SLOTS * ALIGNMENT);
        // A slice's copy of unknown length is a call of `memcpy`.
        destination[to..to + size].copy_from_slice(&source[from..from + size]);
    }
}

/// Copies with the memory for them.
struct Bound {
    copies: Copies,
    memory: Memory,
}

impl Measure for Bound {
    fn work(&mut self) -> u64 {
        self.copies.sweep(&mut self.memory)
    }

    fn begin(&mut self) {
        self.copies.begin();
    }

    #[expect(clippy::cast_sign_loss, reason = "a sum of cycles is positive")]
    fn counted_cycles(&self) -> Option<u64> {
        Some(self.copies.counted.round() as u64)
    }
}

fn prepare(endpoints: Endpoints) -> Result<Box<dyn Measure>, LabError> {
    let memory = Memory::new().map_err(LabError::setup)?;
    Ok(Box::new(Bound { copies: Copies::new(endpoints, Variant::Ours), memory }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_walk_through_memory_alike_in_every_round() {
        let mut variants = [Variant::Ours, Variant::Library].map(|variant| Copies::new(COLUMNS[3], variant));
        let first = variants.each_mut().map(Copies::slots);
        assert_eq!(first[0], first[1]);
        assert!(first[0].windows(2).all(|pair| pair[0] != pair[1]) && first[0] != variants[0].slots());
        // One of them came to more copies in this round.
        variants.iter_mut().for_each(Copies::begin);
        assert_eq!(variants.each_mut().map(Copies::slots), first);
    }
}
