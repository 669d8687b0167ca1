//! Keeps lanes' tables as the kernel's network, the [`View`], wants them.
//!
//! A route leads to a next hop that is for its target, whatever that is at the time. So when a neighbour's address
//! changes, or a member of a group goes, next hops change and no route does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use warmlane_forward::control::{
    Beside, Host, LaneRoutes, LiveError, LiveRoutes, NextHop, RouterPort, SourceCheck, TableChange,
    TableNumber,
};
use warmlane_table::{IpPrefix, Ipv4Table, Ipv6Table, NextHopId};

use super::affected::{Affected, History};
use super::desired::{Desired, HopKey, RoutedPort, own_ports};
use super::kernel::{Changes, View};
use super::lane_tables::LaneTables;
use super::local::LOCAL_TABLE;
use super::next_hops::NextHops;
use super::policy::Policy;
use super::protocol::words;
use super::settings::{RouterSettings, SourceChecks};
use super::tunnels::{Arrivals, is_network};
use crate::datapath::{AllCounts, Tunnels};

/// A prefix that leads elsewhere than it should.
struct RouteChange {
    prefix: IpPrefix,
    installed: Option<NextHopId>,
    wanted: Option<HopKey>,
}

/// The same with the number of the wanted next hop, which is in use from then on.
struct Replacement<P> {
    prefix: P,
    before: Option<NextHopId>,
    after: Option<NextHopId>,
}

/// What an update could not do, for the next one.
#[derive(Default)]
struct Unfinished {
    routes: Affected,
    next_hops: bool,
    tables: bool,
}

/// Lanes' tables, and what they were made from.
pub struct Fib {
    live: LiveRoutes,
    ports: Arc<[RoutedPort]>,
    source_checks: SourceChecks,
    tables: LaneTables,
    hops: NextHops,
    router_ports: Vec<RouterPort>,
    host: Host,
    arrivals: Arrivals,
    /// Of tunnels' devices.
    counts: AllCounts,
    /// When networks' ports became vacant.
    vacated: BTreeMap<usize, Instant>,
    /// `router_ports`, `host`, or the number of tables, isn't with the lanes yet.
    is_unpublished: bool,
    history: History,
    unfinished: Unfinished,
}

impl Fib {
    /// Empty tables for up to this many lanes, which forward by these ports.
    ///
    /// # Errors
    /// [`LiveError`].
    pub fn new(mut ports: Vec<RoutedPort>, lanes: usize, hash_seed: u64) -> Result<Self, LiveError> {
        if !ports.is_empty() {
            ports.push(RoutedPort::entrance());
        }
        Ok(Self {
            live: LiveRoutes::new(lanes, hash_seed)?,
            ports: ports.into(),
            source_checks: SourceChecks::default(),
            tables: LaneTables::new(Policy::of(&View::default(), None)),
            hops: NextHops::default(),
            router_ports: Vec::new(),
            host: Host::default(),
            arrivals: Arrivals::default(),
            counts: AllCounts::new(),
            vacated: BTreeMap::new(),
            is_unpublished: true,
            history: History::default(),
            unfinished: Unfinished::default(),
        })
    }

    /// A lane's end of the tables.
    ///
    /// # Errors
    /// [`LiveError::Rcu`]: more lanes than this was made for.
    pub fn lane(&self, name: &str) -> Result<LaneRoutes, LiveError> {
        self.live.lane(name)
    }

    /// Goes on with these settings.
    ///
    /// # Errors
    /// [`LiveError::Stuck`]: a lane hangs.
    pub fn set(&mut self, view: &View, settings: &RouterSettings) -> Result<(), LiveError> {
        self.live.set_icmp_limits(settings.icmp);
        self.source_checks.clone_from(&settings.source_checks);
        self.renew_ports(view);
        self.is_unpublished = true;
        self.publish()
    }

    /// How sources are checked on an interface of this name.
    pub(crate) fn source_check(&self, name: &str) -> SourceCheck {
        self.source_checks.of(name)
    }

    /// Goes on with another interface, or none, for the port of this number, from the next update on.
    pub(crate) fn set_port(&mut self, number: usize, settings: RoutedPort) {
        let mut ports = self.ports.to_vec();
        if let Some(port) = ports.get_mut(number) {
            *port = settings;
        }
        self.ports = ports.into();
    }

    /// The ports that lanes send by, also those that no interface has at present.
    pub fn ports(&self) -> &[RoutedPort] {
        own_ports(&self.ports)
    }

    /// Behind those, what leads into tunnels, and the networks that these lead to.
    pub(crate) fn all_ports(&self) -> &[RoutedPort] {
        &self.ports
    }

