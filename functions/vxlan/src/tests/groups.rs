//! Networks whose frames for all go to a multicast group.

use std::net::Ipv6Addr;
use std::time::Duration;

use warmlane_forward::control::config::GroupConfig;
use warmlane_sys::clock::{self, Clock};
use warmlane_wire::checksum::{Sum, pseudo_ipv6};
use warmlane_wire::{GroupRecord, igmp, mld};

use super::*;

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);
const GROUP_MAC: MacAddress = MacAddress([1, 0, 0x5e, 1, 1, 1]);

/// The group is where the tunnel ends are, of which none is configured.
fn grouped(ipv6: bool) -> OverlayConfig {
    let address = if ipv6 { "ff0e::101:101".parse().unwrap() } else { GROUP.into() };
    let group = Some(GroupConfig { address, port: 0, source: network(ipv6).local });
    OverlayConfig { remotes: Vec::new(), group, ..network(ipv6) }
}

/// A frame that another tunnel end sends to the group.
fn to_group(remote: u8, frame: &[u8]) -> Vec<u8> {
    let fields = Ipv4Fields::new(Ipv4Addr::new(192, 0, 2, remote), GROUP);
    let data = [&vxlan::header(VNI)[..], frame].concat();
    let from = MacAddress([2, 9, 9, 9, 9, remote]);
    let frame = Frame::new().ethernet(GROUP_MAC, from).ipv4(fields).udp(50_000, vxlan::PORT);
    frame.payload(&data).to_vec().unwrap()
}

#[test]
fn frames_for_all_go_to_the_group_once() {
    for (ipv6, group_mac) in [(false, GROUP_MAC), (true, MacAddress([0x33, 0x33, 1, 1, 1, 1]))] {
        // Whether others are configured or not.
        for remotes in [Vec::new(), network(ipv6).remotes] {
            let mut bench = Bench::new(OverlayConfig { remotes, ..grouped(ipv6) });
            let frame = inner(A, MacAddress::BROADCAST, 0, b"to all");
            let [routed, group, back, vlan] = bench.pass(1, &frame);
            assert!(routed.is_empty() && back.is_empty());
            assert_eq!((group.len(), vlan.len()), (1, 1));
            assert_eq!(group[0][..12], [group_mac.0, US.0].concat());
            let for_us = [&US.0, &group[0][6..]].concat();
            let (to, _, _, inside) = unwrapped(&for_us, ipv6);
            assert_eq!((Some(to), inside), (grouped(ipv6).group.map(|group| group.address), frame));
            assert_eq!((bench.counters.to_groups(), bench.counters.copied()), (1, 1));
        }
    }
}

#[test]
fn ends_in_the_group_are_heard_and_answered() {
    let mut bench = Bench::new(grouped(false));
    let question = inner(B, MacAddress::BROADCAST, 0, b"question");
    let [routed, group, access, vlan] = bench.pass(0, &to_group(9, &question));
    assert_eq!((routed.len(), group.len(), access, vlan.len()), (0, 0, vec![question], 1));
    // Straight there, by the forwarder.
    let [routed, group, ..] = bench.pass(1, &inner(A, B, 0, b"answer"));
    assert_eq!((routed.len(), group.len()), (1, 0));
    assert_eq!(unwrapped(&routed[0], false).0, IpAddr::from([192, 0, 2, 9]));
    // And so may one that is new.
    bench.pass(0, &tunnelled(10, VNI, 0, &inner(B, A, 0, b"moved")));
    let [routed, ..] = bench.pass(1, &inner(A, B, 0, b"answer"));
    assert_eq!(unwrapped(&routed[0], false).0, IpAddr::from([192, 0, 2, 10]));
    assert_eq!(bench.counters.moved(), 1);
}

#[test]
fn configured_ends_are_all_that_may_send_to_the_group() {
    let mut bench = Bench::new(OverlayConfig { remotes: network(false).remotes, ..grouped(false) });
    let frame = inner(B, MacAddress::BROADCAST, 0, b"");
    assert_eq!(bench.pass(0, &to_group(2, &frame))[2].len(), 1);
    bench.pass(0, &to_group(9, &frame));
    assert_eq!(bench.dropped(Reason::UnknownRemote), 1);
}

