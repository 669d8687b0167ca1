//! Where magazines change hands between lanes.
//!
//! A magazine's number is in exactly one place: in the depot, or with a lane; who has the number owns its cells.
//! Lanes exchange whole magazines, a full one for an empty one, and copy nothing (Bonwick and Adams, "Magazines and
//! Vmem", USENIX ATC 2001).
//!
//! Their depot is a plain LIFO. Between two lanes that is not the warmest order: a buffer that the other lane has
//! just read lies in *its* private cache, and writing it again waits until it is taken away from there, which costs
//! more than a line from the shared cache. So the depot recycles inside a *hot set*, first in, first out, of as
//! many magazines as the bound says: deep enough that lines have left the other lane's private cache, shallow enough that
//! the shared cache still has them. What is beyond is cold, last in, first out, and is touched only on demand.
//! `hot_bound` finds the bound.

use crate::magazine_queue::MagazineQueue;
use crate::primitive::{AtomicBool, AtomicU32, Ordering};
use warmlane_sync::index_stack::IndexStack;

/// A full magazine from the depot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    pub(crate) number: u32,
    /// It went round in the hot set.
    pub(crate) hot: bool,
}

/// How many magazines more or less the hot set may have where it should have just as many as the bound says: so many come
/// and go with what is under way.
const ALMOST: u32 = 2;

/// See the module.
pub(crate) struct Depot {
    hot: MagazineQueue,
    /// Full magazines beyond the hot set.
    cold: IndexStack,
    /// How many are in `cold`, about: counted beside it.
    cold_count: AtomicU32,
    empty: IndexStack,
    /// Magazines that the hot set should have.
    bound: AtomicU32,
    /// It should have [almost just](ALMOST) as many. If not, a lane that looks takes from the queue when at least that many
    /// are in, and until a quarter of them is gone it need not look again; and the queue grows by half of it more before
    /// magazines go to the cold side, so that what is under way comes and goes without them. But a larger set would
    /// come down to one and a half times the bound and stay there, and a smaller one come up to three quarters.
    exactly: AtomicBool,
}

impl Depot {
    /// A depot for up to `full` full magazines, with `lent` magazines with lanes at most. Magazine numbers are
    /// below [`magazines`](Self::magazines); all are empty.
    pub(crate) fn new(full: u32, lent: u32, bound: u32) -> Self {
        let slots = slots(full);
        let count = Self::magazines(full, lent);
        let empty = IndexStack::new(count);
        for number in (slots..count).rev() {
            let pushed = empty.push(number);
            debug_assert!(pushed.is_ok());
        }
        Self {
            hot: MagazineQueue::new((0..slots as usize).map(|number| number as u32)),
            cold: IndexStack::new(count),
            cold_count: AtomicU32::new(0),
            empty,
            bound: AtomicU32::new(bound),
            exactly: AtomicBool::new(true),
        }
    }

    /// How many magazines such a depot has: one for each slot of the queue, those that lanes hold, and as many as
    /// can be full, so that a lane with a full one always finds an empty one.
    pub(crate) fn magazines(full: u32, lent: u32) -> u32 {
        slots(full) + lent + full
    }

    /// Exchanges the empty magazine `empty` for a full one; `None` if there is none.
    #[inline]
    pub(crate) fn exchange_for_full(&self, empty: u32) -> Option<Full> {
        // Relaxed, here and below: any bound will do, no other memory hangs on it.
        let bound = self.bound.load(Ordering::Relaxed).max(1);
        // With nothing on the cold side, looking for it would only fetch the line that the other lane writes to.
        let cold = self.cold_count.load(Ordering::Relaxed) > 0;
        let hot = if cold {
            let slack = self.slack(bound / 4);
            self.hot.take(empty, bound - slack, slack)
        } else {
            self.hot.take(empty, 1, 0)
        };
        if let Some(number) = hot {
            return Some(Full { number, hot: true });
        }
        if let Some(number) = self.cold.pop() {
            self.cold_count.fetch_sub(1, Ordering::Relaxed);
            self.return_empty(empty);
            return Some(Full { number, hot: false });
        }
        self.hot.take(empty, 1, 0).map(|number| Full { number, hot: true })
    }

