//! Lanes route each packet as the kernel would by its rules, or leave it to the kernel.
//!
//! The kernel's way is written down here once more, as it goes: packet by packet, rule by rule, table by table
//! (`net/core/fib_rules.c: fib_rules_lookup`).

use std::net::IpAddr;
use std::sync::Arc;

use proptest::prelude::*;
use warmlane_forward::control::NextHop;
use warmlane_table::IpPrefix;

use super::desired::{Desired, HopContent, HopKey, host_prefix};
use super::fib::Fib;
use super::kernel::{
    Event, LinkIndex, NextHopObject, Placement, PrefixRoutes, Route, RouteKey, RoutePath, Rule, RuleAction,
    Target, View,
};
use super::model_tests::{MAIN, OTHER_TABLE, VRF_TABLE, event, fib, link, update, via};
use super::policy::contains;

/// What becomes of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fate {
    /// By a route to this target.
    By(Arc<Target>),
    /// As a rule says.
    Says(HopKey),
    /// No rule has a route for it.
    NoRoute,
    /// That depends on more than is known here.
    Unknown,
}

/// What the kernel does with a packet that comes in by an interface.
fn kernels(view: &View, desired: &Desired<'_>, link: LinkIndex, to: IpAddr) -> Fate {
    let known = &view.links()[&link];
    let vrf = known.master.and_then(|master| view.links().get(&master)?.vrf_table);
    let usual = |table| Rule {
        priority: 0,
        is_ipv6: to.is_ipv6(),
        action: RuleAction::Table(table),
        comes_in_by: None,
        is_for_output: false,
        to: None,
        looks_at_more: false,
    };
    let mut rules: Vec<Rule> = view.rules().filter(|rule| rule.is_ipv6 == to.is_ipv6()).cloned().collect();
    if rules.is_empty() {
        rules = [Some(255), vrf, Some(254), Some(253)].into_iter().flatten().map(usual).collect();
    }
    for rule in rules {
        let is_about = rule.to.is_none_or(|prefix| contains(prefix, host_prefix(to)));
        // How interfaces match in a VRF depends on the kernel.
        let in_doubt =
            rule.looks_at_more || (vrf.is_some() && (rule.comes_in_by.is_some() || rule.is_for_output));
        if !is_about || (rule.is_for_output && vrf.is_none()) {
            continue;
        }
        if vrf.is_none() && rule.comes_in_by.as_ref().is_some_and(|name| *name != known.name) {
            continue;
        }
        if rule.action == RuleAction::Nothing {
            continue;
        }
        if in_doubt {
            return Fate::Unknown;
        }
        let table = match (rule.action, vrf) {
            (RuleAction::Table(table), _) | (RuleAction::Vrf, Some(table)) => table,
            (RuleAction::Blackhole, _) => return Fate::Says(HopKey::Drop),
            (RuleAction::Unreachable, _) => return Fate::Says(HopKey::Unreachable),
            (RuleAction::Prohibit, _) => return Fate::Says(HopKey::Prohibited),
            (RuleAction::Other, _) => return Fate::Unknown,
            _ => continue,
        };
        match look_up(view, desired, table, to) {
            Fate::NoRoute => {}
            found => return found,
        }
    }
    Fate::NoRoute
}

fn look_up(view: &View, desired: &Desired<'_>, table: u32, to: IpAddr) -> Fate {
    let Some(table) = view.table(table) else { return Fate::NoRoute };
    let mut around: Vec<(IpPrefix, &PrefixRoutes)> =
        table.prefixes().filter(|(prefix, _)| contains(*prefix, host_prefix(to))).collect();
    around.sort_by_key(|(prefix, _)| super::policy::length(*prefix));
    for (_, list) in around.into_iter().rev() {
        let usable: Vec<_> =
            list.as_slice().iter().filter(|route| desired.is_usable(&route.target)).collect();
        if usable.iter().any(|route| route.tos != 0) {
            return Fate::Unknown;
        }
        if let Some(route) = usable.first() {
            return Fate::By(Arc::clone(&route.target));
        }
    }
    Fate::NoRoute
}

