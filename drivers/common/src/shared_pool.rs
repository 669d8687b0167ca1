//! A pool's memory that a device on a bus reaches.

use std::sync::{Arc, Mutex, PoisonError};

use warmlane_mem::Region;

/// A pool's memory, as a device finds it. The device fills its buffers, and sends what is in them, where they are.
///
/// It reaches all of that memory then, and is trusted like this program: which buffers it has is remembered by who drives it and not believed of it, but what it
/// writes elsewhere, or later than it says, nobody can keep it from.
#[derive(Debug)]
pub struct SharedPool {
    region: Region,
    places: Places,
    left: Mutex<Vec<u32>>,
}

/// Where a device finds a region.
#[derive(Debug)]
enum Places {
    OnePiece(u64),
    /// Of each page: what is added to an offset in the region; and the logarithm of a page's bytes.
    Pages(Box<[u64]>, u32),
}

/// Where a device finds what is in a region. A copy: in a loop that also writes to memory it stays in registers.
#[derive(Clone, Copy, Debug)]
pub enum PoolAddresses<'a> {
    /// All behind this address.
    OnePiece(u64),
    /// Pages, each somewhere else.
    Pages {
        /// Of each: what is added to an offset in the region.
        differences: &'a [u64],
        /// The logarithm of a page's bytes.
        shift: u32,
    },
}

impl PoolAddresses<'_> {
    /// The device's address of what is at an offset in the region.
    #[inline(always)]
    pub fn of(self, offset: u64) -> u64 {
        match self {
            Self::OnePiece(start) => start + offset,
            Self::Pages { differences, shift } => {
                differences.get((offset >> shift) as usize).map_or(0, |page| page.wrapping_add(offset))
            }
        }
    }
}

impl SharedPool {
    /// Of a region that the device finds in one piece at this address. Whoever drops the last of them has reset the device, or keeps it from memory.
    pub fn new(region: Region, address: u64) -> Arc<Self> {
        Self::at(region, Places::OnePiece(address))
    }

    /// The same of one whose pages of so many bytes, a power of two, it finds at these addresses. No buffer that it gets may lie across two pages.
    pub fn in_pages(region: Region, pages: &[u64], page_bytes: usize) -> Arc<Self> {
        let shift = page_bytes.ilog2();
        let starts = (0..).map(|page: u64| page << shift);
        let differences = pages.iter().zip(starts).map(|(page, start)| page.wrapping_sub(start));
        Self::at(region, Places::Pages(differences.collect(), shift))
    }

    fn at(region: Region, places: Places) -> Arc<Self> {
        Arc::new(Self { region, places, left: Mutex::new(Vec::new()) })
    }

    /// The pool's memory.
    #[inline(always)]
    pub const fn region(&self) -> &Region {
        &self.region
    }

    /// Where the device finds it.
    #[inline(always)]
    pub const fn addresses(&self) -> PoolAddresses<'_> {
        match &self.places {
            Places::OnePiece(start) => PoolAddresses::OnePiece(*start),
            Places::Pages(differences, shift) => PoolAddresses::Pages { differences, shift: *shift },
        }
    }

    /// Its pages: where the device finds each, where it is in the region, and how many bytes of the region it has.
    pub fn pages(&self) -> impl Iterator<Item = (u64, usize, usize)> {
        let length = self.region.length();
        let page = match &self.places {
            Places::OnePiece(_) => length,
            Places::Pages(_, shift) => 1 << shift,
        };
        let starts = (0..length).step_by(page);
        starts.map(move |start| (self.addresses().of(start as u64), start, page.min(length - start)))
    }

    /// Keeps buffers that the device had when its rings ended, as it may use them until it is reset: they are freed when this is dropped.
    ///
    /// # Safety
    /// Each was made raw, is named once, and is nobody else's.
    pub unsafe fn keep(&self, buffers: impl Iterator<Item = u32>) {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).extend(buffers);
    }
}

impl Drop for SharedPool {
    fn drop(&mut self) {
        let left = self.left.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: nobody else has them (`keep`), and the device's access is gone (`new`).
        unsafe { self.region.free_raw(left) };
    }
}
