//! What a modem reads: MAC frames, extended headers, PSP packets one after the other, L2TPv3 in Ethernet. None of it panics, and what was
//! understood fits in what was there.

#![no_main]

use libfuzzer_sys::fuzz_target;
use warmlane_docsis::control::{Generated, generate};
use warmlane_docsis::keys::Keyring;
use warmlane_docsis::modem::{Reassembler, decode};
use warmlane_wire::docsis::{Elements, HEADER_LENGTH, MacFrame, hcs};
use warmlane_wire::{l2tpv3, psp};

fuzz_target!(|bytes: &[u8]| {
    mac_frame(bytes);
    assert!(Elements::new(bytes).count() <= bytes.len());
    if let Ok((session, rest)) = l2tpv3::parse(bytes) {
        assert!(session != 0 && rest.len() + l2tpv3::HEADER_LENGTH == bytes.len());
    }
    reassembly(bytes);
});

fn mac_frame(bytes: &[u8]) {
    // A fuzzer doesn't guess check sequences: the same header with the right one.
    let mut mended = bytes.to_vec();
    let extended = match bytes {
        [control, parameter, ..] if control & 1 == 1 => usize::from(*parameter),
        _ => 0,
    };
    if let Some((covered, check)) =
        mended.get_mut(..HEADER_LENGTH + extended).and_then(<[u8]>::split_last_chunk_mut::<2>)
    {
        *check = hcs::checksum(covered).to_le_bytes();
    }
    for bytes in [bytes, &mended] {
        if let Ok((frame, rest)) = MacFrame::parse(bytes) {
            let all = HEADER_LENGTH + frame.extended.len() + frame.payload.len() + rest.len();
            assert_eq!(all, bytes.len());
        }
    }
    let group = generate(&Generated { modems: 1, ofdm: 1, ..Generated::default() });
    let mut keys = Keyring::new();
    let said = mended.get(6..8).map_or(1, |said| u16::from_be_bytes([said[0] & 0x3f, said[1]]));
    let sequence = mended.get(5).map_or(0, |byte| byte >> 4);
    keys.install(said, sequence, group.keys.key(said, 0)).expect("numbers of few bits");
    let length = mended.len();
    if let Ok(decoded) = decode(&mut mended, &keys, false) {
        assert!(decoded.frame.start <= decoded.frame.end && decoded.frame.end <= length);
    }
}

/// The bytes as packets, each of which begins with its length.
fn reassembly(bytes: &[u8]) {
    let mut reassembler = Reassembler::new();
    let mut rest = bytes;
    while let Some((length, behind)) = rest.split_first() {
        let (packet, behind) = behind.split_at(usize::from(*length).min(behind.len()));
        rest = behind;
        let mut frames = 0;
        let result = reassembler.push(packet, |_| frames += 1);
        assert!(result.is_ok() || frames == 0, "a packet that is refused is not used");
        if let Ok(parsed) = psp::PspPacket::parse(packet) {
            assert!(frames <= parsed.segments().count());
        }
    }
}