#[test]
fn what_is_broken_or_comes_back_teaches_nothing() {
    let mut bench = Bench::new(grouped(false));
    let frame = inner(B, MacAddress::BROADCAST, 0, b"");
    let mut broken = frame.clone();
    broken[24] ^= 1;
    bench.pass(0, &to_group(9, &broken));
    assert_eq!(bench.dropped(Reason::InnerChecksum), 1);
    // Our own.
    bench.pass(0, &to_group(1, &frame));
    assert_eq!(bench.dropped(Reason::Recursion), 1);
    bench.pass(0, &to_group(255, &frame));
    let mut from_nobody = to_group(9, &frame);
    from_nobody[26..30].fill(0);
    from_nobody[24..26].fill(0);
    // No UDP checksum.
    from_nobody[40..42].fill(0);
    let checksum = Sum::new().bytes(&from_nobody[14..34]).checksum().to_be_bytes();
    from_nobody[24..26].copy_from_slice(&checksum);
    bench.pass(0, &from_nobody);
    assert_eq!(bench.dropped(Reason::UnknownRemote), 1);
    // Nobody is there but 192.0.2.255, which might be a host's address.
    let [routed, ..] = bench.pass(1, &inner(A, B, 0, b""));
    assert_eq!(unwrapped(&routed[0], false).0, IpAddr::from([192, 0, 2, 255]));
}

#[test]
fn what_does_not_fit_the_groups_port_is_too_long() {
    let mut bench = Bench::new(OverlayConfig { mtu: 1_600, ..grouped(false) });
    // 1,450 bytes of IP inside 1,500.
    for (data, fits) in [(1_422, true), (1_423, false)] {
        let [_, group, ..] = bench.pass(1, &inner(A, MacAddress::BROADCAST, 0, &vec![0; data]));
        assert_eq!(group.len(), usize::from(fits));
    }
    // Of the copy for the VLAN, which carries 1,500 as well, nothing was dropped.
    assert_eq!(bench.dropped(Reason::TooLong), 1);
}

impl Bench {
    /// The reports that are sent at this time.
    fn reports(&mut self, now: u64) -> Vec<Vec<u8>> {
        self.outputs.clear();
        let sent = self.gateway.poll(now, &mut self.burst, &mut self.outputs.outputs());
        let reports: Vec<_> = self.outputs.burst(0).iter().map(|packet| packet.data().to_vec()).collect();
        assert_eq!(reports.len(), sent);
        reports
    }
}

fn seconds(count: u64) -> u64 {
    Clock::calibrated().cycles_for(Duration::from_secs(count).as_nanos() as u64)
}

/// A report's way and its message, of IGMP.
fn igmp_report(frame: &[u8]) -> (MacAddress, Ipv4Addr, Vec<u8>) {
    let ip = ipv4::check(&frame[14..]).unwrap();
    assert_eq!(
        (ip.header.protocol(), ip.header.ttl(), ip.options),
        (IpProtocol::IGMP, 1, &igmp::ROUTER_ALERT[..])
    );
    assert_eq!((frame[6..12].to_vec(), ip.header.source()), (US.0.to_vec(), Ipv4Addr::new(192, 0, 2, 1)));
    let mac = MacAddress(*frame.first_chunk().unwrap());
    (mac, ip.header.destination(), ip.payload.to_vec())
}

fn igmp_query(message: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    let asked = Ipv4Addr::from(*message[4..].first_chunk().unwrap());
    let to = if asked.is_unspecified() { igmp::ALL_SYSTEMS } else { asked };
    let checksum = Sum::new().bytes(&message).checksum().to_be_bytes();
    message[2..4].copy_from_slice(&checksum);
    let fields =
        Ipv4Fields { ttl: 1, options: &igmp::ROUTER_ALERT, ..Ipv4Fields::new([192, 0, 2, 254].into(), to) };
    let header = fields.header(IpProtocol::IGMP, (24 + message.len()) as u16);
    let ethernet = [&[1, 0, 0x5e, 0, 0, 1, 2, 0, 0, 0, 0, 0xfe, 8, 0][..], &header, &igmp::ROUTER_ALERT];
    [ethernet.concat(), message].concat()
}

const QUERY_V3: [u8; 12] = [0x11, 100, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0];
const QUERY_V2: [u8; 8] = [0x11, 100, 0, 0, 0, 0, 0, 0];