    /// Exchanges the full magazine `full` for an empty one. `None` only if lanes hold more magazines than the depot
    /// was made for.
    #[inline]
    pub(crate) fn exchange_for_empty(&self, full: u32) -> Option<u32> {
        if let Some(empty) = self.hot.put(full, self.most()) {
            return Some(empty);
        }
        let empty = self.empty.pop()?;
        self.cold_count.fetch_add(1, Ordering::Relaxed);
        let pushed = self.cold.push(full);
        debug_assert!(pushed.is_ok());
        Some(empty)
    }

    /// Lends an empty magazine to a lane.
    pub(crate) fn lend(&self) -> Option<u32> {
        self.empty.pop()
    }

    /// A lane returns an empty magazine.
    pub(crate) fn return_empty(&self, number: u32) {
        let pushed = self.empty.push(number);
        debug_assert!(pushed.is_ok());
    }

    /// How many full magazines there are, about.
    pub(crate) fn full(&self) -> u32 {
        self.hot.len() + self.cold_count.load(Ordering::Relaxed)
    }

    /// How many magazines the hot set should have.
    pub(crate) fn bound(&self) -> u32 {
        self.bound.load(Ordering::Relaxed)
    }

    /// How many magazines the hot set may have now.
    #[inline(always)]
    pub(crate) fn most(&self) -> u32 {
        let bound = self.bound.load(Ordering::Relaxed);
        bound + self.slack(bound / 2)
    }

    #[inline(always)]
    fn slack(&self, most: u32) -> u32 {
        if self.exactly.load(Ordering::Relaxed) { most.min(ALMOST) } else { most }
    }

    /// Sets how many magazines the hot set should have, and whether just as many or about that.
    pub(crate) fn set_bound(&self, bound: u32, exactly: bool) {
        // The other lane reads the line at each exchange: written only when something changes.
        if self.bound() != bound || self.exactly.load(Ordering::Relaxed) != exactly {
            self.bound.store(bound, Ordering::Relaxed);
            self.exactly.store(exactly, Ordering::Relaxed);
        }
    }
}

/// Slots for `full` full magazines: the queue wants a power of two, at least two.
const fn slots(full: u32) -> u32 {
    let slots = full.next_power_of_two();
    if slots < 2 { 2 } else { slots }
}

#[cfg(all(test, not(loom)))]
mod sizes {
    use super::*;
    use std::collections::VecDeque;

    /// A depot with 64 full magazines, and some of them under way.
    struct Traffic {
        depot: Depot,
        under_way: VecDeque<u32>,
    }

    impl Traffic {
        fn new(bound: u32) -> Self {
            let depot = Depot::new(64, 100, bound);
            for _ in 0..64 {
                let number = depot.lend().unwrap();
                depot.return_empty(depot.exchange_for_empty(number).unwrap());
            }
            Self { depot, under_way: VecDeque::new() }
        }

        /// Exchanges so often that it settles, with so many under way; returns how many magazines came from the cold side.
        fn run(&mut self, under_way: usize) -> u32 {
            let mut cold = 0;
            for _ in 0..if cfg!(miri) { 100 } else { 1_000 } {
                while self.under_way.len() < under_way {
                    let full = self.depot.exchange_for_full(self.depot.lend().unwrap()).unwrap();
                    cold += u32::from(!full.hot);
                    self.under_way.push_back(full.number);
                }
                let full = self.under_way.pop_front().unwrap();
                self.depot.return_empty(self.depot.exchange_for_empty(full).unwrap());
            }
            cold
        }
    }

    #[test]
    fn what_is_under_way_comes_on_top_of_the_hot_set_once() {
        let mut traffic = Traffic::new(16);
        traffic.depot.set_bound(16, false);
        for under_way in [1, 8, 20, 30] {
            traffic.run(under_way);
            assert_eq!(traffic.run(under_way), 0, "{under_way} under way");
            let hot = traffic.depot.hot.len();
            assert!((12..=24).contains(&hot), "{hot} in the hot set with {under_way} under way");
        }
        // What comes back beyond the set and its half goes to the cold side.
        traffic.run(1);
        assert_eq!(traffic.depot.hot.len(), 24);
    }

