//! The IPv4 table: 19 bits by index, 5 by bitmap, the last 8 where somebody needs them
//!
//! Bits 0 to 18 of an address index a root of 2^19 *words* of 64 bits (4 MiB). A word describes its /19 as 32 units of a
//! /24: a bitmap of the units whose next hop differs from the unit before, and the place where the next hops of these stretches
//! stand, one after the other: one byte each, or two where a number of them is above 253. So the answer is `hops[base +
//! popcount(bitmap up to the unit)]`:
//!
//! ```text
//! bit 63     62    32 31                                      1   0
//!     | two | base   | the next hop changes at unit 31 … 1     | 0 |
//!     | bytes?
//! ```
//!
//! A /19 with a single next hop needs no run of its own: the first hops stand for themselves, so its base is its next hop.
//! A /24 with longer routes has [`DIVIDED`] in place of a next hop. The run of its /19 then has, after the hops, the number of a
//! block for each such /24: 8 words (one cache line) whose units are single addresses.
//!
//! Why this one: a lookup touches two lines of 5 MiB that mostly stay in the second- and third-level cache, and
//! all but the loads is done for 16 of them side by side in a vector register. DIR-24-8 with 2-byte entries touches one line of
//! 32 MiB, which is faster only where it has the third-level cache to itself; a router that also moves packets does not
//! grant that. `cargo xtask compare lpm4` has the figures.
//!
//! A change that the present bitmap of a /19 can express writes the hops that differ in place, so lookups
//! wait for a single line. Any other one writes new runs and words aside, then puts each into effect with one word of the root or
//! of a block.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod build;
mod hops;
mod portable;
mod routes;
mod touched;

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64};

use warmlane_sync::rcu::{Domain, ForeignReader, Reader};
use warmlane_sys::pages::TableMemory;
use warmlane_sys::simd::{self, Level};

use self::build::Change;
use self::routes::Routes;
use crate::arena::Arena;
use crate::methods::{Absent, table_methods};
use crate::prefix::Ipv4Prefix;
use crate::{Address, NextHopId, TableError};

/// Bits that index the root
const ROOT_BITS: u32 = 19;
/// The length of the prefix that a root word stands for
const ROOT_LENGTH: u8 = ROOT_BITS as u8;
/// Words of the root
const ROOT_WORDS: usize = 1 << ROOT_BITS;
/// Units of a word
const UNITS: usize = 32;
/// Words of a block, each for 32 addresses of a /24
const HOST_WORDS: usize = 8;
/// Vectors of the portable code shift each number by its own count
const HAS_NEON: bool = cfg!(target_arch = "aarch64");
/// In place of a next hop: the /24 has longer routes, and a block for them
const DIVIDED: u16 = NextHopId::UNUSED;

/// IPv4 routes, found by longest match
///
/// The one who has it changes it; lanes look up through an [`Ipv4Lookup`] meanwhile.
#[derive(Debug)]
pub struct Ipv4Table {
    routes: Routes,
    words: Arena<AtomicU64>,
    hops: Arena<AtomicU16>,
    /// This and the next two are empty between changes, to have space without asking for it each time
    changes: Vec<Change>,
    /// What routes were before
    undo: Vec<(Ipv4Prefix, Option<NextHopId>)>,
    touched: Vec<Ipv4Prefix>,
    level: Level,
    domain: Option<Domain>,
}

impl Ipv4Table {
    /// A table with all `routes` at once; of two routes with the same prefix the later one stands
    ///
    /// # Errors
    /// [`TableError::NoNextHop`], [`TableError::Memory`], [`TableError::Full`].
    pub fn from_routes(
        routes: impl IntoIterator<Item = (Ipv4Prefix, NextHopId)>,
    ) -> Result<Self, TableError> {
        let routes = Routes::from_routes(routes)?;
        if let Some(prefix) = routes.without_hop() {
            return Err(TableError::NoNextHop { prefix: u32::either(prefix) });
        }
        let (words, hops) = build::arenas()?;
        let level = simd::detected();
        let (changes, undo, touched) = (Vec::new(), Vec::new(), Vec::new());
        let mut table = Self { routes, words, hops, changes, undo, touched, level, domain: None };
        table.refresh(&[Ipv4Prefix::all()])?;
        Ok(table)
    }

