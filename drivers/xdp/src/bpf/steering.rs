//! Which packets come to a port.

use serde::{Deserialize, Serialize};

/// What packets come to the sockets.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Steering {
    /// What passes through the box, and nothing else. The kernel gets what is for the box itself:
    ///
    /// - everything to a group (ARP requests, neighbour discovery, OSPF, IS-IS, LLDP),
    /// - everything to another Ethernet address than the interface's own (macvlan interfaces on it, virtual machines, VLANs with
    ///   Ethernet addresses of their own),
    /// - everything that is not IP, or has another tag than one of IEEE 802.1Q,
    /// - everything to one of the kernel's addresses (see [`LocalFilter`](crate::LocalFilter)) or a link-local one.
    Transit,
    /// Everything that comes in.
    #[default]
    All,
    /// Nothing: the port only sends, and the kernel goes on receiving.
    None,
}

/// Families of which all packets stay with the kernel, whoever they are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftFamilies {
    /// IPv4.
    pub ipv4: bool,
    /// IPv6.
    pub ipv6: bool,
}

/// All programs of `steering.bpf.c`: for each steering one, and one for packets of several buffers.
pub(super) const PROGRAMS: [&str; 6] = [
    "warmlane_transit",
    "warmlane_transit_frags",
    "warmlane_all",
    "warmlane_all_frags",
    "warmlane_none",
    "warmlane_none_frags",
];

impl Steering {
    /// The program that steers so.
    pub(super) const fn program(self, fragments: bool) -> &'static str {
        let [transit, transit_frags, all, all_frags, none, none_frags] = PROGRAMS;
        match (self, fragments) {
            (Self::Transit, false) => transit,
            (Self::Transit, true) => transit_frags,
            (Self::All, false) => all,
            (Self::All, true) => all_frags,
            (Self::None, false) => none,
            (Self::None, true) => none_frags,
        }
    }
}