    #[test]
    fn it_has_the_same_size_whether_it_was_larger_or_smaller_before() {
        let mut traffic = Traffic::new(16);
        for before in [2, 40] {
            traffic.depot.set_bound(before, false);
            traffic.run(8);
            for exactly in [true, false] {
                traffic.depot.set_bound(16, exactly);
                traffic.run(8);
                let hot = traffic.depot.hot.len();
                assert!(
                    (14..=18).contains(&hot),
                    "{hot} in the hot set, {before} before, exactly: {exactly}"
                );
            }
        }
    }

    #[test]
    fn all_come_out_whatever_the_bound() {
        for (bound, exactly) in [0, 1, 16, 64].into_iter().flat_map(|bound| [(bound, true), (bound, false)]) {
            let depot = Traffic::new(bound).depot;
            depot.set_bound(bound, exactly);
            let all = std::iter::from_fn(|| depot.exchange_for_full(depot.lend().unwrap()));
            assert_eq!(all.map(|full| full.number).collect::<std::collections::HashSet<_>>().len(), 64);
            assert_eq!(depot.full(), 0);
        }
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::magazines::{Held, Magazines};
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;
    use std::sync::atomic::AtomicUsize;

    /// A depot, and for each magazine something that only its owner may touch: loom objects if two do.
    struct World {
        depot: Depot,
        owned: Vec<UnsafeCell<u32>>,
    }

    impl World {
        /// With `full` magazines full and space for `lent` with lanes.
        fn new(full: u32, lent: u32, bound: u32) -> Self {
            let depot = Depot::new(full, lent, bound);
            for _ in 0..full {
                let number = depot.lend().unwrap();
                let empty = depot.exchange_for_empty(number).unwrap();
                depot.return_empty(empty);
            }
            let owned = (0..Depot::magazines(full, lent)).map(|_| UnsafeCell::new(0)).collect();
            Self { depot, owned }
        }

        fn touch(&self, number: u32) {
            // SAFETY: that nobody else does is what is tested.
            self.owned[number as usize].with_mut(|value| unsafe { *value += 1 });
        }

        fn lane(&self) -> Magazines {
            Magazines::new(self.depot.lend().unwrap(), self.depot.lend().unwrap())
        }

        /// Takes one buffer; magazines hold one.
        fn take(&self, lane: &mut Magazines) -> bool {
            let taken = lane.loaded.length == 1
                || lane.refill(|empty| {
                    self.touch(empty);
                    let full = self.depot.exchange_for_full(empty)?;
                    self.touch(full.number);
                    Some(Held { length: 1, ..Held::empty(full.number) })
                });
            if taken {
                lane.loaded.length = 0;
                self.touch(lane.loaded.number);
            }
            taken
        }

        fn free(&self, lane: &mut Magazines) {
            if lane.loaded.length == 1 {
                lane.make_space(1, |full| {
                    self.touch(full);
                    let empty = self.depot.exchange_for_empty(full).unwrap();
                    self.touch(empty);
                    empty
                });
            }
            lane.loaded.length = 1;
            self.touch(lane.loaded.number);
        }

        /// Takes all full magazines out and counts them; each is there once.
        fn count(&self) -> u32 {
            let mut seen = std::collections::HashSet::new();
            while let Some(full) = self.depot.exchange_for_full(self.depot.lend().unwrap()) {
                self.touch(full.number);
                assert!(seen.insert(full.number));
            }
            seen.len() as u32
        }
    }

    /// Loom remembers the last access to each atomic only. A thread that looks at one and then changes it, as every exchange does,
    /// hides by its look what another thread has read before, and loom does not try the other order (tokio-rs/loom
    /// issue 392): what it finds depends on which of two threads is spawned. So each model says that it had some orders.
    fn model(test: impl Fn() + Sync + Send + 'static) {
        let orders = std::sync::Arc::new(AtomicUsize::new(0));
        let count = std::sync::Arc::clone(&orders);
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(move || {
            count.fetch_add(1, Ordering::Relaxed);
            test();
        });
        let orders = orders.load(Ordering::Relaxed);
        assert!(orders >= 10, "only {orders} orders were tried");
    }

    fn full(lane: &Magazines) -> u32 {
        (lane.loaded.length + lane.previous.length) as u32
    }

    /// One lane takes, the other frees, and every magazine has one owner at any time: full ones go one way and empty ones come
    /// back, the third time through the slot of the first.
    fn one_takes_and_one_frees(bound: u32) {
        model(move || {
            let world = Arc::new(World::new(2, 10, bound));
            let mut taker = world.lane();
            let mut freer = world.lane();
            // Two buffers were taken before, and the other lane's magazines are full: each free is an exchange.
            assert!(world.take(&mut taker) && world.take(&mut taker));
            world.free(&mut freer);
            world.free(&mut freer);
            let other = thread::spawn({
                let world = Arc::clone(&world);
                move || {
                    let taken = u32::from(world.take(&mut taker)) + u32::from(world.take(&mut taker));
                    // The lane leaves with what it holds.
                    taken + full(&taker)
                }
            });
            for _ in 0..3 {
                world.free(&mut freer);
            }
            let taken = other.join().unwrap();
            assert_eq!(world.count() + full(&freer) + taken, 5);
        });
    }

    #[test]
    fn one_takes_and_one_frees_through_the_hot_set() {
        one_takes_and_one_frees(2);
    }

    #[test]
    fn one_takes_and_one_frees_through_the_cold_side() {
        one_takes_and_one_frees(0);
    }

    #[test]
    fn two_that_take_get_different_ones() {
        model(|| {
            let world = Arc::new(World::new(2, 10, 1));
            let (mut first, mut second) = (world.lane(), world.lane());
            let other = thread::spawn({
                let world = Arc::clone(&world);
                move || u32::from(world.take(&mut second)) + u32::from(world.take(&mut second))
            });
            let taken = u32::from(world.take(&mut first));
            let other = other.join().unwrap();
            assert_eq!(world.count() + taken + other, 2);
        });
    }

    #[test]
    fn what_a_leaving_lane_returns_is_lent_again() {
        model(|| {
            let world = Arc::new(World::new(1, 2, 1));
            let leaving = world.lane();
            // Nothing but what that lane has can be lent after this.
            assert!(world.depot.lend().is_some());
            let other = thread::spawn({
                let world = Arc::clone(&world);
                move || world.depot.lend().inspect(|&number| world.touch(number)).is_some()
            });
            for held in [leaving.loaded, leaving.previous] {
                world.touch(held.number);
                world.depot.return_empty(held.number);
            }
            let lent = u32::from(other.join().unwrap());
            let rest = std::iter::from_fn(|| world.depot.lend());
            assert_eq!(rest.inspect(|&number| world.touch(number)).count() as u32 + lent, 2);
        });
    }

    #[test]
    fn a_lane_that_dies_in_an_exchange_stops_nobody() {
        model(|| {
            let world = Arc::new(World::new(2, 10, 1));
            let mut lane = world.lane();
            world.free(&mut lane);
            world.free(&mut lane);
            let dying = thread::spawn({
                let world = Arc::clone(&world);
                // It claims the first full magazine and is not heard of again.
                move || world.depot.hot.claim_and_die()
            });
            for _ in 0..2 {
                world.free(&mut lane);
            }
            let mut taken = 0;
            for _ in 0..3 {
                taken += u32::from(world.take(&mut lane));
            }
            let died = u32::from(dying.join().unwrap());
            // Four were freed; what the dead lane had is lost, and what stands behind it in the queue waits for it.
            assert_eq!(world.count() + world.depot.hot.len() + full(&lane) + taken + died, 2 + 4);
        });
    }
}
