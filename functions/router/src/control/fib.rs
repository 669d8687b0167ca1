//! Keeps lanes' tables like the kernel's: from what has changed in the [`View`], works out what changes in the tables.
//!
//! A route leads to a next hop that stands for its target, whatever that is at the time. So when a neighbour's address
//! changes, or a member of a group goes, next hops change and no route does.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use warmlane_forward::control::groups::{Group, Member};
use warmlane_forward::control::{
    LaneRoutes, LiveError, LiveRoutes, NextHop, RouterPort, SourceCheck, TableNumber,
};
use warmlane_table::{IpPrefix, Ipv4Table, Ipv6Table, NextHopId};

use super::kernel::{Changes, KernelTable, LinkIndex, RouteKey, RouteList, Target, View, shortened};
use super::policy::{Policy, Step, StepAction, all, contains, length};
use super::protocol::words;
use super::resolve::{Content, HopKey, PortSettings, Resolver, Standing, TableSource, host, host_prefix};
use super::settings::{RouterSettings, SourceChecks};
use super::verify::lanes_prefixes;

/// A next hop in use.
struct Slot {
    key: HopKey,
    /// Prefixes and groups that lead here.
    uses: u32,
    /// Members of the group, if it is one, that are held for it.
    members: Vec<NextHopId>,
}

/// A prefix whose next hop changes.
struct Difference<P> {
    prefix: P,
    before: Option<NextHopId>,
    wanted: Option<NextHopId>,
}

/// Lanes' tables, and how they came about.
pub struct Fib {
    live: LiveRoutes,
    ports: Vec<PortSettings>,
    source_checks: SourceChecks,
    sources: Vec<TableSource>,
    by_key: HashMap<HopKey, NextHopId>,
    slots: Vec<Option<Slot>>,
    contents: Vec<NextHop>,
    router_ports: Vec<RouterPort>,
    /// Something in `contents` or `router_ports` isn't with the lanes yet.
    unpublished: bool,
    /// Neighbours that may have a route of their own.
    hosts: BTreeSet<IpAddr>,
    /// What each target was when links and objects were looked at last.
    standing: HashMap<Arc<Target>, Standing>,
}

