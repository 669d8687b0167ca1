//! Flows against a plain map of five-tuples, and beside routes.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::bench::{Bench, CONFIG, HOST, NEXT, TAGGED, ipv4, ipv6 as ipv6_to, to_router, udp4};
use proptest::prelude::*;
use warmlane_forward::control::flow;
use warmlane_forward::datapath::Reason;
use warmlane_lane::{Explanation, Stage as _};
use warmlane_mem::PoolConfig;
use warmlane_wire::{
    Flow, Frame, IpProtocol, Ipv4Fields, Ipv6Fields, LinkLayer, MacAddress, TcpFields, VlanTag,
};

/// What flows lead to: the neighbour's addresses, and its Ethernet address.
const WAYS: [(&str, MacAddress); 2] = [("198.51.100.3", TAGGED), ("192.0.2.10", HOST)];

/// What packets and flows are made of, few enough that they often meet: addresses by their last byte, ports, protocols. All of them
/// are routed to [`NEXT`].
#[derive(Debug, Clone, Copy)]
struct Parts {
    ipv6: bool,
    source: u8,
    destination: u8,
    ports: (u16, u16),
    protocol: IpProtocol,
}

impl Parts {
    fn addresses(self) -> (IpAddr, IpAddr) {
        if self.ipv6 {
            let address =
                |network: u16, host: u8| Ipv6Addr::new(0x2001, 0xdb8, network, 0, 0, 0, 0, host.into());
            (address(0x77, self.source).into(), address(3, self.destination).into())
        } else {
            (Ipv4Addr::new(10, 0, 0, self.source).into(), Ipv4Addr::new(203, 0, 113, self.destination).into())
        }
    }

    fn flow(self) -> Flow {
        let (source, destination) = self.addresses();
        let end = SocketAddr::new;
        flow(self.protocol, end(source, self.ports.0), end(destination, self.ports.1)).unwrap()
    }
}

fn parts(protocols: &'static [IpProtocol]) -> impl Strategy<Value = Parts> {
    let ports = (1_u16..3, 1_u16..3);
    (any::<bool>(), 1_u8..4, 1_u8..4, ports, prop::sample::select(protocols)).prop_map(
        |(ipv6, source, destination, ports, protocol)| Parts { ipv6, source, destination, ports, protocol },
    )
}

const WITH_PORTS: &[IpProtocol] = &[IpProtocol::TCP, IpProtocol::UDP, IpProtocol::SCTP];
/// Others, whose first bytes look like ports.
const ANY: &[IpProtocol] =
    &[IpProtocol::TCP, IpProtocol::UDP, IpProtocol::SCTP, IpProtocol::GRE, IpProtocol::ESP];

/// What makes a packet another than the plain one.
#[derive(Debug, Clone, Copy)]
struct Shape {
    tags: usize,
    extended: bool,
    fragment: Option<u16>,
    /// Bytes behind the ports; `None` for a packet that ends before them.
    payload: Option<usize>,
}

fn shape() -> impl Strategy<Value = Shape> {
    let rare = |odds: u32| prop::bool::weighted(1.0 / f64::from(odds));
    let fragment =
        (rare(5), prop::sample::select(vec![0_u16, 16])).prop_map(|(is, offset)| is.then_some(offset));
    (rare(5).prop_map(usize::from), rare(5), fragment, rare(8), 12_usize..90).prop_map(
        |(tags, extended, fragment, is_short, payload)| Shape {
            tags,
            extended,
            fragment,
            payload: (!is_short).then_some(payload),
        },
    )
}

/// A frame with these, which ends in a number.
fn frame(parts: Parts, shape: Shape, number: u16) -> Vec<u8> {
    let mut transport = Vec::new();
    if let Some(length) = shape.payload {
        transport.extend(parts.ports.0.to_be_bytes());
        transport.extend(parts.ports.1.to_be_bytes());
        transport.resize(4 + length, 0);
    }
    // Where it is too short for ports, this stands where one of them would be: it is no flow's.
    transport.extend(number.to_be_bytes());
    let more_fragments = shape.fragment == Some(0);
    let link = (0..shape.tags).fold(to_router(), |frame, _| frame.vlan(VlanTag::customer(9)));
    let whole = match parts.addresses() {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let options: &[u8] = if shape.extended { &[1; 8] } else { &[] };
            let fields = Ipv4Fields {
                options,
                more_fragments,
                fragment_offset: shape.fragment.unwrap_or(0),
                ..Ipv4Fields::new(source, destination)
            };
            link.ipv4(fields).protocol(parts.protocol).payload(&transport).to_vec()
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let [high, low] = (shape.fragment.unwrap_or(0) | u16::from(more_fragments)).to_be_bytes();
            let fragment = [0, 0, high, low, 1, 2, 3, 4];
            let mut extensions: Vec<(IpProtocol, &[u8])> = Vec::new();
            if shape.extended {
                extensions.push((IpProtocol::DESTINATION_OPTIONS, &[0, 0, 1, 4, 0, 0, 0, 0]));
            }
            if shape.fragment.is_some() {
                extensions.push((IpProtocol::FRAGMENT, &fragment));
            }
            let fields = Ipv6Fields { extensions: &extensions, ..Ipv6Fields::new(source, destination) };
            link.ipv6(fields).protocol(parts.protocol).payload(&transport).to_vec()
        }
        _ => unreachable!("both are of one version"),
    };
    whole.unwrap()
}

