//! Whatever the kernel says, in whatever order: the tables are what they would be if made at once.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use proptest::prelude::*;
use warmlane_forward::control::{LiveError, NextHop};
use warmlane_table::{IpPrefix, NextHopId};

use super::affected::History;
use super::desired::Desired;
use super::desired::RoutedPort;
use super::fib::Fib;
use super::kernel::{
    Address, BridgePort, Changes, Event, Link, Neighbour, NeighbourState, NextHopObject, Placement, Route,
    RouteKey, RoutePath, Rule, RuleAction, StationKey, Target, TunnelEnd, View, Vxlan,
};
use super::verify::compare;

pub(super) const MAIN: u32 = 254;
pub(super) const VRF_TABLE: u32 = 10;
/// A table that only rules lead to.
pub(super) const OTHER_TABLE: u32 = 20;

pub(super) fn link(index: u32, is_up: bool) -> Link {
    Link {
        index,
        name: format!("link{index}"),
        is_up,
        has_carrier: is_up,
        mac: Some([2, 0, 0, 0, 0, index as u8]),
        mtu: 1500,
        ..Link::default()
    }
}

/// A VXLAN device, whose tunnel end is at one of the addresses there are.
pub(super) fn vxlan(learns: bool) -> Vxlan {
    Vxlan {
        identifier: 10,
        local: Some("10.1.1.2".parse().unwrap()),
        lower: None,
        udp_port: 4789,
        ttl: 0,
        tos: 0,
        learns,
        source_ports: None,
        udp_checksum: true,
        no_checksum_over_ipv6: false,
        takes_no_checksum_over_ipv6: false,
        dont_fragment: false,
        kernel_only: None,
    }
}

fn station() -> impl Strategy<Value = [u8; 6]> {
    prop_oneof![4 => (0_u8..3).prop_map(|last| [4, 0, 0, 0, 0, last]), 1 => Just([0; 6])]
}

fn tunnel_end() -> impl Strategy<Value = Option<TunnelEnd>> {
    let end = |address| TunnelEnd { address, udp_port: None, identifier: None, has_link: false };
    prop::option::weighted(0.9, address().prop_map(end))
}

/// Two ports, a VXLAN device, a VLAN on a port, a VRF or a bridge that either may be in.
fn links() -> impl Strategy<Value = Link> {
    (1_u32..=5, any::<[bool; 3]>(), 0_u8..2).prop_map(|(index, [is_up, has_carrier, in_vrf], mac)| {
        let mut link = link(index, is_up);
        link.has_carrier = is_up && has_carrier;
        link.mac = Some([2, 0, 0, 0, mac, index as u8]);
        match index {
            3 => (link.vxlan, link.master) = (Some(vxlan(mac == 0)), in_vrf.then_some(5)),
            4 => (link.lower, link.vlan, link.master) = (Some(1), Some(7), in_vrf.then_some(5)),
            5 if mac == 0 => link.vrf_table = Some(VRF_TABLE),
            5 => "bridge".clone_into(&mut link.kind),
            _ => {}
        }
        link
    })
}

pub(super) fn prefix() -> impl Strategy<Value = IpPrefix> {
    prop::sample::select(vec![
        "0.0.0.0/0",
        "10.0.0.0/8",
        "10.1.0.0/16",
        "10.1.1.0/24",
        "10.1.1.128/25",
        "10.1.1.2/32",
        "::/0",
        "2001:db8::/32",
        "2001:db8::/64",
        "2001:db8::2/128",
    ])
    .prop_map(|text| text.parse().unwrap())
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop::sample::select(vec!["10.1.1.2", "10.1.1.3", "10.1.1.130", "2001:db8::2", "2001:db8::3"])
        .prop_map(|text| text.parse().unwrap())
}

fn path() -> impl Strategy<Value = RoutePath> {
    (1_u32..=4, prop::option::of(address()), 1_u16..4, prop::bool::weighted(0.2))
        .prop_map(|(link, gateway, weight, is_dead)| RoutePath { link, gateway, weight, is_dead })
}

fn target() -> impl Strategy<Value = Target> {
    prop_oneof![
        4 => prop::collection::vec(path(), 1..4).prop_map(Target::Paths),
        3 => (1_u32..=4).prop_map(Target::Object),
        1 => prop::sample::select(vec![
            Target::Local, Target::Broadcast, Target::Blackhole, Target::Unreachable, Target::Prohibit,
            Target::KernelOnly,
        ]),
    ]
}

