//! What lanes' tables should hold, as a pure function of the [`View`]: nothing here knows what they hold now.
//!
//! It is asked point by point (a prefix, a next hop, the ports), for to work out all of it takes as long as there are
//! routes.

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use warmlane_forward::control::config::InterfaceAddress;
use warmlane_forward::control::{
    Adjacency, Host, InterfaceCheck, NextHop, RouterPort, SourceCheck, Unresolved, VlanInterface,
};
use warmlane_table::{IpPrefix, Prefix};
use warmlane_wire::{MacAddress, martian};

use super::kernel::{Address, Link, LinkIndex, NextHopObject, PrefixRoutes, Route, RoutePath, Target, View};
use super::lane_tables::LaneTables;
use super::local;
use super::policy::{Policy, StepAction};
use super::settings::SourceChecks;
use super::tunnels::Way;

/// An interface that lanes forward by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoutedPort {
    /// The name that it was opened by.
    pub name: String,
    /// The kernel's number of the interface.
    pub link: LinkIndex,
    /// Largest IP packet that the port was opened for, in bytes.
    pub mtu_limit: u16,
}

impl RoutedPort {
    /// Of a port that no interface has.
    pub(crate) const fn vacant() -> Self {
        // The kernel's numbers are 31 bits long.
        Self { name: String::new(), link: LinkIndex::MAX, mtu_limit: 0 }
    }

    /// Of what leads into tunnels.
    pub(crate) const fn entrance() -> Self {
        Self { name: String::new(), link: LinkIndex::MAX - 1, mtu_limit: u16::MAX }
    }

    /// Whether it is that.
    pub(crate) fn is_entrance(&self) -> bool {
        *self == Self::entrance()
    }

    /// Whether an interface has it, though it may be gone.
    pub(crate) fn is_taken(&self) -> bool {
        *self != Self::vacant()
    }
}

/// What the kernel would do with packets to all of a prefix.
pub(crate) struct Decision<'a> {
    pub(super) found: Found<'a>,
    /// It has a route to exactly this prefix that says so. Else it is the same for the prefix around this one.
    is_exact: bool,
}

pub(super) enum Found<'a> {
    /// With the MTU that the route has of its own; 0: none.
    Target(&'a Arc<Target>, u32),
    Settled(HopKey),
}

/// What a prefix leads to, by what it is rather than by number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum HopKey {
    /// To the kernel.
    Punt,
    /// To the kernel, whose own address it is.
    Local,
    /// To all neighbours on a link of ours.
    Broadcast,
    Drop,
    Unreachable,
    Prohibited,
    /// Out of a link, to a gateway; `None`: to the packet's own destination. With the route's own MTU, or 0.
    Path(LinkIndex, Option<IpAddr>, u32),
    /// Whatever a route's target is at the time. With the route's own MTU, or 0.
    Target(Arc<Target>, u32),
}

/// What a [`HopKey`] is at present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HopContent {
    Plain(NextHop),
    /// Paths and their weights.
    Group(Vec<(HopKey, u16)>),
}

/// What about a target decides which prefixes have routes, rather than what their next hops are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TargetState {
    /// Whether the kernel would use it.
    is_usable: bool,
    /// The link that packets are put on as they are: neighbours on it get routes of their own.
    on_link: Option<LinkIndex>,
}

/// The state that lanes' tables should have.
pub(crate) struct Desired<'a> {
    pub(crate) view: &'a View,
    /// Those that lanes send by, then what leads into tunnels, if there is that, and then the networks behind these.
    pub(crate) ports: &'a [RoutedPort],
    /// How the box's own packets are looked up, and where that leads, once asked.
    pub(super) own_policy: OnceCell<Policy>,
    pub(super) ways: RefCell<HashMap<IpAddr, Option<Arc<Way>>>>,
}

