use super::*;
use crate::Truncated;
use proptest::prelude::*;

const HOP_BY_HOP: (IpProtocol, &[u8]) = (IpProtocol::HOP_BY_HOP, &[0, 0, 5, 2, 0, 0, 1, 0]);
const ROUTING: (IpProtocol, &[u8]) =
    (IpProtocol::ROUTING, &[0, 2, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
const OPTIONS: (IpProtocol, &[u8]) = (IpProtocol::DESTINATION_OPTIONS, &[0, 0, 1, 4, 0, 0, 0, 0]);
const AUTHENTICATION: (IpProtocol, &[u8]) =
    (IpProtocol::AUTHENTICATION, &[0, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9]);
const FIRST_FRAGMENT: (IpProtocol, &[u8]) = (IpProtocol::FRAGMENT, &[0, 0, 0, 1, 0xde, 0xad, 0xbe, 0xef]);
const LAST_FRAGMENT: (IpProtocol, &[u8]) = (IpProtocol::FRAGMENT, &[0, 0, 0x05, 0xa8, 0, 0, 0, 7]);

fn packet(extensions: &[(IpProtocol, &[u8])], upper: IpProtocol, payload: &[u8]) -> Vec<u8> {
    let source = "2001:db8::1".parse().unwrap();
    let destination = "2001:db8:ffff::2".parse().unwrap();
    let fields = Ipv6Fields { extensions, ..Ipv6Fields::new(source, destination) };
    let length = fields.extension_length() + payload.len();
    let mut bytes = fields.header(upper, length as u16).to_vec();
    for (next, extension) in fields.chained_extensions(upper) {
        bytes.push(next.0);
        bytes.extend_from_slice(&extension[1..]);
    }
    bytes.extend_from_slice(payload);
    bytes
}

fn upper_layer(bytes: &[u8]) -> Result<UpperLayer, Ipv6Error> {
    check(bytes).unwrap().upper_layer()
}

#[test]
fn every_field_is_where_rfc_8200_puts_it() {
    let mut header = [0; 40];
    header[..8].copy_from_slice(&[0x6a, 0xbc, 0xde, 0xf1, 0x12, 0x34, 17, 63]);
    (header[8], header[23], header[24], header[39]) = (0x20, 1, 0x30, 2);
    let view = Ipv6Header(&header);
    assert_eq!((view.version(), view.traffic_class(), view.flow_label()), (6, 0xab, 0xcdef1));
    assert_eq!((view.payload_length(), view.next_header(), view.hop_limit()), (0x1234, IpProtocol::UDP, 63));
    assert_eq!(view.source().to_string(), "2000::1");
    assert_eq!(view.destination().to_string(), "3000::2");
}

#[test]
fn padding_is_cut() {
    let mut bytes = packet(&[], IpProtocol::UDP, b"payload");
    bytes.extend([0xee; 5]);
    assert_eq!(check(&bytes).unwrap().payload, b"payload");
    let expected =
        UpperLayer { protocol: IpProtocol::UDP, offset: 40, extensions: 0, segments_left: 0, fragment: None };
    assert_eq!(upper_layer(&bytes), Ok(expected));
}

#[test]
fn truncated() {
    let error = check(&packet(&[], IpProtocol::UDP, &[])[..39]).unwrap_err();
    assert_eq!(error, Ipv6Error::Truncated(Truncated { header: "IPv6 header", needed: 40, available: 39 }));
}

#[test]
fn version() {
    let mut bytes = packet(&[], IpProtocol::UDP, &[]);
    bytes[0] = 0x45;
    assert_eq!(check(&bytes).unwrap_err(), Ipv6Error::Version { version: 4 });
}

#[test]
fn payload_length_beyond_the_bytes() {
    let bytes = packet(&[], IpProtocol::UDP, b"payload");
    let error = check(&bytes[..46]).unwrap_err();
    assert_eq!(error, Ipv6Error::PayloadLength { length: 7, available: 6 });
}

#[test]
fn each_extension_header_is_passed() {
    let all = [HOP_BY_HOP, ROUTING, FIRST_FRAGMENT, AUTHENTICATION, OPTIONS];
    let bytes = packet(&all, IpProtocol::TCP, b"upper");
    let upper = upper_layer(&bytes).unwrap();
    assert_eq!((upper.protocol, upper.extensions), (IpProtocol::TCP, 5));
    assert_eq!(&bytes[upper.offset..], b"upper");
    let fragment = Fragment { identification: 0xdead_beef, offset: 0, more: true };
    assert_eq!(upper.fragment, Some(fragment));
    assert!(upper.is_present());
}

#[test]
fn a_later_fragment_ends_the_walk() {
    // The original goes on with destination options, whose bytes went with the first fragment.
    let bytes = packet(&[HOP_BY_HOP, LAST_FRAGMENT], IpProtocol::DESTINATION_OPTIONS, &[0xff; 3]);
    let upper = upper_layer(&bytes).unwrap();
    assert_eq!((upper.protocol, upper.offset), (IpProtocol::DESTINATION_OPTIONS, 56));
    assert_eq!(upper.fragment, Some(Fragment { identification: 7, offset: 0x05a8, more: false }));
    assert!(!upper.is_present());
}

#[test]
fn what_cannot_be_passed_is_the_upper_layer() {
    for protocol in [IpProtocol::ESP, IpProtocol::NO_NEXT_HEADER, IpProtocol(200)] {
        let upper = upper_layer(&packet(&[OPTIONS], protocol, &[])).unwrap();
        assert_eq!((upper.protocol, upper.offset, upper.extensions), (protocol, 48, 1));
    }
}

#[test]
fn an_extension_header_cut_short() {
    let bytes = packet(&[HOP_BY_HOP], IpProtocol::ROUTING, &[6, 0, 0, 0, 0, 0, 0]);
    let expected = Truncated { header: "IPv6 extension header", needed: 8, available: 7 };
    assert_eq!(upper_layer(&bytes), Err(Ipv6Error::Truncated(expected)));
}

#[test]
fn an_extension_header_longer_than_the_packet() {
    let bytes = packet(&[HOP_BY_HOP], IpProtocol::ROUTING, &[6, 1, 0, 0, 0, 0, 0, 0, 1]);
    let expected =
        Ipv6Error::ExtensionLength { protocol: IpProtocol::ROUTING, offset: 48, length: 16, available: 9 };
    assert_eq!(upper_layer(&bytes), Err(expected));
    let bytes = packet(&[], IpProtocol::AUTHENTICATION, &[6, 2, 0, 0, 0, 0, 0, 0]);
    let expected = Ipv6Error::ExtensionLength {
        protocol: IpProtocol::AUTHENTICATION,
        offset: 40,
        length: 16,
        available: 8,
    };
    assert_eq!(upper_layer(&bytes), Err(expected));
}

#[test]
fn hop_by_hop_options_must_come_first() {
    let bytes = packet(&[OPTIONS, HOP_BY_HOP], IpProtocol::TCP, &[]);
    assert_eq!(upper_layer(&bytes), Err(Ipv6Error::HopByHopMisplaced { offset: 48 }));
}

#[test]
fn long_chains_end() {
    let bytes = packet(&[OPTIONS; MAXIMUM_EXTENSIONS], IpProtocol::UDP, b"upper");
    let upper = upper_layer(&bytes).unwrap();
    assert_eq!((upper.protocol, upper.offset, upper.extensions), (IpProtocol::UDP, 104, 8));
    let bytes = packet(&[OPTIONS; MAXIMUM_EXTENSIONS + 1], IpProtocol::UDP, b"upper");
    assert_eq!(upper_layer(&bytes), Err(Ipv6Error::TooManyExtensions { offset: 104 }));
}

#[test]
fn hop_limit_at_its_ends() {
    for (before, after) in [(255, 254), (1, 0), (0, 0)] {
        let mut header = [before; 40];
        decrement_hop_limit(&mut header);
        assert_eq!((header[6], header[7], header[8]), (before, after, before));
    }
}

proptest! {
    #[test]
    fn any_bytes_parse_or_fail(
        mut bytes in prop::collection::vec(prop::sample::select(vec![0_u8, 1, 2, 8, 43, 44, 51, 60, 255]), 0..300),
    ) {
        if let [first, _, _, _, high, low, ..] = &mut bytes[..] {
            (*first, *high) = (0x60, 0);
            *low = low.saturating_mul(100);
        }
        if let Ok(packet) = check(&bytes) && let Ok(upper) = packet.upper_layer() {
            prop_assert!(upper.offset <= 40 + packet.payload.len());
            prop_assert!(upper.extensions <= MAXIMUM_EXTENSIONS);
        }
    }

    #[test]
    fn chains_are_walked_to_the_end(
        hop_by_hop: bool,
        chain in prop::collection::vec((0..5_usize, 0..6_u8), 0..MAXIMUM_EXTENSIONS),
        upper in prop::sample::select(vec![6_u8, 17, 50, 58, 59, 132]),
        payload in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        // Bodies of random length whose length field says so.
        let bodies: Vec<(IpProtocol, Vec<u8>)> = chain.iter().map(|(kind, size)| match kind {
            0 => (IpProtocol::ROUTING, [&[0, *size][..], &vec![7; 6 + 8 * usize::from(*size)]].concat()),
            1 => (IpProtocol::DESTINATION_OPTIONS, [&[0, *size][..], &vec![7; 6 + 8 * usize::from(*size)]].concat()),
            2 => (IpProtocol::AUTHENTICATION, [&[0, *size][..], &vec![7; 6 + 4 * usize::from(*size)]].concat()),
            _ => (IpProtocol::FRAGMENT, vec![0, 0, 0, *size & 1, 0, 0, 0, *size]),
        }).collect();
        let mut extensions: Vec<(IpProtocol, &[u8])> = bodies.iter().map(|(kind, body)| (*kind, &body[..])).collect();
        if hop_by_hop {
            extensions.insert(0, HOP_BY_HOP);
        }
        let bytes = packet(&extensions, IpProtocol(upper), &payload);
        let found = upper_layer(&bytes).unwrap();
        prop_assert_eq!((found.protocol.0, found.extensions), (upper, extensions.len()));
        prop_assert_eq!(&bytes[found.offset..], &payload[..]);
    }
}
