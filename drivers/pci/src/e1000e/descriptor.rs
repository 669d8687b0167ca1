//! What is in descriptors. Each has 16 bytes, which are two words of 64 bits here.

use super::memory::BUFFER_BYTES;
use warmlane_mem::Checksum;

/// Bytes of an Ethernet header: no frame is shorter.
pub(super) const HEADER_BYTES: u16 = 14;

/// The second word of a receive descriptor in its extended form, as the card writes it back (7.1.4): status and errors, length, VLAN tag. The
/// first is the address of the buffer, and is overwritten with a hash or a sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Received(pub u64);

impl Received {
    /// It is the card's no more.
    pub const DONE: u64 = 1 << 0;
    /// The frame ends in its buffer. Without it, nothing else but the length counts.
    pub const END: u64 = 1 << 1;
    /// What is said of checksums doesn't count.
    pub(super) const IGNORE_CHECKSUMS: u64 = 1 << 2;
    /// The checksum of TCP or UDP was looked at.
    pub(super) const TRANSPORT_SUMMED: u64 = 1 << 5;
    /// Wrong check sequence, symbol, sequence, carrier extension, or data of the PHY.
    pub(super) const DAMAGED: u64 = 0b1001_0111 << 24;
    /// The checksum of TCP or UDP is wrong.
    pub(super) const TRANSPORT_WRONG: u64 = 1 << 29;

    pub(super) const fn is_done(self) -> bool {
        self.0 & Self::DONE != 0
    }

    pub(super) const fn is_end(self) -> bool {
        self.0 & Self::END != 0
    }

    pub(super) const fn is_damaged(self) -> bool {
        self.0 & Self::DAMAGED != 0
    }

    /// Bytes in its buffer, as the card says.
    #[inline(always)]
    pub(super) const fn length(self) -> u16 {
        (self.0 >> 32) as u16
    }

    /// Whether it is a whole frame of no more than `room` bytes, in order.
    #[inline(always)]
    pub(super) const fn is_plain(self, room: u16) -> bool {
        let expected = Self::DONE | Self::END;
        self.0 & (expected | Self::DAMAGED) == expected
            && HEADER_BYTES <= self.length()
            && self.length() <= room
    }

    /// What [`is_plain`](Self::is_plain) looks at, for several at once: the bits that decide and what they have to be; and the bits of the length, and what those are
    /// at least and at most.
    #[inline(always)]
    pub(super) const fn plain_limits(room: u16) -> [i64; 5] {
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
    pub(super) const fn checksum(self) -> Checksum {
        let looked_at = Self::IGNORE_CHECKSUMS | Self::TRANSPORT_SUMMED | Self::TRANSPORT_WRONG;
        if self.0 & looked_at == Self::TRANSPORT_SUMMED { Checksum::Good } else { Checksum::Unknown }
    }
}

/// The second word of a data descriptor for TCP/IP (7.2.10), which fits all frames. The first is the address of its buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DataDescriptor(pub(super) u64);

impl DataDescriptor {
    /// Its kind: with the extension, of data.
    pub(super) const DATA: u64 = 1 << 29 | 1 << 20;
    /// The frame ends in its buffer (EOP).
    pub(super) const END: u64 = 1 << 24;
    /// The card adds the check sequence (IFCS).
    pub(super) const ADD_CRC: u64 = 1 << 25;
    /// The card says when it is done with it and all before it (RS).
    pub(super) const REPORT: u64 = 1 << 27;
    /// The frame is one to be segmented, by the last [`TsoContext`] (TSE).
    pub(super) const SEGMENT: u64 = 1 << 26;
    /// It is done.
    pub(super) const DONE: u64 = 1 << 32;
    /// The card completes the checksum of the IPv4 header (IXSM).
    pub(super) const INSERT_IP_CHECKSUM: u64 = 1 << 40;
    /// The card completes the checksum that the last [`ChecksumContext`] or [`TsoContext`] is about (TXSM).
    pub(super) const INSERT_CHECKSUM: u64 = 1 << 41;
    /// The bits of the length.
    pub(super) const LENGTH: u64 = (1 << 20) - 1;

    /// Of so many bytes, in which the frame ends or doesn't, and of which the card has this to do.
    #[inline(always)]
    pub(super) const fn new(length: u16, is_end: bool, offload: Offload) -> Self {
        let end = if is_end { Self::END } else { 0 };
        let offload = match offload {
            Offload::None => 0,
            Offload::Checksum => Self::INSERT_CHECKSUM,
            Offload::Segmentation => Self::SEGMENT | Self::INSERT_IP_CHECKSUM | Self::INSERT_CHECKSUM,
        };
        Self(Self::DATA | Self::ADD_CRC | end | offload | length as u64)
    }

