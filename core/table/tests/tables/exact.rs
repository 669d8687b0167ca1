//! Any sequence of changes leaves an exact-match table with the answers of a `HashMap`

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU8;

use proptest::prelude::*;
use warmlane_sys::random::Random;
use warmlane_sys::simd::Level;
use warmlane_table::{ExactError, ExactKey, ExactTable, NO_VALUE};

fn key<const N: usize>(index: u64) -> [u8; N] {
    let mut key = [0; N];
    for (word, bytes) in key.chunks_mut(8).enumerate() {
        bytes.copy_from_slice(&Random::new(index * 8 + word as u64).bits().to_le_bytes()[..bytes.len()]);
    }
    key
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Insert(u16, u32),
    Remove(u16),
    Sweep(u16),
    Clear,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        8 => (0..200_u16, 0..NO_VALUE).prop_map(|(key, value)| Change::Insert(key, value)),
        4 => (0..200_u16).prop_map(Change::Remove),
        1 => (1..40_u16).prop_map(Change::Sweep),
        1 => Just(Change::Clear),
    ]
}

/// Of 200 keys about 90 fit, so the table is often full.
const CAPACITY: usize = 90;

fn check<const N: usize>(changes: &[Change], aging: bool) -> Result<(), TestCaseError>
where
    [u8; N]: ExactKey,
{
    let mut table = if aging { ExactTable::with_aging(CAPACITY) } else { ExactTable::new(CAPACITY) }.unwrap();
    let mut model = HashMap::new();
    let reader = table.reader();
    let keys: Vec<[u8; N]> = (0..200).map(key).collect();
    for change in changes {
        match *change {
            Change::Insert(index, value) => {
                let key = keys[usize::from(index)];
                match table.insert(&key, value) {
                    Ok(before) => prop_assert_eq!(before, model.insert(key, value)),
                    Err(error) => {
                        let slots = table.slots();
                        prop_assert_eq!(error, ExactError::Full { entries: model.len(), slots });
                        prop_assert!(!model.contains_key(&key) && model.len() >= CAPACITY);
                    }
                }
            }
            Change::Remove(index) => {
                let key = keys[usize::from(index)];
                prop_assert_eq!(table.remove(&key).ok(), model.remove(&key));
            }
            Change::Sweep(buckets) => {
                let mut removed = Vec::new();
                let idle = NonZeroU8::new(2).unwrap();
                let sweep = table.sweep(usize::from(buckets), idle, |key, value| removed.push((key, value)));
                prop_assert_eq!(sweep.removed, removed.len());
                prop_assert!(aging || removed.is_empty());
                for (key, value) in removed {
                    prop_assert_eq!(model.remove(&key), Some(value));
                }
            }
            Change::Clear => {
                table.clear();
                model.clear();
            }
        }
        prop_assert_eq!((table.len(), table.is_empty()), (model.len(), model.is_empty()));
    }
    let mut values = vec![7; keys.len() + 1];
    // Only as many as there are keys.
    reader.lookup_burst(&keys, &mut values);
    prop_assert_eq!(values.pop(), Some(7));
    for (key, value) in keys.iter().zip(values) {
        let expected = model.get(key).copied();
        prop_assert_eq!(value, expected.unwrap_or(NO_VALUE));
        prop_assert_eq!(reader.lookup(key), expected);
        prop_assert_eq!(table.get(key), expected);
    }
    prop_assert_eq!(table.iter().collect::<HashMap<_, _>>(), model);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn answers_are_those_of_a_hash_map(changes in prop::collection::vec(change(), 1..600), aging: bool) {
        check::<8>(&changes, aging)?;
        check::<13>(&changes, aging)?;
        check::<16>(&changes, aging)?;
        check::<24>(&changes, aging)?;
        check::<32>(&changes, aging)?;
        check::<37>(&changes, aging)?;
        check::<40>(&changes, aging)?;
    }
}

#[test]
fn capacity_is_always_reached() {
    for capacity in (1..300).chain([1000, 10_000, 100_000]) {
        let mut table = ExactTable::<[u8; 16]>::new(capacity).unwrap();
        for index in 0..capacity as u64 {
            table.insert(&key(index), 1).unwrap_or_else(|error| panic!("{capacity} {index}: {error}"));
        }
    }
}

#[test]
fn all_levels_give_equal_answers() {
    let mut table = ExactTable::<[u8; 13]>::new(1000).unwrap();
    for index in 0..1000 {
        table.insert(&key(index), index as u32).unwrap();
    }
    let keys: Vec<[u8; 13]> = (500..1500).map(key).collect();
    let expected: Vec<u32> = (500..1500).map(|index| if index < 1000 { index } else { NO_VALUE }).collect();
    for level in [Level::Portable, Level::Neon, Level::Avx2, Level::Avx512] {
        assert_eq!(table.use_level(level), Level::available().contains(&level), "{level:?}");
        let mut values = vec![7; keys.len()];
        table.reader().lookup_burst(&keys, &mut values);
        assert_eq!(values, expected, "{level:?}");
    }
}

