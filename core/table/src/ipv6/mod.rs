//! The IPv6 table: indexed where prefixes are dense, searched where they are sparse
//!
//! A lookup follows *links* of 32 bits, from a root that 16 bits index. A link is a next hop, or leads to a node that takes up
//! some of the bits not used yet:
//!
//! - a *field* of 2^n links, indexed by the next n bits (4 to 16, chosen by how many prefixes there are and how they lie);
//! - a *leaf*, one cache line for the next 16 bits: up to 16 stretches, of each the last value and the next hop;
//! - a *branch* for the same 16 bits: a line of up to 32 last values, and after it as many leaves;
//! - a *fan*, one cache line for the next 32 bits or fewer: up to 8 stretches, of each the last value and a link.
//!
//! Registries give out /32s and networks announce /48s, so nearly all addresses go: root, a field of 16 bits, and there a
//! next hop, a leaf, or a branch and a leaf. Longer prefixes lead on, by fields where there are many and by fans where there
//! are few. A search compares a line at once, with one vector instruction or two.
//!
//! A burst takes each step for all of its 64 addresses together. Each step sorts them by what the next one has to do and
//! asks for its lines, so no code waits for one line alone and none branches on what only memory knows (see `walk`).
//!
//! A change goes along the way to its prefix. It makes the nodes on it anew, with the links that they had to all else, and puts
//! them into effect with one link of the lowest field on the way; so it costs the same however many routes lie beside it (see
//! `change`). A field that its contents have outgrown gets more bits now and then; what lies below its children stays (see
//! `restride`).

mod build;
mod change;
mod node;
mod overlay;
mod restride;
mod walk;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::collections::HashMap;
use std::sync::Arc;

use warmlane_sync::rcu::{Domain, ForeignReader, Reader};
use warmlane_sys::pages::TableMemory;
use warmlane_sys::simd::{self, Level};

use self::change::Journal;
use self::node::Line;
use self::walk::Portable;
use crate::arena::Arena;
use crate::methods::{Absent, table_methods};
use crate::prefix::Ipv6Prefix;
use crate::rib::Rib;
use crate::{Address, NextHopId, TableError};

/// IPv6 routes, found by longest match
///
/// The one who has it changes it; lanes look up through an [`Ipv6Lookup`] meanwhile.
#[derive(Debug)]
pub struct Ipv6Table {
    rib: Rib<u128>,
    lines: Arena<Line>,
    /// For each field, by its first line: how many changes it still takes before its stride is chosen anew
    changes_left: HashMap<u32, u32>,
    /// Empty between changes, to have space without asking for it each time
    journal: Journal,
    level: Level,
    domain: Option<Domain>,
}

impl Ipv6Table {
    /// A table with all `routes` at once; of two routes with the same prefix the later one stands
    ///
    /// # Errors
    /// [`TableError::NoNextHop`], [`TableError::Memory`], [`TableError::Full`].
    pub fn from_routes(
        routes: impl IntoIterator<Item = (Ipv6Prefix, NextHopId)>,
    ) -> Result<Self, TableError> {
        let rib = Rib::from_routes(routes);
        if let Some((prefix, _)) = rib.iter().find(|(_, hop)| hop.is_none()) {
            return Err(TableError::NoNextHop { prefix: u128::either(prefix) });
        }
        let lines = build::arena()?;
        let (changes_left, journal) = (HashMap::new(), Journal::default());
        let mut table = Self { rib, lines, changes_left, journal, level: simd::detected(), domain: None };
        table.refresh(&[Ipv6Prefix::all()])?;
        Ok(table)
    }

    /// Makes changes, all or none; returns what the last prefix had before
    fn apply_all(
        &mut self,
        changes: impl IntoIterator<Item = (Ipv6Prefix, Option<NextHopId>)>,
        absent: Absent,
    ) -> Result<Option<NextHopId>, TableError> {
        let mut undo = Vec::new();
        let result = self.change_routes(changes, absent, &mut undo).and_then(|before| {
            let mut touched: Vec<_> = undo.iter().map(|(prefix, _)| *prefix).collect();
            touched.sort_unstable();
            self.refresh(&touched).map(|()| before)
        });
        if result.is_err() {
            for (prefix, before) in undo.into_iter().rev() {
                self.rib.set(prefix, before);
            }
        }
        result
    }

