//! Files in memory, and the system calls that fill them.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{self, FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;

use super::{AddressRange, MappingError, MappingRequest, advise};

/// A system call that failed.
pub(crate) struct Refusal {
    pub(super) call: &'static str,
    pub(super) source: io::Error,
}

impl Refusal {
    pub(crate) fn last(call: &'static str) -> Self {
        Self { call, source: io::Error::last_os_error() }
    }

    pub(super) fn into_error(self, request: &MappingRequest) -> MappingError {
        self.named(&request.name)
    }

    pub(crate) fn named(self, name: &str) -> MappingError {
        MappingError::System { name: name.to_owned(), call: self.call, source: self.source }
    }
}

/// An unnamed file in memory of the given length, sealed against being resized.
pub(super) fn create_file(name: &CString, flags: libc::c_uint, length: usize) -> Result<OwnedFd, Refusal> {
    let refused = |call| move |errno: Errno| Refusal { call, source: errno.into() };
    let flags = MemfdFlags::from_bits_retain(flags) | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // From Linux 6.3; a machine with `vm.memfd_noexec=2` refuses files without it.
    let file = match fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // The kernel is older than the flag.
        Err(Errno::INVAL) => fs::memfd_create(name, flags),
        file => file,
    }
    .map_err(refused("memfd_create"))?;
    fs::ftruncate(&file, length as u64).map_err(refused("ftruncate"))?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fs::fcntl_add_seals(&file, seals).map_err(refused("fcntl(F_ADD_SEALS)"))?;
    Ok(file)
}

/// Allocates and maps every page.
pub(super) fn populate(range: &AddressRange, file: &OwnedFd, page_bytes: usize) -> Result<(), Refusal> {
    match advise(range, libc::MADV_POPULATE_WRITE) {
        Err(source) if source.raw_os_error() == Some(libc::EINVAL) => {}
        Err(source) => return Err(Refusal { call: "madvise(MADV_POPULATE_WRITE)", source }),
        Ok(()) => return Ok(()),
    }
    // Before Linux 5.14: allocate through the file, which reports an error where a write would raise SIGBUS, then touch.
    fs::fallocate(file, FallocateFlags::empty(), 0, range.length() as u64)
        .map_err(|errno| Refusal { call: "fallocate", source: errno.into() })?;
    for offset in (0..range.length()).step_by(page_bytes) {
        // SAFETY: inside the mapping, which is readable and writable and not shared with anyone yet.
        unsafe {
            let byte = range.start().add(offset);
            byte.write_volatile(byte.read_volatile());
        }
    }
    Ok(())
}
