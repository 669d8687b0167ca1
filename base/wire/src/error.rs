//! The error every protocol shares: not enough bytes.

use thiserror::Error;

/// Fewer bytes than a header needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{header} truncated: {available} bytes present, at least {needed} needed")]
pub struct Truncated {
    /// Which header was being read.
    pub header: &'static str,
    /// Bytes that the header takes at least.
    pub needed: usize,
    /// Bytes that were there.
    pub available: usize,
}

/// Splits the first `N` bytes off as an array, which is the only length check that a fixed header needs.
#[inline(always)]
pub(crate) fn take<'a, const N: usize>(
    bytes: &'a [u8],
    header: &'static str,
) -> Result<(&'a [u8; N], &'a [u8]), Truncated> {
    match bytes.split_first_chunk::<N>() {
        Some(parts) => Ok(parts),
        None => Err(Truncated { header, needed: N, available: bytes.len() }),
    }
}
