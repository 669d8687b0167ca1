//! Checksums that are left to hardware: whoever completes them, the same bytes leave.

use std::net::Ipv6Addr;
use std::sync::{Arc, Mutex};

use warmlane_lane::{Pipeline, Poll, Task as _};
use warmlane_mem::{Checksum, LayerOffsets, Segmentation, SegmentationKind};
use warmlane_port::TransmitOffloads;
use warmlane_port::software_offload::{Segments, complete_checksum};
use warmlane_testkit::queues::{Sink, Source};
use warmlane_wire::segment::Transport;
use warmlane_wire::{Addresses, TcpFields};

use super::*;

/// A frame to all, and where its transport header is.
struct Whole {
    frame: Vec<u8>,
    start: usize,
    transport: Transport,
    /// The sum of the pseudo header, which the field holds while the checksum is left to hardware.
    held: u16,
}

impl Whole {
    fn new(is_ipv6: bool, is_tcp: bool, data: &[u8]) -> Self {
        let link = Frame::new().ethernet(MacAddress::BROADCAST, A);
        let (network, start, addresses) = if is_ipv6 {
            let [source, destination] = [1, 2].map(Ipv6Addr::from_bits);
            let addresses = Addresses::V6 { source, destination };
            (link.ipv6(Ipv6Fields::new(source, destination)), 54, addresses)
        } else {
            let [source, destination] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(Ipv4Addr::from);
            let addresses = Addresses::V4 { source, destination };
            (link.ipv4(Ipv4Fields::new(source, destination)), 34, addresses)
        };
        let (frame, transport, protocol) = if is_tcp {
            (network.tcp(TcpFields::new(7, 9)), Transport::Tcp, IpProtocol::TCP)
        } else {
            (network.udp(7, 9), Transport::Udp, IpProtocol::UDP)
        };
        let frame = frame.payload(data).to_vec().unwrap();
        let held = addresses.pseudo_header(protocol, (frame.len() - start) as u32).fold();
        Self { frame, start, transport, held }
    }

    /// The frame behind `around`, in one buffer or with the data in another.
    fn packet(&self, bench: &Bench, port: u16, around: &[u8], is_chained: bool) -> Packet {
        let bytes = [around, &self.frame].concat();
        let headers = around.len() + self.start + if self.transport == Transport::Tcp { 20 } else { 8 };
        let (first, second) = bytes.split_at(if is_chained { headers } else { bytes.len() });
        let mut packet = bench.packet(port, first);
        if !second.is_empty() {
            packet.chain(bench.packet(port, second)).unwrap();
        }
        packet
    }

    /// The same, its checksum left to hardware.
    fn left(&self, bench: &Bench, port: u16, around: &[u8], is_chained: bool) -> Packet {
        let mut packet = self.packet(bench, port, around, is_chained);
        self.leave(&mut packet, around.len());
        packet
    }

    fn layers(&self) -> LayerOffsets {
        let l4 = self.start as u16;
        let payload = l4 + if self.transport == Transport::Tcp { 20 } else { 8 };
        LayerOffsets { l3: 14, l4, payload, ..LayerOffsets::default() }
    }

    /// The same from the first access, to be cut into segments with so many bytes of data.
    fn to_be_cut(&self, bench: &Bench, size: u16, is_chained: bool) -> Packet {
        let mut packet = self.left(bench, 1, &[], is_chained);
        let kind = match (self.transport, self.start) {
            (Transport::Udp, _) => SegmentationKind::Udp,
            (Transport::Tcp, 54) => SegmentationKind::Tcp6,
            (Transport::Tcp, _) => SegmentationKind::Tcp4,
        };
        packet.set_segmentation(Some(Segmentation { kind, size, congestion: false }));
        packet.set_layer_offsets(self.layers());
        packet
    }

    /// Leaves the checksum of this frame behind so many other bytes to hardware.
    fn leave(&self, packet: &mut Packet, around: usize) {
        let (start, offset) = (around + self.start, self.transport.checksum_offset());
        packet.data_mut()[start + offset..][..2].copy_from_slice(&self.held.to_be_bytes());
        packet.set_checksum(Checksum::Partial { start: start as u16, offset: offset as u8 });
    }
}

