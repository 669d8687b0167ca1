//! The experiments, each in a file of its own. Some files are no experiment but what several of them share: `held`, `lines`, `scalar_and_vector`
//! and `sources`.

mod barriers;
mod burst_depth;
mod cache_levels;
mod copy;
mod crowded_rings;
mod docsis;
mod exact_match;
mod header;
mod held;
mod hot_set;
mod idle;
mod index_cache;
mod interrupt;
mod layout;
mod lines;
mod locks;
mod mac_swap;
mod observe;
mod packed_look;
mod packed_ring;
mod pool_order;
mod rcu;
mod scalar_and_vector;
mod share;
mod sources;
mod tables;
mod tx_free;
mod vector_rx;
mod vxlan_csum;
mod zero_copy_ring;

use crate::experiment::Experiment;

pub(crate) const ALL: &[&Experiment] = &[
    &barriers::EXPERIMENT,
    &burst_depth::EXPERIMENT,
    &cache_levels::EXPERIMENT,
    &copy::EXPERIMENT,
    &crowded_rings::EXPERIMENT,
    &docsis::EXPERIMENT,
    &exact_match::EXPERIMENT,
    &header::EXPERIMENT,
    &hot_set::EXPERIMENT,
    &idle::EXPERIMENT,
    &index_cache::EXPERIMENT,
    &interrupt::EXPERIMENT,
    &layout::EXPERIMENT,
    &locks::EXPERIMENT,
    &mac_swap::EXPERIMENT,
    &observe::EXPERIMENT,
    &packed_look::EXPERIMENT,
    &packed_ring::EXPERIMENT,
    &pool_order::EXPERIMENT,
    &rcu::EXPERIMENT,
    &share::EXPERIMENT,
    &tables::EXPERIMENT,
    &tx_free::EXPERIMENT,
    &vector_rx::EXPERIMENT,
    &vxlan_csum::EXPERIMENT,
    &zero_copy_ring::EXPERIMENT,
];
