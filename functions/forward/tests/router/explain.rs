//! What the forwarder says of packets, against what it does with them.

use crate::bench::{Bench, NEXT, TAGGED, ipv4, ipv6, to_router, udp4, udp6};
use std::collections::BTreeMap;
use warmlane_lane::{Explanation, Stage as _};
use warmlane_wire::VlanTag;

fn explained(bench: &Bench, frame: &[u8]) -> BTreeMap<&'static str, String> {
    let packet = bench.packet(frame);
    let mut explanation = Explanation::default();
    bench.forwarder.explain(0, &packet, &mut explanation);
    explanation.notes().iter().cloned().collect()
}

#[test]
fn the_longest_prefix_and_its_next_hop_are_told() {
    let bench = Bench::new();
    for (destination, route, next_hop) in [
        (
            "203.0.113.5",
            Some("203.0.113.0/24"),
            "port1 to 02:00:00:00:02:02 from 02:00:00:00:00:02, MTU 1400",
        ),
        (
            "203.0.113.129",
            Some("203.0.113.128/25"),
            "port1 to 02:00:00:00:02:03 from 02:00:00:00:00:02, MTU 1400, VLAN 7",
        ),
        ("100.64.1.1", Some("100.64.0.0/16"), "drop"),
        ("100.65.1.1", Some("100.65.0.0/16"), "unreachable"),
        ("192.0.2.1", Some("192.0.2.1/32"), "an address of ours"),
        ("192.0.2.77", Some("192.0.2.0/24"), "on a link of ours, neighbour not known"),
        ("192.0.2.255", Some("192.0.2.255/32"), "all hosts of a link of ours"),
        ("9.9.9.9", None, "none"),
    ] {
        let notes = explained(&bench, &udp4(ipv4(destination), b"x"));
        assert_eq!(notes["destination"], destination);
        assert_eq!(notes.get("route").map(String::as_str), route, "{notes:?}");
        assert_eq!(notes["next-hop"], next_hop);
    }
    let notes = explained(&bench, &udp6(ipv6("2001:db8:3::1"), b"x"));
    assert_eq!(notes["route"], "2001:db8:3::/48");
    assert_eq!(notes["next-hop"], "port1 to 02:00:00:00:02:02 from 02:00:00:00:00:02, MTU 1400");
}

#[test]
fn a_pool_that_is_empty_is_not_in_the_way() {
    let bench = Bench::new();
    let packet = bench.packet(&udp4(ipv4("203.0.113.5"), b"x"));
    let taken: Vec<_> = std::iter::from_fn(|| bench.pool.take()).collect();
    let mut explanation = Explanation::default();
    bench.forwarder.explain(0, &packet, &mut explanation);
    let route = explanation.notes().iter().find(|(name, _)| *name == "route");
    assert_eq!(route.expect("it is told").1, "203.0.113.0/24");
    drop(taken);
}

#[test]
fn the_member_that_a_flow_is_said_to_go_to_is_where_it_goes() {
    let mut bench = Bench::new();
    let mut seen = [0; 2];
    for number in 0..200_u8 {
        let frame = udp4(ipv4(&format!("100.66.3.{number}")), b"x");
        let notes = explained(&bench, &frame);
        let (_, sent) = bench.one(&frame).expect("it is forwarded");
        let to = if sent[..6] == TAGGED.0 { TAGGED } else { NEXT };
        assert_eq!(sent[..6], to.0);
        assert!(notes["next-hop"].starts_with(&format!("port1 to {to} ")), "{notes:?}");
        let share = if to == TAGGED { 1 } else { 3 };
        let words: Vec<&str> = notes["multipath"].split(' ').collect();
        let (buckets, leading): (usize, usize) =
            (words[7].trim_end_matches(',').parse().unwrap(), words[8].parse().unwrap());
        assert_eq!(leading * 4, buckets * share, "{notes:?}");
        seen[usize::from(to == TAGGED)] += 1;
    }
    assert!(seen.iter().all(|count| *count > 20), "{seen:?}");
}

#[test]
fn of_what_is_not_looked_up_nothing_is_said() {
    let bench = Bench::new();
    let good = udp4(ipv4("203.0.113.5"), b"x");
    let mut broken = good.clone();
    broken[24] ^= 1;
    let tagged = to_router().vlan(VlanTag::customer(1)).ipv4(ipv4("203.0.113.5")).to_vec().unwrap();
    for frame in [&broken[..], &good[..20], &tagged[..17], &[]] {
        assert_eq!(explained(&bench, frame), BTreeMap::new());
    }
    assert_eq!(bench.pool.ledger().outstanding(), 0);
}
