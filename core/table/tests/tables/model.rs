//! The tables against an obviously right model: a hash map that is asked for every length, longest first

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use warmlane_sys::random::Random;
use warmlane_sys::simd::Level;
use warmlane_table::{Address, Ipv4Prefix, Ipv4Table, Ipv6Prefix, Ipv6Table, NextHopId, Prefix, TableError};

/// What the tests ask of both families
pub(crate) trait Table: Sized {
    type A: Address;
    fn from_routes(routes: &[(Prefix<Self::A>, NextHopId)]) -> Result<Self, TableError>;
    fn insert(&mut self, prefix: Prefix<Self::A>, hop: NextHopId) -> Result<Option<NextHopId>, TableError>;
    fn remove(&mut self, prefix: Prefix<Self::A>) -> Result<NextHopId, TableError>;
    fn route(&self, prefix: Prefix<Self::A>) -> Option<NextHopId>;
    fn lookup(&self, address: Self::A) -> NextHopId;
    fn burst(&self, addresses: &[Self::A]) -> Vec<NextHopId>;
    fn use_level(&mut self, level: Level) -> bool;
    fn routes(&self) -> Vec<(Prefix<Self::A>, NextHopId)>;
    fn apply(
        &mut self,
        changes: impl Iterator<Item = (Prefix<Self::A>, Option<NextHopId>)>,
    ) -> Result<(), TableError>;
    fn longest_match(&self, address: Self::A) -> Option<(Prefix<Self::A>, NextHopId)>;
    fn lookup_bytes(&self) -> usize;
    fn memory_bytes(&self) -> usize;
    fn before(address: Self::A) -> Self::A;
}

macro_rules! table {
    ($table:ty, $address:ty, $wire:expr) => {
        impl Table for $table {
            type A = $address;
            fn from_routes(routes: &[(Prefix<$address>, NextHopId)]) -> Result<Self, TableError> {
                <$table>::from_routes(routes.iter().copied())
            }
            fn insert(
                &mut self,
                prefix: Prefix<$address>,
                hop: NextHopId,
            ) -> Result<Option<NextHopId>, TableError> {
                self.insert(prefix, hop)
            }
            fn remove(&mut self, prefix: Prefix<$address>) -> Result<NextHopId, TableError> {
                self.remove(prefix)
            }
            fn route(&self, prefix: Prefix<$address>) -> Option<NextHopId> {
                self.route(prefix)
            }
            fn lookup(&self, address: $address) -> NextHopId {
                self.lookup(($wire)(&address))
            }
            fn burst(&self, addresses: &[$address]) -> Vec<NextHopId> {
                let wire: Vec<_> = addresses.iter().map($wire).collect();
                let mut hops = vec![NextHopId::new(60_000).unwrap(); wire.len()];
                self.lookup_burst(&wire, &mut hops);
                hops
            }
            fn use_level(&mut self, level: Level) -> bool {
                self.use_level(level)
            }
            fn routes(&self) -> Vec<(Prefix<$address>, NextHopId)> {
                self.routes().collect()
            }
            fn apply(
                &mut self,
                changes: impl Iterator<Item = (Prefix<$address>, Option<NextHopId>)>,
            ) -> Result<(), TableError> {
                self.apply(changes)
            }
            fn longest_match(&self, address: $address) -> Option<(Prefix<$address>, NextHopId)> {
                self.longest_match(address)
            }
            fn lookup_bytes(&self) -> usize {
                self.lookup_bytes()
            }
            fn memory_bytes(&self) -> usize {
                self.memory_bytes()
            }
            fn before(address: $address) -> $address {
                address.wrapping_sub(1)
            }
        }
    };
}
table!(Ipv4Table, u32, |address: &u32| *address);
table!(Ipv6Table, u128, |address: &u128| address.to_be_bytes());

fn expected<A: Address>(model: &HashMap<Prefix<A>, NextHopId>, address: A) -> Option<(Prefix<A>, NextHopId)> {
    let mut around = (0..=A::BITS).rev().map(|length| Prefix::containing(address, length));
    around.find_map(|prefix| Some((prefix, *model.get(&prefix)?)))
}

/// Space that an empty table may keep for the next changes
const ROOM: usize = 256 << 10;

