//! What a ring between lanes costs.

use crate::bench::Bench;

pub(super) const BENCHES: &[Bench] = &[];
