//! Packets that the card cuts.

use super::*;
use warmlane_mem::{Segmentation, SegmentationKind};
use warmlane_port::software_offload::Segments;

/// Flags of TCP (RFC 9293, RFC 3168).
const FIN: u8 = 1;
const PSH: u8 = 8;
const ACK: u8 = 16;
const CWR: u8 = 128;

/// What a packet is like.
#[derive(Clone, Copy, Debug)]
struct Shape {
    payload: usize,
    size: u16,
    flags: u8,
    /// Bytes of options of TCP.
    options: usize,
    is_tagged: bool,
    /// Bytes behind the packet that are none of it.
    padding: usize,
}

const PLAIN: Shape =
    Shape { payload: 20_000, size: 1460, flags: ACK | PSH, options: 0, is_tagged: false, padding: 0 };

impl Shape {
    /// Where the TCP header starts.
    fn transport(self) -> usize {
        34 + 4 * usize::from(self.is_tagged)
    }

    fn bytes(self) -> Vec<u8> {
        let mut frame = contents(7, 12);
        if self.is_tagged {
            frame.extend([0x81, 0, 0, 9]);
        }
        let header = 20 + self.options;
        // Zero if it is too large to be said, as Linux does within one machine.
        let total = u16::try_from(20 + header + self.payload).unwrap_or(0);
        frame.extend([8, 0, 0x45, 0]);
        frame.extend(total.to_be_bytes());
        // Both count over what they can: the number of the packet, and that of its first byte.
        frame.extend([0xff, 0xfe, 0x40, 0, 64, 6, 0xab, 0xcd, 192, 0, 2, 1, 198, 51, 100, 2]);
        frame.extend([0x12, 0x34, 0, 80, 0xff, 0xff, 0xf0, 0, 0, 0, 0, 1]);
        frame.extend([(header << 2) as u8, self.flags, 0x20, 0, 0x11, 0x22, 0, 0]);
        frame.extend(std::iter::repeat_n(1, self.options));
        frame.extend(contents(3, self.payload));
        frame.extend(std::iter::repeat_n(0xee, self.padding));
        frame
    }

    fn packet(self, pool: &Pool) -> Packet {
        let mut packet = packet(pool, &self.bytes());
        packet.set_checksum(Checksum::Partial { start: self.transport() as u16, offset: 16 });
        let congestion = self.flags & CWR != 0;
        packet.set_segmentation(Some(Segmentation {
            kind: SegmentationKind::Tcp4,
            size: self.size,
            congestion,
        }));
        packet
    }

    /// What software makes of it.
    fn segments(self, pool: &Pool) -> Vec<Vec<u8>> {
        let mut segments = Segments::new(self.packet(pool)).ok().unwrap();
        std::iter::from_fn(|| segments.make_next()).map(|segment| bytes(&segment)).collect()
    }
}

/// It takes more descriptors than a ring of 64 has, and its length can't be said in its header.
const HUGE: Shape = Shape { payload: 64 * 2048, ..PLAIN };

fn shapes() -> Vec<Shape> {
    let payloads = [1459, 1460, 1461, 2919, 2920, 2921, 14_601, 65_495 - 12].into_iter();
    let mut shapes: Vec<_> = payloads.map(|payload| Shape { payload, ..PLAIN }).collect();
    shapes.extend([48, 64, 65, 511, 512, 513, 9000].map(|size| Shape { size, payload: 9001, ..PLAIN }));
    let flags = [ACK | FIN | PSH, ACK | CWR | PSH, ACK | CWR | FIN];
    shapes.extend(flags.map(|flags| Shape { flags, ..PLAIN }));
    shapes.extend([12, 40].map(|options| Shape { options, flags: ACK | CWR, ..PLAIN }));
    shapes.push(Shape { is_tagged: true, padding: 5, ..PLAIN });
    // A single segment, and one that says of congestion, with the rest in another.
    shapes.push(Shape { payload: 100, ..PLAIN });
    shapes.push(Shape { payload: 0, flags: ACK | FIN, ..PLAIN });
    shapes.push(Shape { payload: 1461, flags: ACK | CWR, ..PLAIN });
    shapes
}

