//! The experiments, each in a file of its own.

mod barriers;
mod burst_depth;
mod crowded_rings;
mod exact_match;
mod header;
mod held;
mod index_cache;
mod layout;
mod lines;
mod locks;
mod pool_order;
mod rcu;
mod tables;
mod tx_free;
mod zero_copy_ring;

use crate::experiment::Experiment;

pub(crate) const ALL: &[&Experiment] = &[
    &barriers::EXPERIMENT,
    &burst_depth::EXPERIMENT,
    &crowded_rings::EXPERIMENT,
    &exact_match::EXPERIMENT,
    &header::EXPERIMENT,
    &index_cache::EXPERIMENT,
    &layout::EXPERIMENT,
    &locks::EXPERIMENT,
    &pool_order::EXPERIMENT,
    &rcu::EXPERIMENT,
    &tables::EXPERIMENT,
    &tx_free::EXPERIMENT,
    &zero_copy_ring::EXPERIMENT,
];
