//! A forwarder by a configuration, between open ports.

use std::sync::Arc;

use warmlane_counters::Labels;
use warmlane_forward::control::config::PortConfig;
use warmlane_forward::control::{Config, Routes, TableCounters};
use warmlane_forward::datapath::Forwarder;
use warmlane_lane::{GraphError, LanePort, Pipeline};
use warmlane_mem::Pool;
use warmlane_memory::null;
use warmlane_port::Port;
use warmlane_vxlan::{Gateway, PortFacts};
use warmlane_wire::MacAddress;

use crate::lanes::{Assembly, LaneSettings, StartError};

impl Assembly {
    /// Forwards between `ports`, which are those of `config` in the same order; bridges its VXLAN and GENEVE networks.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn forward(
        config: Config,
        pool: Pool,
        ports: Vec<Port>,
        settings: &LaneSettings,
    ) -> Result<Self, StartError> {
        let ports_with_settings = config.ports.iter().zip(&ports);
        let known = ports_with_settings.map(|(settings, port)| known_by_port(settings, port)).collect();
        let build = pipelines(&config, known, &pool);
        Self::forward_with(config, pool, ports, settings, build)
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
        let tables = TableCounters::of(&routes, config.neighbours.len());
        let routes = Arc::new(routes);
        let assembly = Self::start(pool, settings, ports, |lane| {
            let forwarder = lane.forwarder(Arc::clone(&routes), config.icmp);
            Ok(build(forwarder, lane.take_ports())?.with_burst(config.burst))
        })?;
        assembly.registry().add(Labels::new().with("function", "forward"), tables.view());
        Ok(assembly)
    }
}

/// Makes a lane's pipeline of its forwarder and ports, with the gateway of the configuration's bridged networks if there are any. `known` is the
/// Ethernet address and MTU of each port.
fn pipelines(
    config: &Config,
    known: Vec<(Option<MacAddress>, u16)>,
    pool: &Pool,
) -> impl FnMut(Forwarder, Vec<LanePort>) -> Result<Pipeline, GraphError> + use<> {
    let (networks, icmp) = (config.overlays.clone(), config.icmp);
    let facts: Vec<_> = known.into_iter().map(|(mac, mtu)| PortFacts { mac, mtu }).collect();
    let names: Vec<_> = config.ports.iter().map(|port| port.name.clone()).collect();
    let copies = pool.clone();
    move |forwarder, ports| {
        if networks.is_empty() {
            return warmlane_forward::pipeline(forwarder, ports);
        }
        let gateway = Gateway::new(networks.clone(), facts.clone(), copies.clone(), icmp);
        let mut builder = Pipeline::builder();
        let row = builder.stage("vxlan", (gateway, forwarder));
        warmlane_forward::connect_ports_through(&mut builder, row, ports, |builder, name, output| {
            if let Some(number) = names.iter().position(|other| other == name) {
                builder.connect((row, format!("bridge{number}")), output);
            }
            output.into()
        });
        builder.build()
    }
}

/// The pipeline that a lane by this configuration would have, between ports that nothing comes in or leaves by: to
/// [rehearse](crate::trace::rehearse) with. What only open ports know is taken from the configuration.
///
/// # Errors
/// [`StartError`].
pub fn offline(config: &Config, pool: &Pool) -> Result<Pipeline, StartError> {
    let build_error = |source: Box<dyn std::error::Error + Send + Sync>| StartError::Build {
        lane: "lane0".to_owned(),
        source,
    };
    let routes = Routes::from_config(config).map_err(|error| StartError::Routes(Box::new(error)))?;
    let forwarder = Forwarder::new(Arc::new(routes), pool.clone(), config.icmp);
    let open = |port: &PortConfig| {
        let receive = null::source(&port.name, pool, 0).map_err(|error| build_error(error.into()))?.receive;
        let transmit = null::sink(&port.name, 1).transmit.pop();
        Ok(LanePort { name: port.name.clone(), receive, transmit })
    };
    let ports = config.ports.iter().map(open).collect::<Result<_, StartError>>()?;
    let mut build = pipelines(config, config.ports.iter().map(|port| (port.mac, port.mtu)).collect(), pool);
    build(forwarder, ports).map_err(|error| build_error(error.into()))
}

/// Ethernet address and MTU: what the interface knows better than the configuration.
fn known_by_port(settings: &PortConfig, port: &Port) -> (Option<MacAddress>, u16) {
    let mac = settings.mac.or(port.capabilities.mac.map(MacAddress));
    let mtu = port.capabilities.mtu.map_or(u16::MAX, |mtu| u16::try_from(mtu).unwrap_or(u16::MAX));
    (mac, settings.mtu.min(mtu))
}
