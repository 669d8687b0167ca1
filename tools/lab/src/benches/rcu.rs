//! What readers pay for quiescent-state RCU.

use crate::bench::Bench;

pub(super) const BENCHES: &[Bench] = &[];
