//! Packets that are cut, and put together again by an independent reassembly.

use crate::bench::{Bench, CONFIG, ipv4, to_router, udp4};
use proptest::prelude::*;
use warmlane_forward::datapath::{Forwarder, Reason};
use warmlane_lane::{KeptOutputs, Stage as _};
use warmlane_mem::{Burst, Checksum, PoolConfig};
use warmlane_wire::{Addresses, IpProtocol, Ipv4Fields, ipv4 as v4, udp};

/// Puts the payloads of fragments in their places; all but the last must be whole units of 8 bytes, without overlap.
fn reassemble(frames: &[Vec<u8>], base: u16) -> (Vec<u8>, bool) {
    let mut whole = Vec::new();
    let mut more = true;
    for frame in frames {
        assert!(more, "a fragment after the last");
        let packet = v4::check(&frame[14..]).unwrap();
        assert_eq!(frame.len(), 14 + usize::from(packet.header.total_length()));
        assert_eq!(usize::from(packet.header.fragment_offset() - base), whole.len());
        more = packet.header.more_fragments();
        assert!(!more || packet.payload.len().is_multiple_of(8));
        whole.extend(packet.payload);
    }
    (whole, more)
}

#[test]
fn a_large_packet_is_cut_to_the_mtu() {
    let mut bench = Bench::new();
    let payload: Vec<u8> = (0..3000_usize).map(|n| n as u8).collect();
    let fields = Ipv4Fields { identification: 77, ttl: 10, ..ipv4("203.0.113.5") };
    let large = PoolConfig { data_size: 4096, buffers: 64, ..PoolConfig::default() };
    bench.pool = warmlane_mem::Pool::new(&large).unwrap();
    bench.receive(0, &[udp4(fields, &payload)]);
    let frames = std::mem::take(&mut bench.sent[1]);
    assert_eq!(frames.iter().map(Vec::len).collect::<Vec<_>>(), [14 + 1396, 14 + 1396, 14 + 276]);
    let (whole, more) = reassemble(&frames, 0);
    assert!(!more);
    assert_eq!(whole[8..], payload);
    for frame in &frames {
        let header = v4::check(&frame[14..]).unwrap().header;
        assert_eq!((header.identification(), header.ttl(), header.protocol()), (77, 9, IpProtocol::UDP));
    }
    let counters = bench.counters();
    assert_eq!((counters.forwarded(), counters.fragmented(), counters.extra_fragments()), (1, 1, 2));
    assert_eq!(counters.sent(), 3);
}

#[test]
fn fragments_to_a_vlan_are_tagged() {
    let mut bench = Bench::new();
    bench.receive(0, &[udp4(ipv4("203.0.113.200"), &[5; 1400])]);
    assert_eq!(bench.sent[1].len(), 2);
    for frame in &bench.sent[1] {
        assert_eq!(frame[12..18], [0x81, 0, 0, 7, 8, 0]);
    }
}

#[test]
fn a_checksum_left_to_the_port_is_completed_before_cutting() {
    let mut bench = Bench::new();
    let mut frame = udp4(ipv4("203.0.113.5"), &[3; 1401]);
    let ip = v4::check(&frame[14..]).unwrap();
    let (source, destination) = (ip.header.source(), ip.header.destination());
    let length = ip.payload.len() as u16;
    let pseudo = warmlane_wire::checksum::pseudo_ipv4(source, destination, IpProtocol::UDP, length);
    frame[40..42].copy_from_slice(&pseudo.fold().to_be_bytes());
    let mut burst = Burst::new();
    let mut packet = bench.pool.take().unwrap();
    packet.fill(&frame).unwrap();
    packet.set_checksum(Checksum::Partial { start: 34, offset: 6 });
    burst.push(packet).unwrap();
    bench.process(&mut burst);
    let (whole, _) = reassemble(&bench.sent[1], 0);
    let addresses = Addresses::V4 { source, destination };
    assert!(udp::check(addresses, &whole).is_ok());
}

