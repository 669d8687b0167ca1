//! Compares the kernel's routes, listed anew, with lanes' tables, without regard to how those came about.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use serde::Serialize;
use warmlane_forward::control::{NextHop, TableNumber};
use warmlane_table::{IpPrefix, NextHopId};

use super::fib::Fib;
use super::kernel::View;
use super::policy::Policy;
use super::resolve::{Content, HopKey, Resolver, TableSource, host_prefix};

/// Differences that are spelled out.
const SPELLED_OUT: usize = 100;

/// What came out of a comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Whether each prefix leads to the same, and none is missing or too many.
    pub equal: bool,
    /// Prefixes compared.
    pub routes: usize,
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

impl std::fmt::Display for Described {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Plain(hop) => f.write_str(&describe(hop)),
            Self::Group(members) => {
                let each = |(hop, parts): &(NextHop, usize)| format!("{} ({parts} ‰)", describe(hop));
                f.write_str(&members.iter().map(each).collect::<Vec<_>>().join(" or "))
            }
        }
    }
}

/// A next hop in a few words.
pub(crate) fn describe(hop: &NextHop) -> String {
    match hop {
        NextHop::Forward(to) => {
            let vlan = to.vlan.map(|vlan| format!(" VLAN {vlan}")).unwrap_or_default();
            format!("port {}{vlan} to {}", to.port, to.destination)
        }
        NextHop::Unresolved(whom) => match whom.gateway {
            Some(gateway) => format!("link {} to {gateway}, which is yet to be found", whom.link),
            None => format!("link {}", whom.link),
        },
        NextHop::Group(_) => "a group".to_owned(),
        NextHop::Local => "this box".to_owned(),
        NextHop::NoNeighbour => "nobody".to_owned(),
        NextHop::DirectedBroadcast => "all stations of a link".to_owned(),
        NextHop::Drop => "nowhere".to_owned(),
        NextHop::Unreachable => "nowhere, and the sender is told".to_owned(),
        NextHop::Prohibited => "nowhere, and the sender is told that it's prohibited".to_owned(),
        NextHop::Punt => "the kernel".to_owned(),
        NextHop::LocalPunt => "the kernel, whose address it is".to_owned(),
    }
}

fn expected(resolver: &Resolver<'_>, key: &HopKey) -> Described {
    match resolver.content(key) {
        Content::Plain(hop) => Described::Plain(hop),
        Content::Group(paths) => Described::group(paths.into_iter().map(|(link, gateway, weight)| {
            (plain(resolver, &HopKey::Path(link, gateway)), usize::from(weight))
        })),
    }
}

fn plain(resolver: &Resolver<'_>, key: &HopKey) -> NextHop {
    match resolver.content(key) {
        Content::Plain(hop) => hop,
        Content::Group(_) => NextHop::Punt,
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

/// Compares lanes' tables with what they should be for the network of `view`; also says how many prefixes there are.
pub(crate) fn compare(view: &View, fib: &Fib) -> (Differences, usize) {
    let resolver = Resolver { view, ports: fib.ports(), sources: fib.sources() };
    let mut differences = Differences::new();
    let mut routes = 0;
    for (&link, known) in view.links() {
        let Some((port, vlan)) = resolver.place(link).filter(|_| known.is_up) else { continue };
        let number = fib.table_in_use(port, vlan);
        let in_use = fib.sources().iter().find(|source| Some(source.number) == number);
        let policy = Policy::of(view, Some(link));
        if in_use.is_none_or(|source| source.policy != policy) {
            let sentence = format!("packets that come in by {} should go by other tables", known.name);
            differences.insert(
                (number.unwrap_or(TableNumber::MAX), host_prefix(IpAddr::from(link.to_be_bytes()))),
                sentence,
            );
        }
    }
    for source in fib.sources() {
        let mut wanted: HashMap<HopKey, Described> = HashMap::new();
        let mut there: HashMap<NextHopId, Option<Described>> = HashMap::new();
        let mut seen: HashSet<IpPrefix> = HashSet::new();
        let tables = source.policy.tables();
        let of_kernel = tables.iter().filter_map(|&number| view.table(number));
        let of_kernel = of_kernel.flat_map(|table| table.prefixes().map(|(prefix, _)| prefix));
        let of_neighbours = view.neighbours().map(|neighbour| host_prefix(neighbour.address));
        let of_lanes = lanes_prefixes(fib, source);
        for prefix in of_kernel.chain(of_neighbours).chain(source.policy.boundaries()).chain(of_lanes) {
            if !seen.insert(prefix) {
                continue;
            }
            let id = match prefix {
                IpPrefix::V4(prefix) => fib.live().ipv4(source.number).and_then(|table| table.route(prefix)),
                IpPrefix::V6(prefix) => fib.live().ipv6(source.number).and_then(|table| table.route(prefix)),
            };
            let key = resolver.choose(source, prefix);
            routes += usize::from(key.is_some() || id.is_some());
            let want = key
                .as_ref()
                .map(|key| &*wanted.entry(key.clone()).or_insert_with(|| expected(&resolver, key)));
            let have = id.and_then(|id| there.entry(id).or_insert_with(|| actual(fib, id)).as_ref());
            let sentence = match (want, have) {
                (Some(want), Some(have)) if want.is_like(have) => continue,
                (None, None) => continue,
                (Some(want), Some(have)) => format!("{prefix} should lead to {want}, and leads to {have}"),
                (Some(want), None) => format!("{prefix} should lead to {want}, and is missing"),
                (None, Some(have)) => format!("{prefix} should not be there, and leads to {have}"),
            };
            differences.insert((source.number, prefix), sentence);
        }
    }
    (differences, routes)
}

/// The prefixes of one of lanes' tables.
pub(crate) fn lanes_prefixes<'a>(
    fib: &'a Fib,
    source: &TableSource,
) -> impl Iterator<Item = IpPrefix> + use<'a> {
    let (ipv4, ipv6) = (fib.live().ipv4(source.number), fib.live().ipv6(source.number));
    let ipv4 = ipv4.into_iter().flat_map(|table| table.routes().map(|(prefix, _)| IpPrefix::V4(prefix)));
    let ipv6 = ipv6.into_iter().flat_map(|table| table.routes().map(|(prefix, _)| IpPrefix::V6(prefix)));
    ipv4.chain(ipv6)
}

impl Verdict {
    pub(crate) fn new(differences: &Differences, routes: usize) -> Self {
        let mut first: Vec<String> = differences.values().cloned().collect();
        first.sort();
        first.truncate(SPELLED_OUT);
        Self { equal: differences.is_empty(), routes, differences: differences.len(), first }
    }
}
