//! Quiescent-state RCU against rte_rcu_qsbr.

use super::Comparison;

pub(super) const COMPARISONS: &[Comparison] = &[];