pub(crate) fn assert_empty<T: Table>(table: &T) {
    let empty = T::from_routes(&[]).unwrap();
    assert_eq!(table.lookup_bytes(), empty.lookup_bytes());
    assert!(table.memory_bytes() <= empty.memory_bytes() + ROOM, "{}", table.memory_bytes());
}

/// The ends of each prefix and their neighbours
pub(crate) fn boundaries<T: Table>(prefixes: impl Iterator<Item = Prefix<T::A>>) -> Vec<T::A> {
    prefixes
        .flat_map(|prefix| {
            let (first, last) = (prefix.first(), prefix.last());
            [first, first.successor(), T::before(first), last, last.successor(), T::before(last)]
        })
        .collect()
}

pub(crate) fn check<T: Table>(table: &mut T, model: &HashMap<Prefix<T::A>, NextHopId>, addresses: &[T::A]) {
    let matches: Vec<_> = addresses.iter().map(|&address| expected(model, address)).collect();
    let answers: Vec<_> = matches.iter().map(|found| found.map_or(NextHopId::NONE, |(_, hop)| hop)).collect();
    for ((&address, &answer), &found) in addresses.iter().zip(&answers).zip(&matches) {
        assert_eq!(table.lookup(address), answer, "{}", Prefix::containing(address, T::A::BITS));
        assert_eq!(table.longest_match(address), found, "{}", Prefix::containing(address, T::A::BITS));
    }
    for kernel in Level::available().iter().copied() {
        assert!(table.use_level(kernel));
        assert_eq!(table.burst(addresses), answers, "{kernel}");
    }
    let ordered: BTreeMap<_, _> = model.iter().map(|(&prefix, &hop)| (prefix, hop)).collect();
    assert_eq!(table.routes(), ordered.into_iter().collect::<Vec<_>>());
}

/// Applies changes (with `None` for a removal), comparing what each returns, then everything at the end, then takes
/// all routes away
fn apply<T: Table>(start: &[(Prefix<T::A>, NextHopId)], changes: &[(Prefix<T::A>, Option<NextHopId>)]) {
    let mut model: HashMap<_, _> = start.iter().copied().collect();
    let mut table = T::from_routes(start).unwrap();
    let prefixes = start.iter().map(|(prefix, _)| *prefix).chain(changes.iter().map(|(prefix, _)| *prefix));
    let addresses = boundaries::<T>(prefixes);
    check(&mut table, &model, &addresses);
    for (index, &(prefix, hop)) in changes.iter().enumerate() {
        match hop {
            Some(hop) => assert_eq!(table.insert(prefix, hop), Ok(model.insert(prefix, hop))),
            None => assert_eq!(
                table.remove(prefix),
                model.remove(&prefix).ok_or(TableError::NotFound { prefix: T::A::either(prefix) })
            ),
        }
        assert_eq!(table.route(prefix), hop);
        if index % 8 == 0 {
            check(&mut table, &model, &addresses);
        }
    }
    check(&mut table, &model, &addresses);
    for prefix in std::mem::take(&mut model).into_keys() {
        table.remove(prefix).unwrap();
    }
    check(&mut table, &model, &addresses);
    assert_empty(&table);
}

/// Applies the changes as batches of this size. Those that remove what is not there must leave everything as it was.
fn apply_in_batches<T: Table>((start, changes): &Changes<T::A>, size: usize) {
    let mut model: HashMap<_, _> = start.iter().copied().collect();
    let mut table = T::from_routes(start).unwrap();
    let prefixes = start.iter().map(|(prefix, _)| *prefix).chain(changes.iter().map(|(prefix, _)| *prefix));
    let addresses = boundaries::<T>(prefixes);
    for batch in changes.chunks(size) {
        let mut changed = model.clone();
        let missing = batch.iter().find(|(prefix, hop)| match hop {
            Some(hop) => {
                changed.insert(*prefix, *hop);
                false
            }
            None => changed.remove(prefix).is_none(),
        });
        let result = table.apply(batch.iter().copied());
        match missing {
            None => model = changed,
            Some((prefix, _)) => {
                assert_eq!(result, Err(TableError::NotFound { prefix: T::A::either(*prefix) }));
                // Without those that failed, so that the rest is tried as well.
                let mut left = model.clone();
                let valid = batch.iter().copied().filter(|(prefix, hop)| match hop {
                    Some(hop) => {
                        left.insert(*prefix, *hop);
                        true
                    }
                    None => left.remove(prefix).is_some(),
                });
                let valid: Vec<_> = valid.collect();
                check(&mut table, &model, &addresses);
                assert_eq!(table.apply(valid.into_iter()), Ok(()));
                model = left;
            }
        }
        check(&mut table, &model, &addresses);
    }
    let removals: Vec<_> = model.drain().map(|(prefix, _)| (prefix, None)).collect();
    assert_eq!(table.apply(removals.into_iter()), Ok(()));
    check(&mut table, &model, &addresses);
    assert_empty(&table);
}

