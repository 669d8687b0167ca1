//! Routes made in code: ports, neighbours and routes, typed or as text.

use std::net::{IpAddr, SocketAddr};

use warmlane_sys::random::system_seed;
use warmlane_table::{IpPrefix, Ipv4Table, Ipv6Table, NextHopId};
use warmlane_wire::{Flow, IpProtocol, MacAddress};

use super::config::{
    Config, DEFAULT_MTU, FullTableConfig, InterfaceAddress, NeighbourConfig, OrText, RouteTarget,
};
use super::flows::{Flows, flow};
use super::groups::{Group, Member};
use super::hops::{Hops, RouterPort};
use super::next_hop::{Adjacency, NextHop};
use super::routes::{Routes, RoutesError};

mod tables;
mod target;

use tables::{Tables, nth};
pub use target::{IntoTarget, Target};

/// Collects ports, neighbours and routes, and builds the tables at once.
///
/// Addresses, prefixes and Ethernet addresses are values or text. The first mistake is what [`build`](Self::build)
/// returns.
///
/// ```
/// use warmlane_forward::control::{NextHop, Routes};
///
/// let routes = Routes::builder()
///     .port("02:00:00:00:00:01", ["192.0.2.1/24", "2001:db8::1/64"])
///     .port("02:00:00:00:00:02", ["198.51.100.1/24"])
///     .neighbour("198.51.100.2", "02:00:00:00:01:02", 1)
///     .neighbour("198.51.100.3", "02:00:00:00:01:03", 1)
///     .route("0.0.0.0/0", "198.51.100.2")
///     .route("10.0.0.0/8", [("198.51.100.2", 3), ("198.51.100.3", 1)])
///     .route("240.0.0.0/4", NextHop::Drop)
///     .build()?;
/// assert!(routes.ipv4().lookup(0x0808_0808).is_some());
/// # Ok::<(), warmlane_forward::control::RoutesError>(())
/// ```
///
/// Where prefixes are equal, our own addresses win over neighbours, those over the prefixes of ports' links, those over
/// routes, and those over the embedded table; of two routes the later one wins. A flow goes before all of them.
#[derive(Debug, Default)]
pub struct RoutesBuilder {
    ports: Vec<RouterPort>,
    neighbours: Vec<NeighbourConfig>,
    routes: Vec<(IpPrefix, Target)>,
    flows: Vec<(Flow, Target)>,
    full_table: FullTableConfig,
    hash_seed: Option<u64>,
    mistake: Option<RoutesError>,
}

impl RoutesBuilder {
    /// No ports and no routes yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What a checked configuration describes.
    pub(super) fn from_config(config: &Config) -> Self {
        let mut builder = Self { full_table: config.full_table.clone(), ..Self::default() };
        for port in &config.ports {
            let addresses = port.addresses.clone();
            builder = builder.router_port(RouterPort {
                mac: port.mac,
                mtu: port.mtu,
                addresses,
                ..RouterPort::default()
            });
        }
        builder.neighbours.clone_from(&config.neighbours);
        let target = |target: &RouteTarget| match target {
            RouteTarget::Via(list) => Target::Neighbours(list.clone()),
            RouteTarget::OnLink(_) => Target::Hop(NextHop::NoNeighbour),
            RouteTarget::Drop => Target::Hop(NextHop::Drop),
            RouteTarget::Unreachable => Target::Hop(NextHop::Unreachable),
        };
        for route in &config.routes {
            builder = builder.route(route.prefix, target(&route.target));
        }
        builder.flows = config.flows.iter().map(|flow| (flow.flow, target(&flow.target))).collect();
        builder
    }

    /// Adds a port with our Ethernet address there (`None`: it takes unicast frames whoever they are for), our IP addresses
    /// on its link, and an MTU of 1500. Ports are numbered in the order in which they are added, from 0.
    #[must_use]
    pub fn port<A: OrText<InterfaceAddress>>(
        mut self,
        mac: impl OrText<Option<MacAddress>>,
        addresses: impl IntoIterator<Item = A>,
    ) -> Self {
        let mac = self.take(mac).flatten();
        let addresses = addresses.into_iter().filter_map(|address| self.take(address)).collect();
        self.router_port(RouterPort { mac, addresses, ..RouterPort::default() })
    }

