//! What can go wrong when a table is changed

use thiserror::Error;

use crate::prefix::IpPrefix;

/// Why a table could not be changed; the table is as it was before
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TableError {
    /// The prefix to remove has no route of its own
    #[error("there is no route to {prefix}: remove only what was inserted, with the same length")]
    NotFound {
        /// The prefix asked for
        prefix: IpPrefix,
    },
    /// A route was given [`NextHopId::NONE`](crate::NextHopId::NONE), which is the answer where there is no route
    #[error("the route to {prefix} has no next hop: give one, or remove the route")]
    NoNextHop {
        /// The prefix of the route
        prefix: IpPrefix,
    },
    /// The system gave no memory for the table
    #[error("no memory for a table of {bytes} bytes: free some, or load fewer routes")]
    Memory {
        /// How many bytes the table asked for
        bytes: usize,
    },
}