impl Fib {
    /// Empty tables for up to this many lanes, which forward by these ports.
    ///
    /// # Errors
    /// [`LiveError`].
    pub fn new(ports: Vec<PortSettings>, lanes: usize, hash_seed: u64) -> Result<Self, LiveError> {
        Ok(Self {
            live: LiveRoutes::new(lanes, hash_seed)?,
            ports,
            source_checks: SourceChecks::default(),
            sources: vec![TableSource {
                number: 0,
                policy: Policy::of(&View::default(), None),
                is_idle: false,
            }],
            by_key: HashMap::new(),
            slots: Vec::new(),
            contents: Vec::new(),
            router_ports: Vec::new(),
            unpublished: true,
            hosts: BTreeSet::new(),
            standing: HashMap::new(),
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
        self.unpublished = true;
        self.publish()
    }

    /// How sources are checked on an interface of this name.
    pub(crate) fn source_check(&self, name: &str) -> SourceCheck {
        self.source_checks.of(name)
    }

    /// The ports.
    pub fn ports(&self) -> &[PortSettings] {
        &self.ports
    }

    pub(crate) fn sources(&self) -> &[TableSource] {
        &self.sources
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
        self.contents.get(id.index())
    }

    /// What a next hop is, in words; of a group, what its members are.
    pub(crate) fn describe(&self, hop: &NextHop) -> String {
        match hop {
            NextHop::Group(group) => words(group.buckets().iter().filter_map(|&id| self.next_hop(id))),
            plain => words(std::iter::once(plain)),
        }
    }

    /// How many next hops are in use.
    pub fn next_hop_count(&self) -> usize {
        self.by_key.len()
    }

    /// How many routes are in the tables, IPv4 and IPv6.
    pub fn route_counts(&self) -> (usize, usize) {
        let numbers = || self.sources.iter().map(|source| source.number);
        let ipv4 = numbers().filter_map(|number| self.live.ipv4(number)).map(Ipv4Table::len).sum();
        let ipv6 = numbers().filter_map(|number| self.live.ipv6(number)).map(Ipv6Table::len).sum();
        (ipv4, ipv6)
    }

    /// Brings the tables up to what `view` is now, of which `changes` is what is new.
    ///
    /// # Errors
    /// [`LiveError`]: a table has no room or no memory, or a lane hangs. What could not be changed is as before.
    pub fn update(&mut self, view: &View, changes: &Changes) -> Result<(), LiveError> {
        let mut dirty: Vec<HashSet<IpPrefix>> = vec![HashSet::new(); self.sources.len()];
        if changes.links || changes.rules {
            self.find_tables(view, &mut dirty)?;
        }
        self.empty_idle(&mut dirty);
        self.know_targets(view, changes);
        let flipped = if changes.links || changes.objects { self.find_flipped(view) } else { HashSet::new() };
        self.mark_routes(view, [&changes.routes, &flipped], &mut dirty);
        self.forget_targets(changes);
        self.mark_neighbours(view, changes, &mut dirty);
        if changes.links || changes.objects || !changes.neighbours.is_empty() {
            self.refresh(view)?;
        }
        let result = self.change(view, dirty);
        if changes.links || changes.rules {
            // Only now: an interface's packets may go by a table that had to be filled first.
            self.renew_ports(view);
            self.find_idle(view);
        }
        // Also after a failure: what lanes do find has to be right.
        self.publish()?;
        self.live.reclaim();
        result
    }

    /// Sees that there is a table for each way through the kernel's that our interfaces' packets go. One that nobody needs
    /// any more becomes another.
    fn find_tables(&mut self, view: &View, dirty: &mut Vec<HashSet<IpPrefix>>) -> Result<(), LiveError> {
        let wanted = Resolver { view, ports: &self.ports, sources: &self.sources }.policies();
        for (place, policy) in wanted.iter().enumerate() {
            // The first table stays that of interfaces which nothing is said of: packets that are punted may come in by one.
            let is_there = |source: &TableSource| source.policy == *policy;
            if self.sources.iter().take(if place == 0 { 1 } else { usize::MAX }).any(is_there) {
                continue;
            }
            let unused = |source: &TableSource| source.number != 0 && !wanted.contains(&source.policy);
            let unused = if place == 0 { Some(0) } else { self.sources.iter().position(unused) };
            let place = if let Some(place) = unused {
                place
            } else {
                let number = self.live.add_table()?;
                self.sources.push(TableSource { number, policy: policy.clone(), is_idle: false });
                dirty.push(HashSet::new());
                self.unpublished = true;
                self.sources.len() - 1
            };
            let Some(source) = self.sources.get_mut(place) else { continue };
            source.policy = policy.clone();
            let source = source.clone();
            let Some(dirty) = dirty.get_mut(place) else { continue };
            let tables = policy.tables();
            let of_kernel =
                tables.iter().filter_map(|&table| view.table(table)).flat_map(KernelTable::prefixes);
            dirty.extend(of_kernel.map(|(prefix, _)| prefix));
            dirty.extend(policy.boundaries());
            dirty.extend(self.hosts.iter().map(|&host| host_prefix(host)));
            dirty.extend(lanes_prefixes(self, &source));
        }
        for source in &mut self.sources {
            source.is_idle &= !wanted.contains(&source.policy);
        }
        Ok(())
    }

    /// Empties tables that nobody has needed since the last update. Not earlier: until then lanes went by them.
    fn empty_idle(&mut self, dirty: &mut [HashSet<IpPrefix>]) {
        for place in 0..self.sources.len() {
            let Some(source) = self.sources.get_mut(place) else { continue };
            if source.is_idle && source.policy != Policy::default() {
                source.policy = Policy::default();
                let source = source.clone();
                if let Some(dirty) = dirty.get_mut(place) {
                    dirty.extend(lanes_prefixes(self, &source));
                }
            }
        }
    }

    /// Notes which tables nobody needs from now on.
    fn find_idle(&mut self, view: &View) {
        let wanted = Resolver { view, ports: &self.ports, sources: &self.sources }.policies();
        for source in &mut self.sources {
            source.is_idle = source.number != 0 && !wanted.contains(&source.policy);
        }
    }

    /// Notes how the targets of new routes are, so that they aren't taken for ones that have changed.
    fn know_targets(&mut self, view: &View, changes: &Changes) {
        let resolver = Resolver { view, ports: &self.ports, sources: &self.sources };
        for key in &changes.routes {
            let list = view.table(key.table).and_then(|table| table.get(key.prefix));
            for route in list.into_iter().flat_map(RouteList::as_slice) {
                if !self.standing.contains_key(&route.target) {
                    self.standing.insert(Arc::clone(&route.target), resolver.standing(&route.target));
                }
            }
        }
    }

    /// Routes that changed, neighbours inside them, and what they hide of tables that are asked later.
    fn mark_routes(&self, view: &View, changed: [&HashSet<RouteKey>; 2], dirty: &mut [HashSet<IpPrefix>]) {
        for (source, dirty) in self.sources.iter().zip(&mut *dirty) {
            let tables = source.policy.tables();
            for key in changed.into_iter().flatten().filter(|key| tables.contains(&key.table)) {
                if dirty.insert(key.prefix) {
                    self.mark_hosts(key.prefix, dirty);
                }
            }
            for (steps, all) in source.policy.families().into_iter().zip(all()) {
                let has_boundaries = source.policy.boundaries().next().is_some();
                let has_routes = |step: &Step| match step.action {
                    StepAction::Table(table) => view.table(table).is_some_and(|table| table.has(all)),
                    StepAction::Settle(_) => false,
                };
                // Nothing can be hidden behind the last table that has a route, but for boundaries.
                let last = steps.iter().rposition(has_routes).unwrap_or(0);
                let mut hiding: HashSet<IpPrefix> = HashSet::new();
                for (number, step) in steps.iter().enumerate() {
                    let StepAction::Table(table) = step.action else { continue };
                    if !hiding.is_empty()
                        && let Some(later) = view.table(table)
                    {
                        let lengths: BTreeSet<u8> = hiding.iter().map(|&prefix| length(prefix)).collect();
                        let is_hidden = |prefix: IpPrefix| {
                            let mut around = lengths.range(..length(prefix));
                            around.any(|&length| hiding.contains(&shortened(prefix, length)))
                        };
                        let all = later.prefixes().map(|(prefix, _)| prefix);
                        dirty.extend(all.filter(|&prefix| is_hidden(prefix)));
                    }
                    if number >= last && !has_boundaries {
                        break;
                    }
                    let hides = |key: &&RouteKey| {
                        key.table == table && contains(all, key.prefix) && host(key.prefix).is_none()
                    };
                    hiding.extend(changed.into_iter().flatten().filter(hides).map(|key| key.prefix));
                }
                let inside = |boundary: &IpPrefix| hiding.iter().any(|&wide| contains(wide, *boundary));
                dirty.extend(source.policy.boundaries().filter(inside));
            }
        }
    }

    /// Forgets targets that no route leads to any more: one copy is the view's, one is ours.
    fn forget_targets(&mut self, changes: &Changes) {
        if self.standing.len() > 64 && !changes.routes.is_empty() {
            self.standing.retain(|target, _| Arc::strong_count(target) > 2);
        }
    }

    fn mark_hosts(&self, prefix: IpPrefix, dirty: &mut HashSet<IpPrefix>) {
        let (first, last): (IpAddr, IpAddr) = match prefix {
            IpPrefix::V4(prefix) => {
                (prefix.address().into(), std::net::Ipv4Addr::from_bits(prefix.last()).into())
            }
            IpPrefix::V6(prefix) => {
                (prefix.address().into(), std::net::Ipv6Addr::from_bits(prefix.last()).into())
            }
        };
        dirty.extend(self.hosts.range(first..=last).map(|&host| host_prefix(host)));
    }

    /// Routes whose targets the kernel began or ceased to use, or that lead onto a link now, or no more.
    fn find_flipped(&mut self, view: &View) -> HashSet<RouteKey> {
        let mut changed = HashSet::new();
        let resolver = Resolver { view, ports: &self.ports, sources: &self.sources };
        let now: HashMap<Arc<Target>, Standing> =
            view.targets().map(|target| (Arc::clone(target), resolver.standing(target))).collect();
        let flipped: HashSet<&Arc<Target>> = now
            .iter()
            .filter(|(target, standing)| self.standing.get(*target) != Some(*standing))
            .map(|(target, _)| target)
            .collect();
        if !flipped.is_empty() {
            for (table, routes) in view.tables() {
                let has_flipped =
                    |list: &RouteList| list.as_slice().iter().any(|route| flipped.contains(&route.target));
                let all = routes.prefixes().filter(|(_, list)| has_flipped(list));
                changed.extend(all.map(|(prefix, _)| RouteKey { table, prefix }));
            }
        }
        self.standing = now;
        changed
    }

    /// Neighbours that came, went or changed. In all tables: a VRF's route may lead onto a link outside of it.
    fn mark_neighbours(&mut self, view: &View, changes: &Changes, dirty: &mut [HashSet<IpPrefix>]) {
        let resolver = Resolver { view, ports: &self.ports, sources: &self.sources };
        let is_ours = |link: LinkIndex| resolver.place(link).is_some();
        let changed: Vec<IpAddr> = changes
            .neighbours
            .iter()
            .filter(|&&(link, _)| is_ours(link))
            .map(|&(_, address)| address)
            .collect();
        self.hosts.extend(&changed);
        let mut mark = |address: IpAddr| {
            for dirty in &mut *dirty {
                dirty.insert(host_prefix(address));
            }
        };
        changed.into_iter().for_each(&mut mark);
        if changes.links {
            // An interface may have become one of ours, or be one no more.
            let all = view.neighbours().filter(|neighbour| is_ours(neighbour.link));
            self.hosts.extend(all.map(|neighbour| neighbour.address));
            self.hosts.iter().copied().for_each(&mut mark);
        }
    }

    /// Works out anew what all next hops are.
    fn refresh(&mut self, view: &View) -> Result<(), LiveError> {
        let used: Vec<NextHopId> = self.by_key.values().copied().collect();
        for id in used {
            // A group may have let the last use of another one go.
            if self.slots.get(id.index()).is_some_and(Option::is_some) {
                self.fill(view, id)?;
            }
        }
        Ok(())
    }

    /// Works out anew what the ports are.
    fn renew_ports(&mut self, view: &View) {
        let resolver = Resolver { view, ports: &self.ports, sources: &self.sources };
        let ports = resolver.router_ports(&self.source_checks);
        if ports != self.router_ports {
            self.router_ports = ports;
            self.unpublished = true;
        }
    }

    /// Works out what a next hop is.
    fn fill(&mut self, view: &View, id: NextHopId) -> Result<(), LiveError> {
        let Some(Some(slot)) = self.slots.get(id.index()) else { return Ok(()) };
        let resolver = Resolver { view, ports: &self.ports, sources: &self.sources };
        let content = resolver.content(&slot.key);
        let before = slot.members.clone();
        let (content, members) = match content {
            Content::Plain(hop) => (hop, Vec::new()),
            Content::Group(paths) => {
                let mut members = Vec::new();
                for (link, gateway, weight) in paths {
                    let hop = self.take(view, HopKey::Path(link, gateway))?;
                    members.push(Member { hop, weight });
                }
                // Flows stay where they are, as far as that is possible.
                let group = match self.contents.get(id.index()) {
                    Some(NextHop::Group(old)) => {
                        let mut group = old.clone();
                        group.set_members(&members).map(|()| group)
                    }
                    _ => Group::new(&members),
                };
                let ids = members.iter().map(|member| member.hop).collect();
                (group.map_or(NextHop::Punt, NextHop::Group), ids)
            }
        };
        if let Some(Some(slot)) = self.slots.get_mut(id.index()) {
            slot.members = members;
        }
        if let Some(known) = self.contents.get_mut(id.index())
            && *known != content
        {
            *known = content;
            self.unpublished = true;
        }
        for member in before {
            self.let_go(member);
        }
        Ok(())
    }

    /// The number of a next hop, which is used once more from now on.
    fn take(&mut self, view: &View, key: HopKey) -> Result<NextHopId, LiveError> {
        if let Some(&id) = self.by_key.get(&key) {
            if let Some(Some(slot)) = self.slots.get_mut(id.index()) {
                slot.uses += 1;
            }
            return Ok(id);
        }
        let id = self.live.take_number()?;
        if self.slots.len() <= id.index() {
            self.slots.resize_with(id.index() + 1, || None);
            self.contents.resize(id.index() + 1, NextHop::Drop);
        }
        self.slots[id.index()] = Some(Slot { key: key.clone(), uses: 1, members: Vec::new() });
        self.contents[id.index()] = NextHop::Drop;
        self.by_key.insert(key, id);
        self.unpublished = true;
        self.fill(view, id)?;
        Ok(id)
    }

    /// A next hop is used once less.
    fn let_go(&mut self, id: NextHopId) {
        let Some(place) = self.slots.get_mut(id.index()) else { return };
        let Some(slot) = place else { return };
        slot.uses = slot.uses.saturating_sub(1);
        if slot.uses > 0 {
            return;
        }
        if let Some(slot) = place.take() {
            self.by_key.remove(&slot.key);
            // What it was stays until the number is used again: a lane may be about to ask.
            self.live.give_number(id);
            for member in slot.members {
                self.let_go(member);
            }
        }
    }

    /// Puts what should be there into the tables.
    fn change(&mut self, view: &View, dirty: Vec<HashSet<IpPrefix>>) -> Result<(), LiveError> {
        let mut result = Ok(());
        for (place, dirty) in dirty.into_iter().enumerate() {
            let Some(source) = self.sources.get(place).cloned() else { continue };
            let (mut ipv4, mut ipv6) = (Vec::new(), Vec::new());
            for prefix in dirty {
                match self.difference(view, &source, prefix) {
                    Ok(None) => {}
                    Ok(Some((before, wanted))) => match prefix {
                        IpPrefix::V4(prefix) => ipv4.push(Difference { prefix, before, wanted }),
                        IpPrefix::V6(prefix) => ipv6.push(Difference { prefix, before, wanted }),
                    },
                    Err(error) => result = Err(error),
                }
            }
            // A lane that finds a next hop in a table must know it.
            self.publish()?;
            if !ipv4.is_empty() {
                let changes = ipv4.iter().map(|change| (change.prefix, change.wanted));
                let done = self.live.change_ipv4(source.number, changes);
                self.settle(&ipv4, done.is_ok());
                result = done.and(result);
            }
            if !ipv6.is_empty() {
                let changes = ipv6.iter().map(|change| (change.prefix, change.wanted));
                let done = self.live.change_ipv6(source.number, changes);
                self.settle(&ipv6, done.is_ok());
                result = done.and(result);
            }
        }
        result
    }

    /// What a prefix leads to and what it should lead to, if that is not the same. The latter is in use from now on.
    #[expect(clippy::type_complexity, reason = "before and after")]
    fn difference(
        &mut self,
        view: &View,
        source: &TableSource,
        prefix: IpPrefix,
    ) -> Result<Option<(Option<NextHopId>, Option<NextHopId>)>, LiveError> {
        let resolver = Resolver { view, ports: &self.ports, sources: &self.sources };
        let wanted = resolver.choose(source, prefix);
        if wanted.is_none()
            && let Some(address) = host(prefix)
            && !view.neighbours_at(address).any(|state| state.mac().is_some())
        {
            self.hosts.remove(&address);
        }
        let before = match prefix {
            IpPrefix::V4(prefix) => self.live.ipv4(source.number).and_then(|table| table.route(prefix)),
            IpPrefix::V6(prefix) => self.live.ipv6(source.number).and_then(|table| table.route(prefix)),
        };
        let key_before = before.and_then(|id| self.slots.get(id.index())?.as_ref());
        if wanted.as_ref() == key_before.map(|slot| &slot.key) {
            return Ok(None);
        }
        let wanted = wanted.map(|key| self.take(view, key)).transpose()?;
        Ok(Some((before, wanted)))
    }

    /// After a change of a table, or an attempt: lets go of the next hops that its prefixes don't lead to.
    fn settle<P>(&mut self, changes: &[Difference<P>], done: bool) {
        for change in changes {
            if let Some(id) = if done { change.before } else { change.wanted } {
                self.let_go(id);
            }
        }
    }

    fn publish(&mut self) -> Result<(), LiveError> {
        if self.unpublished {
            self.live.set_hops(self.router_ports.clone(), self.contents.clone())?;
            self.unpublished = false;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Fib {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fib").field("routes", &self.route_counts()).finish_non_exhaustive()
    }
}
