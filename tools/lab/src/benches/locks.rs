//! What locks cost.

use crate::bench::Bench;

pub(super) const BENCHES: &[Bench] = &[];
