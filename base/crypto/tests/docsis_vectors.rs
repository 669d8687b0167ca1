//! DPDK's vectors for DOCSIS, in both directions.

use warmlane_crypto::{CRC_LENGTH, Protection, TrafficKey, crc32, protect};

struct Vector {
    key: TrafficKey,
    encrypt_from: usize,
    crc_from: usize,
    encrypted: bool,
    crc: bool,
    before: Vec<u8>,
    after: Vec<u8>,
}

fn vectors() -> Vec<Vector> {
    let lines = include_str!("dpdk_docsis.vectors").lines();
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(vector).collect()
}

fn vector(line: &str) -> Vector {
    let fields: Vec<_> = line.split(' ').collect();
    let [key, iv, encrypt_from, crc_from, no_encryption, no_crc, before, after] = fields[..] else {
        panic!("eight fields: {line}")
    };
    let iv = bytes(iv).try_into().expect("16 bytes");
    Vector {
        key: TrafficKey::new(&bytes(key), iv).expect("a key"),
        encrypt_from: encrypt_from.parse().expect("a number"),
        crc_from: crc_from.parse().expect("a number"),
        encrypted: no_encryption == "false",
        crc: no_crc == "false",
        before: bytes(before),
        after: bytes(after),
    }
}

fn bytes(text: &str) -> Vec<u8> {
    let digits = (0..text.len()).step_by(2).map(|at| &text[at..at + 2]);
    digits.map(|byte| u8::from_str_radix(byte, 16).expect("hexadecimal digits")).collect()
}

#[test]
fn downstream_gives_what_dpdk_expects() {
    let vectors = vectors();
    assert_eq!(vectors.len(), 26);
    for (number, vector) in (1..).zip(&vectors) {
        let mut packet = vector.before.clone();
        let frame = &mut packet[vector.crc_from..];
        let (crc, key) = (vector.crc, vector.encrypted.then_some(&vector.key));
        let encrypt_from = vector.encrypt_from - vector.crc_from;
        protect([Protection { frame, crc, key, encrypt_from }]);
        assert_eq!(packet, vector.after, "case {number}");
    }
}

/// All cases as one burst: frames must not get into each other's way.
#[test]
fn a_burst_gives_the_same() {
    let vectors = vectors();
    let mut packets: Vec<_> = vectors.iter().map(|vector| vector.before.clone()).collect();
    protect(packets.iter_mut().zip(&vectors).map(|(packet, vector)| Protection {
        frame: &mut packet[vector.crc_from..],
        crc: vector.crc,
        key: vector.encrypted.then_some(&vector.key),
        encrypt_from: vector.encrypt_from - vector.crc_from,
    }));
    for (number, (packet, vector)) in (1..).zip(packets.iter().zip(&vectors)) {
        assert_eq!(packet, &vector.after, "case {number}");
    }
}

#[test]
fn upstream_gives_the_frame_back() {
    for (number, vector) in (1..).zip(&vectors()) {
        let mut packet = vector.after.clone();
        if vector.encrypted {
            vector.key.decrypt(&mut packet[vector.encrypt_from..]);
        }
        let end = packet.len() - if vector.crc { CRC_LENGTH } else { 0 };
        assert_eq!(packet[..end], vector.before[..end], "case {number}");
        if vector.crc {
            let crc = crc32(&packet[vector.crc_from..end]).to_le_bytes();
            assert_eq!(packet[end..], crc, "case {number}");
        }
    }
}
