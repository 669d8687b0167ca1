//! Every kind of packet with every rule for every field: lengths, checksums and values are right in all of them.

use crate::common::{pool, profile, stream, template};
use std::sync::{Arc, Mutex};
use warmlane_gen::control::{Network, Rule, RuleOrder, RuleValues, Stream, Template, Transport};
use warmlane_gen::datapath::signature::Signature;
use warmlane_gen::datapath::{Pattern, TransmitOrder, TransmitOrders};
use warmlane_gen::{SendingSide, pipeline};
use warmlane_lane::Task;
use warmlane_mem::{Pool, PoolConfig};
use warmlane_testkit::queues::Sink;
use warmlane_wire::{
    Addresses, EtherType, Icmpv4Message, Icmpv6Message, IpProtocol, LinkLayer, TcpFlags, VlanTag, ipv4, ipv6,
    tcp, udp, vxlan,
};

/// The first `count` frames of these streams.
fn frames(pool: &Pool, streams: Vec<Stream>, count: u64) -> Vec<Vec<u8>> {
    let kept: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let orders = Arc::new(TransmitOrders::default());
    let keep = Sink::new(usize::MAX).with_look({
        let kept = Arc::clone(&kept);
        move |packet| kept.lock().unwrap().push(packet.data().to_vec())
    });
    let sending = SendingSide { queue: Box::new(keep), pool: pool.clone(), orders: Arc::clone(&orders) };
    let mut transmitter = pipeline(Some(sending), None).unwrap();
    orders.give(TransmitOrder {
        plan: Arc::new(profile(streams).plan().unwrap()),
        trial: 5,
        pattern: Pattern::Unpaced,
        packets_per_cycle: 0.0,
        duration: u64::MAX >> 1,
        count,
        // More than are made in one go.
        burst: 150,
        patience: 1_000_000,
        seed: 1,
    });
    let report = loop {
        transmitter.poll();
        if let Some(report) = orders.report() {
            break report;
        }
    };
    assert_eq!((report.sent, report.offered), (count, count));
    drop(transmitter);
    assert_eq!(pool.ledger().outstanding(), 0);
    let frames = std::mem::take(&mut *kept.lock().unwrap());
    assert_eq!(report.bytes, frames.iter().map(|frame| frame.len() as u64).sum::<u64>());
    frames
}

/// Panics unless every length and checksum is right, the tunnel's inside too.
fn check(frame: &[u8]) {
    let link = LinkLayer::parse(frame).unwrap();
    let (addresses, protocol, payload) = match link.ethertype {
        EtherType::IPV4 => {
            let packet = ipv4::check(link.payload).unwrap();
            assert_eq!(packet.payload.len() + 20, link.payload.len(), "no padding");
            let (source, destination) = (packet.header.source(), packet.header.destination());
            (Addresses::V4 { source, destination }, packet.header.protocol(), packet.payload)
        }
        EtherType::IPV6 => {
            let packet = ipv6::check(link.payload).unwrap();
            let (source, destination) = (packet.header.source(), packet.header.destination());
            (Addresses::V6 { source, destination }, packet.header.next_header(), packet.payload)
        }
        _ => return,
    };
    match (protocol, addresses) {
        (IpProtocol::UDP, _) => {
            let (header, data) = udp::parse(payload).unwrap();
            if header.destination_port() == vxlan::PORT {
                check(vxlan::parse(data).unwrap().1);
            } else {
                assert_ne!(header.checksum(), 0);
            }
            if header.checksum() != 0 {
                udp::check(addresses, payload).unwrap();
            }
        }
        (IpProtocol::TCP, _) => {
            tcp::check(addresses, payload).unwrap();
        }
        (IpProtocol::ICMP, _) => {
            Icmpv4Message::parse(payload).unwrap();
        }
        (IpProtocol::ICMPV6, Addresses::V6 { source, destination }) => {
            Icmpv6Message::parse(source, destination, payload).unwrap();
        }
        _ => {}
    }
}

fn ipv6() -> Network {
    Network::Ipv6 {
        source: "2001:2::1".parse().unwrap(),
        destination: "2001:2:0:1::1".parse().unwrap(),
        traffic_class: 0x20,
        hop_limit: 64,
        flow_label: 0x1_0000,
    }
}

fn tcp() -> Transport {
    let (sequence, acknowledgement, flags) = (7, 9, TcpFlags(0x12));
    Transport::Tcp { source: 80, destination: 1024, sequence, acknowledgement, flags, window: 512 }
}

fn templates() -> Vec<Template> {
    let ipv4 = template().network;
    let udp = template().transport;
    let icmp = Transport::Icmp { identifier: 3, sequence: 0 };
    let tags = [vec![], vec![VlanTag::customer(100)], vec![VlanTag::service(7), VlanTag::customer(8)]];
    let mut templates = vec![Template { network: Network::None, transport: Transport::None, ..template() }];
    for network in [ipv4, ipv6()] {
        for transport in [udp.clone(), tcp(), icmp.clone(), Transport::None] {
            for tags in &tags {
                templates.push(Template {
                    tags: tags.clone(),
                    network,
                    transport: transport.clone(),
                    ..template()
                });
            }
            if transport == Transport::None {
                continue;
            }
            for (outer, checksum) in [(ipv4, false), (ipv4, true), (ipv6(), true), (ipv6(), false)] {
                let inner = Box::new(Template { network, transport: transport.clone(), ..template() });
                let transport = Transport::Vxlan { source: 50_000, identifier: 77, checksum, inner };
                templates.push(Template { network: outer, transport, ..template() });
            }
        }
    }
    templates
}

