//! What an exact match costs.

use warmlane_sys::clock::{self, Clock};
use warmlane_sys::random::Random;
use warmlane_table::{ExactReader, ExactTable};

use crate::bench::Bench;
use crate::error::LabError;
use crate::measure::Measure;
use crate::partner::Partner;
use crate::random::Xorshift;
use crate::setting::Lanes;
use crate::setting::Setting;

pub(super) const BENCHES: &[Bench] = &[
    Bench {
        name: "exact",
        unit: "lookup",
        sentence: "look up 64 keys of 16 bytes at once among 1,000,000 flows, in random order",
        lanes: Lanes::One,
        prepare: lookup,
    },
    Bench {
        name: "exact-concurrent",
        unit: "lookup",
        sentence: "the same beside a second lane that replaces 100,000 flows a second by others",
        lanes: Lanes::Two,
        prepare: lookup_beside_a_writer,
    },
    Bench {
        name: "exact-aging",
        unit: "lookup",
        sentence: "the same where lookups mark what they find, so that idle flows can be removed",
        lanes: Lanes::One,
        prepare: lookup_with_aging,
    },
    Bench {
        name: "exact-insert",
        unit: "insertion",
        sentence: "fill an empty table with 1,000,000 flows of 16-byte keys, one by one; emptying it again is not counted",
        lanes: Lanes::One,
        prepare: insert,
    },
    Bench {
        name: "exact-insert-burst",
        unit: "insertion",
        sentence: "the same, 64 at once",
        lanes: Lanes::One,
        prepare: insert_burst,
    },
];

/// Keys of 16 bytes: an IPv4 5-tuple with padding.
pub(crate) type Key = [u8; 16];

/// Flows in the table.
pub(crate) const FLOWS: u64 = 1_000_000;
/// Flows of `exact-concurrent` besides, half of which are in the table, and how many of them are replaced each second.
const CHANGING: u64 = 20_000;
const REPLACED_A_SECOND: u64 = 100_000;
/// Bursts in a piece of work.
const PIECE: usize = 64;
/// Insertions in a piece of work.
const INSERTIONS: usize = 1024;

/// Key number `index`, the same on both sides of a comparison.
pub(crate) fn key(index: u64) -> Key {
    let word = |index| Random::new(index).bits();
    let mut key = [0; 16];
    key[..8].copy_from_slice(&word(2 * index).to_le_bytes());
    key[8..].copy_from_slice(&word(2 * index + 1).to_le_bytes());
    key
}

/// As many random numbers below `bound` as asked for.
pub(crate) fn random_order(count: u64, bound: u64) -> impl Iterator<Item = u64> {
    let mut random = Xorshift(Xorshift::SEED);
    (0..count).map(move |_| random.below(bound as usize) as u64)
}

struct Lookup {
    reader: ExactReader<Key>,
    keys: Vec<Key>,
    burst: usize,
    next: usize,
    values: Vec<u32>,
}

fn lookup(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    lookup_in(setting, ExactTable::new)
}

fn lookup_with_aging(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    lookup_in(setting, ExactTable::with_aging)
}

fn lookup_in(
    setting: &Setting,
    make: fn(usize) -> Result<ExactTable<Key>, warmlane_table::ExactError>,
) -> Result<Box<dyn Measure>, LabError> {
    let flows = setting.entries.map_or(FLOWS, |entries| entries as u64);
    let table = filled(make, flows).map_err(LabError::setup)?;
    Ok(Box::new(Lookup::new(&table, flows, setting)))
}

impl Lookup {
    /// Of so many flows.
    fn new(table: &ExactTable<Key>, flows: u64, setting: &Setting) -> Self {
        let burst = setting.burst.unwrap_or(64);
        let keys = random_order(flows, flows).map(key).collect();
        Self { reader: table.reader(), keys, burst, next: 0, values: vec![0; burst] }
    }
}

pub(crate) fn filled(
    make: fn(usize) -> Result<ExactTable<Key>, warmlane_table::ExactError>,
    flows: u64,
) -> Result<ExactTable<Key>, warmlane_table::ExactError> {
    let mut table = make(flows as usize)?;
    for index in 0..flows {
        table.insert(&key(index), index as u32)?;
    }
    Ok(table)
}

