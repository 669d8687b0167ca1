//! Merged and cut again, packets are the frames that came, in the order of each flow.

use std::collections::HashMap;

use proptest::prelude::*;
use warmlane_mem::{Pool, PoolConfig, Vlan, VlanTci};
use warmlane_wire::{
    Frame, Ipv4Fields, Ipv6Fields, MacAddress, TcpFields, TcpFlags, VlanTag, geneve, udp, vxlan,
};

use super::*;
use crate::queue::{QueueCounters, QueueCountersView, QueueStatus};
use crate::software_offload::Segments;

/// Which flow a frame is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Flow {
    Tcp4(u16),
    Tcp6,
    Udp4,
    Udp6,
    Tagged,
    /// Packets that must not be cut, and have no identification.
    Unnumbered,
    /// In tunnels.
    Vxlan,
    VxlanOver6,
    Geneve,
}

const FLOWS: [Flow; 9] = [
    Flow::Tcp4(1),
    Flow::Tcp6,
    Flow::Udp4,
    Flow::Udp6,
    Flow::Tagged,
    Flow::Unnumbered,
    Flow::Vxlan,
    Flow::VxlanOver6,
    Flow::Geneve,
];

impl Flow {
    /// Bytes in front of the frame in a tunnel.
    fn inside(self) -> usize {
        match self {
            Self::Vxlan => 50,
            Self::VxlanOver6 => 74,
            Self::Geneve => 58,
            _ => 0,
        }
    }
}

/// What is special about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Special {
    Nothing,
    /// TCP's flags.
    Flags(TcpFlags),
    /// Bytes are missing before it.
    Gap,
    WrongChecksum,
    WrongHeaderChecksum,
    Ttl,
    TrafficClass,
    Acknowledgement,
    Window,
    Options,
    Identification,
    Fragment,
    Padding,
    /// Kept beside the packet.
    Tag,
    /// Around a frame in a tunnel.
    Around(Outside),
}

/// What can be special about a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outside {
    Ttl,
    Identification,
    Identifier,
    WrongChecksum,
    NoChecksum,
    Length,
}
const OUTSIDES: [Outside; 6] = [
    Outside::Ttl,
    Outside::Identification,
    Outside::Identifier,
    Outside::WrongChecksum,
    Outside::NoChecksum,
    Outside::Length,
];

#[derive(Clone, Copy, Debug)]
struct Event {
    flow: Flow,
    /// Bytes of payload.
    length: u16,
    special: Special,
    /// Bytes of payload in the first buffer, if there are two.
    split: Option<u16>,
    /// What is known of its checksum.
    is_checked: bool,
}

/// With any of these, a frame isn't put behind another one.
const ODD: [Special; 17] = [
    Special::Gap,
    Special::WrongChecksum,
    Special::WrongHeaderChecksum,
    Special::Ttl,
    Special::TrafficClass,
    Special::Acknowledgement,
    Special::Window,
    Special::Options,
    Special::Identification,
    Special::Fragment,
    Special::Padding,
    Special::Tag,
    Special::Flags(TcpFlags::SYN),
    Special::Flags(TcpFlags::RST),
    Special::Flags(TcpFlags::URG),
    Special::Flags(TcpFlags::ECE),
    Special::Flags(TcpFlags::CWR),
];

/// A host's state of a flow.
#[derive(Clone, Copy, Debug)]
struct Sender {
    sequence: u32,
    identification: u16,
}

impl Sender {
    const NEW: Self = Self { sequence: 0, identification: 1 };
}

const NOW: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 7];
const LATER: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 10, 0, 0, 0, 7];

