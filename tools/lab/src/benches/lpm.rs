//! What the longest match costs.

use crate::bench::Bench;

pub(super) const BENCHES: &[Bench] = &[];
