//! Where buffers stand, and into which sets of a cache that puts their hot lines.

use super::CacheShape;

/// Where each buffer of a region starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes from one buffer to the next.
    pub stride: usize,
    /// Bytes put in now and then on top of that.
    pub padding: Option<Padding>,
}

/// Bytes left free after every so many buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Padding {
    /// Buffers between two gaps: two to the power of this.
    pub every_log2: u32,
    /// Bytes of a gap.
    pub bytes: usize,
}

impl Layout {
    /// Buffers at one distance.
    pub const fn constant(stride: usize) -> Self {
        Self { stride, padding: None }
    }

    /// Bytes from the region's start to buffer `index`.
    #[inline]
    pub const fn offset(self, index: usize) -> usize {
        let gaps = match self.padding {
            Some(padding) => (index >> padding.every_log2) * padding.bytes,
            None => 0,
        };
        index * self.stride + gaps
    }

    /// Bytes that are nobody's in a million (2²⁰) buffers of `needed` bytes each: an exact measure of waste.
    pub(super) const fn waste(self, needed: usize) -> usize {
        const MILLION: usize = 1 << 20;
        self.offset(MILLION) - needed * MILLION
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
        Self::of_layout(shape, Layout::constant(stride), data_offset)
    }

    /// The same for any layout.
    pub fn of_layout(shape: CacheShape, layout: Layout, data_offset: usize) -> Self {
        let mut histogram = vec![0; shape.sets];
        let buffers = shape.lines() / 2;
        for buffer in 0..buffers {
            let header = layout.offset(buffer);
            for offset in [header, header + data_offset] {
                histogram[offset / shape.line % shape.sets] += 1;
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