/// A configuration with these flows.
fn config(flows: &HashMap<Flow, usize>) -> String {
    let mut text = CONFIG.to_owned();
    for (flow, &way) in flows {
        let (protocol, (from, to)) = (flow.protocol.to_string().to_lowercase(), flow.ports.unwrap());
        let (from, to) = (SocketAddr::new(flow.source, from), SocketAddr::new(flow.destination, to));
        let lines = [
            "[[flow]]".to_owned(),
            format!("protocol = \"{protocol}\""),
            format!("from = \"{from}\""),
            format!("to = \"{to}\""),
            format!("via = \"{}\"\n", WAYS[way].0),
        ];
        text += &lines.join("\n");
    }
    text
}

fn bench(flows: &HashMap<Flow, usize>, data_size: usize) -> Bench {
    Bench::with(&config(flows), &PoolConfig { buffers: 512, data_size, ..PoolConfig::default() })
}

fn sent_to(frame: &[u8]) -> MacAddress {
    LinkLayer::parse(frame).unwrap().header.destination()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn packets_of_flows_go_their_way_and_others_by_their_routes(
        flows in prop::collection::vec((parts(WITH_PORTS), 0..WAYS.len()), 0..40),
        packets in prop::collection::vec((parts(ANY), shape()), 1..100),
        data_size in prop::sample::select(vec![96_usize, 2048]),
    ) {
        let flows: HashMap<Flow, usize> = flows.into_iter().map(|(parts, way)| (parts.flow(), way)).collect();
        let mut bench = bench(&flows, data_size);
        let frames: Vec<_> =
            (0..).zip(&packets).map(|(number, (parts, shape))| frame(*parts, *shape, number)).collect();
        bench.receive(0, &frames);
        let sent: HashMap<u16, MacAddress> = bench
            .sent
            .iter()
            .flatten()
            .map(|frame| (u16::from_be_bytes(*frame.last_chunk().unwrap()), sent_to(frame)))
            .collect();
        prop_assert_eq!(sent.len(), frames.len());
        let mut hits = 0;
        for (number, frame) in (0_u16..).zip(&frames) {
            let way = flows.get(&Flow::of_frame(frame).unwrap());
            hits += u64::from(way.is_some());
            let expected = way.map_or(NEXT, |way| WAYS[*way].1);
            prop_assert_eq!(sent[&number], expected, "{:?}", packets[usize::from(number)]);
        }
        let misses = if flows.is_empty() { 0 } else { frames.len() as u64 - hits };
        prop_assert_eq!((bench.counters().flow_hits(), bench.counters().flow_misses()), (hits, misses));
    }
}

/// The one flow that most tests need.
fn dns() -> Flow {
    flow(IpProtocol::UDP, "192.0.2.10:1111".parse().unwrap(), "203.0.113.5:2222".parse().unwrap()).unwrap()
}

#[test]
fn a_flow_goes_before_all_routes() {
    let to_us = Flow { destination: "198.51.100.1".parse().unwrap(), ..dns() };
    let nowhere = Flow { destination: "9.9.9.9".parse().unwrap(), ..dns() };
    let mut bench = bench(&HashMap::from([(dns(), 0), (to_us, 0), (nowhere, 0)]), 2048);
    for destination in ["203.0.113.5", "198.51.100.1", "9.9.9.9"] {
        let (port, frame) = bench.one(&udp4(ipv4(destination), b"x")).unwrap();
        assert_eq!((port, sent_to(&frame)), (1, TAGGED), "{destination}");
        assert_eq!(LinkLayer::parse(&frame).unwrap().outer.map(VlanTag::id), Some(7));
    }
    // Answers are another flow.
    assert!(bench.dropped(&udp4(ipv4("9.9.9.8"), b"x"), Reason::NoRoute).is_some());
    assert_eq!((bench.counters().flow_hits(), bench.counters().flow_misses()), (3, 1));
}

