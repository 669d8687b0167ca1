//! PSP segmentation and its other end: what goes in comes out, whatever is lost on the way.

mod common;

use std::net::{Ipv4Addr, Ipv6Addr};

use common::pool;
use proptest::prelude::*;
use warmlane_docsis::lower::{Finished, LowerDrop, Segmenter, Tunnel, TunnelAddresses, TunnelError};
use warmlane_docsis::modem::{ModemDrop, Progress, Reassembler};
use warmlane_mem::{Packet, Pool, PoolConfig};
use warmlane_wire::{IpProtocol, MacAddress, ethernet, ipv4, ipv6, l2tpv3};

const V4: TunnelAddresses =
    TunnelAddresses::V4 { source: Ipv4Addr::new(192, 0, 2, 1), destination: Ipv4Addr::new(192, 0, 2, 2) };
const V6: TunnelAddresses = TunnelAddresses::V6 {
    source: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
    destination: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
};

const fn tunnel(addresses: TunnelAddresses, mtu: u16) -> Tunnel {
    Tunnel { source: MacAddress([2; 6]), destination: MacAddress([4; 6]), addresses, dscp: 46, mtu }
}

/// All packets that carry these frames.
fn segmented(segmenter: &mut Segmenter, frames: &[Vec<u8>]) -> Vec<Packet> {
    let mut packets = Vec::new();
    for frame in frames {
        segmenter.push(frame, 0, pool(), |finished| packets.push(finished.packet)).expect("a buffer");
    }
    packets.extend(segmenter.finish().map(|finished| finished.packet));
    packets
}

/// What follows the L2TPv3 header; all before it was checked.
fn payload(packet: &Packet, mtu: u16) -> Vec<u8> {
    let network = &packet.data()[ethernet::HEADER_LENGTH..];
    assert!(network.len() <= usize::from(mtu));
    let message = if network[0] >> 4 == 4 {
        let packet = ipv4::check(network).expect("an IPv4 packet");
        assert_eq!((packet.header.protocol(), packet.header.dscp()), (IpProtocol::L2TP, 46));
        packet.payload
    } else {
        let packet = ipv6::check(network).expect("an IPv6 packet");
        assert_eq!(packet.upper_layer().expect("no extensions").protocol, IpProtocol::L2TP);
        packet.payload
    };
    let (session, rest) = l2tpv3::parse(message).expect("a data message");
    assert_eq!(session, 0x8000_0001);
    rest.to_vec()
}

#[test]
fn tunnels_that_cannot_be_are_named() {
    let error = |tunnel, session, flow| Segmenter::new(&tunnel, session, flow).err();
    assert_eq!(error(tunnel(V4, 1_500), 0, 0), Some(TunnelError::Session));
    assert_eq!(error(tunnel(V4, 1_500), 1, 8), Some(TunnelError::Flow { flow: 8 }));
    assert_eq!(error(tunnel(V4, 1_279), 1, 0), Some(TunnelError::Mtu { mtu: 1_279 }));
}

#[test]
fn packets_are_filled_to_the_mtu() {
    let frames = vec![vec![7; 1_000]; 30];
    for addresses in [V4, V6] {
        let mut segmenter = Segmenter::new(&tunnel(addresses, 1_500), 0x8000_0001, 3).unwrap();
        let packets = segmented(&mut segmenter, &frames);
        let (last, full) = packets.split_last().unwrap();
        assert!(full.iter().all(|packet| packet.len() == ethernet::HEADER_LENGTH + 1_500));
        assert!(last.len() <= ethernet::HEADER_LENGTH + 1_500);
    }
}

#[test]
fn a_frame_without_a_buffer_is_said_to_be_lost() {
    let pool = Pool::new(&PoolConfig { buffers: 1, ..PoolConfig::default() }).unwrap();
    let taken = std::iter::from_fn(|| pool.take()).collect::<Vec<_>>();
    let mut segmenter = Segmenter::new(&tunnel(V4, 1_500), 1, 0).unwrap();
    let nothing = |_: Finished| panic!("nothing is finished");
    assert_eq!(segmenter.push(&[1; 60], 0, &pool, nothing), Err(LowerDrop::NoBuffer));
    drop(taken);
    assert_eq!(segmenter.push(&[1; 60], 5, &pool, nothing), Ok(()));
    assert_eq!(segmenter.waits_since(), Some(5));
}