fn object() -> impl Strategy<Value = NextHopObject> {
    prop_oneof![
        4 => path().prop_map(NextHopObject::Path),
        2 => prop::collection::vec((1_u32..=4, 1_u16..3), 1..3).prop_map(NextHopObject::Group),
        1 => Just(NextHopObject::Blackhole),
        1 => Just(NextHopObject::KernelOnly),
    ]
}

fn key() -> impl Strategy<Value = RouteKey> {
    (prop::sample::select(vec![MAIN, MAIN, 255, 253, OTHER_TABLE, VRF_TABLE]), prefix())
        .prop_map(|(table, prefix)| RouteKey { table, prefix })
}

fn route() -> impl Strategy<Value = Route> {
    (0_u32..3, prop::sample::select(vec![0_u8, 0, 0, 8]), target()).prop_map(|(metric, tos, target)| Route {
        metric,
        tos,
        source: None,
        protocol: 2,
        mtu: 0,
        target: Arc::new(target),
    })
}

fn rule() -> impl Strategy<Value = Rule> {
    let action = prop::sample::select(vec![
        RuleAction::Table(255),
        RuleAction::Table(MAIN),
        RuleAction::Table(MAIN),
        RuleAction::Table(253),
        RuleAction::Table(OTHER_TABLE),
        RuleAction::Table(OTHER_TABLE),
        RuleAction::Vrf,
        RuleAction::Vrf,
        RuleAction::Blackhole,
        RuleAction::Unreachable,
        RuleAction::Prohibit,
        RuleAction::Nothing,
        RuleAction::Other,
    ]);
    let interface =
        prop::option::weighted(0.3, prop::sample::select(vec!["link1", "link2", "link4", "link9"]));
    let to = prop::option::weighted(0.3, prefix());
    let (output, more) = (prop::bool::weighted(0.1), prop::bool::weighted(0.1));
    (0_u32..4, any::<bool>(), action, interface, to, output, more).prop_map(
        |(priority, is_ipv6, action, interface, to, is_for_output, looks_at_more)| {
            let is_ipv6 = to.map_or(is_ipv6, |to| matches!(to, IpPrefix::V6(_)));
            let comes_in_by = interface.map(str::to_owned);
            Rule { priority, is_ipv6, action, comes_in_by, is_for_output, to, looks_at_more }
        },
    )
}

pub(super) fn event() -> impl Strategy<Value = Event> {
    let state = prop_oneof![
        (0_u8..3).prop_map(|last| NeighbourState::Known([4, 0, 0, 0, 0, last])),
        (0_u8..3).prop_map(|last| NeighbourState::Stale([4, 0, 0, 0, 0, last])),
        Just(NeighbourState::Unknown),
    ];
    let placement = prop::sample::select(vec![Placement::Replace, Placement::Append, Placement::Insert]);
    prop_oneof![
        3 => links().prop_map(Event::Link),
        1 => (1_u32..=5).prop_map(Event::LinkGone),
        1 => (1_u32..=4, address())
            .prop_map(|(link, address)| Event::Address(Address { link, address, length: 24 })),
        1 => (1_u32..=4, address())
            .prop_map(|(link, address)| Event::AddressGone(Address { link, address, length: 24 })),
        4 => (1_u32..=5, address(), state)
            .prop_map(|(link, address, state)| Event::Neighbour(Neighbour { link, address, state })),
        1 => (1_u32..=4, address()).prop_map(|(link, address)| Event::NeighbourGone(link, address)),
        2 => (station(), tunnel_end()).prop_map(|(mac, end)| Event::Behind(3, mac, end)),
        1 => (station(), tunnel_end()).prop_map(|(mac, end)| Event::BehindGone(3, mac, end)),
        2 => (station(), 3_u32..=4)
            .prop_map(|(mac, member)| Event::Station(StationKey { bridge: 5, mac, vlan: 0 }, member)),
        1 => station().prop_map(|mac| Event::StationGone(StationKey { bridge: 5, mac, vlan: 0 }, 3)),
        1 => any::<[bool; 2]>().prop_map(|[is_forwarding, learns]| {
            Event::BridgePort(3, BridgePort { is_forwarding, learns })
        }),
        3 => (1_u32..=4, object()).prop_map(|(number, object)| Event::Object(number, object)),
        1 => (1_u32..=4).prop_map(Event::ObjectGone),
        8 => (key(), route(), placement).prop_map(|(key, route, placement)| Event::Route(key, route, placement)),
        4 => (key(), route()).prop_map(|(key, route)| Event::RouteGone(key, route)),
        2 => rule().prop_map(Event::Rule),
        1 => rule().prop_map(Event::RuleGone),
    ]
}

