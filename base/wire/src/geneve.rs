//! GENEVE (RFC 8926): a frame in a UDP datagram, behind a header with options.

use crate::error::{header_errors, take};
use crate::{EtherType, Truncated};

/// Bytes of the header without options.
pub const HEADER_LENGTH: usize = 8;

/// The UDP destination port (RFC 8926 section 3.3).
pub const PORT: u16 = 6081;

/// The only version.
const VERSION: u8 = 0;
/// Options' lengths are in units of so many bytes, and each begins with one.
const UNIT: usize = 4;
/// The flag O: a control message.
const CONTROL: u8 = 0x80;
/// The flag C: there are critical options.
const CRITICAL: u8 = 0x40;
/// In an option's type: the option is critical.
const CRITICAL_TYPE: u8 = 0x80;

header_errors! {
    /// What can be wrong with a GENEVE header, in the order of the checks.
    pub enum GeneveError {
        /// Another version, of which nothing else is known.
        #[error("GENEVE version {version}, where 0 must be")]
        Version {
            /// The version found.
            version: u8,
        },
        /// Options that are together longer or shorter than the header says.
        #[error("GENEVE options do not fill the {length} bytes that the header says they take")]
        OptionLength {
            /// Bytes of all options, by the header.
            length: usize,
        },
        /// An option that must be understood, or the header's word that there is one. None is known here.
        #[error("a critical GENEVE option, and none is known")]
        CriticalOption,
    }
}

/// The fixed part of a GENEVE header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneveHeader<'a>(pub &'a [u8; HEADER_LENGTH]);

impl GeneveHeader<'_> {
    /// The version, which is 0.
    #[inline]
    pub const fn version(self) -> u8 {
        self.0[0] >> 6
    }

    /// Bytes of options behind the fixed part, at most 252.
    #[inline]
    pub const fn options_length(self) -> usize {
        (self.0[0] & 0x3f) as usize * UNIT
    }

    /// Whether a control message of the tunnel follows, no packet of a host (flag O).
    #[inline]
    pub const fn is_control(self) -> bool {
        self.0[1] & CONTROL != 0
    }

    /// Whether at least one option must be understood (flag C).
    #[inline]
    pub const fn has_critical_options(self) -> bool {
        self.0[1] & CRITICAL != 0
    }

    /// What follows the options: [`EtherType::BRIDGED`] is a frame.
    #[inline]
    pub const fn protocol(self) -> EtherType {
        EtherType(u16::from_be_bytes([self.0[2], self.0[3]]))
    }

    /// The virtual network identifier (VNI), 24 bits.
    #[inline]
    pub const fn identifier(self) -> u32 {
        u32::from_be_bytes([0, self.0[4], self.0[5], self.0[6]])
    }
}

/// The header in front of a frame of the network with this identifier, of which the low 24 bits count, without options.
#[inline]
pub const fn header(identifier: u32) -> [u8; HEADER_LENGTH] {
    let [_, a, b, c] = identifier.to_be_bytes();
    let [high, low] = EtherType::BRIDGED.0.to_be_bytes();
    [VERSION << 6, 0, high, low, a, b, c, 0]
}

/// Reads the header of a UDP datagram's data; gives the header and what follows the options, which are skipped.
///
/// # Errors
/// [`GeneveError`]: among others of options that are critical, as RFC 8926 sections 3.4 and 3.5 want of who knows none. Reserved bits are
/// ignored.
#[inline]
pub fn parse(bytes: &[u8]) -> Result<(GeneveHeader<'_>, &[u8]), GeneveError> {
    let (fixed, rest) = take::<HEADER_LENGTH>(bytes, "GENEVE header")?;
    let header = GeneveHeader(fixed);
    if header.version() != VERSION {
        return Err(GeneveError::Version { version: header.version() });
    }
    let length = header.options_length();
    let Some((options, payload)) = rest.split_at_checked(length) else {
        return Err(Truncated { header: "GENEVE options", needed: length, available: rest.len() }.into());
    };
    let is_critical = check_options(options)?;
    if is_critical || header.has_critical_options() {
        return Err(GeneveError::CriticalOption);
    }
    Ok((header, payload))
}

/// Whether one of the options is critical.
fn check_options(options: &[u8]) -> Result<bool, GeneveError> {
    let wrong = GeneveError::OptionLength { length: options.len() };
    let (mut rest, mut is_critical) = (options, false);
    // Class, type, and five bits of length.
    while let Some(([_, _, kind, length], behind)) = rest.split_first_chunk::<UNIT>() {
        is_critical |= kind & CRITICAL_TYPE != 0;
        rest = behind.get(usize::from(length & 0x1f) * UNIT..).ok_or(wrong)?;
    }
    Ok(is_critical)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with these flags and options in front of a frame.
    fn with(first: u8, flags: u8, options: &[u8]) -> Vec<u8> {
        [&[first, flags, 0x65, 0x58, 0x12, 0x34, 0x56, 0][..], options, b"frame"].concat()
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = [&header(0x12_3456)[..], b"frame"].concat();
        assert_eq!(bytes, with(0, 0, &[]));
        let (header, frame) = parse(&bytes).unwrap();
        assert_eq!(
            (header.identifier(), header.protocol(), frame),
            (0x12_3456, EtherType::BRIDGED, &b"frame"[..])
        );
        assert_eq!((header.version(), header.options_length(), header.is_control()), (0, 0, false));
    }

    #[test]
    fn options_are_skipped() {
        // One without data, and one with eight bytes of it.
        let options = [1, 2, 0x7f, 0xe0, 1, 3, 5, 2, 9, 9, 9, 9, 9, 9, 9, 9];
        let bytes = with(4, 0x80, &options);
        let (header, frame) = parse(&bytes).unwrap();
        assert_eq!((header.options_length(), header.is_control(), frame), (16, true, &b"frame"[..]));
        // As many as there can be.
        let options = [1, 2, 3, 0].repeat(63);
        assert_eq!(parse(&with(63, 0, &options)).unwrap().1, b"frame");
        assert!(parse(&with(0, 0x3f, &[])).is_ok(), "reserved bits are ignored");
    }

    #[test]
    fn bad_headers_are_named() {
        let truncated = |header, needed, available| Err(Truncated { header, needed, available }.into());
        assert_eq!(parse(&[0; 7]), truncated("GENEVE header", 8, 7));
        assert_eq!(parse(&with(0x40, 0, &[])), Err(GeneveError::Version { version: 1 }));
        assert_eq!(parse(&with(2, 0, &[])), truncated("GENEVE options", 8, 5));
        assert_eq!(parse(&with(2, 0, &[])[..8]), truncated("GENEVE options", 8, 0));
        // The second reaches beyond them, by one unit.
        let options = [1, 2, 3, 0, 1, 2, 3, 1];
        assert_eq!(parse(&with(2, 0, &options)), Err(GeneveError::OptionLength { length: 8 }));
        assert!(parse(&with(3, 0, &[&options[..], &[9; 4]].concat())).is_ok());
    }

    #[test]
    fn critical_options_are_refused() {
        let critical = [1, 2, 0x80, 0];
        for (flags, options) in [(0x40, &critical[..]), (0, &critical), (0x40, &[1, 2, 0x7f, 0]), (0x40, &[])]
        {
            let bytes = with(options.len() as u8 / 4, flags, options);
            assert_eq!(parse(&bytes), Err(GeneveError::CriticalOption), "{flags} {options:?}");
        }
    }
}
