//! Both for a burst of frames.

use crate::{CRC_LENGTH, TrafficKey, crc32};

/// A frame and what is to be done to it.
#[derive(Debug)]
pub struct Protection<'a> {
    /// The Ethernet frame from its destination address on, and behind it four bytes for the CRC.
    pub frame: &'a mut [u8],
    /// Whether the CRC is to be written. Without, the last four bytes stay as they are.
    pub crc: bool,
    /// The key to encrypt with, if any.
    pub key: Option<&'a TrafficKey>,
    /// Where encryption begins: behind the addresses, which stay in clear (CM-SP-SECv3.1 section 7), in DOCSIS.
    pub encrypt_from: usize,
}

/// Writes CRCs and encrypts, in this order, so that CRCs are encrypted, too. Frames without space for a CRC get none.
///
/// Frames of DOCSIS with keys of 16 bytes are worked on together, several at once, where the processor has AES and carry-less multiplication
/// in vector registers.
pub fn protect<'a>(frames: impl IntoIterator<Item = Protection<'a>>) {
    #[cfg(target_arch = "x86_64")]
    {
        let mut batch = crate::interleaved::Batch::new();
        for frame in frames {
            if let Err(frame) = batch.push(frame) {
                protect_one(frame);
            }
        }
        batch.finish();
    }
    #[cfg(not(target_arch = "x86_64"))]
    frames.into_iter().for_each(protect_one);
}

/// What [`protect`] does, for a single frame of any kind.
pub(crate) fn protect_one(Protection { frame, crc, key, encrypt_from }: Protection<'_>) {
    if crc && let Some((covered, check)) = frame.split_last_chunk_mut::<CRC_LENGTH>() {
        *check = crc32(covered).to_le_bytes();
    }
    if let (Some(key), Some(region)) = (key, frame.get_mut(encrypt_from..)) {
        key.encrypt(region);
    }
}
