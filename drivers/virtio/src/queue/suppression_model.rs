//! A model of how one side of a ring goes to sleep and the other wakes it up, of which all interleavings are tried.
//!
//! The *poster* makes descriptors available and asks afterwards whether that is to be told. The *sleeper* takes them; where there is none it says
//! that it wants to be told, looks once more, and sleeps. Each side's stores reach the other late, one after the other, unless a fence waits
//! for them: a processor with a store buffer does the same, and one that reorders more is held to no less by the acquire and release operations of
//! the rings. Nothing else about memory is modelled, and whose a descriptor is and whether an event is wanted is decided by the code that rings use.
//!
//! For packed rings the poster is the driver, and takes descriptors back that the sleeper used, so that wrap counters turn.

use crate::ring::packed::{Position, Suppression};
use crate::ring::wants_event;
use std::collections::{HashSet, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;

/// What a ring's format makes of it.
trait Format: Clone + Debug + Eq + Hash {
    /// A store that the other side sees late.
    type Store: Clone + Debug + Eq + Hash;

    fn apply(&mut self, store: &Self::Store);

    /// The poster's next descriptors, so many, as stores; `None` if there is no room.
    fn post(&mut self, count: u16) -> Option<Vec<Self::Store>>;

    /// Whether the sleeper wants to be told of what was posted since the poster asked last.
    fn asks(&mut self) -> bool;

    /// Whether something is available to the sleeper.
    fn has_some(&self) -> bool;

    /// The sleeper takes the next.
    fn take(&mut self) -> Vec<Self::Store>;

    /// The sleeper says whether it wants to be told.
    fn want(&self, wanted: bool) -> Self::Store;
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Poster {
    /// Posts the next, of which so many are left.
    Posts(u16),
    /// Has posted, and waits for the fence.
    Fences(u16),
    /// Asks whether to tell.
    Asks(u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Sleeper {
    Polls,
    /// Has said that it wants to be told, and waits for the fence.
    Fences,
    /// Looks once more.
    LooksAgain,
    Sleeps,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State<F: Format> {
    ring: F,
    poster: Poster,
    sleeper: Sleeper,
    /// Stores on their way.
    late: [VecDeque<F::Store>; 2],
    is_kicked: bool,
}

/// Which fences there are: of the poster, before it asks; of the sleeper, before it looks again.
#[derive(Clone, Copy)]
struct Fences {
    poster: bool,
    sleeper: bool,
}

const POSTER: usize = 0;
const SLEEPER: usize = 1;

impl<F: Format> State<F> {
    fn store(&mut self, side: usize, stores: impl IntoIterator<Item = F::Store>) {
        self.late[side].extend(stores);
    }

    /// What can be next.
    fn successors(&self, fences: Fences) -> Vec<Self> {
        let mut next = Vec::new();
        for side in [POSTER, SLEEPER] {
            let mut state = self.clone();
            if let Some(store) = state.late[side].pop_front() {
                state.ring.apply(&store);
                next.push(state);
            }
        }
        next.extend(self.poster_steps(fences));
        next.extend(self.sleeper_step(fences));
        next
    }

    fn poster_steps(&self, fences: Fences) -> Vec<Self> {
        let mut next = Vec::new();
        match self.poster {
            Poster::Posts(left) => {
                for count in 1..=left.min(2) {
                    let mut state = self.clone();
                    if let Some(stores) = state.ring.post(count) {
                        state.store(POSTER, stores);
                        state.poster = Poster::Fences(left - count);
                        next.push(state);
                    }
                }
            }
            Poster::Fences(left) => {
                if self.late[POSTER].is_empty() || !fences.poster {
                    next.push(Self { poster: Poster::Asks(left), ..self.clone() });
                }
            }
            Poster::Asks(left) => {
                let mut state = Self { poster: Poster::Posts(left), ..self.clone() };
                state.is_kicked |= state.ring.asks();
                next.push(state);
            }
        }
        next
    }

    fn sleeper_step(&self, fences: Fences) -> Option<Self> {
        let mut state = self.clone();
        match self.sleeper {
            Sleeper::Polls if self.ring.has_some() => {
                let stores = state.ring.take();
                state.store(SLEEPER, stores);
            }
            Sleeper::Polls => {
                state.store(SLEEPER, [self.ring.want(true)]);
                state.sleeper = Sleeper::Fences;
            }
            Sleeper::Fences => {
                if !self.late[SLEEPER].is_empty() && fences.sleeper {
                    return None;
                }
                state.sleeper = Sleeper::LooksAgain;
            }
            Sleeper::LooksAgain if self.ring.has_some() => {
                state.store(SLEEPER, [self.ring.want(false)]);
                state.sleeper = Sleeper::Polls;
            }
            Sleeper::LooksAgain => state.sleeper = Sleeper::Sleeps,
            Sleeper::Sleeps => {
                if !self.is_kicked {
                    return None;
                }
                state.is_kicked = false;
                state.store(SLEEPER, [self.ring.want(false)]);
                state.sleeper = Sleeper::Polls;
            }
        }
        Some(state)
    }

    /// It sleeps, though there is something, and nobody will tell.
    fn is_lost(&self) -> bool {
        let is_quiet = self.late.iter().all(VecDeque::is_empty) && !self.is_kicked;
        self.sleeper == Sleeper::Sleeps && self.poster == Poster::Posts(0) && is_quiet && self.ring.has_some()
    }
}

/// Tries everything; returns whether a wake-up can be lost, and how many states there are.
fn explore<F: Format>(ring: F, buffers: u16, fences: Fences) -> (bool, usize) {
    let start = State {
        ring,
        poster: Poster::Posts(buffers),
        sleeper: Sleeper::Polls,
        late: Default::default(),
        is_kicked: false,
    };
    let (mut seen, mut open) = (HashSet::from([start.clone()]), vec![start]);
    while let Some(state) = open.pop() {
        if state.is_lost() {
            return (true, seen.len());
        }
        for next in state.successors(fences) {
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    (false, seen.len())
}

/// A packed ring: flags of each descriptor, and when the sleeper wants to be told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Packed {
    flags: Vec<u16>,
    suppression: (u16, bool, bool),
    has_index: bool,
    /// Of the poster: where it posts, up to where it asked, where it takes back, and what it posted and took back.
    next: (u16, bool),
    asked: (u16, bool),
    reaped: (u16, bool),
    under_way: u16,
    /// Of the sleeper: where it takes.
    place: (u16, bool),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum PackedStore {
    Flags(u16, u16),
    /// Where the sleeper wants to be told, whether by a place at all, and whether it wants to.
    Suppression((u16, bool), bool),
}

const fn position((slot, wrap): (u16, bool)) -> Position {
    Position { slot, wrap }
}

const fn pair(position: Position) -> (u16, bool) {
    (position.slot, position.wrap)
}

impl Packed {
    fn new(size: u16, has_index: bool) -> Self {
        let start = pair(Position::START);
        Self {
            flags: vec![0; size.into()],
            suppression: (0, true, false),
            has_index,
            next: start,
            asked: start,
            reaped: start,
            under_way: 0,
            place: start,
        }
    }

    fn size(&self) -> u16 {
        self.flags.len() as u16
    }

    fn advanced(&self, place: (u16, bool)) -> (u16, bool) {
        pair(position(place).advanced(1, self.size()))
    }
}

impl Format for Packed {
    type Store = PackedStore;

    fn apply(&mut self, store: &PackedStore) {
        match *store {
            PackedStore::Flags(slot, flags) => self.flags[usize::from(slot)] = flags,
            PackedStore::Suppression((slot, wrap), wanted) => self.suppression = (slot, wrap, wanted),
        }
    }

    fn post(&mut self, count: u16) -> Option<Vec<PackedStore>> {
        while self.under_way > 0 && position(self.reaped).is_used(self.flags[usize::from(self.reaped.0)]) {
            self.reaped = self.advanced(self.reaped);
            self.under_way -= 1;
        }
        if self.under_way + count > self.size() {
            return None;
        }
        self.under_way += count;
        let mut stores = Vec::new();
        for _ in 0..count {
            stores.push(PackedStore::Flags(self.next.0, position(self.next).available_flags()));
            self.next = self.advanced(self.next);
        }
        // The first is released last: with it the others are seen.
        stores.rotate_left(1);
        Some(stores)
    }

    fn asks(&mut self) -> bool {
        let old = std::mem::replace(&mut self.asked, self.next);
        let (slot, wrap, wanted) = self.suppression;
        let suppression = match (wanted, self.has_index) {
            (false, _) => Suppression::Disabled,
            (true, true) => Suppression::At(Position { slot, wrap }),
            (true, false) => Suppression::Enabled,
        };
        match suppression {
            Suppression::Enabled => true,
            Suppression::Disabled => false,
            Suppression::At(event) => position(self.next).has_passed(event, position(old), self.size()),
        }
    }

    fn has_some(&self) -> bool {
        position(self.place).is_available(self.flags[usize::from(self.place.0)])
    }

    fn take(&mut self) -> Vec<PackedStore> {
        let used = PackedStore::Flags(self.place.0, position(self.place).used_flags());
        self.place = self.advanced(self.place);
        vec![used]
    }

    fn want(&self, wanted: bool) -> PackedStore {
        PackedStore::Suppression(self.place, wanted)
    }
}

/// A split ring, as far as its index goes, with event indices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Split {
    index: u16,
    event: u16,
    next: u16,
    asked: u16,
    place: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum SplitStore {
    Index(u16),
    Event(u16),
}

impl Format for Split {
    type Store = SplitStore;

    fn apply(&mut self, store: &SplitStore) {
        match *store {
            SplitStore::Index(index) => self.index = index,
            SplitStore::Event(event) => self.event = event,
        }
    }

    fn post(&mut self, count: u16) -> Option<Vec<SplitStore>> {
        self.next = self.next.wrapping_add(count);
        Some(vec![SplitStore::Index(self.next)])
    }

    fn asks(&mut self) -> bool {
        let old = std::mem::replace(&mut self.asked, self.next);
        wants_event(self.event, self.next, old)
    }

    fn has_some(&self) -> bool {
        self.index != self.place
    }

    fn take(&mut self) -> Vec<SplitStore> {
        self.place = self.place.wrapping_add(1);
        Vec::new()
    }

    fn want(&self, wanted: bool) -> SplitStore {
        SplitStore::Event(if wanted { self.place } else { self.place.wrapping_sub(1) })
    }
}

const BOTH: Fences = Fences { poster: true, sleeper: true };

fn split(start: u16) -> Split {
    Split { index: start, event: start.wrapping_sub(1), next: start, asked: start, place: start }
}

#[test]
fn no_wake_up_is_lost_at_a_packed_ring() {
    for has_index in [false, true] {
        for size in 1..=3 {
            let (is_lost, states) = explore(Packed::new(size, has_index), 2 * size + 2, BOTH);
            assert!(!is_lost && states > 100, "size {size}, {states} states");
        }
    }
}

#[test]
fn no_wake_up_is_lost_at_a_split_ring() {
    for start in [0, u16::MAX - 2] {
        let (is_lost, states) = explore(split(start), 6, BOTH);
        assert!(!is_lost && states > 100, "from {start}, {states} states");
    }
}

/// The model would find it.
#[test]
fn without_either_fence_a_wake_up_can_be_lost() {
    for fences in [Fences { poster: false, ..BOTH }, Fences { sleeper: false, ..BOTH }] {
        assert!(explore(split(0), 3, fences).0);
        for has_index in [false, true] {
            assert!(explore(Packed::new(2, has_index), 3, fences).0);
        }
    }
}
