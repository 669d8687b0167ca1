//! A pool's memory, shared with the kernel.

use crate::error::XdpError;
use crate::socket::Channel;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use warmlane_mem::{METADATA_BYTES, Pool, Region};

/// The kernel keeps this much free in front of a frame, for XDP programs (`XDP_PACKET_HEADROOM`).
pub(crate) const KERNEL_HEADROOM: usize = 256;

/// Chunks have at least this many bytes (`XDP_UMEM_MIN_CHUNK_SIZE`), and at most a page of 4 KiB, the smallest there is
/// (`net/xdp/xdp_umem.c: xdp_umem_reg`).
const CHUNK_MINIMUM: usize = 2048;
const CHUNK_MAXIMUM: usize = 4096;

/// How buffers are made known to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Chunks are anywhere, so that buffers keep the stride that was planned for them; else they follow each other,
    /// at a power of two.
    pub(crate) unaligned: bool,
    /// Bytes in a chunk.
    pub(crate) chunk: u32,
    /// Where a buffer's chunk starts in it. Behind the metadata, where chunks may start anywhere.
    pub(crate) start: u64,
    /// Bytes of a frame that fit a chunk.
    pub(crate) frame: u32,
}

impl Geometry {
    /// The best for this region: chunks anywhere, else aligned ones; `None` if neither is possible.
    pub(crate) fn of(region: &Region) -> Option<Self> {
        let chunk = (region.end() - METADATA_BYTES).min(CHUNK_MAXIMUM);
        if chunk >= CHUNK_MINIMUM {
            return Some(Self {
                unaligned: true,
                chunk: chunk as u32,
                start: METADATA_BYTES as u64,
                frame: (chunk - KERNEL_HEADROOM) as u32,
            });
        }
        Self::aligned(region)
    }

    /// Chunks that follow each other. The metadata is then in the headroom that the kernel keeps for XDP programs, of
    /// which ours use none.
    pub(crate) fn aligned(region: &Region) -> Option<Self> {
        let stride = region.stride();
        let possible = (CHUNK_MINIMUM..=CHUNK_MAXIMUM).contains(&stride)
            && stride.is_power_of_two()
            && region.end() > KERNEL_HEADROOM;
        possible.then(|| Self {
            unaligned: false,
            chunk: stride as u32,
            start: 0,
            frame: (region.end().min(stride) - KERNEL_HEADROOM) as u32,
        })
    }
}

/// A pool's memory to be shared with the kernel (the kernel calls it UMEM). All ports opened with one pass packets to
/// each other without a copy in user space.
#[derive(Clone)]
pub struct Umem {
    state: Arc<State>,
}

struct State {
    region: Region,
    geometry: Geometry,
    channels: Mutex<Vec<Weak<Channel>>>,
}

impl std::fmt::Debug for Umem {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Umem").field("geometry", &self.state.geometry).finish_non_exhaustive()
    }
}

impl Umem {
    /// The memory of `pool`. The kernel learns of it when the first port is opened.
    ///
    /// # Errors
    /// [`XdpError::Buffers`]: the buffers are too small.
    pub fn new(pool: &Pool) -> Result<Self, XdpError> {
        let region = pool.region();
        let geometry =
            Geometry::of(&region).ok_or_else(|| XdpError::Buffers { pool: pool.name().to_owned() })?;
        Ok(Self { state: Arc::new(State { region, geometry, channels: Mutex::default() }) })
    }

    pub(crate) fn region(&self) -> &Region {
        &self.state.region
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.state.geometry
    }

    /// An open socket in this mode, whose registration can be shared.
    pub(crate) fn channel(&self, zero_copy: bool, fragments: bool) -> Option<Arc<Channel>> {
        let channels = self.state.channels.lock().unwrap_or_else(PoisonError::into_inner);
        channels
            .iter()
            .filter_map(Weak::upgrade)
            .find(|channel| channel.zero_copy == zero_copy && channel.fragments == fragments)
    }

    pub(crate) fn add(&self, channel: &Arc<Channel>) {
        let mut channels = self.state.channels.lock().unwrap_or_else(PoisonError::into_inner);
        channels.retain(|channel| channel.strong_count() > 0);
        channels.push(Arc::downgrade(channel));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_mem::PoolConfig;

    fn geometry(data_size: usize, headroom: usize, stride: Option<usize>) -> Option<Geometry> {
        let config = PoolConfig {
            buffers: 16,
            magazine: Some(4),
            data_size,
            headroom,
            stride,
            ..PoolConfig::default()
        };
        Geometry::of(&Pool::new(&config).unwrap().region())
    }

    #[test]
    fn the_planned_stride_survives() {
        let usual = geometry(2048, 128, None).unwrap();
        assert_eq!(usual, Geometry { unaligned: true, chunk: 2176, start: 64, frame: 1920 });
        // Larger buffers are used up to a page.
        assert_eq!(geometry(9216, 128, None).unwrap().frame, 4096 - 256);
    }

    #[test]
    fn small_buffers_need_a_power_of_two() {
        assert_eq!(
            geometry(1792, 128, Some(2048)),
            Some(Geometry { unaligned: false, chunk: 2048, start: 0, frame: 1984 - 256 })
        );
        assert_eq!(geometry(1792, 128, Some(2112)), None);
        let pool = PoolConfig { buffers: 16, magazine: Some(4), data_size: 512, ..PoolConfig::default() };
        let error = Umem::new(&Pool::new(&pool).unwrap()).unwrap_err().to_string();
        assert!(error.contains("\"packets\"") && error.contains("2048"), "{error}");
    }
}
