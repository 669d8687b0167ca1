use std::net::IpAddr;

use proptest::prelude::*;
use warmlane_mem::{Burst, Packet, Pool, PoolConfig};
use warmlane_wire::toeplitz::{MICROSOFT_KEY, SYMMETRIC_KEY, Toeplitz};
use warmlane_wire::{Flow, Frame, IpProtocol, Ipv4Fields, Ipv6Fields, MacAddress, TcpFields, vxlan};

use super::classifier::{Classifier, NO_RULE};
use super::headers::Headers;
use super::*;
use crate::port::Capabilities;
use crate::queue::{QueueCounters, QueueCountersView, QueueStatus};

fn pool() -> Pool {
    Pool::new(&PoolConfig { buffers: 8_192, ..PoolConfig::default() }).unwrap()
}

/// A frame of a few that there can be, so that rules meet some.
#[derive(Clone, Debug)]
struct Sent {
    mac: u8,
    source: u8,
    destination: u8,
    ports: (u16, u16),
    is_ipv6: bool,
    is_tcp: bool,
    is_fragment: bool,
    vni: Option<u32>,
}

impl Sent {
    fn address(&self, host: u8) -> IpAddr {
        if self.is_ipv6 {
            [0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(host)].into()
        } else {
            [192, 0, 2, host].into()
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let link =
            Frame::new().ethernet(MacAddress([2, 0, 0, 0, 0, self.mac]), MacAddress([2, 0, 0, 0, 1, 0]));
        let ip = match (self.address(self.source), self.address(self.destination)) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => link.ipv4(Ipv4Fields {
                more_fragments: self.is_fragment,
                ..Ipv4Fields::new(source, destination)
            }),
            (IpAddr::V6(source), IpAddr::V6(destination)) => link.ipv6(Ipv6Fields::new(source, destination)),
            _ => unreachable!(),
        };
        let (from, to) = self.ports;
        let inner = vec![0; 60];
        match self.vni {
            _ if self.is_tcp => ip.tcp(TcpFields::new(from, to)).to_vec().unwrap(),
            Some(vni) => {
                let data = [&vxlan::header(vni)[..], &inner].concat();
                ip.udp(from, vxlan::PORT).payload(&data).to_vec().unwrap()
            }
            None => ip.udp(from, to).payload(&inner).to_vec().unwrap(),
        }
    }
}

fn sent() -> impl Strategy<Value = Sent> {
    let small = 0..3_u8;
    (
        (small.clone(), small.clone(), small),
        (0..3_u16, 0..3_u16),
        any::<[bool; 3]>(),
        prop::option::of(0..3_u32),
    )
        .prop_map(|((mac, source, destination), ports, [is_ipv6, is_tcp, is_fragment], vni)| {
            // IPv6's fragments have a header of their own.
            let is_fragment = is_fragment && !is_ipv6;
            Sent { mac, source, destination, ports, is_ipv6, is_tcp, is_fragment, vni }
        })
}

fn matches() -> impl Strategy<Value = Match> {
    let prefix = || {
        let prefixes = [
            "192.0.2.1/32",
            "192.0.2.0/31",
            "192.0.2.0/24",
            "0.0.0.0/0",
            "2001:db8::1/128",
            "2001:db8::/64",
            "::/0",
        ];
        prop::option::of(prop::sample::select(prefixes.to_vec()).prop_map(|text| text.parse().unwrap()))
    };
    let small = || prop::option::of(0..3_u16);
    let protocol =
        prop::option::of(prop::sample::select(vec![IpProtocol::TCP, IpProtocol::UDP, IpProtocol::ICMP]));
    ((small(), protocol), (prefix(), prefix()), (small(), small()), prop::option::of(0..3_u32)).prop_map(
        |((mac, protocol), (source, destination), (source_port, destination_port), vni)| Match {
            mac: mac.map(|mac| [2, 0, 0, 0, 0, mac as u8]),
            protocol,
            source,
            destination,
            source_port,
            destination_port,
            vni,
        },
    )
}