/// The segments of a packet that is to be cut.
fn cut(packet: Packet) -> Vec<Vec<u8>> {
    let mut segments = Segments::new(packet).expect("it can be cut");
    std::iter::from_fn(|| segments.make_next()).map(|segment| bytes(&segment)).collect()
}

fn bytes(packet: &Packet) -> Vec<u8> {
    packet.segment_data().flatten().copied().collect()
}

fn pass(bench: &mut Bench, packet: Packet) {
    bench.burst.clear();
    bench.outputs.clear();
    bench.burst.push(packet).unwrap();
    bench.gateway.process(&mut bench.burst, &mut bench.outputs.outputs());
    assert_eq!(bench.counters.balance(), 0);
}

/// What a packet becomes for tunnel ends and by each output, once a port has done what was left to it, and how many of them had that.
fn completed(bench: &mut Bench, packet: Packet) -> (Vec<Vec<u8>>, usize) {
    pass(bench, packet);
    let (mut all, mut left) = (Vec::new(), 0);
    let mut complete = |burst: &mut Burst| {
        for packet in burst.iter_mut() {
            left += usize::from(packet.has_work_left());
            complete_checksum(packet).unwrap();
            all.push(bytes(packet));
        }
    };
    complete(&mut bench.burst);
    for output in 0..3 {
        complete(bench.outputs.burst(output));
    }
    (all, left)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Into tunnels and to other accesses.
    #[test]
    fn the_same_bytes_leave_whoever_completes_them(
        data in prop::collection::vec(any::<u8>(), 0..1300), v6_inside: bool, v6: bool, tcp: bool, udp_checksum: bool, tagged: bool,
        chained: bool,
    ) {
        let whole = Whole::new(v6_inside, tcp, &data);
        let mut bench = Bench::new(OverlayConfig { udp_checksum, ..network(v6) });
        let port = if tagged { 2 } else { 1 };
        let tag = |packet: &mut Packet| {
            if tagged {
                packet.prepend(4).unwrap();
                packet.data_mut().copy_within(4..16, 0);
                packet.data_mut()[12..16].copy_from_slice(&[0x81, 0, 0, 7]);
            }
        };
        let mut complete = whole.packet(&bench, port, &[], chained);
        tag(&mut complete);
        let (expected, none) = completed(&mut bench, complete);
        let mut left = whole.left(&bench, port, &[], chained);
        tag(&mut left);
        if tagged {
            let Checksum::Partial { start, offset } = left.checksum() else { unreachable!() };
            left.set_checksum(Checksum::Partial { start: start + 4, offset });
        }
        let (made, all) = completed(&mut bench, left);
        prop_assert_eq!((made, none, all), (expected, 0, 3));
        // So that who can't complete inner ones can tell.
        for packet in bench.burst.iter() {
            let inside = packet.packet_length() - whole.frame.len() + 14;
            prop_assert_eq!(usize::from(packet.layer_offsets().inner_l3), inside);
        }
        prop_assert!(bench.outputs.burst(1).iter().all(|packet| packet.layer_offsets().inner_l3 == 0));
    }

    /// A frame that is to be cut goes through the gateway as one, and what is made of it then is what its segments would have become.
    #[test]
    fn it_is_the_same_to_cut_before_a_tunnel_and_behind_it(
        data in prop::collection::vec(any::<u8>(), 200..1300), size in 90_u16..400, v6_inside: bool, v6: bool, tcp: bool,
        udp_checksum: bool, chained: bool,
    ) {
        let whole = Whole::new(v6_inside, tcp, &data);
        let config = OverlayConfig { udp_checksum, ..network(v6) };
        let mut bench = Bench::new(config.clone());
        let packet = whole.to_be_cut(&bench, size, chained);
        let segments = cut(whole.to_be_cut(&bench, size, chained));
        pass(&mut bench, packet);
        let made: Vec<_> = bench.burst.drain().map(cut).collect();
        prop_assert!(!made.is_empty());
        let mut expected = vec![Vec::new(); made.len()];
        for segment in &segments {
            let packet = bench.packet(1, segment);
            pass(&mut bench, packet);
            for (expected, packet) in expected.iter_mut().zip(bench.burst.iter()) {
                expected.push(bytes(packet));
            }
        }
        prop_assert_eq!(&made, &expected);

        // At the other end, as one, it is what it was; and so it is by a VLAN of another access.
        let packet = whole.to_be_cut(&bench, size, chained);
        pass(&mut bench, packet);
        let tagged = bench.outputs.burst(2).take_first().unwrap();
        prop_assert!(cut(tagged).iter().zip(&segments).all(|(with, without)| with[16..] == without[12..]));
        let (local, remote) = (config.remotes[0], config.local);
        let mut far = Bench::new(OverlayConfig { local, remotes: vec![remote], inner_checksums: true, ..config });
        let datagram = bench.burst.take_first().unwrap();
        let mut packet = datagram.copy_in(&far.pool).unwrap();
        packet.set_port(0);
        packet.data_mut()[..6].copy_from_slice(&US.0);
        pass(&mut far, packet);
        let out = far.outputs.burst(1).take_first().unwrap();
        prop_assert_eq!(out.layer_offsets(), whole.layers());
        prop_assert_eq!(cut(out), segments);
    }

    /// From tunnel ends on the same machine, who leave them, too: nobody ever sums up the data.
    #[test]
    fn what_is_left_comes_out_of_a_tunnel_as_such(
        data in prop::collection::vec(any::<u8>(), 0..1300), v6_inside: bool, v6: bool, tcp: bool, udp_checksum: bool, chained: bool,
    ) {
        let whole = Whole::new(v6_inside, tcp, &data);
        let mut near = Bench::new(OverlayConfig { udp_checksum, ..network(v6) });
        let packet = whole.left(&near, 1, &[], chained);
        pass(&mut near, packet);
        let far_end = network(v6);
        let (local, remote) = (far_end.remotes[0], far_end.local);
        let config = OverlayConfig { local, remotes: vec![remote], inner_checksums: true, ..far_end };
        let mut far = Bench::new(config);
        let mut packet = far.packet(0, &bytes(&near.burst[0]));
        packet.set_checksum(near.burst[0].checksum());
        pass(&mut far, packet);
        let out = far.outputs.burst(1);
        prop_assert_eq!(out.len(), 1);
        let (start, offset) = (whole.start as u16, whole.transport.checksum_offset() as u8);
        prop_assert_eq!(out[0].checksum(), Checksum::Partial { start, offset });
        complete_checksum(&mut out[0]).unwrap();
        prop_assert_eq!(bytes(&out[0]), whole.frame);
    }
}

