//! The header check sequence: CRC-16/X-25 (x¹⁶ + x¹² + x⁵ + 1, reflected; MULPI section 6.2.1), sent low byte first.

/// The generator polynomial, reflected.
const POLYNOMIAL: u16 = 0x8408;

/// What each value of a byte changes.
const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = byte as u16;
        let mut bit = 0;
        while bit < 8 {
            remainder = if remainder & 1 == 0 { remainder >> 1 } else { remainder >> 1 ^ POLYNOMIAL };
            bit += 1;
        }
        table[byte] = remainder;
        byte += 1;
    }
    table
};

/// The check sequence of a header, FC to the end of the extended header.
#[inline]
pub fn checksum(header: &[u8]) -> u16 {
    let remainder = header.iter().fold(0xffff_u16, |remainder, byte| {
        remainder >> 8 ^ TABLE[usize::from((remainder ^ u16::from(*byte)) & 0xff)]
    });
    !remainder
}
