//! Whatever is done in software gives the bytes that the sender would have put on the wire itself, in the same order.

use super::*;
use crate::queue::{QueueCounters, QueueCountersView, QueueStatus, ReceiveQueue, TransmitQueue};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use warmlane_counters::NoDrops;
use warmlane_mem::{Burst, LayerOffsets, Pool, PoolConfig, Segmentation, VlanTci};
use warmlane_wire::checksum::Sum;
use warmlane_wire::segment::{Cut, MAXIMUM_HEADERS, SuperFrame, Transport};

/// What is left to do for a packet.
#[derive(Clone, Debug)]
struct Shape {
    six: bool,
    tcp: bool,
    /// Bytes of payload in a segment; `None`: it is one.
    size: Option<u16>,
    /// Its checksum is partial.
    partial: bool,
    tag: Option<u16>,
    payload: Vec<u8>,
    /// Where the frame is divided into buffers, in bytes of each.
    pieces: Vec<usize>,
}

impl Shape {
    fn transport(&self) -> usize {
        14 + if self.six { 40 } else { 20 }
    }

    fn checksum_field(&self) -> usize {
        self.transport() + if self.tcp { 16 } else { 6 }
    }

    fn headers(&self) -> usize {
        self.transport() + if self.tcp { 20 } else { 8 }
    }

    /// The frame as the sender would have it without any hardware, checksum right.
    fn whole(&self) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        let length = self.headers() - self.transport() + self.payload.len();
        let protocol = if self.tcp { 6 } else { 17 };
        if self.six {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend((length as u16).to_be_bytes());
            frame.extend([protocol, 64]);
            frame.extend(std::array::from_fn::<u8, 32, _>(|index| index as u8));
        } else {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend(((20 + length) as u16).to_be_bytes());
            frame.extend([0, 7, 0x40, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2]);
            let sum = warmlane_wire::checksum::checksum(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        frame.extend([0x12, 0x34, 0x56, 0x78]);
        if self.tcp {
            frame.extend([0, 0, 0, 1, 0, 0, 0, 9, 0x50, 0x19, 1, 0, 0, 0, 0, 0]);
        } else {
            frame.extend((length as u16).to_be_bytes());
            frame.extend([0, 0]);
        }
        frame.extend(&self.payload);
        let sum = self.pseudo(&frame).bytes(&frame[self.transport()..]).checksum();
        let field = self.checksum_field();
        // All ones are "zero" in UDP (RFC 768), and the wrong zero in TCP.
        let sum = if sum == 0 && !self.tcp { 0xffff } else { sum };
        frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        frame
    }

    fn pseudo(&self, frame: &[u8]) -> Sum {
        let addresses = if self.six { &frame[22..54] } else { &frame[26..34] };
        let length = (frame.len() - self.transport()) as u16;
        Sum::new().bytes(addresses).word(length).word(if self.tcp { 6 } else { 17 })
    }

    /// What is on the wire in the end.
    fn expected(&self) -> Vec<Vec<u8>> {
        let whole = self.whole();
        let mut frames = match self.size {
            None => vec![whole],
            Some(size) => {
                let transport = if self.tcp { Transport::Tcp } else { Transport::Udp };
                let cut = Cut { transport, size, checksum_start: None, tunnel: None };
                let plan = SuperFrame::parse(&whole, whole.len(), cut).unwrap();
                let mut headers = [0; MAXIMUM_HEADERS];
                let mut segment = |index| {
                    let payload = &whole[plan.payload(index)];
                    let sum = Sum::new().bytes(payload);
                    [plan.write_headers(&whole, index, sum, &mut headers), payload].concat()
                };
                (0..plan.count()).map(&mut segment).collect()
            }
        };
        for frame in &mut frames {
            if let Some(tag) = self.tag {
                let [a, b] = tag.to_be_bytes();
                frame.splice(12..12, [0x81, 0, a, b]);
            }
        }
        frames
    }

    fn packet(&self, pool: &Pool) -> Packet {
        let mut frame = self.whole();
        if self.partial {
            let field = self.checksum_field();
            let sum = !self.pseudo(&frame).checksum();
            frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        }
        let mut rest = &frame[..];
        let mut take = |count: usize| {
            let (now, later) = rest.split_at(count.min(rest.len()));
            rest = later;
            let mut packet = pool.take().unwrap();
            packet.fill(now).unwrap();
            packet
        };
        let mut packet = take(100 + self.pieces.first().copied().unwrap_or(0).min(100));
        for &piece in self.pieces.iter().cycle() {
            let next = take(piece);
            if next.is_empty() {
                break;
            }
            packet.chain(next).unwrap();
        }
        if self.partial {
            let offset = (self.checksum_field() - self.transport()) as u8;
            packet.set_checksum(Checksum::Partial { start: self.transport() as u16, offset });
        }
        if let Some(size) = self.size {
            let kind = match (self.tcp, self.six) {
                (true, false) => SegmentationKind::Tcp4,
                (true, true) => SegmentationKind::Tcp6,
                (false, _) => SegmentationKind::Udp,
            };
            packet.set_segmentation(Some(Segmentation { kind, size, congestion: false }));
            packet.set_layer_offsets(LayerOffsets {
                l3: 14,
                l4: self.transport() as u16,
                payload: self.headers() as u16,
                ..LayerOffsets::default()
            });
        }
        if let Some(control) = self.tag {
            packet.set_vlan(Vlan::Insert(VlanTci { control, is_service: false }));
        }
        packet.set_timestamp(77);
        packet
    }
}

fn shapes() -> impl Strategy<Value = Shape> {
    let kind = (any::<bool>(), any::<bool>(), any::<bool>());
    let payload = prop_oneof![
        3 => prop::collection::vec(any::<u8>(), 1..300),
        1 => prop::collection::vec(any::<u8>(), 300..4000)
    ];
    let pieces = prop::collection::vec(20..200_usize, 1..6);
    (kind, prop::option::of(48..700_u16), prop::option::of(0..4096_u16), payload, pieces).prop_map(
        |((six, tcp, partial), size, tag, payload, pieces)| {
            let size = size.filter(|&size| payload.len() > usize::from(size));
            Shape { six, tcp, size, partial, tag, payload, pieces }
        },
    )
}

/// Takes as many packets a call as it is told, in turn, and keeps their bytes.
struct Sink {
    takes: VecDeque<usize>,
    seen: Arc<Mutex<Vec<Vec<u8>>>>,
    offloads: TransmitOffloads,
    /// Whether they could be others later.
    change: bool,
    counters: QueueCounters<NoDrops>,
}

impl TransmitQueue for Sink {
    fn transmit(&mut self, burst: &mut Burst) -> usize {
        let takes = self.takes.pop_front().unwrap_or(256).min(burst.len());
        for packet in &burst[..takes] {
            self.seen.lock().unwrap().push(packet.segment_data().flatten().copied().collect());
        }
        burst.free_front(takes);
        self.counters.packets().add(takes as u64);
        takes
    }

