//! Compares the kernel's routes, listed anew, with lanes' tables, without regard to how those came about.

use std::collections::HashMap;
use std::net::IpAddr;

use serde::Serialize;
use warmlane_forward::control::{Around, NextHop, TableNumber};
use warmlane_table::{IpPrefix, NextHopId};

use super::desired::{Desired, HopContent, HopKey, host_prefix};
use super::fib::Fib;
use super::kernel::{RequestSocket, View};
use super::policy::Policy;

/// Differences that are spelled out.
const SPELLED_OUT: usize = 100;

/// What paths inside the kernel are compared with.
pub struct Reference<'a> {
    /// The kernel's network as it was followed by events: programs are brought up to it first.
    pub followed: &'a View,
    /// The same, listed anew.
    pub fresh: &'a View,
    /// When it last changed, by the coarse monotonic clock in nanoseconds. Decisions from before that don't count, for they were others then.
    pub changed: u64,
    /// By which the kernel is asked.
    pub socket: &'a mut RequestSocket,
}

/// The result of comparing the tables with the kernel's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Comparison {
    /// Whether each prefix leads to the same, and none is missing or too many.
    pub equal: bool,
    /// Prefixes compared.
    pub routes: usize,
    /// Decisions of programs inside the kernel that it was asked about.
    pub decisions: usize,
    /// How many are different.
    pub differences: usize,
    /// The first of them: a sentence each.
    pub first: Vec<String>,
}

/// A group's members, by what they are, and their shares in thousandths.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Described {
    Plain(NextHop),
    Group(Vec<(NextHop, usize)>),
}

impl Described {
    fn group(members: impl Iterator<Item = (NextHop, usize)>) -> Self {
        let mut sums: Vec<(NextHop, usize)> = Vec::new();
        for (hop, parts) in members {
            match sums.iter_mut().find(|known| known.0 == hop) {
                Some(known) => known.1 += parts,
                None => sums.push((hop, parts)),
            }
        }
        let total = sums.iter().map(|(_, parts)| parts).sum::<usize>().max(1);
        for (_, parts) in &mut sums {
            *parts = *parts * 1000 / total;
        }
        sums.sort_by_key(|(hop, _)| format!("{hop:?}"));
        Self::Group(sums)
    }

    /// Shares are rounded to buckets.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Group(one), Self::Group(other)) => {
                one.len() == other.len()
                    && one
                        .iter()
                        .zip(other)
                        .all(|(one, other)| one.0 == other.0 && one.1.abs_diff(other.1) <= 10)
            }
            (one, other) => one == other,
        }
    }
}

impl Described {
    fn words(&self, names: &Desired<'_>) -> String {
        match self {
            Self::Plain(hop) => describe(hop, names),
            Self::Group(members) => {
                let each = |(hop, parts): &(NextHop, usize)| format!("{} ({parts} ‰)", describe(hop, names));
                members.iter().map(each).collect::<Vec<_>>().join(" or ")
            }
        }
    }
}

/// A next hop in a few words, with the names of interfaces.
pub(crate) fn describe(hop: &NextHop, names: &Desired<'_>) -> String {
    let name = |link| match names.view.links().get(&link) {
        Some(link) => link.name.clone(),
        None => format!("interface {link}, which is gone"),
    };
    match hop {
        NextHop::Forward(to) => {
            let port = names.ports.get(usize::from(to.port)).map_or(0, |port| port.link);
            let is_vlan = |link: &&super::kernel::Link| link.lower == Some(port) && link.vlan == to.vlan;
            let vlan = to.vlan.and_then(|_| names.view.links().values().find(is_vlan));
            format!("{} to {}", name(vlan.map_or(port, |vlan| vlan.index)), to.destination)
        }
        NextHop::Tunnel(tunnel) => {
            let (device, around) = (name(tunnel.device), tunnel.around);
            match around {
                Around::Frame(_) => {
                    let station = tunnel.inner.destination;
                    format!("tunnel {device} ({around}) to {station} behind {}", around.remote())
                }
                Around::Packet(_) => format!("tunnel {device} ({around}) to {}", around.remote()),
            }
        }
        NextHop::Unresolved(whom) => match whom.gateway {
            Some(gateway) => format!("{} to {gateway}, which is not resolved yet", name(whom.link)),
            None => format!("neighbours on {}", name(whom.link)),
        },
        NextHop::Group(_) => "a group".to_owned(),
        NextHop::Local => "this box".to_owned(),
        NextHop::NoNeighbour => "nobody".to_owned(),
        NextHop::DirectedBroadcast => "all neighbours on a link".to_owned(),
        NextHop::Drop => "nowhere".to_owned(),
        NextHop::Unreachable => "nowhere, and the sender is told".to_owned(),
        NextHop::Prohibited => "nowhere, and the sender is told that it's prohibited".to_owned(),
        NextHop::Punt => "the kernel".to_owned(),
        NextHop::PuntBy(port) => {
            let link = names.ports.get(usize::from(*port)).map_or(0, |port| port.link);
            format!("the kernel, out of {}", name(link))
        }
        NextHop::LocalPunt => "the kernel, whose address it is".to_owned(),
    }
}

fn expected(desired: &Desired<'_>, key: &HopKey) -> Described {
    match desired.content(key) {
        HopContent::Plain(hop) => Described::Plain(hop),
        HopContent::Group(paths) => {
            Described::group(paths.iter().map(|(path, weight)| (plain(desired, path), usize::from(*weight))))
        }
    }
}

