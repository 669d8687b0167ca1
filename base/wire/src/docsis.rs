//! DOCSIS MAC frames as they go downstream (CM-SP-MULPIv3.1 section 6.2, ITU-T J.222.2).
//!
//! ```text
//! FC 1 | MAC_PARM 1 | LEN 2 | extended header 0 to 240 | HCS 2 | payload
//! ```
//!
//! LEN counts the extended header and the payload. The payload of a packet PDU is an Ethernet frame with its CRC.

pub mod extended;
pub mod hcs;

use thiserror::Error;

pub use extended::{DownstreamService, Element, Elements, Privacy, Sequencing};

use crate::error::{Truncated, header_errors, take};

/// Bytes of a header without an extended header.
pub const HEADER_LENGTH: usize = 6;

/// Bytes that an extended header has at most (MULPI section 6.2.6).
pub const MAXIMUM_EXTENDED_LENGTH: usize = 240;

/// FC in front of an extended header: a packet PDU with EHDR_ON.
const EHDR_ON: u8 = 0x01;

/// What a frame carries: FC_TYPE, and FC_PARM where that tells more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// An Ethernet frame (FC_TYPE 00).
    Packet,
    /// An Ethernet frame that modems before DOCSIS 3.0 are to ignore (FC_TYPE 10).
    IsolatedPacket,
    /// The SYNC message that modems take their time from (FC_TYPE 11, FC_PARM 0).
    Timing,
    /// A MAC management message (FC_TYPE 11, FC_PARM 1).
    Management,
}

header_errors! {
    /// What can be wrong with a MAC frame. The order of the variants is the order of the checks.
    pub enum MacError {
        /// A frame that is reserved or only goes upstream.
        #[error("frame control {control:#04x} is of no frame that goes downstream")]
        NotDownstream {
            /// The FC byte.
            control: u8,
        },
        /// The extended header is longer than the frame or than 240 bytes.
        #[error("extended header of {length} bytes, must be at most 240 and within LEN, which is {frame}")]
        ExtendedLength {
            /// The MAC_PARM byte.
            length: u8,
            /// The LEN field.
            frame: u16,
        },
        /// The header check sequence doesn't fit the header.
        #[error("header check sequence is {found:#06x}, the header needs {expected:#06x}")]
        Hcs {
            /// What the frame says.
            found: u16,
            /// What it should say.
            expected: u16,
        },
        /// LEN says more than there is.
        #[error("LEN is {length}, but {available} bytes follow the header")]
        Length {
            /// The LEN field.
            length: u16,
            /// How much it may be here.
            available: usize,
        },
    }
}

/// A frame whose header was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MacFrame<'a> {
    /// What the frame carries.
    pub kind: FrameKind,
    /// MAC_PARM where there is no extended header.
    pub parameter: u8,
    /// The extended header's bytes.
    pub extended: &'a [u8],
    /// What follows the HCS.
    pub payload: &'a [u8],
}

impl<'a> MacFrame<'a> {
    /// Reads the frame that `bytes` begin with; gives the rest, too.
    ///
    /// # Errors
    /// [`MacError`].
    pub fn parse(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), MacError> {
        let (length, available) = (Self::length(bytes)?, bytes.len());
        let cut = MacError::Length {
            length: field_of_length(bytes),
            available: available.saturating_sub(HEADER_LENGTH),
        };
        let (frame, rest) = bytes.split_at_checked(length).ok_or(cut)?;
        let ([control, parameter, ..], _) = take::<4>(frame, "DOCSIS MAC header")?;
        let kind = kind(*control)?;
        let extended_length = if control & EHDR_ON == 0 { 0 } else { usize::from(*parameter) };
        let (header, payload) = frame.split_at_checked(HEADER_LENGTH + extended_length).ok_or(cut)?;
        let extended = header.get(4..4 + extended_length).ok_or(cut)?;
        Ok((
            Self { kind, parameter: if extended_length == 0 { *parameter } else { 0 }, extended, payload },
            rest,
        ))
    }

    /// How long the frame is that `bytes` begin with, header included. Only the header has to be there, which is checked.
    ///
    /// # Errors
    /// [`MacError`], but never [`MacError::Length`].
    pub fn length(bytes: &[u8]) -> Result<usize, MacError> {
        let ([control, parameter, _, _], _) = take::<4>(bytes, "DOCSIS MAC header")?;
        kind(*control)?;
        let extended = if control & EHDR_ON == 0 { 0 } else { usize::from(*parameter) };
        let length = field_of_length(bytes);
        if extended > MAXIMUM_EXTENDED_LENGTH || extended > usize::from(length) {
            return Err(MacError::ExtendedLength { length: *parameter, frame: length });
        }
        let needed = HEADER_LENGTH + extended;
        let truncated = Truncated { header: "DOCSIS MAC header", needed, available: bytes.len() };
        let header = bytes.get(..needed).ok_or(truncated)?;
        let (covered, check) = header.split_last_chunk::<2>().ok_or(truncated)?;
        let (found, expected) = (u16::from_le_bytes(*check), hcs::checksum(covered));
        if found != expected {
            return Err(MacError::Hcs { found, expected });
        }
        Ok(HEADER_LENGTH + usize::from(length))
    }

