//! The layout planner: how far apart buffers should stand for the caches of a machine.
//!
//! A stage that looks at headers touches two lines of each buffer: the packet's header and the first line of
//! data. Where these lines fall in a set-associative cache is decided by the stride. A stride of 2,048 bytes puts
//! the headers of all buffers into every 32nd set and leaves the others empty; DPDK's default of 2,368 bytes
//! avoids that (Aligeri, "Cache Awareness in DPDK Mempool", dpdk.org, 2024-06: +17 % forwarding rate). The planner
//! counts, for each stride that would do, how many of these hot lines would not find a way in their set, and
//! takes the smallest stride that keeps most of them.

use crate::header::HEADER_BYTES;
use warmlane_sys::topology::{CacheKind, Topology};

/// How many strides above the smallest possible one are looked at, in lines. Two neighbouring line counts always
/// have an odd one among them, and an odd stride reaches every set of a cache with a power of two of them; more
/// candidates only matter for caches with other counts.
const CANDIDATES: usize = 8;

/// The geometry of one cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheShape {
    /// 1 for the first level.
    pub level: u8,
    /// Number of sets.
    pub sets: usize,
    /// Lines per set.
    pub ways: usize,
    /// Bytes per line.
    pub line: usize,
}

impl CacheShape {
    /// Lines in the cache.
    pub const fn lines(&self) -> usize {
        self.sets * self.ways
    }

    /// The data caches of this machine's first CPU up to level 2: larger ones are hashed over slices by functions
    /// that their makers don't publish. Empty if the machine does not tell.
    pub fn of_this_machine() -> Vec<Self> {
        let Ok(topology) = Topology::read() else { return Vec::new() };
        let Some(cpu) = topology.cpus.first() else { return Vec::new() };
        cpu.caches
            .iter()
            .filter(|cache| cache.kind != CacheKind::Instruction && cache.level <= 2)
            .filter_map(|cache| {
                let (sets, ways) = (cache.sets? as usize, cache.ways? as usize);
                Some(Self { level: cache.level, sets, ways, line: cache.line_bytes as usize })
            })
            .filter(|shape| shape.lines() > 0 && shape.line > 0)
            .collect()
    }
}

/// How the hot lines of a pool lie in one cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// The cache.
    pub shape: CacheShape,
    /// Hot lines in each set, for as many buffers as the cache could hold the hot lines of.
    pub histogram: Vec<u32>,
    /// Hot lines that find no way in their set.
    pub lost: usize,
}

impl Spread {
    /// Where the hot lines of buffers at `stride` fall, the first data line being `data_offset` bytes behind the
    /// header. As many buffers are laid out as would fill the cache if all sets were used alike.
    pub fn of(shape: CacheShape, stride: usize, data_offset: usize) -> Self {
        let mut histogram = vec![0; shape.sets];
        let buffers = shape.lines() / 2;
        for buffer in 0..buffers {
            for offset in [0, data_offset] {
                histogram[(buffer * stride + offset) / shape.line % shape.sets] += 1;
            }
        }
        let lost = histogram.iter().map(|&lines| (lines as usize).saturating_sub(shape.ways)).sum();
        Self { shape, histogram, lost }
    }

    /// The share of the hot lines that the cache holds, 0 to 1.
    pub fn kept(&self) -> f64 {
        let lines: u32 = self.histogram.iter().sum();
        if lines == 0 { 1.0 } else { 1.0 - self.lost as f64 / f64::from(lines) }
    }

    /// Sets that no hot line falls into.
    pub fn unused_sets(&self) -> usize {
        self.histogram.iter().filter(|&&lines| lines == 0).count()
    }
}

/// A layout, and what speaks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Bytes that a buffer needs: header, headroom and room.
    pub needed: usize,
    /// Bytes from one buffer to the next.
    pub stride: usize,
    /// Bytes from the header to the first data byte.
    pub data_offset: usize,
    /// How the hot lines lie in each cache.
    pub spreads: Vec<Spread>,
}

impl Plan {
    /// The best stride for buffers of `needed` bytes with `headroom` bytes in front of the data.
    pub fn new(needed: usize, headroom: usize, caches: &[CacheShape]) -> Self {
        let smallest = needed.next_multiple_of(HEADER_BYTES);
        let plans = (0..CANDIDATES)
            .map(|extra| Self::with_stride(needed, headroom, smallest + extra * HEADER_BYTES, caches));
        // `min_by_key` keeps the first of equals: the smallest stride. Without any known cache that would be an
        // even one as likely as not, so the odd ones are preferred by themselves.
        plans
            .min_by_key(|plan| (plan.lost(), (plan.stride / HEADER_BYTES).is_multiple_of(2)))
            .unwrap_or_else(|| Self::with_stride(needed, headroom, smallest, caches))
    }