#[test]
fn groups_are_joined_and_left_by_igmp() {
    let mut bench = Bench::new(grouped(false));
    assert!(bench.gateway.is_polled());
    let v3 = |record| {
        (MacAddress([1, 0, 0x5e, 0, 0, 22]), igmp::ALL_V3_ROUTERS, igmp::report(record, GROUP).to_vec())
    };
    // Twice, a second apart at most, and no more.
    for now in [1, seconds(1) + 1] {
        let reports = bench.reports(now);
        assert_eq!(
            reports.iter().map(|frame| igmp_report(frame)).collect::<Vec<_>>(),
            [v3(GroupRecord::Joined)]
        );
    }
    assert!(bench.reports(seconds(3)).is_empty());

    for (query, answer) in [
        (&QUERY_V3[..], v3(GroupRecord::Listens)),
        (&QUERY_V2, (GROUP_MAC, GROUP, igmp::report_v2(GROUP).to_vec())),
        // The one of the older version still counts.
        (&QUERY_V3, (GROUP_MAC, GROUP, igmp::report_v2(GROUP).to_vec())),
    ] {
        let passed = bench.pass(0, &igmp_query(query));
        assert_eq!(passed[0].len(), 1, "the forwarder gets it as well");
        let by = clock::cycles() + seconds(10);
        let reports = bench.reports(by);
        assert_eq!(reports.iter().map(|frame| igmp_report(frame)).collect::<Vec<_>>(), [answer]);
        assert!(bench.reports(by + seconds(20)).is_empty());
    }
    bench.outputs.clear();
    assert_eq!(bench.gateway.finish(&mut bench.burst, &mut bench.outputs.outputs()), 1);
    let left = igmp_report(bench.outputs.burst(0).iter().next().unwrap().data());
    assert_eq!(left, (MacAddress([1, 0, 0x5e, 0, 0, 2]), igmp::ALL_ROUTERS, igmp::leave_v2(GROUP).to_vec()));
    assert_eq!(bench.gateway.finish(&mut bench.burst, &mut bench.outputs.outputs()), 0);
    assert_eq!(bench.counters.reports(), 6);
}

#[test]
fn an_older_router_is_forgotten() {
    let mut bench = Bench::new(grouped(false));
    for now in [1, seconds(1) + 1] {
        bench.reports(now);
    }
    for (seconds_later, query, answer) in [
        (10, igmp_query(&QUERY_V2), igmp::report_v2(GROUP).to_vec()),
        (260, igmp_query(&QUERY_V3), igmp::report_v2(GROUP).to_vec()),
        (300, igmp_query(&QUERY_V3), igmp::report(GroupRecord::Listens, GROUP).to_vec()),
    ] {
        let (now, packet) = (seconds(seconds_later), bench.packet(0, &query));
        bench.gateway.memberships.hear(&packet, now);
        // It answers within ten seconds; those of the second round are over before the older version is forgotten.
        let by = bench.gateway.memberships.due().unwrap();
        assert!((now..=now + seconds(10)).contains(&by));
        let reports = bench.reports(by);
        assert_eq!(igmp_report(&reports[0]).2, answer, "{seconds_later}");
    }
}

#[test]
fn rehearsals_teach_nothing() {
    let mut bench = Bench::new(grouped(false));
    for now in [1, seconds(1) + 1] {
        bench.reports(now);
    }
    let query = bench.packet(0, &igmp_query(&QUERY_V3));
    bench.rehearse(&query);
    assert_eq!(bench.gateway.memberships.due(), None);
    let frame = bench.packet(0, &to_group(9, &inner(B, MacAddress::BROADCAST, 0, b"")));
    bench.rehearse(&frame);
    assert_eq!(bench.gateway.networks[0].remotes.number([192, 0, 2, 9].into()), None);
}

#[test]
fn the_group_is_at_its_port_only_and_has_its_address() {
    let mut bench = Bench::new(OverlayConfig { access: vec![(1, None)], ..grouped(false) });
    let frame = to_group(9, &inner(B, MacAddress::BROADCAST, 0, b""));
    // They pass, as what is none of ours.
    assert_eq!(bench.pass(2, &frame)[0].len(), 1);
    assert_eq!(bench.pass(0, &[&US.0, &frame[6..]].concat())[0].len(), 1);
    assert_eq!(bench.pass(0, &frame)[2].len(), 1);
}

