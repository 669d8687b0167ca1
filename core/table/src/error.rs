//! What can go wrong when a table is changed

use thiserror::Error;

use crate::arena::NoSpace;
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
    /// The table is as large as it can get
    #[error(
        "the table has no space for {bytes} bytes: load fewer routes, or look for a reader that does not report and \
         so holds up the memory of old ones"
    )]
    Full {
        /// How many bytes the table would have to have
        bytes: usize,
    },
    /// The table was shared with readers of one RCU domain, then with those of another
    #[error(
        "the table is shared with readers of another RCU domain: use one domain for all lanes of a table"
    )]
    ForeignDomain,
}

impl From<NoSpace> for TableError {
    fn from(no_space: NoSpace) -> Self {
        match no_space {
            NoSpace::Memory { bytes } => Self::Memory { bytes },
            NoSpace::Full { bytes } => Self::Full { bytes },
        }
    }
}
