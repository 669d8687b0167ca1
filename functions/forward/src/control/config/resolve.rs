//! From keys and texts to checked values in which names are resolved.

use std::collections::HashSet;
use std::net::IpAddr;
use std::ops::Range;

use toml::Spanned;
use warmlane_mem::PoolKind;
use warmlane_table::{IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix, PrefixError};
use warmlane_wire::MacAddress;
use warmlane_wire::martian::{ipv4_source_is_martian, ipv6_source_is_martian};

use super::error::Fault;
use super::{
    Config, ConfigProblem, DEFAULT_MTU, FullTableConfig, IcmpLimits, InterfaceAddress, MINIMUM_MTU_IPV4,
    MINIMUM_MTU_IPV6, NeighbourConfig, PoolSettings, PortConfig, RouteConfig, RouteTarget, raw,
};
use crate::control::groups::GroupError;

/// An ICMPv6 error of 1,280 bytes and an Ethernet header with two tags fit in this, rounded up. Longer packets are
/// chains of buffers.
const MINIMUM_ROOM: u32 = 1344;

/// Lengths within a buffer are 16 bits wide, headroom and header included.
const MAXIMUM_ROOM: u32 = 60_000;

pub(super) fn resolve(raw: raw::Config) -> Result<Config, Fault> {
    let ports = ports(raw.ports)?;
    let neighbours = neighbours(raw.neighbours, &ports)?;
    let pool = pool(&raw.pool)?;
    let routes = routes(&raw.routes, &ports, &neighbours)?;
    let list = |texts: &[Spanned<String>]| -> Result<Vec<usize>, Fault> {
        texts.iter().map(|text| next_hop(text, text.span(), None, &ports, &neighbours)).collect()
    };
    Ok(Config {
        lanes: number(raw.lanes.as_ref(), "`lanes`", 1, 1, 255)? as usize,
        burst: number(raw.burst.as_ref(), "`burst`", 64, 1, 256)? as usize,
        pool,
        icmp: IcmpLimits {
            rate: number(
                raw.icmp.rate.as_ref(),
                "`icmp.rate`",
                IcmpLimits::default().rate,
                0,
                1_000_000_000,
            )?,
            burst: number(
                raw.icmp.burst.as_ref(),
                "`icmp.burst`",
                IcmpLimits::default().burst,
                0,
                1_000_000,
            )?,
        },
        full_table: FullTableConfig { ipv4: list(&raw.full_table.ipv4)?, ipv6: list(&raw.full_table.ipv6)? },
        ports,
        neighbours,
        routes,
    })
}

fn fault(span: Range<usize>, problem: impl Into<ConfigProblem>) -> Fault {
    Fault { span, problem: problem.into() }
}

/// A number in a range of non-negative numbers, or the default.
fn number(
    given: Option<&Spanned<i64>>,
    what: &'static str,
    default: u32,
    minimum: u32,
    maximum: u32,
) -> Result<u32, Fault> {
    let Some(given) = given else { return Ok(default) };
    let value = *given.get_ref();
    match u32::try_from(value) {
        Ok(number) if (minimum..=maximum).contains(&number) => Ok(number),
        _ => {
            let problem = ConfigProblem::Range {
                what,
                value,
                minimum: i64::from(minimum),
                maximum: i64::from(maximum),
            };
            Err(fault(given.span(), problem))
        }
    }
}

fn pool(raw: &raw::Pool) -> Result<PoolSettings, Fault> {
    let buffers =
        raw.buffers.as_ref().map(|given| number(Some(given), "`pool.buffers`", 0, 1, (1 << 24) - 1));
    let room = match &raw.room {
        Some(given) => Some(number(Some(given), "`pool.room`", 0, MINIMUM_ROOM, MAXIMUM_ROOM)? as usize),
        None => None,
    };
    let kind = raw.kind.map(|kind| match kind {
        raw::PoolKind::Depot => PoolKind::Depot,
        raw::PoolKind::Stack => PoolKind::Stack,
        raw::PoolKind::Ring => PoolKind::Ring,
    });
    Ok(PoolSettings { buffers: buffers.transpose()?, room, kind })
}