/// Whether a rule is about a packet, by what they say.
fn fits(of: &Match, sent: &Sent) -> bool {
    let protocol = if sent.is_tcp { IpProtocol::TCP } else { IpProtocol::UDP };
    let is_vxlan = !sent.is_tcp && sent.vni.is_some();
    let to = if is_vxlan { vxlan::PORT } else { sent.ports.1 };
    let contains = |prefix: &warmlane_table::IpPrefix, host| match (prefix, sent.address(host)) {
        (warmlane_table::IpPrefix::V4(prefix), IpAddr::V4(address)) => prefix.contains(address.to_bits()),
        (warmlane_table::IpPrefix::V6(prefix), IpAddr::V6(address)) => prefix.contains(address.to_bits()),
        _ => false,
    };
    of.mac.is_none_or(|mac| mac[5] == sent.mac)
        && of.protocol.is_none_or(|wanted| wanted == protocol)
        && of.source.is_none_or(|prefix| contains(&prefix, sent.source))
        && of.destination.is_none_or(|prefix| contains(&prefix, sent.destination))
        && of.source_port.is_none_or(|port| !sent.is_fragment && port == sent.ports.0)
        && of.destination_port.is_none_or(|port| !sent.is_fragment && port == to)
        && of.vni.is_none_or(|vni| is_vxlan && !sent.is_fragment && sent.vni == Some(vni))
}

proptest! {
    #[test]
    fn the_first_rule_that_fits_is_found(
        wanted in prop::collection::vec(matches(), 0..12), frames in prop::collection::vec(sent(), 1..64),
    ) {
        let rules: Vec<Rule> = wanted.into_iter().map(|of| Rule { of, action: Action::Drop }).collect();
        let classifier = Classifier::new(&rules).unwrap();
        let pool = pool();
        let headers: Vec<Headers> = frames.iter().map(|frame| headers(&packet(&pool, &frame.bytes()))).collect();
        let mut found = vec![0; frames.len()];
        classifier.classify(&headers, &mut found);
        for (frame, found) in frames.iter().zip(found) {
            let expected = rules.iter().position(|rule| fits(&rule.of, frame));
            prop_assert_eq!(found, expected.map_or(NO_RULE, |rule| rule as u32), "{:?} of {:?}", frame, rules);
        }
    }

    #[test]
    fn any_bytes_are_looked_at(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let pool = pool();
        let mut packet = packet(&pool, &bytes);
        if bytes.len() > 40 {
            packet.data_mut()[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
            packet.data_mut()[23] = 17;
            packet.data_mut()[36..38].copy_from_slice(&[0x17, 0xc1]);
        }
        headers(&packet);
    }
}

fn headers(packet: &Packet) -> Headers {
    Headers::of(packet, Flow::of_front(packet.data()).as_ref())
}

fn packet(pool: &Pool, bytes: &[u8]) -> Packet {
    let mut packet = pool.take().unwrap();
    packet.fill(bytes).unwrap();
    packet
}

/// Receives these frames, and then no more.
struct Device {
    pool: Pool,
    frames: Vec<Vec<u8>>,
    next: usize,
    counters: QueueCounters,
}

impl ReceiveQueue for Device {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        let before = burst.len();
        while burst.space() > 0 && self.next < self.frames.len() {
            let packet = packet(&self.pool, &self.frames[self.next]);
            drop(burst.push(packet));
            self.next += 1;
        }
        burst.len() - before
    }

    fn status(&self) -> QueueStatus {
        if self.next == self.frames.len() { QueueStatus::Finished } else { QueueStatus::Running }
    }

    fn counters(&self) -> QueueCountersView {
        self.counters.view()
    }
}

/// The queues of `lanes` lanes, of a port with as many queues as lists of frames.
fn lanes(
    pool: &Pool,
    frames: Vec<Vec<Vec<u8>>>,
    steering: &Steering,
    lanes: usize,
) -> Vec<Vec<Box<dyn ReceiveQueue>>> {
    let queue = |frames| -> Box<dyn ReceiveQueue> {
        Box::new(Device { pool: pool.clone(), frames, next: 0, counters: QueueCounters::new() })
    };
    let port = Port {
        name: "west".to_owned(),
        driver: "frames",
        capabilities: Capabilities::default(),
        receive: frames.into_iter().map(queue).collect(),
        transmit: Vec::new(),
    };
    let mut shares: Vec<Vec<_>> = (0..lanes).map(|_| Vec::new()).collect();
    for (number, queue) in port.steered(steering).receive.into_iter().enumerate() {
        shares[number % lanes].push(queue);
    }
    shares
}

/// Receives until a lane's queues have ended, or nothing comes.
fn receive_all(queues: &mut [Box<dyn ReceiveQueue>]) -> Vec<Vec<u8>> {
    let (mut seen, mut burst) = (Vec::new(), Burst::new());
    while queues.iter_mut().map(|queue| queue.receive(&mut burst)).sum::<usize>() > 0 {
        seen.extend(burst.drain().map(|packet| packet.data().to_vec()));
    }
    seen
}

fn udp(host: u8, number: u16) -> Vec<u8> {
    let sent = Sent {
        mac: 1,
        source: host,
        destination: 200,
        ports: (number, 53),
        is_ipv6: false,
        is_tcp: false,
        is_fragment: false,
        vni: None,
    };
    sent.bytes()
}

