use super::*;
use crate::Truncated;
use proptest::prelude::*;

fn fields() -> Ipv4Fields<'static> {
    Ipv4Fields::new(Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 2))
}

/// A packet of `options`, `payload` and, beyond its total length, `padding`.
fn packet(options: &[u8], payload: &[u8], padding: usize) -> Vec<u8> {
    let length = (HEADER_LENGTH + options.len() + payload.len()) as u16;
    let fields = Ipv4Fields { options, ..fields() };
    let mut bytes = [&fields.header(IpProtocol::UDP, length)[..], options, payload].concat();
    bytes.resize(bytes.len() + padding, 0xee);
    bytes
}

/// Changes one byte and corrects the checksum, so that only the changed field can be what is wrong.
fn patched(mut bytes: Vec<u8>, at: usize, value: u8) -> Vec<u8> {
    bytes[at] = value;
    bytes[10..12].fill(0);
    let header = (usize::from(bytes[0] & 0x0f) * 4).clamp(20, bytes.len());
    let checksum = checksum::checksum(&bytes[..header]);
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

#[test]
fn every_field_is_where_rfc_791_puts_it() {
    let header: [u8; 20] =
        [0x46, 0xb9, 0x12, 0x34, 0x56, 0x78, 0x60, 0x03, 63, 6, 0x9a, 0xbc, 10, 1, 2, 3, 10, 4, 5, 6];
    let view = Ipv4Header(&header);
    assert_eq!((view.version(), view.header_length()), (4, 24));
    assert_eq!((view.dscp(), view.ecn()), (46, 1));
    assert_eq!((view.total_length(), view.identification()), (0x1234, 0x5678));
    assert!(view.dont_fragment() && view.more_fragments() && view.is_fragment());
    assert_eq!((view.fragment_offset(), view.ttl()), (24, 63));
    assert_eq!((view.protocol(), view.checksum()), (IpProtocol::TCP, 0x9abc));
    assert_eq!(view.source(), Ipv4Addr::new(10, 1, 2, 3));
    assert_eq!(view.destination(), Ipv4Addr::new(10, 4, 5, 6));
}

#[test]
fn fragments_first_middle_last_and_none() {
    let with = |flags: u8, offset: u8| {
        let mut header = [0; 20];
        (header[6], header[7]) = (flags, offset);
        (Ipv4Header(&header).is_fragment(), Ipv4Header(&header).fragment_offset())
    };
    assert_eq!(with(0x20, 0), (true, 0));
    assert_eq!(with(0x3f, 0xff), (true, 65528));
    assert_eq!(with(0x00, 1), (true, 8));
    assert_eq!(with(0x40, 0), (false, 0));
}

#[test]
fn options_and_payload_are_split_and_padding_is_cut() {
    let bytes = packet(&[1, 1, 1, 0], b"payload", 9);
    let packet = check(&bytes).unwrap();
    assert_eq!((packet.options, packet.payload), (&[1, 1, 1, 0][..], &b"payload"[..]));
    let bytes = self::packet(&[], &[], 0);
    let packet = check(&bytes).unwrap();
    assert!(packet.options.is_empty() && packet.payload.is_empty());
}

#[test]
fn truncated() {
    let error = check(&packet(&[], &[], 0)[..19]).unwrap_err();
    assert_eq!(error, Ipv4Error::Truncated(Truncated { header: "IPv4 header", needed: 20, available: 19 }));
}

#[test]
fn version() {
    let error = check(&patched(packet(&[], b"data", 0), 0, 0x65)).unwrap_err();
    assert_eq!(error, Ipv4Error::Version { version: 6 });
}

#[test]
fn header_length_below_20() {
    let error = check(&patched(packet(&[], b"data", 0), 0, 0x44)).unwrap_err();
    assert_eq!(error, Ipv4Error::HeaderLength { length: 16, available: 24 });
}

#[test]
fn header_length_beyond_the_bytes() {
    let error = check(&patched(packet(&[], b"data", 0), 0, 0x47)).unwrap_err();
    assert_eq!(error, Ipv4Error::HeaderLength { length: 28, available: 24 });
    assert_eq!(
        error.to_string(),
        "IPv4 header length is 28 bytes, must be 20 to 24 (the bytes present, at most 60)"
    );
}

#[test]
fn total_length_below_the_header() {
    let error = check(&patched(packet(&[1; 4], b"data", 0), 3, 23)).unwrap_err();
    assert_eq!(error, Ipv4Error::TotalLength { length: 23, header: 24, available: 28 });
    assert!(check(&patched(packet(&[1; 4], b"data", 0), 3, 24)).is_ok());
}

#[test]
fn total_length_beyond_the_bytes() {
    let error = check(&patched(packet(&[], b"data", 0), 3, 25)).unwrap_err();
    assert_eq!(error, Ipv4Error::TotalLength { length: 25, header: 20, available: 24 });
}

#[test]
fn checksum() {
    for options in [&[][..], &[1, 1, 1, 0]] {
        let mut bytes = packet(options, b"data", 0);
        let right = u16::from_be_bytes([bytes[10], bytes[11]]);
        bytes[11] ^= 0x10;
        let expected = Ipv4Error::Checksum { found: right ^ 0x10, expected: right };
        assert_eq!(check(&bytes).unwrap_err(), expected);
        assert!(check_lengths(&bytes).is_ok());
    }
    // A changed option byte is found too.
    let mut bytes = packet(&[1, 1, 1, 0], &[], 0);
    bytes[20] = 7;
    assert!(matches!(check(&bytes), Err(Ipv4Error::Checksum { .. })));
}

#[test]
fn the_outer_rule_is_reported_first() {
    // Everything is wrong: then the version, then the header length, then the total length, then the checksum.
    let mut bytes = [0xff; 24];
    assert!(matches!(check(&bytes), Err(Ipv4Error::Version { version: 15 })));
    bytes[0] = 0x4f;
    assert!(matches!(check(&bytes), Err(Ipv4Error::HeaderLength { length: 60, available: 24 })));
    bytes[0] = 0x45;
    assert!(matches!(check(&bytes), Err(Ipv4Error::TotalLength { length: 0xffff, .. })));
    bytes[2..4].copy_from_slice(&[0, 20]);
    assert!(matches!(check(&bytes), Err(Ipv4Error::Checksum { found: 0xffff, .. })));
}

#[test]
fn ttl_at_its_ends() {
    for (before, after) in [(255, 254), (2, 1), (1, 0), (0, 0)] {
        let mut header = Ipv4Fields { ttl: before, ..fields() }.header(IpProtocol::TCP, 20);
        decrement_ttl(&mut header);
        assert_eq!(Ipv4Header(&header).ttl(), after);
        assert!(check(&header).is_ok(), "TTL {before}");
    }
}

#[test]
fn decrement_gives_the_right_zero() {
    // The identification brings the checksum to 0xfeff, where RFC 1141 yields 0xffff and the header 0x0000.
    let blank = fields().header(IpProtocol::TCP, 20);
    let identification = checksum::Sum::new().word(0x0100).word(Ipv4Header(&blank).checksum()).fold();
    let mut header = Ipv4Fields { identification, ..fields() }.header(IpProtocol::TCP, 20);
    assert_eq!(Ipv4Header(&header).checksum(), 0xfeff);
    decrement_ttl(&mut header);
    assert_eq!(Ipv4Header(&header).checksum(), 0x0000);
    assert!(check(&header).is_ok());
}

proptest! {
    #[test]
    fn any_bytes_parse_or_fail(mut bytes in prop::collection::vec(any::<u8>(), 0..100), nearly: bool) {
        if nearly && bytes.len() >= 4 {
            bytes[0] = 0x40 | bytes[0] & 0x0f;
            bytes[2] = 0;
        }
        let _ = check(&bytes);
        if let Ok(packet) = check_lengths(&bytes) {
            let length = 20 + packet.options.len() + packet.payload.len();
            prop_assert_eq!(length, usize::from(packet.header.total_length()));
            prop_assert!(length <= bytes.len());
        }
    }

    #[test]
    fn decrement_equals_computing_anew(mut header: [u8; 20], checksum: Option<u16>) {
        header[0] = 0x45;
        let right = checksum::ipv4_header_checksum20(&header);
        let wrong = checksum.filter(|checksum| *checksum != right && *checksum != 0xffff);
        header[10..12].copy_from_slice(&wrong.unwrap_or(right).to_be_bytes());
        decrement_ttl(&mut header);
        let expected = checksum::ipv4_header_checksum20(&header);
        prop_assert_eq!(Ipv4Header(&header).checksum() == expected, wrong.is_none());
    }

    #[test]
    fn what_is_written_is_read(
        source: [u8; 4], destination: [u8; 4], class: u8, identification: u16, flags: (bool, bool),
        offset in 0..8192_u16, ttl: u8, words in 0..=10_usize, protocol: u8,
    ) {
        let options = vec![1; words * 4];
        let fields = Ipv4Fields {
            source: source.into(), destination: destination.into(), traffic_class: class, identification,
            dont_fragment: flags.0, more_fragments: flags.1, fragment_offset: offset * 8, ttl, options: &options,
        };
        let length = (20 + options.len()) as u16;
        let bytes = [&fields.header(IpProtocol(protocol), length)[..], &options].concat();
        let Ipv4Packet { header, options: read, payload } = check(&bytes).unwrap();
        prop_assert_eq!((header.source(), header.destination()), (fields.source, fields.destination));
        prop_assert_eq!((header.dscp() << 2) | header.ecn(), class);
        prop_assert_eq!((header.identification(), header.ttl()), (identification, ttl));
        prop_assert_eq!((header.dont_fragment(), header.more_fragments()), flags);
        prop_assert_eq!((header.fragment_offset(), header.protocol().0), (offset * 8, protocol));
        prop_assert_eq!((read, payload.len()), (&options[..], 0));
    }
}