    /// Makes changes, all or none; returns what the last prefix had before
    fn apply_all(
        &mut self,
        changes: impl IntoIterator<Item = (Ipv4Prefix, Option<NextHopId>)>,
        absent: Absent,
    ) -> Result<Option<NextHopId>, TableError> {
        let (mut undo, mut touched) = (std::mem::take(&mut self.undo), std::mem::take(&mut self.touched));
        let result = self.change_routes(changes, absent, &mut undo).and_then(|before| {
            touched.extend(undo.iter().map(|(prefix, _)| *prefix));
            touched.sort_unstable();
            self.refresh(&touched).map(|()| before)
        });
        if result.is_err() {
            for (prefix, before) in undo.iter().rev() {
                // Needs no space, so cannot fail.
                let _ = self.routes.set(*prefix, *before);
            }
        }
        // Only now, since lists that are given back earlier would need space again.
        for (prefix, _) in undo.drain(..) {
            self.routes.tidy(prefix);
        }
        touched.clear();
        // Their space serves the next change.
        undo.shrink_to(build::KEPT_CHANGES);
        touched.shrink_to(build::KEPT_CHANGES);
        (self.undo, self.touched) = (undo, touched);
        result
    }

    /// Returns what the last prefix had before
    fn change_routes(
        &mut self,
        changes: impl IntoIterator<Item = (Ipv4Prefix, Option<NextHopId>)>,
        absent: Absent,
        undo: &mut Vec<(Ipv4Prefix, Option<NextHopId>)>,
    ) -> Result<Option<NextHopId>, TableError> {
        let mut last = None;
        for (prefix, hop) in changes {
            if hop.is_some_and(NextHopId::is_none) {
                return Err(TableError::NoNextHop { prefix: u32::either(prefix) });
            }
            let before = self.routes.set(prefix, hop)?;
            if absent == Absent::Refused && hop.is_none() && before.is_none() {
                return Err(TableError::NotFound { prefix: u32::either(prefix) });
            }
            if before != hop {
                undo.push((prefix, before));
            }
            last = before;
        }
        Ok(last)
    }

    /// A handle for lanes, whose readers are of `domain`; clone it for more. Ask for it before the lanes start: from then
    /// on, memory of old routes is used again only after all readers have reported.
    ///
    /// # Errors
    /// [`TableError::ForeignDomain`] if the table is shared with readers of another domain.
    pub fn share(&mut self, domain: &Domain) -> Result<Ipv4Lookup, TableError> {
        if self.domain.as_ref().is_some_and(|shared| !shared.is_same(domain)) {
            return Err(TableError::ForeignDomain);
        }
        self.domain = Some(domain.clone());
        self.words.share(domain);
        self.hops.share(domain);
        let (words, hops) = (Arc::clone(self.words.memory()), Arc::clone(self.hops.memory()));
        Ok(Ipv4Lookup { words, hops, level: self.level, domain: domain.clone() })
    }

    /// Takes back what readers are done with. Changes do that by themselves; after the last of many, this makes up for the
    /// rest.
    pub fn reclaim(&mut self) {
        self.words.reclaim();
        self.words.shrink_if_unused();
        self.hops.reclaim();
        self.hops.shrink_if_unused();
    }

    /// The next hop of the route to exactly this prefix
    pub fn route(&self, prefix: Ipv4Prefix) -> Option<NextHopId> {
        self.routes.get(prefix)
    }

    /// The longest route that `address` (host order) lies in
    pub fn longest_match(&self, address: u32) -> Option<(Ipv4Prefix, NextHopId)> {
        self.routes.longest_match(address)
    }

