//! The routes as they were given: exact prefixes in order, for the control side
//!
//! The sorted order (address, then length) puts a prefix directly before all that it covers. So one walk over a range meets
//! every covering route before the routes inside it, and the longest route around an address is found by a few steps back.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::NextHopId;
use crate::prefix::{Address, Prefix};

#[derive(Clone, Debug)]
pub(crate) struct Rib<A: Address> {
    routes: BTreeMap<Prefix<A>, NextHopId>,
}

impl<A: Address> Rib<A> {
    pub(crate) fn new() -> Self {
        Self { routes: BTreeMap::new() }
    }

    pub(crate) fn from_routes(routes: impl IntoIterator<Item = (Prefix<A>, NextHopId)>) -> Self {
        Self { routes: routes.into_iter().collect() }
    }

    pub(crate) fn insert(&mut self, prefix: Prefix<A>, hop: NextHopId) -> Option<NextHopId> {
        self.routes.insert(prefix, hop)
    }

    pub(crate) fn remove(&mut self, prefix: Prefix<A>) -> Option<NextHopId> {
        self.routes.remove(&prefix)
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

    /// The longest route that covers the whole of `prefix`, itself excepted
    pub(crate) fn covering(&self, prefix: Prefix<A>) -> Option<(Prefix<A>, NextHopId)> {
        self.longest(prefix, Bound::Excluded(prefix))
    }

    /// The longest route that `address` lies in
    pub(crate) fn longest_match(&self, address: A) -> Option<(Prefix<A>, NextHopId)> {
        let host = Prefix::containing(address, A::BITS);
        self.longest(host, Bound::Included(host))
    }

    fn longest(&self, inner: Prefix<A>, mut bound: Bound<Prefix<A>>) -> Option<(Prefix<A>, NextHopId)> {
        loop {
            let (&found, &hop) = self.routes.range((Bound::Unbounded, bound)).next_back()?;
            if found.covers(&inner) {
                return Some((found, hop));
            }
            // Where `found` and `inner` part, `found` has the 0 (it sorts before). A covering route longer than
            // what they have in common would have that bit 1 and sort between them, but nothing is there.
            bound = Bound::Included(Prefix::containing(
                inner.first(),
                found.first().common_length(inner.first()),
            ));
        }
    }
}