    /// What lanes take out of tunnels.
    pub(crate) fn arrivals(&self) -> &Arrivals {
        &self.arrivals
    }

    /// What was counted of tunnels, by the kernel's number of their devices.
    pub(crate) fn tunnel_counts(&self) -> &AllCounts {
        &self.counts
    }

    /// Gives each network behind tunnels a port. One that is gone leaves its port to another only after a while: packets that came by it
    /// may be held yet.
    pub(crate) fn follow_networks(&mut self, view: &View) {
        const REST: Duration = Duration::from_secs(30);
        let first = own_ports(&self.ports).len() + 1;
        if self.ports.is_empty() {
            return;
        }
        let is_wanted = |link: u32| view.links().get(&link).is_some_and(|link| is_network(view, link));
        let mut ports = self.ports.to_vec();
        for (number, port) in ports.iter_mut().enumerate().skip(first) {
            if port.is_taken() && !is_wanted(port.link) {
                *port = RoutedPort::vacant();
                self.vacated.insert(number, Instant::now());
            }
        }
        for link in view.links().values().filter(|link| is_network(view, link)) {
            if let Some(known) = ports[first..].iter_mut().find(|port| port.link == link.index) {
                known.name.clone_from(&link.name);
                continue;
            }
            let port = RoutedPort { name: link.name.clone(), link: link.index, mtu_limit: u16::MAX };
            let rested =
                self.vacated.iter().find(|(_, since)| since.elapsed() > REST).map(|(number, _)| *number);
            match rested {
                Some(number) => {
                    self.vacated.remove(&number);
                    ports[number] = port;
                }
                // As many as there can be numbers.
                None if ports.len() >= usize::from(u16::MAX) - 1 => {}
                None => ports.push(port),
            }
        }
        if ports[..] != self.ports[..] {
            self.ports = ports.into();
        }
        self.counts.retain(|device, _| view.links().contains_key(device));
    }

    pub(crate) fn tables(&self) -> &LaneTables {
        &self.tables
    }

    /// Lanes' table for packets that come in by an interface of ours.
    pub(crate) fn table_in_use(&self, port: u16, vlan: Option<u16>) -> Option<TableNumber> {
        let port = self.router_ports.get(usize::from(port))?;
        match vlan {
            None => Some(port.table),
            Some(vlan) => {
                port.vlans.iter().flatten().find(|known| known.vlan == vlan).map(|known| known.table)
            }
        }
    }

    pub(crate) fn live(&self) -> &LiveRoutes {
        &self.live
    }

    /// What a number in a table is.
    pub(crate) fn next_hop(&self, id: NextHopId) -> Option<&NextHop> {
        self.hops.contents().get(id.index())
    }

    /// What a next hop is, in words; of a group, what its members are.
    pub(crate) fn describe(&self, hop: &NextHop, view: &View) -> String {
        let names = Desired::new(view, &self.ports);
        match hop {
            NextHop::Group(group) => {
                words(group.buckets().iter().filter_map(|&id| self.next_hop(id)), &names)
            }
            plain => words(std::iter::once(plain), &names),
        }
    }

    /// How many next hops are in use.
    pub fn next_hop_count(&self) -> usize {
        self.hops.len()
    }

    /// How many routes are in the tables, IPv4 and IPv6.
    pub fn route_counts(&self) -> (usize, usize) {
        let numbers = || self.tables.iter().map(|table| table.number);
        let ipv4 = numbers().filter_map(|number| self.live.ipv4(number)).map(Ipv4Table::len).sum();
        let ipv6 = numbers().filter_map(|number| self.live.ipv6(number)).map(Ipv6Table::len).sum();
        (ipv4, ipv6)
    }

    /// The prefixes in one of lanes' tables.
    pub(crate) fn prefixes(&self, table: TableNumber) -> impl Iterator<Item = IpPrefix> {
        let (ipv4, ipv6) = (self.live.ipv4(table), self.live.ipv6(table));
        let ipv4 = ipv4.into_iter().flat_map(|table| table.routes().map(|(prefix, _)| IpPrefix::V4(prefix)));
        let ipv6 = ipv6.into_iter().flat_map(|table| table.routes().map(|(prefix, _)| IpPrefix::V6(prefix)));
        ipv4.chain(ipv6)
    }

    /// What a prefix leads to in one of lanes' tables.
    pub(crate) fn installed(&self, table: TableNumber, prefix: IpPrefix) -> Option<NextHopId> {
        match prefix {
            IpPrefix::V4(prefix) => self.live.ipv4(table).and_then(|table| table.route(prefix)),
            IpPrefix::V6(prefix) => self.live.ipv6(table).and_then(|table| table.route(prefix)),
        }
    }

