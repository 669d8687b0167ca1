//! The kernel's view of the network, by netlink.

mod decode;
mod event;
mod hooks;
mod socket;
mod view;

pub use decode::decode;
pub use event::{
    Address, Event, Link, LinkIndex, Neighbour, NeighbourState, NextHopObject, Path, Placement, Route,
    RouteKey, Rule, RuleAction, Target,
};
pub use hooks::Hooks;
pub use socket::{Heard, News, Questions};
pub(crate) use view::shortened;
pub use view::{Changes, KernelTable, RouteList, View};