/// What lanes do with it.
fn lanes(fib: &Fib, table: u16, to: IpAddr) -> Option<NextHop> {
    let id = match to {
        IpAddr::V4(ip) => fib.live().ipv4(table)?.longest_match(ip.to_bits())?.1,
        IpAddr::V6(ip) => fib.live().ipv6(table)?.longest_match(ip.to_bits())?.1,
    };
    fib.next_hop(id).cloned()
}

/// Whether a next hop is what a target comes to for this address.
fn is_right(
    view: &View,
    desired: &Desired<'_>,
    target: &Arc<Target>,
    to: IpAddr,
    hop: Option<&NextHop>,
) -> bool {
    let plain = |key: &HopKey| desired.content(key);
    let expected = match &**target {
        Target::Local => HopContent::Plain(NextHop::LocalPunt),
        Target::KernelOnly => HopContent::Plain(NextHop::Punt),
        Target::Broadcast => HopContent::Plain(NextHop::DirectedBroadcast),
        Target::Blackhole => HopContent::Plain(NextHop::Drop),
        Target::Unreachable => HopContent::Plain(NextHop::Unreachable),
        Target::Prohibit => HopContent::Plain(NextHop::Prohibited),
        Target::Paths(_) | Target::Object(_) => plain(&HopKey::Target(Arc::clone(target), 0)),
    };
    match (expected, hop) {
        (HopContent::Group(_), Some(NextHop::Group(_))) => true,
        // On a link of ours: to the neighbour itself, as soon as it is known.
        (HopContent::Plain(NextHop::Unresolved(whom)), Some(hop)) if whom.gateway.is_none() => {
            match view.neighbour(whom.link, to).and_then(super::kernel::NeighbourState::mac) {
                Some(_) => HopContent::Plain(hop.clone()) == plain(&HopKey::Path(whom.link, Some(to), 0)),
                None => matches!(hop, NextHop::Unresolved(other) if other.link == whom.link
                    && other.gateway.is_none_or(|gateway| gateway == to)),
            }
        }
        (HopContent::Plain(expected), Some(hop)) => expected == *hop,
        _ => false,
    }
}

fn compare_with_kernel(view: &View, fib: &Fib) -> usize {
    let desired = Desired::new(view, fib.all_ports());
    let mut settled = 0;
    let addresses = [
        "10.1.1.2",
        "10.1.1.3",
        "10.1.1.130",
        "10.1.1.200",
        "10.1.2.1",
        "10.2.0.1",
        "192.0.2.1",
        "2001:db8::2",
        "2001:db8::3",
        "2001:db8:1::1",
        "2001:dead::1",
    ];
    for &link in [1, 2, 4].iter().filter(|link| view.links().contains_key(link)) {
        let Some((port, vlan)) = desired.port_of(link) else { continue };
        let Some(table) = fib.table_in_use(port, vlan) else { continue };
        for to in addresses {
            let to: IpAddr = to.parse().unwrap();
            let hop = lanes(fib, table, to);
            let fate = kernels(view, &desired, link, to);
            let left_to_the_kernel = matches!(hop, Some(NextHop::Punt));
            let right = match &fate {
                Fate::By(target) => is_right(view, &desired, target, to, hop.as_ref()),
                Fate::Says(key) => Some(desired.content(key)) == hop.clone().map(HopContent::Plain),
                Fate::NoRoute => hop.is_none(),
                Fate::Unknown => left_to_the_kernel,
            };
            settled += usize::from(right && !left_to_the_kernel);
            assert!(right || left_to_the_kernel, "by link {link} to {to}: {fate:?}, and lanes say {hop:?}");
        }
    }
    settled
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn packets_go_as_the_kernels_rules_say(
        batches in prop::collection::vec(prop::collection::vec(event(), 1..16), 1..8),
    ) {
        let (mut view, mut fib) = (View::default(), fib());
        for index in 1..=5 {
            let mut link = link(index, true);
            if index == 4 {
                (link.lower, link.vlan) = (Some(1), Some(7));
            }
            view.apply(Event::Link(link));
        }
        for batch in batches {
            update(&mut view, &mut fib, batch);
            compare_with_kernel(&view, &fib);
        }
    }
}

/// A rule for all IPv4 packets.
pub(super) fn rule(priority: u32, action: RuleAction) -> Rule {
    Rule {
        priority,
        is_ipv6: false,
        action,
        comes_in_by: None,
        is_for_output: false,
        to: None,
        looks_at_more: false,
    }
}

