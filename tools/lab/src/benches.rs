//! The benches: each is a name, a sentence, and how to prepare it.

mod forward;
mod pool;
mod replay;

use crate::bench::Bench;

pub(crate) const ALL: &[Bench] = &[
    Bench {
        name: "l3-forward",
        unit: "packet",
        sentence: "replay 60-byte frames, validate, look up in the full table, rewrite, drop",
        prepare: forward::l3_forward,
    },
    Bench {
        name: "pool-one-lane",
        unit: "packet",
        sentence: "take 32 packets ready to use and free them, on one lane",
        prepare: pool::one_lane,
    },
    Bench {
        name: "replay-drop",
        unit: "packet",
        sentence: "replay 60-byte frames, each copied into a fresh buffer, and drop them",
        prepare: replay::drop,
    },
];