/// What a port got of each packet: whether something was left to do, and its bytes.
type Seen = Arc<Mutex<Vec<(bool, Vec<u8>)>>>;

/// In a pipeline, as lanes run it.
#[test]
fn ports_are_left_what_they_can_complete() {
    // What the ports can do; what is left to the one to tunnel ends, and to the access.
    for (offloads, left) in [
        (TransmitOffloads::NONE, [false, false]),
        (TransmitOffloads::NO_TUNNEL, [false, true]),
        (TransmitOffloads::ALL, [true, true]),
    ] {
        let (whole, bench) = (Whole::new(false, true, b"data"), Bench::new(network(false)));
        let contents = whole.frame[12..].to_vec();
        let seen = [Seen::default(), Seen::default()];
        let sink = |seen: &Seen| {
            let seen = Arc::clone(seen);
            let look = move |packet: &Packet| {
                seen.lock().unwrap().push((packet.has_work_left(), bytes(packet)));
            };
            let mut sink = Sink::new(256).with_look(look);
            sink.offloads = offloads;
            Box::new(sink)
        };
        let mut source = Source::new(&bench.pool, 1, move |packet, _| {
            packet.fill(&whole.frame).unwrap();
            whole.leave(packet, 0);
        });
        source.leaves = TransmitOffloads::NO_TUNNEL;
        let mut builder = Pipeline::builder();
        let input = builder.port_input("in", 1, Box::new(source));
        let gateway = builder.stage("vxlan", bench.gateway);
        let underlay = builder.output("underlay", sink(&seen[0]));
        let access = builder.output("access", sink(&seen[1]));
        builder.connect(input, gateway).connect(gateway, underlay);
        builder.connect((gateway, "bridge2".to_owned()), access);
        let mut pipeline = builder.build().unwrap();
        while pipeline.poll() != Poll::Finished {}
        pipeline.finish().unwrap();
        for (seen, is_left) in seen.iter().zip(left) {
            let seen = seen.lock().unwrap();
            assert!(!seen.is_empty());
            for (work_left, bytes) in seen.iter() {
                assert_eq!((*work_left, bytes.ends_with(&contents)), (is_left, !is_left), "{offloads:?}");
            }
        }
    }
}