impl<C: Played> Lab<C> {
    fn send_all(&mut self, packets: impl IntoIterator<Item = Packet>) -> usize {
        let mut burst = Burst::new();
        for packet in packets {
            drop(burst.push(packet));
        }
        self.transmit.transmit(&mut burst)
    }
}

fn long_packets_come_out_as_software_would_cut_them<C: Played>() {
    for data_size in [2048, 512] {
        let mut lab =
            Lab::<C>::with_pool(256, &PoolConfig { buffers: 2048, data_size, ..PoolConfig::default() });
        for shape in shapes() {
            let packet = shape.packet(&lab.pool);
            assert_eq!(lab.send_all([packet]), 1, "{shape:?}");
            let sent = std::mem::take(&mut lab.model.state().sent);
            let expected = shape.segments(&lab.pool);
            assert_eq!(sent.len(), expected.len(), "{shape:?}");
            for (number, (sent, expected)) in sent.iter().zip(&expected).enumerate() {
                assert_eq!(sent, expected, "segment {number} of {shape:?}");
            }
        }
        let cut = shapes().iter().filter(|shape| shape.payload > usize::from(shape.size)).count();
        assert_eq!(lab.model.state().cuts as usize, cut, "what is a single segment is not cut");
        assert_eq!(lab.transmit.counters().packets() as usize, shapes().len());
        assert_eq!(lab.transmit.counters().drops().total(), 0);
        assert_eq!(lab.pool.ledger().outstanding(), 0);
    }
}

fn the_card_is_told_of_a_checksum_again_behind_a_packet_that_it_cuts<C: Played>() {
    let mut lab = Lab::<C>::new(256);
    let short = || {
        let mut packet = packet(&lab.pool, &contents(1, 200));
        packet.set_checksum(Checksum::Partial { start: 34, offset: 16 });
        packet
    };
    let long = || PLAIN.packet(&lab.pool);
    let packets = [short(), short(), long(), long(), short()];
    assert_eq!(lab.send_all(packets), 5);
    let state = lab.model.state();
    assert_eq!((state.sums, state.cuts), (2, 2));
    let segments = PLAIN.segments(&lab.pool);
    assert_eq!(state.sent.len(), 3 + 2 * segments.len());
    assert_eq!(state.sent[2..2 + segments.len()], segments);
    assert_eq!(state.sent.first(), state.sent.last());
}

fn long_packets_wait_until_the_ring_has_space_for_all_of_them<C: Played>() {
    let mut lab = Lab::<C>::new(64);
    lab.model.state().is_stuck = true;
    let long = || Shape { payload: 65_483, ..PLAIN };
    assert_eq!(lab.send(0, &[60; 40]), 40);
    let packet = long().packet(&lab.pool);
    assert_eq!(lab.send_all([packet]), 0);
    lab.model.loosen();
    let packet = long().packet(&lab.pool);
    assert_eq!(lab.send_all([packet]), 1);
    let state = lab.model.state();
    assert_eq!(state.sent[40..], long().segments(&lab.pool));
}

fn small_segments_take_as_few_descriptors_as_large_ones<C: Played>() {
    for size in [48, 1460] {
        let shape = Shape { size, payload: 65_483, ..PLAIN };
        let mut lab = Lab::<C>::new(64);
        let packet = shape.packet(&lab.pool);
        assert_eq!(lab.send_all([packet]), 1);
        assert_eq!(lab.model.tail(Side::Transmit), 1 + 65_537_u32.div_ceil(2048), "{size}");
        assert_eq!(lab.model.state().sent, shape.segments(&lab.pool), "{size}");
        assert_eq!(lab.transmit.counters().drops().total(), 0);
    }
}