#[test]
fn dense_keys_spread_too() {
    // Neighbouring addresses and ports: what a weak hash takes badly.
    let mut table = ExactTable::<[u8; 13]>::new(100_000).unwrap();
    for flow in 0..100_000_u32 {
        let mut key = [0; 13];
        key[0..4].copy_from_slice(&[10, 0, 0, 1]);
        key[4..8].copy_from_slice(&(0x0a00_0100 + flow / 1000).to_be_bytes());
        key[8..10].copy_from_slice(&443_u16.to_be_bytes());
        key[10..12].copy_from_slice(&(1024 + (flow % 1000) as u16).to_be_bytes());
        key[12] = 6;
        table.insert(&key, flow).unwrap();
    }
    assert_eq!(table.len(), 100_000);
}

#[test]
fn bad_input_is_refused_and_changes_nothing() {
    for capacity in [0, usize::MAX, 1 << 40] {
        let error = ExactTable::<[u8; 16]>::new(capacity).unwrap_err();
        assert!(matches!(error, ExactError::Capacity { capacity: c, .. } if c == capacity), "{error}");
    }
    // More than any machine has, but not more than could be numbered.
    let error = ExactTable::<[u8; 40]>::new(6_000_000_000).unwrap_err();
    assert!(matches!(error, ExactError::Memory { bytes } if bytes > 6_000_000_000 * 44), "{error}");

    let mut table = ExactTable::<[u8; 16]>::new(10).unwrap();
    table.insert(&key(1), 5).unwrap();
    assert_eq!(table.remove(&key(2)), Err(ExactError::NotFound));
    assert_eq!(table.insert(&key(1), NO_VALUE), Err(ExactError::ReservedValue { value: NO_VALUE }));
    assert_eq!(table.insert(&key(2), NO_VALUE), Err(ExactError::ReservedValue { value: NO_VALUE }));
    assert_eq!((table.get(&key(1)), table.get(&key(2)), table.len()), (Some(5), None, 1));
    assert_eq!(table.insert(&key(1), 6), Ok(Some(5)));
    assert_eq!(table.remove(&key(1)), Ok(6));
    assert_eq!(table.remove(&key(1)), Err(ExactError::NotFound));
}

#[test]
fn entries_age_unless_they_are_hit() {
    let mut table = ExactTable::<[u8; 16]>::with_aging(1000).unwrap();
    let reader = table.reader();
    for index in 0..900 {
        table.insert(&key(index), index as u32).unwrap();
    }
    let idle = NonZeroU8::new(3).unwrap();
    let step = table.buckets() / 7;
    let mut rounds = 0;
    let mut expired = HashSet::new();
    while rounds < 10 {
        // Every third is in use, one by one or in a burst.
        for index in (0..900).step_by(6) {
            reader.lookup(&key(index));
            let mut value = [0];
            reader.lookup_burst(&[key(index + 3)], &mut value);
            assert_eq!(value, [index as u32 + 3]);
        }
        let mut removed = 0;
        let sweep = table.sweep(step, idle, |_, value| {
            assert!(expired.insert(value));
            removed += 1;
        });
        assert_eq!(sweep.removed, removed);
        rounds += usize::from(sweep.finished);
        if rounds < 3 {
            assert_eq!(expired.len(), 0);
        }
        if rounds == 4 {
            assert_eq!(expired.len(), 600);
        }
    }
    assert_eq!(table.len(), 300);
    assert!(expired.iter().all(|value| value % 3 != 0));
    // Unused from now on; the longest time that can be asked for ends as well.
    for index in (0..900).step_by(3) {
        reader.lookup(&key(index));
    }
    for _ in 0..255 {
        assert_eq!(table.sweep(usize::MAX, NonZeroU8::MAX, |_, _| ()).removed, 0);
    }
    assert_eq!(
        table.sweep(usize::MAX, NonZeroU8::MAX, |_, _| ()),
        warmlane_table::Sweep { removed: 300, finished: true }
    );
    assert!(table.is_empty());
}

/// Who is moved to make space for others has the same age there: neither that of a newcomer nor that of the slot's last owner.
#[test]
fn entries_keep_their_age_when_they_are_moved() {
    let mut table = ExactTable::<[u8; 16]>::with_aging(1000).unwrap();
    let idle = NonZeroU8::new(2).unwrap();
    let insert = |table: &mut ExactTable<_>, indices: std::ops::Range<u64>| {
        indices.for_each(|index| assert_eq!(table.insert(&key(index), index as u32), Ok(None)));
    };
    insert(&mut table, 0..500);
    for _ in 0..2 {
        assert_eq!(table.sweep(usize::MAX, idle, |_, _| ()).removed, 0);
    }
    // In a table that is as good as full many have moved, and some to slots of the hundred.
    for index in 0..100 {
        assert_eq!(table.remove(&key(index)), Ok(index as u32));
    }
    insert(&mut table, 1000..1600);
    let mut expired = HashSet::new();
    table.sweep(usize::MAX, idle, |_, value| assert!(expired.insert(value)));
    assert_eq!(expired, (100..500).collect(), "those that were not hit for two sweeps, and no others");
    assert_eq!(table.len(), 600);
}

#[test]
fn what_is_removed_makes_space_again() {
    let mut table = ExactTable::<[u8; 16]>::new(5000).unwrap();
    // A window of keys moves along for many generations: nothing may be lost or left over.
    for index in 0..5000 {
        table.insert(&key(index), index as u32).unwrap();
    }
    for index in 5000..200_000 {
        assert_eq!(table.remove(&key(index - 5000)), Ok((index - 5000) as u32));
        table.insert(&key(index), index as u32).unwrap();
    }
    let values: HashSet<u32> = table.iter().map(|(_, value)| value).collect();
    assert_eq!(values, (195_000..200_000).collect());
}
