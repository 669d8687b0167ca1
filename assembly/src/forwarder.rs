//! A forwarder by a configuration, between open ports.

use std::sync::Arc;

use warmlane_forward::control::{Config, Routes};
use warmlane_forward::datapath::Forwarder;
use warmlane_lane::{GraphError, LanePort, Pipeline};
use warmlane_mem::Pool;
use warmlane_port::Port;
use warmlane_wire::MacAddress;

use crate::lanes::{Assembly, LaneSettings, StartError};

impl Assembly {
    /// Forwards between `ports`, which are those of `config` in the same order.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn forward(
        config: Config,
        pool: Pool,
        ports: Vec<Port>,
        settings: &LaneSettings,
    ) -> Result<Self, StartError> {
        Self::forward_with(config, pool, ports, settings, |forwarder, ports| {
            warmlane_forward::pipeline(forwarder, ports)
        })
    }

    /// The same by pipelines that `build` makes of each lane's forwarder and ports, with stages of one's own before the forwarder, in
    /// a row `(own, forwarder)`, and behind it ([`warmlane_forward::connect_ports_through`]).
    ///
    /// # Errors
    /// [`StartError`].
    pub fn forward_with(
        mut config: Config,
        pool: Pool,
        ports: Vec<Port>,
        settings: &LaneSettings,
        mut build: impl FnMut(Forwarder, Vec<LanePort>) -> Result<Pipeline, GraphError>,
    ) -> Result<Self, StartError> {
        // What the interfaces know better than the configuration.
        for (settings, port) in config.ports.iter_mut().zip(&ports) {
            settings.mac = settings.mac.or(port.capabilities.mac.map(MacAddress));
            if let Some(mtu) = port.capabilities.mtu {
                settings.mtu = settings.mtu.min(u16::try_from(mtu).unwrap_or(u16::MAX));
            }
        }
        let routes = Routes::from_config(&config).map_err(|error| StartError::Routes(Box::new(error)))?;
        let routes = Arc::new(routes);
        Self::start(pool, settings, ports, |lane| {
            let forwarder = lane.forwarder(Arc::clone(&routes), config.icmp);
            Ok(build(forwarder, lane.take_ports())?.with_burst(config.burst))
        })
    }
}
