//! Who makes the socket.

use serde::{Deserialize, Serialize};

/// Who makes the socket. Either side of the protocol may.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// This side makes it and listens.
    Server,
    /// This side connects to it.
    Client,
}