    #[inline(always)]
    pub(super) const fn is_done(self) -> bool {
        self.0 & Self::DONE != 0
    }
}

/// What a frame leaves to the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offload {
    None,
    Checksum,
    Segmentation,
}

/// The kind of context descriptors: with the extension, and not of data.
pub(super) const CONTEXT: u64 = 1 << 29;

/// In context descriptors: of TCP, and of IPv4.
const TCP: u64 = 1 << 24;
const IPV4: u64 = 1 << 25;

/// A context descriptor for TCP/IP (7.2.10): which checksum of the frames behind it is to be completed, up to the next such descriptor. What is summed
/// ends with the frame, and the field holds the sum of the pseudo header before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChecksumContext {
    start: u8,
    field: u8,
    is_tcp: bool,
}

impl ChecksumContext {
    /// Where in a TCP header its checksum is, in bytes.
    const TCP_FIELD: u8 = 16;

    /// Of what starts at `start`, stored at `offset` from there; `None` if that is farther from the frame's start than the card can count.
    #[inline]
    pub(super) fn new(start: u16, offset: u8) -> Option<Self> {
        let start = u8::try_from(start).ok()?;
        Some(Self { start, field: start.checked_add(offset)?, is_tcp: offset == Self::TCP_FIELD })
    }

    /// Both words.
    pub(super) const fn words(self) -> [u64; 2] {
        let transport = if self.is_tcp { TCP } else { 0 };
        [(self.start as u64) << 32 | (self.field as u64) << 40, CONTEXT | IPV4 | transport]
    }
}

/// The same for segmentation (7.2.10, 7.3): how TCP over IPv4 is cut in the frame behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TsoContext {
    /// Where the IPv4 header starts.
    pub(super) network: u8,
    /// Where the TCP header starts.
    pub(super) transport: u8,
    /// Bytes of all headers.
    pub(super) headers: u8,
    /// Bytes behind them in each segment but the last.
    pub(super) size: u16,
    /// Bytes behind them in all: no more than [`DataDescriptor::LENGTH`].
    pub(super) payload: u32,
}

impl TsoContext {
    /// Marks it, and not a [`ChecksumContext`].
    pub(super) const KIND: u64 = 1 << 26;

    /// Where in an IPv4 header its checksum is, in bytes.
    const IPV4_FIELD: u64 = 10;

    /// Both words.
    pub(super) const fn words(self) -> [u64; 2] {
        let (network, transport) = (self.network as u64, self.transport as u64);
        let header_sum = network | (network + Self::IPV4_FIELD) << 8 | (transport - 1) << 16;
        let sum = transport | (transport + ChecksumContext::TCP_FIELD as u64) << 8;
        let lengths = self.payload as u64 | (self.headers as u64) << 40 | (self.size as u64) << 48;
        [header_sum | sum << 32, CONTEXT | Self::KIND | IPV4 | TCP | lengths]
    }
}

const _: () = assert!(BUFFER_BYTES as u64 <= DataDescriptor::LENGTH);

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
    fn checksums_are_completed_where_the_card_can_count_to() {
        let tcp = ChecksumContext::new(34, 16).unwrap();
        assert_eq!(tcp.words(), [34 << 32 | 50 << 40, 1 << 29 | 0b11 << 24]);
        let udp = ChecksumContext::new(54, 6).unwrap();
        assert_eq!(udp.words(), [54 << 32 | 60 << 40, 1 << 29 | 0b10 << 24]);
        assert!(
            ChecksumContext::new(239, 16).is_some()
                && ChecksumContext::new(240, 16).is_none()
                && ChecksumContext::new(256, 0).is_none()
        );
    }

    #[test]
    fn segments_are_described() {
        let tso = TsoContext { network: 14, transport: 34, headers: 66, size: 1448, payload: 0xffff };
        let kind = 1 << 29 | 0b111 << 24;
        let first = 0x0e | 24 << 8 | 33 << 16 | 34 << 32 | 50 << 40;
        assert_eq!(tso.words(), [first, 0xffff | kind | 66 << 40 | 1448 << 48]);
        let sent = DataDescriptor::new(2048, true, Offload::Segmentation).0;
        assert_eq!(sent, 0x800 | 1 << 20 | 1 << 29 | 0b111 << 24 | 0b11 << 40);
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
