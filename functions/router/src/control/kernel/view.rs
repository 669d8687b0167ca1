//! The kernel's network as we know it: a plain model that events change, apart from where they come from.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, hash_map};
use std::net::IpAddr;
use std::sync::Arc;

use warmlane_table::IpPrefix;

use super::event::{
    Address, Event, Link, LinkIndex, Neighbour, NeighbourState, NextHopObject, Placement, Route, RouteKey,
    Rule, Target,
};
use super::fdb::Stations;
use super::hooks::{Hook, HookKind, HookPlace};
use super::switches::Switches;
use super::table::{KernelTable, PrefixRoutes, goes_by_destination, least_mtu};
use crate::control::local::LOCAL_TABLE;

/// What has changed since it was asked last.
#[expect(clippy::struct_excessive_bools, reason = "a list of what may have changed")]
#[derive(Debug, Default)]
pub struct Changes {
    /// Links, addresses, VRFs.
    pub links: bool,
    /// Nexthop objects.
    pub objects: bool,
    /// Rules.
    pub rules: bool,
    /// Where stations are on bridges and behind tunnels.
    pub stations: bool,
    /// Neighbours, by link and address.
    pub neighbours: HashSet<(LinkIndex, IpAddr)>,
    /// Routes, by table and prefix.
    pub routes: HashSet<RouteKey>,
    /// What programs are told of routes: MTUs of their own, and whether all go by destination.
    pub told: bool,
    /// The kernel may have taken routes away without a word.
    pub in_doubt: bool,
}

impl Changes {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        !self.links
            && !self.told
            && !self.objects
            && !self.rules
            && !self.stations
            && self.neighbours.is_empty()
            && self.routes.is_empty()
            && !self.in_doubt
    }
}

/// The kernel's network as we know it.
#[derive(Debug, Default)]
pub struct View {
    /// Of routes only those that programs inside the kernel are told of are kept.
    is_for_programs: bool,
    links: BTreeMap<LinkIndex, Link>,
    addresses: BTreeSet<Address>,
    neighbours: HashMap<(LinkIndex, IpAddr), NeighbourState>,
    stations: Stations,
    objects: HashMap<u32, NextHopObject>,
    tables: HashMap<u32, KernelTable>,
    /// In the order in which the kernel asks them, those of IPv4 first.
    rules: Vec<Rule>,
    /// One copy of each target that routes lead to.
    targets: HashSet<Arc<Target>>,
    /// What packets on their way pass, so that they are left to the kernel.
    hooks: Vec<Hook>,
    switches: Switches,
    /// How often their rules may have become others.
    rule_changes: u64,
    changes: Changes,
}

impl View {
    /// An empty one that keeps only the routes that programs inside the kernel are told of: to addresses of the box's own, and with an MTU
    /// of their own, for certain sources, or with several paths. The kernel looks up all others itself.
    pub fn for_programs() -> Self {
        Self { is_for_programs: true, ..Self::default() }
    }

    /// Whether a route is kept; also one that may be instead of another.
    fn keeps(&self, key: RouteKey, route: &Route) -> bool {
        let is_known = || self.tables.get(&key.table).is_some_and(|table| table.get(key.prefix).is_some());
        let is_told = key.table == LOCAL_TABLE || route.mtu != 0 || !goes_by_destination(route);
        !self.is_for_programs || is_told || is_known()
    }

    /// Whether nothing but the destination of a packet, its type of service and where it comes in decides where it goes: no rule looks at
    /// more, and no route is for certain sources or has several paths.
    pub fn goes_by_destination(&self, is_ipv6: bool) -> bool {
        let has_paths =
            |object: &NextHopObject| matches!(object, NextHopObject::Group(_) | NextHopObject::KernelOnly);
        !self.rules.iter().any(|rule| rule.is_ipv6 == is_ipv6 && rule.looks_at_more)
            && !self.objects.values().any(has_paths)
            && self.tables.values().all(|table| table.goes_by_destination(is_ipv6))
    }

    /// MTUs that routes have of their own: of each prefix the least of any table's.
    pub fn route_mtus(&self) -> HashMap<IpPrefix, u32> {
        let mut all = HashMap::new();
        for (prefix, mtu) in self.tables.values().flat_map(KernelTable::mtus) {
            all.entry(*prefix).and_modify(|least: &mut u32| *least = (*least).min(*mtu)).or_insert(*mtu);
        }
        all
    }

    /// Interfaces, by the kernel's number.
    pub fn links(&self) -> &BTreeMap<LinkIndex, Link> {
        &self.links
    }

