use crate::LinkType;

/// The most bytes of one frame that are read or written. The same bound as libpcap's `MAXIMUM_SNAPLEN`
/// (`pcap-int.h`): large enough for any GSO frame, small enough that a corrupt length cannot ask for gigabytes.
pub const MAXIMUM_FRAME: u32 = 262_144;

/// One captured frame, borrowed from the reader's buffer until the next one is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Nanoseconds since the Unix epoch; 0 where the file has none (pcapng Simple Packet Blocks). Clamped to
    /// what fits: 1970 to the year 2554.
    pub timestamp_nanoseconds: u64,
    /// Bytes that the frame had on the wire.
    pub original_length: u32,
    /// The bytes that were captured.
    pub data: &'a [u8],
    /// Which interface of the file's current section it was captured on; 0 in classic pcap.
    pub interface: u32,
    /// What `data` begins with.
    pub link_type: LinkType,
    /// How many bytes at the end of the wire frame are its frame check sequence, as far as the file says;
    /// 0 when it has none or does not say.
    pub fcs_length: u8,
}

impl<'a> Frame<'a> {
    /// Whether the capture's snapshot length cut bytes off the end of the frame.
    pub const fn is_snapped(&self) -> bool {
        self.data.len() < self.original_length as usize
    }

    /// The captured bytes without the frame check sequence. A snapped frame lost its end, and the check
    /// sequence first.
    pub fn without_fcs(&self) -> &'a [u8] {
        let end =
            (self.original_length as usize).max(self.data.len()).saturating_sub(self.fcs_length as usize);
        &self.data[..end.min(self.data.len())]
    }
}

/// Where the bytes of a frame lie in front of the source, and all else that is known of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) timestamp_nanoseconds: u64,
    pub(crate) original_length: u32,
    pub(crate) interface: u32,
    pub(crate) link_type: LinkType,
    pub(crate) fcs_length: u8,
    /// From the source's position to the first byte of the frame.
    pub(crate) offset: usize,
    /// Captured bytes, all of them in the source's window.
    pub(crate) length: usize,
    /// Bytes from the source's position to the next record.
    pub(crate) size: usize,
}
