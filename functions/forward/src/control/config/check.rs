//! From settings to checked values in which names are numbers.

use std::collections::HashSet;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use warmlane_settings::{Fault, Located, Origin};

use super::settings::{
    ForwardSettings, FullTableEntry, IcmpEntry, NeighbourEntry, PoolEntry, PortEntry, RouteEntry, Via,
    ViaEntry,
};
use super::{
    Config, ConfigProblem, DEFAULT_MTU, FullTableConfig, IcmpLimits, MINIMUM_MTU_IPV4, MINIMUM_MTU_IPV6,
    NeighbourConfig, PoolSettings, PortConfig, RouteConfig, RouteTarget, overlay, rule,
};
use crate::control::groups::GroupError;

/// An ICMPv6 error of 1,280 bytes and an Ethernet header with two tags fit in this, rounded up. Longer packets are
/// chains of buffers.
const MINIMUM_DATA_SIZE: u32 = 1344;

/// Lengths within a buffer are 16 bits wide, headroom and header included.
const MAXIMUM_DATA_SIZE: u32 = 60_000;

pub(super) type Checked<T> = Result<T, Fault<ConfigProblem>>;

impl<D> ForwardSettings<D> {
    /// What they come to, and the driver of each port.
    ///
    /// # Errors
    /// The first thing that is wrong, and where it was written.
    pub fn check(self) -> Result<(Config, Vec<D>), Fault<ConfigProblem>> {
        let lanes = number(self.lanes.as_ref(), "`lanes`", 1, 1..=255)? as usize;
        let (mut ports, drivers) = ports(self.ports)?;
        rule::check(&self.rules, &mut ports, lanes)?;
        let neighbours = neighbours(self.neighbours, &ports)?;
        let known = Known { ports: &ports, neighbours: &neighbours };
        let routes = known.routes(&self.routes)?;
        let flows = known.flows(&self.flows)?;
        let full_table = known.full_table(&self.full_table)?;
        let overlays = overlay::check(&self.vxlan, &self.geneve, &ports, lanes)?;
        let config = Config {
            lanes,
            overlays,
            burst: number(self.burst.as_ref(), "`burst`", 64, 1..=256)? as usize,
            pool: pool(&self.pool)?,
            icmp: icmp(&self.icmp)?,
            full_table,
            routes,
            flows,
            ports,
            neighbours,
        };
        Ok((config, drivers))
    }
}

/// A number in a range of non-negative numbers, or the default.
pub(super) fn number(
    given: Option<&Located<i64>>,
    what: &str,
    usual: u32,
    range: RangeInclusive<u32>,
) -> Checked<u32> {
    given.map_or(Ok(usual), |given| given.within(what, range).map_err(Fault::cast))
}

fn pool(entry: &PoolEntry) -> Checked<PoolSettings> {
    let within = |given: &Option<Located<i64>>, what: &str, bounds: RangeInclusive<u32>| {
        given.as_ref().map(|given| number(Some(given), what, 0, bounds)).transpose()
    };
    Ok(PoolSettings {
        buffers: within(&entry.buffers, "`pool.buffers`", 1..=(1 << 24) - 1)?,
        data_size: within(&entry.data_size, "`pool.data-size`", MINIMUM_DATA_SIZE..=MAXIMUM_DATA_SIZE)?
            .map(|size| size as usize),
        kind: entry.kind,
    })
}

fn icmp(entry: &IcmpEntry) -> Checked<IcmpLimits> {
    let usual = IcmpLimits::default();
    Ok(IcmpLimits {
        rate: number(entry.rate.as_ref(), "`icmp.rate`", usual.rate, 0..=1_000_000_000)?,
        burst: number(entry.burst.as_ref(), "`icmp.burst`", usual.burst, 0..=1_000_000)?,
    })
}

fn ports<D>(entries: Vec<PortEntry<D>>) -> Checked<(Vec<PortConfig>, Vec<D>)> {
    let mut ports: Vec<PortConfig> = Vec::with_capacity(entries.len());
    let mut drivers = Vec::with_capacity(entries.len());
    let mut addresses_so_far = HashSet::new();
    for entry in entries {
        let name = String::clone(&entry.name);
        if ports.iter().any(|other| other.name == name) {
            return Err(entry.name.fault(ConfigProblem::DuplicatePort { name }));
        }
        let (usual, least) = (u32::from(DEFAULT_MTU), u32::from(MINIMUM_MTU_IPV4));
        let mtu = number(entry.mtu.as_ref(), "`mtu`", usual, least..=u32::from(u16::MAX))? as u16;
        for own in &entry.addresses {
            let address = own.address;
            if !addresses_so_far.insert(address) {
                return Err(own.fault(ConfigProblem::DuplicateAddress { address }));
            }
            if address.is_ipv6() && mtu < MINIMUM_MTU_IPV6 {
                return Err(own.fault(ConfigProblem::MtuForIpv6 { port: name, mtu }));
            }
        }
        let addresses = entry.addresses.into_iter().map(Located::into_value).collect();
        let (mac, gro, rss) = (entry.mac.map(Located::into_value), entry.gro, entry.rss);
        ports.push(PortConfig { name, addresses, mtu, mac, gro, rss, rules: Vec::new() });
        drivers.push(entry.driver);
    }
    let count = ports.len();
    match count {
        0 => Err(Fault::new(Origin::Code, ConfigProblem::NoPort)),
        // Packets name their port in 16 bits.
        _ if count > usize::from(u16::MAX) => {
            Err(Fault::new(Origin::Code, ConfigProblem::TooManyPorts { count }))
        }
        _ => Ok((ports, drivers)),
    }
}