    /// Adds a port with everything that can be said of one.
    #[must_use]
    pub fn router_port(mut self, port: RouterPort) -> Self {
        self.ports.push(port);
        self
    }

    /// Sets the largest IP packet, in bytes, that the link of the last port carries.
    #[must_use]
    pub fn mtu(mut self, bytes: u16) -> Self {
        match self.ports.last_mut() {
            Some(port) => port.mtu = bytes,
            None => self.refuse(RoutesError::NoPort { port: 0, count: 0 }),
        }
        self
    }

    /// Adds a neighbour on the port with this number, and a route to its address.
    #[must_use]
    pub fn neighbour(self, address: impl OrText<IpAddr>, mac: impl OrText<MacAddress>, port: u16) -> Self {
        self.neighbour_on(address, mac, port, None)
    }

    /// Adds a neighbour, frames to which are tagged with this VLAN (IEEE 802.1Q, 1 to 4094).
    #[must_use]
    pub fn tagged_neighbour(
        self,
        address: impl OrText<IpAddr>,
        mac: impl OrText<MacAddress>,
        port: u16,
        vlan: u16,
    ) -> Self {
        self.neighbour_on(address, mac, port, Some(vlan))
    }

    fn neighbour_on(
        mut self,
        address: impl OrText<IpAddr>,
        mac: impl OrText<MacAddress>,
        port: u16,
        vlan: Option<u16>,
    ) -> Self {
        if let (Some(address), Some(mac)) = (self.take(address), self.take(mac)) {
            self.neighbours.push(NeighbourConfig { address, mac, port: usize::from(port), vlan });
        }
        self
    }

    /// Adds a route. Neighbours that it names may be added later.
    #[must_use]
    pub fn route(mut self, prefix: impl OrText<IpPrefix>, target: impl IntoTarget) -> Self {
        match (prefix.value(), target.into_target()) {
            (Ok(prefix), Ok(target)) => self.routes.push((prefix, target)),
            (Err(error), _) | (_, Err(error)) => self.refuse(error.into()),
        }
        self
    }

    /// Adds a flow: packets of TCP, UDP or SCTP between these ends, in this direction, go this way whatever their route is. Ends are
    /// values or text, as in `192.0.2.1:4242` and `[2001:db8::1]:53`. Of two that are equal the later one wins. Fragments belong to no flow. A flow
    /// has one next hop: all its packets would take the same of several.
    #[must_use]
    pub fn flow(
        mut self,
        protocol: IpProtocol,
        from: impl OrText<SocketAddr>,
        to: impl OrText<SocketAddr>,
        target: impl IntoTarget,
    ) -> Self {
        if let (Some(from), Some(to)) = (self.take(from), self.take(to)) {
            match (flow(protocol, from, to), target.into_target()) {
                (Ok(flow), Ok(target)) => self.flows.push((flow, target)),
                (Err(error), _) => self.refuse(error.into()),
                (_, Err(error)) => self.refuse(error.into()),
            }
        }
        self
    }

    /// Spreads the embedded Internet table over neighbours, by their numbers.
    #[must_use]
    pub fn full_table(mut self, spread: FullTableConfig) -> Self {
        self.full_table = spread;
        self
    }

    /// Sets what flow hashes start from, for results that can be repeated. By default it is random: routers in a row that share a seed
    /// choose the same member of a group for all flows that they get from each other.
    #[must_use]
    pub fn hash_seed(mut self, seed: u64) -> Self {
        self.hash_seed = Some(seed);
        self
    }

    fn take<T>(&mut self, given: impl OrText<T>) -> Option<T> {
        given.value().map_err(|error| self.refuse(error.into())).ok()
    }

    /// The first mistake is the one that is told.
    fn refuse(&mut self, mistake: RoutesError) {
        self.mistake.get_or_insert(mistake);
    }

