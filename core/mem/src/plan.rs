//! The layout planner: how far apart buffers should stand for the caches of a machine.
//!
//! A stage that looks at headers touches two lines of each buffer: the packet's header and the first line of
//! data. Where these lines fall in a set-associative cache is decided by the stride. A stride of 2,048 bytes puts
//! the headers of all buffers into every 32nd set and leaves the others empty; DPDK's default of 2,368 bytes
//! avoids that (Aligeri, "Cache Awareness in DPDK Mempool", dpdk.org, 2024-06: +17 % forwarding rate).
//!
//! There are two ways out: a stride of an odd number of lines, and a line of padding after every so many buffers. The
//! planner lays buffers out both ways, counts the hot lines that would not find a way in their set, and takes, of those
//! layouts that lose next to nothing and meet all [demands](Demands), the one that wastes the least memory.
//!
//! Exact for caches indexed by address bits (first and second level), within pages not smaller than a
//! [way](CacheShape::way_bytes). Last-level caches hash lines over slices: nothing there folds, and nothing can be planned.

mod cache;
mod channels;
mod demands;
mod explanation;
mod sets;
mod spread;
// Arithmetic over thousands of strides: Miri would take hours to find nothing.
#[cfg(all(test, not(miri)))]
mod tests;

pub use cache::CacheShape;
pub use channels::{ChannelSpread, MemoryChannels};
pub use demands::Demands;
pub use sets::PoolSets;
pub use spread::{Layout, Padding, Spread};

use crate::header::HEADER_BYTES;

/// How much longer than the shortest possible one a stride may be, in lines. Two neighbouring line counts always
/// have an odd one among them, and an odd stride reaches every set of a cache with a power of two of them; more
/// candidates only matter for caches and memories with other counts.
const LINES_MORE: usize = 12;
/// The rarest padding that is looked at, as a power of two of buffers: more than the second-level caches there are hold
/// the headers of.
const RAREST_PADDING_LOG2: u32 = 16;

/// Far longer than any buffer, and short enough that no sum below overflows.
const LONGEST_STRIDE: usize = 1 << 30;

/// Why there is no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A buffer is at least a header.
    #[error("a buffer of {needed} bytes does not hold its header of {HEADER_BYTES}: ask for more")]
    NoSpace {
        /// Bytes asked for.
        needed: usize,
    },
    /// A buffer must lie in one page, or devices would write across its end.
    #[error(
        "a buffer of {needed} bytes does not lie in one page of {page}: ask for smaller buffers and chain longer packets"
    )]
    LargerThanPage {
        /// Bytes of header, headroom and data.
        needed: usize,
        /// Bytes of the page.
        page: usize,
    },
    /// There is no multiple of the alignment between what a buffer needs and what a port allows.
    #[error(
        "a buffer of {needed} bytes at multiples of {alignment} bytes needs a stride above the {largest} that a port allows: \
         ask for smaller buffers, or for larger or unaligned chunks"
    )]
    NoStride {
        /// Bytes of header, headroom and data.
        needed: usize,
        /// Where buffers may start.
        alignment: usize,
        /// The longest stride allowed.
        largest: usize,
    },
    /// An alignment is a power of two of at least a line.
    #[error("an alignment of {alignment} bytes is no power of two of at least {HEADER_BYTES}")]
    Alignment {
        /// What was asked for.
        alignment: usize,
    },
    /// Aligned AF_XDP chunks have 2,048 or 4,096 bytes.
    #[error("an aligned AF_XDP chunk has 2048 or 4096 bytes, not {chunk}")]
    Chunk {
        /// What was asked for.
        chunk: usize,
    },
    /// A port writes metadata of its own into the headroom.
    #[error(
        "a headroom of {headroom} bytes is less than the {demanded} that a port keeps for itself: ask for {demanded}"
    )]
    Headroom {
        /// What was asked for.
        headroom: usize,
        /// What a port demands.
        demanded: usize,
    },
    /// A cache that can't be.
    #[error("the level-{level} cache makes no sense: {reason}")]
    Cache {
        /// Its level.
        level: u8,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Memory that can't be.
    #[error(
        "{channels} channels of {ranks} ranks, interleaved every {interleave} bytes, make no sense: up to 1024 together, \
         and a power of two of at least 64 bytes"
    )]
    Channels {
        /// Channels.
        channels: usize,
        /// Ranks on each.
        ranks: usize,
        /// Bytes on one channel before the next.
        interleave: usize,
    },
    /// A stride that holds no buffer, or that a port does not allow.
    #[error("a stride of {stride} bytes is no multiple of {alignment} from {needed} to {LONGEST_STRIDE}")]
    Stride {
        /// What was asked for.
        stride: usize,
        /// Where buffers may start.
        alignment: usize,
        /// Bytes of header, headroom and data.
        needed: usize,
    },
    /// More memory than a port can reach.
    #[error(
        "{buffers} buffers of {stride} bytes exceed the {largest} bytes that a port can reach: ask for fewer"
    )]
    Region {
        /// How many buffers.
        buffers: u32,
        /// Bytes from one to the next.
        stride: usize,
        /// What the port can reach.
        largest: u64,
    },
}

