//! A forwarder by a configuration, between open ports.

use std::sync::Arc;

use warmlane_forward::control::config::PortConfig;
use warmlane_forward::control::{Config, Routes};
use warmlane_forward::datapath::Forwarder;
use warmlane_lane::{GraphError, LanePort, Pipeline};
use warmlane_mem::Pool;
use warmlane_port::Port;
use warmlane_vxlan::{Gateway, PortFacts};
use warmlane_wire::MacAddress;

use crate::lanes::{Assembly, LaneSettings, StartError};

impl Assembly {
    /// Forwards between `ports`, which are those of `config` in the same order; bridges its VXLAN networks.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn forward(
        config: Config,
        pool: Pool,
        ports: Vec<Port>,
        settings: &LaneSettings,
    ) -> Result<Self, StartError> {
        if config.vxlan.is_empty() {
            return Self::forward_with(config, pool, ports, settings, |forwarder, ports| {
                warmlane_forward::pipeline(forwarder, ports)
            });
        }
        let networks = config.vxlan.clone();
        let facts = |(settings, port): (&PortConfig, &Port)| {
            let (mac, mtu) = known_by_port(settings, port);
            PortFacts { mac, mtu }
        };
        let facts: Vec<_> = config.ports.iter().zip(&ports).map(facts).collect();
        let names: Vec<_> = config.ports.iter().map(|port| port.name.clone()).collect();
        let copies = pool.clone();
        Self::forward_with(config, pool, ports, settings, |forwarder, ports| {
            let gateway = Gateway::new(networks.clone(), facts.clone(), copies.clone());
            let mut builder = Pipeline::builder();
            let row = builder.stage("vxlan", (gateway, forwarder));
            warmlane_forward::connect_ports_through(&mut builder, row, ports, |builder, name, output| {
                if let Some(number) = names.iter().position(|other| other == name) {
                    builder.connect((row, format!("bridge{number}")), output);
                }
                output.into()
            });
            builder.build()
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
        for (settings, port) in config.ports.iter_mut().zip(&ports) {
            (settings.mac, settings.mtu) = known_by_port(settings, port);
        }
        let routes = Routes::from_config(&config).map_err(|error| StartError::Routes(Box::new(error)))?;
        let routes = Arc::new(routes);
        Self::start(pool, settings, ports, |lane| {
            let forwarder = lane.forwarder(Arc::clone(&routes), config.icmp);
            Ok(build(forwarder, lane.take_ports())?.with_burst(config.burst))
        })
    }
}

/// Ethernet address and MTU: what the interface knows better than the configuration.
fn known_by_port(settings: &PortConfig, port: &Port) -> (Option<MacAddress>, u16) {
    let mac = settings.mac.or(port.capabilities.mac.map(MacAddress));
    let mtu = port.capabilities.mtu.map_or(u16::MAX, |mtu| u16::try_from(mtu).unwrap_or(u16::MAX));
    (mac, settings.mtu.min(mtu))
}