    /// An interface by its name.
    pub fn link_by_name(&self, name: &str) -> Option<&Link> {
        self.links.values().find(|link| link.name == name)
    }

    /// Addresses of an interface.
    pub fn addresses(&self, link: LinkIndex) -> impl Iterator<Item = &Address> {
        let of_link = move |address: &&Address| address.link == link;
        self.addresses.iter().skip_while(move |address| address.link < link).take_while(of_link)
    }

    /// What is known of a neighbour.
    pub fn neighbour(&self, link: LinkIndex, address: IpAddr) -> Option<NeighbourState> {
        self.neighbours.get(&(link, address)).copied()
    }

    /// How many neighbours there are.
    pub fn neighbour_count(&self) -> usize {
        self.neighbours.len()
    }

    /// All neighbours.
    pub fn neighbours(&self) -> impl Iterator<Item = Neighbour> {
        let each = |(&(link, address), &state): (&(LinkIndex, IpAddr), &NeighbourState)| Neighbour {
            link,
            address,
            state,
        };
        self.neighbours.iter().map(each)
    }

    /// What is known of the neighbours with this address, on all links.
    pub fn neighbours_at(&self, address: IpAddr) -> impl Iterator<Item = NeighbourState> {
        self.links.keys().filter_map(move |&link| self.neighbour(link, address))
    }

    /// Where stations are on bridges and behind tunnels.
    pub fn stations(&self) -> &Stations {
        &self.stations
    }

    /// All that routes lead to, once each, and perhaps some that no route leads to any more.
    pub fn targets(&self) -> impl Iterator<Item = &Arc<Target>> {
        self.targets.iter()
    }

    /// Whether anybody refers to an equal target, apart from the view's own list and the copy that is given.
    pub(crate) fn is_target_used(&self, target: &Arc<Target>) -> bool {
        self.targets
            .get(target)
            .is_some_and(|known| Arc::strong_count(known) > 1 + usize::from(Arc::ptr_eq(known, target)))
    }

    /// A nexthop object.
    pub fn object(&self, number: u32) -> Option<&NextHopObject> {
        self.objects.get(&number)
    }

    /// A table by the kernel's number.
    pub fn table(&self, number: u32) -> Option<&KernelTable> {
        self.tables.get(&number)
    }

    /// All tables.
    pub fn tables(&self) -> impl Iterator<Item = (u32, &KernelTable)> {
        self.tables.iter().map(|(number, table)| (*number, table))
    }