#[test]
fn queries_elsewhere_or_for_others_are_not_answered() {
    let mut bench = Bench::new(grouped(false));
    for now in [1, seconds(1) + 1] {
        bench.reports(now);
    }
    let mut other = QUERY_V3;
    other[4..8].copy_from_slice(&[239, 1, 1, 2]);
    let mut broken = igmp_query(&QUERY_V3);
    broken[40] ^= 1;
    // Through routers, and to another group than the one that is asked for.
    let [mut routed, mut misled] = [igmp_query(&QUERY_V3), igmp_query(&QUERY_V3)];
    (routed[22], misled[33]) = (2, 9);
    for frame in [&mut routed, &mut misled] {
        frame[24..26].fill(0);
        let checksum = Sum::new().bytes(&frame[14..38]).checksum().to_be_bytes();
        frame[24..26].copy_from_slice(&checksum);
    }
    for (port, frame) in
        [(0, igmp_query(&other)), (0, broken), (2, igmp_query(&QUERY_V3)), (0, routed), (0, misled)]
    {
        bench.pass(port, &frame);
        assert!(bench.reports(clock::cycles() + seconds(20)).is_empty());
    }
    let mut ours = QUERY_V3;
    ours[4..8].copy_from_slice(&GROUP.octets());
    bench.pass(0, &igmp_query(&ours));
    assert_eq!(bench.reports(clock::cycles() + seconds(20)).len(), 1);
}

/// A report's way and its message, of MLD.
fn mld_report(frame: &[u8]) -> (MacAddress, Ipv6Addr, Vec<u8>) {
    let ip = ipv6::check(&frame[14..]).unwrap();
    assert_eq!((ip.header.next_header(), ip.header.hop_limit()), (IpProtocol::HOP_BY_HOP, 1));
    assert_eq!(ip.header.source(), US.link_local());
    let (options, message) = ip.payload.split_first_chunk().unwrap();
    assert_eq!(*options, mld::ROUTER_ALERT);
    (MacAddress(*frame.first_chunk().unwrap()), ip.header.destination(), message.to_vec())
}

#[test]
fn groups_are_joined_and_left_by_mld() {
    let mut bench = Bench::new(grouped(true));
    let IpAddr::V6(group) = grouped(true).group.unwrap().address else { unreachable!() };
    let (us, all_v2) = (US.link_local(), MacAddress([0x33, 0x33, 0, 0, 0, 0x16]));
    let v2 = |record| (all_v2, mld::ALL_V2_ROUTERS, mld::report(us, record, group).to_vec());
    let joined = bench.reports(1);
    assert_eq!(mld_report(&joined[0]), v2(GroupRecord::Joined));
    bench.reports(seconds(2));
    let query = |length: usize| {
        let (router, all) = ("fe80::1".parse().unwrap(), "ff02::1".parse().unwrap());
        let mut message = vec![0; length];
        (message[0], message[4]) = (130, 0x10);
        let sum = pseudo_ipv6(router, all, IpProtocol::ICMPV6, length as u32).bytes(&message);
        message[2..4].copy_from_slice(&sum.checksum().to_be_bytes());
        let fields = Ipv6Fields { hop_limit: 1, ..Ipv6Fields::new(router, all) };
        let header = fields.header(IpProtocol::HOP_BY_HOP, (8 + length) as u16);
        let ethernet = [0x33, 0x33, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0xfe, 0x86, 0xdd];
        [&ethernet[..], &header, &mld::ROUTER_ALERT, &message].concat()
    };
    for (length, answer) in [
        (28, v2(GroupRecord::Listens)),
        (24, (MacAddress([0x33, 0x33, 1, 1, 1, 1]), group, mld::report_v1(us, group).to_vec())),
    ] {
        bench.pass(0, &query(length));
        let reports = bench.reports(clock::cycles() + seconds(20));
        assert_eq!(reports.iter().map(|frame| mld_report(frame)).collect::<Vec<_>>(), [answer]);
    }
    bench.outputs.clear();
    bench.gateway.finish(&mut bench.burst, &mut bench.outputs.outputs());
    let left = mld_report(bench.outputs.burst(0).iter().next().unwrap().data());
    assert_eq!(
        left,
        (MacAddress([0x33, 0x33, 0, 0, 0, 2]), mld::ALL_ROUTERS, mld::done_v1(us, group).to_vec())
    );
}