#[test]
fn lost_repeated_and_late_packets_are_noticed() {
    // Each frame needs a packet and a half.
    let frames: Vec<_> = (0..20_u8).map(|number| vec![number; 2_100]).collect();
    let mut segmenter = Segmenter::new(&tunnel(V4, 1_500), 0x8000_0001, 0).unwrap();
    let packets = segmented(&mut segmenter, &frames);
    let mut reassembler = Reassembler::new();
    let mut came = Vec::new();
    let mut push = |number: usize| {
        let packet = payload(&packets[number], 1_500);
        reassembler.push(&packet, |frame| came.push(frame.to_vec()))
    };
    assert_eq!(push(0), Ok(Progress::default()));
    assert_eq!(push(1), Ok(Progress::default()));
    assert_eq!(push(1), Err(ModemDrop::LatePacket));
    assert_eq!(push(4), Ok(Progress { missing: 2, incomplete: 1 }));
    assert_eq!(push(2), Err(ModemDrop::LatePacket));
    for number in 5..packets.len() {
        assert_eq!(push(number), Ok(Progress::default()));
    }
    assert!(came.iter().all(|frame| frames.contains(frame)));
    assert_eq!((came.first(), came.last()), (frames.first(), frames.last()));
}

#[test]
fn a_frame_that_never_ends_is_given_up() {
    use warmlane_wire::psp;
    let mut reassembler = Reassembler::new();
    let mut total = 0;
    for sequence in 0..10 {
        let packet =
            [&psp::header(0, 1, sequence)[..], &psp::entry(sequence == 0, false, 1_000), &[0; 1_000]]
                .concat();
        total += reassembler.push(&packet, |_| panic!("no frame ends")).unwrap().incomplete;
    }
    assert_eq!(total, 1);
}

proptest! {
    #[test]
    fn frames_come_back_in_order(
        lengths in prop::collection::vec(1..2_200_usize, 1..60),
        mtu in 1_280..2_000_u16,
        is_v4 in any::<bool>(),
        flow in 0..8_u8,
    ) {
        let frames: Vec<Vec<u8>> = lengths.iter().enumerate().map(|(seed, length)| {
            (0..*length).map(|at| (at * 7 + seed) as u8).collect()
        }).collect();
        let addresses = if is_v4 { V4 } else { V6 };
        let mut segmenter = Segmenter::new(&tunnel(addresses, mtu), 0x8000_0001, flow).unwrap();
        let mut reassembler = Reassembler::new();
        let mut came = Vec::new();
        for packet in segmented(&mut segmenter, &frames) {
            let progress = reassembler.push(&payload(&packet, mtu), |frame| came.push(frame.to_vec())).unwrap();
            prop_assert_eq!(progress, Progress::default());
        }
        prop_assert_eq!(came, frames);
    }

    #[test]
    fn what_comes_was_sent_whatever_is_lost(
        lengths in prop::collection::vec(1..2_200_usize, 1..60),
        lost in prop::collection::vec(any::<bool>(), 80),
    ) {
        let frames: Vec<Vec<u8>> =
            lengths.iter().enumerate().map(|(number, length)| vec![number as u8; *length]).collect();
        let mut segmenter = Segmenter::new(&tunnel(V4, 1_500), 0x8000_0001, 0).unwrap();
        let mut reassembler = Reassembler::new();
        let mut came = Vec::new();
        for (packet, lost) in segmented(&mut segmenter, &frames).iter().zip(lost) {
            if !lost {
                reassembler.push(&payload(packet, 1_500), |frame| came.push(frame.to_vec())).unwrap();
            }
        }
        let mut sent = frames.iter();
        prop_assert!(came.iter().all(|frame| sent.any(|sent| sent == frame)), "in order, and whole");
    }
}
