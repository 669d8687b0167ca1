//! What the scheduler knows of a thread: sched_setattr(2).

use std::io;

/// `struct sched_attr` in its second version (include/uapi/linux/sched/types.h of the kernel).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attributes {
    pub(crate) size: u32,
    pub(crate) policy: u32,
    pub(crate) flags: u64,
    pub(crate) nice: i32,
    pub(crate) priority: u32,
    /// Nanoseconds. For threads of the usual class, how long a slice they ask for (Linux 6.12).
    pub(crate) runtime: u64,
    pub(crate) deadline: u64,
    pub(crate) period: u64,
    pub(crate) util_min: u32,
    pub(crate) util_max: u32,
}

const SIZE: u32 = size_of::<Attributes>() as u32;

impl Attributes {
    /// Those of a thread; 0 is the calling one.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn of(thread: u32) -> io::Result<Self> {
        let mut found = Self::default();
        // SAFETY: the kernel writes `SIZE` bytes at most to a structure of that size, which lives across the call.
        let result = unsafe { libc::syscall(libc::SYS_sched_getattr, thread, &raw mut found, SIZE, 0) };
        if result == 0 { Ok(found) } else { Err(io::Error::last_os_error()) }
    }

    /// Gives them to a thread.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn give(self, thread: u32) -> io::Result<()> {
        let mut attributes = Self { size: SIZE, ..self };
        // SAFETY: the kernel reads `size` bytes of a structure that lives across the call, and writes nothing but its size.
        let result = unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw mut attributes, 0) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}
