//! The IPv4 routes as they were given, for the control side
//!
//! Routes of /19 and longer stand in a small sorted list for each /19, so that a change finds all it needs in a few cache
//! lines, whatever the size of the table. The few that are shorter are in one tree, and what they amount to for
//! each /19 in an array.

use crate::NextHopId;
use crate::prefix::{Address, Ipv4Prefix};
use crate::rib::Rib;

use super::{ROOT_BITS, ROOT_LENGTH, ROOT_WORDS};

/// A route in a list: address, length and next hop in 32, 8 and 16 bits, so that they sort as prefixes do
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Route(u64);

const HOP_BITS: u32 = 16;
const LENGTH_BITS: u32 = 8;

impl Route {
    fn new(prefix: Ipv4Prefix, hop: NextHopId) -> Self {
        Self(key(prefix) << HOP_BITS | u64::from(hop.stored()))
    }

    fn key(self) -> u64 {
        self.0 >> HOP_BITS
    }

    pub(super) fn first(self) -> u32 {
        (self.0 >> (HOP_BITS + LENGTH_BITS)) as u32
    }

    pub(super) fn length(self) -> u8 {
        (self.0 >> HOP_BITS) as u8
    }

    pub(super) fn last(self) -> u32 {
        self.first() | !u32::mask(self.length())
    }

    pub(super) fn stored_hop(self) -> u16 {
        self.0 as u16
    }

    fn prefix(self) -> Ipv4Prefix {
        Ipv4Prefix::containing(self.first(), self.length())
    }

    fn hop(self) -> NextHopId {
        NextHopId::from_stored(self.stored_hop())
    }
}

fn key(prefix: Ipv4Prefix) -> u64 {
    u64::from(prefix.first()) << LENGTH_BITS | u64::from(prefix.length())
}

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
    long: Box<[Vec<Route>]>,
    count: usize,
}

impl Routes {
    /// Of two routes to the same prefix the later one stands
    pub(super) fn from_routes(routes: impl IntoIterator<Item = (Ipv4Prefix, NextHopId)>) -> Self {
        let mut long = vec![Vec::new(); ROOT_WORDS].into_boxed_slice();
        let mut short = Vec::new();
        for (prefix, hop) in routes {
            if prefix.length() < ROOT_LENGTH {
                short.push((prefix, hop));
            } else {
                long[slot_of(prefix.first())].push(Route::new(prefix, hop));
            }
        }
        let short = Rib::from_routes(short);
        let mut count = short.len();
        for list in &mut long {
            list.sort_by_key(|route| route.key());
            // `dedup_by` keeps the first of equals, which therefore takes the later one's value.
            list.dedup_by(|later, kept| {
                let same = later.key() == kept.key();
                if same {
                    *kept = *later;
                }
                same
            });
            count += list.len();
        }
        let mut routes = Self { short, around: vec![0; ROOT_WORDS].into_boxed_slice(), long, count };
        routes.find_around(Ipv4Prefix::all());
        routes
    }

    /// Makes it the route to `prefix`, or removes that; returns what was there
    pub(super) fn set(&mut self, prefix: Ipv4Prefix, hop: Option<NextHopId>) -> Option<NextHopId> {
        let before = if prefix.length() < ROOT_LENGTH {
            let before = self.short.set(prefix, hop);
            self.find_around(prefix);
            before
        } else {
            let list = &mut self.long[slot_of(prefix.first())];
            let place = list.binary_search_by_key(&key(prefix), |route| route.key());
            match (place, hop) {
                (Ok(index), Some(hop)) => {
                    Some(std::mem::replace(&mut list[index], Route::new(prefix, hop)).hop())
                }
                (Ok(index), None) => {
                    let before = list.remove(index).hop();
                    if list.len() <= list.capacity() / 4 {
                        list.shrink_to_fit();
                    }
                    Some(before)
                }
                (Err(index), Some(hop)) => {
                    list.insert(index, Route::new(prefix, hop));
                    None
                }
                (Err(_), None) => None,
            }
        };
        self.count = self.count + usize::from(hop.is_some()) - usize::from(before.is_some());
        before
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
    pub(super) fn inside(&self, slot: usize) -> &[Route] {
        &self.long[slot]
    }

    pub(super) fn get(&self, prefix: Ipv4Prefix) -> Option<NextHopId> {
        if prefix.length() < ROOT_LENGTH {
            return self.short.get(prefix);
        }
        let list = self.inside(slot_of(prefix.first()));
        let index = list.binary_search_by_key(&key(prefix), |route| route.key()).ok()?;
        Some(list[index].hop())
    }

    pub(super) fn longest_match(&self, address: u32) -> Option<(Ipv4Prefix, NextHopId)> {
        let list = self.inside(slot_of(address));
        let before = &list[..list.partition_point(|route| route.first() <= address)];
        // Of those around the address the longest starts last, or sorts last among equal starts.
        match before.iter().rev().find(|route| route.last() >= address) {
            Some(route) => Some((route.prefix(), route.hop())),
            None => self.short.longest_match(address),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// An estimate, as the tree's is
    pub(super) fn memory_bytes(&self) -> usize {
        let lists: usize = self.long.iter().map(|list| list.capacity() * size_of::<Route>()).sum();
        self.short.memory_bytes()
            + self.around.len() * size_of::<u16>()
            + self.long.len() * size_of::<Vec<Route>>()
            + lists
    }

    /// Sorted by address, then length
    pub(super) fn iter(&self) -> impl Iterator<Item = (Ipv4Prefix, NextHopId)> + '_ {
        let mut short = self.short.iter().peekable();
        let mut long = self.long.iter().flatten().map(|route| (route.prefix(), route.hop())).peekable();
        std::iter::from_fn(move || match (short.peek(), long.peek()) {
            (Some((first, _)), Some((second, _))) if second < first => long.next(),
            (Some(_), _) => short.next(),
            (None, _) => long.next(),
        })
    }
}

impl std::fmt::Debug for Routes {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Routes").field("count", &self.count).finish_non_exhaustive()
    }
}
