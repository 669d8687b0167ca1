//! Exact match against rte_hash.

use super::Comparison;

pub(super) const COMPARISONS: &[Comparison] = &[];