/// Prefixes that lie in each other and side by side: a few places, and near them changes of single bits
fn clustered<A: Address>(bits: impl Fn(u8) -> A + Clone + 'static) -> impl Strategy<Value = Prefix<A>> {
    let edges: Vec<u8> = [0, 1, 8, 15, 16, 17, 18, 19, 20, 23, 24, 25, 26, 27, 28, 29, 31, 32]
        .into_iter()
        .chain([33, 36, 40, 47, 48, 49, 56, 63, 64, 65, 80, 96, 112, 126, 127, 128])
        .filter(|&edge| edge <= A::BITS)
        .collect();
    let place = prop::sample::select(vec![vec![], vec![2, 18], vec![2, 18, 23, 30], vec![0, 1, 2, 3, 4]]);
    let near = prop::collection::vec(0..A::BITS, 0..3);
    let length = prop_oneof![3 => prop::sample::select(edges), 1 => 0..=A::BITS];
    let ones = prop::bool::weighted(0.1);
    (place, near, length, ones).prop_map(move |(place, near, length, ones)| {
        let start = if ones { A::mask(A::BITS) } else { A::mask(0) };
        let address = place.into_iter().chain(near).fold(start, |address, bit| address ^ bits(bit));
        Prefix::containing(address, length)
    })
}

fn hop() -> impl Strategy<Value = NextHopId> {
    // Small ones, those around the largest that IPv4 stores in a byte, and any.
    prop_oneof![4 => 0u32..4, 1 => 252u32..257, 1 => 0..=NextHopId::MAXIMUM]
        .prop_map(|number| NextHopId::new(number).unwrap())
}

type Changes<A> = (Vec<(Prefix<A>, NextHopId)>, Vec<(Prefix<A>, Option<NextHopId>)>);