    /// Builds the tables.
    ///
    /// # Errors
    /// [`RoutesError`]: the first mistake, or a table has no space or no memory.
    pub fn build(mut self) -> Result<Routes, RoutesError> {
        if let Some(mistake) = self.mistake.take() {
            return Err(mistake);
        }
        let count = self.ports.len();
        if count > usize::from(u16::MAX) {
            return Err(RoutesError::TooManyPorts { count });
        }
        let mut tables = Tables::default();
        let neighbours: Vec<NextHopId> = self
            .neighbours
            .iter()
            .map(|neighbour| tables.number(self.adjacency(neighbour)?))
            .collect::<Result<_, _>>()?;
        tables.add_full_table(&self.full_table, &neighbours)?;
        for (prefix, target) in std::mem::take(&mut self.routes) {
            let hop = self.hop(target, &neighbours, &mut tables)?;
            tables.add(prefix, hop);
        }
        let flows = std::mem::take(&mut self.flows).into_iter().map(|(flow, target)| {
            if target.members() > 1 {
                return Err(RoutesError::FlowNextHops { flow });
            }
            let hop = self.hop(target, &neighbours, &mut tables)?;
            if hop.is_none() { Err(RoutesError::FlowWithoutNextHop { flow }) } else { Ok((flow, hop)) }
        });
        let flows = Flows::new(flows.collect::<Result<Vec<_>, _>>()?)?;
        // There is one table, whatever number it is called by.
        for port in &mut self.ports {
            port.table = 0;
            port.vlans.iter_mut().flatten().for_each(|vlan| vlan.table = 0);
        }
        let own = || self.ports.iter().flat_map(|port| &port.addresses).copied();
        tables.add_links(own())?;
        for (neighbour, hop) in self.neighbours.iter().zip(neighbours) {
            tables.add_host(neighbour.address, hop);
        }
        tables.add_own(own())?;
        Ok(Routes {
            ipv4: Ipv4Table::from_routes(tables.ipv4)?,
            ipv6: Ipv6Table::from_routes(tables.ipv6)?,
            flows,
            hops: Hops::new(self.ports, tables.hops, self.hash_seed.unwrap_or_else(system_seed)),
        })
    }

    /// The number of what a target leads to.
    fn hop(
        &self,
        target: Target,
        neighbours: &[NextHopId],
        tables: &mut Tables,
    ) -> Result<NextHopId, RoutesError> {
        let members: Vec<(NextHopId, u16)> = match target {
            Target::Hop(hop) => return tables.number(hop),
            Target::Neighbours(list) => {
                list.into_iter().map(|(number, weight)| (nth(neighbours, number), weight)).collect()
            }
            Target::Via(list) => list
                .into_iter()
                .map(|(address, weight)| Ok((nth(neighbours, self.find(address)?), weight)))
                .collect::<Result<_, RoutesError>>()?,
        };
        if let [(only, _)] = members[..] {
            return Ok(only);
        }
        let members: Vec<Member> = members.into_iter().map(|(hop, weight)| Member { hop, weight }).collect();
        tables.number(NextHop::Group(Group::new(&members)?))
    }

    fn adjacency(&self, neighbour: &NeighbourConfig) -> Result<NextHop, RoutesError> {
        let (number, count) = (neighbour.port, self.ports.len());
        let port = self.ports.get(number).ok_or(RoutesError::NoPort { port: number, count })?;
        // There are fewer than 65,536 ports.
        let number = number as u16;
        Ok(NextHop::Forward(Adjacency {
            destination: neighbour.mac,
            source: port.source_address(number),
            port: number,
            mtu: port.mtu,
            vlan: neighbour.vlan,
        }))
    }

    /// The number of the one neighbour with this address.
    fn find(&self, address: IpAddr) -> Result<usize, RoutesError> {
        let mut found =
            self.neighbours.iter().enumerate().filter(|(_, neighbour)| neighbour.address == address);
        match (found.next(), found.next()) {
            (Some((number, _)), None) => Ok(number),
            (Some(_), Some(_)) => Err(RoutesError::AmbiguousNeighbour { address }),
            (None, _) => Err(RoutesError::NoNeighbour { address }),
        }
    }
}