fn ports(raw: Vec<raw::Port>) -> Result<Vec<PortConfig>, Fault> {
    let mut ports: Vec<PortConfig> = Vec::with_capacity(raw.len());
    let mut addresses_so_far = HashSet::new();
    for port in raw {
        let name_span = port.name.span();
        let name = port.name.into_inner();
        if ports.iter().any(|other| other.name == name) {
            return Err(fault(name_span, ConfigProblem::DuplicatePort { name }));
        }
        let mtu = number(
            port.mtu.as_ref(),
            "`mtu`",
            u32::from(DEFAULT_MTU),
            u32::from(MINIMUM_MTU_IPV4),
            u32::from(u16::MAX),
        )? as u16;
        let mut addresses = Vec::with_capacity(port.addresses.len());
        for text in &port.addresses {
            let address = interface_address(text)?;
            if !addresses_so_far.insert(address.address) {
                let problem = ConfigProblem::DuplicateAddress { address: address.address };
                return Err(fault(text.span(), problem));
            }
            if address.address.is_ipv6() && mtu < MINIMUM_MTU_IPV6 {
                return Err(fault(text.span(), ConfigProblem::MtuForIpv6 { port: name, mtu }));
            }
            addresses.push(address);
        }
        let mac = port.mac.as_ref().map(|text| mac(text, "the port's mac")).transpose()?;
        ports.push(PortConfig { name, driver: port.driver, options: port.options, addresses, mtu, mac });
    }
    if ports.is_empty() {
        return Err(fault(0..0, ConfigProblem::NoPort));
    }
    // Packets name their port in 16 bits.
    if let Ok(count) = i64::try_from(ports.len())
        && count > i64::from(u16::MAX)
    {
        let maximum = i64::from(u16::MAX);
        let problem = ConfigProblem::Range { what: "the number of ports", value: count, minimum: 1, maximum };
        return Err(fault(0..0, problem));
    }
    Ok(ports)
}

fn interface_address(text: &Spanned<String>) -> Result<InterfaceAddress, Fault> {
    let malformed = || fault(text.span(), ConfigProblem::InterfaceAddress { text: text.get_ref().clone() });
    let (address, length) = text.get_ref().split_once('/').ok_or_else(malformed)?;
    let address: IpAddr = address.parse().map_err(|_| malformed())?;
    // The prefix of the network address checks the length.
    let network: IpPrefix = match address {
        IpAddr::V4(_) => format!("0.0.0.0/{length}").parse(),
        IpAddr::V6(_) => format!("::/{length}").parse(),
    }
    .map_err(|error| match error {
        PrefixError::Length { maximum, .. } => {
            fault(text.span(), PrefixError::Length { given: text.get_ref().clone(), maximum })
        }
        _ => malformed(),
    })?;
    let (length, is_host) = match (network, address) {
        (IpPrefix::V4(network), IpAddr::V4(address)) => {
            let link: Ipv4Prefix = Prefix::containing(address.to_bits(), network.length());
            // On links of two addresses both are stations (RFC 3021).
            let reserved = link.length() < 31 && [link.first(), link.last()].contains(&address.to_bits());
            (network.length(), !reserved)
        }
        (IpPrefix::V6(network), IpAddr::V6(address)) => {
            let link: Ipv6Prefix = Prefix::containing(address.to_bits(), network.length());
            // The first address is every router's (RFC 4291 section 2.6.1), unless there are but two (RFC 6164).
            (network.length(), link.length() >= 127 || link.first() != address.to_bits())
        }
        _ => return Err(malformed()),
    };
    if !is_host || !is_unicast(address) {
        return Err(fault(text.span(), ConfigProblem::NotUnicast { address }));
    }
    Ok(InterfaceAddress { address, length })
}

fn is_unicast(address: IpAddr) -> bool {
    // What may not be a source is no station's address.
    match address {
        IpAddr::V4(address) => !ipv4_source_is_martian(address),
        IpAddr::V6(address) => !ipv6_source_is_martian(address),
    }
}

fn mac(text: &Spanned<String>, what: &'static str) -> Result<MacAddress, Fault> {
    let mac: MacAddress = text.get_ref().parse().map_err(|error| {
        let error: warmlane_wire::ethernet::MacAddressError = error;
        fault(text.span(), error)
    })?;
    if mac.is_unicast() {
        Ok(mac)
    } else {
        Err(fault(text.span(), ConfigProblem::MacNotUnicast { what, mac }))
    }
}

fn address(text: &str, span: Range<usize>) -> Result<IpAddr, Fault> {
    text.parse().map_err(|_| fault(span, ConfigProblem::Address { text: text.to_owned() }))
}

fn port_number(name: &Spanned<String>, ports: &[PortConfig]) -> Result<usize, Fault> {
    ports.iter().position(|port| port.name == *name.get_ref()).ok_or_else(|| {
        let known: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
        let problem = ConfigProblem::UnknownPort { name: name.get_ref().clone(), known: known.join(", ") };
        fault(name.span(), problem)
    })
}

