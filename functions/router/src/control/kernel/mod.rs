//! The kernel's view of the network, by netlink.

mod decode;
mod event;
mod features;
mod hooks;
mod socket;
mod view;
mod xtables;

pub use decode::decode;
pub use event::{
    Address, Event, Link, LinkIndex, Neighbour, NeighbourState, NextHopObject, Path, Placement, Route,
    RouteKey, Rule, RuleAction, Target,
};
pub use features::XdpFeatures;
pub use hooks::{Hook, HookPlace, told_hooks, untold_hooks};
pub use socket::{ChangeSocket, EventSocket, Received, RequestSocket};
pub(crate) use view::shortened;
pub use view::{Changes, KernelTable, RouteList, View};
