//! The routes as they were given: exact prefixes in order, for the control side
//!
//! The sorted order (address, then length) puts a prefix directly before all that it covers. So one walk over a range meets
//! every covering route before the routes inside it, and the longest route around an address is found by a few steps back.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::NextHopId;
use crate::prefix::{Address, Prefix};
use crate::work;

#[derive(Debug)]
pub(crate) struct Rib<A: Address> {
    routes: BTreeMap<Prefix<A>, NextHopId>,
}

impl<A: Address> Rib<A> {
    pub(crate) fn from_routes(routes: impl IntoIterator<Item = (Prefix<A>, NextHopId)>) -> Self {
        Self { routes: routes.into_iter().collect() }
    }

    /// Makes it the route to `prefix`, or removes that; returns what was there
    pub(crate) fn set(&mut self, prefix: Prefix<A>, hop: Option<NextHopId>) -> Option<NextHopId> {
        match hop {
            Some(hop) => self.routes.insert(prefix, hop),
            None => self.routes.remove(&prefix),
        }
    }

    pub(crate) fn get(&self, prefix: Prefix<A>) -> Option<NextHopId> {
        self.routes.get(&prefix).copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.routes.len()
    }

    /// An estimate: nodes of the standard library's B-tree hold up to 11 entries and are two thirds full after
    /// random inserts
    pub(crate) fn memory_bytes(&self) -> usize {
        self.len() * (size_of::<Prefix<A>>() + size_of::<NextHopId>()) * 3 / 2
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Prefix<A>, NextHopId)> + '_ {
        self.routes.iter().map(|(&prefix, &hop)| (prefix, hop))
    }

    pub(crate) fn longest_match(&self, address: A) -> Option<(Prefix<A>, NextHopId)> {
        let host = Prefix::containing(address, A::BITS);
        self.get(host).map(|hop| (host, hop)).or_else(|| self.covering(host))
    }

    /// The longest route that covers the whole of `prefix`, itself excepted
    fn covering(&self, prefix: Prefix<A>) -> Option<(Prefix<A>, NextHopId)> {
        let mut bound = Bound::Excluded(prefix);
        loop {
            work::add(1);
            let (&found, &hop) = self.routes.range((Bound::Unbounded, bound)).next_back()?;
            if found.covers(&prefix) {
                return Some((found, hop));
            }
            // Where `found` and `prefix` part, `found` has the 0 (it sorts before). A covering route longer than
            // what they have in common would have that bit 1 and sort between them, but nothing is there.
            bound = Bound::Included(Prefix::containing(
                prefix.first(),
                found.first().common_length(prefix.first()),
            ));
        }
    }

    /// How the routes divide the addresses of `area`: where each stretch of one next hop starts, first the area's
    /// first address; neighbours differ
    pub(crate) fn stretches(&self, area: Prefix<A>) -> Vec<Stretch<A>> {
        let outside = self.covering(area).map_or(NextHopId::NONE, |(_, hop)| hop);
        let mut out = Stretches(vec![Stretch { first: area.first(), hop: outside }]);
        let mut around: Vec<Stretch<A>> = Vec::new();
        let end = Prefix::containing(area.last(), A::BITS);
        for (prefix, &hop) in self.routes.range(area..=end) {
            work::add(1);
            // `around` holds, outermost first, the routes whose end is still ahead, each by its last address.
            while let Some(&inner) = around.last()
                && inner.first < prefix.first()
            {
                around.pop();
                out.resume_after(inner.first, around.last().map_or(outside, |route| route.hop), area);
            }
            out.push(Stretch { first: prefix.first(), hop });
            around.push(Stretch { first: prefix.last(), hop });
        }
        while let Some(inner) = around.pop() {
            out.resume_after(inner.first, around.last().map_or(outside, |route| route.hop), area);
        }
        out.0
    }

    /// Whether `area` holds more than `limit` routes
    pub(crate) fn holds_more_than(&self, limit: usize, area: Prefix<A>) -> bool {
        let end = Prefix::containing(area.last(), A::BITS);
        self.routes.range(area..=end).inspect(|_| work::add(1)).nth(limit).is_some()
    }
}

/// Addresses from `first` up to the next stretch that have the same next hop
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch<A> {
    pub(crate) first: A,
    pub(crate) hop: NextHopId,
}

struct Stretches<A>(Vec<Stretch<A>>);

impl<A: Address> Stretches<A> {
    fn push(&mut self, next: Stretch<A>) {
        // A route that starts where the one around it starts takes its place.
        if self.0.last().is_some_and(|last| last.first == next.first) {
            self.0.pop();
        }
        if self.0.last().is_none_or(|last| last.hop != next.hop) {
            self.0.push(next);
        }
    }

    fn resume_after(&mut self, last: A, hop: NextHopId, area: Prefix<A>) {
        if last < area.last() {
            self.push(Stretch { first: last.successor(), hop });
        }
    }
}
