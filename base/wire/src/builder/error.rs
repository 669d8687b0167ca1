//! What can't be built.

use thiserror::Error;

use crate::IpProtocol;

/// Why a frame can't be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BuildError {
    /// The caller's slice is too short; nothing was written.
    #[error("frame is {needed} bytes long, there is space for {available}: give a longer buffer")]
    NoSpace {
        /// Bytes of the frame.
        needed: usize,
        /// Bytes of the slice.
        available: usize,
    },
    /// A length field can't hold the length.
    #[error("{what} is {length} bytes long, at most {maximum} fit its length field: shorten the payload")]
    TooLong {
        /// Which packet.
        what: &'static str,
        /// Its length.
        length: usize,
        /// The most that fits.
        maximum: usize,
    },
    /// IPv4 or TCP options of a length that the header can't express.
    #[error("{header} options are {length} bytes long, must be a multiple of 4 and at most 40: pad them")]
    OptionLength {
        /// Which header.
        header: &'static str,
        /// Their length.
        length: usize,
    },
    /// An IPv6 extension header that no length field can express.
    #[error(
        "IPv6 {protocol} is {length} bytes long, must be a multiple of {unit}, at least 8, at most {maximum}: pad it"
    )]
    ExtensionLength {
        /// Which extension header.
        protocol: IpProtocol,
        /// Its length.
        length: usize,
        /// What it must be a multiple of.
        unit: usize,
        /// The most it may be.
        maximum: usize,
    },
    /// More than two VLAN tags.
    #[error("frame has {tags} VLAN tags, at most 2 are built")]
    TooManyTags {
        /// How many were asked for.
        tags: usize,
    },
    /// A layer on top of one that doesn't carry it.
    #[error("{upper} cannot go over {lower}: give the frame {remedy}")]
    Mismatch {
        /// The layer on top.
        upper: &'static str,
        /// The layer below.
        lower: &'static str,
        /// What would carry it.
        remedy: &'static str,
    },
}