impl Default for RouterPort {
    /// Without addresses, in table 0, MTU 1500, no checks of sources, a hop limit of 64, VLAN tags looked through.
    fn default() -> Self {
        Self {
            mac: None,
            mtu: DEFAULT_MTU,
            addresses: Vec::new(),
            table: 0,
            source_check: super::source_check::InterfaceCheck::default(),
            hop_limit: super::host::OWN_TTL,
            vlans: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::VlanInterface;
    use std::net::Ipv4Addr;
    use warmlane_table::Prefix;

    fn two_ports() -> RoutesBuilder {
        Routes::builder()
            .port("02:00:00:00:00:01", ["192.0.2.1/24", "2001:db8::1/64"])
            .port([2, 0, 0, 0, 0, 2], ["198.51.100.1/24"])
            .mtu(9000)
            .neighbour("192.0.2.2", "02:00:00:00:01:02", 0)
            .tagged_neighbour(Ipv4Addr::new(198, 51, 100, 2), MacAddress([2, 0, 0, 0, 2, 2]), 1, 7)
    }

    /// Lanes that look at the numbers would not look for flows in another one.
    #[test]
    fn there_is_one_table() {
        let source_check = crate::control::InterfaceCheck::default();
        let vlan = VlanInterface { vlan: 7, addresses: Vec::new(), table: 1, source_check, hop_limit: 64 };
        let port = RouterPort { table: 2, vlans: Some(vec![vlan]), ..RouterPort::default() };
        let routes = Routes::builder().router_port(port).build().unwrap();
        let [port] = routes.hops().ports() else { unreachable!("one was added") };
        assert_eq!((port.table, port.vlans.as_ref().unwrap()[0].table), (0, 0));
    }

    #[test]
    fn flows_are_made_in_code() {
        let routes = two_ports()
            .route("0.0.0.0/0", "192.0.2.2")
            .flow(IpProtocol::TCP, "192.0.2.9:1", "8.8.8.8:2", "198.51.100.2")
            .flow(IpProtocol::UDP, "[2001:db8::9]:1", "[2001:db8:1::]:2", NextHop::Drop)
            .build()
            .unwrap();
        let leads_to = |protocol, from: &str, to: &str| {
            let flow = flow(protocol, from.parse().unwrap(), to.parse().unwrap()).unwrap();
            routes.next_hop(routes.flows().next_hop(&flow))
        };
        let tcp = leads_to(IpProtocol::TCP, "192.0.2.9:1", "8.8.8.8:2");
        assert!(matches!(tcp, Some(NextHop::Forward(to)) if to.port == 1), "{tcp:?}");
        assert_eq!(leads_to(IpProtocol::UDP, "192.0.2.9:1", "8.8.8.8:2"), None);
        let udp = leads_to(IpProtocol::UDP, "[2001:db8::9]:1", "[2001:db8:1::]:2");
        assert_eq!((udp, routes.flows().len()), (Some(&NextHop::Drop), 2));
    }

    fn leads_to(routes: &Routes, address: [u8; 4]) -> Option<&NextHop> {
        routes.next_hop(routes.ipv4().lookup(u32::from_be_bytes(address)))
    }

    #[test]
    fn routes_are_made_in_code() {
        let routes = two_ports()
            .route("0.0.0.0/0", "192.0.2.2")
            .route("10.0.0.0/8", ["192.0.2.2", "198.51.100.2"])
            .route("10.1.0.0/16", [("192.0.2.2", 3), ("198.51.100.2", 1)])
            .route(IpPrefix::V4(Prefix::containing(0xf000_0000, 4)), NextHop::Drop)
            .build()
            .unwrap();
        assert!(matches!(leads_to(&routes, [8, 8, 8, 8]), Some(NextHop::Forward(to)) if to.port == 0));
        assert!(matches!(leads_to(&routes, [10, 9, 9, 9]), Some(NextHop::Group(_))));
        let Some(NextHop::Group(group)) = leads_to(&routes, [10, 1, 0, 0]) else { panic!("a group") };
        let first = routes.ipv4().lookup(u32::from_be_bytes([192, 0, 2, 2]));
        let share = group.buckets().iter().filter(|&&hop| hop == first).count() * 4 / group.buckets().len();
        assert_eq!(share, 3);
        assert_eq!(leads_to(&routes, [240, 0, 0, 1]), Some(&NextHop::Drop));
        assert_eq!(leads_to(&routes, [192, 0, 2, 1]), Some(&NextHop::Local));
        assert_eq!(leads_to(&routes, [192, 0, 2, 9]), Some(&NextHop::NoNeighbour));
        let Some(NextHop::Forward(tagged)) = leads_to(&routes, [198, 51, 100, 2]) else {
            panic!("a neighbour")
        };
        assert_eq!((tagged.vlan, tagged.mtu, tagged.source), (Some(7), 9000, MacAddress([2, 0, 0, 0, 0, 2])));
    }

    #[test]
    fn equal_next_hops_share_a_number() {
        let adjacency = Adjacency {
            destination: MacAddress([2, 0, 0, 0, 1, 2]),
            source: MacAddress([2, 0, 0, 0, 0, 1]),
            port: 0,
            mtu: 1500,
            vlan: None,
        };
        let routes = two_ports()
            .route("10.0.0.0/8", "192.0.2.2")
            .route("11.0.0.0/8", adjacency)
            .route("12.0.0.0/8", NextHop::Forward(adjacency))
            .route("13.0.0.0/8", Adjacency { mtu: 1400, ..adjacency })
            .route("14.0.0.0/8", ["192.0.2.2", "198.51.100.2"])
            .route("15.0.0.0/8", ["192.0.2.2", "198.51.100.2"])
            .build()
            .unwrap();
        let number = |first: u8| routes.ipv4().lookup(u32::from(first) << 24);
        assert!(number(10).is_some());
        assert_eq!([number(11), number(12)], [number(10); 2]);
        assert_ne!(number(13), number(10));
        assert_eq!(number(14), number(15));
        // Two neighbours, one with another MTU, the group, and what every table has: no neighbour, broadcast, local.
        assert_eq!(routes.hops().next_hops().len(), 7);
    }

    #[test]
    fn each_forwarder_chooses_paths_from_a_seed_of_its_own() {
        let seed = |builder: RoutesBuilder| {
            let routes = builder.route("10.0.0.0/8", ["192.0.2.2", "198.51.100.2"]).build().unwrap();
            let mut seen = None;
            routes.member(routes.ipv4().lookup(0x0a00_0001), |seed| {
                seen = Some(seed);
                0
            });
            seen.expect("a group is chosen from by a hash")
        };
        assert_ne!(seed(two_ports()), seed(two_ports()));
        assert_eq!(seed(two_ports().hash_seed(7)), 7);
    }

    #[test]
    fn the_first_mistake_is_told() {
        let said = |builder: RoutesBuilder| builder.build().unwrap_err().to_string();
        assert!(said(two_ports().route("10.0.0.1/8", "x").route("x", "y")).contains("10.0.0.0/8"));
        assert!(said(two_ports().route("10.0.0.0/8", "x")).contains("as in 192.0.2.1"));
        assert!(said(two_ports().route("10.0.0.0/8", "192.0.2.3")).contains("192.0.2.3 is no neighbour"));
        assert!(said(two_ports().neighbour("192.0.2.3", "2:3", 0)).contains("2 groups"));
        assert!(said(two_ports().neighbour("192.0.2.3", "ff:ff:ff:ff:ff:ff", 0)).contains("group address"));
        assert!(said(two_ports().neighbour("192.0.2.3", "02:00:00:00:00:09", 2)).contains("no port 2"));
        assert!(said(two_ports().port("02:00:00:00:00:03", ["203.0.113.0/24"])).contains("203.0.113.0"));
        let twice = two_ports().neighbour("192.0.2.2", "02:00:00:00:00:09", 1);
        assert!(said(twice.route("10.0.0.0/8", "192.0.2.2")).contains("several ports"));
        assert!(said(Routes::builder().mtu(1400)).contains("no port"));
        let ends = ("192.0.2.9:1", "198.51.100.9:2");
        let flow = |protocol, target: Target| said(two_ports().flow(protocol, ends.0, ends.1, target));
        let nobody = Target::Neighbours(vec![(7, 1)]);
        let several = Target::Neighbours(vec![(0, 1), (1, 1)]);
        assert!(flow(IpProtocol::UDP, several).contains("several next hops"));
        assert!(flow(IpProtocol::UDP, nobody).contains("UDP 192.0.2.9:1 to 198.51.100.9:2"));
        assert!(flow(IpProtocol::ICMP, Target::Hop(NextHop::Drop)).contains("ICMP has no ports"));
        let by = |from: &str| said(two_ports().flow(IpProtocol::UDP, from, ends.1, "192.0.2.2"));
        assert!(by("192.0.2.9").contains("as in 192.0.2.1:4242"));
        assert!(by("224.0.0.1:5").contains("unicast address"));
        assert!(by("[2001:db8::1]:5").contains("same version of IP"));
    }
}
