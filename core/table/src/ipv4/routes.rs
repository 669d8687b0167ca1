//! The IPv4 routes as they were given, for the control side
//!
//! Routes of /19 and longer stand in a small sorted list for each /19, so that a change finds all it needs in a few cache
//! lines, whatever the size of the table. A route takes 32 bits there and a list's head 64, so that changes do not drive what
//! lookups read out of the cache that both share. The few shorter routes are in one tree, and what they amount to for
//! each /19 in an array.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{ROOT_BITS, ROOT_LENGTH, ROOT_WORDS};
use crate::NextHopId;
use crate::arena::{Arena, NoSpace};
use crate::prefix::{Address, Ipv4Prefix};
use crate::rib::Rib;
use crate::work;

/// A route of /19 or longer, without the 19 bits that its list stands for: in the upper half its other bits, then a 1, then
/// zeros, so that the 1 tells the length; in the lower half the next hop
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Route(u32);

/// Bits of an address after those of its /19
const INNER_BITS: u32 = u32::BITS - ROOT_BITS;

impl Route {
    fn new(prefix: Ipv4Prefix, hop: NextHopId) -> Self {
        let inner = prefix.first() % (1 << INNER_BITS);
        let end = 1 << (u32::BITS - u32::from(prefix.length()));
        Self((inner << 1 | end) << 16 | u32::from(hop.stored()))
    }

    /// The 13 bits of its first address
    fn inner(self) -> u32 {
        let code = self.0 >> 16;
        (code & (code - 1)) >> 1
    }

    pub(super) fn length(self) -> u8 {
        u32::BITS as u8 - (self.0 >> 16).trailing_zeros() as u8
    }

    /// By which a list is sorted: address, then length
    fn order(self) -> u32 {
        self.inner() << 8 | u32::from(self.length())
    }

    /// Its first address, less that of the /19
    pub(super) fn first(self) -> usize {
        self.inner() as usize
    }

    /// Its last address, less the first of the /19
    pub(super) fn last(self) -> usize {
        (self.inner() | !u32::mask(self.length())) as usize
    }

    pub(super) fn stored_hop(self) -> u16 {
        self.0 as u16
    }

    fn hop(self) -> NextHopId {
        NextHopId::from_stored(self.stored_hop())
    }

    fn prefix(self, slot: usize) -> Ipv4Prefix {
        Ipv4Prefix::containing((slot as u32) << INNER_BITS | self.inner(), self.length())
    }
}

/// Where the routes of a /19 stand
#[derive(Clone, Copy, Default)]
struct List {
    start: u32,
    count: u16,
    /// Routes that it has space for
    capacity: u16,
}

/// A list has space for a multiple of this many routes
const STEP: usize = 4;
/// Routes that addresses are reserved for, 256 MiB
const MOST_ROUTES: usize = 1 << 26;

/// The number of the /19 that an address lies in
pub(super) fn slot_of(address: u32) -> usize {
    (address >> (u32::BITS - ROOT_BITS)) as usize
}

pub(super) struct Routes {
    /// Those shorter than /19
    short: Rib<u32>,
    /// For each /19 the next hop of the longest of these around it
    around: Box<[u16]>,
    /// For each /19 its other routes, sorted
    lists: Box<[List]>,
    long: Arena<AtomicU32>,
    count: usize,
}

impl Routes {
    /// Of two routes to the same prefix the later one stands
    pub(super) fn from_routes(
        routes: impl IntoIterator<Item = (Ipv4Prefix, NextHopId)>,
    ) -> Result<Self, NoSpace> {
        let mut long = Vec::new();
        let mut short = Vec::new();
        for (prefix, hop) in routes {
            if prefix.length() < ROOT_LENGTH {
                short.push((prefix, hop));
            } else {
                long.push((prefix, hop));
            }
        }
        let short = Rib::from_routes(short);
        let mut routes = Self {
            count: short.len(),
            short,
            around: vec![0; ROOT_WORDS].into_boxed_slice(),
            lists: vec![List::default(); ROOT_WORDS].into_boxed_slice(),
            long: Arena::new(0, MOST_ROUTES)?,
        };
        routes.find_around(Ipv4Prefix::all());
        // Stable, so the later of equals is the last.
        long.sort_by_key(|(prefix, _)| *prefix);
        for list in long.chunk_by(|(one, _), (other, _)| slot_of(one.first()) == slot_of(other.first())) {
            let slot = slot_of(list[0].0.first());
            routes.reserve(slot, list.len())?;
            for (index, (prefix, hop)) in list.iter().enumerate() {
                if list.get(index + 1).is_none_or(|(next, _)| next != prefix) {
                    let end = usize::from(routes.lists[slot].count);
                    routes.insert_at(slot, end, Route::new(*prefix, *hop));
                }
            }
        }
        Ok(routes)
    }