impl Event {
    fn frame(&self, sender: &mut Sender, seed: u8) -> Vec<u8> {
        let is = |special| self.special == special;
        if is(Special::Gap) {
            sender.sequence = sender.sequence.wrapping_add(100);
        }
        if is(Special::Identification) {
            sender.identification = sender.identification.wrapping_add(9);
        }
        let payload: Vec<u8> =
            (0..self.length).map(|at| (at as u8).wrapping_mul(7).wrapping_add(seed)).collect();
        let class = u8::from(is(Special::TrafficClass));
        let ttl = if is(Special::Ttl) { 9 } else { 64 };
        let v4 = Ipv4Fields {
            identification: if self.flow == Flow::Unnumbered { 0 } else { sender.identification },
            ttl,
            traffic_class: class,
            more_fragments: is(Special::Fragment),
            dont_fragment: !is(Special::Fragment),
            ..Ipv4Fields::new([192, 0, 2, 1].into(), [198, 51, 100, 2].into())
        };
        let v6 = Ipv6Fields {
            hop_limit: ttl,
            traffic_class: class,
            ..Ipv6Fields::new("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap())
        };
        let flags = if let Special::Flags(flags) = self.special { flags } else { TcpFlags(0) };
        let tcp = |port| TcpFields {
            sequence: sender.sequence,
            acknowledgement: u32::from(is(Special::Acknowledgement)),
            flags: TcpFlags(TcpFlags::ACK.0 | flags.0),
            window: if is(Special::Window) { 5 } else { 9 },
            options: if is(Special::Options) { &LATER } else { &NOW },
            ..TcpFields::new(port, 80)
        };
        let link = Frame::new().ethernet(MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2]));
        let frame = match self.flow {
            Flow::Tcp4(port) => link.ipv4(v4).tcp(tcp(port)),
            Flow::Tcp6 => link.ipv6(v6).tcp(tcp(9)),
            Flow::Udp4 | Flow::Geneve => link.ipv4(v4).udp(7, 53),
            Flow::Udp6 => link.ipv6(v6).udp(7, 53),
            Flow::Unnumbered => link.ipv4(v4).tcp(tcp(11)),
            Flow::Vxlan => link.ipv4(v4).tcp(tcp(12)),
            Flow::VxlanOver6 => link.ipv6(v6).tcp(tcp(12)),
            Flow::Tagged => link.vlan(VlanTag::customer(5)).ipv4(v4).tcp(tcp(10)),
        };
        let mut frame = frame.payload(&payload).to_vec().unwrap();
        if is(Special::WrongChecksum) {
            *frame.last_mut().unwrap() ^= 1;
        }
        if is(Special::WrongHeaderChecksum) {
            // The identification, or the flow label of IPv6.
            frame[if self.flow == Flow::Tagged { 22 } else { 18 }] ^= 0x40;
        }
        if is(Special::Padding) {
            frame.extend([0; 4]);
        }
        let frame = self.encapsulated(frame, sender.identification);
        let synchronised = u32::from(flags.0 & (TcpFlags::FIN.0 | TcpFlags::SYN.0) != 0);
        sender.sequence = sender.sequence.wrapping_add(u32::from(self.length) + synchronised);
        sender.identification = sender.identification.wrapping_add(1);
        frame
    }

    /// What that is in its tunnel.
    fn encapsulated(&self, frame: Vec<u8>, identification: u16) -> Vec<u8> {
        let is = |outside| self.special == Special::Around(outside);
        let (port, header) = match self.flow {
            Flow::Vxlan | Flow::VxlanOver6 => {
                (vxlan::PORT, vxlan::header(7 + u32::from(is(Outside::Identifier))).to_vec())
            }
            Flow::Geneve => {
                let [_, rest @ ..] = geneve::header(7 + u32::from(is(Outside::Identifier)));
                (geneve::PORT, [&[2][..], &rest, &[1, 2, 3, 1, 4, 4, 4, 4]].concat())
            }
            _ => return frame,
        };
        let ttl = if is(Outside::Ttl) { 63 } else { 64 };
        let link = Frame::new().ethernet(MacAddress([2, 0, 0, 0, 0, 3]), MacAddress([2, 0, 0, 0, 0, 4]));
        let network = if self.flow == Flow::VxlanOver6 {
            let ends = ["2001:db8::3", "2001:db8::4"].map(|end| end.parse().unwrap());
            link.ipv6(Ipv6Fields { hop_limit: ttl, ..Ipv6Fields::new(ends[0], ends[1]) })
        } else {
            // Those of the one are numbered, those of the other are not.
            let is_numbered = self.flow == Flow::Geneve;
            let identification = identification.wrapping_add(u16::from(is(Outside::Identification)));
            link.ipv4(Ipv4Fields {
                ttl,
                identification: if is_numbered { identification } else { 0 },
                dont_fragment: !is_numbered,
                ..Ipv4Fields::new([203, 0, 113, 1].into(), [203, 0, 113, 2].into())
            })
        };
        let mut whole = network.udp(50_000, port).payload(&[header, frame].concat()).to_vec().unwrap();
        let datagram = if self.flow == Flow::VxlanOver6 { 54 } else { 34 };
        let field = datagram + udp::CHECKSUM_OFFSET;
        if self.flow == Flow::Vxlan {
            whole[field..field + 2].fill(0);
        }
        if is(Outside::WrongChecksum) {
            whole[field] ^= 1;
        }
        if is(Outside::NoChecksum) {
            whole[field..field + 2].fill(u8::from(self.flow == Flow::Vxlan));
        }
        if is(Outside::Length) {
            whole[datagram + 5] ^= 1;
        }
        whole
    }

    fn packet(&self, pool: &Pool, frame: &[u8]) -> Packet {
        let mut packet = pool.take().unwrap();
        let least = 90 + self.flow.inside();
        let front = self.split.map_or(frame.len(), |bytes| (least + usize::from(bytes)).min(frame.len()));
        packet.fill(&frame[..front]).unwrap();
        if front < frame.len() {
            let mut rest = pool.take().unwrap();
            rest.fill(&frame[front..]).unwrap();
            packet.chain(rest).unwrap();
        }
        if self.is_checked {
            let is_wrong = self.special == Special::WrongChecksum;
            let is_wrong_outside = self.special == Special::Around(Outside::WrongChecksum);
            if self.flow.inside() == 0 {
                packet.set_checksum(if is_wrong { Checksum::Bad } else { Checksum::Good });
            } else {
                packet.set_checksum(if is_wrong_outside { Checksum::Bad } else { Checksum::Good });
                let inner = if is_wrong { InnerChecksum::Bad } else { InnerChecksum::Good };
                packet.set_inner_checksum(inner);
            }
        }
        if self.special == Special::Tag {
            packet.set_vlan(Vlan::Stripped(VlanTci { control: 7, is_service: false }));
        }
        packet
    }
}

