//! Reading files that others wrote, whole and damaged.

use std::{
    io::{self, Read},
    path::PathBuf,
};

use crate::common::{Owned, read_all};
use proptest::prelude::*;
use warmlane_pcap::{LinkType, PcapError, Reader};

const BROADCAST: &[u8] = b"\xff\xff\xff\xff\xff\xff\x02\0\0\0\0\x01\x88\xb5";

/// The bytes of a fixture: hexadecimal digits, white space, and comments from `#` to the end of the line.
fn hex(name: &str) -> Vec<u8> {
    let text = std::fs::read_to_string(fixture(&format!("{name}.hex"))).unwrap();
    let digits: Vec<u8> = text
        .lines()
        .flat_map(|line| line.split('#').next().unwrap().chars())
        .filter(|digit| !digit.is_whitespace())
        .map(|digit| digit.to_digit(16).unwrap() as u8)
        .collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// Reads in a way that input may come from a pipe: one byte at a time, with interruptions.
struct Dribble<'a>(&'a [u8], bool);

impl Read for Dribble<'_> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        self.1 = !self.1;
        if self.1 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let count = target.len().min(1);
        self.0.read(&mut target[..count])
    }
}

#[test]
fn big_endian_microseconds() {
    let bytes = hex("big_endian_microseconds.pcap");
    let (frames, error) = read_all(&bytes[..]);
    assert!(error.is_none(), "{error:?}");
    let ethernet = Owned {
        timestamp: 2_000_003_000,
        original_length: 14,
        interface: 0,
        link_type: 1,
        fcs_length: 0,
        data: BROADCAST.to_vec(),
    };
    assert_eq!(frames[0], ethernet);
    assert_eq!(
        (frames[1].timestamp, frames[1].original_length, frames[1].data.len()),
        (2_999_999_000, 60, 16)
    );
    assert_eq!(frames.len(), 2);
    let mut reader = Reader::new(&bytes[..]).unwrap();
    assert!(!reader.next_frame().unwrap().unwrap().is_snapped());
    assert!(reader.next_frame().unwrap().unwrap().is_snapped());
}

#[test]
fn little_endian_nanoseconds_with_frame_check_sequence() {
    let bytes = hex("little_endian_nanoseconds_fcs.pcap");
    let mut reader = Reader::new(&bytes[..]).unwrap();
    assert_eq!(reader.link_type(), Some(LinkType::ETHERNET));
    let frame = reader.next_frame().unwrap().unwrap();
    assert_eq!(frame.timestamp_nanoseconds, 1_700_000_000_123_456_789);
    assert_eq!(frame.fcs_length, 4);
    assert_eq!(frame.without_fcs(), BROADCAST);
}

#[test]
fn the_interfaces_check_sequence_length_in_bits_or_bytes() {
    // Both are in use, see the reader.
    for stated in [4, 32] {
        let words = [
            [0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28].as_slice(),
            &[1, 28, 1, 0, 0x0001_000d, stated, 28],
            &[6, 36, 0, 0, 1, 4, 64, 0, 36],
        ];
        let bytes: Vec<u8> = words.concat().iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
        let (frames, error) = read_all(&bytes[..]);
        assert!(error.is_none(), "{error:?}");
        assert_eq!(frames[0].fcs_length, 4, "if_fcslen = {stated}");
    }
}

