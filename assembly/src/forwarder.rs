//! A forwarder by a configuration, between open ports.

use std::net::IpAddr;
use std::sync::Arc;

use warmlane_counters::Labels;
use warmlane_forward::control::config::PortConfig;
use warmlane_forward::control::{Config, NextHop, Routes, TableCounters};
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
        let unreachable = unreachable_tunnel_ends(&config, &routes);
        let routes = Arc::new(routes);
        let mut assembly = Self::start(pool, settings, ports, |lane| {
            let forwarder = lane.forwarder(Arc::clone(&routes), config.icmp);
            Ok(build(forwarder, lane.take_ports())?.with_burst(config.burst))
        })?;
        assembly.registry().add(Labels::new().with("function", "forward"), tables.view());
        assembly.machine.notes.extend(unreachable);
        Ok(assembly)
    }
}

/// Says which tunnel ends get nothing, and why: the routes stay as they are.
fn unreachable_tunnel_ends(config: &Config, routes: &Routes) -> Vec<String> {
    let networks = config.overlays.iter();
    let ends =
        networks.flat_map(|network| network.remotes.iter().map(|remote| (network.identifier, *remote)));
    let unreachable = ends.filter_map(|(identifier, remote)| {
        let found = match remote {
            IpAddr::V4(remote) => routes.ipv4().lookup(remote.to_bits()),
            IpAddr::V6(remote) => routes.ipv6().lookup(remote.octets()),
        };
        let reason = match routes.next_hop(found) {
            Some(NextHop::Forward(_) | NextHop::Group(_)) => return None,
            Some(NextHop::NoNeighbour) => {
                "it is on a link of ours, and no `neighbour` says its Ethernet address"
            }
            Some(_) => "its route leads out of no port",
            None => "no route leads to it",
        };
        Some(format!("network {identifier}: its tunnel end {remote} gets nothing: {reason}"))
    });
    unreachable.collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tunnel_ends_that_get_nothing_are_named() {
        let text = r#"
            port = [
                { name = "bare", driver = "null" },
                { name = "underlay", driver = "null", addresses = ["192.0.2.1/24"], mac = "02:00:00:00:00:01" },
            ]
            neighbour = [{ address = "192.0.2.2", mac = "02:00:00:00:00:02", port = "underlay" }]
            route = [
                { prefix = "198.51.100.0/24", via = "192.0.2.2" },
                { prefix = "198.51.100.9/32", drop = true },
            ]

            [[vxlan]]
            vni = 5
            local = "192.0.2.1"
            remotes = ["192.0.2.2", "198.51.100.8", "192.0.2.3", "198.51.100.9", "203.0.113.1"]
            access = [{ port = "bare" }]
            "#;
        let config = Config::from_toml(text).unwrap();
        let said = unreachable_tunnel_ends(&config, &Routes::from_config(&config).unwrap());
        assert_eq!(
            said,
            [
                "network 5: its tunnel end 192.0.2.3 gets nothing: it is on a link of ours, and no `neighbour` says its Ethernet address",
                "network 5: its tunnel end 198.51.100.9 gets nothing: its route leads out of no port",
                "network 5: its tunnel end 203.0.113.1 gets nothing: no route leads to it",
            ]
        );
    }
}