/// What `events` are merged to: packets, and the frames that came by flow.
fn merge(pool: &Pool, events: &[Event]) -> (Burst, HashMap<Flow, Vec<Vec<u8>>>) {
    let (mut senders, mut came) = (HashMap::<Flow, Sender>::new(), HashMap::<Flow, Vec<Vec<u8>>>::new());
    let mut from = Burst::with_limit(BURST_CAPACITY);
    for (number, event) in events.iter().enumerate() {
        let frame = event.frame(senders.entry(event.flow).or_insert(Sender::NEW), number as u8);
        from.push(event.packet(pool, &frame)).unwrap();
        came.entry(event.flow).or_default().push(frame);
    }
    let mut burst = Burst::with_limit(BURST_CAPACITY);
    let merged = Merger::new().merge(&mut from, &mut burst);
    assert_eq!(burst.len() + merged, events.len());
    (burst, came)
}

/// The frames that a packet is on a wire.
fn cut(packet: Packet) -> Vec<Vec<u8>> {
    let bytes = |packet: &Packet| packet.segment_data().flatten().copied().collect::<Vec<u8>>();
    if packet.segmentation().is_none() {
        return vec![bytes(&packet)];
    }
    let mut segments = Segments::new(packet).expect("what was merged can be cut");
    std::iter::from_fn(|| segments.make_next()).map(|segment| bytes(&segment)).collect()
}

