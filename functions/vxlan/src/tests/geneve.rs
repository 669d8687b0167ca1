//! The same gateway with GENEVE, whose header may have options.

use super::*;
use warmlane_wire::geneve;

fn geneve_network(ipv6: bool) -> OverlayConfig {
    OverlayConfig { protocol: TunnelProtocol::Geneve, udp_port: geneve::PORT, ..network(ipv6) }
}

/// What tunnel end 2 sends in UDP: a right header but for its first bytes, then options, and a frame.
fn datagram(ipv6: bool, class: u8, begin: [u8; 4], options: &[u8], frame: &[u8]) -> Vec<u8> {
    let data = [&begin[..], &geneve::header(VNI)[4..], options, frame].concat();
    let link = Frame::new().ethernet(US, MacAddress([2, 9, 9, 9, 9, 2]));
    let ip = match (network(ipv6).remotes[0], network(ipv6).local) {
        (IpAddr::V4(source), IpAddr::V4(to)) => {
            link.ipv4(Ipv4Fields { traffic_class: class, ..Ipv4Fields::new(source, to) })
        }
        (IpAddr::V6(source), IpAddr::V6(to)) => {
            link.ipv6(Ipv6Fields { traffic_class: class, ..Ipv6Fields::new(source, to) })
        }
        _ => unreachable!("both ends are of one version"),
    };
    ip.udp(50_000, geneve::PORT).payload(&data).to_vec().unwrap()
}

/// Options that nobody has to understand: one without data, one with eight bytes.
const OPTIONS: [u8; 16] = [1, 2, 0x7f, 0, 1, 3, 5, 2, 9, 9, 9, 9, 9, 9, 9, 9];
/// A header with as many.
const BEGIN: [u8; 4] = [4, 0, 0x65, 0x58];

#[test]
fn frames_go_out_without_options() {
    for ipv6 in [false, true] {
        let mut bench = Bench::new(geneve_network(ipv6));
        let frame = inner(A, MacAddress::BROADCAST, 0, b"to all");
        let [underlay, ..] = bench.pass(1, &frame);
        assert_eq!(underlay.len(), 2);
        for packet in &underlay {
            let datagram = if ipv6 {
                ipv6::check(&packet[14..]).unwrap().payload
            } else {
                ipv4::check(&packet[14..]).unwrap().payload
            };
            let (udp, data) = udp::parse(datagram).unwrap();
            assert_eq!(udp.destination_port(), 6081);
            assert_eq!(data, [&[0, 0, 0x65, 0x58, 0x12, 0x34, 0x56, 0][..], &frame].concat());
        }
    }
}

#[test]
fn options_are_skipped_on_the_way_in() {
    for ipv6 in [false, true] {
        for (begin, options) in [([0, 0, 0x65, 0x58], &[][..]), (BEGIN, &OPTIONS)] {
            let mut bench = Bench::new(geneve_network(ipv6));
            bench.pass(1, &inner(A, MacAddress::BROADCAST, 0, b""));
            let answer = inner(B, A, 0, b"answer");
            // With padding behind.
            let bytes = [&datagram(ipv6, 0, begin, options, &answer)[..], &[0; 3]].concat();
            let [underlay, _, access, vlan] = bench.pass(0, &bytes);
            assert_eq!((underlay.len(), access, vlan.len()), (0, vec![answer], 0));
            // Its sender is known from now on.
            let question = inner(A, B, 0, b"question");
            assert_eq!(bench.pass(1, &question)[0].len(), 1);
        }
    }
}

#[test]
fn congestion_is_told_from_behind_options() {
    let mut bench = Bench::new(geneve_network(false));
    bench.pass(1, &inner(A, MacAddress::BROADCAST, 0, b""));
    let answer = inner(B, A, 0b10, b"answer");
    let [_, _, access, _] = bench.pass(0, &datagram(false, 0b11, BEGIN, &OPTIONS, &answer));
    assert_eq!(access, [inner(B, A, 0b11, b"answer")]);
}

