//! From a MAC frame back to its Ethernet frame.

use std::ops::Range;

use warmlane_crypto::{CRC_LENGTH, crc32};
use warmlane_wire::docsis::{DownstreamService, Element, FrameKind, MacError, MacFrame};
use warmlane_wire::ethernet;

use super::reason::ModemDrop;
use crate::keys::Keyring;

/// Bytes of the addresses, which are not encrypted.
const ADDRESSES: usize = 12;

/// A MAC frame that was understood and decrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// Where the Ethernet frame is, without its CRC.
    pub frame: Range<usize>,
    /// The security association, if the frame was encrypted.
    pub said: Option<u16>,
    /// The downstream service element, if there is one.
    pub service: Option<DownstreamService>,
}

/// Checks a whole MAC frame and decrypts it in place.
///
/// # Errors
/// [`ModemDrop`]: the first thing that is wrong.
pub fn decode(bytes: &mut [u8], keys: &Keyring, checks_crc: bool) -> Result<Decoded, ModemDrop> {
    let (frame, _) = MacFrame::parse(bytes).map_err(|error| match error {
        MacError::Hcs { .. } => ModemDrop::Hcs,
        _ => ModemDrop::Header,
    })?;
    if !matches!(frame.kind, FrameKind::Packet | FrameKind::IsolatedPacket) {
        return Err(ModemDrop::NotPacket);
    }
    let (mut privacy, mut service) = (None, None);
    for element in frame.elements() {
        match element.map_err(|_| ModemDrop::Elements)? {
            Element::Privacy(element) => privacy = Some(element),
            Element::DownstreamService(element) => service = Some(element),
            Element::Null | Element::Other { .. } => {}
        }
    }
    let start = warmlane_wire::docsis::HEADER_LENGTH + frame.extended.len();
    let end = start + frame.payload.len();
    let payload = bytes.get_mut(start..end).ok_or(ModemDrop::Header)?;
    if payload.len() < ethernet::HEADER_LENGTH + CRC_LENGTH {
        return Err(ModemDrop::Short);
    }
    let privacy = privacy.filter(|privacy| privacy.is_encrypted);
    if let Some(privacy) = privacy {
        let (_, key) = keys
            .by_toggle(privacy.said, privacy.toggle)
            .filter(|(sequence, _)| *sequence == privacy.key_sequence)
            .ok_or(ModemDrop::NoKey)?;
        key.decrypt(payload.get_mut(ADDRESSES..).ok_or(ModemDrop::Short)?);
    }
    let (covered, check) = payload.split_last_chunk::<CRC_LENGTH>().ok_or(ModemDrop::Short)?;
    if checks_crc && crc32(covered) != u32::from_le_bytes(*check) {
        return Err(ModemDrop::Crc);
    }
    Ok(Decoded { frame: start..end - CRC_LENGTH, said: privacy.map(|privacy| privacy.said), service })
}
