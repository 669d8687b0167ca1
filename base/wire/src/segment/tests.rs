//! What is cut can be put together again, and what can't be cut is refused.

use super::*;
use crate::{Frame, Ipv4Fields, Ipv6Fields, MacAddress, gre, vxlan};
use proptest::prelude::*;

/// A super-frame and how its maker wants it cut.
#[derive(Clone, Debug)]
struct Sample {
    frame: Vec<u8>,
    cut: Cut,
    six: bool,
    network: usize,
    transport: usize,
    payload: usize,
}

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent dimension of the test")]
struct Shape {
    six: bool,
    tcp: bool,
    tags: usize,
    options: usize,
    extension: bool,
    flags: u8,
    partial: bool,
    sequence: u32,
    identification: u16,
}

fn build(shape: &Shape, payload: &[u8], size: u16, padding: usize) -> Sample {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for tag in 0..shape.tags {
        frame.extend(if tag == 0 { [0x88, 0xa8, 0, 7] } else { [0x81, 0, 0, 9] });
    }
    frame.extend(if shape.six { [0x86, 0xdd] } else { [0x08, 0] });
    let network = frame.len();
    let transport_header = if shape.tcp { 20 + shape.options * 4 } else { 8 };
    let transport_length = transport_header + payload.len();
    let protocol = if shape.tcp { 6 } else { 17 };
    if shape.six {
        let extension = if shape.extension { 8 } else { 0 };
        frame.extend([0x60, 0, 0, 0]);
        frame.extend(((transport_length + extension) as u16).to_be_bytes());
        frame.extend([if shape.extension { 60 } else { protocol }, 64]);
        frame.extend(std::array::from_fn::<u8, 32, _>(|i| i as u8));
        if shape.extension {
            frame.extend([protocol, 0, 1, 4, 0, 0, 0, 0]);
        }
    } else {
        frame.extend([0x45, 0]);
        frame.extend(((20 + transport_length) as u16).to_be_bytes());
        frame.extend(shape.identification.to_be_bytes());
        frame.extend([0x40, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2]);
    }
    let transport = frame.len();
    frame.extend([0x12, 0x34, 0x56, 0x78]);
    if shape.tcp {
        frame.extend(shape.sequence.to_be_bytes());
        frame.extend([0, 0, 0, 9, (transport_header as u8 / 4) << 4, shape.flags, 1, 0, 0xaa, 0xaa, 0, 0]);
        frame.extend(std::iter::repeat_n(1, shape.options * 4));
    } else {
        frame.extend((transport_length as u16).to_be_bytes());
        frame.extend(if shape.partial { [0, 0] } else { [0xaa, 0xaa] });
    }
    let start = frame.len();
    frame.extend(payload);
    frame.extend(std::iter::repeat_n(0xee, padding));
    let cut = Cut {
        transport: if shape.tcp { Transport::Tcp } else { Transport::Udp },
        size,
        checksum_start: shape.partial.then_some(transport as u16),
        tunnel: None,
    };
    Sample { frame, cut, six: shape.six, network, transport, payload: start }
}

fn segments(sample: &Sample) -> Vec<Vec<u8>> {
    let plan = SuperFrame::parse(&sample.frame, sample.frame.len(), sample.cut).unwrap();
    let mut headers = [0; MAXIMUM_HEADERS];
    (0..plan.count())
        .map(|index| {
            let payload = Sum::new().bytes(&sample.frame[plan.payload(index)]);
            let mut segment = plan.write_headers(&sample.frame, index, payload, &mut headers).to_vec();
            segment.extend(&sample.frame[plan.payload(index)]);
            segment
        })
        .collect()
}

/// Sums the pseudo header and everything behind it from scratch, a word at a time (RFC 1071 section 1).
fn transport_is_valid(sample: &Sample, segment: &[u8]) -> bool {
    let packet = &segment[sample.network..];
    let transport = &segment[sample.transport..];
    let mut bytes = if sample.six { packet[8..40].to_vec() } else { packet[12..20].to_vec() };
    bytes.extend((transport.len() as u32).to_be_bytes());
    bytes.extend([0, 0, 0, if sample.cut.transport == Transport::Tcp { 6 } else { 17 }]);
    bytes.extend(transport);
    reference_sum(&bytes) == 0xffff
}

