//! What is known of a packet besides its bytes: it is kept wherever the packet goes, and forgotten with its contents.

use crate::common::{Everything, pool, take_all};
use proptest::prelude::*;
use warmlane_mem::{
    Burst, Checksum, Cursor, FlowHash, Frames, HashKind, InnerChecksum, LayerOffsets, Packet, Pool, PoolKind,
    Segmentation, SegmentationKind, Vlan, VlanTci, channel,
};

fn known_packet(pool: &Pool) -> Packet {
    let mut packet = pool.take().expect("a buffer");
    packet.fill(&[7; 200]).expect("fits");
    packet.set_port(9);
    packet.set_timestamp(1_000);
    Everything::SAMPLE.put(&mut packet);
    packet
}

#[test]
fn each_fact_is_kept_beside_all_others() {
    let pool = pool(PoolKind::Depot, 1);
    let tag = |control, is_service| VlanTci { control, is_service };
    let cut = |kind, congestion| Some(Segmentation { kind, size: u16::MAX, congestion });
    let hash = |kind| Some(FlowHash { kind, value: 5 });
    let sample = || Everything::SAMPLE;
    let facts = [
        Everything { checksum: Checksum::Unknown, ..sample() },
        Everything { checksum: Checksum::Good, ..sample() },
        Everything { checksum: Checksum::Bad, ..sample() },
        Everything { inner_checksum: InnerChecksum::Unknown, ..sample() },
        Everything { inner_checksum: InnerChecksum::Good, ..sample() },
        Everything { segmentation: None, ..sample() },
        Everything { segmentation: cut(SegmentationKind::Tcp4, false), ..sample() },
        Everything { segmentation: cut(SegmentationKind::Tcp6, true), ..sample() },
        Everything { vlan: Vlan::None, ..sample() },
        Everything { vlan: Vlan::Stripped(tag(1, false)), ..sample() },
        Everything { vlan: Vlan::Insert(tag(u16::MAX, false)), ..sample() },
        Everything { flow_hash: None, ..sample() },
        Everything { flow_hash: hash(HashKind::Toeplitz), ..sample() },
        Everything { flow_hash: hash(HashKind::ToeplitzAddresses), ..sample() },
        Everything { flow_hash: hash(HashKind::Device), ..sample() },
        Everything { mark: 0, ..sample() },
        Everything { layers: LayerOffsets::default(), ..sample() },
    ];
    for expected in facts {
        let mut packet = known_packet(&pool);
        let text = format!("{expected:?}");
        expected.put(&mut packet);
        assert_eq!(format!("{:?}", Everything::of(&packet)), text);
        assert_eq!((packet.port(), packet.timestamp(), packet.packet_length()), (9, 1_000, 200));
    }
}

/// Each of them by itself, and nothing else.
#[test]
fn checksums_tags_and_segmentation_are_offloads() {
    let pool = pool(PoolKind::Depot, 1);
    let has_offloads = |change: &dyn Fn(&mut Packet)| {
        let mut packet = pool.take().expect("a buffer");
        packet.fill(&[7; 200]).expect("fits");
        change(&mut packet);
        packet.has_offloads()
    };
    let tag = VlanTci { control: 1, is_service: false };
    let cut = Segmentation { kind: SegmentationKind::Tcp4, size: 100, congestion: false };
    assert!(has_offloads(&|packet| packet.set_checksum(Checksum::Good)));
    assert!(has_offloads(&|packet| packet.set_checksum(Checksum::Partial { start: 34, offset: 6 })));
    assert!(has_offloads(&|packet| packet.set_inner_checksum(InnerChecksum::Good)));
    assert!(has_offloads(&|packet| packet.set_vlan(Vlan::Stripped(tag))));
    assert!(has_offloads(&|packet| packet.set_segmentation(Some(cut))));
    assert!(!has_offloads(&|_| ()));
    assert!(!has_offloads(&|packet| {
        packet.set_flow_hash(Some(FlowHash { kind: HashKind::Device, value: 5 }));
        packet.set_mark(7);
        packet.set_layer_offsets(LayerOffsets { l3: 14, l4: 34, payload: 42, ..LayerOffsets::default() });
    }));
}

