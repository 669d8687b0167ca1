use super::*;
use extended::ElementError;
use proptest::prelude::*;

#[test]
fn the_header_check_sequence_is_crc16_x25() {
    // The check value that catalogues of CRCs give for CRC-16/X-25 (ITU-T X.25, also known as CRC-16/IBM-SDLC).
    assert_eq!(hcs::checksum(b"123456789"), 0x906e);
}

#[test]
fn a_header_is_laid_out_as_the_specification_draws_it() {
    let header = PacketHeader {
        privacy: Some(Privacy::encrypted(0x1234, 5)),
        service: Some(DownstreamService {
            priority: 6,
            dsid: Some(0xa_bcde),
            sequencing: Some(Sequencing { change_count: true, sequence: 0x0102 }),
        }),
        nulls: 1,
    };
    let mut bytes = [0xff; 32];
    assert_eq!(header.write(64, &mut bytes), Ok(18));
    assert_eq!(
        bytes[..16],
        [0x01, 12, 0, 76, 0x44, 0x51, 0xd2, 0x34, 0, 0x85, 0xda, 0xbc, 0xde, 0x01, 0x02, 0]
    );
    assert_eq!(u16::from_le_bytes([bytes[16], bytes[17]]), hcs::checksum(&bytes[..16]));
}

#[test]
fn bad_frames_are_named() {
    let mut bytes = [0_u8; 20];
    PacketHeader::default().write(14, &mut bytes).unwrap();
    assert!(MacFrame::parse(&bytes).is_ok());
    assert_eq!(MacFrame::parse(&bytes[..19]), Err(MacError::Length { length: 14, available: 13 }));
    let truncated = Truncated { header: "DOCSIS MAC header", needed: 6, available: 5 };
    assert_eq!(MacFrame::parse(&bytes[..5]), Err(MacError::Truncated(truncated)));
    let expected = hcs::checksum(&bytes[..4]);
    bytes[4] ^= 1;
    assert_eq!(MacFrame::parse(&bytes), Err(MacError::Hcs { found: expected ^ 1, expected }));
    for control in [0x40, 0xc4, 0xc7, 0xf8, 0x02] {
        bytes[0] = control;
        assert_eq!(MacFrame::parse(&bytes), Err(MacError::NotDownstream { control }));
    }
    for (parameter, length) in [(241, 1_000_u16), (10, 9)] {
        let [high, low] = length.to_be_bytes();
        bytes[..4].copy_from_slice(&[1, parameter, high, low]);
        let error = MacError::ExtendedLength { length: parameter, frame: length };
        assert_eq!(MacFrame::parse(&bytes), Err(error));
    }
}

#[test]
fn bad_elements_are_named_and_end_the_list() {
    let elements = |bytes| Elements::new(bytes).collect::<Vec<_>>();
    assert_eq!(elements(&[0x44, 0, 0, 0, 0, 0x01]).len(), 2);
    assert_eq!(elements(&[0x02, 0, 0, 0]), [Err(ElementError::Length { kind: 0, length: 2 })]);
    assert_eq!(elements(&[0x43, 0, 0, 0]), [Err(ElementError::Length { kind: 4, length: 3 })]);
    assert_eq!(elements(&[0x82, 0, 0]), [Err(ElementError::Length { kind: 8, length: 2 })]);
    assert_eq!(elements(&[0x85, 0, 0]), [Err(ElementError::Truncated { kind: 8, needed: 6, available: 3 })]);
    assert_eq!(elements(&[0x91, 7]), [Ok(Element::Other { kind: 9, value: &[7] })]);
    assert_eq!(elements(&[0xf0, 3, 1, 7]), [Ok(Element::Other { kind: 256 + 3, value: &[7] })]);
}

prop_compose! {
    fn privacy()(sequence in 0..16_u8, is_encrypted in any::<bool>(), said in 0..0x4000_u16) -> Privacy {
        Privacy { is_encrypted, ..Privacy::encrypted(said, sequence) }
    }
}

prop_compose! {
    fn service()(
        priority in 0..8_u8,
        dsid in prop::option::of(0..0x10_0000_u32),
        sequencing in prop::option::of(any::<(bool, u16)>()),
    ) -> DownstreamService {
        let sequencing = sequencing.filter(|_| dsid.is_some());
        let sequencing = sequencing.map(|(change_count, sequence)| Sequencing { change_count, sequence });
        DownstreamService { priority, dsid, sequencing }
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        privacy in prop::option::of(privacy()),
        service in prop::option::of(service()),
        nulls in 0..200_u8,
        payload in prop::collection::vec(any::<u8>(), 0..300),
        behind in prop::collection::vec(any::<u8>(), 0..9),
    ) {
        let header = PacketHeader { privacy, service, nulls };
        let mut bytes = vec![0xee; header.length()];
        prop_assert_eq!(header.write(payload.len(), &mut bytes), Ok(header.length()));
        bytes.extend_from_slice(&payload);
        bytes.extend_from_slice(&behind);
        let (frame, rest) = MacFrame::parse(&bytes).unwrap();
        prop_assert_eq!((frame.kind, frame.payload, rest), (FrameKind::Packet, &payload[..], &behind[..]));
        let elements: Vec<_> = frame.elements().collect::<Result<_, _>>().unwrap();
        let expected: Vec<_> = privacy.map(Element::Privacy).into_iter()
            .chain(service.map(Element::DownstreamService))
            .chain((0..nulls).map(|_| Element::Null))
            .collect();
        prop_assert_eq!(elements, expected);
    }

    #[test]
    fn any_bytes_parse_or_are_named(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok((frame, rest)) = MacFrame::parse(&bytes) {
            prop_assert_eq!(HEADER_LENGTH + frame.extended.len() + frame.payload.len() + rest.len(), bytes.len());
        }
        prop_assert!(Elements::new(&bytes).count() <= bytes.len());
    }

    #[test]
    fn one_wrong_bit_in_a_header_is_seen(header in privacy(), bit in 0..88_usize) {
        let mut bytes = [0_u8; 11];
        PacketHeader { privacy: Some(header), ..Default::default() }.write(0, &mut bytes).unwrap();
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(MacFrame::parse(&bytes).is_err());
    }
}
