//! What can go wrong when lanes start and end.

use crate::builder::GraphError;
use crate::task::TaskFailed;
use warmlane_sys::affinity::AffinityError;

/// Why a lane could not start, or how it ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaneError {
    /// Lanes don't share a core unless they are told to.
    #[error(
        "{wanted} lanes need {wanted} CPUs, and this process may use {available}: ask for fewer lanes, widen its affinity (taskset, cpuset), or name a CPU for each, the same for several"
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
    /// The system gives no thread.
    #[error("no thread for lane '{lane}'")]
    Spawn {
        /// The lane's name.
        lane: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// The lane's pipeline cannot be put together.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// A part of the task broke, such as a port whose interface went away.
    #[error("lane '{lane}': {source}")]
    Failed {
        /// The lane's name.
        lane: String,
        /// What broke.
        source: TaskFailed,
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
