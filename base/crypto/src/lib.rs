//! What DOCSIS does with the bytes of a frame: the Ethernet CRC, and the encryption of Baseline Privacy Plus (BPI+).
//!
//! - [`TrafficKey`] encrypts and decrypts one region: AES in CBC mode, and what remains after the last full block by
//!   residual block termination (CM-SP-SECv3.1, ITU-T J.125), so that a region of any length keeps its length.
//! - [`crc32`] is the frame check sequence of Ethernet (IEEE 802.3 section 3.2.9).
//! - [`protect`] does both to a burst of frames, in one pass over their bytes. CBC's blocks wait for each other, so those of 16 frames go side by
//!   side where the processor has AVX-512 with VAES, and of eight where it has AES instructions.
//!
//! It promises that time and memory accesses don't depend on keys or data where the processor has instructions for AES
//! (crate `aes` elsewhere: bitsliced, the same promise), and that nothing here panics or allocates. It must not know buffers, modems or headers. DES, which BPI+ also
//! names, is refused: [`KeyError::Des`].

mod burst;
#[cfg(target_arch = "x86_64")]
mod interleaved;
mod key;

pub use burst::{Protection, protect};
pub use key::{BLOCK, KeyError, TrafficKey};

/// Bytes of a [`crc32`] behind a frame.
pub const CRC_LENGTH: usize = 4;

/// The CRC of a frame, destination address to the end of its payload; it follows them low byte first.
#[inline]
pub fn crc32(frame: &[u8]) -> u32 {
    crc32fast::hash(frame)
}
