//! The IPv4 table: 19 bits by index, 5 by bitmap, the last 8 where somebody needs them
//!
//! Bits 0 to 18 of an address index a root of 2^19 *words* of 64 bits (4 MiB). A word describes its /19 as 32 units of a
//! /24: a bitmap of the units whose next hop differs from the unit before, and the place where the next hops of these stretches
//! stand, one after the other, 16 bits each. So the answer is `hops[base + popcount(bitmap up to the unit)]`:
//!
//! ```text
//! bit 63           32 31                                      1   0
//!     | base          | the next hop changes at unit 31 … 1     | 0 |   hops[base + …] is the answer
//!     | first word    |                                       0 | 1 |   words[first + unit] continues
//! ```
//!
//! A /19 with a single next hop needs no run of its own: the first 65,536 hops are the numbers themselves, so its
//! base is its next hop. Only a /19 with prefixes longer than /24 continues: in 32 words for its /24s, which are of one next hop
//! or continue in 8 words (one cache line) whose units are single addresses.
//!
//! Why this one: a lookup touches two lines of 6 MiB that mostly stay in the second- and third-level cache, and
//! 16 of them go side by side in a vector register. DIR-24-8 with 2-byte entries touches one line of 32 MiB. Prototypes of
//! both on an EPYC (Zen 4, 2.6 GHz TSC, 1 MiB L2, 32 MiB L3 shared with neighbours), with the 901,899 prefixes of the BGP
//! table, 64 next hops and bursts of 64, in cycles per lookup:
//!
//! | addresses | this, AVX-512 | this, one by one | with 32-bit hops, AVX-512 | DIR-24-8, one by one |
//! |---|---|---|---|---|
//! | uniform | 3.5 | 6.8 | 4.0 | 10.9 |
//! | inside random prefixes | 4.1 | 6.8 | 4.6 | 3.3 |
//!
//! DIR-24-8 wins only where its table has the third-level cache to itself, which a router that also moves packets does not
//! grant: with 5,000 next hops and a busy neighbour it took 9.3 where this took 8.0. The table as it stands here, with a
//! neighbour at work, takes 5.1 and 5.2 with AVX-512 and 6.6 with the x86-64-v3 kernel.
//!
//! A change writes new runs and words aside, then puts each into effect with one word of the root or of a block.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod build;
mod portable;

use crate::arena::Arena;
use crate::kernel::Kernel;
use crate::prefix::Ipv4Prefix;
use crate::rib::Rib;
use crate::{Address, NextHopId, TableError};

/// Bits that index the root
const ROOT_BITS: u32 = 19;
/// Words of the root
const ROOT_WORDS: usize = 1 << ROOT_BITS;
/// Units of a word, and words in which a /19 continues
const UNITS: usize = 32;
/// Words in which a /24 continues, each for 32 addresses
const HOST_WORDS: usize = 8;
/// The first hops stand for themselves
const HOP_NUMBERS: usize = 1 << 16;
/// In bit 0 of a word: its lower half is not a bitmap, its upper half is where words continue
const CONTINUES: u64 = 1;

/// IPv4 routes, found by longest match
#[derive(Debug)]
pub struct Ipv4Table {
    rib: Rib<u32>,
    words: Arena<u64>,
    hops: Arena<u16>,
    kernel: Kernel,
}

impl Ipv4Table {
    /// A table without routes; takes 4.2 MiB
    ///
    /// # Errors
    /// [`TableError::Memory`] when the system gives none.
    pub fn new() -> Result<Self, TableError> {
        Self::from_routes([])
    }

    /// A table with all `routes` at once; of two routes with the same prefix the later one stands
    ///
    /// # Errors
    /// [`TableError::NoNextHop`], [`TableError::Memory`].
    pub fn from_routes(
        routes: impl IntoIterator<Item = (Ipv4Prefix, NextHopId)>,
    ) -> Result<Self, TableError> {
        let rib = Rib::from_routes(routes);
        if let Some((prefix, _)) = rib.iter().find(|(_, hop)| hop.is_none()) {
            return Err(TableError::NoNextHop { prefix: u32::either(prefix) });
        }
        let (words, hops) = build::arenas(rib.len())?;
        let mut table = Self { rib, words, hops, kernel: Kernel::best() };
        table.refresh(Ipv4Prefix::all())?;
        Ok(table)
    }