    /// Makes it the route to `prefix`, or removes that; returns what was there. To take a change back needs no space as
    /// long as it was not [tidied](Self::tidy).
    pub(super) fn set(
        &mut self,
        prefix: Ipv4Prefix,
        hop: Option<NextHopId>,
    ) -> Result<Option<NextHopId>, NoSpace> {
        if prefix.length() < ROOT_LENGTH {
            let before = self.short.set(prefix, hop);
            self.count = self.count + usize::from(hop.is_some()) - usize::from(before.is_some());
            self.find_around(prefix);
            return Ok(before);
        }
        let slot = slot_of(prefix.first());
        let wanted = Route::new(prefix, hop.unwrap_or_default());
        let index = self.index(slot, wanted);
        let before = self.at(slot, index).filter(|found| found.order() == wanted.order());
        match (before, hop) {
            (Some(_), Some(_)) => self.slots(slot)[index].store(wanted.0, Ordering::Relaxed),
            (Some(_), None) => self.remove_at(slot, index),
            (None, Some(_)) => {
                self.reserve(slot, usize::from(self.lists[slot].count) + 1)?;
                self.insert_at(slot, index, wanted);
            }
            (None, None) => {}
        }
        Ok(before.map(Route::hop))
    }

    /// Gives back space that a list has no use for, after a change that stands
    pub(super) fn tidy(&mut self, prefix: Ipv4Prefix) {
        let list = &mut self.lists[slot_of(prefix.first())];
        if list.count == 0 && list.capacity > 0 {
            self.long.retire(list.start, usize::from(list.capacity));
            *list = List::default();
            self.long.shrink_if_unused();
        }
    }

    /// The first route in a list that does not sort before `route`
    fn index(&self, slot: usize, route: Route) -> usize {
        let routes = &self.slots(slot)[..usize::from(self.lists[slot].count)];
        routes.partition_point(|other| Route(other.load(Ordering::Relaxed)).order() < route.order())
    }

    fn at(&self, slot: usize, index: usize) -> Option<Route> {
        let routes = &self.slots(slot)[..usize::from(self.lists[slot].count)];
        routes.get(index).map(|route| Route(route.load(Ordering::Relaxed)))
    }

    fn slots(&self, slot: usize) -> &[AtomicU32] {
        let List { start, capacity, .. } = self.lists[slot];
        &self.long.memory()[start as usize..][..usize::from(capacity)]
    }

    /// Sees to it that a list has space for `count` routes, of which there are at most 2^14 - 1
    fn reserve(&mut self, slot: usize, count: usize) -> Result<(), NoSpace> {
        let list = self.lists[slot];
        if count <= usize::from(list.capacity) {
            return Ok(());
        }
        // Large lists grow by more, so that growing takes constant time for each route.
        let capacity = (count + count / 8).next_multiple_of(STEP);
        let start = self.long.take(capacity)?;
        for (to, route) in self.long.memory()[start as usize..].iter().zip(self.inside(slot)) {
            to.store(route.0, Ordering::Relaxed);
        }
        if list.capacity > 0 {
            self.long.retire(list.start, usize::from(list.capacity));
        }
        self.lists[slot] = List { start, capacity: capacity as u16, ..list };
        Ok(())
    }

    fn insert_at(&mut self, slot: usize, index: usize, route: Route) {
        let count = usize::from(self.lists[slot].count);
        let slots = self.slots(slot);
        shift(&slots[index..=count], 0, 1);
        slots[index].store(route.0, Ordering::Relaxed);
        self.lists[slot].count += 1;
        self.count += 1;
    }

    fn remove_at(&mut self, slot: usize, index: usize) {
        let count = usize::from(self.lists[slot].count);
        shift(&self.slots(slot)[index..count], 1, 0);
        self.lists[slot].count -= 1;
        self.count -= 1;
    }

    fn find_around(&mut self, area: Ipv4Prefix) {
        let stretches = self.short.stretches(area);
        let ends = stretches[1..].iter().map(|next| slot_of(next.first)).chain([slot_of(area.last()) + 1]);
        for (stretch, end) in stretches.iter().zip(ends) {
            self.around[slot_of(stretch.first)..end].fill(stretch.hop.stored());
        }
    }

    /// The next hop of the longest route around the whole /19 and shorter than it
    pub(super) fn around(&self, slot: usize) -> u16 {
        self.around[slot]
    }

