//! Packets whose sender left something to hardware: partial checksums, and up to 64 KiB to be segmented.

use crate::bench::{Bench, ipv4, ipv6, udp4, udp6};
use warmlane_forward::datapath::Reason;
use warmlane_lane::{KeptOutputs, Stage as _};
use warmlane_mem::{Burst, Checksum, LayerOffsets, Packet, Segmentation, SegmentationKind};
use warmlane_port::software_offload::Segments;
use warmlane_wire::{Addresses, Ipv4Fields, ipv4 as v4, ipv6 as v6, udp};

/// Offsets of the UDP header in frames of the two families.
const UDP4: usize = 34;
const UDP6: usize = 54;

/// As a sender leaves it to hardware: the checksum partial, the whole to be segmented if there is a size.
fn left(bench: &Bench, mut frame: Vec<u8>, size: Option<u16>) -> Packet {
    let is_ipv6 = frame[12..14] == [0x86, 0xdd];
    let start = if is_ipv6 { UDP6 } else { UDP4 };
    let addresses = addresses(&frame);
    let length = (frame.len() - start) as u32;
    let sum = addresses.pseudo_header(warmlane_wire::IpProtocol::UDP, length).fold();
    frame[start + 6..start + 8].copy_from_slice(&sum.to_be_bytes());
    let mut packet = bench.packet(&frame);
    packet.set_checksum(Checksum::Partial { start: start as u16, offset: 6 });
    if let Some(size) = size {
        packet.set_segmentation(Some(Segmentation { kind: SegmentationKind::Udp, size, congestion: false }));
        packet.set_layer_offsets(LayerOffsets {
            l3: 14,
            l4: start as u16,
            payload: start as u16 + 8,
            ..LayerOffsets::default()
        });
    }
    packet
}

fn addresses(frame: &[u8]) -> Addresses {
    if frame[12..14] == [0x86, 0xdd] {
        let header = v6::check(&frame[14..]).unwrap().header;
        Addresses::V6 { source: header.source(), destination: header.destination() }
    } else {
        let header = v4::check(&frame[14..]).unwrap().header;
        Addresses::V4 { source: header.source(), destination: header.destination() }
    }
}

/// Forwards one packet; what leaves by the second port is returned as it is.
fn forward(bench: &mut Bench, packet: Packet) -> Vec<Packet> {
    let mut burst = Burst::new();
    burst.push(packet).unwrap();
    let mut outputs = KeptOutputs::of(&bench.forwarder);
    bench.forwarder.process(&mut burst, &mut outputs.outputs());
    assert_eq!(bench.counters().balance(), 0);
    outputs.burst(warmlane_forward::datapath::Forwarder::FIRST_PORT + 1).drain().collect()
}

fn bytes(packet: &Packet) -> Vec<u8> {
    packet.segment_data().flatten().copied().collect()
}

fn assert_udp_is_right(frame: &[u8], start: usize) {
    udp::check(addresses(frame), &frame[start..]).unwrap();
}

#[test]
fn long_packets_go_on_whole_if_their_segments_fit_the_link() {
    for (frame, start, size) in [
        (udp4(ipv4("203.0.113.5"), &[7; 16_000]), UDP4, 1372),
        (udp6(ipv6("2001:db8:3::1"), &[7; 16_000]), UDP6, 1352),
    ] {
        let mut bench = Bench::new();
        let packet = left(&bench, frame.clone(), Some(size));
        let mut sent = forward(&mut bench, packet);
        assert_eq!((sent.len(), bench.counters().forwarded()), (1, 1));
        let packet = sent.pop().unwrap();
        assert_eq!(packet.segmentation().map(|segmentation| segmentation.size), Some(size));
        assert_eq!(packet.checksum(), Checksum::Partial { start: start as u16, offset: 6 });
        // What the port or software makes of it is right, with one hop less.
        let mut segments = Segments::new(packet).unwrap();
        let mut count = 0;
        while let Some(segment) = segments.make_next() {
            let segment = bytes(&segment);
            assert!(segment.len() <= 1414);
            assert_eq!(segment[if start == UDP4 { 22 } else { 21 }], 63);
            assert_udp_is_right(&segment, start);
            count += 1;
        }
        assert_eq!(count, 16_000_usize.div_ceil(size.into()));
    }
}

