//! L2TPv3 data messages straight over IP (RFC 3931 section 4.1.1): a session identifier, a cookie, the payload.

use crate::error::{header_errors, take};

/// Bytes of a header without a cookie.
pub const HEADER_LENGTH: usize = 4;

/// The pseudowire type of PSP, the packet streaming protocol (CM-SP-DEPI, CM-SP-R-DEPI).
pub const PSEUDOWIRE_PSP: u16 = 0x000d;

header_errors! {
    /// What can be wrong with a data message.
    pub enum L2tpError {
        /// Session 0 is that of control messages (RFC 3931 section 4.1.1).
        #[error("this is a control message: its session identifier is 0")]
        Control,
    }
}

/// The header of a session without a cookie, which R-DEPI's data sessions are.
#[inline]
pub const fn header(session: u32) -> [u8; HEADER_LENGTH] {
    session.to_be_bytes()
}

/// Reads the header of a message without a cookie; gives the session identifier and what follows.
///
/// # Errors
/// [`L2tpError`].
#[inline]
pub fn parse(bytes: &[u8]) -> Result<(u32, &[u8]), L2tpError> {
    let (session, rest) = take::<HEADER_LENGTH>(bytes, "L2TPv3 header")?;
    match u32::from_be_bytes(*session) {
        0 => Err(L2tpError::Control),
        session => Ok((session, rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Truncated;

    #[test]
    fn what_is_written_is_read() {
        let bytes = [&header(0x8000_0001)[..], b"rest"].concat();
        assert_eq!(parse(&bytes), Ok((0x8000_0001, &b"rest"[..])));
    }

    #[test]
    fn bad_messages_are_named() {
        let truncated = Truncated { header: "L2TPv3 header", needed: 4, available: 3 };
        assert_eq!(parse(&[1; 3]), Err(L2tpError::Truncated(truncated)));
        assert_eq!(parse(&[0; 12]), Err(L2tpError::Control));
    }
}