    /// Rules, in the order in which the kernel asks them, those of IPv4 first.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter()
    }

    /// How many routes there are, in all tables.
    pub fn route_count(&self) -> usize {
        self.tables.values().map(|table| table.ipv4.len() + table.ipv6.len()).sum()
    }

    /// What packets on their way pass, so that they are left to the kernel.
    pub fn hooks(&self) -> &[Hook] {
        &self.hooks
    }

    /// Sets them.
    pub fn set_hooks(&mut self, hooks: Vec<Hook>) {
        // Which tables packets go by depends on them as on links.
        self.changes.links |= self.hooks != hooks;
        self.hooks = hooks;
    }

    /// How the kernel treats packets that go on.
    pub fn switches(&self) -> &Switches {
        &self.switches
    }

    /// Sets it.
    pub fn set_switches(&mut self, switches: Switches) {
        // Ports and next hops depend on it as on links.
        self.changes.links |= self.switches != switches;
        self.switches = switches;
    }

    /// Whether there are routes that are only for packets from some addresses.
    pub fn has_source_routes(&self) -> bool {
        let lists = self.tables.values().flat_map(|table| table.ipv6.values());
        lists.flat_map(PrefixRoutes::as_slice).any(|route| route.source.is_some())
    }

    /// How often rules of hooks may have become others, also of hooks that stayed.
    pub fn rule_changes(&self) -> u64 {
        self.rule_changes
    }

    /// Sets that.
    pub fn set_rule_changes(&mut self, changes: u64) {
        self.rule_changes = changes;
    }

    /// Whether packets of a family that come in by a link are left to the kernel.
    pub fn is_left(&self, link: LinkIndex, is_ipv6: bool) -> bool {
        self.hooks_of(link, is_ipv6).next().is_some()
    }

    /// The same of packets of established flows.
    pub fn is_left_though_established(&self, link: LinkIndex, is_ipv6: bool) -> bool {
        self.hooks_of(link, is_ipv6).any(|hook| !hook.except_established)
    }

    /// What packets of a family pass that come in by a link.
    fn hooks_of(&self, link: LinkIndex, is_ipv6: bool) -> impl Iterator<Item = &Hook> {
        let lower = self.links.get(&link).and_then(|link| link.lower);
        self.hooks.iter().filter(move |hook| {
            let here = match hook.at {
                HookPlace::Everywhere => true,
                // What is in a VLAN comes in by the interface below it, too; but a switch is the interface's own.
                HookPlace::ComingInBy(at) => {
                    at == link || (Some(at) == lower && hook.kind != HookKind::Switch)
                }
                HookPlace::LeavingBy(_) | HookPlace::Tunnelled => false,
            };
            here && if is_ipv6 { hook.ipv6 } else { hook.ipv4 }
        })
    }

    /// Whether what comes and goes by tunnels is left to the kernel, for what its datagrams of a family pass there, or the frames inside.
    pub fn leaves_tunnels(&self, is_ipv6: bool) -> bool {
        let is_there = |hook: &Hook| matches!(hook.at, HookPlace::Everywhere | HookPlace::Tunnelled);
        self.hooks.iter().any(|hook| is_there(hook) && if is_ipv6 { hook.ipv6 } else { hook.ipv4 })
    }

    /// Whether there are tunnels.
    pub fn has_tunnels(&self) -> bool {
        let carries_packets =
            |link: &Link| link.ip_tunnel.as_ref().is_some_and(|of| of.kernel_only.is_none());
        self.links.values().any(|link| link.vxlan.is_some() || carries_packets(link))
    }

    /// Whether packets that leave by a link are left to the kernel.
    pub fn is_left_at_egress(&self, link: LinkIndex) -> bool {
        let lower = self.links.get(&link).and_then(|link| link.lower);
        self.hooks.iter().any(|hook| match hook.at {
            HookPlace::LeavingBy(at) => at == link || Some(at) == lower,
            HookPlace::Everywhere | HookPlace::ComingInBy(_) | HookPlace::Tunnelled => false,
        })
    }

    /// Takes out what has changed since the last time.
    pub fn take_changes(&mut self) -> Changes {
        if self.targets.len() > 64 && !self.changes.routes.is_empty() {
            self.targets.retain(|target| Arc::strong_count(target) > 1);
        }
        std::mem::take(&mut self.changes)
    }

    /// Notes that a port is another interface from now on, on which as much depends as on links.
    pub fn note_other_port(&mut self) {
        self.changes.links = true;
    }

    /// Whether something has changed.
    pub fn has_changed(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Takes an event in.
    pub fn apply(&mut self, event: Event) {
        match event {
            Event::Link(link) => {
                let before = self.links.insert(link.index, link.clone());
                if before.as_ref() != Some(&link) {
                    self.changes.links = true;
                    // Down, or a pulled cable: nexthop objects go, and with the former routes. Up: paths of routes with
                    // several are alive again (`net/ipv4/fib_semantics.c: fib_sync_up`).
                    let state = |link: &Link| (link.is_up, link.has_carrier);
                    self.changes.in_doubt |= before.is_some_and(|before| state(&before) != state(&link));
                }
            }
            Event::LinkGone(index) => {
                if self.links.remove(&index).is_some() {
                    self.changes.links = true;
                    self.changes.in_doubt = true;
                }
                self.changes.stations |= self.stations.forget(index);
                self.addresses.retain(|address| address.link != index);
                let gone: Vec<_> = self.neighbours.keys().filter(|key| key.0 == index).copied().collect();
                for key in gone {
                    self.neighbours.remove(&key);
                    self.changes.neighbours.insert(key);
                }
            }
            Event::Address(address) => self.changes.links |= self.addresses.insert(address),
            Event::AddressGone(address) => {
                if self.addresses.remove(&address) {
                    self.changes.links = true;
                    // Routes that prefer it as their source go with it (`fib_sync_down_addr`).
                    self.changes.in_doubt = true;
                }
            }
            Event::Neighbour(Neighbour { link, address, state }) => {
                if self.neighbours.insert((link, address), state) != Some(state) {
                    self.changes.neighbours.insert((link, address));
                }
            }
            Event::NeighbourGone(link, address) => {
                if self.neighbours.remove(&(link, address)).is_some() {
                    self.changes.neighbours.insert((link, address));
                }
            }
            Event::Station(..) | Event::StationGone(..) | Event::Behind(..) | Event::BehindGone(..)
                if self.is_for_programs => {}
            Event::Station(key, member) => {
                let is_new = self.stations.add(key, member);
                self.changes.stations |= is_new && self.has_tunnel_at(key.bridge);
            }
            Event::StationGone(key, member) => {
                let is_gone = self.stations.remove(key, member);
                self.changes.stations |= is_gone && self.has_tunnel_at(key.bridge);
            }
            Event::Behind(device, mac, end) => {
                self.changes.stations |= self.stations.add_end(device, mac, end);
            }
            Event::BehindGone(device, mac, end) => {
                self.changes.stations |= self.stations.remove_end(device, mac, end);
            }
            Event::BridgePort(index, port) => {
                if let Some(link) = self.links.get_mut(&index)
                    && link.bridge_port.replace(port) != Some(port)
                {
                    self.changes.links = true;
                }
            }
            Event::Object(number, object) => {
                let before = self.objects.insert(number, object.clone());
                self.changes.objects |= before.as_ref() != Some(&object);
            }
            Event::ObjectGone(number) => {
                if self.objects.remove(&number).is_some() {
                    self.changes.objects = true;
                    // And all routes that lead there go (`net/ipv4/nexthop.c: __remove_nexthop_fib`).
                    self.changes.in_doubt |= self.is_object_used(number);
                }
            }
            Event::Route(key, route, placement) if self.keeps(key, &route) => {
                self.add_route(key, route, placement);
            }
            Event::Route(..) => {}
            Event::RouteGone(key, route) => self.remove_route(key, &route),
            Event::Rule(rule) => self.add_rule(rule),
            Event::RuleGone(gone) => {
                if let Some(index) = self.rules.iter().position(|rule| *rule == gone) {
                    self.rules.remove(index);
                    self.changes.rules = true;
                }
            }
        }
    }

    /// Whether a VXLAN device is a member of a bridge.
    fn has_tunnel_at(&self, bridge: LinkIndex) -> bool {
        self.links.values().any(|link| link.master == Some(bridge) && link.vxlan.is_some())
    }

    /// Whether a route, or a group of objects, leads to an object.
    fn is_object_used(&self, number: u32) -> bool {
        let has_member = |object: &NextHopObject| matches!(object, NextHopObject::Group(members) if members.iter().any(|&(member, _)| member == number));
        self.tables.values().any(|table| table.uses_object(number)) || self.objects.values().any(has_member)
    }

    /// Among those of the same priority, the newest is asked last (`net/core/fib_rules.c: fib_nl_newrule`).
    fn add_rule(&mut self, rule: Rule) {
        // Told twice, by a dump and as an event; the kernel has none twice.
        if self.rules.contains(&rule) {
            return;
        }
        let order = |rule: &Rule| (rule.is_ipv6, rule.priority);
        let index = self.rules.iter().position(|other| order(other) > order(&rule));
        self.rules.insert(index.unwrap_or(self.rules.len()), rule);
        self.changes.rules = true;
    }

    fn add_route(&mut self, key: RouteKey, mut route: Route, placement: Placement) {
        route.target = share(&mut self.targets, route.target);
        let table = self.tables.entry(key.table).or_default();
        let mut routes = table.take(key.prefix);
        let before = routes.clone();
        let alike = |other: &Route| {
            (other.metric, other.tos, other.source) == (route.metric, route.tos, route.source)
        };
        let is_ipv6 = matches!(key.prefix, IpPrefix::V6(_));
        // Of IPv6 routes with the same metric, the kernel tells all the paths at once.
        let merges = |other: &Route| {
            is_ipv6
                && alike(other)
                && matches!((&*other.target, &*route.target), (Target::Paths(_), Target::Paths(_)))
        };
        if routes.contains(&route) {
            // Told twice: by a dump and as an event.
        } else if let Some(index) =
            routes.iter().position(|other| merges(other) || (placement == Placement::Replace && alike(other)))
        {
            routes[index] = route;
        } else {
            let order = |other: &Route| (other.metric, other.tos.cmp(&0).reverse());
            let index = match placement {
                Placement::Insert => routes.iter().position(|other| order(other) >= order(&route)),
                _ => routes.iter().position(|other| order(other) > order(&route)),
            };
            routes.insert(index.unwrap_or(routes.len()), route);
        }
        if routes != before {
            self.changes.told |= told(&routes) != told(&before);
            self.changes.routes.insert(key);
        }
        table.put(key.prefix, routes);
    }

    fn remove_route(&mut self, key: RouteKey, gone: &Route) {
        let hash_map::Entry::Occupied(mut entry) = self.tables.entry(key.table) else { return };
        let table = entry.get_mut();
        let mut routes = table.take(key.prefix);
        let before = routes.clone();
        let alike =
            |other: &Route| (other.metric, other.tos, other.source) == (gone.metric, gone.tos, gone.source);
        let same = |other: &Route| alike(other) && *other.target == *gone.target;
        if let Some(index) = routes.iter().position(same) {
            routes.remove(index);
        } else if let Some(index) =
            routes.iter().position(|other| alike(other) && leaves_paths(other, gone).is_some())
        {
            // Some of an IPv6 route's paths.
            if let Some(left) = leaves_paths(&routes[index], gone) {
                routes[index].target = share(&mut self.targets, Arc::new(left));
            }
        } else if let [index] = routes
            .iter()
            .enumerate()
            .filter(|(_, other)| alike(other))
            .map(|(n, _)| n)
            .collect::<Vec<_>>()[..]
        {
            if goes_elsewhere(&routes[index], gone) {
                // Of IPv6 there may be several, as that to link-local addresses by each interface, and only the last is known.
                self.changes.in_doubt = true;
            } else {
                // It was told with other flags than when it came.
                routes.remove(index);
            }
        } else if routes.iter().any(alike) {
            self.changes.in_doubt = true;
        }
        if routes != before {
            self.changes.told |= told(&routes) != told(&before);
            self.changes.routes.insert(key);
        }
        table.put(key.prefix, routes);
    }

    /// Becomes `fresh`, which was listed anew, and notes what is different.
    pub fn become_like(&mut self, mut fresh: Self) {
        let mut changes = std::mem::take(&mut self.changes);
        changes.in_doubt = false;
        changes.links |= self.links != fresh.links || self.addresses != fresh.addresses;
        changes.objects |= self.objects != fresh.objects;
        changes.stations |= self.stations != fresh.stations;
        changes.rules |= self.rules != fresh.rules;
        let told =
            |view: &Self| (view.route_mtus(), [false, true].map(|is_ipv6| view.goes_by_destination(is_ipv6)));
        changes.told |= told(self) != told(&fresh);
        for (key, state) in &fresh.neighbours {
            if self.neighbours.get(key) != Some(state) {
                changes.neighbours.insert(*key);
            }
        }
        changes
            .neighbours
            .extend(self.neighbours.keys().filter(|key| !fresh.neighbours.contains_key(key)).copied());
        let nothing = KernelTable::default();
        for (&table, now) in &fresh.tables {
            let before = self.tables.get(&table).unwrap_or(&nothing);
            let different = now.prefixes().filter(|(prefix, list)| before.get(*prefix) != Some(list));
            changes.routes.extend(different.map(|(prefix, _)| RouteKey { table, prefix }));
        }
        for (&table, before) in &self.tables {
            let now = fresh.tables.get(&table).unwrap_or(&nothing);
            let gone = before.prefixes().filter(|(prefix, _)| now.get(*prefix).is_none());
            changes.routes.extend(gone.map(|(prefix, _)| RouteKey { table, prefix }));
        }
        fresh.changes = changes;
        fresh.hooks = std::mem::take(&mut self.hooks);
        fresh.switches = std::mem::take(&mut self.switches);
        fresh.rule_changes = self.rule_changes;
        *self = fresh;
    }
}