/// What a layout is planned for.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Bytes that a buffer needs: header, headroom and data.
    pub needed: usize,
    /// Bytes between the header and the data.
    pub headroom: usize,
    /// The caches, such as those [of this machine](CacheShape::of_this_machine).
    pub caches: &'a [CacheShape],
    /// The memory, if somebody knows.
    pub memory: Option<MemoryChannels>,
    /// What ports demand.
    pub demands: Demands,
}

/// A layout, and what speaks for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Bytes that a buffer needs: header, headroom and data.
    pub needed: usize,
    /// Bytes from one buffer to the next.
    pub stride: usize,
    /// Bytes left free now and then on top of that.
    pub padding: Option<Padding>,
    /// Bytes from the header to the first data byte.
    pub data_offset: usize,
    /// How the hot lines lie in each cache that is indexed by address bits.
    pub spreads: Vec<Spread>,
    /// The caches that hash: they are not planned for.
    pub hashed: Vec<CacheShape>,
    /// How the headers lie in memory.
    pub channels: Option<ChannelSpread>,
    /// What ports demand.
    pub demands: Demands,
    /// The best layout of each kind, this one among them.
    pub weighed: Vec<Weighed>,
}

/// A layout that was considered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weighed {
    /// It.
    pub layout: Layout,
    /// The share of the hot lines that find a place, 0 to 1, in the cache where that is least.
    pub kept: f64,
    /// Bytes per buffer that are nobody's.
    pub waste: f64,
    /// Whether the demands allow it.
    pub allowed: bool,
}

impl Plan {
    /// The best layout.
    ///
    /// # Errors
    /// [`PlanError`], if the request makes no sense or can't be met.
    pub fn new(request: &Request<'_>) -> Result<Self, PlanError> {
        let alignment = request.check()?;
        let smallest = request.needed.next_multiple_of(alignment);
        let limit = request.demands.largest_stride.unwrap_or(usize::MAX);
        if smallest > limit {
            let Request { needed, .. } = *request;
            return Err(PlanError::NoStride { needed, alignment, largest: limit });
        }
        let longest = limit.min(smallest + LINES_MORE * HEADER_BYTES);
        let constant = (smallest..=longest).step_by(alignment).map(Layout::constant);
        let constant = request.best(constant).unwrap_or_else(|| request.lay(Layout::constant(smallest)));
        // Padding moves a buffer by a line, which no alignment beyond a line bears.
        let padded = (alignment == CacheShape::common_line(request.caches)).then(|| {
            (0..=RAREST_PADDING_LOG2).map(|every_log2| Layout {
                stride: smallest,
                padding: Some(Padding { every_log2, bytes: alignment }),
            })
        });
        let padded = padded.and_then(|candidates| request.best(candidates));
        let may_pad = !request.demands.constant_stride;
        let mut weighed = vec![constant.weigh(true)];
        let mut chosen = constant;
        if let Some(padded) = padded {
            weighed.push(padded.weigh(may_pad));
            if may_pad && padded.merit() < chosen.merit() {
                chosen = padded;
            }
        }
        Ok(Self { weighed, ..chosen })
    }

    /// The best stride for a pool on this machine, whose buffers need `needed` bytes with `headroom` bytes in front of the
    /// data. It may be that there is no better one than the smallest.
    pub fn for_this_machine(needed: usize, headroom: usize) -> Self {
        let caches = CacheShape::of_this_machine();
        let request = Request { needed, headroom, caches: &caches, memory: None, demands: Demands::POOL };
        Self::new(&request)
            .unwrap_or_else(|_| request.lay(Layout::constant(needed.next_multiple_of(HEADER_BYTES))))
    }

    /// A given stride, to see how it would do, whether it holds a buffer or not.
    pub fn with_stride(needed: usize, headroom: usize, stride: usize, caches: &[CacheShape]) -> Self {
        let request = Request { needed, headroom, caches, memory: None, demands: Demands::POOL };
        request.lay(Layout::constant(stride))
    }