#[test]
fn packets_get_to_the_lane_of_their_hash() {
    for (key, devices) in [(&MICROSOFT_KEY, 1), (&SYMMETRIC_KEY, 3)] {
        let (pool, count) = (pool(), 2);
        let rss = Steering::new(&[], Some(Rss::even(key, count)), count).unwrap();
        let frames: Vec<Vec<Vec<u8>>> =
            (0..devices).map(|device| (0..600).map(|number| udp(device, number)).collect()).collect();
        let mut queues = lanes(&pool, frames.clone(), &rss, count);
        assert!(queues.iter().all(|queues| queues.len() == usize::from(devices)));
        let mut seen = vec![Vec::new(); count];
        for _ in 0..20 {
            for (queues, seen) in queues.iter_mut().zip(&mut seen) {
                seen.extend(receive_all(queues));
            }
        }
        let toeplitz = Toeplitz::new(key);
        for (lane, seen) in seen.iter().enumerate() {
            assert!(seen.len() > 200, "{}", seen.len());
            let lane_of = |frame: &Vec<u8>| toeplitz.flow(&Flow::of_frame(frame).unwrap()) as usize % 2;
            assert!(seen.iter().all(|frame| lane_of(frame) == lane));
        }
        // Each device's packets come in their order, whether they were steered or not.
        for (device, sent) in frames.iter().enumerate() {
            for (lane, seen) in seen.iter().enumerate() {
                let seen = seen.iter().filter(|frame| usize::from(frame[29]) == device);
                let sent = sent
                    .iter()
                    .filter(|frame| toeplitz.flow(&Flow::of_frame(frame).unwrap()) as usize % 2 == lane);
                assert!(seen.eq(sent), "{device} {lane}");
            }
        }
        let counted: u64 = queues.iter().flatten().map(|queue| queue.counters().packets()).sum();
        assert_eq!(counted, u64::from(devices) * 600);
        // The second lane's end once the first lane's are gone.
        let second = queues.pop().unwrap();
        drop(queues);
        let status: Vec<_> = second.iter().map(|queue| queue.status()).collect();
        assert!(status.iter().all(|status| *status == QueueStatus::Finished), "{status:?}");
        drop(second);
        assert_eq!(pool.ledger().outstanding(), 0);
    }
}

#[test]
fn rules_go_before_the_hash_and_may_drop_or_mark() {
    let (pool, lane_count) = (pool(), 3);
    let from = |text: &str| Match { source: Some(text.parse().unwrap()), ..Match::default() };
    let rules = [
        Rule { of: from("192.0.2.1/32"), action: Action::Drop },
        Rule { of: from("192.0.2.2/31"), action: Action::Receive { queue: Some(2), mark: Some(7) } },
        Rule { of: from("192.0.2.0/24"), action: Action::Receive { queue: None, mark: Some(9) } },
    ];
    // What the hash spreads gets to the second lane.
    let rss = Rss::even(&MICROSOFT_KEY, lane_count).with_table(&[1]);
    let steering = Steering::new(&rules, Some(rss), lane_count).unwrap();
    let frames = (0..6).map(|host| udp(host, 1)).collect();
    let mut queues = lanes(&pool, vec![frames], &steering, lane_count);
    let mut seen = Vec::new();
    for (lane, queues) in queues.iter_mut().enumerate() {
        let mut burst = Burst::new();
        queues[0].receive(&mut burst);
        seen.extend(burst.iter().map(|packet| (lane, packet.data()[29], packet.mark())));
    }
    assert_eq!(seen, [(1, 0, 9), (1, 4, 9), (1, 5, 9), (2, 2, 7), (2, 3, 7)]);
    assert_eq!(queues[0][0].counters().drops().get(SteeringDrop::Rule), 1);
    let mut hits = Vec::new();
    for counters in queues[0][0].own_counters() {
        counters.read(&mut |entry| hits.push((counters.label().unwrap().1, entry.value)));
    }
    assert_eq!(hits, [("1".to_owned(), 1), ("2".to_owned(), 2), ("3".to_owned(), 3)]);
    drop(queues);
    assert_eq!(pool.ledger().outstanding(), 0);
}