#[test]
fn short_ones_too_with_partial_checksums() {
    let mut bench = Bench::new();
    for (frame, start) in
        [(udp4(ipv4("203.0.113.5"), &[7; 100]), UDP4), (udp6(ipv6("2001:db8:3::1"), &[7; 100]), UDP6)]
    {
        let packet = left(&bench, frame, None);
        let mut sent = forward(&mut bench, packet).pop().unwrap();
        assert_eq!(sent.checksum(), Checksum::Partial { start: start as u16, offset: 6 });
        warmlane_port::software_offload::complete_checksum(&mut sent).unwrap();
        assert_udp_is_right(sent.data(), start);
    }
}

#[test]
fn a_tag_moves_what_is_noted() {
    let mut bench = Bench::new();
    let packet = left(&bench, udp4(ipv4("203.0.113.200"), &[7; 5000]), Some(1000));
    let packet = forward(&mut bench, packet).pop().unwrap();
    assert_eq!(packet.checksum(), Checksum::Partial { start: 38, offset: 6 });
    assert_eq!(
        packet.layer_offsets(),
        LayerOffsets { l3: 18, l4: 38, payload: 46, ..LayerOffsets::default() }
    );
    let segment = Segments::new(packet).unwrap().make_next().unwrap();
    let frame = bytes(&segment);
    assert_eq!((frame.len(), &frame[12..18]), (18 + 28 + 1000, &[0x81, 0, 0, 7, 8, 0][..]));
    assert_udp_is_right(&[&frame[..12], &frame[16..]].concat(), UDP4);
}

#[test]
fn segments_that_are_too_long_are_reported_with_the_mtu() {
    for (frame, size, mtu_at) in [
        (udp4(Ipv4Fields { dont_fragment: true, ..ipv4("203.0.113.5") }, &[7; 16_000]), 1373, 14 + 20 + 6),
        (udp6(ipv6("2001:db8:3::1"), &[7; 16_000]), 1353, 14 + 40 + 6),
    ] {
        let mut bench = Bench::new();
        let mut burst = Burst::new();
        burst.push(left(&bench, frame, Some(size))).unwrap();
        bench.process(&mut burst);
        assert_eq!(bench.counters().drops().get(Reason::MtuExceeded), 1);
        assert!(bench.sent[1].is_empty());
        assert_eq!(bench.sent[0][0][mtu_at..mtu_at + 2], 1400_u16.to_be_bytes());
    }
}

#[test]
fn segments_that_may_be_fragmented_are() {
    let mut bench = Bench::new();
    let payload: Vec<u8> = (0..10_000_usize).map(|n| (n * 7) as u8).collect();
    let packet = left(&bench, udp4(ipv4("203.0.113.5"), &payload), Some(1472));
    let sent = forward(&mut bench, packet);
    // Seven segments, of which the last is short.
    assert_eq!(sent.len(), 6 * 2 + 1);
    let counters = bench.counters();
    assert_eq!((counters.forwarded(), counters.fragmented(), counters.extra_fragments()), (1, 1, 12));
    let mut joined = Vec::<u8>::new();
    let mut datagram = Vec::new();
    for packet in &sent {
        assert_eq!((packet.segmentation(), packet.has_work_left()), (None, false));
        let frame = bytes(packet);
        let ip = v4::check(&frame[14..]).unwrap();
        datagram.extend(ip.payload);
        if !ip.header.more_fragments() {
            let addresses =
                Addresses::V4 { source: ip.header.source(), destination: ip.header.destination() };
            udp::check(addresses, &datagram).unwrap();
            joined.extend(&datagram[8..]);
            datagram.clear();
        }
    }
    assert!(joined == payload);
}

#[test]
fn errors_quote_the_checksum_that_the_packet_would_have_had() {
    let mut bench = Bench::new();
    let frame = udp4(Ipv4Fields { ttl: 1, ..ipv4("203.0.113.5") }, &[7; 101]);
    let mut burst = Burst::new();
    burst.push(left(&bench, frame.clone(), None)).unwrap();
    bench.process(&mut burst);
    // Ethernet, IPv4, eight bytes of ICMP, then the packet.
    assert_eq!(bench.sent[0][0][14 + 20 + 8..], frame[14..]);
}
