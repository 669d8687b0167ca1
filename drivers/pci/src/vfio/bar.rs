//! Registers in memory.

use rustix::fd::{AsRawFd as _, OwnedFd};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use warmlane_sys::device_order;

/// What a base address register leads to, mapped.
#[derive(Debug)]
pub(crate) struct Bar {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: an address in a mapping that no thread owns; accesses are volatile, and each argues for itself.
unsafe impl Send for Bar {}
// SAFETY: as above; the device orders what threads do to it at once.
unsafe impl Sync for Bar {}

impl Bar {
    pub(super) fn map(device: &OwnedFd, offset: u64, length: u64) -> io::Result<Self> {
        let (bytes, offset) = (usize::try_from(length), libc::off_t::try_from(offset));
        let (Ok(length), Ok(offset)) = (bytes, offset) else {
            return Err(io::Error::other("registers behind the last address"));
        };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping wherever the kernel likes, which changes none that is there.
        let address = unsafe {
            libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, device.as_raw_fd(), offset)
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mapped at no address"))?;
        Ok(Self { start, length })
    }

    pub(crate) const fn length(&self) -> usize {
        self.length
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and windows hold the mapping for as long as they are used.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// Registers by their offsets. Those outside read as all ones, as those of a device that is gone do, and are not written.
///
/// They are in order with memory: what was stored there before a register is written, the device finds there when it learns of it; and what is loaded behind a
/// register that was read is what the device had stored by then.
pub(crate) trait Registers {
    fn read8(&self, offset: usize) -> u8;
    fn read16(&self, offset: usize) -> u16;
    fn read32(&self, offset: usize) -> u32;
    fn write8(&self, offset: usize, value: u8);
    fn write16(&self, offset: usize, value: u16);
    fn write32(&self, offset: usize, value: u32);

    /// As two halves, the lower first: devices need not take eight bytes at once.
    fn write64(&self, offset: usize, value: u64) {
        self.write32(offset, value as u32);
        self.write32(offset + 4, (value >> 32) as u32);
    }
}

/// A part of a mapping.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    bar: Arc<Bar>,
    offset: usize,
    length: usize,
}

impl Window {
    /// `None` if it is not inside.
    pub(crate) fn new(bar: &Arc<Bar>, offset: u32, length: u32) -> Option<Self> {
        let (offset, length) = (offset as usize, length as usize);
        let is_inside = offset.checked_add(length).is_some_and(|end| end <= bar.length());
        is_inside.then(|| Self { bar: Arc::clone(bar), offset, length })
    }

    /// Whether a register of two bytes can be there.
    pub(crate) fn has16(&self, offset: usize) -> bool {
        self.pointer::<u16>(offset).is_some()
    }

    /// Where a register of this type is, if it is inside and at a multiple of its size.
    #[inline(always)]
    fn pointer<T>(&self, offset: usize) -> Option<NonNull<T>> {
        if offset.checked_add(size_of::<T>())? > self.length {
            return None;
        }
        // SAFETY: offset is below the window's length, which ends inside the mapping (`new`).
        let pointer = unsafe { self.bar.start.add(self.offset + offset) };
        pointer.addr().get().is_multiple_of(size_of::<T>()).then(|| pointer.cast())
    }
}

macro_rules! registers {
    ($($read:ident, $write:ident: $kind:ty;)+) => {
        impl Registers for Window {
            $(
                #[inline(always)]
                fn $read(&self, offset: usize) -> $kind {
                    let Some(pointer) = self.pointer::<$kind>(offset) else { return <$kind>::MAX };
                    // SAFETY: `pointer` says that it is mapped and aligned; any bits are an integer, and reads of registers are volatile.
                    let value = unsafe { pointer.read_volatile() };
                    device_order::after_read();
                    value
                }

                #[inline(always)]
                fn $write(&self, offset: usize, value: $kind) {
                    if let Some(pointer) = self.pointer::<$kind>(offset) {
                        device_order::before_write();
                        // SAFETY: as for reading; what a device does about it stays in the memory that it was given, or, without an IOMMU, where its driver leads it.
                        unsafe { pointer.write_volatile(value) };
                    }
                }
            )+
        }
    };
}

registers! {
    read8, write8: u8;
    read16, write16: u16;
    read32, write32: u32;
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    #[test]
    fn windows_end_where_they_should() {
        let file = memfd_create("registers", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 4096).unwrap();
        let bar = Arc::new(Bar::map(&file, 0, 4096).unwrap());
        for (offset, length) in [(4096, 1), (0, 4097), (u32::MAX, 1), (u32::MAX, u32::MAX), (4000, 97)] {
            assert!(Window::new(&bar, offset, length).is_none(), "{offset} {length}");
        }
        let window = Window::new(&bar, 4088, 8).unwrap();
        window.write64(0, 0x1122_3344_5566_7788);
        assert_eq!((window.read32(0), window.read16(6), window.read8(7)), (0x5566_7788, 0x1122, 0x11));
        // Outside, and across.
        window.write16(8, 1);
        window.write32(6, 0);
        window.write16(usize::MAX, 0);
        assert_eq!(
            (window.read32(4), window.read8(8), window.read16(7), window.read32(usize::MAX)),
            (0x1122_3344, 0xff, 0xffff, u32::MAX)
        );
    }
}
