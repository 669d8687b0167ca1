//! What the kernel's routes mean for us, worked out from a [`View`] without regard to what was before.

use std::net::IpAddr;
use std::sync::Arc;

use warmlane_forward::control::config::InterfaceAddress;
use warmlane_forward::control::{Adjacency, NextHop, RouterPort, TableNumber, Unresolved, VlanInterface};
use warmlane_table::{IpPrefix, Prefix};
use warmlane_wire::MacAddress;

use super::kernel::{Address, LinkIndex, NeighbourState, NextHopObject, Path, Target, View};
use super::settings::SourceChecks;

/// The kernel's tables that packets go through outside of VRFs, in this order (`include/uapi/linux/rtnetlink.h`).
pub(crate) const USUAL_TABLES: [u32; 3] = [255, 254, 253];

/// An interface that lanes forward by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortSettings {
    /// The name that it was opened by.
    pub name: String,
    /// The kernel's number of the interface.
    pub link: LinkIndex,
    /// Largest IP packet that the port was opened for, in bytes.
    pub mtu_limit: u16,
}

/// Which of our tables is filled from which of the kernel's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableSource {
    pub(crate) number: TableNumber,
    /// Asked in this order.
    pub(crate) kernel: Vec<u32>,
    /// For a VRF: where it has no route, other tables may have one, by the kernel's rules.
    pub(crate) is_vrf: bool,
}

/// What a prefix leads to, by what it is rather than by number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum HopKey {
    /// To the kernel.
    Punt,
    /// To the kernel, whose own address it is.
    Local,
    /// Stations of a link of ours, all of them.
    Broadcast,
    Drop,
    Unreachable,
    Prohibited,
    /// Out of a link, to a station.
    Path(LinkIndex, Option<IpAddr>),
    /// Whatever a route's target is at the time.
    Target(Arc<Target>),
}

/// What a [`HopKey`] is at present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    Plain(NextHop),
    /// Paths and their weights.
    Group(Vec<(LinkIndex, Option<IpAddr>, u16)>),
}

/// What about a target decides which prefixes are in the tables, rather than what their next hops are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Whether the kernel would use it.
    is_usable: bool,
    /// The link that packets are put on as they are: neighbours on it get routes of their own.
    on_link: Option<LinkIndex>,
}

/// Works out what routes mean.
#[derive(Clone, Copy)]
pub(crate) struct Resolver<'a> {
    pub(crate) view: &'a View,
    pub(crate) ports: &'a [PortSettings],
    pub(crate) sources: &'a [TableSource],
}

