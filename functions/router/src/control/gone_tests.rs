//! What the kernel says is gone is in no table any more. The model tests compare tables with the view of the kernel; these look
//! at what the view forgets.

use std::collections::HashSet;
use std::net::IpAddr;

use warmlane_forward::control::NextHop;

use super::kernel::{Address, Event, Neighbour, NeighbourState, Placement, RoutePath, Target, View};
use super::local;
use super::model_tests::{add, fib, found, link, update, via};

const GATEWAY: &str = "10.9.0.2";

/// The gateway has this Ethernet address.
fn resolved(last: u8) -> Event {
    let state = NeighbourState::Known([4, 0, 0, 0, 0, last]);
    Event::Neighbour(Neighbour { link: 1, address: GATEWAY.parse().unwrap(), state })
}

#[test]
fn packets_are_not_sent_to_a_neighbour_that_is_gone() {
    let (mut view, mut fib) = (View::default(), fib());
    let route = add("10.1.0.0/16", Target::Paths(vec![via(1, GATEWAY)]));
    update(&mut view, &mut fib, vec![Event::Link(link(1, true)), route, resolved(1)]);
    let goes_to = |found: Option<NextHop>| match found {
        Some(NextHop::Forward(to)) => Some(to.destination.0[5]),
        Some(NextHop::Unresolved(whom)) => {
            assert_eq!((whom.link, whom.gateway), (1, Some(GATEWAY.parse().unwrap())));
            None
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(goes_to(found(&fib, "10.1.0.1")), Some(1));
    // As by `ip neighbour delete`, and another station that takes its place.
    update(&mut view, &mut fib, vec![Event::NeighbourGone(1, GATEWAY.parse().unwrap())]);
    assert_eq!(goes_to(found(&fib, "10.1.0.1")), None);
    update(&mut view, &mut fib, vec![resolved(2)]);
    assert_eq!(goes_to(found(&fib, "10.1.0.1")), Some(2));
    // Its link goes to another network namespace and comes back, by the same number: who is there has to be found out anew.
    update(&mut view, &mut fib, vec![Event::LinkGone(1), Event::Link(link(1, true))]);
    assert_eq!(goes_to(found(&fib, "10.1.0.1")), None);
}

#[test]
fn addresses_go_with_their_link() {
    let mut view = View::default();
    let address = |link, text: &str| Address { link, address: text.parse().unwrap(), length: 24 };
    for event in [
        Event::Link(link(1, true)),
        Event::Link(link(2, true)),
        Event::Address(address(1, "10.9.0.1")),
        Event::Address(address(1, "2001:db8::1")),
        Event::Address(address(2, "10.8.0.1")),
    ] {
        view.apply(event);
    }
    let of =
        |addresses: &[&str]| addresses.iter().map(|text| text.parse().unwrap()).collect::<HashSet<IpAddr>>();
    assert_eq!(local::addresses(&view), of(&["10.9.0.1", "2001:db8::1", "10.8.0.1"]));
    // The kernel tells of each address before, but messages may get lost.
    view.apply(Event::LinkGone(1));
    assert_eq!(local::addresses(&view), of(&["10.8.0.1"]));
    view.apply(Event::Link(link(1, true)));
    assert_eq!(local::addresses(&view), of(&["10.8.0.1"]), "by the same number, but without addresses");
    view.apply(Event::AddressGone(address(2, "10.8.0.1")));
    assert_eq!(local::addresses(&view), of(&[]));
}

/// Each interface has a route to link-local addresses, which the kernel tells one by one.
#[test]
fn another_interface_s_route_does_not_go_in_its_place() {
    let mut view = View::default();
    let route = |link| {
        let target = Target::Paths(vec![RoutePath { link, gateway: None, weight: 1, is_dead: false }]);
        let Event::Route(key, route, _) = add("fe80::/64", target) else { panic!("a route") };
        (key, route)
    };
    for link in [1, 2] {
        let (key, route) = route(link);
        view.apply(Event::Route(key, route, Placement::Append));
    }
    view.take_changes();
    let (key, gone) = route(1);
    view.apply(Event::RouteGone(key, gone));
    assert_eq!(view.route_count(), 1);
    assert!(view.take_changes().in_doubt);
    let (key, gone) = route(2);
    view.apply(Event::RouteGone(key, gone));
    assert_eq!((view.route_count(), view.take_changes().in_doubt), (0, false));
}