fn neighbours(raw: Vec<raw::Neighbour>, ports: &[PortConfig]) -> Result<Vec<NeighbourConfig>, Fault> {
    let mut neighbours: Vec<NeighbourConfig> = Vec::with_capacity(raw.len());
    let mut so_far = HashSet::new();
    for neighbour in raw {
        let span = neighbour.address.span();
        let address = address(neighbour.address.get_ref(), span.clone())?;
        if !is_unicast(address) {
            return Err(fault(span, ConfigProblem::NotUnicast { address }));
        }
        let port = port_number(&neighbour.port, ports)?;
        let PortConfig { name, mtu, .. } = &ports[port];
        if !so_far.insert((port, address)) {
            return Err(fault(span, ConfigProblem::DuplicateNeighbour { address, port: name.clone() }));
        }
        if ports.iter().any(|port| port.addresses.iter().any(|own| own.address == address)) {
            return Err(fault(span, ConfigProblem::DuplicateAddress { address }));
        }
        if address.is_ipv6() && *mtu < MINIMUM_MTU_IPV6 {
            return Err(fault(span, ConfigProblem::MtuForIpv6 { port: name.clone(), mtu: *mtu }));
        }
        let vlan = match &neighbour.vlan {
            // 0 and 4095 are reserved (IEEE 802.1Q table 9-2).
            Some(vlan) => Some(number(Some(vlan), "`vlan`", 0, 1, 4094)? as u16),
            None => None,
        };
        let mac = mac(&neighbour.mac, "the neighbour's mac")?;
        neighbours.push(NeighbourConfig { address, mac, port, vlan });
    }
    Ok(neighbours)
}

fn routes(
    raw: &[raw::Route],
    ports: &[PortConfig],
    neighbours: &[NeighbourConfig],
) -> Result<Vec<RouteConfig>, Fault> {
    let mut so_far = HashSet::new();
    let mut routes = Vec::with_capacity(raw.len());
    for route in raw {
        let span = route.prefix.span();
        let prefix: IpPrefix = route.prefix.get_ref().parse().map_err(|error| {
            let error: warmlane_table::PrefixError = error;
            fault(span.clone(), error)
        })?;
        if !so_far.insert(prefix) {
            return Err(fault(span, ConfigProblem::DuplicateRoute { prefix }));
        }
        let port = route.port.as_ref().map(|name| port_number(name, ports)).transpose()?;
        let ways = [route.via.is_some() || port.is_some(), route.drop, route.unreachable];
        let count = ways.iter().filter(|way| **way).count();
        if count != 1 {
            return Err(fault(span, ConfigProblem::RouteTarget { prefix, count }));
        }
        let target = match (&route.via, port) {
            (Some(via), port) => RouteTarget::Via(via_list(via, port, ports, neighbours)?),
            (None, Some(port)) => RouteTarget::OnLink(port),
            (None, None) if route.drop => RouteTarget::Drop,
            (None, None) => RouteTarget::Unreachable,
        };
        routes.push(RouteConfig { prefix, target });
    }
    Ok(routes)
}

fn via_list(
    via: &Spanned<raw::Via>,
    port: Option<usize>,
    ports: &[PortConfig],
    neighbours: &[NeighbourConfig],
) -> Result<Vec<(usize, u16)>, Fault> {
    let list = match via.get_ref() {
        raw::Via::One(text) => {
            return Ok(vec![(next_hop_text(text, via.span(), port, ports, neighbours)?, 1)]);
        }
        raw::Via::Many(list) => list,
    };
    if list.is_empty() {
        return Err(fault(via.span(), GroupError::Empty));
    }
    let mut hops: Vec<(usize, u16)> = Vec::with_capacity(list.len());
    for hop in list {
        let number_of_hop = next_hop(&hop.via, hop.via.span(), port, ports, neighbours)?;
        if hops.iter().any(|(other, _)| *other == number_of_hop) {
            let address = neighbours[number_of_hop].address;
            return Err(fault(hop.via.span(), ConfigProblem::DuplicateNextHop { address }));
        }
        hops.push((number_of_hop, number(hop.weight.as_ref(), "`weight`", 1, 1, 10_000)? as u16));
    }
    Ok(hops)
}

fn next_hop(
    text: &Spanned<String>,
    span: Range<usize>,
    port: Option<usize>,
    ports: &[PortConfig],
    neighbours: &[NeighbourConfig],
) -> Result<usize, Fault> {
    next_hop_text(text.get_ref(), span, port, ports, neighbours)
}

/// The number of the neighbour that a next hop names.
fn next_hop_text(
    text: &str,
    span: Range<usize>,
    port: Option<usize>,
    ports: &[PortConfig],
    neighbours: &[NeighbourConfig],
) -> Result<usize, Fault> {
    let address = address(text, span.clone())?;
    let matches = |neighbour: &NeighbourConfig| {
        neighbour.address == address && port.is_none_or(|port| port == neighbour.port)
    };
    let mut found = (0..neighbours.len()).filter(|&index| matches(&neighbours[index]));
    match (found.next(), found.next()) {
        (Some(number), None) => Ok(number),
        (Some(_), Some(_)) => Err(fault(span, ConfigProblem::AmbiguousNeighbour { address })),
        (None, _) => {
            let port = port.map(|port| ports[port].name.clone());
            Err(fault(span, ConfigProblem::NoNeighbour { address, port }))
        }
    }
}
