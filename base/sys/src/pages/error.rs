//! Why a mapping could not be had, and what to do about it.

use std::io;

use super::PageSize;

/// Why memory couldn't be had.
#[derive(Debug, thiserror::Error)]
pub enum MappingError {
    /// Nothing was asked for.
    #[error("{name}: a mapping of 0 bytes was asked for; ask for at least one")]
    ZeroLength {
        /// The request's name.
        name: String,
    },
    /// More was asked for than this machine, or this process's control group, can give.
    #[error(
        "{name}: {length} bytes were asked for, but only {available} bytes of memory are available; ask for \
         less (fewer or smaller buffers), or free memory"
    )]
    TooLarge {
        /// The request's name.
        name: String,
        /// Bytes asked for.
        length: usize,
        /// Bytes that could be had.
        available: u64,
    },
    /// The name can't be given to a file.
    #[error("mapping name {name:?} must have at most 249 bytes and no NUL byte; shorten it")]
    InvalidName {
        /// The name.
        name: String,
    },
    /// The kind of page that was demanded can't be had.
    #[error("{name}: {pages} can't be had for {length} bytes: {reason}; remedy: {remedy}")]
    Unavailable {
        /// The request's name.
        name: String,
        /// The pages demanded.
        pages: PageSize,
        /// Bytes asked for.
        length: usize,
        /// What is missing.
        reason: String,
        /// What to do about it.
        remedy: String,
    },
    /// The kernel refused.
    #[error(
        "{name}: the kernel refused {call}: {source}; check `ulimit -v`, `ulimit -n` and the control group's limits"
    )]
    System {
        /// The request's name.
        name: String,
        /// The system call.
        call: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}
