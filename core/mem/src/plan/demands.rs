//! What ports demand of the memory that buffers stand in.

use super::PlanError;
use crate::header::HEADER_BYTES;
use warmlane_sys::pages::HUGE_2M_BYTES;

/// What the ports that share a pool's memory demand of where its buffers stand. Several ports' demands are met together
/// by [`and`](Self::and).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demands {
    /// Buffers start at multiples of so many bytes.
    pub alignment: usize,
    /// Bytes from one buffer to the next at most.
    pub largest_stride: Option<usize>,
    /// Free bytes in front of the data at least.
    pub headroom: usize,
    /// Bytes of the whole region at most.
    pub largest_region: Option<u64>,
    /// Bytes that a buffer may have at most because it must lie in one page.
    pub page: usize,
    /// Buffer `n` stands at `n` times the stride: no padding in between.
    pub constant_stride: bool,
}

impl Default for Demands {
    /// Those of a pool without ports.
    fn default() -> Self {
        Self::POOL
    }
}

impl Demands {
    /// What any memory can do that buffers are cut from.
    pub const ANY: Self = Self {
        alignment: HEADER_BYTES,
        largest_stride: None,
        headroom: 0,
        largest_region: None,
        page: HUGE_2M_BYTES,
        constant_stride: false,
    };

    /// What [`Pool`](crate::Pool) demands: it finds a buffer by one multiplication, on every take.
    pub const POOL: Self = Self { constant_stride: true, ..Self::ANY };

    /// Memif: descriptors carry 32-bit offsets into a region (`memif_region_offset_t`, memif protocol version 2).
    pub const MEMIF: Self = Self { largest_region: Some(1 << 32), ..Self::ANY };

    /// Vhost-user and virtio-user: descriptors carry addresses and lengths (Virtio 1.2, 2.7.5); anything goes.
    pub const VHOST_USER: Self = Self::ANY;

    /// AF_XDP where chunks may start anywhere (`XDP_UMEM_UNALIGNED_CHUNK_FLAG`, Linux 5.4). The kernel keeps 256 bytes in
    /// front of a received frame (`XDP_PACKET_HEADROOM`), and a chunk may be up to a base page long (`xdp_umem_reg` in
    /// net/xdp/xdp_umem.c).
    pub const XDP_UNALIGNED: Self = Self { headroom: 256, largest_stride: Some(4_096), ..Self::ANY };

    /// AF_XDP with aligned chunks: the kernel masks the low bits of an address away, so buffers stand exactly one chunk
    /// apart. A chunk is a power of two from 2,048 bytes to a base page.
    ///
    /// # Errors
    /// [`PlanError::Chunk`].
    pub const fn xdp_aligned(chunk: usize) -> Result<Self, PlanError> {
        match chunk {
            2_048 | 4_096 => {
                Ok(Self { alignment: chunk, largest_stride: Some(chunk), headroom: 256, ..Self::ANY })
            }
            _ => Err(PlanError::Chunk { chunk }),
        }
    }

    /// Demands that meet both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        fn least<T: Ord>(first: Option<T>, second: Option<T>) -> Option<T> {
            match (first, second) {
                (Some(first), Some(second)) => Some(first.min(second)),
                (first, second) => first.or(second),
            }
        }
        Self {
            // Powers of two, so the larger one is a multiple of the other.
            alignment: self.alignment.max(other.alignment),
            largest_stride: least(self.largest_stride, other.largest_stride),
            headroom: self.headroom.max(other.headroom),
            largest_region: least(self.largest_region, other.largest_region),
            page: self.page.min(other.page),
            constant_stride: self.constant_stride || other.constant_stride,
        }
    }
}