fn plain(desired: &Desired<'_>, key: &HopKey) -> NextHop {
    match desired.content(key) {
        HopContent::Plain(hop) => hop,
        HopContent::Group(_) => NextHop::Punt,
    }
}

fn actual(fib: &Fib, id: NextHopId) -> Option<Described> {
    Some(match fib.next_hop(id)? {
        NextHop::Group(group) => {
            Described::group(group.buckets().iter().filter_map(|&id| Some((fib.next_hop(id)?.clone(), 1))))
        }
        plain => Described::Plain(plain.clone()),
    })
}

/// The prefixes of one table that are not as they should be, with a sentence each.
pub(crate) type Differences = HashMap<(u16, IpPrefix), String>;

/// What lanes take out of tunnels though they shouldn't, or don't though they should; each has an address of its own to be told by.
fn arrivals_that_differ(desired: &Desired<'_>, fib: &Fib) -> Vec<(IpAddr, String)> {
    let (wanted, have) = (desired.arrivals(), fib.arrivals());
    let name = |link| desired.view.links().get(&link).map_or("a device that is gone", |link| &link.name);
    let numbered = |link: u32| IpAddr::from(u128::from(link).to_be_bytes());
    let mut all = Vec::new();
    for tunnel in wanted.tunnels.iter().filter(|tunnel| !have.tunnels.contains(tunnel)) {
        let sentence =
            format!("lanes should take packets out of tunnel {}, and don't so", name(tunnel.device));
        all.push((numbered(tunnel.device), sentence));
    }
    for tunnel in have.tunnels.iter().filter(|tunnel| !wanted.tunnels.contains(tunnel)) {
        let sentence = format!("lanes take packets out of tunnel {} in a way of before", name(tunnel.device));
        all.push((numbered(tunnel.device), sentence));
    }
    let ends = wanted.ends.keys().chain(have.ends.keys());
    for end in ends.filter(|end| wanted.ends.get(end) != have.ends.get(end)) {
        all.push((*end, format!("lanes should hear tunnel end {end} by other interfaces than they do")));
    }
    // Their places are those of tunnels, which are alike or were told of.
    if wanted.tunnels == have.tunnels && wanted.stations != have.stations {
        let sentence = "lanes should know other stations behind tunnels that learn than they do".to_owned();
        all.push((numbered(0), sentence));
    }
    all
}

/// Compares lanes' tables with what they should be for the network of `view`; also says how many prefixes there are.
pub(crate) fn compare(view: &View, fib: &Fib) -> (Differences, usize) {
    let desired = Desired::new(view, fib.all_ports());
    let mut differences = Differences::new();
    let mut routes = 0;
    // Without lanes nobody looks into their tables.
    if fib.ports().is_empty() {
        return (differences, routes);
    }
    for (&link, known) in view.links() {
        let Some((port, vlan)) = desired.port_of(link).filter(|_| known.is_up) else { continue };
        let number = fib.table_in_use(port, vlan);
        let in_use = number.and_then(|number| fib.tables().get(number));
        let policy = Policy::of(view, Some(link));
        if in_use.is_none_or(|table| table.policy != policy) {
            let sentence = format!("packets that come in by {} should go by other tables", known.name);
            differences.insert(
                (number.unwrap_or(TableNumber::MAX), host_prefix(IpAddr::from(link.to_be_bytes()))),
                sentence,
            );
        }
    }
    for (device, sentence) in arrivals_that_differ(&desired, fib) {
        differences.insert((TableNumber::MAX, host_prefix(device)), sentence);
    }
    for table in fib.tables().iter() {
        let mut wanted: HashMap<HopKey, Described> = HashMap::new();
        let mut there: HashMap<NextHopId, Option<Described>> = HashMap::new();
        let mut prefixes = desired.prefixes(&table.policy);
        prefixes.extend(view.neighbours().map(|neighbour| host_prefix(neighbour.address)));
        prefixes.extend(fib.prefixes(table.number));
        for prefix in prefixes {
            let id = fib.installed(table.number, prefix);
            let key = desired.route(&table.policy, prefix);
            routes += usize::from(key.is_some() || id.is_some());
            let want = key
                .as_ref()
                .map(|key| &*wanted.entry(key.clone()).or_insert_with(|| expected(&desired, key)));
            let have = id.and_then(|id| there.entry(id).or_insert_with(|| actual(fib, id)).as_ref());
            let sentence = match (want, have) {
                (Some(want), Some(have)) if want.is_like(have) => continue,
                (None, None) => continue,
                (Some(want), Some(have)) => format!(
                    "{prefix} should lead to {}, and leads to {}",
                    want.words(&desired),
                    have.words(&desired)
                ),
                (Some(want), None) => {
                    format!("{prefix} should lead to {}, and is missing", want.words(&desired))
                }
                (None, Some(have)) => {
                    format!("{prefix} should not be there, and leads to {}", have.words(&desired))
                }
            };
            differences.insert((table.number, prefix), sentence);
        }
    }
    (differences, routes)
}

impl Comparison {
    pub(crate) fn new(routes: usize, decisions: usize, mut differences: Vec<String>) -> Self {
        let count = differences.len();
        differences.sort();
        differences.truncate(SPELLED_OUT);
        Self { equal: count == 0, routes, decisions, differences: count, first: differences }
    }
}