    /// Adds a route or gives it another next hop; returns the next hop it had before
    ///
    /// Takes a few microseconds, or up to the time of a full build for a prefix shorter than /19, whose parts are
    /// all visited.
    ///
    /// # Errors
    /// [`TableError::NoNextHop`], [`TableError::Memory`]; the table is then unchanged.
    pub fn insert(&mut self, prefix: Ipv4Prefix, hop: NextHopId) -> Result<Option<NextHopId>, TableError> {
        if hop.is_none() {
            return Err(TableError::NoNextHop { prefix: u32::either(prefix) });
        }
        let before = self.rib.insert(prefix, hop);
        if before == Some(hop) {
            return Ok(before);
        }
        if let Err(error) = self.refresh(prefix) {
            match before {
                Some(before) => self.rib.insert(prefix, before),
                None => self.rib.remove(prefix),
            };
            return Err(error);
        }
        Ok(before)
    }

    /// Takes a route away; returns the next hop it had
    ///
    /// # Errors
    /// [`TableError::NotFound`] when this very prefix has no route, [`TableError::Memory`]; the table is then unchanged.
    pub fn remove(&mut self, prefix: Ipv4Prefix) -> Result<NextHopId, TableError> {
        let Some(hop) = self.rib.remove(prefix) else {
            return Err(TableError::NotFound { prefix: u32::either(prefix) });
        };
        if let Err(error) = self.refresh(prefix) {
            self.rib.insert(prefix, hop);
            return Err(error);
        }
        Ok(hop)
    }

    /// The next hop of the route to exactly this prefix
    pub fn route(&self, prefix: Ipv4Prefix) -> Option<NextHopId> {
        self.rib.get(prefix)
    }

    /// The next hop of the longest route that `address` (host order) lies in
    pub fn lookup(&self, address: u32) -> NextHopId {
        portable::lookup(self.words.slots(), self.hops.slots(), address)
    }

    /// Looks up many addresses at once, the way of the data path; `hops[i]` becomes the answer to `addresses[i]`
    ///
    /// Of slices of different lengths, only the shorter length is processed. Addresses are numbers in host order.
    #[inline]
    pub fn lookup_burst(&self, addresses: &[u32], hops: &mut [NextHopId]) {
        let (words, runs) = (self.words.slots(), self.hops.slots());
        match self.kernel {
            // SAFETY: `use_kernel` and `Kernel::best` choose only what this processor has; the slices are those of a table
            // that `build` maintains, so every base in `words` leads to a run inside `runs`.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => unsafe { avx512::lookup_burst(words, runs, addresses, hops) },
            // SAFETY: as above, this processor has the instructions.
            #[cfg(target_arch = "x86_64")]
            Kernel::X86V3 => unsafe { portable::lookup_burst_x86_v3(words, runs, addresses, hops) },
            _ => portable::lookup_burst(words, runs, addresses, hops),
        }
    }

    /// Chooses the kernel of [`lookup_burst`](Self::lookup_burst), to measure or to test; returns false and changes
    /// nothing when this machine cannot run it. A new table takes [`Kernel::best`].
    pub fn use_kernel(&mut self, kernel: Kernel) -> bool {
        let available = kernel.is_available();
        if available {
            self.kernel = kernel;
        }
        available
    }

    /// All routes, sorted by address, then length
    pub fn routes(&self) -> impl Iterator<Item = (Ipv4Prefix, NextHopId)> + '_ {
        self.rib.iter()
    }

    /// Number of routes
    pub fn len(&self) -> usize {
        self.rib.len()
    }

    /// Bytes that lookups read
    pub fn lookup_bytes(&self) -> usize {
        self.words.memory_bytes() + self.hops.memory_bytes()
    }

    /// Bytes the table takes, control side included (estimated where the standard library does not say)
    pub fn memory_bytes(&self) -> usize {
        self.rib.memory_bytes() + self.lookup_bytes()
    }

    /// Whether there is no route
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
