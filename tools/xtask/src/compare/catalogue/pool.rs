//! Pools against rte_mempool and rte_mbuf.

use super::Comparison;

pub(super) const COMPARISONS: &[Comparison] = &[];