pub(super) fn port_number(name: &Located<String>, ports: &[PortConfig]) -> Checked<usize> {
    ports.iter().position(|port| port.name == **name).ok_or_else(|| {
        let known: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
        name.fault(ConfigProblem::UnknownPort { name: String::clone(name), known: known.join(", ") })
    })
}

fn neighbours(entries: Vec<NeighbourEntry>, ports: &[PortConfig]) -> Checked<Vec<NeighbourConfig>> {
    let mut neighbours: Vec<NeighbourConfig> = Vec::with_capacity(entries.len());
    let mut so_far = HashSet::new();
    for entry in entries {
        let address = *entry.address;
        let port = port_number(&entry.port, ports)?;
        let PortConfig { name, mtu, .. } = &ports[port];
        if !so_far.insert((port, address)) {
            return Err(entry
                .address
                .fault(ConfigProblem::DuplicateNeighbour { address, port: name.clone() }));
        }
        if ports.iter().any(|port| port.addresses.iter().any(|own| own.address == address)) {
            return Err(entry.address.fault(ConfigProblem::DuplicateAddress { address }));
        }
        if address.is_ipv6() && *mtu < MINIMUM_MTU_IPV6 {
            return Err(entry.address.fault(ConfigProblem::MtuForIpv6 { port: name.clone(), mtu: *mtu }));
        }
        // 0 and 4095 are reserved (IEEE 802.1Q table 9-2).
        let vlan = entry.vlan.as_ref().map(|vlan| number(Some(vlan), "`vlan`", 0, 1..=4094)).transpose()?;
        let vlan = vlan.map(|vlan| vlan as u16);
        neighbours.push(NeighbourConfig { address, mac: *entry.mac, port, vlan });
    }
    Ok(neighbours)
}

/// What routes and flows can refer to.
pub(super) struct Known<'a> {
    ports: &'a [PortConfig],
    neighbours: &'a [NeighbourConfig],
}

impl Known<'_> {
    fn routes(&self, entries: &[RouteEntry]) -> Checked<Vec<RouteConfig>> {
        let mut so_far = HashSet::new();
        let mut routes = Vec::with_capacity(entries.len());
        for route in entries {
            let prefix = *route.prefix;
            if !so_far.insert(prefix) {
                return Err(route.prefix.fault(ConfigProblem::DuplicateRoute { prefix }));
            }
            let way = self.way(route.via.as_ref(), route.port.as_ref(), route.drop, route.unreachable)?;
            let target =
                way.map_err(|count| route.prefix.fault(ConfigProblem::RouteTarget { prefix, count }))?;
            routes.push(RouteConfig { prefix, target });
        }
        Ok(routes)
    }

    /// The one way that a route or a flow names; if it isn't one, how many there are.
    pub(super) fn way(
        &self,
        via: Option<&Located<Via>>,
        port: Option<&Located<String>>,
        drop: bool,
        unreachable: bool,
    ) -> Checked<Result<RouteTarget, usize>> {
        let port = port.map(|name| port_number(name, self.ports)).transpose()?;
        let ways = [via.is_some() || port.is_some(), drop, unreachable];
        let count = ways.iter().filter(|way| **way).count();
        if count != 1 {
            return Ok(Err(count));
        }
        Ok(Ok(match (via, port) {
            (Some(via), port) => RouteTarget::Via(self.via(via, port)?),
            (None, Some(port)) => RouteTarget::OnLink(port),
            (None, None) if drop => RouteTarget::Drop,
            (None, None) => RouteTarget::Unreachable,
        }))
    }

    fn via(&self, via: &Located<Via>, port: Option<usize>) -> Checked<Vec<(usize, u16)>> {
        let Via(list) = &**via;
        if list.is_empty() {
            return Err(via.fault(GroupError::Empty));
        }
        let mut hops: Vec<(usize, u16)> = Vec::with_capacity(list.len());
        for ViaEntry { via: address, weight } in list {
            // A single address has no place of its own beside the whole's.
            let address =
                if *address.origin() == Origin::Code { via.with(**address) } else { address.clone() };
            let number_of_hop = self.neighbour(&address, port)?;
            if hops.iter().any(|(other, _)| *other == number_of_hop) {
                return Err(address.fault(ConfigProblem::DuplicateNextHop { address: *address }));
            }
            hops.push((number_of_hop, number(weight.as_ref(), "`weight`", 1, 1..=10_000)? as u16));
        }
        Ok(hops)
    }

    fn full_table(&self, entry: &FullTableEntry) -> Checked<FullTableConfig> {
        let list = |list: &[Located<IpAddr>]| -> Checked<Vec<usize>> {
            list.iter().map(|address| self.neighbour(address, None)).collect()
        };
        Ok(FullTableConfig { ipv4: list(&entry.ipv4)?, ipv6: list(&entry.ipv6)? })
    }

    /// The number of the neighbour that a next hop names.
    fn neighbour(&self, next_hop: &Located<IpAddr>, port: Option<usize>) -> Checked<usize> {
        let address = **next_hop;
        let matches = |neighbour: &NeighbourConfig| {
            neighbour.address == address && port.is_none_or(|port| port == neighbour.port)
        };
        let mut found = (0..self.neighbours.len()).filter(|&index| matches(&self.neighbours[index]));
        match (found.next(), found.next()) {
            (Some(number), None) => Ok(number),
            (Some(_), Some(_)) => Err(next_hop.fault(ConfigProblem::AmbiguousNeighbour { address })),
            (None, _) => {
                let port = port.map(|port| self.ports[port].name.clone());
                Err(next_hop.fault(ConfigProblem::NoNeighbour { address, port }))
            }
        }
    }
}
