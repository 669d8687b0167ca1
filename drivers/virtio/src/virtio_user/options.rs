//! What a port should be like.

use crate::connection::role::Role;
use serde::{Deserialize, Serialize};

/// What a port should be like.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own, as users write it")]
pub struct VirtioUserOptions {
    /// The socket: a path, or `@` and a name, for one without a file (an abstract socket).
    pub socket: String,
    /// Who makes it.
    #[serde(default = "client")]
    pub role: Role,
    /// Pairs of rings; `None` is one for each lane.
    #[serde(default)]
    pub queues: Option<u16>,
    /// Descriptors of each ring, and buffers.
    #[serde(default = "ring_size")]
    pub ring_size: u16,
    /// Rings are packed; else split.
    #[serde(default)]
    pub packed: bool,
    /// Packets may be spread over several buffers, if the back end can do that.
    #[serde(default = "yes")]
    pub mergeable: bool,
    /// Buffers are used in order, if the back end can do that.
    #[serde(default = "yes")]
    pub in_order: bool,
    /// Leave checksums and segmentation to the back end, and let it leave them to us.
    #[serde(default = "yes")]
    pub offloads: bool,
    /// Take hashes of packets from the back end, if it reports them.
    #[serde(default)]
    pub hash_report: bool,
    /// Seconds to wait for a back end when the port is opened.
    #[serde(default)]
    pub wait: u32,
}

const fn client() -> Role {
    Role::Client
}

/// As memif's. Buffers of 256 descriptors stay in the other CPU's cache: packets of 1,518 bytes took three times as long to fetch from there as from the
/// cache that CPUs share (Zen 4).
const fn ring_size() -> u16 {
    1024
}

const fn yes() -> bool {
    true
}

impl VirtioUserOptions {
    /// The defaults, for this socket.
    pub fn new(socket: &str, role: Role) -> Self {
        Self {
            socket: socket.to_owned(),
            role,
            queues: None,
            ring_size: ring_size(),
            packed: false,
            mergeable: true,
            in_order: true,
            offloads: true,
            hash_report: false,
            wait: 0,
        }
    }
}