/// The first bytes of a header, options, what is behind them, and what has to come of it.
type Case<'a> = ([u8; 4], &'a [u8], &'a [u8], Reason);

#[test]
fn bad_headers_are_dropped_by_name() {
    let frame = inner(B, A, 0, b"answer");
    let critical = [1, 2, 0x80, 0];
    // The second option reaches beyond both.
    let lying = [1, 2, 3, 0, 1, 2, 3, 1];
    let cases: [Case<'_>; 11] = [
        ([0x40, 0, 0x65, 0x58], &[], &frame, Reason::Version),
        ([0, 0x40, 0x65, 0x58], &[], &frame, Reason::CriticalOption),
        ([4, 0x40, 0x65, 0x58], &OPTIONS, &frame, Reason::CriticalOption),
        ([1, 0, 0x65, 0x58], &critical, &frame, Reason::CriticalOption),
        ([0, 0x80, 0x65, 0x58], &[], &frame, Reason::ControlMessage),
        ([0, 0, 0x08, 0x00], &[], &frame[14..], Reason::NotEthernet),
        ([2, 0, 0x65, 0x58], &lying, &frame, Reason::OuterLength),
        // More options than data.
        ([63, 0, 0x65, 0x58], &[], &frame, Reason::OuterLength),
        // They leave less than an Ethernet header.
        (BEGIN, &OPTIONS, &frame[..13], Reason::OuterLength),
        // VXLAN that goes to the wrong port.
        ([8, 0, 0, 0], &[], &frame, Reason::OuterLength),
        ([0, 0, 0x65, 0x58], &[], &frame[..20], Reason::InnerLength),
    ];
    let mut bench = Bench::new(geneve_network(false));
    for (begin, options, frame, reason) in cases {
        let before = bench.dropped(reason);
        // What is behind the datagram is no part of it, even if it looks like that.
        let bytes = [&datagram(false, 0, begin, options, frame)[..], &[1, 2, 3, 0]].concat();
        let passed = bench.pass(0, &bytes);
        assert!(passed.iter().all(Vec::is_empty), "{begin:?} {options:?}");
        assert_eq!(bench.dropped(reason), before + 1, "{begin:?} {options:?}");
    }
}

/// Two networks of one identifier, one by either protocol, at one address.
#[test]
fn each_end_has_its_protocol() {
    let pool = Pool::new(&PoolConfig { buffers: 256, ..PoolConfig::default() }).unwrap();
    let vxlan = OverlayConfig { access: vec![(1, None)], ..network(false) };
    let geneve = OverlayConfig { access: vec![(2, None)], ..geneve_network(false) };
    let facts = PortFacts { mac: Some(US), mtu: 1500 };
    let limits = IcmpLimits { rate: u32::MAX, burst: 1 };
    let mut gateway = Gateway::new(vec![geneve, vxlan], vec![facts; 3], pool.clone(), limits);
    let mut outputs = KeptOutputs::of(&gateway);
    let frame = inner(B, MacAddress::BROADCAST, 0, b"to all");
    let of_geneve = datagram(false, 0, [0, 0, 0x65, 0x58], &[], &frame);
    for (bytes, output) in [(tunnelled(2, VNI, 0, &frame), 1), (of_geneve, 2)] {
        let (mut burst, mut packet) = (Burst::new(), pool.take().unwrap());
        packet.fill(&bytes).unwrap();
        burst.push(packet).unwrap();
        gateway.process(&mut burst, &mut outputs.outputs());
        for port in [1, 2] {
            let sent: Vec<_> = outputs.burst(port).iter().map(|packet| packet.data().to_vec()).collect();
            assert_eq!(sent, if port == output { vec![frame.clone()] } else { vec![] }, "{output} {port}");
        }
        outputs.clear();
    }
}