fn changes<A: Address>(bits: impl Fn(u8) -> A + Clone + 'static) -> impl Strategy<Value = Changes<A>> {
    let start = prop::collection::vec((clustered(bits.clone()), hop()), 0..20);
    let pool = prop::collection::vec(clustered(bits), 1..24);
    // From a pool, so that removals find something and inserts replace.
    let changes = pool.prop_flat_map(|pool| {
        let change = (prop::sample::select(pool), prop::option::weighted(0.7, hop()));
        prop::collection::vec(change, 0..60)
    });
    (start, changes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn ipv4_answers_as_the_model_does((start, changes) in changes(|bit| 1u32 << (31 - bit))) {
        apply::<Ipv4Table>(&start, &changes);
    }

    #[test]
    fn ipv4_batches_answer_as_the_model_does(
        changes in changes(|bit| 1u32 << (31 - bit)),
        size in 5_usize..40,
    ) {
        apply_in_batches::<Ipv4Table>(&changes, size);
    }

    #[test]
    fn ipv6_batches_answer_as_the_model_does(
        changes in changes(|bit| 1u128 << (127 - bit)),
        size in 5_usize..40,
    ) {
        apply_in_batches::<Ipv6Table>(&changes, size);
    }

    #[test]
    fn ipv6_answers_as_the_model_does((start, changes) in changes(|bit| 1u128 << (127 - bit))) {
        apply::<Ipv6Table>(&start, &changes);
    }
}

pub(crate) fn random_hop(random: &mut Random) -> NextHopId {
    NextHopId::new(random.below(300) as u32).unwrap()
}

/// Many routes, dense enough that every part of the structure is used; then churn, then everything away
fn large<T: Table>(prefix: impl Fn(&mut Random) -> Prefix<T::A>, count: usize, churn: usize) {
    let mut random = Random::new(0);
    let mut model: HashMap<_, _> =
        (0..count).map(|_| (prefix(&mut random), random_hop(&mut random))).collect();
    let start: Vec<_> = model.iter().map(|(&prefix, &hop)| (prefix, hop)).collect();
    let mut table = T::from_routes(&start).unwrap();
    let some = |model: &HashMap<Prefix<T::A>, NextHopId>| {
        boundaries::<T>(model.keys().step_by(model.len() / 2000 + 1).copied())
    };
    let addresses = some(&model);
    check(&mut table, &model, &addresses);
    for _ in 0..churn {
        let added = prefix(&mut random);
        let hop = random_hop(&mut random);
        assert_eq!(table.insert(added, hop), Ok(model.insert(added, hop)));
        let gone = start[random.below(start.len())].0;
        assert_eq!(table.remove(gone).ok(), model.remove(&gone));
    }
    let addresses: Vec<_> = addresses.into_iter().chain(some(&model)).collect();
    check(&mut table, &model, &addresses);
    for prefix in std::mem::take(&mut model).into_keys() {
        table.remove(prefix).unwrap();
    }
    check(&mut table, &model, &addresses);
    assert_empty(&table);
}

#[test]
fn ipv4_at_the_size_of_the_internet() {
    let prefix = |random: &mut Random| {
        let length = match random.below(100) {
            0 => 8 + random.below(8),
            1..10 => 16 + random.below(4),
            10..40 => 20 + random.below(4),
            40..97 => 24,
            _ => 25 + random.below(8),
        };
        Ipv4Prefix::containing(random.bits() as u32 & 0x7fff_ffff, length as u8)
    };
    large::<Ipv4Table>(prefix, 900_000, 20_000);
}

#[test]
fn ipv6_at_the_size_of_the_internet() {
    let prefix = |random: &mut Random| {
        let length = match random.below(100) {
            0..3 => 20 + random.below(12),
            3..20 => 32,
            20..45 => 33 + random.below(15),
            45..97 => 48,
            97 => 49 + random.below(16),
            _ => 65 + random.below(64),
        };
        let top = [0x2001, 0x2400, 0x2600, 0x2a00, 0x2a02][random.below(5)];
        // Registries fill allocations from the bottom, so few bits vary in each group of sixteen.
        let (middle, site) = (random.bits() & 0x0fff, random.bits() & random.bits() & 0xffff);
        let address = u128::from(top << 48 | middle << 36 | site << 16) << 64 | u128::from(random.bits());
        Ipv6Prefix::containing(address, length as u8)
    };
    large::<Ipv6Table>(prefix, 200_000, 5_000);
}

/// A burst of any length, also one that fills no vector, and slices of different lengths
fn lengths<T: Table>(table: &mut T, addresses: &[T::A]) {
    for kernel in Level::available().iter().copied() {
        assert!(table.use_level(kernel));
        for length in [0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129] {
            let part = &addresses[..length];
            let expected: Vec<_> = part.iter().map(|&address| table.lookup(address)).collect();
            assert_eq!(table.burst(part), expected, "{kernel}, {length}");
        }
    }
}

#[test]
fn bursts_of_any_length() {
    let hop = |number| NextHopId::new(number).unwrap();
    let routes = [("10.0.0.0/8", 1), ("10.1.0.0/16", 2), ("10.1.1.128/25", 3), ("10.1.1.129/32", 4)];
    let routes: Vec<_> = routes.iter().map(|(text, id)| (text.parse().unwrap(), hop(*id))).collect();
    let mut table = Ipv4Table::from_routes(routes).unwrap();
    let near: Vec<_> = (0..129).map(|index| 0x0a01_0181 - 64 + index).collect();
    lengths(&mut table, &near);
    let mut answers = [hop(9); 3];
    table.lookup_burst(&near[..2], &mut answers);
    assert_eq!(answers[2], hop(9), "what has no address keeps its answer");
    table.lookup_burst(&near, &mut answers);
    assert_eq!(answers, [hop(2); 3]);

    let routes =
        [("2001:db8::/32", 1), ("2001:db8:1::/48", 2), ("2001:db8:1::80/121", 3), ("2001:db8:1::81/128", 4)];
    let routes: Vec<_> = routes.iter().map(|(text, id)| (text.parse().unwrap(), hop(*id))).collect();
    let mut table = Ipv6Table::from_routes(routes).unwrap();
    let start = 0x2001_0db8_0001_0000_0000_0000_0000_0081_u128 - 64;
    let near: Vec<_> = (0..129).map(|index| start + index).collect();
    lengths(&mut table, &near);
    let mut answers = [hop(9); 3];
    table.lookup_burst(&[near[128].to_be_bytes(); 2], &mut answers);
    assert_eq!(answers, [hop(3), hop(3), hop(9)]);
}

#[test]
fn what_is_removed_in_a_batch_need_not_be_there() {
    let hop = |number| NextHopId::new(number).unwrap();
    let (ten, longer): (Ipv4Prefix, Ipv4Prefix) =
        ("10.0.0.0/8".parse().unwrap(), "10.1.0.0/16".parse().unwrap());
    let mut table = Ipv4Table::new().unwrap();
    table.set_all([(longer, None), (ten, Some(hop(1))), (longer, Some(hop(2))), (longer, None)]).unwrap();
    table.set_all([(longer, None), (longer, None)]).unwrap();
    assert_eq!((table.len(), table.lookup(0x0a01_0001)), (1, hop(1)));
    // All or nothing still.
    let nowhere = table.set_all([(ten, None), (longer, Some(NextHopId::NONE))]);
    assert!(matches!(nowhere, Err(TableError::NoNextHop { .. })), "{nowhere:?}");
    assert_eq!((table.len(), table.lookup(0x0a01_0001)), (1, hop(1)));

    let (site, part): (Ipv6Prefix, Ipv6Prefix) =
        ("2001:db8::/32".parse().unwrap(), "2001:db8:1::/48".parse().unwrap());
    let mut table = Ipv6Table::new().unwrap();
    table.set_all([(part, None), (site, Some(hop(1))), (part, Some(hop(2))), (part, None)]).unwrap();
    table.set_all([(part, None), (site, Some(hop(3)))]).unwrap();
    assert_eq!((table.len(), table.lookup(part.first().to_be_bytes())), (1, hop(3)));
}

#[test]
fn errors_leave_the_table_as_it_was() {
    let mut table = Ipv4Table::new().unwrap();
    let ten: Ipv4Prefix = "10.0.0.0/8".parse().unwrap();
    let hop = NextHopId::new(5).unwrap();
    table.insert(ten, hop).unwrap();
    let longer = "10.0.0.0/9".parse().unwrap();
    assert_eq!(table.remove(longer), Err(TableError::NotFound { prefix: u32::either(longer) }));
    assert_eq!(table.insert(ten, NextHopId::NONE), Err(TableError::NoNextHop { prefix: u32::either(ten) }));
    assert_eq!((table.len(), table.lookup(0x0a00_0001)), (1, hop));
    let before = table.memory_bytes();
    let sites = (0..100_000).map(|site| (Ipv4Prefix::containing(site << 13, 24), Some(hop)));
    assert!(matches!(table.apply(sites.chain([(longer, None)])), Err(TableError::NotFound { .. })));
    assert!(table.memory_bytes() <= before + ROOM, "{} after {before}", table.memory_bytes());
    assert_eq!((table.len(), table.lookup(0x0a00_0001), table.lookup(0)), (1, hop, NextHopId::NONE));
    assert_eq!(
        Ipv4Table::from_routes([(ten, NextHopId::NONE)]).unwrap_err().to_string(),
        "the route to 10.0.0.0/8 has no next hop: give one, or remove the route"
    );

    let mut table = Ipv6Table::new().unwrap();
    let site: Ipv6Prefix = "2001:db8::/48".parse().unwrap();
    table.insert(site, hop).unwrap();
    let shorter = "2001:db8::/32".parse().unwrap();
    assert_eq!(table.remove(shorter), Err(TableError::NotFound { prefix: u128::either(shorter) }));
    assert_eq!(
        table.insert(site, NextHopId::NONE),
        Err(TableError::NoNextHop { prefix: u128::either(site) })
    );
    assert_eq!((table.len(), table.lookup(site.first().to_be_bytes())), (1, hop));
    assert!(Ipv6Table::from_routes([(site, NextHopId::NONE)]).is_err());
}
