//! From an Ethernet frame to a MAC frame: header in front, CRC behind, both in the packet's own buffer.

use warmlane_crypto::{CRC_LENGTH, Protection};
use warmlane_mem::Packet;
use warmlane_wire::docsis::{DownstreamService, PacketHeader, Privacy};
use warmlane_wire::ethernet;

use super::reason::LowerDrop;
use crate::keys::Keyring;

/// Bytes of the addresses, which stay in clear (CM-SP-SECv3.1 section 7).
const ADDRESSES: usize = 12;

/// Bytes of payload that a MAC frame carries at most, CRC included: a frame of 2,000 bytes (IEEE 802.3 section 3.2.7), which
/// MULPI section 6.2.2 allows modems to be sent.
pub const LONGEST_PAYLOAD: usize = 2_000;

/// How a packet is to be framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Framing {
    /// The security association to encrypt it for.
    pub said: Option<u16>,
    /// The downstream service element.
    pub service: Option<DownstreamService>,
}

/// Puts the header in front of an Ethernet frame without CRC, and space for the CRC behind it. Says how long the header is.
///
/// # Errors
/// [`LowerDrop`], if the frame or its buffer isn't fit for that, or there is no key; the packet is of no use then.
#[inline]
pub fn add_header(packet: &mut Packet, framing: &Framing, keys: &Keyring) -> Result<usize, LowerDrop> {
    if packet.len() < ethernet::HEADER_LENGTH {
        return Err(LowerDrop::Truncated);
    }
    let privacy = match framing.said {
        Some(said) => {
            let (sequence, _) = keys.newest(said).ok_or(LowerDrop::NoKey)?;
            Some(Privacy::encrypted(said, sequence))
        }
        None => None,
    };
    if packet.len() + CRC_LENGTH > LONGEST_PAYLOAD || packet.segments() > 1 {
        return Err(LowerDrop::TooLong);
    }
    packet.append(CRC_LENGTH).map_err(|_| LowerDrop::TooLong)?.fill(0);
    let payload = packet.len();
    let header = PacketHeader { privacy, service: framing.service, nulls: 0 };
    let space = packet.prepend(header.length()).map_err(|_| LowerDrop::TooLong)?;
    header.write(payload, space).map_err(|_| LowerDrop::TooLong)
}

/// What is to be done to a packet's bytes after [`add_header`] has said how long its header is.
#[inline]
pub fn protect<'a>(
    packet: &'a mut Packet,
    header: usize,
    framing: &Framing,
    keys: &'a Keyring,
    crc: bool,
) -> Protection<'a> {
    let key = framing.said.and_then(|said| keys.newest(said)).map(|(_, key)| key);
    let frame = packet.data_mut().get_mut(header..).unwrap_or_default();
    Protection { frame, crc, key, encrypt_from: ADDRESSES }
}
