//! What can go wrong when a port is opened.

use thiserror::Error;
use warmlane_driver_common::SystemError;
use warmlane_driver_common::peer::SocketError;

/// Why a port could not be opened.
#[derive(Debug, Error)]
pub enum MemifError {
    /// Something is wrong with the socket.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// Two ports of this program have the same id on one socket.
    #[error("socket {socket:?} already has a port with id {id}: give each port an id of its own")]
    IdInUse {
        /// The socket.
        socket: String,
        /// The id.
        id: u32,
    },
    /// The length of a ring is not possible.
    #[error("a ring of {size} descriptors is not possible: it needs a power of two from 2 to 16384")]
    RingSize {
        /// What was asked for.
        size: u32,
    },
    /// The size of a buffer is not possible.
    #[error("a buffer of {size} bytes is not possible: it needs 64 to 65472")]
    BufferSize {
        /// What was asked for.
        size: u32,
    },
    /// A secret is too long.
    #[error("the secret has {length} bytes, the protocol allows 1 to 23: choose a shorter one")]
    Secret {
        /// Its length in bytes.
        length: usize,
    },
    /// So many rings are not possible.
    #[error("{queues} rings in each direction are not possible: the protocol allows 1 to 255")]
    Queues {
        /// What was asked for.
        queues: usize,
    },
    /// The pool's memory can't be shown to the other side.
    #[error(
        "mode=zero-copy needs a pool of less than 4 GiB, for that is how far the protocol's offsets go, and this one has {bytes} bytes: ask for fewer buffers, or take mode=copy"
    )]
    PoolSize {
        /// Its bytes.
        bytes: usize,
    },
    /// The other side did not come.
    #[error("nobody connected to socket {socket:?} with id {id} in {seconds} s{reason}")]
    Nobody {
        /// The socket.
        socket: String,
        /// The id.
        id: u32,
        /// How long was waited.
        seconds: u32,
        /// What went wrong at the last attempt, behind ": "; empty if there was none.
        reason: String,
    },
    /// A system call failed.
    #[error(transparent)]
    System(#[from] SystemError),
}