    /// [`new`](Self::new) for the caches of this machine.
    pub fn for_this_machine(needed: usize, headroom: usize) -> Self {
        Self::new(needed, headroom, &CacheShape::of_this_machine())
    }

    /// A given stride, to see how it would do.
    pub fn with_stride(needed: usize, headroom: usize, stride: usize, caches: &[CacheShape]) -> Self {
        let data_offset = HEADER_BYTES + headroom;
        let spreads = caches.iter().map(|&shape| Spread::of(shape, stride, data_offset)).collect();
        Self { needed, stride, data_offset, spreads }
    }

    /// Hot lines that find no way in their set, over all caches.
    pub fn lost(&self) -> usize {
        self.spreads.iter().map(|spread| spread.lost).sum()
    }

    /// Why this stride, in sentences.
    pub fn explanation(&self) -> String {
        use std::fmt::Write as _;
        let lines = self.stride / HEADER_BYTES;
        let parity = if lines.is_multiple_of(2) { "even" } else { "odd" };
        let mut text = format!(
            "A buffer needs {} bytes; buffers stand {} bytes apart, which is {lines} cache lines, an {parity} number: {} bytes of padding.",
            self.needed,
            self.stride,
            self.stride.saturating_sub(self.needed),
        );
        for spread in &self.spreads {
            let shape = spread.shape;
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "\nL{} ({} sets of {} ways): of the headers and first data lines of {} buffers, which would just fit, {:.0} % find a place; {} sets stay unused.",
                shape.level,
                shape.sets,
                shape.ways,
                shape.lines() / 2,
                spread.kept() * 100.0,
                spread.unused_sets(),
            );
        }
        if self.spreads.is_empty() {
            text.push_str("\nThe machine does not tell its caches; an odd number of lines uses every set of any cache with a power of two of them.");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const L1: CacheShape = CacheShape { level: 1, sets: 64, ways: 8, line: 64 };
    const L2: CacheShape = CacheShape { level: 2, sets: 2_048, ways: 8, line: 64 };
    /// The cache of the worked example in the blog post that the module cites.
    const EXAMPLE: CacheShape = CacheShape { level: 1, sets: 4, ways: 4, line: 64 };

    #[test]
    fn a_power_of_two_folds_headers_onto_few_sets() {
        let plan = Plan::with_stride(2_048, 0, 2_048, &[L1]);
        // Headers fall into sets 0 and 32, data lines right behind them.
        assert_eq!(plan.spreads[0].unused_sets(), 60);
        assert!(plan.spreads[0].kept() < 0.1, "{}", plan.spreads[0].kept());
    }

    #[test]
    fn the_plan_keeps_every_hot_line() {
        for needed in [512, 1_024, 2_048, 2_240, 2_304, 4_096, 9_216] {
            let plan = Plan::new(needed, 128, &[L1, L2]);
            assert!(plan.stride >= needed && plan.stride <= needed + 128, "{needed}: {}", plan.stride);
            assert_eq!(plan.spreads[0].unused_sets(), 0, "{needed}");
            assert!(
                plan.spreads.iter().all(|spread| spread.kept() > 0.99),
                "{needed}: {}",
                plan.explanation()
            );
        }
    }

    #[test]
    fn the_blog_post_example() {
        // 128-byte buffers of which one line is touched: sets 0 and 2 only.
        let spread = Spread::of(EXAMPLE, 128, 0);
        assert_eq!(spread.histogram, [8, 0, 8, 0]);
        // One more line between them reaches all four.
        assert_eq!(Spread::of(EXAMPLE, 192, 0).unused_sets(), 0);
    }

    #[test]
    fn sets_that_are_no_power_of_two() {
        let odd = CacheShape { level: 2, sets: 1_280, ways: 20, line: 64 };
        let plan = Plan::new(5 * 64 * 8, 128, &[odd]);
        assert!(plan.spreads[0].kept() > 0.99, "{}", plan.explanation());
    }

    #[test]
    fn no_known_cache_still_gives_an_odd_stride() {
        assert_eq!(Plan::new(2_048, 128, &[]).stride / 64 % 2, 1);
    }
}
