//! What is in descriptors of both cards. Each has 16 bytes, which are two words of 64 bits here.
//!
//! The 82574's extended descriptors are written back as the 82576's advanced ones are, but for the first word. In parentheses are the sections of the two
//! datasheets: of the 82574's first, of the 82576's second.

use warmlane_mem::Checksum;

/// Bytes of an Ethernet header: no frame is shorter.
pub(crate) const HEADER_BYTES: u16 = 14;

/// The second word of a receive descriptor in its extended (7.1.4) or advanced form (7.1.5), as the card writes it back: status and errors, length, VLAN tag. The
/// first is the address of the buffer, and is overwritten with a hash or a sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Received(pub(crate) u64);

impl Received {
    /// It is the card's no more.
    pub(crate) const DONE: u64 = 1 << 0;
    /// The frame ends in its buffer. Without it, nothing else but the length counts.
    pub(crate) const END: u64 = 1 << 1;
    /// What is said of checksums doesn't count. The 82576 never sets it.
    pub(crate) const IGNORE_CHECKSUMS: u64 = 1 << 2;
    /// The checksum of TCP or UDP was looked at.
    pub(crate) const TRANSPORT_SUMMED: u64 = 1 << 5;
    /// Wrong check sequence, symbol, sequence, carrier extension, or data of the PHY. The 82576 has one bit for all, the highest, and the others are zero: they are
    /// of things that are switched off.
    pub(crate) const DAMAGED: u64 = 0b1001_0111 << 24;
    /// The checksum of TCP or UDP is wrong.
    pub(crate) const TRANSPORT_WRONG: u64 = 1 << 29;

    pub(crate) const fn is_done(self) -> bool {
        self.0 & Self::DONE != 0
    }

    pub(crate) const fn is_end(self) -> bool {
        self.0 & Self::END != 0
    }

    pub(crate) const fn is_damaged(self) -> bool {
        self.0 & Self::DAMAGED != 0
    }

    /// Bytes in its buffer, as the card says.
    #[inline(always)]
    pub(crate) const fn length(self) -> u16 {
        (self.0 >> 32) as u16
    }

    /// Whether it is a whole frame of no more than `room` bytes, in order.
    #[inline(always)]
    pub(crate) const fn is_plain(self, room: u16) -> bool {
        let expected = Self::DONE | Self::END;
        self.0 & (expected | Self::DAMAGED) == expected
            && HEADER_BYTES <= self.length()
            && self.length() <= room
    }

    /// What [`is_plain`](Self::is_plain) looks at, for several at once: the bits that decide and what they have to be; and the bits of the length, and what those are
    /// at least and at most.
    #[inline(always)]
    pub(crate) const fn plain_limits(room: u16) -> [i64; 5] {
        const fn length(bytes: u16) -> i64 {
            (bytes as i64) << 32
        }
        let expected = Self::DONE | Self::END;
        [
            (expected | Self::DAMAGED).cast_signed(),
            expected.cast_signed(),
            length(u16::MAX),
            length(HEADER_BYTES),
            length(room),
        ]
    }

    /// What the card found out of the checksum of TCP or UDP. One that it found wrong is looked at again by whom it concerns.
    #[inline(always)]
    pub(crate) const fn checksum(self) -> Checksum {
        let looked_at = Self::IGNORE_CHECKSUMS | Self::TRANSPORT_SUMMED | Self::TRANSPORT_WRONG;
        if self.0 & looked_at == Self::TRANSPORT_SUMMED { Checksum::Good } else { Checksum::Unknown }
    }
}

/// The second word of a data descriptor for sending (7.2.10; 7.2.2), as far as it is the same. The first is the address of its buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DataDescriptor(pub(crate) u64);

impl DataDescriptor {
    /// The frame ends in its buffer (EOP).
    pub(crate) const END: u64 = 1 << 24;
    /// The card adds the check sequence (IFCS).
    pub(crate) const ADD_CRC: u64 = 1 << 25;
    /// The card says when it is done with it and all before it (RS).
    pub(crate) const REPORT: u64 = 1 << 27;
    /// It has another form than those of the first cards (DEXT).
    pub(crate) const EXTENDED: u64 = 1 << 29;
    /// It is done (DD).
    pub(crate) const DONE: u64 = 1 << 32;
    /// The card completes the checksum of the IPv4 header (IXSM).
    pub(crate) const INSERT_IP_CHECKSUM: u64 = 1 << 40;
    /// The card completes the checksum that the last context descriptor is about (TXSM).
    pub(crate) const INSERT_CHECKSUM: u64 = 1 << 41;

    #[inline(always)]
    pub(crate) const fn is_done(self) -> bool {
        self.0 & Self::DONE != 0
    }
}

/// Both words of a context descriptor, which says what the card is to do with the frames behind it.
pub(crate) type Context = [u64; 2];

/// What a frame leaves to the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offload {
    None,
    /// One of TCP or UDP.
    Checksum,
    /// It is cut, with so many bytes behind the headers.
    Segmentation {
        payload: u32,
    },
}

/// What is in a buffer that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Bytes.
    pub(crate) length: u16,
    /// The frame begins in it.
    pub(crate) is_first: bool,
    /// The frame ends in it.
    pub(crate) is_end: bool,
    /// Bytes of the whole frame.
    pub(crate) frame: u32,
    pub(crate) offload: Offload,
}

/// How TCP over IPv4 is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tso {
    /// Where the IPv4 header starts.
    pub(crate) network: u8,
    /// Where the TCP header starts.
    pub(crate) transport: u8,
    /// Bytes of all headers.
    pub(crate) headers: u8,
    /// Bytes behind them in each segment but the last.
    pub(crate) size: u16,
    /// Bytes behind them in all.
    pub(crate) payload: u32,
}

/// Where in a TCP header its checksum is, in bytes.
pub(crate) const TCP_CHECKSUM: u8 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_frames_are_whole_unharmed_and_of_a_length_that_can_be() {
        let whole = Received::DONE | Received::END | 60 << 32;
        assert!(Received(whole).is_plain(2048));
        assert_eq!(Received(whole).length(), 60);
        for other in [
            whole & !Received::DONE,
            whole & !Received::END,
            whole | 1 << 24,
            whole | 1 << 25,
            whole | 1 << 26,
            whole | 1 << 28,
            whole | 1 << 31,
            Received::DONE | Received::END | 13 << 32,
            Received::DONE | Received::END | 2049 << 32,
            Received::DONE | Received::END | 0xffff << 32,
        ] {
            assert!(!Received(other).is_plain(2048), "{other:#x}");
        }
        // Wrong checksums are no damage of the frame, and a tag is no part of its length.
        assert!(Received(whole | 0b11 << 29 | 0xffff << 48).is_plain(2048));
    }

    #[test]
    fn checksums_are_good_if_the_card_looked_and_found_nothing() {
        let good = Received::TRANSPORT_SUMMED;
        assert_eq!(Received(good).checksum(), Checksum::Good);
        for other in [0, good | Received::TRANSPORT_WRONG, good | Received::IGNORE_CHECKSUMS] {
            assert_eq!(Received(other).checksum(), Checksum::Unknown, "{other:#x}");
        }
    }
}
