//! Rings against rte_ring and crates.

use super::Comparison;

pub(super) const COMPARISONS: &[Comparison] = &[];