    /// The elements of the extended header.
    pub const fn elements(&self) -> Elements<'a> {
        Elements::new(self.extended)
    }
}

/// The LEN field; 0 if it isn't there.
fn field_of_length(bytes: &[u8]) -> u16 {
    bytes.first_chunk::<4>().map_or(0, |[_, _, high, low]| u16::from_be_bytes([*high, *low]))
}

const fn kind(control: u8) -> Result<FrameKind, MacError> {
    match (control >> 6, control >> 1 & 0x1f) {
        (0, 0) => Ok(FrameKind::Packet),
        (2, 0) => Ok(FrameKind::IsolatedPacket),
        (3, 0) => Ok(FrameKind::Timing),
        (3, 1) => Ok(FrameKind::Management),
        // Type 1 is reserved; requests, fragments and concatenated frames go upstream.
        _ => Err(MacError::NotDownstream { control }),
    }
}

/// The header of a packet PDU, to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketHeader {
    /// The privacy element, which comes first if it is there (MULPI section 6.2.6.1).
    pub privacy: Option<Privacy>,
    /// The downstream service element.
    pub service: Option<DownstreamService>,
    /// How many null elements follow, as padding.
    pub nulls: u8,
}

impl PacketHeader {
    /// Bytes of the longest header without padding: both elements are there, the second with a sequence number.
    pub const LONGEST: usize = HEADER_LENGTH + 5 + 6;

    /// Bytes that the header takes.
    pub fn length(&self) -> usize {
        HEADER_LENGTH + self.extended_length()
    }

    fn extended_length(&self) -> usize {
        let privacy = if self.privacy.is_some() { 1 + Privacy::LENGTH } else { 0 };
        privacy + self.service.map_or(0, |service| 1 + service.value_length()) + usize::from(self.nulls)
    }

    /// Writes the header of a frame with a payload of `payload` bytes; says how many bytes it took.
    ///
    /// # Errors
    /// [`HeaderError`].
    pub fn write(&self, payload: usize, buffer: &mut [u8]) -> Result<usize, HeaderError> {
        let extended = self.extended_length();
        if extended > MAXIMUM_EXTENDED_LENGTH {
            return Err(HeaderError::ExtendedLength { length: extended });
        }
        let length = u16::try_from(extended + payload).map_err(|_| HeaderError::Length { payload })?;
        let (needed, available) = (self.length(), buffer.len());
        let header = buffer.get_mut(..needed).ok_or(HeaderError::NoSpace { needed, available })?;
        let [high, low] = length.to_be_bytes();
        let (control, parameter) = if extended == 0 { (0, 0) } else { (EHDR_ON, extended as u8) };
        header.fill(0);
        header[..4].copy_from_slice(&[control, parameter, high, low]);
        let mut at = 4;
        if let Some(privacy) = self.privacy {
            header[at] = extended::BP_DOWN << 4 | Privacy::LENGTH as u8;
            header[at + 1..at + 1 + Privacy::LENGTH].copy_from_slice(&privacy.to_bytes());
            at += 1 + Privacy::LENGTH;
        }
        if let Some(service) = self.service {
            let length = service.value_length();
            header[at] = extended::DOWNSTREAM_SERVICE << 4 | length as u8;
            header[at + 1..at + 1 + length].copy_from_slice(&service.to_bytes()[..length]);
        }
        if let Some((covered, check)) = header.split_last_chunk_mut::<2>() {
            *check = hcs::checksum(covered).to_le_bytes();
        }
        Ok(needed)
    }
}

/// Why a header can't be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum HeaderError {
    /// More padding than there may be.
    #[error("an extended header of {length} bytes: 240 are the most")]
    ExtendedLength {
        /// What was asked for.
        length: usize,
    },
    /// LEN can't say how long the frame is.
    #[error("a payload of {payload} bytes is more than LEN can say with the extended header")]
    Length {
        /// Bytes of payload.
        payload: usize,
    },
    /// The buffer is too short.
    #[error("the header takes {needed} bytes, there are {available}")]
    NoSpace {
        /// Bytes of the header.
        needed: usize,
        /// Bytes that were there.
        available: usize,
    },
}

#[cfg(test)]
mod tests;