impl<'a> Desired<'a> {
    pub(crate) fn new(view: &'a View, ports: &'a [RoutedPort]) -> Self {
        Self { view, ports, own_policy: OnceCell::new(), ways: RefCell::default() }
    }

    /// The ports that lanes send by.
    pub(crate) fn own_ports(&self) -> &'a [RoutedPort] {
        own_ports(self.ports)
    }

    /// Whether a port is a network behind tunnels.
    pub(crate) fn is_network(&self, port: u16) -> bool {
        usize::from(port) >= self.own_ports().len()
    }
}

/// Those of the ports that lanes send by.
pub(crate) fn own_ports(ports: &[RoutedPort]) -> &[RoutedPort] {
    let count = ports.iter().position(RoutedPort::is_entrance).unwrap_or(ports.len());
    &ports[..count]
}

impl Desired<'_> {
    /// The port, and the VLAN on it, that an interface is; `None` if neither, or if what comes in there is for a bridge.
    pub(crate) fn port_of(&self, link: LinkIndex) -> Option<(u16, Option<u16>)> {
        let number = |link| self.ports.iter().position(|port| port.link == link).map(|n| n as u16);
        if bridge_of(self.view, link).is_some() {
            return None;
        }
        if let Some(port) = number(link) {
            return Some((port, None));
        }
        let link = self.view.links().get(&link)?;
        let (vlan, lower) = (link.vlan?, link.lower?);
        number(lower).filter(|port| !self.is_network(*port)).map(|port| (port, Some(vlan)))
    }

    /// All ways through the kernel's tables: first that of packets that come in by no interface in particular, then those
    /// of our interfaces' packets.
    pub(crate) fn policies(&self) -> Vec<Policy> {
        let mut all = vec![Policy::of(self.view, None)];
        for &link in self.view.links().keys().filter(|&&link| self.port_of(link).is_some()) {
            let policy = Policy::of(self.view, Some(link));
            if !all.contains(&policy) {
                all.push(policy);
            }
        }
        all
    }

    fn is_usable_path(&self, path: &RoutePath) -> bool {
        !path.is_dead && self.view.links().get(&path.link).is_some_and(|link| link.is_up)
    }

    /// The same for a nexthop object: those whose link has lost its carrier are gone, and nobody says so.
    fn is_usable_object(&self, path: &RoutePath) -> bool {
        let has_carrier = self.view.links().get(&path.link).is_some_and(|link| link.has_carrier);
        has_carrier && self.is_usable_path(path)
    }

    /// Whether the kernel would use a route to this at present; if not, it goes on with the next.
    pub(crate) fn is_usable(&self, target: &Target) -> bool {
        let object = |number: u32| match self.view.object(number) {
            Some(NextHopObject::Path(path)) => self.is_usable_object(path),
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

    pub(crate) fn target_state(&self, target: &Target) -> TargetState {
        TargetState { is_usable: self.is_usable(target), on_link: self.single_link(target) }
    }

    /// What the kernel does with packets to a prefix whose routes these are; `None` if it goes on with the prefix around it.
    fn best<'a>(&self, list: &'a PrefixRoutes) -> Option<Found<'a>> {
        let is_for_all = |route: &Route| route.tos == 0 && route.source.is_none();
        let found = |route: &'a Route| Found::Target(&route.target, route.mtu);
        if let [only] = list.as_slice()
            && is_for_all(only)
        {
            return self.is_usable(&only.target).then(|| found(only));
        }
        let mut usable = list.as_slice().iter().filter(|route| self.is_usable(&route.target));
        let best = usable.clone().find(|route| is_for_all(route)).map(found);
        // Some packets by one route, some by another.
        if usable.any(|route| !is_for_all(route)) { Some(Found::Settled(HopKey::Punt)) } else { best }
    }

    /// What the kernel would do with packets to all of a prefix in which there are no longer ones.
    pub(super) fn decide(&self, policy: &Policy, prefix: IpPrefix) -> Option<Decision<'_>> {
        policy.steps(prefix).iter().filter(|step| step.covers(prefix)).find_map(|step| match &step.action {
            StepAction::Table(table) => {
                let mut around = self.view.table(*table)?.around(prefix);
                around
                    .find_map(|(at, list)| Some(Decision { found: self.best(list)?, is_exact: at == prefix }))
            }
            StepAction::Settle(key) => Some(Decision { found: Found::Settled(key.clone()), is_exact: false }),
        })
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
        (path.gateway.is_none() && self.port_of(path.link).is_some()).then_some(path.link)
    }

    /// All prefixes that may have a route in a table with this policy, but for those of neighbours.
    pub(crate) fn prefixes(&self, policy: &Policy) -> HashSet<IpPrefix> {
        let tables = policy.tables();
        let of_kernel = tables.iter().filter_map(|&number| self.view.table(number));
        let of_kernel = of_kernel.flat_map(|table| table.prefixes().map(|(prefix, _)| prefix));
        of_kernel.chain(policy.boundaries()).collect()
    }

    /// Where a prefix should lead in a table with this policy; `None` if it should have no route, as packets to it are
    /// routed right by the prefix around it.
    pub(crate) fn route(&self, policy: &Policy, prefix: IpPrefix) -> Option<HopKey> {
        let host = host(prefix);
        let decision = self.decide(policy, prefix)?;
        if decision.is_exact || policy.is_boundary(prefix) {
            let (target, mtu) = match decision.found {
                Found::Settled(key) => return Some(key),
                Found::Target(target, mtu) => (target, mtu),
            };
            return Some(match &**target {
                Target::Local => HopKey::Local,
                Target::KernelOnly => HopKey::Punt,
                Target::Broadcast => HopKey::Broadcast,
                Target::Blackhole => HopKey::Drop,
                Target::Unreachable => HopKey::Unreachable,
                Target::Prohibit => HopKey::Prohibited,
                other @ (Target::Paths(_) | Target::Object(_)) => match (host, self.single_link(other)) {
                    (Some(address), Some(link)) => HopKey::Path(link, Some(address), mtu),
                    _ => HopKey::Target(Arc::clone(target), mtu),
                },
            });
        }
        let (Some(address), Found::Target(target, mtu)) = (host, decision.found) else { return None };
        let link = self.single_link(target)?;
        self.view.neighbour(link, address)?.mac().map(|_| HopKey::Path(link, Some(address), mtu))
    }

    /// What a path is at present.
    fn path(&self, link: LinkIndex, gateway: Option<IpAddr>, own_mtu: u32) -> NextHop {
        let (Some((port, vlan)), Some(known)) = (self.port_of(link), self.view.links().get(&link)) else {
            // Out of an interface that only the kernel forwards by.
            return NextHop::Punt;
        };
        if self.view.is_left_at_egress(link) {
            return NextHop::Punt;
        }
        if known.ip_tunnel.is_some() && self.is_network(port) {
            let through = self.packet_tunnel(port, known, own_mtu).map(NextHop::Tunnel);
            return through.unwrap_or(NextHop::PuntBy(port));
        }
        let mac = gateway.and_then(|gateway| self.view.neighbour(link, gateway)?.mac());
        let Some(mac) = mac else { return NextHop::Unresolved(Unresolved { link, gateway, port, vlan }) };
        if self.is_network(port) {
            let through = self.tunnel(port, known, mac, own_mtu).map(NextHop::Tunnel);
            return through.unwrap_or(NextHop::PuntBy(port));
        }
        let limit = self.ports.get(usize::from(port)).map_or(0, |port| port.mtu_limit);
        // A route can't make a link's packets longer.
        let mtu = if own_mtu == 0 { known.mtu } else { own_mtu.min(known.mtu) };
        NextHop::Forward(Adjacency {
            destination: MacAddress(mac),
            source: MacAddress(known.mac.unwrap_or_default()),
            port,
            mtu: u16::try_from(mtu).unwrap_or(u16::MAX).min(limit),
            vlan,
        })
    }

    /// The usable paths of a target and their weights, or what it is instead.
    pub(super) fn paths(&self, target: &Target) -> Result<Vec<(LinkIndex, Option<IpAddr>, u16)>, NextHop> {
        let mut all: Vec<(LinkIndex, Option<IpAddr>, u16)> = Vec::new();
        let mut add = |path: &RoutePath, weight: u16, is_usable: bool| {
            if !is_usable {
                return;
            }
            match all.iter_mut().find(|known| (known.0, known.1) == (path.link, path.gateway)) {
                Some(known) => known.2 = known.2.saturating_add(weight),
                None => all.push((path.link, path.gateway, weight)),
            }
        };
        match target {
            Target::Paths(paths) => {
                for path in paths {
                    add(path, path.weight, self.is_usable_path(path));
                }
            }
            Target::Object(number) => match self.view.object(*number) {
                Some(NextHopObject::Path(path)) => add(path, 1, self.is_usable_object(path)),
                Some(NextHopObject::Group(members)) => {
                    for &(member, weight) in members {
                        match self.view.object(member) {
                            Some(NextHopObject::Path(path)) => {
                                add(path, weight, self.is_usable_object(path));
                            }
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

    /// The links and gateways of a target's usable paths.
    pub(crate) fn links_and_gateways(&self, target: &Target) -> Vec<(LinkIndex, Option<IpAddr>)> {
        self.paths(target).unwrap_or_default().into_iter().map(|(link, gateway, _)| (link, gateway)).collect()
    }

    /// What a key is at present.
    pub(crate) fn content(&self, key: &HopKey) -> HopContent {
        HopContent::Plain(match key {
            HopKey::Punt => NextHop::Punt,
            HopKey::Local => NextHop::LocalPunt,
            HopKey::Broadcast => NextHop::DirectedBroadcast,
            HopKey::Drop => NextHop::Drop,
            HopKey::Unreachable => NextHop::Unreachable,
            HopKey::Prohibited => NextHop::Prohibited,
            HopKey::Path(link, gateway, mtu) => self.path(*link, *gateway, *mtu),
            HopKey::Target(target, mtu) => match self.paths(target) {
                Err(instead) => instead,
                // Neighbours on a link have routes of their own, but only where that is the one way to them.
                Ok(paths)
                    if self.single_link(target).is_none() && paths.iter().any(|path| path.1.is_none()) =>
                {
                    NextHop::Punt
                }
                Ok(paths) => match paths[..] {
                    // Until its prefixes are gone from the table.
                    [] => NextHop::Unreachable,
                    [(link, gateway, _)] => self.path(link, gateway, *mtu),
                    // The kernel knows what its choice of a path looks at.
                    _ if !self.knows_choice(&paths) => NextHop::Punt,
                    _ => {
                        let key = |(link, gateway, weight)| (HopKey::Path(link, gateway, *mtu), weight);
                        return HopContent::Group(paths.into_iter().map(key).collect());
                    }
                },
            },
        })
    }

    /// Whether lanes look at the same as the kernel when they choose one of these paths.
    pub(super) fn knows_choice(&self, paths: &[(LinkIndex, Option<IpAddr>, u16)]) -> bool {
        let [ipv4, ipv6] = self.view.switches().multipath_hash;
        // Routes of IPv4 may have gateways of IPv6.
        let only_ipv4 = paths.iter().all(|(_, gateway, _)| matches!(gateway, Some(IpAddr::V4(_))));
        ipv4.is_some() && (only_ipv4 || ipv6.is_some())
    }

    /// How sources are checked on an interface: as is asked for, and as the kernel does.
    fn source_check(&self, link: LinkIndex, asked: SourceCheck) -> InterfaceCheck {
        let kernel = self.view.switches().of_link(link);
        // The kernel looks no further than at addresses, unless the box has whole prefixes of its own.
        let least = if local::has_prefixes(self.view) { SourceCheck::Foreign } else { SourceCheck::Off };
        InterfaceCheck {
            ipv4: asked.max(kernel.reverse_path).max(least),
            ipv6: asked,
            accepts_own: kernel.accepts_own,
        }
    }

    /// What lanes have to know of the box.
    pub(crate) fn host(&self) -> Host {
        let of_links = || self.view.links().values().flat_map(|link| self.view.addresses(link.index));
        let global = of_links().map(|own| own.address).filter(|address| match address {
            IpAddr::V4(address) => !address.is_loopback() && !address.is_link_local(),
            IpAddr::V6(address) => !address.is_loopback() && !martian::ipv6_stays_on_link(*address),
        });
        let (own_sources, broadcast_sources) = local::ipv4_sources(self.view);
        Host {
            other_addresses: global.collect(),
            own_sources,
            broadcast_sources,
            multipath_hash: self.view.switches().multipath_hash.map(Option::unwrap_or_default),
            ttl: self.view.switches().ttl,
        }
    }

    fn addresses(&self, link: LinkIndex) -> Vec<InterfaceAddress> {
        let each = |own: &Address| InterfaceAddress { address: own.address, length: own.length };
        self.view.addresses(link).map(each).collect()
    }

    /// The ports as lanes see them.
    pub(crate) fn router_ports(&self, checks: &SourceChecks, tables: &LaneTables) -> Vec<RouterPort> {
        let table_of = |link| tables.find(&Policy::of(self.view, Some(link)));
        let port = |settings: &RoutedPort| {
            if settings.is_entrance() {
                return entrance();
            }
            let link = self.view.links().get(&settings.link);
            let on_it = self
                .view
                .links()
                .values()
                .filter(|link| link.lower == Some(settings.link) && link.vlan.is_some() && link.is_up)
                .filter(|link| bridge_of(self.view, link.index).is_none());
            let vlans = on_it.filter_map(|link| {
                Some(VlanInterface {
                    vlan: link.vlan?,
                    addresses: self.addresses(link.index),
                    table: table_of(link.index)?,
                    source_check: self.source_check(link.index, checks.of(&link.name)),
                    hop_limit: self.view.switches().of_link(link.index).hop_limit,
                })
            });
            RouterPort {
                mac: Some(MacAddress(link.and_then(|link| link.mac).unwrap_or_default())),
                mtu: link
                    .map_or(0, |link| u16::try_from(link.mtu).unwrap_or(u16::MAX))
                    .min(settings.mtu_limit),
                addresses: self.addresses(settings.link),
                table: table_of(settings.link).unwrap_or(0),
                source_check: self.source_check(settings.link, checks.of(&settings.name)),
                hop_limit: self.view.switches().of_link(settings.link).hop_limit,
                vlans: Some(vlans.filter(|_| self.own_ports().contains(settings)).collect()),
            }
        };
        self.ports.iter().map(port).collect()
    }
}

/// What datagrams of tunnels come in by: they are the box's own, and go by the routes of such.
fn entrance() -> RouterPort {
    RouterPort {
        mac: None,
        mtu: u16::MAX,
        addresses: Vec::new(),
        table: 0,
        source_check: InterfaceCheck { accepts_own: true, ..InterfaceCheck::default() },
        hop_limit: u8::MAX,
        vlans: None,
    }
}

/// The interface that everything goes to that comes in by a link: a bridge, a bond, whatever has members. A VRF is none of
/// these: its members stay interfaces of their own.
pub(crate) fn bridge_of(view: &View, link: LinkIndex) -> Option<&Link> {
    let master = view.links().get(&link)?.master?;
    view.links().get(&master).filter(|master| master.vrf_table.is_none())
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
