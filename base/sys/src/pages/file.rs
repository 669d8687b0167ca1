//! Files in memory, and the system calls that fill them.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

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
    let flags = flags | libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: `name` ends with NUL, which is all that memfd_create reads.
    let open = |flags| unsafe { libc::memfd_create(name.as_ptr(), flags) };
    // From Linux 6.3; a machine with `vm.memfd_noexec=2` refuses files without it.
    let mut descriptor = open(flags | libc::MFD_NOEXEC_SEAL);
    if descriptor < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL) {
        // The kernel is older than the flag.
        descriptor = open(flags);
    }
    if descriptor < 0 {
        return Err(Refusal::last("memfd_create"));
    }
    // SAFETY: the descriptor is open, and nobody else knows of it.
    let file = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let size = libc::off_t::try_from(length)
        .map_err(|_| Refusal { call: "ftruncate", source: io::Error::from_raw_os_error(libc::EFBIG) })?;
    // SAFETY: sets the size of a file that is ours.
    if unsafe { libc::ftruncate(file.as_raw_fd(), size) } != 0 {
        return Err(Refusal::last("ftruncate"));
    }
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: adds flags to a file that is ours.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } != 0 {
        return Err(Refusal::last("fcntl(F_ADD_SEALS)"));
    }
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
    // The length is at most `isize::MAX`, being that of a mapping.
    let size = libc::off_t::try_from(range.length()).unwrap_or(libc::off_t::MAX);
    // SAFETY: allocates blocks of a file that is ours.
    if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, size) } != 0 {
        return Err(Refusal::last("fallocate"));
    }
    for offset in (0..range.length()).step_by(page_bytes) {
        // SAFETY: inside the mapping, which is readable and writable and not shared with anyone yet.
        unsafe {
            let byte = range.start().add(offset);
            byte.write_volatile(byte.read_volatile());
        }
    }
    Ok(())
}