    /// Returns what the last prefix had before
    fn change_routes(
        &mut self,
        changes: impl IntoIterator<Item = (Ipv6Prefix, Option<NextHopId>)>,
        absent: Absent,
        undo: &mut Vec<(Ipv6Prefix, Option<NextHopId>)>,
    ) -> Result<Option<NextHopId>, TableError> {
        let mut last = None;
        self.journal.removes = false;
        for (prefix, hop) in changes {
            if hop.is_some_and(NextHopId::is_none) {
                return Err(TableError::NoNextHop { prefix: u128::either(prefix) });
            }
            let before = self.rib.set(prefix, hop);
            if absent == Absent::Refused && hop.is_none() && before.is_none() {
                return Err(TableError::NotFound { prefix: u128::either(prefix) });
            }
            if before != hop {
                self.journal.removes |= hop.is_none();
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
    pub fn share(&mut self, domain: &Domain) -> Result<Ipv6Lookup, TableError> {
        if self.domain.as_ref().is_some_and(|shared| !shared.is_same(domain)) {
            return Err(TableError::ForeignDomain);
        }
        self.domain = Some(domain.clone());
        self.lines.share(domain);
        Ok(Ipv6Lookup { lines: Arc::clone(self.lines.memory()), level: self.level, domain: domain.clone() })
    }

    /// Takes back what readers are done with. Changes do that by themselves; after the last of many, this makes up for the
    /// rest.
    pub fn reclaim(&mut self) {
        self.lines.reclaim();
        self.lines.shrink_if_unused();
    }

    /// The next hop of the route to exactly this prefix
    pub fn route(&self, prefix: Ipv6Prefix) -> Option<NextHopId> {
        self.rib.get(prefix)
    }

    /// The longest route that `address` (host order) lies in
    pub fn longest_match(&self, address: u128) -> Option<(Ipv6Prefix, NextHopId)> {
        self.rib.longest_match(address)
    }

    /// The table as it is while nobody changes it
    #[inline]
    pub fn view(&self) -> Ipv6View<'_> {
        Ipv6View { lines: self.lines.memory(), level: self.level }
    }

    /// All routes, sorted by address, then length
    pub fn routes(&self) -> impl Iterator<Item = (Ipv6Prefix, NextHopId)> + '_ {
        self.rib.iter()
    }

    /// Number of routes
    pub fn len(&self) -> usize {
        self.rib.len()
    }

    /// Bytes that lookups read
    pub fn lookup_bytes(&self) -> usize {
        self.lines.extent_bytes()
    }

    /// Bytes the table takes, control side included (estimated where the standard library does not say)
    pub fn memory_bytes(&self) -> usize {
        self.rib.memory_bytes()
            + self.lines.memory_bytes()
            + self.changes_left.capacity() * size_of::<(u32, u32)>()
            + self.journal.memory_bytes()
    }
}

table_methods! {
    Ipv6Table of Ipv6Prefix, looked up by [u8; 16], seen as "Ipv6View",
    takes "256 KiB", insert takes
    /// Takes a few microseconds for a prefix with no longer routes inside, however many are near, and up to the time of a full build
    /// for a short one, whose parts are all visited. Now and then a field has to grow as well, which visits its links, at most 65,536,
    /// and the nodes right below: up to some milliseconds, but less than a microsecond for each route that came since it grew
    /// last.
}

/// Looks up in an [`Ipv6Table`] while its owner changes it: a lane's handle
///
/// It outlives the table, whose last state it then shows.
#[derive(Clone, Debug)]
pub struct Ipv6Lookup {
    lines: Arc<TableMemory<Line>>,
    level: Level,
    domain: Domain,
}

impl Ipv6Lookup {
    /// The table, to look up in until `reader` reports that it is done: once a burst
    ///
    /// # Errors
    /// [`ForeignReader`] if the reader is not of the domain that the table is shared with.
    #[inline]
    pub fn read<'a>(&'a self, reader: &'a Reader) -> Result<Ipv6View<'a>, ForeignReader> {
        self.domain.check(reader)?;
        Ok(Ipv6View { lines: &self.lines, level: self.level })
    }
}

/// The table as lookups see it. While its owner changes it, each address is answered as before a change or as after it.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6View<'a> {
    lines: &'a [Line],
    level: Level,
}

impl Ipv6View<'_> {
    /// The next hop of the longest route that `address` (network order, as it stands in a packet) lies in
    pub fn lookup(&self, address: [u8; 16]) -> NextHopId {
        // SAFETY: the lines are those of a table that `build` maintains. Nodes that links lead to are not written as long as
        // this view lives: it borrows either the table, or a reader without whose report they are not used again.
        unsafe { walk::lookup::<Portable>(self.lines, u128::from_be_bytes(address)) }
    }

    /// Looks up many addresses at once, the way of the data path; `hops[i]` becomes the answer to `addresses[i]`
    ///
    /// Of slices of different lengths, only the shorter length is processed. Addresses are in network
    /// order.
    #[inline]
    pub fn lookup_burst(&self, addresses: &[[u8; 16]], hops: &mut [NextHopId]) {
        match self.level {
            // SAFETY: as in `lookup`; only levels that this processor has are chosen.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { x86::lookup_burst_avx512(self.lines, addresses, hops) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { x86::lookup_burst_avx2(self.lines, addresses, hops) },
            // SAFETY: as in `lookup`. On Arm, where every 64-bit processor has NEON, the compiler uses it here.
            _ => unsafe { walk::lookup_burst::<Portable>(self.lines, addresses, hops) },
        }
    }
}
