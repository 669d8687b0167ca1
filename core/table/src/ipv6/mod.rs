//! The IPv6 table: fields where prefixes are dense, fans where they are sparse
//!
//! A lookup follows *links* of 32 bits. A link is a next hop, or leads to a node that takes up some of the bits not used yet:
//!
//! - a *field* of 2^n links, indexed by the next n bits (4 to 16, chosen by how many prefixes there are and how they lie);
//! - a *fan*, one cache line: the next 32 bits, compared with up to 7 sorted starts of stretches, choose one of 8
//!   links.
//!
//! The root is a field of 16 bits, of which the Internet uses some sixty links. Fields get fewer bits rather than many empty links: the
//! full table of 160,147 prefixes takes 6.3 MiB, and most lookups pass 3 to 6 fields and end in one fan.
//!
//! Measured on an EPYC (Zen 4, 2.6 GHz TSC) that other work kept busy, 64 next hops, bursts of 64, addresses inside
//! random prefixes: 30 cycles per lookup with AVX-512, 95 with the portable code. Fans upon fans instead of small fields read less
//! memory (4.1 MiB) but took 50 cycles; fields with four times as many links (16.8 MiB) came out the same. Asking after each vector
//! whether its walks have ended, rather than once for all eight, took 42 instead of 31 cycles in comparable runs.
//!
//! A change builds new nodes aside, then puts each into effect with one link of the lowest node that holds all of it.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod build;
mod portable;

use std::collections::HashMap;

use crate::arena::Arena;
use crate::kernel::Kernel;
use crate::prefix::Ipv6Prefix;
use crate::rib::Rib;
use crate::{Address, NextHopId, TableError};

/// Bits that index the root
const ROOT_BITS: u32 = 16;
/// 32-bit links in a cache line, the unit in which nodes are allotted
const LINKS: usize = 16;
/// One cache line of links, or a fan
type Line = [u32; LINKS];
/// Starts of stretches in a fan, the first left out; after them stand the fan's links, one more
const FAN_KEYS: usize = 7;
/// In a link: it leads to a node, else it is a next hop
const NODE: u32 = 1 << 31;
/// In a link to a node: the node is a field, else a fan
const FIELD: u32 = 1 << 30;
/// Where in a link to a field the bits that index it are counted
const STRIDE_SHIFT: u32 = 24;
/// As a mask, after the shift
const STRIDE_MASK: u32 = 0x1f;
/// In a link to a node: its first line
const FIRST_LINE: u32 = 0x00ff_ffff;

/// IPv6 routes, found by longest match
#[derive(Debug)]
pub struct Ipv6Table {
    rib: Rib<u128>,
    lines: Arena<Line>,
    /// For each field, by its first line: how many changes it still takes before its stride is chosen anew
    patience: HashMap<u32, u32>,
    kernel: Kernel,
}

impl Ipv6Table {
    /// A table without routes; takes 256 KiB
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
        routes: impl IntoIterator<Item = (Ipv6Prefix, NextHopId)>,
    ) -> Result<Self, TableError> {
        let rib = Rib::from_routes(routes);
        if let Some((prefix, _)) = rib.iter().find(|(_, hop)| hop.is_none()) {
            return Err(TableError::NoNextHop { prefix: u128::either(prefix) });
        }
        let lines = build::arena(rib.len())?;
        let mut table = Self { rib, lines, patience: HashMap::new(), kernel: Kernel::best() };
        table.refresh(Ipv6Prefix::all())?;
        Ok(table)
    }

    /// Adds a route or gives it another next hop; returns the next hop it had before
    ///
    /// Takes a few microseconds in most places, or up to the time of a full build for a short prefix, whose parts are all
    /// visited.
    ///
    /// # Errors
    /// [`TableError::NoNextHop`], [`TableError::Memory`]; the table is then unchanged.
    pub fn insert(&mut self, prefix: Ipv6Prefix, hop: NextHopId) -> Result<Option<NextHopId>, TableError> {
        if hop.is_none() {
            return Err(TableError::NoNextHop { prefix: u128::either(prefix) });
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
    pub fn remove(&mut self, prefix: Ipv6Prefix) -> Result<NextHopId, TableError> {
        let Some(hop) = self.rib.remove(prefix) else {
            return Err(TableError::NotFound { prefix: u128::either(prefix) });
        };
        if let Err(error) = self.refresh(prefix) {
            self.rib.insert(prefix, hop);
            return Err(error);
        }
        Ok(hop)
    }

    /// The next hop of the route to exactly this prefix
    pub fn route(&self, prefix: Ipv6Prefix) -> Option<NextHopId> {
        self.rib.get(prefix)
    }

    /// The next hop of the longest route that `address` (host order) lies in
    pub fn lookup(&self, address: u128) -> NextHopId {
        portable::lookup(self.lines.slots(), address)
    }

    /// Looks up many addresses at once, the way of the data path; `hops[i]` becomes the answer to `addresses[i]`
    ///
    /// Of slices of different lengths, only the shorter length is processed. Addresses are in network
    /// order, as they stand in a packet.
    #[inline]
    pub fn lookup_burst(&self, addresses: &[[u8; 16]], hops: &mut [NextHopId]) {
        let lines = self.lines.slots();
        match self.kernel {
            // SAFETY: `use_kernel` and `Kernel::best` choose only what this processor has; the lines are those of a
            // table that `build` maintains, so every link among them leads to a node inside them.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => unsafe { avx512::lookup_burst(lines, addresses, hops) },
            // SAFETY: as above, this processor has the instructions.
            #[cfg(target_arch = "x86_64")]
            Kernel::X86V3 => unsafe { portable::lookup_burst_x86_v3(lines, addresses, hops) },
            _ => portable::lookup_burst(lines, addresses, hops),
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
    pub fn routes(&self) -> impl Iterator<Item = (Ipv6Prefix, NextHopId)> + '_ {
        self.rib.iter()
    }

    /// Number of routes
    pub fn len(&self) -> usize {
        self.rib.len()
    }

    /// Bytes that lookups read
    pub fn lookup_bytes(&self) -> usize {
        self.lines.memory_bytes()
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
