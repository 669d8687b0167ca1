//! Into which sets of a cache the buffers of a pool fall that is there.

use super::CacheShape;
use crate::header::HEADER_BYTES;
use crate::pool::Pool;

/// How many hot lines a pool has in each set of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSets {
    /// The cache.
    pub shape: CacheShape,
    /// Hot lines in each set: headers of buffers, and first lines of their data.
    pub lines: Vec<u32>,
    /// Whether pages are as large as a [way](CacheShape::way_bytes). In smaller ones, sets are decided by which pages the kernel has given, too, which
    /// addresses don't tell.
    pub is_exact: bool,
}

impl PoolSets {
    /// By the addresses of all buffers.
    pub fn of(pool: &Pool, shape: CacheShape) -> Self {
        let region = pool.region();
        let (begin, offsets) = (region.address().addr().get(), region.offsets());
        let data = HEADER_BYTES + pool.config().headroom;
        let mut lines = vec![0; shape.sets];
        for buffer in 0..pool.buffers() {
            let header = begin + offsets.of(buffer) as usize;
            for address in [header, header + data] {
                if let Some(count) = lines.get_mut(address / shape.line % shape.sets.max(1)) {
                    *count += 1;
                }
            }
        }
        Self { shape, lines, is_exact: pool.page_size().bytes() >= shape.way_bytes() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::PoolConfig;
    use warmlane_sys::pages::PagePreference;

    #[test]
    fn each_buffer_has_two_lines_where_its_packets_are() {
        let shape = CacheShape { level: 2, sets: 96, ways: 16, line: 64 };
        let config = PoolConfig { buffers: 500, pages: PagePreference::Plain, ..PoolConfig::default() };
        let pool = Pool::new(&config).unwrap();
        let sets = PoolSets::of(&pool, shape);
        assert_eq!((sets.lines.len(), sets.lines.iter().sum::<u32>()), (96, 1_000));
        assert!(!sets.is_exact || pool.page_size().bytes() >= 96 * 64);
        // The same by the packets themselves.
        let mut burst = crate::Burst::with_limit(250);
        let mut expected = vec![0; 96];
        let mut packets = Vec::new();
        for _ in 0..2 {
            assert_eq!(pool.take_burst(&mut burst, 250), 250);
            packets.extend(burst.drain());
        }
        for packet in &mut packets {
            packet.append(1).unwrap();
            let data = packet.data().as_ptr().addr();
            for address in [data - pool.config().headroom - HEADER_BYTES, data] {
                expected[address / 64 % 96] += 1;
            }
        }
        assert_eq!(sets.lines, expected);
    }
}
