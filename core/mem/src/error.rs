//! What can go wrong when pools are made, attached and grown into.

use crate::plan::PlanError;
use warmlane_sys::pages::MappingError;

/// Why a pool cannot be made or attached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// A pool needs at least one buffer.
    #[error("pool '{pool}' has no buffers: ask for at least 1")]
    NoBuffers {
        /// The pool's name.
        pool: String,
    },
    /// Buffer indices have 24 bits.
    #[error(
        "pool '{pool}' asks for {buffers} buffers, more than the {} that one pool can have: use several pools",
        crate::id::MAXIMUM_BUFFERS
    )]
    TooManyBuffers {
        /// The pool's name.
        pool: String,
        /// What was asked for.
        buffers: u32,
    },
    /// Offsets inside a buffer have 16 bits.
    #[error(
        "pool '{pool}': header, headroom of {headroom} and {data_size} bytes of data exceed the {} bytes that a buffer can have: larger packets are chained",
        u16::MAX
    )]
    BufferTooLarge {
        /// The pool's name.
        pool: String,
        /// Bytes kept free in front of the data.
        headroom: usize,
        /// Bytes for data.
        data_size: usize,
    },
    /// A buffer without bytes for data holds nothing.
    #[error("pool '{pool}' has buffers without bytes for data: ask for at least 64 bytes")]
    NoSpace {
        /// The pool's name.
        pool: String,
    },
    /// The stride asked for does not hold a buffer, or is not a whole number of cache lines.
    #[error(
        "pool '{pool}': a stride of {stride} bytes is not a multiple of 64 from {needed}, which a buffer needs, up to 65536"
    )]
    Stride {
        /// The pool's name.
        pool: String,
        /// What was asked for.
        stride: usize,
        /// Header, headroom and data.
        needed: usize,
    },
    /// The ports that share the memory demand what cannot be met.
    #[error("pool '{pool}' cannot meet what its ports demand")]
    Plan {
        /// The pool's name.
        pool: String,
        /// What cannot be met, and what helps.
        source: PlanError,
    },
    /// A lane exchanges magazines of at most 4,096 indices.
    #[error("pool '{pool}': a magazine of {magazine} buffers is too large: use at most 4096, or 0 for none")]
    Magazine {
        /// The pool's name.
        pool: String,
        /// What was asked for.
        magazine: u32,
    },
    /// More memory than an address space has.
    #[error("{buffers} buffers of {stride} bytes exceed the address space: ask for fewer")]
    TooLarge {
        /// What was asked for.
        buffers: u32,
        /// Bytes from one buffer to the next.
        stride: usize,
    },
    /// The memory could not be had.
    #[error("pool '{pool}' has no memory")]
    Memory {
        /// The pool's name.
        pool: String,
        /// Why not, and what helps.
        source: MappingError,
    },
    /// Buffers of another process that don't lie in its memory.
    #[error(
        "pool '{pool}' can't lie in the {length} bytes of another process: its buffers don't fit, or no stride is given"
    )]
    LentMemory {
        /// The pool's name.
        pool: String,
        /// Bytes that there are.
        length: usize,
    },
    /// The register of pools is full.
    #[error("{} pools exist already: drop one first", crate::register::MAXIMUM_POOLS)]
    TooManyPools,
    /// This thread has a lane cache of this pool.
    #[error("this thread is attached to pool '{pool}' already: keep the first lane cache")]
    AlreadyAttached {
        /// The pool's name.
        pool: String,
    },
    /// Lanes can have half the pool reserved for them.
    #[error("pool '{pool}' cannot reserve {share} buffers: all shares together may be {limit}")]
    Share {
        /// The pool's name.
        pool: String,
        /// What was asked for.
        share: u32,
        /// What all lanes together may ask for.
        limit: u32,
    },
    /// As many lanes as there can be are attached.
    #[error("{} lanes are attached to pool '{pool}' already: detach one first", crate::shared::MAXIMUM_LANES)]
    TooManyLanes {
        /// The pool's name.
        pool: String,
    },
}

/// There is not enough space in the packet's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} bytes wanted where {available} are free")]
pub struct NoSpace {
    /// Bytes asked for.
    pub wanted: usize,
    /// Bytes that there are.
    pub available: usize,
}

/// The packet has fewer bytes than were to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} bytes to remove from {available}")]
pub struct TooShort {
    /// Bytes asked for.
    pub wanted: usize,
    /// Bytes that there are.
    pub available: usize,
}
