//! A cable network to send to: its service group, and frames to its modems.

use std::time::Duration;
use warmlane_docsis::control::{Generated, ServiceGroup, generate};
use warmlane_wire::{Frame, Ipv4Fields, MacAddress};

/// Modems behind a downstream.
pub(crate) const MODEMS: u32 = 300;

/// Bits a second of channels that never fill.
const CHANNEL_RATE: u64 = 1_000_000_000_000;

/// Bytes of a CRC, which the frame lengths of the mix count and the frames don't have.
const CRC: usize = 4;

/// A service group that was checked, whose channels never fill and whose packets don't grow old.
pub(crate) fn service_group(crc: bool, encryption: bool) -> Result<ServiceGroup, String> {
    let mut group = generate(&Generated { modems: MODEMS as u16, ..Generated::default() });
    (group.crc, group.encryption) = (crc, encryption);
    // A lane sleeps between rounds, and its packets with it.
    group.limits.age = Duration::from_secs(1 << 20);
    for channel in &mut group.channels {
        channel.rate = CHANNEL_RATE;
    }
    group.check().map_err(|error| error.to_string())?;
    Ok(group)
}

/// The length of the frame in this place of the mix, with its CRC: 3 % of 68 bytes, 1 % of 932, 96 % of 1,520, in an order that looks
/// like none.
pub(crate) const fn mix(place: u32) -> u32 {
    // Steps of 37 through 100 visit each number once.
    match place * 37 % 100 {
        0..3 => 68,
        3 => 932,
        _ => 1_520,
    }
}

/// The frame in this place, to one modem after the other, of so many bytes with its CRC.
pub(crate) fn frame(place: u32, bytes: u32) -> Result<Vec<u8>, String> {
    // Steps of 7 visit all modems.
    let [_, a, b, c] = (place * 7 % MODEMS + 1).to_be_bytes();
    let source = [198, 18, 0, 1].into();
    let headers = 14 + 20 + 8;
    Frame::new()
        .ethernet(MacAddress([2, 0xca, 0xb1, a, b, c]), MacAddress([2, 0, 0, 0, 0, 1]))
        .ipv4(Ipv4Fields::new(source, [10, a, b, c].into()))
        .udp(1_024, 9)
        .payload(&vec![place as u8; bytes as usize - CRC - headers])
        .to_vec()
        .map_err(|error| error.to_string())
}
