//! Everything that lanes look up: both tables, next hops, our own addresses. Built once, then only read.

use std::net::IpAddr;

use thiserror::Error;
use warmlane_table::{IpPrefix, Ipv4Prefix, Ipv4Table, Ipv6Prefix, Ipv6Table, NextHopId, Prefix, TableError};
use warmlane_wire::{MacAddress, martian};

use super::config::{Config, FullTableConfig, InterfaceAddress, NeighbourConfig, RouteTarget};
use super::full_table::{self, FullTableError};
use super::groups::{Group, GroupError, Member};
use super::hops::{Hops, RouterPort};
use super::next_hop::{Adjacency, NextHop};
use super::source_check::SourceCheck;

/// Tables and next hops, shared by all lanes through an [`Arc`](std::sync::Arc).
#[derive(Debug)]
pub struct Routes {
    ipv4: Ipv4Table,
    ipv6: Ipv6Table,
    hops: Hops,
}

/// Why routes could not be built.
#[derive(Debug, Error)]
pub enum RoutesError {
    /// The table has no room or no memory.
    #[error(transparent)]
    Table(#[from] TableError),
    /// More next hops than a table can number.
    #[error("there are more than {maximum} next hops: let routes share some")]
    TooManyNextHops {
        /// How many there may be.
        maximum: u32,
    },
    /// Members of a group that cannot be.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// The embedded table is damaged.
    #[error(transparent)]
    FullTable(#[from] FullTableError),
    /// More ports than a packet can name.
    #[error("there are {count} ports: use at most 65535")]
    TooManyPorts {
        /// How many.
        count: usize,
    },
}

impl Routes {
    /// Builds what a configuration describes.
    ///
    /// Where prefixes are equal, our own addresses win over neighbours, those over the links' prefixes, those over
    /// configured routes, and those over the embedded table.
    ///
    /// # Errors
    /// [`RoutesError`].
    pub fn from_config(config: &Config) -> Result<Self, RoutesError> {
        let ports = config.ports.iter().map(|port| RouterPort {
            mac: port.mac,
            mtu: port.mtu,
            addresses: port.addresses.clone(),
            table: 0,
            source_check: SourceCheck::Off,
            vlans: None,
        });
        let mut builder = RoutesBuilder::new(ports.collect());
        let neighbours = config.neighbours.iter().map(|neighbour| builder.neighbour(neighbour));
        let neighbours: Vec<NextHopId> = neighbours.collect::<Result<_, _>>()?;
        builder.full_table(&config.full_table, &neighbours)?;
        for route in &config.routes {
            let hop = match &route.target {
                RouteTarget::Via(list) => {
                    if let [(only, _)] = list[..] {
                        entry(&neighbours, only)
                    } else {
                        let member = |&(number, weight)| Member { hop: entry(&neighbours, number), weight };
                        let members: Vec<Member> = list.iter().map(member).collect();
                        builder.hop(NextHop::Group(Group::new(&members)?))?
                    }
                }
                RouteTarget::OnLink(_) => builder.hop(NextHop::NoNeighbour)?,
                RouteTarget::Drop => builder.hop(NextHop::Drop)?,
                RouteTarget::Unreachable => builder.hop(NextHop::Unreachable)?,
            };
            builder.route(route.prefix, hop);
        }
        builder.links()?;
        for (neighbour, hop) in config.neighbours.iter().zip(&neighbours) {
            builder.host(neighbour.address, *hop);
        }
        builder.own_addresses()?;
        builder.build()
    }

    /// The IPv4 table.
    pub fn ipv4(&self) -> &Ipv4Table {
        &self.ipv4
    }

    /// The IPv6 table.
    pub fn ipv6(&self) -> &Ipv6Table {
        &self.ipv6
    }

    /// Ports and next hops.
    pub fn hops(&self) -> &Hops {
        &self.hops
    }

    /// The ports, by their numbers.
    pub fn ports(&self) -> &[RouterPort] {
        self.hops.ports()
    }

    /// What a next hop is; `None` for [`NextHopId::NONE`].
    pub fn next_hop(&self, id: NextHopId) -> Option<&NextHop> {
        self.hops.next_hop(id)
    }

    /// The member of a group that a flow goes to, by the hash that `hash` makes from the seed; any other next hop is
    /// itself. Groups don't nest.
    #[inline]
    pub fn member(&self, id: NextHopId, hash: impl FnOnce(u64) -> u32) -> NextHopId {
        self.hops.member(id, hash)
    }
}

/// Collects next hops and routes, then builds the tables at once.
#[derive(Debug)]
pub struct RoutesBuilder {
    ports: Vec<RouterPort>,
    hops: Vec<NextHop>,
    ipv4: Vec<(Ipv4Prefix, NextHopId)>,
    ipv6: Vec<(Ipv6Prefix, NextHopId)>,
    hash_seed: u64,
}

impl RoutesBuilder {
    /// No routes yet; the ports are numbered in this order.
    pub fn new(ports: Vec<RouterPort>) -> Self {
        Self { ports, hops: Vec::new(), ipv4: Vec::new(), ipv6: Vec::new(), hash_seed: 0 }
    }

    /// Sets what flow hashes start from. Routers in a row that share a seed send all flows of a group the same way.
    #[must_use]
    pub fn hash_seed(mut self, seed: u64) -> Self {
        self.hash_seed = seed;
        self
    }

    /// Adds a next hop, or finds the one that is equal among those that aren't groups.
    ///
    /// # Errors
    /// [`RoutesError::TooManyNextHops`].
    pub fn hop(&mut self, hop: NextHop) -> Result<NextHopId, RoutesError> {
        let known = match hop {
            NextHop::Forward(_) | NextHop::Group(_) => None,
            // There are few of the others, and routes to them many.
            _ => self.hops.iter().position(|other| *other == hop),
        };
        let number = known.unwrap_or_else(|| {
            self.hops.push(hop);
            self.hops.len() - 1
        });
        u32::try_from(number)
            .ok()
            .and_then(NextHopId::new)
            .ok_or(RoutesError::TooManyNextHops { maximum: NextHopId::MAXIMUM + 1 })
    }

    /// Adds a route; of two to the same prefix the later one stands.
    pub fn route(&mut self, prefix: IpPrefix, hop: NextHopId) {
        match prefix {
            IpPrefix::V4(prefix) => self.ipv4.push((prefix, hop)),
            IpPrefix::V6(prefix) => self.ipv6.push((prefix, hop)),
        }
    }

    /// Adds a route to one address. Addresses that mean something on one link only get none.
    pub fn host(&mut self, address: IpAddr, hop: NextHopId) {
        match address {
            IpAddr::V4(address) if !martian::ipv4_stays_on_link(address) => {
                self.ipv4.push((Prefix::containing(address.to_bits(), 32), hop));
            }
            IpAddr::V6(address) if !martian::ipv6_stays_on_link(address) => {
                self.ipv6.push((Prefix::containing(address.to_bits(), 128), hop));
            }
            _ => {}
        }
    }

    /// Adds the next hop that a configured neighbour is.
    ///
    /// # Errors
    /// [`RoutesError::TooManyNextHops`].
    pub fn neighbour(&mut self, neighbour: &NeighbourConfig) -> Result<NextHopId, RoutesError> {
        let number = neighbour.port as u16;
        let port = self.ports.get(neighbour.port);
        self.hop(NextHop::Forward(Adjacency {
            destination: neighbour.mac,
            source: port.map_or(MacAddress::ZERO, |port| port.station(number)),
            port: number,
            mtu: port.map_or(0, |port| port.mtu),
            vlan: neighbour.vlan,
        }))
    }

    /// Adds the embedded Internet table over the neighbours' next hops.
    ///
    /// # Errors
    /// [`RoutesError::FullTable`].
    pub fn full_table(
        &mut self,
        spread: &FullTableConfig,
        neighbours: &[NextHopId],
    ) -> Result<(), RoutesError> {
        let hop = |list: &[usize], prefix: &str| {
            let place = FullTableConfig::entry(prefix, list.len());
            list.get(place).map_or(NextHopId::NONE, |number| entry(neighbours, *number))
        };
        if !spread.ipv4.is_empty() {
            let prefixes = full_table::ipv4()?.into_iter();
            self.ipv4.extend(prefixes.map(|prefix| (prefix, hop(&spread.ipv4, &prefix.to_string()))));
        }
        if !spread.ipv6.is_empty() {
            let prefixes = full_table::ipv6()?.into_iter();
            self.ipv6.extend(prefixes.map(|prefix| (prefix, hop(&spread.ipv6, &prefix.to_string()))));
        }
        Ok(())
    }

    /// Adds the prefixes of the ports' links: stations there that aren't known get no packets.
    ///
    /// # Errors
    /// [`RoutesError::TooManyNextHops`].
    pub fn links(&mut self) -> Result<(), RoutesError> {
        let unknown = self.hop(NextHop::NoNeighbour)?;
        let everybody = self.hop(NextHop::DirectedBroadcast)?;
        let own: Vec<InterfaceAddress> = self.ports.iter().flat_map(|port| port.addresses.clone()).collect();
        for InterfaceAddress { address, length } in own {
            match address {
                IpAddr::V4(address) if !martian::ipv4_stays_on_link(address) => {
                    let link: Ipv4Prefix = Prefix::containing(address.to_bits(), length);
                    self.ipv4.push((link, unknown));
                    if length < 31 {
                        let ends = [link.first(), link.last()];
                        self.ipv4.extend(ends.map(|end| (Prefix::containing(end, 32), everybody)));
                    }
                }
                IpAddr::V6(address) if !martian::ipv6_stays_on_link(address) => {
                    self.ipv6.push((Prefix::containing(address.to_bits(), length), unknown));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Adds our own addresses, the subnet-router anycast addresses (RFC 4291 section 2.6.1) among them.
    ///
    /// # Errors
    /// [`RoutesError::TooManyNextHops`].
    pub fn own_addresses(&mut self) -> Result<(), RoutesError> {
        let local = self.hop(NextHop::Local)?;
        let own: Vec<InterfaceAddress> = self.ports.iter().flat_map(|port| port.addresses.clone()).collect();
        for InterfaceAddress { address, length } in own {
            if let IpAddr::V6(address) = address
                && length < 127
            {
                let link: Ipv6Prefix = Prefix::containing(address.to_bits(), length);
                self.host(IpAddr::V6(link.address()), local);
            }
            self.host(address, local);
        }
        Ok(())
    }

    /// Builds the tables.
    ///
    /// # Errors
    /// [`RoutesError::Table`], [`RoutesError::TooManyPorts`].
    pub fn build(self) -> Result<Routes, RoutesError> {
        let Self { ports, hops, ipv4, ipv6, hash_seed } = self;
        if ports.len() > usize::from(u16::MAX) {
            return Err(RoutesError::TooManyPorts { count: ports.len() });
        }
        Ok(Routes {
            ipv4: Ipv4Table::from_routes(ipv4)?,
            ipv6: Ipv6Table::from_routes(ipv6)?,
            hops: Hops::new(ports, hops, hash_seed),
        })
    }
}

/// The next hop of the neighbour with this number. A number that no neighbour has gives none, which the table refuses
/// by the name of the prefix.
fn entry(neighbours: &[NextHopId], number: usize) -> NextHopId {
    neighbours.get(number).copied().unwrap_or(NextHopId::NONE)
}
