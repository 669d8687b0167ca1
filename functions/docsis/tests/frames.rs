//! Frames made by the lower MAC and read by the other end.

mod common;

use common::pool;
use proptest::prelude::*;
use warmlane_crypto::TrafficKey;
use warmlane_docsis::keys::Keyring;
use warmlane_docsis::lower::{Framing, LowerDrop, add_header, protect};
use warmlane_docsis::modem::{Decoded, ModemDrop, decode};
use warmlane_mem::{Packet, Pool};
use warmlane_wire::docsis::{DownstreamService, HEADER_LENGTH, Sequencing};

fn keys() -> Keyring {
    let mut keys = Keyring::new();
    for sequence in [6, 7] {
        let key = TrafficKey::new(&[sequence; 16], [0x11; 16]).expect("a key");
        keys.install(9, sequence, key).expect("an association");
    }
    keys
}

fn packet(pool: &Pool, frame: &[u8]) -> Packet {
    let mut packet = pool.take().expect("a buffer");
    packet.fill(frame).expect("space");
    packet
}

/// Frames and protects; `Err` as the lower MAC says it.
fn encode(packet: &mut Packet, framing: &Framing, keys: &Keyring) -> Result<(), LowerDrop> {
    let header = add_header(packet, framing, keys)?;
    warmlane_crypto::protect([protect(packet, header, framing, keys, true)]);
    Ok(())
}

const ENCRYPTED: Framing = Framing { said: Some(9), service: None };

#[test]
fn a_packet_that_fits_no_frame_is_named() {
    let (pool, keys) = (pool(), keys());
    assert_eq!(encode(&mut packet(pool, &[0; 13]), &ENCRYPTED, &keys), Err(LowerDrop::Truncated));
    assert_eq!(encode(&mut packet(pool, &[0; 1_997]), &ENCRYPTED, &keys), Err(LowerDrop::TooLong));
    let unknown = Framing { said: Some(10), ..ENCRYPTED };
    assert_eq!(encode(&mut packet(pool, &[0; 60]), &unknown, &keys), Err(LowerDrop::NoKey));
}

#[test]
fn what_is_wrong_with_a_received_frame_is_named() {
    let (pool, keys) = (pool(), keys());
    let mut good = packet(pool, &[0x5a; 60]);
    encode(&mut good, &ENCRYPTED, &keys).unwrap();
    let read = |change: &dyn Fn(&mut [u8]), keys: &Keyring| {
        let mut bytes = good.data().to_vec();
        change(&mut bytes);
        decode(&mut bytes, keys, true).map(|_| ())
    };
    assert_eq!(read(&|_| (), &keys), Ok(()));
    assert_eq!(read(&|_| (), &Keyring::new()), Err(ModemDrop::NoKey));
    assert_eq!(read(&|bytes| bytes[7] ^= 1, &keys), Err(ModemDrop::Hcs));
    assert_eq!(read(&|bytes| bytes[0] = 0x40, &keys), Err(ModemDrop::Header));
    let end = good.len() - 1;
    for at in [HEADER_LENGTH + 5, 30, end] {
        assert_eq!(read(&|bytes| bytes[at] ^= 1, &keys), Err(ModemDrop::Crc), "byte {at}");
    }
    // The modem has had two new keys since.
    let mut later = keys.clone();
    for sequence in [8, 9] {
        later.install(9, sequence, TrafficKey::new(&[sequence; 16], [0; 16]).unwrap()).unwrap();
    }
    assert_eq!(read(&|_| (), &later), Err(ModemDrop::NoKey));
}

#[test]
fn the_key_before_is_still_read() {
    let (pool, mut keys) = (pool(), keys());
    let mut sent = packet(pool, &[0x5a; 60]);
    encode(&mut sent, &ENCRYPTED, &keys).unwrap();
    keys.install(9, 8, TrafficKey::new(&[8; 16], [0; 16]).unwrap()).unwrap();
    let decoded = decode(sent.data_mut(), &keys, true).unwrap();
    assert_eq!(sent.data()[decoded.frame], [0x5a; 60]);
}

proptest! {
    #[test]
    fn a_frame_comes_back(
        frame in prop::collection::vec(any::<u8>(), 14..1_997),
        encrypted in any::<bool>(),
        service in prop::option::of((0..8_u8, prop::option::of((0..0x10_0000_u32, any::<u16>())))),
    ) {
        let (pool, keys) = (pool(), keys());
        let service = service.map(|(priority, sequenced)| DownstreamService {
            priority,
            dsid: sequenced.map(|(dsid, _)| dsid),
            sequencing: sequenced.map(|(_, sequence)| Sequencing { change_count: false, sequence }),
        });
        let framing = Framing { said: encrypted.then_some(9), service };
        let mut packet = packet(pool, &frame);
        prop_assert_eq!(encode(&mut packet, &framing, &keys), Ok(()));
        if encrypted {
            prop_assert!(!packet.data().ends_with(&frame[12..]));
        }
        let Decoded { frame: range, said, service: found } = decode(packet.data_mut(), &keys, true).unwrap();
        prop_assert_eq!((&packet.data()[range], said, found), (&frame[..], framing.said, service));
    }
}
