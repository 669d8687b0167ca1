//! The kernel's view of the network, by netlink.

mod conntrack;
mod decode;
mod decode_bridge;
mod decode_tunnel;
mod event;
mod fdb;
mod features;
mod hooks;
mod ipvs;
mod route_question;
mod socket;
mod switches;
mod table;
mod traffic_control;
mod view;
mod xtables;

pub use conntrack::{Connection, Conntrack, Tuple};
pub use decode::decode;
pub use event::{
    Address, BridgePort, Event, IpTunnelDevice, Link, LinkIndex, Neighbour, NeighbourState, NextHopObject,
    Placement, Route, RouteKey, RoutePath, Rule, RuleAction, StationKey, Target, TunnelEnd, Vxlan,
};
pub use fdb::Stations;
pub use features::XdpFeatures;
pub use hooks::{Hook, HookKind, HookPlace, told_hooks, untold_hooks};
pub use route_question::RouteQuestion;
pub use socket::{ChangeSocket, EventSocket, Received, RequestSocket};
pub use switches::Switches;
pub(crate) use switches::{read_switch, reverse_path};
pub(crate) use table::shortened;
pub use table::{KernelTable, PrefixRoutes};
pub use traffic_control::{OwnFilter, own_filters};
pub use view::{Changes, View};

/// A netlink attribute, padded to a multiple of four bytes.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut all = [(value.len() as u16 + 4).to_ne_bytes(), kind.to_ne_bytes()].concat();
    all.extend(value);
    all.resize(all.len().next_multiple_of(4), 0);
    all
}
