//! Buffers that are in two pieces for a device that no IOMMU stands in front of.

use super::{Reach, VfioDevice};
use crate::error::PciError;
use std::sync::Arc;
use warmlane_driver_common::Environment;
use warmlane_mem::Region;

/// Buffers of a pool that lie across two huge pages, which are seldom neighbours in memory. They are taken out of the pool for as long as this is kept, so that no
/// device gets one.
#[derive(Debug)]
pub(crate) struct Crossing {
    region: Region,
    indices: Vec<u32>,
}

impl Crossing {
    /// Those of the pool, if this device reaches it without an IOMMU. Before lanes take buffers.
    ///
    /// # Errors
    /// [`PciError::Device`]: somebody has one already.
    pub(crate) fn take_out(
        device: &VfioDevice,
        environment: &mut Environment<'_>,
    ) -> Result<Option<Arc<Self>>, PciError> {
        if device.reach() == Reach::Given {
            return Ok(None);
        }
        let (region, address) = (environment.pool.region(), device.address());
        // All ports of a program have one pool.
        let crossing = environment.shared.get_or_try_insert(|| {
            let page_bytes = region.pool().page_size().bytes();
            Self::of(region, page_bytes).map(Arc::new).ok_or_else(|| {
                let problem = "buffers of the pool that lie across two huge pages are in use: open this port before others";
                PciError::Device { address, problem: problem.to_owned() }
            })
        });
        crossing.map(|crossing| Some(Arc::clone(crossing)))
    }

    /// Those that cross pages of so many bytes. `None`: somebody has one.
    fn of(region: Region, page_bytes: usize) -> Option<Self> {
        let crosses = |index: u32| {
            let start = region.offsets().of(index) as usize;
            start / page_bytes != (start + region.end() - 1) / page_bytes
        };
        let mut free = vec![0; region.buffers() as usize];
        let count = region.take_raw(&mut free);
        free.truncate(count);
        let (indices, others): (Vec<u32>, Vec<u32>) = free.into_iter().partition(|index| crosses(*index));
        // SAFETY: they were taken just now, and nobody has heard of them.
        unsafe { region.free_raw(&others) };
        let all = (0..region.buffers()).filter(|index| crosses(*index)).count();
        let crossing = Self { region, indices };
        (crossing.indices.len() == all).then_some(crossing)
    }
}

impl Drop for Crossing {
    fn drop(&mut self) {
        // SAFETY: they were taken, and nobody has heard of them since.
        unsafe { self.region.free_raw(&self.indices) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_mem::{Pool, PoolConfig};

    #[test]
    fn buffers_across_two_pages_are_out_of_reach() {
        let pool = Pool::new(&PoolConfig { buffers: 1000, ..PoolConfig::default() }).unwrap();
        let (region, page) = (pool.region(), 64 << 10);
        let crossing = Crossing::of(region.clone(), page).unwrap();
        let there = pool.ledger().outstanding();
        assert_eq!(there, crossing.indices.len() as u64);
        assert!(there > 20, "{there} of 1,000 buffers lie across pages of 64 KiB");
        let taken: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(taken.len() as u64, 1000 - there);
        for packet in &taken {
            let offset = packet.data().as_ptr().addr() - region.address().addr().get();
            assert_eq!(offset / page, (offset + region.data_size() - 1) / page);
        }
        assert!(Crossing::of(region.clone(), page).is_none(), "the others have them");
        drop(taken);
        drop(crossing);
        assert_eq!(pool.ledger().outstanding(), 0);
        assert!(Crossing::of(region, 1 << 30).is_some_and(|crossing| crossing.indices.is_empty()));
    }
}
