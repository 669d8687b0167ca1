//! How the pools of a running program lie over the sets of a cache, as it is told to whoever asks.

use warmlane_control::{CacheSets, Layout, PoolLayout};
use warmlane_counters::Labels;
use warmlane_mem::Pool;
use warmlane_mem::plan::{CacheShape, PoolSets};

/// The layout of pools that count under these labels and their own names, over the last level of cache that a core has for itself.
pub fn layout(pools: &[(Labels, Pool)]) -> Layout {
    let shapes = CacheShape::of_this_machine();
    let Some(shape) = shapes.into_iter().rev().find(CacheShape::is_indexed) else { return Layout::default() };
    let CacheShape { level, sets, ways, line } = shape;
    let pool = |(labels, pool): &(Labels, Pool)| {
        let PoolSets { lines, is_exact, .. } = PoolSets::of(pool, shape);
        let labels = labels.clone().with("pool", pool.name());
        PoolLayout {
            labels: labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            buffers: pool.buffers(),
            stride: pool.stride(),
            page: pool.page_size().bytes(),
            is_exact,
            lines,
        }
    };
    Layout { cache: Some(CacheSets { level, sets, ways, line }), pools: pools.iter().map(pool).collect() }
}
