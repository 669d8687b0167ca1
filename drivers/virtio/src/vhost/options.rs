//! What a port should be like.

use crate::connection::role::Role;
use serde::{Deserialize, Serialize};

/// What a port should be like.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct VhostOptions {
    /// The socket: a path, or `@` and a name, for one without a file (an abstract socket).
    pub socket: String,
    /// Who makes it.
    #[serde(default = "default_role")]
    pub role: Role,
    /// Pairs of rings; `None` is one for each lane.
    #[serde(default)]
    pub queues: Option<u16>,
    /// Let the driver leave checksums and segmentation to us, and leave them to it.
    #[serde(default = "default_offloads")]
    pub offloads: bool,
    /// Let the driver have hashes of packets, as far as the ports that these came by have found them.
    #[serde(default)]
    pub hash_report: bool,
    /// Seconds to wait for a driver when the port is opened.
    #[serde(default)]
    pub wait: u32,
}

const fn default_role() -> Role {
    Role::Server
}

const fn default_offloads() -> bool {
    true
}

impl VhostOptions {
    /// The defaults, for this socket.
    pub fn new(socket: &str, role: Role) -> Self {
        Self { socket: socket.to_owned(), role, queues: None, offloads: true, hash_report: false, wait: 0 }
    }
}
