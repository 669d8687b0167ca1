//! Readers beside a writer that never rests: what stays is never missed, and no answer is torn or another key's

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use warmlane_sys::random::Random;
use warmlane_table::{ExactKey, ExactReader, ExactTable, NO_VALUE};

use crate::stop::Stop;

const STAYING: u64 = 300;
const COMING_AND_GOING: u64 = 400;
const TIME: Duration = Duration::from_millis(400);

fn key<const N: usize>(index: u64) -> [u8; N] {
    let mut key = [0; N];
    for (word, bytes) in key.chunks_mut(8).enumerate() {
        bytes.copy_from_slice(&Random::new(index * 8 + word as u64).bits().to_le_bytes()[..bytes.len()]);
    }
    key
}

/// Every value carries the number of its key.
fn value(index: u64, generation: u64) -> u32 {
    (index | (generation & 0x3f_ffff) << 10) as u32
}

fn assert_belongs(index: u64, value: u32) {
    assert_eq!(u64::from(value) & 0x3ff, index, "the value of another key");
}

fn read<const N: usize>(reader: &ExactReader<[u8; N]>, done: &AtomicBool, lookups: &AtomicU64, single: bool)
where
    [u8; N]: ExactKey,
{
    let keys: Vec<[u8; N]> = (0..STAYING + COMING_AND_GOING).map(key).collect();
    let mut last = vec![0; keys.len()];
    let mut values = vec![0; keys.len()];
    let mut rounds = 0;
    while !done.load(Ordering::Relaxed) || rounds == 0 {
        if single {
            for (key, value) in keys.iter().zip(&mut values) {
                *value = reader.lookup(key).unwrap_or(NO_VALUE);
            }
        } else {
            reader.lookup_burst(&keys, &mut values);
        }
        for (index, value) in values.iter().enumerate() {
            if *value == NO_VALUE {
                assert!(index as u64 >= STAYING, "key {index} stays in the table but was missed");
                continue;
            }
            assert_belongs(index as u64, *value);
            // Generations of a key only grow.
            assert!(*value >= last[index], "an old value came back");
            last[index] = *value;
        }
        rounds += 1;
    }
    lookups.fetch_add(rounds * keys.len() as u64, Ordering::Relaxed);
}

fn stress<const N: usize>(aging: bool)
where
    [u8; N]: ExactKey,
{
    // So full that most insertions move others about.
    let capacity = (STAYING + COMING_AND_GOING / 2) as usize;
    let mut table = if aging { ExactTable::with_aging(capacity) } else { ExactTable::new(capacity) }.unwrap();
    for index in 0..STAYING {
        table.insert(&key::<N>(index), value(index, 0)).unwrap();
    }
    let (done, lookups) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut changes = 0_u64;
    thread::scope(|scope| {
        let _at_the_end = Stop(&done);
        for single in [false, true] {
            let reader = table.reader();
            let (done, lookups) = (&done, &lookups);
            scope.spawn(move || read(&reader, done, lookups, single));
        }
        let end = Instant::now() + TIME;
        let mut random = Random::new(0);
        let mut present = vec![false; COMING_AND_GOING as usize];
        while Instant::now() < end {
            for _ in 0..100 {
                changes += 1;
                let choice = random.bits();
                if choice.is_multiple_of(8) {
                    let index = (choice >> 8) % STAYING;
                    table.insert(&key::<N>(index), value(index, changes >> 6)).unwrap();
                    continue;
                }
                let slot = (choice >> 8) % COMING_AND_GOING;
                let index = STAYING + slot;
                let is_there = &mut present[slot as usize];
                if *is_there {
                    assert_belongs(index, table.remove(&key::<N>(index)).unwrap());
                    *is_there = false;
                } else if table.insert(&key::<N>(index), value(index, changes >> 6)).is_ok() {
                    *is_there = true;
                }
            }
        }
    });
    println!("{N}: {changes} changes, {} lookups", lookups.load(Ordering::Relaxed));
    assert!(changes > 1000 && lookups.load(Ordering::Relaxed) > 1000);
}

#[test]
fn keys_of_8_bytes() {
    stress::<8>(false);
}

#[test]
fn keys_of_16_bytes() {
    stress::<16>(false);
    stress::<16>(true);
}

#[test]
fn keys_of_40_bytes() {
    stress::<40>(false);
}
