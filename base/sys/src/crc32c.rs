//! CRC-32C (Castagnoli): the check of SCTP (RFC 9260 appendix A), eight bytes at a time where the processor has an instruction for it.

/// The polynomial 0x1edc6f41, its bits in the order of transmission.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The state before the first byte. The complement of the state behind the last one is the check.
pub const START: u32 = u32::MAX;

/// The state behind `bytes`, with `state` before them.
#[inline]
pub fn update(state: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instruction.
        return unsafe { by_instruction(state, bytes) };
    }
    by_table(state, bytes)
}

/// # Safety
/// The processor has SSE4.2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
unsafe fn by_instruction(state: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};

    let (words, rest) = bytes.as_chunks::<8>();
    let wide =
        words.iter().fold(u64::from(state), |state, word| _mm_crc32_u64(state, u64::from_le_bytes(*word)));
    // The upper half is zero.
    rest.iter().fold(wide as u32, |state, byte| _mm_crc32_u8(state, *byte))
}

/// The same on any processor, a byte at a time.
fn by_table(state: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(state, |state, byte| TABLE[usize::from(state as u8 ^ byte)] ^ state >> 8)
}

/// What each byte does to the state.
static TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let (mut state, mut bit) = (byte as u32, 0);
        while bit < 8 {
            state = if state & 1 == 0 { state >> 1 } else { state >> 1 ^ POLYNOMIAL };
            bit += 1;
        }
        table[byte] = state;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720 appendix B.4, and the usual check of nine digits.
    #[test]
    fn known_bytes_have_known_checks() {
        let rising: Vec<u8> = (0..32).collect();
        let falling: Vec<u8> = (0..32).rev().collect();
        let vectors: [(&[u8], u32); 6] = [
            (b"", 0),
            (b"123456789", 0xe306_9283),
            (&[0; 32], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&rising, 0x46dd_794e),
            (&falling, 0x113f_db5c),
        ];
        for (bytes, check) in vectors {
            assert_eq!(!update(START, bytes), check, "{bytes:?}");
            assert_eq!(!by_table(START, bytes), check, "{bytes:?}");
        }
    }

    #[test]
    fn parts_are_as_the_whole() {
        let bytes: Vec<u8> = (0..200_u8).map(|byte| byte.wrapping_mul(37)).collect();
        for middle in 0..bytes.len() {
            let (first, second) = bytes.split_at(middle);
            assert_eq!(update(update(START, first), second), by_table(START, &bytes), "{middle}");
        }
    }
}