/// What programs are told of the routes to a prefix.
fn told(routes: &[Route]) -> (Option<u32>, bool) {
    (least_mtu(routes), routes.iter().all(goes_by_destination))
}

/// The one copy of a target.
fn share(targets: &mut HashSet<Arc<Target>>, target: Arc<Target>) -> Arc<Target> {
    if let Some(known) = targets.get(&target) {
        return Arc::clone(known);
    }
    targets.insert(Arc::clone(&target));
    target
}

/// Whether two routes have paths, none of which is the same.
fn goes_elsewhere(route: &Route, other: &Route) -> bool {
    let (Target::Paths(paths), Target::Paths(others)) = (&*route.target, &*other.target) else {
        return false;
    };
    let is_there = |path: &super::event::RoutePath| {
        others.iter().any(|other| (other.link, other.gateway) == (path.link, path.gateway))
    };
    !paths.iter().any(is_there)
}

/// What is left of a route with several paths when those of `gone` are taken away; `None` if that is not what it means.
fn leaves_paths(route: &Route, gone: &Route) -> Option<Target> {
    let (Target::Paths(all), Target::Paths(gone)) = (&*route.target, &*gone.target) else { return None };
    let is_gone = |path: &super::event::RoutePath| {
        gone.iter().any(|other| (other.link, other.gateway) == (path.link, path.gateway))
    };
    let left: Vec<_> = all.iter().filter(|path| !is_gone(path)).cloned().collect();
    (!left.is_empty() && left.len() < all.len()).then_some(Target::Paths(left))
}