    /// A given stride for a request that may demand something of it.
    ///
    /// # Errors
    /// [`PlanError`], if the request makes no sense or the stride does not meet it.
    pub fn given(request: &Request<'_>, stride: usize) -> Result<Self, PlanError> {
        let alignment = request.check()?;
        let largest = request.demands.largest_stride.unwrap_or(usize::MAX);
        if stride > largest {
            return Err(PlanError::NoStride { needed: stride, alignment, largest });
        }
        if !(request.needed..=LONGEST_STRIDE).contains(&stride) || !stride.is_multiple_of(alignment) {
            return Err(PlanError::Stride { stride, alignment, needed: request.needed });
        }
        Ok(request.lay(Layout::constant(stride)))
    }

    /// Where each buffer starts.
    pub const fn layout(&self) -> Layout {
        Layout { stride: self.stride, padding: self.padding }
    }

    /// Bytes of a region of so many buffers.
    ///
    /// # Errors
    /// [`PlanError::Region`], if that is more than a port can reach.
    pub fn region_bytes(&self, buffers: u32) -> Result<u64, PlanError> {
        // 2³² buffers of up to 2³⁰ bytes don't overflow 64 bits.
        let bytes = self.layout().offset(buffers as usize) as u64;
        match self.demands.largest_region {
            Some(largest) if bytes > largest => {
                Err(PlanError::Region { buffers, stride: self.stride, largest })
            }
            _ => Ok(bytes),
        }
    }

    /// Hot lines that find no way in their set, over all caches.
    pub fn lost(&self) -> usize {
        self.spreads.iter().map(|spread| spread.lost).sum()
    }

    /// The share of the hot lines that find a place, 0 to 1, in the cache where that is least.
    pub fn kept(&self) -> f64 {
        self.spreads.iter().map(Spread::kept).fold(1.0, f64::min)
    }

    /// Bytes per buffer that are nobody's.
    pub fn waste(&self) -> f64 {
        self.layout().waste(self.needed) as f64 / f64::from(1 << 20)
    }

    /// By what layouts are compared, the best first: hot lines lost in whole per cent of each cache, parallelism of memory
    /// unused in whole per cent, bytes wasted. A per cent is not worth a line in every buffer.
    fn merit(&self) -> (usize, usize, bool, usize) {
        let lost = self.spreads.iter().map(|spread| spread.lost * 100 / spread.shape.lines().max(1)).sum();
        let unused = self.channels.as_ref().map_or(0, |channels| {
            (0..100)
                .take_while(|per_cent| channels.used() + 1e-9 < 1.0 - f64::from(*per_cent) / 100.0)
                .count()
        });
        // Without any known cache, an odd number of lines is what suits most.
        let even = self.spreads.is_empty() && (self.stride / HEADER_BYTES).is_multiple_of(2);
        (lost, unused, even, self.layout().waste(self.needed))
    }

    fn weigh(&self, allowed: bool) -> Weighed {
        Weighed { layout: self.layout(), kept: self.kept(), waste: self.waste(), allowed }
    }
}

impl Request<'_> {
    /// Where buffers may start.
    ///
    /// # Errors
    /// What is wrong with the request.
    fn check(&self) -> Result<usize, PlanError> {
        let Self { needed, headroom, demands, .. } = *self;
        if needed <= HEADER_BYTES {
            return Err(PlanError::NoSpace { needed });
        }
        if needed > demands.page {
            return Err(PlanError::LargerThanPage { needed, page: demands.page });
        }
        if demands.alignment < HEADER_BYTES || !demands.alignment.is_power_of_two() {
            return Err(PlanError::Alignment { alignment: demands.alignment });
        }
        if headroom < demands.headroom {
            return Err(PlanError::Headroom { headroom, demanded: demands.headroom });
        }
        CacheShape::check_all(self.caches)?;
        if let Some(memory) = self.memory {
            memory.check()?;
        }
        // Where lines are longer than a header, neighbours must not share one.
        Ok(demands.alignment.max(CacheShape::common_line(self.caches)))
    }

    /// What becomes of a layout.
    fn lay(&self, layout: Layout) -> Plan {
        let data_offset = HEADER_BYTES + self.headroom;
        let (indexed, hashed): (Vec<CacheShape>, Vec<CacheShape>) =
            self.caches.iter().partition(|shape| shape.is_indexed());
        Plan {
            needed: self.needed,
            stride: layout.stride,
            padding: layout.padding,
            data_offset,
            spreads: indexed.into_iter().map(|shape| Spread::of_layout(shape, layout, data_offset)).collect(),
            hashed,
            channels: self.memory.map(|memory| ChannelSpread::of(memory, layout)),
            demands: self.demands,
            weighed: Vec::new(),
        }
    }

    /// The best of some layouts; the first of equals, which is the smallest stride.
    fn best(&self, candidates: impl Iterator<Item = Layout>) -> Option<Plan> {
        candidates.map(|layout| self.lay(layout)).min_by_key(Plan::merit)
    }
}
