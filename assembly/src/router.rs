//! A router by the kernel's routes: which way packets of each interface take, the ports of those on path `user`, and the lanes between them.

mod interfaces;
mod paths;
mod ports;
mod punt;

use warmlane_counters::Labels;
use warmlane_forward::control::config::IcmpLimits;
use warmlane_mem::Pool;
use warmlane_router::control::Follower;
use warmlane_router::datapath::{HoldLimits, Punt};

pub use interfaces::{InterfaceError, Interfaces, PathViews};
pub use paths::{LeftInterfaces, PathSettings, Remark, on_user_path};
pub use ports::{LaneQueues, UserPorts, UserPortsError, spare_ports};

use crate::lanes::{Assembly, LaneSettings, StartError};

impl Assembly {
    /// Forwards between the interfaces that `queues` are of, as `follower` follows the kernel's routes. Lanes hold packets for unresolved
    /// neighbours as far as `hold_limits` allow, and send ICMP errors as far as `icmp` does. Without interfaces there are no lanes, else as
    /// many as the queues were opened for.
    ///
    /// # Errors
    /// [`StartError`]; [`StartError::OtherLanes`], if `settings` say another number of lanes.
    pub fn route(
        pool: Pool,
        settings: &LaneSettings,
        mut queues: LaneQueues,
        follower: &mut Follower,
        hold_limits: HoldLimits,
        icmp: IcmpLimits,
    ) -> Result<Self, StartError> {
        queues.check(settings.lanes.max(1))?;
        let ports = std::mem::take(&mut queues.ports);
        let assembly = Self::start(pool, settings, ports, |lane| {
            let (routes, tunnels, hold) = follower.lane(&lane.name, hold_limits)?;
            let forwarder = lane.forwarder(routes, icmp);
            let punt = Punt::new(queues.entrances.clone());
            let (vacant, outputs) = queues.take_extra();
            let ports = lane.take_ports().into_iter().chain(vacant).collect();
            Ok(warmlane_router::pipeline((tunnels, forwarder), hold, punt, ports, outputs)?)
        })?;
        for punt in &queues.punts {
            assembly.add_punt(punt);
        }
        assembly.registry().add(Labels::new().with("function", "router"), follower.counters());
        assembly.registry().add(Labels::new().with("function", "router"), follower.table_counters());
        Ok(assembly)
    }
}
