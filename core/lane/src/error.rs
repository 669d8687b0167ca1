//! What can go wrong when lanes start and end.

use warmlane_mem::PoolError;
use warmlane_sys::affinity::AffinityError;

/// Why a lane could not start, or how it ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaneError {
    /// Lanes never share a core: two poll loops on one would each see the other as a stall.
    #[error(
        "{wanted} lanes need {wanted} CPUs, and this process may use {available}: ask for fewer lanes, or widen its affinity (taskset, cpuset)"
    )]
    TooFewCpus {
        /// Lanes asked for.
        wanted: usize,
        /// CPUs that there are.
        available: usize,
    },
    /// The CPU asked for is not to be had.
    #[error("lane '{lane}' cannot be pinned")]
    Pin {
        /// The lane's name.
        lane: String,
        /// Why not.
        source: AffinityError,
    },
    /// The lane cannot have a cache of one of its pools.
    #[error("lane '{lane}' cannot be attached to its pool")]
    Attach {
        /// The lane's name.
        lane: String,
        /// Why not.
        source: Box<PoolError>,
    },
    /// The system gives no thread.
    #[error("no thread for lane '{lane}'")]
    Spawn {
        /// The lane's name.
        lane: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// The task panicked: a defect, in Warmlane or in a task of one's own.
    #[error("lane '{lane}' panicked: {message}")]
    Panicked {
        /// The lane's name.
        lane: String,
        /// The panic's message.
        message: String,
    },
}