    /// Whether the last update could not do everything.
    pub fn has_unfinished(&self) -> bool {
        let Unfinished { routes, next_hops, tables } = &self.unfinished;
        *tables || *next_hops || !routes.is_empty()
    }

    /// Brings the tables up to what `view` is now, of which `changes` is what is new.
    ///
    /// First it is worked out where lanes' tables differ from what is `Desired`, looking only where they may: which table
    /// is whose (`LaneTables`), which prefixes may lead elsewhere (`History`), which of them do. Nothing that lanes see
    /// has changed until then. What follows is in the order in which lanes come by it, backwards, so that whatever a lane
    /// finds leads to something that is there:
    ///
    /// 1. next hops, with those that new routes need;
    /// 2. routes, table by table;
    /// 3. ports, whose packets may be looked up in a table that had to be filled first;
    /// 4. next hops and tables that nothing leads to any more: their numbers are used again once no lane can know them.
    ///
    /// # Errors
    /// [`LiveError`]: a table has no space or no memory, or a lane hangs. What could not be changed is as before, and the
    /// next update tries it again, even if nothing else is new then.
    pub fn update(&mut self, view: &View, changes: &Changes) -> Result<(), LiveError> {
        // Without lanes nobody looks into tables.
        if self.ports.is_empty() {
            return Ok(());
        }
        if changes.links {
            self.follow_networks(view);
        }
        let ports = Arc::clone(&self.ports);
        let desired = Desired::new(view, &ports);
        let has_networks = ports.last().is_some_and(|last| !last.is_entrance());
        let unfinished = std::mem::take(&mut self.unfinished);

        let policies = (changes.links || changes.rules || unfinished.tables).then(|| desired.policies());
        let (renewed, mut result) = self.assign_tables(policies.as_deref());
        self.unfinished.tables = result.is_err();
        let mut affected = self.history.affected(&desired, &self.tables, &renewed, changes);
        for &table in &renewed {
            affected.entry(table).or_default().extend(self.prefixes(table));
        }
        for (table, prefixes) in unfinished.routes {
            affected.entry(table).or_default().extend(prefixes);
        }

        // Datagrams go by routes, too.
        let of_tunnels = has_networks && (changes.stations || changes.rules || !changes.routes.is_empty());
        let of_neighbours = !changes.neighbours.is_empty();
        if changes.links || changes.objects || of_neighbours || of_tunnels || unfinished.next_hops {
            let refreshed = self.hops.refresh(&desired, &mut self.live);
            self.unfinished.next_hops = refreshed.is_err();
            result = result.and(refreshed);
        }
        for (&table, prefixes) in &affected {
            let wrong = self.wrong_routes(&desired, table, prefixes.iter().copied());
            result = result.and(self.replace_routes(&desired, table, wrong));
        }
        // Broadcast addresses and the like are routes.
        let own_routes = changes.routes.iter().any(|route| route.table == LOCAL_TABLE);
        if policies.is_some() || own_routes {
            self.renew_ports(view);
        }
        if has_networks && (policies.is_some() || of_tunnels) || changes.links {
            self.renew_arrivals(&desired);
        }
        if let Some(policies) = &policies {
            self.tables.note_idle(policies);
        }
        // Also after a failure: what lanes do find has to be right.
        self.publish()?;
        self.live.reclaim();
        if result.is_ok() {
            self.history.forget_neighbours(&desired, &affected);
        }
        result
    }

    /// Gives each policy a table, and empties those that no interface has used since the last update. Returns the tables
    /// whose routes have to be worked out anew.
    fn assign_tables(
        &mut self,
        policies: Option<&[Policy]>,
    ) -> (BTreeSet<TableNumber>, Result<(), LiveError>) {
        let Self { live, tables, is_unpublished, .. } = self;
        let (mut renewed, result) = tables.assign(policies.unwrap_or_default(), || {
            *is_unpublished = true;
            live.add_table()
        });
        renewed.extend(tables.empty_idle());
        (renewed, result)
    }

    /// Which of a table's prefixes lead elsewhere than they should.
    fn wrong_routes(
        &self,
        desired: &Desired<'_>,
        table: TableNumber,
        prefixes: impl Iterator<Item = IpPrefix>,
    ) -> Vec<RouteChange> {
        let Some(policy) = self.tables.get(table).map(|table| &table.policy) else { return Vec::new() };
        let change = |prefix| {
            let wanted = desired.route(policy, prefix);
            let installed = self.installed(table, prefix);
            let is_right = installed.and_then(|id| self.hops.key(id)) == wanted.as_ref();
            (!is_right).then_some(RouteChange { prefix, installed, wanted })
        };
        prefixes.filter_map(change).collect()
    }

