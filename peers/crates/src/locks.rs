//! Locks.

use warmlane_lab::bench::Bench;

pub(crate) const BENCHES: &[Bench] = &[];
