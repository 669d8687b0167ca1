//! What can go wrong when a port is opened.

use thiserror::Error;
use warmlane_driver_common::SystemError;
use warmlane_driver_common::peer::SocketError;

/// Why a port could not be opened.
#[derive(Debug, Error)]
pub enum VirtioError {
    /// Something is wrong with the socket.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// So many pairs of queues are not possible.
    #[error("{queues} pairs of queues are not possible: the protocol allows 1 to 128")]
    Queues {
        /// What was asked for.
        queues: usize,
    },
    /// No ring can be that long.
    #[error("ring-size={size}: rings have a power of two of descriptors, from 64 to 32768")]
    RingSize {
        /// What was asked for.
        size: u16,
    },
    /// The other side did not come.
    #[error("no {who} was there on socket {socket:?} in {seconds} s{reason}")]
    Nobody {
        /// What the other side would have been.
        who: &'static str,
        /// The socket.
        socket: String,
        /// How long was waited.
        seconds: u32,
        /// What went wrong at the last attempt, behind ": "; empty if there was none.
        reason: String,
    },
    /// A system call failed.
    #[error(transparent)]
    System(#[from] SystemError),
}