    /// The routes of a /19 and longer in it, sorted: what lies in another route comes after it
    pub(super) fn inside(&self, slot: usize) -> impl Iterator<Item = Route> + '_ {
        let routes = &self.slots(slot)[..usize::from(self.lists[slot].count)];
        // Relaxed: nobody but the owner of the table uses them.
        let routes = routes.iter().inspect(|_| work::add(1));
        routes.map(|route| Route(route.load(Ordering::Relaxed)))
    }

    /// Those of them that start at these addresses, less the first of the /19
    pub(super) fn starting_in(&self, slot: usize, part: Range<usize>) -> impl Iterator<Item = Route> + '_ {
        let routes = &self.slots(slot)[..self.count_inside(slot)];
        let start = |route: &AtomicU32| Route(route.load(Ordering::Relaxed)).first();
        let first = routes.partition_point(|route| start(route) < part.start);
        let routes = routes[first..].iter().inspect(|_| work::add(1));
        let routes = routes.map(|route| Route(route.load(Ordering::Relaxed)));
        routes.take_while(move |route| route.first() < part.end)
    }

    /// How many there are of them
    pub(super) fn count_inside(&self, slot: usize) -> usize {
        self.lists[slot].count.into()
    }

    /// The next hop of the longest route that is not longer than `length` and lies around this address, less the first of
    /// the /19
    pub(super) fn around_part(&self, slot: usize, inner: usize, length: u8) -> u16 {
        let address = (slot << INNER_BITS | inner) as u32;
        let hop =
            (ROOT_LENGTH..=length).rev().find_map(|length| self.get(Ipv4Prefix::containing(address, length)));
        hop.map_or(self.around(slot), NextHopId::stored)
    }

    pub(super) fn get(&self, prefix: Ipv4Prefix) -> Option<NextHopId> {
        if prefix.length() < ROOT_LENGTH {
            return self.short.get(prefix);
        }
        let slot = slot_of(prefix.first());
        let wanted = Route::new(prefix, NextHopId::NONE);
        let found = self.at(slot, self.index(slot, wanted))?;
        (found.order() == wanted.order()).then(|| found.hop())
    }

    pub(super) fn longest_match(&self, address: u32) -> Option<(Ipv4Prefix, NextHopId)> {
        let slot = slot_of(address);
        let inner = address as usize % (1 << INNER_BITS);
        // Of those around the address, the longest sorts last.
        match self.inside(slot).filter(|route| (route.first()..=route.last()).contains(&inner)).last() {
            Some(route) => Some((route.prefix(slot), route.hop())),
            None => self.short.longest_match(address),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// An estimate, as the tree's is
    pub(super) fn memory_bytes(&self) -> usize {
        self.short.memory_bytes()
            + self.around.len() * size_of::<u16>()
            + self.lists.len() * size_of::<List>()
            + self.long.memory_bytes()
    }

    /// The first that has no next hop, of long ones before short ones
    pub(super) fn without_hop(&self) -> Option<Ipv4Prefix> {
        let of_list = |slot| self.inside(slot).find(|route| route.hop().is_none()).map(|it| it.prefix(slot));
        let long = (0..ROOT_WORDS).find_map(of_list);
        long.or_else(|| self.short.iter().find(|(_, hop)| hop.is_none()).map(|(prefix, _)| prefix))
    }

    /// Sorted by address, then length
    pub(super) fn iter(&self) -> impl Iterator<Item = (Ipv4Prefix, NextHopId)> + '_ {
        let mut short = self.short.iter().peekable();
        let long = (0..ROOT_WORDS)
            .flat_map(|slot| self.inside(slot).map(move |route| (route.prefix(slot), route.hop())));
        let mut long = long.peekable();
        std::iter::from_fn(move || match (short.peek(), long.peek()) {
            (Some((first, _)), Some((second, _))) if second < first => long.next(),
            (Some(_), _) => short.next(),
            (None, _) => long.next(),
        })
    }
}

/// Moves what stands at `from` and after it to `to`, as far as both are in the list
fn shift(list: &[AtomicU32], from: usize, to: usize) {
    let count = list.len().saturating_sub(from.max(to));
    // They move as bytes, a line of 64 at a time.
    work::add(count * size_of::<AtomicU32>() / 64);
    let start = list.as_ptr().cast_mut();
    // SAFETY: both parts are in the list, whose entries may be written through a shared reference; nobody but the owner of the
    // table, who is here, uses them.
    unsafe { std::ptr::copy(start.add(from.min(list.len())), start.add(to.min(list.len())), count) };
}

impl std::fmt::Debug for Routes {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Routes").field("count", &self.count).finish_non_exhaustive()
    }
}