impl Resolver<'_> {
    /// The port, and the VLAN on it, that an interface is.
    pub(crate) fn place(&self, link: LinkIndex) -> Option<(u16, Option<u16>)> {
        let number = |link| self.ports.iter().position(|port| port.link == link).map(|n| n as u16);
        if let Some(port) = number(link) {
            return Some((port, None));
        }
        let link = self.view.links().get(&link)?;
        let (vlan, lower) = (link.vlan?, link.lower?);
        number(lower).map(|port| (port, Some(vlan)))
    }

    /// The table of the VRF that an interface is in, as the kernel numbers it; `None` outside of VRFs.
    pub(crate) fn vrf_of(&self, link: LinkIndex) -> Option<u32> {
        let master = self.view.links().get(&link)?.master?;
        self.view.links().get(&master)?.vrf_table
    }

    /// Our table for packets that come in by an interface.
    pub(crate) fn table_of(&self, link: LinkIndex) -> Option<TableNumber> {
        let Some(kernel) = self.vrf_of(link) else { return Some(0) };
        let source = self.sources.iter().find(|source| source.is_vrf && source.kernel == [kernel]);
        source.map(|source| source.number)
    }

    fn is_usable_path(&self, path: &Path) -> bool {
        !path.is_dead && self.view.links().get(&path.link).is_some_and(|link| link.is_up)
    }

    /// Whether the kernel would use a route to this at present; if not, it goes on with the next.
    pub(crate) fn is_usable(&self, target: &Target) -> bool {
        let object = |number: u32| match self.view.object(number) {
            Some(NextHopObject::Path(path)) => self.is_usable_path(path),
            Some(NextHopObject::Blackhole | NextHopObject::KernelOnly) => true,
            Some(NextHopObject::Group(_)) | None => false,
        };
        match target {
            Target::Paths(paths) => paths.iter().any(|path| self.is_usable_path(path)),
            Target::Object(number) => match self.view.object(*number) {
                Some(NextHopObject::Group(members)) => members.iter().any(|&(member, _)| object(member)),
                _ => object(*number),
            },
            _ => true,
        }
    }

    pub(crate) fn standing(&self, target: &Target) -> Standing {
        Standing { is_usable: self.is_usable(target), on_link: self.single_link(target) }
    }

    /// The route that the kernel would use, of those to exactly this prefix.
    fn best(&self, source: &TableSource, prefix: IpPrefix) -> Option<&Arc<Target>> {
        source.kernel.iter().find_map(|&table| self.best_in(table, prefix))
    }

    fn best_in(&self, table: u32, prefix: IpPrefix) -> Option<&Arc<Target>> {
        let list = self.view.table(table)?.get(prefix)?.as_slice();
        let mut usable = list.iter().filter(|route| route.tos == 0 && self.is_usable(&route.target));
        usable.next().map(|route| &route.target)
    }

    /// The link that packets to an address are put on as they are, by the longest match.
    fn on_link(&self, source: &TableSource, address: IpAddr) -> Option<LinkIndex> {
        let at = |length: u8| match address {
            IpAddr::V4(ip) => IpPrefix::V4(Prefix::containing(ip.to_bits(), length)),
            IpAddr::V6(ip) => IpPrefix::V6(Prefix::containing(ip.to_bits(), length)),
        };
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let lengths = || (0..=bits).rev();
        let mut found = source
            .kernel
            .iter()
            .flat_map(|&table| lengths().filter_map(move |length| self.best_in(table, at(length))));
        self.single_link(found.next()?)
    }

    /// The link of a target that is a single link of ours without a gateway.
    fn single_link(&self, target: &Target) -> Option<LinkIndex> {
        let path = match target {
            Target::Paths(paths) => match &paths[..] {
                [path] => path,
                _ => return None,
            },
            Target::Object(number) => match self.view.object(*number)? {
                NextHopObject::Path(path) => path,
                _ => return None,
            },
            _ => return None,
        };
        (path.gateway.is_none() && self.place(path.link).is_some()).then_some(path.link)
    }

    /// Where a prefix should lead in one of our tables; `None` if it should not be in there.
    pub(crate) fn choose(&self, source: &TableSource, prefix: IpPrefix) -> Option<HopKey> {
        let host = host(prefix);
        if let Some(target) = self.best(source, prefix) {
            return Some(match &**target {
                Target::Local => HopKey::Local,
                Target::KernelOnly => HopKey::Punt,
                Target::Broadcast => HopKey::Broadcast,
                Target::Blackhole => HopKey::Drop,
                Target::Unreachable => HopKey::Unreachable,
                Target::Prohibit => HopKey::Prohibited,
                other @ (Target::Paths(_) | Target::Object(_)) => match (host, self.single_link(other)) {
                    (Some(address), Some(link)) => HopKey::Path(link, Some(address)),
                    _ => HopKey::Target(Arc::clone(target)),
                },
            });
        }
        if let Some(address) = host
            && let Some(link) = self.on_link(source, address)
            && self.view.neighbour(link, address).and_then(NeighbourState::mac).is_some()
        {
            return Some(HopKey::Path(link, Some(address)));
        }
        let is_default = matches!(prefix, IpPrefix::V4(p) if p.length() == 0)
            || matches!(prefix, IpPrefix::V6(p) if p.length() == 0);
        // The kernel knows what its rules say next.
        (source.is_vrf && is_default).then_some(HopKey::Punt)
    }

    /// What a path is at present.
    fn path(&self, link: LinkIndex, gateway: Option<IpAddr>) -> NextHop {
        let (Some((port, vlan)), Some(known)) = (self.place(link), self.view.links().get(&link)) else {
            // Out of an interface that only the kernel forwards by.
            return NextHop::Punt;
        };
        let station = gateway.and_then(|gateway| self.view.neighbour(link, gateway)?.mac());
        let Some(mac) = station else { return NextHop::Unresolved(Unresolved { link, gateway, port, vlan }) };
        let limit = self.ports.get(usize::from(port)).map_or(0, |port| port.mtu_limit);
        NextHop::Forward(Adjacency {
            destination: MacAddress(mac),
            source: MacAddress(known.mac.unwrap_or_default()),
            port,
            mtu: u16::try_from(known.mtu).unwrap_or(u16::MAX).min(limit),
            vlan,
        })
    }

    /// The usable paths of a target and their weights, or what it is instead.
    fn paths(&self, target: &Target) -> Result<Vec<(LinkIndex, Option<IpAddr>, u16)>, NextHop> {
        let mut all: Vec<(LinkIndex, Option<IpAddr>, u16)> = Vec::new();
        let mut add = |path: &Path, weight: u16| {
            if !self.is_usable_path(path) {
                return;
            }
            match all.iter_mut().find(|known| (known.0, known.1) == (path.link, path.gateway)) {
                Some(known) => known.2 = known.2.saturating_add(weight),
                None => all.push((path.link, path.gateway, weight)),
            }
        };
        match target {
            Target::Paths(paths) => paths.iter().for_each(|path| add(path, path.weight)),
            Target::Object(number) => match self.view.object(*number) {
                Some(NextHopObject::Path(path)) => add(path, 1),
                Some(NextHopObject::Group(members)) => {
                    for &(member, weight) in members {
                        match self.view.object(member) {
                            Some(NextHopObject::Path(path)) => add(path, weight),
                            Some(NextHopObject::Blackhole | NextHopObject::KernelOnly) => {
                                return Err(NextHop::Punt);
                            }
                            Some(NextHopObject::Group(_)) | None => {}
                        }
                    }
                }
                Some(NextHopObject::Blackhole) => return Err(NextHop::Drop),
                Some(NextHopObject::KernelOnly) => return Err(NextHop::Punt),
                None => {}
            },
            _ => return Err(NextHop::Punt),
        }
        Ok(all)
    }

    /// What a key is at present.
    pub(crate) fn content(&self, key: &HopKey) -> Content {
        Content::Plain(match key {
            HopKey::Punt => NextHop::Punt,
            HopKey::Local => NextHop::LocalPunt,
            HopKey::Broadcast => NextHop::DirectedBroadcast,
            HopKey::Drop => NextHop::Drop,
            HopKey::Unreachable => NextHop::Unreachable,
            HopKey::Prohibited => NextHop::Prohibited,
            HopKey::Path(link, gateway) => self.path(*link, *gateway),
            HopKey::Target(target) => match self.paths(target) {
                Err(instead) => instead,
                Ok(paths) => match paths[..] {
                    // Until its prefixes are gone from the table.
                    [] => NextHop::Unreachable,
                    [(link, gateway, _)] => self.path(link, gateway),
                    _ => return Content::Group(paths),
                },
            },
        })
    }

    fn addresses(&self, link: LinkIndex) -> Vec<InterfaceAddress> {
        let each = |own: &Address| InterfaceAddress { address: own.address, length: own.length };
        self.view.addresses(link).map(each).collect()
    }

    /// The ports as lanes see them.
    pub(crate) fn router_ports(&self, checks: &SourceChecks) -> Vec<RouterPort> {
        let port = |settings: &PortSettings| {
            let link = self.view.links().get(&settings.link);
            let on_it = self
                .view
                .links()
                .values()
                .filter(|link| link.lower == Some(settings.link) && link.vlan.is_some() && link.is_up);
            let vlans = on_it.filter_map(|link| {
                Some(VlanInterface {
                    vlan: link.vlan?,
                    addresses: self.addresses(link.index),
                    table: self.table_of(link.index)?,
                    source_check: checks.of(&link.name),
                })
            });
            RouterPort {
                mac: Some(MacAddress(link.and_then(|link| link.mac).unwrap_or_default())),
                mtu: link
                    .map_or(0, |link| u16::try_from(link.mtu).unwrap_or(u16::MAX))
                    .min(settings.mtu_limit),
                addresses: self.addresses(settings.link),
                table: self.table_of(settings.link).unwrap_or(0),
                source_check: checks.of(&settings.name),
                vlans: Some(vlans.collect()),
            }
        };
        self.ports.iter().map(port).collect()
    }
}

/// The address of a prefix of full length.
pub(crate) fn host(prefix: IpPrefix) -> Option<IpAddr> {
    match prefix {
        IpPrefix::V4(prefix) => (prefix.length() == 32).then(|| IpAddr::V4(prefix.address())),
        IpPrefix::V6(prefix) => (prefix.length() == 128).then(|| IpAddr::V6(prefix.address())),
    }
}

/// The prefix of full length around an address.
pub(crate) fn host_prefix(address: IpAddr) -> IpPrefix {
    match address {
        IpAddr::V4(ip) => IpPrefix::V4(Prefix::containing(ip.to_bits(), 32)),
        IpAddr::V6(ip) => IpPrefix::V6(Prefix::containing(ip.to_bits(), 128)),
    }
}
