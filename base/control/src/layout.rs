//! How an instance's packet buffers lie over the sets of a cache.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::graph::Graphs;

/// What stays as it is for as long as an instance runs.
#[derive(Clone, Debug, Default)]
pub struct Fixed {
    /// What leads where.
    pub graphs: Graphs,
    /// How buffers lie over the sets of a cache.
    pub layout: Layout,
}

/// The pools of an instance over the sets of a core's last own level of cache. Each buffer has two hot lines, which are touched for each packet:
/// its header and the first line of its data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// The cache; none if the machine doesn't tell.
    pub cache: Option<CacheSets>,
    /// The pools, if there is a cache.
    pub pools: Vec<PoolLayout>,
}

/// A cache whose sets are bits of the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheSets {
    /// 2 for the second level.
    pub level: u8,
    /// Sets that it has.
    pub sets: usize,
    /// Lines that a set holds.
    pub ways: usize,
    /// Bytes of a line.
    pub line: usize,
}

/// How the buffers of a pool lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolLayout {
    /// Under which labels it counts: `pool`, and others where several pools have the same name.
    pub labels: BTreeMap<String, String>,
    /// Buffers that it has.
    pub buffers: u32,
    /// Bytes from one to the next.
    pub stride: usize,
    /// Bytes of a page of its memory.
    pub page: usize,
    /// Whether pages are as large as what a way of the cache holds. In smaller ones, the kernel's choice of pages decides about sets, too, and
    /// those here are only what the stride makes of them.
    pub is_exact: bool,
    /// Hot lines in each set, of all buffers.
    pub lines: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_the_protocol_says() {
        let cache = CacheSets { level: 2, sets: 2, ways: 16, line: 64 };
        let labels = BTreeMap::from([("pool".to_owned(), "packets".to_owned())]);
        let pool =
            PoolLayout { labels, buffers: 3, stride: 192, page: 4096, is_exact: true, lines: vec![4, 2] };
        let layout = Layout { cache: Some(cache), pools: vec![pool] };
        let written = serde_json::json!({
            "cache": { "level": 2, "sets": 2, "ways": 16, "line": 64 },
            "pools": [{
                "labels": { "pool": "packets" }, "buffers": 3, "stride": 192, "page": 4096, "is_exact": true,
                "lines": [4, 2],
            }],
        });
        assert_eq!(serde_json::to_value(&layout).unwrap(), written);
        assert_eq!(serde_json::from_value::<Layout>(written).unwrap(), layout);
    }
}