fn long_packets_are_not_looked_at_while_there_is_no_space_for_them<C: Played>() {
    let mut lab = Lab::<C>::new(64);
    lab.model.state().is_stuck = true;
    // 20,054 bytes take ten buffers.
    assert_eq!(lab.send(0, &[60; 53]), 53);
    let wrong = || {
        let mut packet = PLAIN.packet(&lab.pool);
        set_kind(&mut packet, SegmentationKind::Udp);
        packet
    };
    let (first, second) = (wrong(), wrong());
    assert_eq!((lab.send_all([first]), lab.dropped("offload-not-done")), (0, 0));
    lab.model.loosen();
    assert_eq!((lab.send_all([second]), lab.dropped("offload-not-done")), (1, 1));
}

fn set_kind(packet: &mut Packet, kind: SegmentationKind) {
    let segmentation = packet.segmentation().unwrap();
    packet.set_segmentation(Some(Segmentation { kind, ..segmentation }));
}

fn what_the_card_cannot_segment_software_does<C: Played>() {
    let small = [(47, 600), (1, 128), (9, 1100)].map(|(size, payload)| Shape { payload, size, ..PLAIN });
    let huge = [HUGE, Shape { size: 9000, flags: ACK | CWR | FIN, ..HUGE }];
    let others: [(Shape, SegmentationKind); 1] = [(PLAIN, SegmentationKind::Tcp6)];
    let all = small.into_iter().chain(huge).map(|shape| (shape, SegmentationKind::Tcp4)).chain(others);
    for (shape, kind) in all {
        let mut lab = Lab::<C>::new(64);
        let mut burst = Burst::new();
        let mut long = shape.packet(&lab.pool);
        set_kind(&mut long, kind);
        for packet in [packet(&lab.pool, &contents(1, 60)), long, packet(&lab.pool, &contents(2, 60))] {
            drop(burst.push(packet));
        }
        while !burst.is_empty() || lab.transmit.is_holding() {
            lab.transmit.transmit(&mut burst);
        }
        let segments = shape.segments(&lab.pool);
        let state = lab.model.state();
        let expected: Vec<_> =
            [contents(1, 60)].into_iter().chain(segments).chain([contents(2, 60)]).collect();
        assert!(state.sent == expected, "{} frames of {shape:?}", state.sent.len());
        assert_eq!((state.cuts, lab.transmit.counters.software.view().segmented()), (0, 1), "{shape:?}");
        let counted = lab.transmit.counters();
        assert_eq!((counted.packets(), counted.drops().total()), (expected.len() as u64, 0), "{shape:?}");
        assert_eq!(counted.bytes() as usize, expected.iter().map(Vec::len).sum::<usize>());
        assert_eq!(lab.pool.ledger().outstanding(), 0);
    }
}

fn segments_of_software_wait_for_space_and_are_counted_if_they_never_get_it<C: Played>() {
    for is_link_lost in [true, false] {
        let mut lab = Lab::<C>::new(64);
        lab.model.state().is_stuck = true;
        let packet = HUGE.packet(&lab.pool);
        assert_eq!(lab.send_all([packet]), 1);
        assert_eq!(lab.send(0, &[60]), 0, "what is behind them waits");
        lab.transmit.flush();
        assert!(lab.transmit.is_holding());
        let (mut left, counted) = (HUGE.segments(&lab.pool).len() - 63, lab.transmit.counters());
        if is_link_lost {
            lab.rings.set_link(false);
            assert_eq!(lab.send(0, &[60]), 1);
            assert!(!lab.transmit.is_holding());
            left += 1;
        } else {
            drop(lab.transmit);
        }
        let reason = if is_link_lost { "not-connected" } else { "unsent" };
        let drops: Vec<_> = counted.drops().iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!((drops.len(), drops[0].0.name, drops[0].1), (1, reason, left as u64));
        assert_eq!(lab.pool.ledger().outstanding(), 0);
    }
}