#[test]
fn without_buffers_nothing_half_is_sent() {
    let pool = PoolConfig { buffers: 2, data_size: 2048, ..PoolConfig::default() };
    let mut bench = Bench::with(CONFIG, &pool);
    bench.dropped(&udp4(ipv4("203.0.113.5"), &[5; 1400]), Reason::NoBuffer);
}

/// Without its last fragment a packet can't be put together; the books say that one was lost, and not that it was sent.
#[test]
fn fragments_that_the_port_does_not_take_are_lost() {
    let mut bench = Bench::new();
    let mut burst = Burst::new();
    burst.push(bench.packet(&udp4(ipv4("203.0.113.5"), &[7; 3_000]))).unwrap();
    let mut outputs = KeptOutputs::of(&bench.forwarder);
    *outputs.burst(Forwarder::FIRST_PORT + 1) = Burst::with_limit(2);
    bench.forwarder.process(&mut burst, &mut outputs.outputs());
    let counters = bench.counters();
    assert_eq!((counters.forwarded(), counters.fragmented(), counters.drops().total()), (1, 1, 0));
    assert_eq!((counters.extra_fragments(), counters.fragments_lost()), (1, 1));
    assert_eq!((counters.sent(), counters.balance()), (2, 0));
    assert_eq!(outputs.burst(Forwarder::FIRST_PORT + 1).len(), 2);
    drop(outputs);
    assert_eq!(bench.pool.ledger().outstanding(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_packet_cut_for_any_mtu_is_whole_again(
        mtu in 68_u16..1500,
        size in 0_usize..1440,
        data_size in prop::sample::select(vec![256_usize, 2048]),
        offset in 0_u16..1000,
        more: bool,
        options in prop::sample::select(vec![
            vec![], vec![1, 1, 1, 0], vec![148, 4, 0, 0], vec![7, 7, 4, 1, 2, 3, 4, 0], vec![136, 4, 1, 2, 7, 4, 4, 0],
            [&[0xc8, 38][..], &[9; 36], &[1, 0]].concat(),
        ]),
    ) {
        // An IPv6 link needs 1280; IPv4 alone may have less.
        let config = CONFIG.replacen("[\"198.51.100.1/24\", \"2001:db8:2::1/64\"]", "[\"198.51.100.1/24\"]", 1)
            .replacen("mtu = 1400", &format!("mtu = {mtu}"), 1);
        let start = config.find("[[neighbour]]\naddress = \"2001:db8:2::2\"").unwrap();
        let end = start + config[start..].find("[[neighbour]]\naddress = \"198.51.100.3\"").unwrap();
        let config = format!("{}{}", &config[..start], &config[end..config.find("[[route]]\nprefix = \"2001").unwrap()]);
        // The worst cut: eight bytes of data in each fragment. And fragments may be longer than a buffer.
        let pool = PoolConfig { buffers: 512, data_size, ..PoolConfig::default() };
        let mut bench = Bench::with(&config, &pool);

        let size = if more { size / 8 * 8 } else { size };
        let payload: Vec<u8> = (0..size).map(|n| (n * 7) as u8).collect();
        let fields = Ipv4Fields {
            options: &options, more_fragments: more, fragment_offset: offset * 8, ..ipv4("203.0.113.5")
        };
        let frame = to_router().ipv4(fields).protocol(IpProtocol(99)).payload(&payload).to_vec().unwrap();
        bench.receive(0, &[frame]);
        let frames = &bench.sent[1];
        let (whole, ends_with_more) = reassemble(frames, offset * 8);
        prop_assert_eq!(whole, payload);
        prop_assert_eq!(ends_with_more, more);
        for (number, frame) in frames.iter().enumerate() {
            let packet = v4::check(&frame[14..]).unwrap();
            prop_assert!(packet.header.total_length() <= mtu);
            // All options in the first, those with the flag in the others.
            if number == 0 {
                prop_assert_eq!(packet.options, &options[..]);
            } else {
                let expected = match options.first() {
                    Some(148) => &options[..],
                    Some(136) => &options[..4],
                    Some(0xc8) => &[&options[..38], &[0, 0]].concat()[..],
                    _ => &[][..],
                };
                prop_assert_eq!(packet.options, expected);
            }
        }
    }
}