#[test]
fn nothing_is_known_of_a_packet_just_taken_whatever_was_of_the_last() {
    let pool = pool(PoolKind::Depot, 4);
    let mut frames = Frames::new();
    frames.push(&[1; 60]).expect("few frames");
    let lanes = [None, Some(pool.attach().expect("first attachment"))];
    for lane in lanes {
        for copies in [false, true] {
            let packets: Vec<_> = (0..4).map(|_| known_packet(&pool)).collect();
            drop(packets);
            let mut burst = Burst::new();
            if copies {
                pool.take_copies(&mut burst, &frames, &mut Cursor::default(), 4);
            } else {
                pool.take_burst(&mut burst, 4);
            }
            assert_eq!(burst.len(), 4);
            for packet in &*burst {
                assert_eq!(Everything::of(packet), Everything::default());
                assert_eq!((packet.port(), packet.timestamp()), (0, 0));
            }
        }
        drop(lane);
    }
}

#[test]
fn other_contents_are_not_what_was_known() {
    let pool = pool(PoolKind::Depot, 2);
    let mut packet = known_packet(&pool);
    packet.fill(b"another").expect("fits");
    let marked = Everything { mark: Everything::SAMPLE.mark, ..Everything::default() };
    assert_eq!(Everything::of(&packet), marked);
    assert_eq!((packet.port(), packet.timestamp(), packet.data()), (9, 1_000, &b"another"[..]));
    // What does not fit changes nothing.
    Everything::SAMPLE.put(&mut packet);
    assert!(packet.fill(&[0; 3_000]).is_err());
    assert_eq!(Everything::of(&packet), Everything::SAMPLE);
}

#[test]
fn it_travels_with_the_packet() {
    let pool = pool(PoolKind::Depot, 8);
    let (mut sender, mut receiver) = channel(8).expect("a power of two");
    let mut burst = Burst::new();
    burst.push(known_packet(&pool)).expect("space");
    sender.send(&mut burst);
    receiver.receive(&mut burst);
    let shared = burst.pop().expect("received").share();
    let other = shared.clone();
    assert_eq!(Everything::of(&other), Everything::SAMPLE);
    drop(other);
    let mut packet = shared.try_into_packet().expect("the last");
    packet.chain(pool.take().expect("a buffer")).expect("two segments");
    packet.truncate(100);
    assert_eq!(Everything::of(&packet), Everything::SAMPLE);
    packet.prepend(4).expect("headroom");
    packet.trim_front(4).expect("four bytes");
    assert_eq!(Everything::of(&packet), Everything::SAMPLE);
    drop(packet);
    assert_eq!(take_all(&pool).len(), 8);
}

proptest! {
    #[test]
    fn layers_are_kept_or_unknown_from_the_first_that_cannot_be(
        l3 in 0_u16..300, header in 0_u16..300, tunnel in 0_u16..300, inner in 0_u16..300, transport in 0_u16..100,
        in_tunnel: bool, whole: bool,
    ) {
        let whole_words = |length: u16| if whole { length / 4 * 4 } else { length };
        let l4 = l3 + whole_words(header);
        let (inner_l3, inner_l4) = if in_tunnel { (l4 + tunnel, l4 + tunnel + whole_words(inner)) } else { (0, 0) };
        let payload = l4.max(inner_l4) + whole_words(transport);
        let layers = LayerOffsets { l3, l4, inner_l3, inner_l4, payload };
        let pool = pool(PoolKind::Depot, 1);
        let mut packet = known_packet(&pool);
        packet.set_layer_offsets(layers);
        let kept = packet.layer_offsets();
        let pairs = [
            (kept.l3, l3), (kept.l4, l4), (kept.inner_l3, inner_l3), (kept.inner_l4, inner_l4), (kept.payload, payload),
        ];
        let mut is_known = true;
        for (number, (kept, given)) in pairs.into_iter().enumerate() {
            prop_assert!(kept == given || kept == 0, "{layers:?}");
            let is_absent = !in_tunnel && (number == 2 || number == 3);
            if !is_absent {
                prop_assert!(is_known || kept == 0, "{layers:?}");
                is_known = kept != 0;
            }
        }
        let fits = |length: u16, most: u16| (1..=most).contains(&length) && length.is_multiple_of(4);
        let all = (1..256).contains(&l3)
            && fits(l4 - l3, 252)
            && (!in_tunnel || tunnel < 256 && fits(inner_l4 - inner_l3, 252))
            && fits(payload - l4.max(inner_l4), 60);
        prop_assert_eq!(kept == layers, all, "{:?}", layers);
        packet.set_l3_offset(30);
        prop_assert_eq!(packet.layer_offsets().l4, if kept.l4 == 0 { 0 } else { kept.l4 - l3 + 30 });
        prop_assert_eq!(Everything::of(&packet).flow_hash, Everything::SAMPLE.flow_hash);
    }
}