    /// The table as it is while nobody changes it
    #[inline]
    pub fn view(&self) -> Ipv4View<'_> {
        Ipv4View { words: self.words.memory(), hops: self.hops.memory(), level: self.level }
    }

    /// All routes, sorted by address, then length
    pub fn routes(&self) -> impl Iterator<Item = (Ipv4Prefix, NextHopId)> + '_ {
        self.routes.iter()
    }

    /// Number of routes
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Bytes that lookups read
    pub fn lookup_bytes(&self) -> usize {
        self.words.extent_bytes() + self.hops.extent_bytes()
    }

    /// Bytes the table takes, control side included (estimated where the standard library does not say)
    pub fn memory_bytes(&self) -> usize {
        self.routes.memory_bytes()
            + self.words.memory_bytes()
            + self.hops.memory_bytes()
            + self.changes.capacity() * size_of::<Change>()
            + self.undo.capacity() * size_of::<(Ipv4Prefix, Option<NextHopId>)>()
            + self.touched.capacity() * size_of::<Ipv4Prefix>()
    }
}

table_methods! {
    Ipv4Table of Ipv4Prefix, looked up by u32, seen as "Ipv4View",
    takes "10 MiB", insert takes
    /// Takes less than a microsecond in most places and a few among thousands of routes to hosts in one /19; or up to the time of a
    /// full build for a prefix shorter than /19, whose parts are all visited.
}

/// Looks up in an [`Ipv4Table`] while its owner changes it: a lane's handle
///
/// It outlives the table, whose last state it then shows.
#[derive(Clone, Debug)]
pub struct Ipv4Lookup {
    words: Arc<TableMemory<AtomicU64>>,
    hops: Arc<TableMemory<AtomicU16>>,
    level: Level,
    domain: Domain,
}

impl Ipv4Lookup {
    /// The table, to look up in until `reader` reports that it is done: once a burst
    ///
    /// # Errors
    /// [`ForeignReader`] if the reader is not of the domain that the table is shared with.
    #[inline]
    pub fn read<'a>(&'a self, reader: &'a Reader) -> Result<Ipv4View<'a>, ForeignReader> {
        self.domain.check(reader)?;
        Ok(Ipv4View { words: &self.words, hops: &self.hops, level: self.level })
    }
}

/// The table as lookups see it. While its owner changes it, each address is answered as before a change or as after it.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4View<'a> {
    words: &'a [AtomicU64],
    hops: &'a [AtomicU16],
    level: Level,
}

impl Ipv4View<'_> {
    /// The next hop of the longest route that `address` (host order) lies in
    pub fn lookup(&self, address: u32) -> NextHopId {
        // SAFETY: the slices are those of a table that `build` maintains, so every word leads to a run inside `hops`.
        unsafe { portable::lookup(self.words, self.hops, address) }
    }

    /// Looks up many addresses at once, the way of the data path; `hops[i]` becomes the answer to `addresses[i]`
    ///
    /// Of slices of different lengths, only the shorter length is processed. Addresses are numbers in host order.
    #[inline]
    pub fn lookup_burst(&self, addresses: &[u32], hops: &mut [NextHopId]) {
        let (words, runs) = (self.words, self.hops);
        match self.level {
            // SAFETY: only levels that this processor has are chosen. The slices are those of a table that `build` maintains, so
            // every base in `words` leads to a run inside `runs`.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { avx512::lookup_burst(words, runs, addresses, hops) },
            // SAFETY: as above, this processor has the instructions.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { portable::lookup_burst_x86_v3(words, runs, addresses, hops) },
            // On Arm, where every 64-bit processor has NEON, the compiler uses it here.
            // SAFETY: the slices are as above.
            _ => unsafe { portable::lookup_burst::<HAS_NEON>(words, runs, addresses, hops) },
        }
    }
}