fn route(table: u32, prefix: &str, path: RoutePath) -> Event {
    let key = RouteKey { table, prefix: prefix.parse().unwrap() };
    let target = Arc::new(Target::Paths(vec![path]));
    Event::Route(
        key,
        Route { metric: 0, tos: 0, source: None, protocol: 2, mtu: 0, target },
        Placement::Append,
    )
}

/// The network that the tests below start from: the usual rules, and a default route by link 1.
fn usual() -> (View, Fib) {
    let (mut view, mut fib) = (View::default(), fib());
    let events = vec![
        Event::Link(link(1, true)),
        Event::Link(link(2, true)),
        Event::Rule(rule(0, RuleAction::Table(255))),
        Event::Rule(rule(32_766, RuleAction::Table(MAIN))),
        Event::Rule(rule(32_767, RuleAction::Table(253))),
        route(MAIN, "0.0.0.0/0", via(1, "10.9.0.2")),
        route(OTHER_TABLE, "10.1.0.0/16", via(2, "10.8.0.2")),
    ];
    update(&mut view, &mut fib, events);
    (view, fib)
}

/// The link that packets from a port leave by; `None` if lanes leave them to the kernel.
fn leaves_by(fib: &Fib, port: u16, to: &str) -> Option<LinkIndex> {
    match lanes(fib, fib.table_in_use(port, None).unwrap(), to.parse().unwrap()) {
        Some(NextHop::Unresolved(whom)) => Some(whom.link),
        Some(NextHop::Punt) => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_rule_for_one_interface_is_for_that_one() {
    let (mut view, mut fib) = usual();
    let mut selective = rule(100, RuleAction::Table(OTHER_TABLE));
    selective.comes_in_by = Some("link2".to_owned());
    update(&mut view, &mut fib, vec![Event::Rule(selective.clone())]);
    assert_eq!(leaves_by(&fib, 0, "10.1.0.1"), Some(1));
    assert_eq!(leaves_by(&fib, 1, "10.1.0.1"), Some(2));
    // The other table has nothing for it: on with the next rule.
    assert_eq!(leaves_by(&fib, 1, "10.2.0.1"), Some(1));
    assert!(compare_with_kernel(&view, &fib) >= 8);
    update(&mut view, &mut fib, vec![Event::RuleGone(selective)]);
    assert_eq!(leaves_by(&fib, 1, "10.1.0.1"), Some(1));
}

#[test]
fn a_rule_for_some_destinations_is_for_those() {
    let (mut view, mut fib) = usual();
    let mut selective = rule(100, RuleAction::Table(OTHER_TABLE));
    selective.to = Some("10.1.1.0/24".parse().unwrap());
    update(&mut view, &mut fib, vec![Event::Rule(selective)]);
    assert_eq!(leaves_by(&fib, 0, "10.1.1.1"), Some(2));
    assert_eq!(leaves_by(&fib, 0, "10.1.2.1"), Some(1));
    // A longer route of the table that is asked later is hidden by a shorter one of the first, and seen without it.
    update(&mut view, &mut fib, vec![route(MAIN, "10.1.1.128/25", via(1, "10.9.0.3"))]);
    assert_eq!(leaves_by(&fib, 0, "10.1.1.200"), Some(2));
    let key = RouteKey { table: OTHER_TABLE, prefix: "10.1.0.0/16".parse().unwrap() };
    let target = Arc::new(Target::Paths(vec![via(2, "10.8.0.2")]));
    update(
        &mut view,
        &mut fib,
        vec![Event::RouteGone(key, Route { metric: 0, tos: 0, source: None, protocol: 2, mtu: 0, target })],
    );
    assert_eq!(leaves_by(&fib, 0, "10.1.1.200"), Some(1));
}

#[test]
fn what_a_rule_may_be_about_is_left_to_the_kernel() {
    let (mut view, mut fib) = usual();
    let mut selective = rule(100, RuleAction::Table(OTHER_TABLE));
    selective.looks_at_more = true;
    selective.to = Some("10.1.1.0/24".parse().unwrap());
    update(&mut view, &mut fib, vec![Event::Rule(selective.clone())]);
    assert_eq!(leaves_by(&fib, 0, "10.1.1.1"), None);
    assert_eq!(leaves_by(&fib, 0, "10.1.2.1"), Some(1));
    selective.to = None;
    update(&mut view, &mut fib, vec![Event::Rule(selective)]);
    assert_eq!(leaves_by(&fib, 0, "10.1.2.1"), None);
    // What an earlier rule settles doesn't get that far.
    update(&mut view, &mut fib, vec![Event::Rule(rule(50, RuleAction::Table(MAIN)))]);
    assert_eq!(leaves_by(&fib, 0, "10.1.2.1"), Some(1));
}

#[test]
fn an_interface_moves_into_a_vrf_and_out() {
    let (mut view, mut fib) = usual();
    let mut vrf = link(5, true);
    vrf.vrf_table = Some(VRF_TABLE);
    let mut member = link(2, true);
    member.master = Some(5);
    update(
        &mut view,
        &mut fib,
        vec![
            Event::Link(vrf),
            Event::Rule(rule(1000, RuleAction::Vrf)),
            route(VRF_TABLE, "10.1.0.0/16", via(2, "10.8.0.2")),
            Event::Link(member),
        ],
    );
    assert_eq!(leaves_by(&fib, 1, "10.1.0.1"), Some(2));
    assert_eq!(leaves_by(&fib, 0, "10.1.0.1"), Some(1));
    // Only the kernel knows what its rules say where a VRF has no route.
    assert_eq!(leaves_by(&fib, 1, "10.2.0.1"), None);
    update(&mut view, &mut fib, vec![Event::Link(link(2, true))]);
    assert_eq!(leaves_by(&fib, 1, "10.2.0.1"), Some(1));
}

/// Programs inside the kernel ask once for all packets to a destination, if nothing else decides.
#[test]
fn what_looks_at_more_than_destinations_is_noticed() {
    let goes_by_destination = |view: &View| [false, true].map(|is_ipv6| view.goes_by_destination(is_ipv6));
    let mut view = View::for_programs();
    let path = |link| RoutePath { link, gateway: None, weight: 1, is_dead: false };
    let to = |prefix: &str, source: Option<&str>, paths: Vec<RoutePath>| {
        let key = RouteKey { table: MAIN, prefix: prefix.parse().unwrap() };
        let source = source.map(|prefix| prefix.parse().unwrap());
        (
            key,
            Route { metric: 0, tos: 0, source, protocol: 2, mtu: 0, target: Arc::new(Target::Paths(paths)) },
        )
    };
    for (prefix, source, paths) in
        [("10.0.0.0/8", None, vec![path(1)]), ("2001:db8::/32", None, vec![path(1)])]
    {
        let (key, route) = to(prefix, source, paths);
        view.apply(Event::Route(key, route, Placement::Append));
    }
    view.take_changes();
    assert_eq!(goes_by_destination(&view), [true, true]);
    let cases = [
        (to("10.1.0.0/16", None, vec![path(1), path(2)]), [false, true]),
        (to("2001:db8:1::/48", None, vec![path(1), path(2)]), [true, false]),
        (to("2001:db8:2::/48", Some("2001:db8:9::/48"), vec![path(1)]), [true, false]),
    ];
    for ((key, route), expected) in cases {
        view.apply(Event::Route(key, route.clone(), Placement::Append));
        assert_eq!(goes_by_destination(&view), expected, "{key:?}");
        assert!(view.take_changes().told, "{key:?}");
        view.apply(Event::RouteGone(key, route));
        assert_eq!(goes_by_destination(&view), [true, true], "{key:?}");
        assert!(view.take_changes().told, "{key:?}");
    }
    let rule = Rule {
        priority: 9,
        is_ipv6: true,
        action: RuleAction::Table(MAIN),
        comes_in_by: None,
        is_for_output: false,
        to: None,
        looks_at_more: false,
    };
    view.apply(Event::Rule(rule.clone()));
    assert_eq!(goes_by_destination(&view), [true, true]);
    view.apply(Event::Rule(Rule { looks_at_more: true, ..rule }));
    assert_eq!(goes_by_destination(&view), [true, false]);
    view.apply(Event::Object(7, NextHopObject::Group(vec![(1, 1), (2, 1)])));
    assert_eq!(goes_by_destination(&view), [false, false]);
}