impl Measure for Lookup {
    fn work(&mut self) -> u64 {
        for _ in 0..PIECE {
            let keys = match self.keys.get(self.next..self.next + self.burst) {
                Some(keys) => keys,
                None => &self.keys[..self.burst],
            };
            self.next = if self.next + 2 * self.burst > self.keys.len() { 0 } else { self.next + self.burst };
            self.reader.lookup_burst(keys, &mut self.values);
            std::hint::black_box(&mut self.values);
        }
        (PIECE * self.burst) as u64
    }
}

/// Lookups of flows that stay, while others come and go.
struct Concurrent {
    lookup: Lookup,
    writer: Partner,
}

fn lookup_beside_a_writer(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    let mut table = ExactTable::new((FLOWS + CHANGING) as usize).map_err(LabError::setup)?;
    for index in 0..FLOWS + CHANGING / 2 {
        table.insert(&key(index), index as u32).map_err(LabError::setup)?;
    }
    let lookup = Lookup::new(&table, FLOWS, setting);
    let pause = Clock::calibrated().cycles_per_second() / REPLACED_A_SECOND;
    let writer = Partner::start(setting.second_cpu()?, move || {
        let (mut oldest, mut due) = (0, clock::cycles());
        Ok(move || {
            let now = clock::cycles();
            if now < due {
                return;
            }
            // After a pause between two rounds it starts anew, and doesn't catch up.
            due = now.max(due + pause);
            let newest = (oldest + CHANGING / 2) % CHANGING;
            let replaced = table.remove(&key(FLOWS + oldest)).is_ok()
                && table.insert(&key(FLOWS + newest), newest as u32).is_ok();
            assert!(replaced, "a flow can't be replaced");
            oldest = (oldest + 1) % CHANGING;
        })
    });
    Ok(Box::new(Concurrent { lookup, writer: writer.map_err(LabError::setup)? }))
}

impl Measure for Concurrent {
    fn work(&mut self) -> u64 {
        self.lookup.work()
    }

    fn begin(&mut self) {
        self.writer.resume();
    }

    fn end(&mut self) {
        self.writer.pause();
    }
}

struct Insert {
    table: ExactTable<Key>,
    keys: Vec<Key>,
    next: usize,
    /// How many at once; one by one if not given.
    burst: Option<usize>,
    /// Cycles of the insertions in this round.
    cycles: u64,
}

fn insert(_: &Setting) -> Result<Box<dyn Measure>, LabError> {
    insert_by(None)
}

fn insert_burst(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    insert_by(Some(setting.burst.unwrap_or(64)))
}

fn insert_by(burst: Option<usize>) -> Result<Box<dyn Measure>, LabError> {
    let table = ExactTable::new(FLOWS as usize).map_err(LabError::setup)?;
    Ok(Box::new(Insert { table, keys: (0..FLOWS).map(key).collect(), next: 0, burst, cycles: 0 }))
}

impl Measure for Insert {
    fn work(&mut self) -> u64 {
        // Emptying takes some milliseconds once in a million. It is no part of what is measured, on both sides.
        if self.next == self.keys.len() {
            self.table.clear();
            self.next = 0;
        }
        let end = self.keys.len().min(self.next + INSERTIONS);
        let keys = &self.keys[self.next..end];
        let begin = clock::cycles_ordered();
        // A table takes what it was made for; should it not, `len` says so.
        match self.burst {
            None => {
                for (index, key) in keys.iter().enumerate() {
                    let _ = self.table.insert(key, (self.next + index) as u32);
                }
            }
            Some(burst) => {
                let mut values = [0; INSERTIONS];
                values.iter_mut().zip(self.next as u32..).for_each(|(value, number)| *value = number);
                for (keys, values) in keys.chunks(burst).zip(values.chunks(burst)) {
                    let _ = self.table.insert_burst(keys, values);
                }
            }
        }
        self.cycles += clock::cycles_ordered().saturating_sub(begin);
        let inserted = end - self.next;
        self.next = end;
        if self.table.len() == end { inserted as u64 } else { 0 }
    }

    fn begin(&mut self) {
        self.cycles = 0;
    }

    fn counted_cycles(&self) -> Option<u64> {
        Some(self.cycles)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_and_are_found() {
        let table = filled(ExactTable::new, 1000).unwrap();
        assert_eq!(table.len(), 1000);
        assert_eq!(table.get(&key(999)), Some(999));
        assert!(random_order(100, 10).all(|index| index < 10));
    }
}
