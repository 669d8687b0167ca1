//! Which prefixes may lead elsewhere than before, after something has changed.
//!
//! May: too many cost time, one too few is a wrong route. So that a route that flaps costs no more in a full table than in an
//! empty one, only links, nexthop objects and rules make this look at all routes.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use warmlane_forward::control::TableNumber;
use warmlane_table::IpPrefix;

use super::desired::{Desired, TargetState, host, host_prefix};
use super::kernel::{Changes, LinkIndex, PrefixRoutes, RouteKey, Target, shortened};
use super::lane_tables::LaneTables;
use super::policy::{Policy, Step, StepAction, all, contains, length};

/// Prefixes of each of lanes' tables.
pub(crate) type Affected = HashMap<TableNumber, HashSet<IpPrefix>>;

/// What has to be remembered of the past to tell.
#[derive(Default)]
pub(crate) struct History {
    /// Neighbours that may have a route of their own.
    hosts: BTreeSet<IpAddr>,
    /// What targets were when links and objects were looked at last.
    targets: HashMap<Arc<Target>, TargetState>,
    /// How many targets there were when unused ones were forgotten last.
    targets_kept: usize,
}

impl History {
    /// The prefixes that a change may lead elsewhere. `renewed` tables have another policy than before.
    pub(crate) fn affected(
        &mut self,
        desired: &Desired<'_>,
        tables: &LaneTables,
        renewed: &BTreeSet<TableNumber>,
        changes: &Changes,
    ) -> Affected {
        self.remember_targets(desired, changes);
        let flipped = if changes.links || changes.objects { self.flipped(desired) } else { HashSet::new() };
        let neighbours = self.neighbours(desired, changes);
        let mut affected = Affected::new();
        for table in tables.iter() {
            let prefixes = affected.entry(table.number).or_default();
            if renewed.contains(&table.number) {
                prefixes.extend(desired.prefixes(&table.policy));
                prefixes.extend(self.hosts.iter().map(|&host| host_prefix(host)));
            }
            self.by_routes(desired, &table.policy, [&changes.routes, &flipped], prefixes);
            // In all tables: a VRF's route may lead onto a link outside of it.
            prefixes.extend(&neighbours);
        }
        affected
    }

    /// Forgets neighbours that are gone, once no table has a route to them.
    pub(crate) fn forget_neighbours(&mut self, desired: &Desired<'_>, settled: &Affected) {
        for address in settled.values().flatten().filter_map(|&prefix| host(prefix)) {
            if !desired.view.neighbours_at(address).any(|state| state.mac().is_some()) {
                self.hosts.remove(&address);
            }
        }
    }

    /// Routes that changed, neighbours inside them, and what they hide of tables that are asked later.
    fn by_routes(
        &self,
        desired: &Desired<'_>,
        policy: &Policy,
        changed: [&HashSet<RouteKey>; 2],
        prefixes: &mut HashSet<IpPrefix>,
    ) {
        let tables = policy.tables();
        for key in changed.into_iter().flatten().filter(|key| tables.contains(&key.table)) {
            prefixes.insert(key.prefix);
            prefixes.extend(self.hosts_in(key.prefix));
        }
        let has_boundaries = policy.boundaries().next().is_some();
        for (steps, all) in policy.families().into_iter().zip(all()) {
            let has_routes = |step: &Step| match step.action {
                StepAction::Table(table) => desired.view.table(table).is_some_and(|table| table.has(all)),
                StepAction::Settle(_) => false,
            };
            // Nothing can be hidden behind the last table that has a route, but for boundaries.
            let last = steps.iter().rposition(has_routes).unwrap_or(0);
            let mut hiding: HashSet<IpPrefix> = HashSet::new();
            for (number, step) in steps.iter().enumerate() {
                let StepAction::Table(table) = step.action else { continue };
                if !hiding.is_empty()
                    && let Some(later) = desired.view.table(table)
                {
                    let lengths: BTreeSet<u8> = hiding.iter().map(|&prefix| length(prefix)).collect();
                    let is_hidden = |prefix: IpPrefix| {
                        let mut around = lengths.range(..length(prefix));
                        around.any(|&length| hiding.contains(&shortened(prefix, length)))
                    };
                    let all = later.prefixes().map(|(prefix, _)| prefix);
                    prefixes.extend(all.filter(|&prefix| is_hidden(prefix)));
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
            prefixes.extend(policy.boundaries().filter(inside));
        }
    }

    /// Neighbours inside a prefix.
    fn hosts_in(&self, prefix: IpPrefix) -> impl Iterator<Item = IpPrefix> {
        let (first, last): (IpAddr, IpAddr) = match prefix {
            IpPrefix::V4(prefix) => (prefix.address().into(), Ipv4Addr::from_bits(prefix.last()).into()),
            IpPrefix::V6(prefix) => {
                (prefix.address().into(), std::net::Ipv6Addr::from_bits(prefix.last()).into())
            }
        };
        self.hosts.range(first..=last).map(|&host| host_prefix(host))
    }

    /// Routes whose targets the kernel began or ceased to use, or that lead onto a link now, or no more.
    fn flipped(&mut self, desired: &Desired<'_>) -> HashSet<RouteKey> {
        let mut flipped: HashSet<&Arc<Target>> = HashSet::new();
        for target in desired.view.targets() {
            let now = desired.target_state(target);
            if self.targets.insert(Arc::clone(target), now) != Some(now) {
                flipped.insert(target);
            }
        }
        if flipped.is_empty() {
            return HashSet::new();
        }
        let leads_there =
            |list: &PrefixRoutes| list.as_slice().iter().any(|route| flipped.contains(&route.target));
        let of_table = |(table, routes): (u32, &'_ super::kernel::KernelTable)| -> Vec<RouteKey> {
            let all = routes.prefixes().filter(|(_, list)| leads_there(list));
            all.map(|(prefix, _)| RouteKey { table, prefix }).collect()
        };
        desired.view.tables().flat_map(of_table).collect()
    }

    /// Notes what the targets of new routes are, and now and then forgets those that no route leads to.
    fn remember_targets(&mut self, desired: &Desired<'_>, changes: &Changes) {
        for key in &changes.routes {
            let list = desired.view.table(key.table).and_then(|table| table.get(key.prefix));
            for route in list.into_iter().flat_map(PrefixRoutes::as_slice) {
                if !self.targets.contains_key(&route.target) {
                    self.targets.insert(Arc::clone(&route.target), desired.target_state(&route.target));
                }
            }
        }
        if self.targets.len() > 64.max(2 * self.targets_kept) {
            self.targets.retain(|target, _| desired.view.is_target_used(target));
            self.targets_kept = self.targets.len();
        }
    }

    /// Neighbours that came, went or changed.
    fn neighbours(&mut self, desired: &Desired<'_>, changes: &Changes) -> HashSet<IpPrefix> {
        let is_ours = |link: LinkIndex| desired.port_of(link).is_some();
        let changed = changes.neighbours.iter().filter(|&&(link, _)| is_ours(link));
        let mut addresses: HashSet<IpAddr> = changed.map(|&(_, address)| address).collect();
        if changes.links {
            // An interface may have become one of ours, or be one no more.
            let all = desired.view.neighbours().filter(|neighbour| is_ours(neighbour.link));
            addresses.extend(all.map(|neighbour| neighbour.address));
            addresses.extend(&self.hosts);
        }
        self.hosts.extend(&addresses);
        addresses.into_iter().map(host_prefix).collect()
    }
}