fn long_packets_that_cannot_be_cut_are_dropped_and_counted<C: Played>() {
    let mut lab = Lab::<C>::new(64);
    let changed = |change: fn(&mut Packet)| {
        let mut packet = PLAIN.packet(&lab.pool);
        change(&mut packet);
        packet
    };
    let packets = [
        changed(|packet| set_kind(packet, SegmentationKind::Udp)),
        // As many segments as nobody makes in earnest.
        Shape { size: 1, payload: 600, ..PLAIN }.packet(&lab.pool),
        // Not where the checksum is said to be; no IPv4; a fragment.
        changed(|packet| packet.set_checksum(Checksum::Partial { start: 54, offset: 16 })),
        changed(|packet| packet.data_mut()[12] = 9),
        changed(|packet| packet.data_mut()[20] = 0x20),
        changed(|packet| packet.set_vlan(Vlan::Insert(VlanTci { control: 7, is_service: false }))),
    ];
    let count = packets.len();
    let (sent, shown) = ShownDrops::during(None, || lab.send_all(packets));
    assert_eq!((sent, lab.dropped("offload-not-done")), (count, count as u64));
    assert_eq!(shown.iter().filter(|(reason, ..)| *reason == "offload-not-done").count(), count);
    let packet = Shape { size: 9200, ..PLAIN }.packet(&lab.pool);
    assert_eq!((lab.send_all([packet]), lab.dropped("too-large")), (1, 1));
    assert!(lab.model.state().sent.is_empty());
    assert_eq!(lab.pool.ledger().outstanding(), 0);
}

fn a_card_that_says_whenever_it_likes_that_it_is_done_breaks_nothing_here<C: Played>() {
    let mut lab = Lab::<C>::new(64);
    lab.model.state().is_stuck = true;
    let (mut sent, mut progress, mut seed) = (0, 0, 0x9e37_79b9_u32);
    for round in 0..2000 {
        for _ in 0..8 {
            // Xorshift (Marsaglia 2003).
            seed ^= seed << 13;
            seed ^= seed >> 17;
            seed ^= seed << 5;
            lab.model.claim(seed % 64);
        }
        let flags = if round % 3 == 0 { ACK | CWR } else { ACK };
        let packet = Shape { payload: 1 + round * 37 % 65_000, flags, ..PLAIN }.packet(&lab.pool);
        sent += lab.send_all([packet]) + lab.send(round, &[60, 4097, 60]);
        let now = lab.progress();
        assert!(now.is_none_or(|now| now >= progress), "{now:?} behind {progress}");
        progress = now.unwrap_or(progress);
        assert_eq!(lab.pool.ledger().outstanding(), 0);
    }
    assert!(sent > 1000, "{sent}: it was believed");
    // Started anew, it sends what it should.
    lab.rings.stop();
    lab.model.state().is_stuck = false;
    lab.start(64);
    let packet = PLAIN.packet(&lab.pool);
    assert_eq!(lab.send_all([packet]), 1);
    assert_eq!(lab.model.state().sent, PLAIN.segments(&lab.pool));
}

on_all_cards! {
    long_packets_come_out_as_software_would_cut_them,
    the_card_is_told_of_a_checksum_again_behind_a_packet_that_it_cuts,
    long_packets_wait_until_the_ring_has_space_for_all_of_them,
    small_segments_take_as_few_descriptors_as_large_ones,
    long_packets_are_not_looked_at_while_there_is_no_space_for_them,
    what_the_card_cannot_segment_software_does,
    segments_of_software_wait_for_space_and_are_counted_if_they_never_get_it,
    long_packets_that_cannot_be_cut_are_dropped_and_counted,
    a_card_that_says_whenever_it_likes_that_it_is_done_breaks_nothing_here,
}
