//! Locks against DPDK's and parking_lot's.

use super::Comparison;

pub(super) const COMPARISONS: &[Comparison] = &[];
