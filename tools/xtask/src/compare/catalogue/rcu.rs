//! Quiescent-state RCU against rte_rcu_qsbr.

use super::{Comparison, Lanes};
use crate::compare::dpdk::Program;

pub(super) const COMPARISONS: &[Comparison] = &[Comparison {
    name: "rcu",
    unit: "cycles/report",
    promise: 1.0,
    bound: "two loads from L1 and a comparison, which overlap with those of the next report",
    lanes: Lanes::One,
    prepare: |setting| {
        let ours = setting.bench("rcu", &[])?;
        let peer = Program {
            name: "rte_rcu_qsbr_quiescent".to_owned(),
            file: "rcu",
            mebibytes: 32,
            environment: &[],
            arguments: &[],
        };
        setting.against_dpdk(ours, 0, &[peer])
    },
}];
