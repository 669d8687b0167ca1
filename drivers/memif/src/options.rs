//! What a port should be like.

use serde::{Deserialize, Serialize};

/// Which side of the connection a port is.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It connects to the socket, and brings the memory. VPP also says "slave".
    #[default]
    Client,
    /// It makes the socket and listens. VPP also says "master".
    Server,
}

/// Whose buffers packets are in while they are in the ring.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Buffers that belong to the ring: each side copies.
    #[default]
    Copy,
    /// Those of the client's pool: the client copies nothing, and the server can write to the whole pool. A server with this mode doesn't copy either if its client
    /// is one of ours: it takes the client's buffers for its own, whose metadata the client can then write to.
    ZeroCopy,
}

/// What a port should be like.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct MemifOptions {
    /// The socket: a path, or `@` and a name, for one without a file (an abstract socket).
    pub socket: String,
    /// Which of the interfaces behind the socket.
    #[serde(default)]
    pub id: u32,
    /// Which side it is.
    #[serde(default)]
    pub role: Role,
    /// A word that both sides must have, of at most 23 bytes.
    #[serde(default)]
    pub secret: Option<String>,
    /// Descriptors in each ring, a power of two from 2 to 16,384; a client says it.
    #[serde(default = "default_ring_size")]
    pub ring_size: u32,
    /// Bytes of each buffer; a client says it.
    #[serde(default = "default_buffer_size")]
    pub buffer_size: u32,
    /// Rings in each direction; `None` is one for each lane.
    #[serde(default)]
    pub queues: Option<u16>,
    /// Whose buffers.
    #[serde(default)]
    pub mode: Mode,
    /// Take memory that the client could cut short: a server does not, by itself.
    #[serde(default)]
    pub allow_unsealed: bool,
    /// Seconds to wait for the other side when the port is opened.
    #[serde(default)]
    pub wait: u32,
}

const fn default_ring_size() -> u32 {
    MemifOptions::RING_SIZE
}

const fn default_buffer_size() -> u32 {
    MemifOptions::BUFFER_SIZE
}

impl MemifOptions {
    /// Descriptors in a ring, if nothing is said.
    pub const RING_SIZE: u32 = 1024;
    /// Bytes of a buffer, if nothing is said.
    pub const BUFFER_SIZE: u32 = 2048;

    /// The defaults, for this socket.
    pub fn new(socket: &str, role: Role) -> Self {
        Self {
            socket: socket.to_owned(),
            id: 0,
            role,
            secret: None,
            ring_size: Self::RING_SIZE,
            buffer_size: Self::BUFFER_SIZE,
            queues: None,
            mode: Mode::Copy,
            allow_unsealed: false,
            wait: 0,
        }
    }
}