fn read(frame: &[u8], offset: usize, bytes: usize) -> u64 {
    frame[offset..offset + bytes].iter().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

#[test]
fn every_field_of_every_packet_by_every_rule() {
    let pool = pool();
    for template in templates() {
        for field in template.fields() {
            let base =
                template.build(template.minimum_size(false), &warmlane_gen::control::Payload::Zeros, None);
            let maximum = if field.bits == 64 { u64::MAX } else { (1 << field.bits) - 1 };
            let first = read(&base.unwrap(), field.offset, field.bytes) >> field.shift & maximum;
            // As far as the field goes, up or down.
            let space = (maximum - first).min(40);
            let (step, count) = if space > 2 { (1, space) } else { (-1, first.min(40)) };
            let steps = RuleValues::Steps { count, step };
            let corners = RuleValues::List(vec![0, maximum, 1, maximum - 1, maximum / 2, 0, 0]);
            let cases = [
                (steps.clone(), RuleOrder::Turn),
                (steps.clone(), RuleOrder::Random),
                (steps, RuleOrder::Zipf { exponent: 1.2 }),
                (corners.clone(), RuleOrder::Turn),
                (corners.clone(), RuleOrder::Random),
            ];
            // Frames of one size are made in another way.
            let cases = cases.into_iter().flat_map(|case| [("256,300", case.clone()), ("300", case)]);
            for (sizes, (values, order)) in cases {
                let rule = Rule { field: field.name.clone(), values: values.clone(), order };
                let frames = frames(&pool, vec![stream("s", template.clone(), sizes, vec![rule])], 80);
                for (number, frame) in frames.iter().enumerate() {
                    check(frame);
                    let signature = Signature::parse(frame.last_chunk().unwrap()).unwrap();
                    assert_eq!((signature.sequence, signature.trial), (number as u64, 5));
                    let value = read(frame, field.offset, field.bytes) >> field.shift & maximum;
                    let name = &field.name;
                    match (&values, order) {
                        (RuleValues::Steps { .. }, RuleOrder::Turn) => {
                            let expected =
                                first.wrapping_add_signed(step * (number as u64 % count).cast_signed());
                            assert_eq!(value, expected, "{name}");
                        }
                        (RuleValues::Steps { .. }, _) => {
                            assert!(value.abs_diff(first) < count, "{name} {value}");
                        }
                        (RuleValues::List(list), RuleOrder::Turn) => {
                            assert_eq!(value, list[number % list.len()], "{name}");
                        }
                        (RuleValues::List(list), _) => assert!(list.contains(&value), "{name} {value}"),
                    }
                }
            }
        }
    }
}

#[test]
fn two_fields_at_once_and_the_loop_for_one() {
    let pool = pool();
    let steps = |count| RuleValues::Steps { count, step: 1 };
    let random = RuleOrder::Random;
    let rule = |field: &str, count| Rule { field: field.to_owned(), values: steps(count), order: random };
    let one = vec![rule("ipv4.source", 65_536)];
    let two = vec![rule("ipv4.source", 65_536), rule("udp.source", 60_000), rule("ethernet.source", 1 << 20)];
    for rules in [one, two] {
        let frames = frames(&pool, vec![stream("s", template(), "64", rules)], 20_000);
        let mut sources: Vec<u64> = frames.iter().map(|frame| read(frame, 26, 4)).collect();
        for frame in &frames {
            check(frame);
        }
        sources.sort_unstable();
        sources.dedup();
        // 20,000 draws of 65,536: 17,236 different ones expected, standard deviation 45.
        assert!(sources.len().abs_diff(17_236) < 400, "{}", sources.len());
        assert!(sources.iter().all(|source| source >> 16 == 0xc612));
    }
}

#[test]
fn the_loop_for_one_field_takes_turns() {
    // The second hasn't as many buffers as are wanted at once.
    let pools = [pool(), Pool::new(&PoolConfig { buffers: 100, ..PoolConfig::default() }).unwrap()];
    let cases = pools.iter().flat_map(|pool| [(pool, true), (pool, false)]);
    for (pool, signed) in cases {
        for count in [1, 31, 32, 33, 64, 100, 65_536] {
            let values = RuleValues::Steps { count, step: 3 };
            let rule = Rule { field: "ipv4.source".to_owned(), values, order: RuleOrder::Turn };
            let stream = Stream { signed, ..stream("s", template(), "64", vec![rule]) };
            let frames = frames(pool, vec![stream], 2_000);
            let first = read(&frames[0], 26, 4);
            for (number, frame) in frames.iter().enumerate() {
                check(frame);
                assert_eq!(read(frame, 26, 4), first + 3 * (number as u64 % count), "{number} of {count}");
                let signature = Signature::parse(frame.last_chunk().unwrap());
                let sequence = signature.map(|signature| signature.sequence);
                assert_eq!(sequence, signed.then_some(number as u64));
            }
        }
    }
}

#[test]
fn streams_take_turns_by_their_shares() {
    let pool = pool();
    let mut streams: Vec<Stream> =
        (0..3).map(|number| stream(&format!("s{number}"), template(), "imix", vec![])).collect();
    streams[1].share = 3;
    let frames = frames(&pool, streams, 5_000);
    let mut counts = [0_u64; 3];
    for frame in &frames {
        check(frame);
        let signature = Signature::parse(frame.last_chunk().unwrap()).unwrap();
        let stream = usize::from(signature.stream);
        assert_eq!(signature.sequence, counts[stream]);
        counts[stream] += 1;
    }
    assert_eq!(counts, [1_000, 3_000, 1_000]);
    let small = frames.iter().filter(|frame| frame.len() == 60).count();
    assert!(small.abs_diff(5_000 * 7 / 12) < 10, "{small}");
}
