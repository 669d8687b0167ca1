//! What can go wrong when an exact-match table is made or changed

use thiserror::Error;

/// Why an exact-match table could not be made or changed; an existing table is as it was before
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ExactError {
    /// The table was asked for with space for no entry, or for more than it can number
    #[error("an exact-match table for {capacity} entries: ask for 1 to {maximum}")]
    Capacity {
        /// Entries asked for
        capacity: usize,
        /// The most that can be asked for
        maximum: usize,
    },
    /// The system gave no memory for the table
    #[error("no memory for an exact-match table of {bytes} bytes: free some, or ask for a smaller capacity")]
    Memory {
        /// How many bytes the table asked for
        bytes: usize,
    },
    /// There is no space for another entry that could be reached by moving others
    #[error(
        "the exact-match table is full: {entries} of its {slots} slots are taken and no space can be made; \
         expire or remove entries, or make a larger table"
    )]
    Full {
        /// Entries in the table
        entries: usize,
        /// Slots for entries
        slots: usize,
    },
    /// The key to remove is not in the table
    #[error("the key is not in the exact-match table: remove only what was inserted")]
    NotFound,
    /// An entry was given [`NO_VALUE`](crate::NO_VALUE), which is the answer where there is no entry
    #[error("the value {value:#x} means that there is no entry: give another, or remove the entry")]
    ReservedValue {
        /// The value
        value: u32,
    },
}

/// Why a burst of insertions ended early
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("after {inserted} of a burst: {cause}")]
pub struct ExactBurstError {
    /// How many entries, from the first on, are in the table
    pub inserted: usize,
    /// Why the next one is not, nor any after it
    #[source]
    pub cause: ExactError,
}
