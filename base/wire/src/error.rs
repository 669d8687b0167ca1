//! The errors that protocols share: not enough bytes, and a wrong checksum.

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

/// What can be wrong with a header, besides that it is cut short, which all check first, and the checksum, which those that have one check last.
macro_rules! header_errors {
    ($(#[$documentation:meta])* pub enum $name:ident $(with $checksum:ident)? { $($others:tt)* }) => {
        $(#[$documentation])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
        pub enum $name {
            /// There are fewer bytes than it has at least.
            #[error(transparent)]
            Truncated(#[from] $crate::Truncated),
            $($others)*
            $(
                /// The checksum doesn't fit what it covers: over IPv6, and in TCP and UDP, the pseudo header, too.
                #[error(transparent)]
                $checksum(#[from] $crate::WrongChecksum),
            )?
        }
    };
}

pub(crate) use header_errors;

/// A checksum that doesn't fit what it covers (RFC 1071).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{protocol} checksum {found:#06x} is wrong: {covered} to {sum:#06x} instead of 0xffff")]
pub struct WrongChecksum {
    protocol: &'static str,
    /// What the sum is of, with the verb that fits.
    covered: &'static str,
    /// The checksum field.
    pub found: u16,
    /// The ones' complement sum of everything, checksum included.
    pub sum: u16,
}

impl WrongChecksum {
    /// Fails unless `sum`, over the message alone, is that of an intact one.
    #[inline(always)]
    pub(crate) const fn check_message(protocol: &'static str, found: u16, sum: u16) -> Result<(), Self> {
        Self::check(protocol, "the message adds up", found, sum)
    }

    /// Fails unless `sum`, over the message and the pseudo header in front of it, is that of an intact one.
    #[inline(always)]
    pub(crate) const fn check_with_pseudo_header(
        protocol: &'static str,
        found: u16,
        sum: u16,
    ) -> Result<(), Self> {
        Self::check(protocol, "pseudo header and message add up", found, sum)
    }

    #[inline(always)]
    const fn check(protocol: &'static str, covered: &'static str, found: u16, sum: u16) -> Result<(), Self> {
        if sum == 0xffff { Ok(()) } else { Err(Self { protocol, covered, found, sum }) }
    }
}

header_errors! {
    /// What is wrong with an ICMP message of either version. The order of the variants is the order of the checks.
    pub enum IcmpError with Checksum {}
}