#[test]
fn flows_may_end_here_and_have_the_same_limits_as_routes() {
    let text = format!(
        "{CONFIG}\n[[flow]]\nprotocol = \"udp\"\nfrom = \"192.0.2.10:1111\"\nto = \"203.0.113.5:2222\"\ndrop = true\n\
         [[flow]]\nprotocol = \"tcp\"\nfrom = \"192.0.2.10:1111\"\nto = \"203.0.113.5:2222\"\nunreachable = true\n\
         [[flow]]\nprotocol = \"udp\"\nfrom = \"192.0.2.10:1111\"\nto = \"203.0.113.6:2222\"\nvia = \"198.51.100.3\"\n"
    );
    let mut bench = Bench::with(&text, &PoolConfig { buffers: 512, ..PoolConfig::default() });
    assert!(bench.dropped(&udp4(ipv4("203.0.113.5"), b"x"), Reason::RouteDrop).is_none());
    let tcp = to_router().ipv4(ipv4("203.0.113.5")).tcp(TcpFields::new(1111, 2222)).to_vec().unwrap();
    assert!(bench.dropped(&tcp, Reason::RouteUnreachable).is_some());
    let long = Ipv4Fields { dont_fragment: true, ..ipv4("203.0.113.6") };
    assert!(bench.dropped(&udp4(long, &[0; 1401]), Reason::MtuExceeded).is_some());
    let expired = Ipv4Fields { ttl: 1, ..ipv4("203.0.113.6") };
    assert!(bench.dropped(&udp4(expired, b"x"), Reason::TtlExpired).is_some());
}

#[test]
fn flows_are_told_to_who_traces_packets() {
    let ipv6 =
        flow(IpProtocol::TCP, "[2001:db8:1::10]:5".parse().unwrap(), "[2001:db8:3::1]:6".parse().unwrap());
    let bench = bench(&HashMap::from([(dns(), 0), (ipv6.unwrap(), 1)]), 2048);
    let notes = |frame: Frame<'_>| -> HashMap<&'static str, String> {
        let mut explanation = Explanation::default();
        bench.forwarder.explain(0, &bench.packet(&frame.to_vec().unwrap()), &mut explanation);
        explanation.notes().iter().cloned().collect()
    };
    let found = notes(to_router().ipv4(ipv4("203.0.113.5")).udp(1111, 2222));
    assert_eq!(found["flow"], "UDP 192.0.2.10:1111 to 203.0.113.5:2222");
    assert!(
        found["next-hop"].starts_with("port1 to 02:00:00:00:02:03") && !found.contains_key("route"),
        "{found:?}"
    );
    let found = notes(to_router().ipv4(ipv4("203.0.113.5")).udp(1111, 2223));
    assert_eq!((found.get("flow"), found["route"].as_str()), (None, "203.0.113.0/24"));
    let found = notes(to_router().ipv6(ipv6_to("2001:db8:3::1")).tcp(TcpFields::new(5, 6)));
    assert_eq!(found["flow"], "TCP [2001:db8:1::10]:5 to [2001:db8:3::1]:6");
    assert!(found["next-hop"].starts_with("port0 to 02:00:00:00:01:01"), "{found:?}");
}

/// Ports that stand where a packet is over already are none.
#[test]
fn padding_is_not_taken_for_ports() {
    let ipv6 = flow(
        IpProtocol::UDP,
        "[2001:db8:1::10]:1111".parse().unwrap(),
        "[2001:db8:3::1]:2222".parse().unwrap(),
    );
    let mut bench = bench(&HashMap::from([(dns(), 0), (ipv6.unwrap(), 0)]), 2048);
    let ports = [1111_u16.to_be_bytes(), 2222_u16.to_be_bytes()].concat();
    let (first, second) = ports.split_at(2);
    let plain = to_router().ipv4(ipv4("203.0.113.5"));
    let options = to_router().ipv4(Ipv4Fields { options: &[1; 8], ..ipv4("203.0.113.5") });
    let long = to_router().ipv6(ipv6_to("2001:db8:3::1"));
    for headers in [plain, options, long] {
        let short = headers.protocol(IpProtocol::UDP).payload(first).to_vec().unwrap();
        let mut padded = [&short, second].concat();
        padded.resize(padded.len().max(60), 0);
        let (_, frame) = bench.one(&padded).unwrap();
        assert_eq!((sent_to(&frame), bench.counters().flow_hits()), (NEXT, 0));
    }
    for headers in [plain, options, long] {
        let whole = headers.protocol(IpProtocol::UDP).payload(&ports).to_vec().unwrap();
        assert_eq!(sent_to(&bench.one(&whole).unwrap().1), TAGGED);
    }
}

/// Packets that leave by one port keep their order, whether they are of a flow or not.
#[test]
fn a_burst_keeps_its_order() {
    let mut bench = bench(&HashMap::from([(dns(), 0)]), 2048);
    let frames: Vec<_> = (0..200_u16)
        .map(|number| {
            let destination = if number % 3 == 0 { "203.0.113.5" } else { "203.0.113.6" };
            udp4(ipv4(destination), &number.to_be_bytes())
        })
        .collect();
    bench.receive(0, &frames);
    let numbers: Vec<u16> =
        bench.sent[1].iter().map(|frame| u16::from_be_bytes(*frame.last_chunk().unwrap())).collect();
    assert_eq!(numbers, (0..200).collect::<Vec<_>>());
}