/// The flow of a frame, as far as the tests have such.
fn flow_of(frame: &[u8]) -> Flow {
    match (frame[12], frame[13], frame[23], frame[20]) {
        (0x81, ..) => Flow::Tagged,
        (8, _, 6, _) => match u16::from_be_bytes([frame[34], frame[35]]) {
            11 => Flow::Unnumbered,
            port => Flow::Tcp4(port),
        },
        (8, ..) => match u16::from_be_bytes([frame[36], frame[37]]) {
            vxlan::PORT => Flow::Vxlan,
            geneve::PORT => Flow::Geneve,
            _ => Flow::Udp4,
        },
        (.., 6) => Flow::Tcp6,
        _ if frame[56..58] == vxlan::PORT.to_be_bytes() => Flow::VxlanOver6,
        _ => Flow::Udp6,
    }
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let flow = prop_oneof![
        4 => Just(Flow::Tcp4(1)),
        2 => Just(Flow::Tcp4(2)),
        2 => Just(Flow::Tcp6),
        1 => Just(Flow::Udp4),
        1 => Just(Flow::Udp6),
        1 => Just(Flow::Tagged),
        1 => Just(Flow::Unnumbered),
        2 => Just(Flow::Vxlan),
        1 => Just(Flow::VxlanOver6),
        1 => Just(Flow::Geneve),
    ];
    let last = [TcpFlags::PSH, TcpFlags::FIN].map(Special::Flags);
    let outside = OUTSIDES.map(Special::Around);
    let specials: Vec<Special> = ODD.into_iter().chain(last).chain(outside).collect();
    let special = prop_oneof![6 => Just(Special::Nothing), 1 => prop::sample::select(specials)];
    let length = prop_oneof![8 => Just(100_u16), 1 => Just(60), 1 => Just(140), 1 => Just(0), 1 => 1..9_u16];
    let event = (flow, length, special, prop::option::of(0..50_u16), any::<bool>()).prop_map(
        |(flow, length, special, split, is_checked)| Event { flow, length, special, split, is_checked },
    );
    prop::collection::vec(event, 0..100)
}

fn pool() -> Pool {
    Pool::new(&PoolConfig { buffers: 1_024, ..PoolConfig::default() }).unwrap()
}

proptest! {
    #[test]
    fn cut_again_packets_are_what_came(events in events()) {
        let pool = pool();
        let (mut burst, came) = merge(&pool, &events);
        let mut left = HashMap::<Flow, Vec<Vec<u8>>>::new();
        for packet in burst.drain() {
            for frame in cut(packet) {
                left.entry(flow_of(&frame)).or_default().push(frame);
            }
        }
        prop_assert_eq!(left, came);
    }
}

const PLAIN: Event =
    Event { flow: Flow::Tcp4(1), length: 100, special: Special::Nothing, split: None, is_checked: false };

#[test]
fn frames_of_a_flow_become_one_packet() {
    let pool = pool();
    for flow in FLOWS {
        for (is_checked, split) in [(false, None), (true, None), (false, Some(0)), (true, Some(17))] {
            let event = Event { flow, split, is_checked, ..PLAIN };
            let last = Event { length: 30, ..event };
            let (burst, _) = merge(&pool, &[event, event, event, last]);
            let [packet] = &burst[..] else { panic!("{flow:?}: {burst:?}") };
            assert_eq!(packet.segmentation().map(|segmentation| segmentation.size), Some(100), "{flow:?}");
            assert!(matches!(packet.checksum(), Checksum::Partial { .. }), "{flow:?}");
            let headers = packet.packet_length() - 330;
            assert_eq!(usize::from(packet.layer_offsets().payload), headers, "{flow:?}");
        }
    }
}

#[test]
fn flows_that_take_turns_are_merged_each_by_itself() {
    let pool = pool();
    let other = Event { flow: Flow::Tcp4(2), ..PLAIN };
    let (burst, _) = merge(&pool, &[PLAIN, other, PLAIN, other, PLAIN, other]);
    assert_eq!(burst.len(), 2);
}