    /// Puts routes right: next hops first, then all of the table's IPv4 routes or none, and all of its IPv6 routes or none.
    fn replace_routes(
        &mut self,
        desired: &Desired<'_>,
        table: TableNumber,
        wrong: Vec<RouteChange>,
    ) -> Result<(), LiveError> {
        let (mut ipv4, mut ipv6) = (Vec::new(), Vec::new());
        let mut result = Ok(());
        for RouteChange { prefix, installed: before, wanted } in wrong {
            let after = wanted.map(|key| self.hops.acquire(key, desired, &mut self.live)).transpose();
            match (after, prefix) {
                (Ok(after), IpPrefix::V4(prefix)) => ipv4.push(Replacement { prefix, before, after }),
                (Ok(after), IpPrefix::V6(prefix)) => ipv6.push(Replacement { prefix, before, after }),
                (Err(error), _) => {
                    self.unfinished.routes.entry(table).or_default().insert(prefix);
                    result = Err(error);
                }
            }
        }
        // A lane that finds a next hop in a table must know it.
        let published = self.publish();
        let ready = published.is_ok();
        let done =
            self.install(table, ipv4, ready, IpPrefix::V4, |live, routes| live.change_ipv4(table, routes));
        result = result.and(published).and(done);
        let done =
            self.install(table, ipv6, ready, IpPrefix::V6, |live, routes| live.change_ipv6(table, routes));
        result.and(done)
    }

    /// Changes routes of a table, and lets go of the next hops that they don't lead to: those from before, or, where the
    /// change failed or lanes aren't `ready` for it, those that were wanted.
    fn install<P: Copy>(
        &mut self,
        table: TableNumber,
        routes: Vec<Replacement<P>>,
        ready: bool,
        prefix: impl Fn(P) -> IpPrefix,
        change: impl FnOnce(&mut LiveRoutes, Vec<TableChange<P>>) -> Result<(), LiveError>,
    ) -> Result<(), LiveError> {
        if routes.is_empty() {
            return Ok(());
        }
        let changes = routes.iter().map(|route| (route.prefix, route.after)).collect();
        let result = if ready { change(&mut self.live, changes) } else { Ok(()) };
        let done = ready && result.is_ok();
        if !done {
            let again = routes.iter().map(|route| prefix(route.prefix));
            self.unfinished.routes.entry(table).or_default().extend(again);
        }
        for route in routes {
            if let Some(id) = if done { route.before } else { route.after } {
                self.hops.release(id, &mut self.live);
            }
        }
        result
    }

    /// Works out anew what the ports are.
    fn renew_ports(&mut self, view: &View) {
        let desired = Desired::new(view, &self.ports);
        let ports = desired.router_ports(&self.source_checks, &self.tables);
        if ports != self.router_ports {
            self.router_ports = ports;
            self.is_unpublished = true;
        }
        let host = desired.host();
        if host != self.host {
            self.live.set_host(host.clone());
            self.host = host;
            self.is_unpublished = true;
        }
    }

    /// Works out anew what is taken out of tunnels.
    fn renew_arrivals(&mut self, desired: &Desired<'_>) {
        let arrivals = desired.arrivals();
        if arrivals != self.arrivals {
            self.arrivals = arrivals;
            self.is_unpublished = true;
        }
    }

    /// What lanes know of tunnels; `None` if there are none, so that they look at nothing.
    fn tunnels(&mut self) -> Option<Beside> {
        let entrance = u16::try_from(own_ports(&self.ports).len()).ok()?;
        let hops = self.hops.contents();
        let is_tunnel = |hop: &NextHop| matches!(hop, NextHop::Tunnel(_));
        let takes_nothing = self.arrivals.tunnels.is_empty() && self.arrivals.packets.is_empty();
        if takes_nothing && !hops.iter().any(is_tunnel) {
            return None;
        }
        Some(Arc::new(Tunnels::new(entrance, &self.arrivals, hops, &mut self.counts)))
    }

    /// Lets lanes have the ports and next hops, if there is something new.
    fn publish(&mut self) -> Result<(), LiveError> {
        if self.is_unpublished || self.hops.is_unpublished {
            let tunnels = self.tunnels();
            self.live.set_beside(tunnels);
            self.live.set_hops(self.router_ports.clone(), self.hops.contents().to_vec())?;
            (self.is_unpublished, self.hops.is_unpublished) = (false, false);
        }
        Ok(())
    }
}

impl std::fmt::Debug for Fib {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fib").field("routes", &self.route_counts()).finish_non_exhaustive()
    }
}