fn reference_sum(bytes: &[u8]) -> u32 {
    let mut sum = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
        .sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

fn shapes() -> impl Strategy<Value = Shape> {
    let booleans = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (booleans, 0..3_usize, 0..=10_usize, any::<u8>(), any::<u32>(), any::<u16>()).prop_map(
        |((six, tcp, extension, partial), tags, options, flags, sequence, identification)| Shape {
            six,
            tcp,
            tags,
            options,
            extension: extension && six,
            flags,
            partial,
            sequence,
            identification,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn segments_are_valid_and_carry_what_was_in_the_super_frame(
        shape in shapes(),
        payload in prop::collection::vec(any::<u8>(), 0..9000),
        size in 1_u16..3000,
        padding in 0..8_usize,
    ) {
        let size = size.max(payload.len().div_ceil(FEW_SEGMENTS) as u16);
        let sample = build(&shape, &payload, size, padding);
        let all = segments(&sample);
        prop_assert_eq!(all.len(), payload.len().div_ceil(usize::from(size)).max(1));
        let mut joined = Vec::<u8>::new();
        for (index, segment) in all.iter().enumerate() {
            let (first, last) = (index == 0, index + 1 == all.len());
            prop_assert!(transport_is_valid(&sample, segment), "segment {}", index);
            prop_assert!(last || segment.len() == sample.payload + usize::from(size));
            let packet = &segment[sample.network..];
            if shape.six {
                prop_assert_eq!(usize::from(word(packet, 4)), packet.len() - 40);
            } else {
                prop_assert_eq!(usize::from(word(packet, 2)), packet.len());
                prop_assert_eq!(word(packet, 4), shape.identification.wrapping_add(index as u16));
                prop_assert_eq!(reference_sum(&packet[..20]), 0xffff);
            }
            let transport = &segment[sample.transport..];
            if shape.tcp {
                let sequence = u32::from_be_bytes(array::<4>(transport, 4));
                prop_assert_eq!(sequence, shape.sequence.wrapping_add(joined.len() as u32));
                let mut flags = shape.flags;
                if !last { flags &= !0x09; }
                if !first { flags &= !0x80; }
                prop_assert_eq!(transport[13], flags);
            } else {
                prop_assert_eq!(usize::from(word(transport, 4)), transport.len());
                prop_assert_ne!(word(transport, 6), 0);
            }
            joined.extend(&segment[sample.payload..]);
        }
        prop_assert_eq!(joined, payload);
    }

    /// Whatever the kernel says about whatever frame, nothing panics.
    #[test]
    fn any_bytes_are_cut_or_refused(
        mut frame in prop::collection::vec(any::<u8>(), 0..200),
        six: bool, tcp: bool, plausible: bool, size: u16, start: Option<u16>,
        tunnel in prop::option::of((0..220_usize, 0..220_usize, 0..220_usize)),
    ) {
        if plausible && frame.len() > 60 {
            frame[12..14].copy_from_slice(if six { &[0x86, 0xdd] } else { &[8, 0] });
            frame[14] = if six { 0x60 } else { 0x45 + (frame[14] & 3) };
            frame[if six { 20 } else { 23 }] = if tcp { 6 } else { 17 };
            frame[if six { 18 } else { 16 }] = 0;
            frame[20] &= if six { 0xff } else { 0 };
            frame[21] &= if six { 0xff } else { 0 };
        }
        let transport = if tcp { Transport::Tcp } else { Transport::Udp };
        let tunnel = tunnel.map(|(network, transport, inside)| Tunnel { network, transport, inside });
        if let Ok(plan) = SuperFrame::parse(&frame, frame.len(), Cut { transport, size, checksum_start: start, tunnel }) {
            let mut headers = [0; MAXIMUM_HEADERS];
            for index in 0..plan.count() {
                plan.write_headers(&frame, index, Sum::new(), &mut headers);
            }
        }
    }
}

/// What can be around a packet, or a frame.
#[derive(Clone, Copy, Debug)]
enum Outside {
    Ip,
    Gre,
    Vxlan { is_checked: bool },
}

impl Outside {
    /// Puts it around a frame, in the packet of this identification; says where the headers are.
    fn around(self, frame: &[u8], is_ipv6: bool, identification: u16) -> (Vec<u8>, Tunnel) {
        let link = Frame::new().ethernet(MacAddress([2; 6]), MacAddress([4; 6]));
        let network = if is_ipv6 {
            link.ipv6(Ipv6Fields::new(std::net::Ipv6Addr::LOCALHOST, 7.into()))
        } else {
            let ends = [[192, 0, 2, 9], [192, 0, 2, 10]].map(std::net::Ipv4Addr::from);
            link.ipv4(Ipv4Fields { identification, ..Ipv4Fields::new(ends[0], ends[1]) })
        };
        let (packet, transport) = (&frame[14..], if is_ipv6 { 54 } else { 34 });
        let tunnel = |bytes| Tunnel { network: 14, transport, inside: transport + bytes };
        let version = if packet[0] >> 4 == 4 { EtherType::IPV4 } else { EtherType::IPV6 };
        let protocol = if version == EtherType::IPV4 { IpProtocol::IPV4 } else { IpProtocol::IPV6 };
        match self {
            Self::Ip => (network.protocol(protocol).payload(packet).to_vec().unwrap(), tunnel(0)),
            Self::Gre => {
                let bytes = [&gre::header_with_key(version, 5)[..], packet].concat();
                (network.protocol(IpProtocol::GRE).payload(&bytes).to_vec().unwrap(), tunnel(8))
            }
            Self::Vxlan { is_checked } => {
                let bytes = [&vxlan::header(5)[..], frame].concat();
                let mut whole = network.udp(50_000, vxlan::PORT).payload(&bytes).to_vec().unwrap();
                if !is_checked {
                    whole[transport + 6..transport + 8].fill(0);
                }
                (whole, tunnel(8 + 8 + 14))
            }
        }
    }
}

proptest! {
    /// A super-frame that is cut in a tunnel is what its segments are that enter the tunnel one by one.
    #[test]
    fn it_is_the_same_to_cut_before_a_tunnel_and_in_it(
        shape in shapes(),
        payload in prop::collection::vec(any::<u8>(), 0..3000),
        size in 100_u16..1500,
        is_ipv6: bool,
        outside in prop::sample::select(vec![
            Outside::Ip, Outside::Gre, Outside::Vxlan { is_checked: false }, Outside::Vxlan { is_checked: true },
        ]),
    ) {
        let mut sample = build(&Shape { tags: 0, ..shape }, &payload, size, 0);
        let expected: Vec<_> = (7_u16..)
            .zip(segments(&sample))
            .map(|(identification, segment)| outside.around(&segment, is_ipv6, identification).0)
            .collect();
        let (frame, tunnel) = outside.around(&sample.frame, is_ipv6, 7);
        let start = (tunnel.inside + sample.transport - sample.network) as u16;
        let cut = Cut { checksum_start: sample.cut.checksum_start.map(|_| start), tunnel: Some(tunnel), ..sample.cut };
        sample = Sample { frame, cut, ..sample };
        prop_assert_eq!(segments(&sample), expected);
    }
}

#[test]
fn what_cannot_be_made_anew_around_a_segment_is_refused() {
    let inside = build(&PLAIN, &[7; 500], 100, 0);
    let (frame, tunnel) = Outside::Gre.around(&inside.frame, false, 7);
    let refused = |frame: &[u8], tunnel| {
        let cut = Cut { checksum_start: None, tunnel: Some(tunnel), ..inside.cut };
        SuperFrame::parse(frame, frame.len(), cut).is_err()
    };
    assert!(!refused(&frame, tunnel));
    for (flag, what) in [(0x90, "a checksum of GRE"), (0x30, "a sequence number")] {
        let mut other = frame.clone();
        other[34] = flag;
        assert!(refused(&other, tunnel), "{what}");
    }
    let mut other = frame.clone();
    other[23] = IpProtocol::ICMP.0;
    assert!(refused(&other, tunnel), "another protocol");
    for wrong in [
        Tunnel { network: 13, ..tunnel },
        Tunnel { transport: tunnel.transport + 4, ..tunnel },
        Tunnel { inside: tunnel.inside + 1, ..tunnel },
        Tunnel { inside: tunnel.transport - 1, ..tunnel },
        Tunnel { inside: frame.len(), ..tunnel },
    ] {
        assert!(refused(&frame, wrong), "{wrong:?}");
    }
}

const PLAIN: Shape = Shape {
    six: false,
    tcp: true,
    tags: 0,
    options: 3,
    extension: false,
    flags: 0x18,
    partial: true,
    sequence: 1,
    identification: 1,
};

#[test]
fn udp_without_checksum_stays_without() {
    let mut sample = build(&Shape { tcp: false, partial: false, ..PLAIN }, &[1; 100], 40, 0);
    sample.frame[sample.transport + 6..sample.transport + 8].fill(0);
    for segment in segments(&sample) {
        assert_eq!(word(&segment[sample.transport..], 6), 0);
    }
}

#[test]
fn a_checksum_of_zero_is_sent_as_ones_in_udp_only() {
    for (tcp, field, expected) in [(false, 6, 0xffff), (true, 16, 0)] {
        // The payload is chosen so that everything else adds up to 0xffff.
        let shape = Shape { tcp, ..PLAIN };
        let mut sample = build(&shape, &[0, 0], 40, 0);
        let sum = word(&segments(&sample)[0][sample.transport..], field);
        let payload = sample.payload;
        put(&mut sample.frame, payload, sum);
        assert_eq!(word(&segments(&sample)[0][sample.transport..], field), expected, "TCP: {tcp}");
    }
}

#[test]
fn refuses_what_it_cannot_cut() {
    let good = build(&PLAIN, &[7; 500], 100, 0);
    assert!(SuperFrame::parse(&good.frame, good.frame.len(), good.cut).is_ok());
    let refused = |sample: &Sample| SuperFrame::parse(&sample.frame, sample.frame.len(), sample.cut).is_err();

    let mut tunnel = good.clone();
    tunnel.cut.checksum_start = Some(84);
    assert!(refused(&tunnel), "the checksum starts in an inner header");
    let mut other = good.clone();
    other.cut.transport = Transport::Udp;
    assert!(refused(&other), "TCP announced as UDP");
    let mut nothing = good.clone();
    nothing.cut.size = 0;
    assert!(refused(&nothing), "segments of zero bytes");
    let mut fragment = good.clone();
    fragment.frame[14 + 6] = 0x20;
    assert!(refused(&fragment), "a fragment");
    let mut short = good.clone();
    short.frame.truncate(300);
    assert!(refused(&short), "total length behind the end");
    let mut routed = build(&Shape { six: true, extension: true, ..PLAIN }, &[7; 500], 100, 0);
    assert!(!refused(&routed));
    routed.frame[14 + 6] = 43;
    assert!(refused(&routed), "a routing header");
}

/// A peer on this host says how long segments are. It must not be able to turn each frame into tens of thousands.
#[test]
fn many_tiny_segments_are_refused() {
    for tcp in [true, false] {
        let shape = Shape { tcp, ..PLAIN };
        for (length, size, allowed) in
            [(128, 1, true), (129, 1, false), (9000, 47, false), (9000, 48, true), (60_000, 1, false)]
        {
            let sample = build(&shape, &vec![7; length], size, 0);
            assert_eq!(
                SuperFrame::parse(&sample.frame, sample.frame.len(), sample.cut).is_ok(),
                allowed,
                "{length} by {size}"
            );
        }
    }
}