#[test]
fn what_would_be_lost_is_not_merged() {
    let pool = pool();
    for special in ODD {
        for is_checked in [false, true] {
            let odd = Event { special, is_checked, ..PLAIN };
            assert_eq!(merge(&pool, &[PLAIN, odd]).0.len(), 2, "{special:?} behind");
        }
    }
    for length in [0, 101] {
        assert_eq!(merge(&pool, &[PLAIN, Event { length, ..PLAIN }]).0.len(), 2, "{length} bytes behind");
    }
    // Nothing is put behind these.
    let last = [
        Event { length: 99, ..PLAIN },
        Event { special: Special::Flags(TcpFlags::PSH), ..PLAIN },
        Event { special: Special::Flags(TcpFlags::FIN), ..PLAIN },
    ];
    for event in last {
        assert_eq!(merge(&pool, &[PLAIN, event, PLAIN]).0.len(), 2, "{event:?}");
        // Nor is anything put before what can't be merged.
        let alone = Event { length: 0, ..PLAIN };
        assert_eq!(merge(&pool, &[PLAIN, alone, PLAIN, event]).0.len(), 3, "{event:?}");
    }
    let wrong = Event { special: Special::WrongChecksum, ..PLAIN };
    let (burst, _) = merge(&pool, &[wrong, PLAIN, PLAIN]);
    assert_eq!(burst.iter().map(Packet::segments).collect::<Vec<_>>(), [1, 2], "a wrong one is first");
}

#[test]
fn what_would_be_lost_in_a_tunnel_is_not_merged() {
    let pool = pool();
    // These are TCP's alone, which is not in all tunnels.
    let odd = ODD.into_iter().filter(|special| {
        !matches!(special, Special::Gap | Special::Acknowledgement | Special::Window | Special::Options)
    });
    for flow in [Flow::Vxlan, Flow::VxlanOver6, Flow::Geneve] {
        for special in odd.clone().chain(OUTSIDES.map(Special::Around)) {
            let is_there = match special {
                Special::Flags(_) => flow != Flow::Geneve,
                Special::Identification | Special::Fragment => flow != Flow::VxlanOver6,
                Special::Around(Outside::Identification) => flow == Flow::Geneve,
                _ => true,
            };
            // What a device has checked may not be what it has checked it in.
            let is_inside = !matches!(special, Special::Around(_));
            for is_checked in [false, is_inside] {
                let plain = Event { flow, ..PLAIN };
                let (burst, _) = merge(&pool, &[plain, Event { special, is_checked, ..plain }]);
                assert_eq!(burst.len() == 2, is_there, "{flow:?}: {special:?} behind");
            }
        }
    }
}

#[test]
fn a_packet_has_no_more_bytes_and_buffers_than_it_can() {
    let pool = pool();
    let long = Event { length: 1_400, is_checked: true, ..PLAIN };
    let (burst, _) = merge(&pool, &[long; 100]);
    let payloads = burst.iter().map(|packet| (packet.packet_length() - 66) / 1_400);
    assert_eq!(payloads.collect::<Vec<_>>(), [46, 46, 8]);
    let short = Event { length: 10, ..long };
    let (burst, _) = merge(&pool, &[short; 100]);
    assert_eq!(burst.iter().map(Packet::segments).collect::<Vec<_>>(), [64, 36]);
}

#[test]
fn a_queue_says_what_it_merged_and_what_is_left_to_do() {
    struct Frames(Option<Burst>, QueueCounters);
    impl ReceiveQueue for Frames {
        fn receive(&mut self, burst: &mut Burst) -> usize {
            self.0.as_mut().map_or(0, |frames| frames.move_to(burst))
        }
        fn status(&self) -> QueueStatus {
            QueueStatus::Finished
        }
        fn counters(&self) -> QueueCountersView {
            self.1.view()
        }
    }
    let pool = pool();
    let mut from = Burst::new();
    let mut sender = Sender::NEW;
    for number in 0..10 {
        from.push(PLAIN.packet(&pool, &PLAIN.frame(&mut sender, number))).unwrap();
    }
    let mut queue = merge_received(Box::new(Frames(Some(from), QueueCounters::new())));
    let mut burst = Burst::with_limit(8);
    assert_eq!((queue.receive(&mut burst), queue.receive(&mut burst), queue.receive(&mut burst)), (1, 1, 0));
    assert_eq!(burst.iter().map(Packet::segments).collect::<Vec<_>>(), [8, 2]);
    assert_eq!(queue.leaves(), MERGED);
    let mut values = Vec::new();
    queue.own_counters()[0].read(&mut |entry| values.push(entry.value));
    assert_eq!(values, [8]);
}