/// The headers around a frame of this length, from another tunnel end, without a UDP checksum.
fn around(length: usize) -> Vec<u8> {
    let mut around = tunnelled(2, VNI, 0, &vec![0; length]);
    around.truncate(around.len() - length);
    around[40..42].fill(0);
    around
}

#[test]
fn a_checksum_around_counts_without_the_data() {
    let whole = Whole::new(false, true, b"data");
    let right = tunnelled(2, VNI, 0, &whole.frame);
    let mut bench = Bench::new(network(false));
    // The checksum around is that of the frame once it is complete.
    let mut around = right[..50].to_vec();
    let packet = whole.left(&bench, 0, &around, false);
    pass(&mut bench, packet);
    assert_eq!(bench.outputs.burst(1).len(), 1);
    // A reserved byte of VXLAN: nothing else looks at it.
    around[43] ^= 1;
    let packet = whole.left(&bench, 0, &around, false);
    pass(&mut bench, packet);
    assert_eq!((bench.outputs.burst(1).len(), bench.dropped(Reason::OuterChecksum)), (0, 1));
}

#[test]
fn a_checksum_around_may_be_left_as_well() {
    for (inner_checksums, expected) in [(false, Checksum::Unknown), (true, Checksum::Good)] {
        let mut bench = Bench::new(OverlayConfig { inner_checksums, ..network(false) });
        let mut packet = bench.packet(0, &tunnelled(2, VNI, 0, &inner(B, MacAddress::BROADCAST, 0, b"data")));
        packet.data_mut()[40..42].copy_from_slice(&[1, 2]);
        packet.set_checksum(Checksum::Partial { start: 34, offset: 6 });
        pass(&mut bench, packet);
        let out = bench.outputs.burst(1);
        assert_eq!((out.len(), out[0].checksum()), (1, expected));
    }
}

#[test]
fn a_field_behind_the_frame_is_no_field() {
    let frame = inner(B, MacAddress::BROADCAST, 0, b"data");
    let mut bytes = around(frame.len());
    bytes.extend(&frame);
    let end = bytes.len();
    bytes.extend([0; 8]);
    let mut bench = Bench::new(network(false));
    for (start, dropped) in [(end - 2, 0), (end - 1, 1), (end, 2), (usize::from(u16::MAX), 3)] {
        let mut packet = bench.packet(0, &bytes);
        packet.set_checksum(Checksum::Partial { start: start as u16, offset: 0 });
        pass(&mut bench, packet);
        assert_eq!(bench.dropped(Reason::InnerLength), dropped);
        assert_eq!(bench.outputs.burst(1).len(), usize::from(dropped == 0));
    }
}

/// A sender on this machine may have left several datagrams to be cut, of the tunnel itself: they can't be taken out as one.
#[test]
fn datagrams_that_were_put_together_are_told_apart() {
    let whole = Whole::new(false, false, &[7; 1000]);
    let mut bench = Bench::new(network(false));
    let mut packet = bench.packet(0, &tunnelled(2, VNI, 0, &whole.frame));
    packet.set_checksum(Checksum::Partial { start: 34, offset: 6 });
    packet.set_layer_offsets(LayerOffsets { l3: 14, l4: 34, payload: 42, ..LayerOffsets::default() });
    let kind = SegmentationKind::Udp;
    packet.set_segmentation(Some(Segmentation { kind, size: 500, congestion: false }));
    pass(&mut bench, packet);
    assert_eq!((bench.outputs.burst(1).len(), bench.dropped(Reason::Merged)), (0, 1));
}

/// What is too long for a tunnel is a segment, not the frame that it is cut from.
#[test]
fn segments_have_to_fit_a_tunnel() {
    let whole = Whole::new(false, true, &[7; 1200]);
    for (size, fits) in [(460, true), (461, false)] {
        let mut bench = Bench::new(OverlayConfig { mtu: 500, ..network(false) });
        let packet = whole.to_be_cut(&bench, size, false);
        pass(&mut bench, packet);
        assert_eq!(bench.burst.len(), if fits { 2 } else { 0 });
        assert_eq!(bench.dropped(Reason::TooLong), if fits { 0 } else { 2 });
    }
}