#[test]
fn a_lane_without_space_is_waited_for_and_one_that_ended_is_not() {
    let pool = pool();
    let count = 3_000;
    let rule = Rule {
        of: Match { protocol: Some(IpProtocol::UDP), ..Match::default() },
        action: Action::Receive { queue: Some(1), mark: None },
    };
    let steering = Steering::new(&[rule], None, 2).unwrap();
    let frames = (0..count).map(|number| udp(1, number)).collect();
    let mut queues = lanes(&pool, vec![frames], &steering, 2);
    let mut second = queues.pop().unwrap();
    let first = &mut queues[0][0];
    let mut burst = Burst::new();
    for _ in 0..100 {
        assert_eq!(first.receive(&mut burst), 0);
    }
    // Some are in the channel, and a burst waits in front of it; the rest is still in the device.
    let inside = CHANNEL_CAPACITY + burst.limit();
    assert!(pool.ledger().outstanding() <= inside as u64 && first.event().is_none());
    assert_eq!(first.status(), QueueStatus::Running);
    let mut seen = receive_all(&mut second);
    first.receive(&mut burst);
    seen.extend(receive_all(&mut second));
    assert!((0..).zip(&seen).all(|(number, frame)| *frame == udp(1, number)), "{}", seen.len());
    for _ in 0..3 {
        first.receive(&mut burst);
    }
    let received = second[0].counters();
    let gone = first.counters();
    drop(second);
    for _ in 0..100 {
        first.receive(&mut burst);
    }
    assert_eq!(first.status(), QueueStatus::Finished);
    drop(queues);
    let lost = gone.drops().get(SteeringDrop::LaneEnded) + received.drops().get(SteeringDrop::LaneEnded);
    assert_eq!(received.packets() + lost, u64::from(count), "none is lost silently");
    assert!(lost > 1_000, "{lost}");
    assert_eq!(pool.ledger().outstanding(), 0);
}

/// Also by rules for protocols that aren't there.
#[test]
fn what_is_not_ip_stays_where_it_came_in() {
    let pool = pool();
    let hop_by_hop = Match { protocol: Some(IpProtocol(0)), ..Match::default() };
    let rules = [Rule { of: hop_by_hop, action: Action::Drop }];
    let steering = Steering::new(&rules, Some(Rss::even(&MICROSOFT_KEY, 2)), 2).unwrap();
    let arp = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1, 0x08, 0x06], &[0; 28]].concat();
    let frames = vec![arp, vec![7; 9], Vec::new()];
    let mut queues = lanes(&pool, vec![frames.clone()], &steering, 2);
    assert_eq!((receive_all(&mut queues[0]), receive_all(&mut queues[1]).len()), (frames, 0));
    // A table may name queues that aren't there.
    let steering =
        Steering::new(&[], Some(Rss::even(&MICROSOFT_KEY, 2).with_table(&[7, u16::MAX])), 2).unwrap();
    let frames: Vec<_> = (0..50).map(|number| udp(1, number)).collect();
    assert_eq!(receive_all(&mut lanes(&pool, vec![frames.clone()], &steering, 2)[0]), frames);
}

#[test]
fn without_rules_and_spreading_nothing_is_put_there() {
    let (pool, steering) = (pool(), Steering::new(&[], None, 2).unwrap());
    let queues = lanes(&pool, vec![vec![udp(1, 1)]], &steering, 2);
    assert!(steering.is_none() && queues[1].is_empty());
}

#[test]
fn rules_that_can_not_be_say_why() {
    let udp = || Match { protocol: Some(IpProtocol::UDP), ..Match::default() };
    let queue = |queue| Action::Receive { queue: Some(queue), mark: None };
    let prefix = |text: &str| Some(text.parse().unwrap());
    let icmp = Match { protocol: Some(IpProtocol::ICMP), ..Match::default() };
    let idle = Action::Receive { queue: None, mark: None };
    for (of, action, wanted) in [
        (Match::default(), Action::Drop, "says nothing"),
        (udp(), idle, "does nothing"),
        (udp(), queue(2), "there is no queue 2: they are numbered from 0, and there are 2"),
        (
            Match { source: prefix("::/0"), destination: prefix("10.0.0.0/8"), ..udp() },
            Action::Drop,
            "same version",
        ),
        (Match { source_port: Some(1), ..icmp.clone() }, Action::Drop, "has no ports"),
        (Match { vni: Some(1), ..icmp }, Action::Drop, "are in UDP"),
        (Match { vni: Some(1 << 24), ..udp() }, Action::Drop, "24 bits"),
        (Match { vni: Some(1), destination_port: Some(8472), ..udp() }, Action::Drop, "ports 4789 and 6081"),
    ] {
        let good = Rule { of: udp(), action: queue(1) };
        let error = Steering::new(&[good, Rule { of, action }], None, 2).err().unwrap().to_string();
        assert!(error.starts_with("rule 1: ") && error.contains(wanted), "{error}");
    }
}
