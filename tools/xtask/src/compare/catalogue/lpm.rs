//! Longest-prefix match against rte_fib, rte_fib6 and rte_lpm.

use super::Comparison;

pub(super) const COMPARISONS: &[Comparison] = &[];