#[test]
fn two_interfaces_of_different_resolution_and_two_sections_of_different_byte_order() {
    let mut bytes = hex("big_endian_two_interfaces.pcapng");
    bytes.extend(hex("little_endian_section.pcapng"));
    let expected = [
        (4_294_967_297_000, 14, 0, 1, 4, BROADCAST.to_vec()),
        (100_500_000_000, 5, 1, 113, 0, vec![0x11, 0x22, 0x33, 0x44, 0x55]),
        (0, 60, 0, 1, 0, b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x08\x00\x45".to_vec()),
        (101_000_000_000, 4, 1, 113, 0, vec![0x99, 0x88, 0x77, 0x66]),
        (5, 14, 0, 1, 0, BROADCAST.to_vec()),
    ]
    .map(|(timestamp, original_length, interface, link_type, fcs_length, data)| Owned {
        timestamp,
        original_length,
        interface,
        link_type,
        fcs_length,
        data,
    });
    let (frames, error) = read_all(&bytes[..]);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(frames, expected);
    assert_eq!(read_all(Dribble(&bytes, false)).0, expected);
}

/// Ends of the file header and of every record or block, and whether a frame ends there.
fn boundaries(bytes: &[u8]) -> Vec<(usize, bool)> {
    let word = |at: usize, big: bool| {
        let bytes: [u8; 4] = bytes[at..at + 4].try_into().unwrap();
        if big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    };
    let mut ends = Vec::new();
    if bytes[0] == 0x0a {
        let (mut at, mut big) = (0, false);
        while at < bytes.len() {
            if word(at, true) == 0x0a0d_0d0a {
                big = word(at + 8, true) == 0x1a2b_3c4d;
            }
            let is_frame = matches!(word(at, big), 2 | 3 | 6);
            at += word(at + 4, big) as usize;
            ends.push((at, is_frame));
        }
    } else {
        let big = bytes[0] == 0xa1;
        let mut at = 24;
        ends.push((at, false));
        while at < bytes.len() {
            at += 16 + word(at + 8, big) as usize;
            ends.push((at, true));
        }
    }
    ends
}

#[test]
fn cut_at_every_byte() {
    let mut sections = hex("big_endian_two_interfaces.pcapng");
    sections.extend(hex("little_endian_section.pcapng"));
    let files = [hex("big_endian_microseconds.pcap"), hex("little_endian_nanoseconds_fcs.pcap"), sections];
    for bytes in files {
        let whole = read_all(&bytes[..]).0;
        let ends = boundaries(&bytes);
        for cut in 0..bytes.len() {
            let (frames, error) = read_all(&bytes[..cut]);
            let count = ends.iter().filter(|(end, is_frame)| *is_frame && *end <= cut).count();
            assert_eq!(frames, whole[..count], "cut at {cut}");
            let start = ends.iter().map(|(end, _)| *end).filter(|end| *end <= cut).max().unwrap_or(0);
            match error {
                None => assert!(start == cut && cut > 0, "cut at {cut} is not noticed"),
                Some(PcapError::Empty { .. }) => assert_eq!(cut, 0),
                Some(PcapError::Truncated { position, missing, .. }) => {
                    assert_eq!(position.offset, start as u64, "cut at {cut}");
                    assert_eq!(position.frame, count as u64 + 1, "cut at {cut}");
                    let end = ends.iter().map(|(end, _)| *end).find(|end| *end > cut).unwrap();
                    assert!(missing > 0 && missing <= (end - cut) as u64, "cut at {cut}: {missing} missing");
                }
                Some(error) => panic!("cut at {cut}: {error}"),
            }
        }
    }
}

/// The error of a file in which the four bytes at `offset` are replaced.
fn damaged(name: &str, offset: usize, value: u32) -> (usize, PcapError) {
    let mut bytes = hex(name);
    bytes[offset..offset + 4].copy_from_slice(&value.to_be_bytes());
    let (frames, error) = read_all(&bytes[..]);
    (frames.len(), error.expect("damage is noticed"))
}

#[test]
fn hostile_lengths_are_typed_errors() {
    const PCAP: &str = "big_endian_microseconds.pcap";
    const PCAPNG: &str = "big_endian_two_interfaces.pcapng";
    // Captured length of the first and second record.
    assert!(matches!(damaged(PCAP, 32, u32::MAX), (0, PcapError::FrameTooLong { length: u32::MAX, .. })));
    assert!(matches!(damaged(PCAP, 62, 262_145), (1, PcapError::FrameTooLong { length: 262_145, .. })));
    assert!(matches!(damaged(PCAP, 62, 262_144), (1, PcapError::Truncated { .. })));
    assert!(matches!(damaged(PCAP, 4, 0x0003_0000), (0, PcapError::Version { major: 3, .. })));

    let ends: Vec<usize> = boundaries(&hex(PCAPNG)).into_iter().map(|(end, _)| end).collect();
    let (names, frame_1, frame_2) = (ends[2], ends[3], ends[4]);
    for length in [0, 4, 8, 13, 1 << 20, u32::MAX - 3, u32::MAX] {
        for block in [0, ends[0], frame_1] {
            let (_, error) = damaged(PCAPNG, block + 4, length);
            // A section header or a block to pass over may be as long as it likes, if only the file is.
            let may_be_long = block == 0 && length % 4 == 0 && length > 100;
            match error {
                PcapError::BlockLength { length: found, .. } if !may_be_long => assert_eq!(found, length),
                PcapError::Truncated { .. } if may_be_long => {}
                error => panic!("block at {block}, length {length}: {error}"),
            }
        }
    }
    assert!(matches!(damaged(PCAPNG, names + 4, u32::MAX - 3), (0, PcapError::Truncated { .. })));
    assert!(matches!(damaged(PCAPNG, frame_1 + 20, u32::MAX), (0, PcapError::FrameTooLong { .. })));
    // 33 bytes of frame do not fit the 68 of the block.
    let (_, error) = damaged(PCAPNG, frame_1 + 20, 37);
    assert!(matches!(error, PcapError::BlockLength { length: 68, .. }), "{error}");
    assert!(matches!(damaged(PCAPNG, frame_2 - 4, 64), (0, PcapError::BlockTrailer { trailer: 64, .. })));
    assert!(matches!(damaged(PCAPNG, names + 12, 20), (0, PcapError::BlockTrailer { trailer: 20, .. })));
    assert!(matches!(
        damaged(PCAPNG, frame_2 + 8, 2),
        (1, PcapError::UnknownInterface { interface: 2, known: 2, .. })
    ));
    // The comment in front of the flags claims to leave the block.
    let (_, error) = damaged(PCAPNG, frame_1 + 44, 0x0001_ffff);
    assert!(matches!(error, PcapError::OptionLength { code: 1, length: 0xffff, .. }), "{error}");
    // if_tsoffset of 4 bytes instead of 8.
    let (_, error) = damaged(PCAPNG, ends[1] + 24, 0x000e_0004);
    assert!(matches!(error, PcapError::OptionLength { code: 14, length: 4, .. }), "{error}");
    assert!(matches!(damaged(PCAPNG, 8, 0x1a2b_3c4e), (0, PcapError::ByteOrder { .. })));
}

#[test]
fn messages_name_file_place_and_remedy() {
    let bytes = hex("big_endian_microseconds.pcap");
    let mut reader = Reader::named(&bytes[..60], "yesterday.pcap".into()).unwrap();
    reader.next_frame().unwrap();
    let message = reader.next_frame().unwrap_err().to_string();
    assert!(
        message.starts_with("yesterday.pcap, byte 54, frame 2: the file ends 10 bytes before"),
        "{message}"
    );
    let compressed = Reader::new(&b"\x1f\x8b\x08\0"[..]).unwrap_err().to_string();
    assert!(compressed.contains("gunzip"), "{compressed}");
    let missing = Reader::open("no/such/file.pcap".as_ref()).unwrap_err().to_string();
    assert!(missing.contains("no/such/file.pcap"), "{missing}");
}

#[test]
fn rewinds_to_the_first_frame() {
    let bytes = hex("big_endian_two_interfaces.pcapng");
    let mut reader = Reader::new(io::Cursor::new(&bytes)).unwrap();
    for _ in 0..3 {
        let mut frames = 0;
        while reader.next_frame().unwrap().is_some() {
            frames += 1;
        }
        assert_eq!(frames, 4);
        reader.rewind().unwrap();
        assert_eq!(reader.frames(), 0);
    }
}

#[test]
fn files_of_wireshark_tools() {
    // What each is, and how it was made: fixtures/README.md.
    for (name, snapped) in [
        ("wireshark_microseconds.pcap", 0),
        ("wireshark_nanoseconds.pcap", 0),
        ("wireshark_snapped.pcapng", 3),
        ("wireshark_merged.pcapng", 0),
    ] {
        let bytes = std::fs::read(fixture(name)).unwrap();
        let (frames, error) = read_all(&bytes[..]);
        assert!(error.is_none(), "{name}: {error:?}");
        let copies = if name.contains("merged") { 2 } else { 1 };
        assert_eq!(frames.len(), 3 * copies, "{name}");
        assert_eq!(
            frames.iter().filter(|frame| frame.data.len() < frame.original_length as usize).count(),
            snapped
        );
        let fraction =
            if name.contains("microseconds") || name.contains("merged") { 123_456_000 } else { 123_456_789 };
        for (index, frame) in frames.iter().enumerate() {
            let number = (index / copies) as u64;
            assert_eq!(frame.original_length, 60, "{name}");
            let expected = 1_700_000_000_000_000_000 + number * 1_000_000_000 + fraction;
            assert!(
                frame.timestamp == expected || frame.timestamp == expected + 789,
                "{name}: {} is not {expected}",
                frame.timestamp
            );
            assert_eq!(frame.data[13], 0xb5, "{name}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn arbitrary_bytes_never_panic(
        magic in 0..6_usize,
        mut bytes in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        const MAGICS: [[u8; 4]; 5] = [
            [0xa1, 0xb2, 0xc3, 0xd4], [0xd4, 0xc3, 0xb2, 0xa1], [0xa1, 0xb2, 0x3c, 0x4d],
            [0x4d, 0x3c, 0xb2, 0xa1], [0x0a, 0x0d, 0x0d, 0x0a],
        ];
        if let (Some(magic), true) = (MAGICS.get(magic), bytes.len() >= 4) {
            bytes[..4].copy_from_slice(magic);
        }
        read_all(&bytes[..]);
    }

    #[test]
    fn damaged_files_never_panic(
        file in 0..3_usize,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let names =
            ["big_endian_microseconds.pcap", "big_endian_two_interfaces.pcapng", "little_endian_section.pcapng"];
        let mut bytes = hex(names[file]);
        for (place, value) in damage {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        let (frames, _) = read_all(&bytes[..]);
        prop_assert!(frames.len() <= bytes.len() / 16);
        for frame in frames {
            prop_assert!(frame.data.len() <= bytes.len());
        }
    }
}