pub(super) fn fib() -> Fib {
    let port = |link| RoutedPort { name: format!("link{link}"), link, mtu_limit: 1500 };
    Fib::new(vec![port(1), port(2)], 1, 0).unwrap()
}

pub(super) fn check(view: &View, fib: &Fib) {
    let (differences, _) = compare(view, fib);
    assert!(differences.is_empty(), "{differences:#?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Events, some at a time, and a list of everything in between.
    #[test]
    fn the_tables_follow(
        batches in prop::collection::vec(prop::collection::vec(event(), 1..12), 1..12),
        fresh in prop::collection::vec(event(), 0..40),
    ) {
        let (mut view, mut fib) = (View::default(), fib());
        for index in 1..=3 {
            view.apply(Event::Link(link(index, true)));
        }
        for batch in batches {
            update(&mut view, &mut fib, batch);
        }
        let mut other = View::default();
        for event in fresh {
            other.apply(event);
        }
        view.become_like(other);
        let changes = view.take_changes();
        fib.update(&view, &changes).unwrap();
        check(&view, &fib);
        // All gone: nothing is left over.
        view.become_like(View::default());
        let changes = view.take_changes();
        fib.update(&view, &changes).unwrap();
        check(&view, &fib);
        // Tables that nobody needs are empty one update later.
        fib.update(&view, &Changes::default()).unwrap();
        check(&view, &fib);
        let (ipv4, ipv6) = fib.route_counts();
        prop_assert!(ipv4 <= 1 && ipv6 <= 1 && fib.next_hop_count() <= 1, "{} {}", ipv4, ipv6);
    }
}

/// More next hops than tables can number: what fits is there, and all is right as soon as there is space.
#[test]
fn what_there_was_no_space_for_comes_later() {
    let (mut view, mut fib) = (View::default(), fib());
    let gateway = |number: u32| RoutePath {
        gateway: Some(std::net::Ipv4Addr::from_bits(0x0a00_0000 + number).into()),
        ..via(1, "10.0.0.0")
    };
    let prefix = |number: u32| format!("{}/32", std::net::Ipv4Addr::from_bits(0xc000_0000 + number));
    let one = Target::Paths(vec![gateway(0)]);
    update(&mut view, &mut fib, vec![Event::Link(link(1, true)), add("11.0.0.0/8", one.clone())]);
    let many = NextHopId::MAXIMUM + 10;
    for number in 1..=many {
        view.apply(add(&prefix(number), Target::Paths(vec![gateway(number)])));
    }
    // In the same breath another route goes, and one changes.
    let gone = RouteKey { table: MAIN, prefix: "11.0.0.0/8".parse().unwrap() };
    view.apply(Event::RouteGone(
        gone,
        Route { metric: 0, tos: 0, source: None, protocol: 2, mtu: 0, target: Arc::new(one) },
    ));
    let changes = view.take_changes();
    assert!(matches!(fib.update(&view, &changes), Err(LiveError::TooManyNextHops { .. })));
    assert!(fib.has_unfinished());
    assert_eq!(found(&fib, "11.0.0.1"), None);
    let (differences, _) = compare(&view, &fib);
    assert!((1..=20).contains(&differences.len()), "{}", differences.len());
    for number in 1..=many - 100 {
        let target = Arc::new(Target::Paths(vec![gateway(number)]));
        let key = RouteKey { table: MAIN, prefix: prefix(number).parse().unwrap() };
        view.apply(Event::RouteGone(
            key,
            Route { metric: 0, tos: 0, source: None, protocol: 2, mtu: 0, target },
        ));
    }
    let changes = view.take_changes();
    // Numbers are free again after this update, so that the next one has them, of which nothing is new.
    drop(fib.update(&view, &changes));
    fib.update(&view, &Changes::default()).unwrap();
    assert!(!fib.has_unfinished());
    check(&view, &fib);
}

/// Only links, objects and rules may take as long as there are routes.
#[test]
fn a_route_that_flaps_costs_the_same_in_a_large_table() {
    let (mut view, mut fib) = (View::default(), fib());
    let mut history = History::default();
    let mut affected = |view: &mut View, fib: &Fib| {
        let changes = view.take_changes();
        let desired = Desired::new(view, fib.all_ports());
        let affected = history.affected(&desired, fib.tables(), &BTreeSet::new(), &changes);
        affected.values().map(HashSet::len).sum::<usize>()
    };
    let routes = |count: u32| {
        (0..count).map(|number| {
            let prefix = format!("{}/24", std::net::Ipv4Addr::from_bits(0x1400_0000 + (number << 8)));
            add(&prefix, Target::Paths(vec![via(1, "10.9.0.2")]))
        })
    };
    update(&mut view, &mut fib, vec![Event::Link(link(1, true)), Event::Link(link(2, true))]);
    for count in [10, 50_000] {
        routes(count).for_each(|event| view.apply(event));
        affected(&mut view, &fib);
        for flap in
            [add("10.1.0.0/16", Target::Paths(vec![via(2, "10.8.0.2")])), add("0.0.0.0/0", Target::Blackhole)]
        {
            let Event::Route(key, route, _) = flap.clone() else { panic!("a route") };
            view.apply(flap);
            assert!((1..=2).contains(&affected(&mut view, &fib)), "{count}");
            view.apply(Event::RouteGone(key, route));
            assert!((1..=2).contains(&affected(&mut view, &fib)), "{count}");
        }
        let state = NeighbourState::Known([4, 0, 0, 0, 0, 1]);
        view.apply(Event::Neighbour(Neighbour { link: 1, address: "10.9.0.2".parse().unwrap(), state }));
        assert!(affected(&mut view, &fib) <= 1, "{count}");
    }
}

pub(super) fn found(fib: &Fib, address: &str) -> Option<NextHop> {
    let IpAddr::V4(ip) = address.parse().unwrap() else { panic!("an IPv4 address") };
    let (_, id) = fib.live().ipv4(0)?.longest_match(ip.to_bits())?;
    fib.next_hop(id).cloned()
}

pub(super) fn update(view: &mut View, fib: &mut Fib, events: Vec<Event>) {
    for event in events {
        view.apply(event);
    }
    let changes = view.take_changes();
    fib.update(view, &changes).unwrap();
    check(view, fib);
}

pub(super) fn add(prefix: &str, target: Target) -> Event {
    let key = RouteKey { table: MAIN, prefix: prefix.parse().unwrap() };
    Event::Route(
        key,
        Route { metric: 0, tos: 0, source: None, protocol: 2, mtu: 0, target: Arc::new(target) },
        Placement::Append,
    )
}

pub(super) fn via(link: u32, gateway: &str) -> RoutePath {
    RoutePath { link, gateway: Some(gateway.parse().unwrap()), weight: 1, is_dead: false }
}

#[test]
fn a_route_is_held_until_its_link_is_known() {
    let (mut view, mut fib) = (View::default(), fib());
    update(&mut view, &mut fib, vec![add("10.1.0.0/16", Target::Paths(vec![via(1, "10.9.0.2")]))]);
    assert_eq!(found(&fib, "10.1.0.1"), None);
    update(&mut view, &mut fib, vec![Event::Link(link(1, true))]);
    assert!(matches!(found(&fib, "10.1.0.1"), Some(NextHop::Unresolved(_))));
}

#[test]
fn a_neighbour_behind_a_longer_route_gets_none_of_its_own() {
    let (mut view, mut fib) = (View::default(), fib());
    let on_link = RoutePath { gateway: None, ..via(1, "10.0.0.1") };
    let state = NeighbourState::Known([4, 0, 0, 0, 0, 1]);
    let neighbour = Neighbour { link: 1, address: "10.1.1.2".parse().unwrap(), state };
    update(
        &mut view,
        &mut fib,
        vec![
            Event::Link(link(1, true)),
            Event::Link(link(2, true)),
            add("10.1.1.0/24", Target::Paths(vec![on_link])),
            Event::Neighbour(neighbour),
        ],
    );
    assert!(matches!(found(&fib, "10.1.1.2"), Some(NextHop::Forward(to)) if to.port == 0));
    update(&mut view, &mut fib, vec![add("10.1.1.0/28", Target::Paths(vec![via(2, "10.2.0.2")]))]);
    assert!(matches!(found(&fib, "10.1.1.2"), Some(NextHop::Unresolved(whom)) if whom.link == 2));
}

#[test]
fn a_group_changes_without_its_routes() {
    let (mut view, mut fib) = (View::default(), fib());
    let events = vec![
        Event::Link(link(1, true)),
        Event::Link(link(2, true)),
        Event::Object(1, NextHopObject::Path(via(1, "10.9.0.2"))),
        Event::Object(2, NextHopObject::Path(via(2, "10.8.0.2"))),
        Event::Object(7, NextHopObject::Group(vec![(1, 1), (2, 3)])),
        add("10.1.0.0/16", Target::Object(7)),
    ];
    update(&mut view, &mut fib, events);
    assert!(matches!(found(&fib, "10.1.0.1"), Some(NextHop::Group(_))));
    // One member's link goes down: all to the other, at once.
    update(&mut view, &mut fib, vec![Event::Link(link(2, false))]);
    assert!(matches!(found(&fib, "10.1.0.1"), Some(NextHop::Unresolved(whom)) if whom.link == 1));
    assert!(!view.has_changed());
    // The object is deleted: so is what the kernel doesn't tell.
    view.apply(Event::ObjectGone(7));
    assert!(view.take_changes().in_doubt);
}

/// Whether the kernel may have taken routes away without a word, after this event.
fn is_in_doubt_after(view: &mut View, event: Event) -> bool {
    view.apply(event);
    view.take_changes().in_doubt
}

/// A pulled cable is no `ip link set down`, but the kernel takes nexthop objects away all the same.
#[test]
fn a_carrier_that_goes_or_comes_is_a_reason_for_doubt() {
    let mut view = View::default();
    let with = |has_carrier| Event::Link(Link { has_carrier, ..link(1, true) });
    assert!(!is_in_doubt_after(&mut view, with(true)));
    assert!(!is_in_doubt_after(&mut view, with(true)));
    assert!(is_in_doubt_after(&mut view, with(false)));
    assert!(is_in_doubt_after(&mut view, with(true)));
}

/// Daemons delete objects that they don't use any more all the time: to list a full table for each would be too much.
#[test]
fn an_object_that_nobody_uses_leaves_no_doubt() {
    let mut view = View::default();
    let path = RoutePath { link: 1, gateway: None, weight: 1, is_dead: false };
    for number in 1..=4 {
        view.apply(Event::Object(number, NextHopObject::Path(path.clone())));
    }
    view.apply(Event::Object(10, NextHopObject::Group(vec![(1, 1), (2, 1)])));
    let route = |number| Route {
        metric: 0,
        tos: 0,
        source: None,
        protocol: 2,
        mtu: 0,
        target: Arc::new(Target::Object(number)),
    };
    for (table, number) in [(MAIN, 3), (OTHER_TABLE, 3), (MAIN, 10)] {
        let prefix = format!("10.{number}.0.0/16").parse().unwrap();
        view.apply(Event::Route(RouteKey { table, prefix }, route(number), Placement::Append));
    }
    view.take_changes();
    assert!(!is_in_doubt_after(&mut view, Event::ObjectGone(4)));
    // One that is a member, one that routes of two tables lead to, and one after those are gone.
    assert!(is_in_doubt_after(&mut view, Event::ObjectGone(1)));
    let [first, second] =
        [MAIN, OTHER_TABLE].map(|table| RouteKey { table, prefix: "10.3.0.0/16".parse().unwrap() });
    view.apply(Event::RouteGone(first, route(3)));
    assert!(is_in_doubt_after(&mut view, Event::ObjectGone(3)));
    view.apply(Event::Object(3, NextHopObject::Path(path)));
    view.apply(Event::RouteGone(second, route(3)));
    assert!(!is_in_doubt_after(&mut view, Event::ObjectGone(3)));
    // First the group, then what it consists of, as routing daemons do it.
    let group = RouteKey { table: MAIN, prefix: "10.10.0.0/16".parse().unwrap() };
    view.apply(Event::RouteGone(group, route(10)));
    assert!(!is_in_doubt_after(&mut view, Event::ObjectGone(10)));
    assert!(!is_in_doubt_after(&mut view, Event::ObjectGone(2)));
}
