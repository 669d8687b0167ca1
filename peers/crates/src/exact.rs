//! Exact match.
//!
//! hashbrown is the hash map of Rust's standard library, here with its own default hash, seeded at random as ours is.

use hashbrown::HashMap;
use warmlane_lab::bench::Bench;
use warmlane_lab::measure::Measure;
use warmlane_lab::setting::{Lanes, Setting};
use warmlane_lab::table_inputs::{self, bursts};

pub(crate) const BENCHES: &[Bench] = &[
    Bench {
        name: "exact-hashbrown",
        unit: "lookup",
        sentence: "look up keys of 16 bytes among 1,000,000 flows in hashbrown's map, in random order",
        lanes: Lanes::One,
        prepare: |setting| Ok(lookup(setting)),
    },
    Bench {
        name: "exact-insert-hashbrown",
        unit: "insertion",
        sentence: "fill an empty map of hashbrown with 1,000,000 flows of 16-byte keys, and empty it again",
        lanes: Lanes::One,
        prepare: |_| Ok(insert()),
    },
];

/// Insertions in a piece of work, as on our side.
const INSERTIONS: usize = 1024;
/// The answer where there is no entry.
const NO_VALUE: u32 = u32::MAX;

fn lookup(setting: &Setting) -> Box<dyn Measure> {
    let (flows, keys) = table_inputs::flows();
    let map: HashMap<_, _> = flows.into_iter().zip(0_u32..).collect();
    let look_up = move |keys: &[[u8; 16]], values: &mut [u32]| {
        for (value, key) in values.iter_mut().zip(keys) {
            *value = map.get(key).copied().unwrap_or(NO_VALUE);
        }
    };
    bursts(keys, setting.burst.unwrap_or(64), NO_VALUE, look_up)
}

fn insert() -> Box<dyn Measure> {
    let (keys, _) = table_inputs::flows();
    let mut map = HashMap::with_capacity(keys.len());
    let mut next = 0;
    Box::new(move || {
        if next == keys.len() {
            map.clear();
            next = 0;
        }
        let end = keys.len().min(next + INSERTIONS);
        for (key, value) in keys[next..end].iter().zip(next as u32..) {
            map.insert(*key, value);
        }
        let inserted = end - next;
        next = end;
        inserted as u64
    })
}
