//! The classic pcap format: pcap-savefile(5), draft-ietf-opsawg-pcap.

use std::io::Read;

use crate::{
    Format, LinkType, MAXIMUM_FRAME, PcapError,
    endian::{ByteOrder, bytes_at},
    frame::Record,
    source::Source,
};

const FILE_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;

/// Timestamps in microseconds.
pub(crate) const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
/// Timestamps in nanoseconds.
pub(crate) const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;

/// What the file header says of all records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Classic {
    order: ByteOrder,
    nanoseconds_per_fraction: u64,
    pub(crate) link_type: LinkType,
    fcs_length: u8,
}

/// Byte order and nanoseconds in a unit of the timestamp's fraction, if `magic` is of this format.
pub(crate) fn detect(magic: [u8; 4]) -> Option<(ByteOrder, u64)> {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        match order.u32(magic) {
            MAGIC_MICROSECONDS => return Some((order, 1_000)),
            MAGIC_NANOSECONDS => return Some((order, 1)),
            _ => {}
        }
    }
    None
}

impl Classic {
    /// Reads the file header.
    pub(crate) fn open<R: Read>(
        source: &mut Source<R>,
        (order, nanoseconds_per_fraction): (ByteOrder, u64),
    ) -> Result<Self, PcapError> {
        if !source.fill(FILE_HEADER)? {
            return Err(source.truncated("file header", FILE_HEADER));
        }
        let header = source.bytes();
        let (major, minor) = (order.u16(bytes_at(header, 4)), order.u16(bytes_at(header, 6)));
        // Before 2.4 some writers had the two lengths of a record the other way round.
        if (major, minor) != (2, 4) {
            return Err(PcapError::Version {
                position: source.position_now(),
                format: Format::Pcap,
                major,
                minor,
            });
        }
        // Time zone, accuracy and snapshot length tell nothing that a record does not; files with a wrong
        // snapshot length exist, and libpcap reads them too. The link type's upper half: pcap-savefile(5),
        // bit 26 = "the FCS length is known", bits 28 to 31 = that length in units of 16 bits.
        let link = order.u32(bytes_at(header, 20));
        let fcs_length = if link & 0x0400_0000 != 0 { 2 * (link >> 28) as u8 } else { 0 };
        source.consume(FILE_HEADER);
        Ok(Self { order, nanoseconds_per_fraction, link_type: LinkType(link as u16), fcs_length })
    }

    /// The next record, or `None` at the end of the file.
    #[inline]
    pub(crate) fn record<R: Read>(&self, source: &mut Source<R>) -> Result<Option<Record>, PcapError> {
        if !source.fill(RECORD_HEADER)? {
            let at_end = source.bytes().is_empty();
            return if at_end { Ok(None) } else { Err(source.truncated("record header", RECORD_HEADER)) };
        }
        let header = source.bytes();
        let seconds = self.order.u32(bytes_at(header, 0));
        let fraction = self.order.u32(bytes_at(header, 4));
        let captured = self.order.u32(bytes_at(header, 8));
        let original_length = self.order.u32(bytes_at(header, 12));
        if captured > MAXIMUM_FRAME {
            return Err(PcapError::FrameTooLong { position: source.position_now(), length: captured });
        }
        let length = captured as usize;
        let size = RECORD_HEADER + length;
        if !source.fill(size)? {
            return Err(source.truncated("frame", size));
        }
        Ok(Some(Record {
            // 32 bits of seconds and a fraction of at most 2^32 microseconds fit.
            timestamp_nanoseconds: u64::from(seconds) * 1_000_000_000
                + u64::from(fraction) * self.nanoseconds_per_fraction,
            original_length,
            interface: 0,
            link_type: self.link_type,
            fcs_length: self.fcs_length,
            offset: RECORD_HEADER,
            length,
            size,
        }))
    }
}