    fn offloads(&self) -> TransmitOffloads {
        self.offloads
    }

    fn offloads_change(&self) -> bool {
        self.change
    }

    fn status(&self) -> QueueStatus {
        QueueStatus::Running
    }

    fn counters(&self) -> QueueCountersView {
        self.counters.view()
    }
}

struct Source(VecDeque<Packet>);

impl ReceiveQueue for Source {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        let before = burst.len();
        while burst.space() > 0
            && let Some(packet) = self.0.pop_front()
        {
            burst.push(packet).unwrap();
        }
        burst.len() - before
    }

    fn leaves(&self) -> TransmitOffloads {
        TransmitOffloads::ALL
    }

    fn status(&self) -> QueueStatus {
        if self.0.is_empty() { QueueStatus::Finished } else { QueueStatus::Running }
    }

    fn counters(&self) -> QueueCountersView {
        QueueCounters::<NoDrops>::new().view()
    }
}

fn pool(buffers: u32) -> Pool {
    Pool::new(&PoolConfig { buffers, data_size: 200, magazine: Some(8), ..PoolConfig::default() }).unwrap()
}

fn sink(takes: &[usize], offloads: TransmitOffloads) -> (Sink, Arc<Mutex<Vec<Vec<u8>>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let counters = QueueCounters::new();
    (
        Sink {
            takes: takes.iter().copied().collect(),
            seen: Arc::clone(&seen),
            offloads,
            change: false,
            counters,
        },
        seen,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn what_is_transmitted_is_what_the_sender_meant(
        shapes in prop::collection::vec(shapes(), 1..12),
        takes in prop::collection::vec(0..9_usize, 0..40),
        burst_size in 1..12_usize,
    ) {
        let pool = pool(4096);
        let (queue, seen) = sink(&takes, TransmitOffloads::NONE);
        let mut queue = on_transmit(Box::new(queue), TransmitOffloads::ALL);
        for shapes in shapes.chunks(burst_size) {
            let mut burst = Burst::new();
            for shape in shapes {
                burst.push(shape.packet(&pool)).unwrap();
            }
            while !burst.is_empty() {
                queue.transmit(&mut burst);
            }
        }
        while queue.is_holding() {
            queue.flush();
        }
        let expected: Vec<_> = shapes.iter().flat_map(Shape::expected).collect();
        prop_assert_eq!(&*seen.lock().unwrap(), &expected);
        prop_assert_eq!(queue.counters().drops().total(), 0);
        prop_assert_eq!(queue.counters().packets(), expected.len() as u64);
        drop(queue);
        prop_assert_eq!(pool.ledger().outstanding(), 0);
    }

    #[test]
    fn what_is_received_is_what_the_sender_meant(
        shapes in prop::collection::vec(shapes(), 1..12),
        limits in prop::collection::vec(1..20_usize, 1..10),
    ) {
        let pool = pool(4096);
        let packets = shapes.iter().map(|shape| shape.packet(&pool)).collect();
        let mut queue = on_receive(Box::new(Source(packets)), TransmitOffloads::ALL);
        let mut seen = Vec::<Vec<u8>>::new();
        for &limit in limits.iter().cycle() {
            let mut burst = Burst::with_limit(limit);
            let count = queue.receive(&mut burst);
            prop_assert_eq!(count, burst.len());
            for packet in burst.iter() {
                prop_assert!(!packet.has_work_left());
                prop_assert_eq!(packet.timestamp(), 77);
                seen.push(packet.segment_data().flatten().copied().collect());
            }
            if queue.status() == QueueStatus::Finished {
                break;
            }
            prop_assert!(count > 0);
        }
        let expected: Vec<_> = shapes.iter().flat_map(Shape::expected).collect();
        prop_assert_eq!(&seen, &expected);
        drop(queue);
        prop_assert_eq!(pool.ledger().outstanding(), 0);
    }
}

fn shape(size: Option<u16>, length: usize) -> Shape {
    let payload = vec![9; length];
    Shape { six: false, tcp: true, size, partial: true, tag: None, payload, pieces: vec![150] }
}

fn one(packet: Packet) -> Burst {
    let mut burst = Burst::new();
    burst.push(packet).unwrap();
    burst
}

#[test]
fn what_the_queue_does_itself_is_left_to_it() {
    let pool = pool(256);
    let (queue, seen) = sink(&[], TransmitOffloads::NO_TUNNEL);
    let mut queue = on_transmit(Box::new(queue), TransmitOffloads::ALL);
    assert_eq!(queue.offloads(), TransmitOffloads::ALL);
    let tagged = Shape { tag: Some(5), ..shape(Some(100), 1000) };
    queue.transmit(&mut one(tagged.packet(&pool)));
    let seen = seen.lock().unwrap();
    assert_eq!((seen.len(), seen[0].len()), (1, 54 + 4 + 1000));
    assert_eq!(seen[0][12..18], [0x81, 0, 0, 5, 8, 0]);
}

#[test]
fn without_anything_to_do_there_is_nothing_in_between() {
    let (queue, _) = sink(&[], TransmitOffloads::NO_TUNNEL);
    let queue: Box<dyn TransmitQueue> = Box::new(queue);
    let address = std::ptr::from_ref(&*queue).cast::<u8>();
    let same = on_transmit(queue, TransmitOffloads::NO_TUNNEL);
    assert_eq!(address, std::ptr::from_ref(&*same).cast::<u8>());
    let queue: Box<dyn ReceiveQueue> = Box::new(Source(VecDeque::new()));
    let address = std::ptr::from_ref(&*queue).cast::<u8>();
    let same = on_receive(queue, TransmitOffloads::NONE);
    assert_eq!(address, std::ptr::from_ref(&*same).cast::<u8>());
}

#[test]
fn a_queue_whose_offloads_change_says_so_from_behind() {
    let (queue, _) = sink(&[], TransmitOffloads::NO_TUNNEL);
    let queue = Sink { change: true, ..queue };
    let queue = on_transmit(Box::new(queue), TransmitOffloads::NO_TUNNEL);
    assert!(queue.offloads_change());
    let (queue, _) = sink(&[], TransmitOffloads::NONE);
    assert!(!on_transmit(Box::new(queue), TransmitOffloads::ALL).offloads_change());
}

#[test]
fn what_can_not_be_done_is_a_counted_drop_and_the_rest_goes_on() {
    let pool = pool(256);
    let (queue, seen) = sink(&[], TransmitOffloads::NONE);
    let mut queue = on_transmit(Box::new(queue), TransmitOffloads::ALL);
    let good = shape(None, 100);
    let mut burst = one(good.packet(&pool));
    let mut beyond = good.packet(&pool);
    beyond.set_checksum(Checksum::Partial { start: 34, offset: 255 });
    burst.push(beyond).unwrap();
    let mut tiny = shape(Some(100), 1000).packet(&pool);
    tiny.set_segmentation(tiny.segmentation().map(|segmentation| Segmentation { size: 1, ..segmentation }));
    burst.push(tiny).unwrap();
    let mut tagged = Shape { tag: Some(1), ..good.clone() }.packet(&pool);
    tagged.prepend(tagged.headroom()).unwrap();
    burst.push(tagged).unwrap();
    burst.push(good.packet(&pool)).unwrap();
    assert_eq!(queue.transmit(&mut burst), 5);
    assert_eq!(*seen.lock().unwrap(), [good.expected(), good.expected()].concat());
    let counters = queue.counters();
    for reason in [SoftwareDrop::ChecksumUnknown, SoftwareDrop::GsoUnknown, SoftwareDrop::NoHeadroom] {
        assert_eq!(counters.drops().get(reason), 1, "{reason:?}");
    }
}

#[test]
fn a_pool_that_has_no_buffers_is_waited_for_but_not_for_ever() {
    let (pool, shape) = (pool(16), shape(Some(100), 1000));
    let packet = || {
        let mut packet = shape.packet(&pool);
        packet.set_timestamp(0);
        packet
    };
    for comes_back in [true, false] {
        let (queue, seen) = sink(&[], TransmitOffloads::NONE);
        let mut queue = on_transmit(Box::new(queue), TransmitOffloads::ALL);
        let mut burst = one(packet());
        let mut all: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(queue.transmit(&mut burst), 1);
        assert!(seen.lock().unwrap().is_empty() && queue.is_holding());
        if comes_back {
            all.truncate(2);
        }
        for _ in 0..MAXIMUM_ATTEMPTS {
            queue.flush();
        }
        assert!(!queue.is_holding());
        assert_eq!(seen.lock().unwrap().len(), if comes_back { 10 } else { 0 });
        let lost = queue.counters().drops().get(SoftwareDrop::NoBuffer);
        assert_eq!(lost, if comes_back { 0 } else { 10 });
    }
    assert_eq!(pool.ledger().outstanding(), 0);
}

#[test]
fn what_never_leaves_is_counted_at_the_end() {
    let pool = pool(256);
    let (queue, _) = sink(&[3, 0, 0, 0, 0], TransmitOffloads::NONE);
    let mut queue = on_transmit(Box::new(queue), TransmitOffloads::ALL);
    let mut burst = one(shape(Some(100), 1000).packet(&pool));
    burst.push(shape(None, 100).packet(&pool)).unwrap();
    assert_eq!(queue.transmit(&mut burst), 1);
    let counters = queue.counters();
    drop(queue);
    assert_eq!((counters.packets(), counters.drops().get(SoftwareDrop::Unsent)), (3, 7));
}

#[test]
fn a_completed_checksum_is_the_right_one_of_the_two_zeros() {
    let pool = pool(8);
    // In UDP, zero means that there is none.
    for (offset, expected) in [(6, [0xff, 0xff]), (16, [0, 0])] {
        let mut packet = pool.take().unwrap();
        packet.fill(&[0xff; 18]).unwrap();
        packet.set_checksum(Checksum::Partial { start: 0, offset });
        complete_checksum(&mut packet).unwrap();
        let field = usize::from(offset);
        assert_eq!(packet.data()[field..field + 2], expected, "{offset}");
        assert_eq!(packet.checksum(), Checksum::Good);
    }
}
