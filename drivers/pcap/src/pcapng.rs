//! The pcapng format: draft-ietf-opsawg-pcapng.

use std::io::Read;

use crate::{
    Format, LinkType, MAXIMUM_FRAME, PcapError,
    endian::{ByteOrder, bytes_at},
    frame::Record,
    option,
    source::Source,
    timestamp::TimestampUnit,
};

pub(crate) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
pub(crate) const INTERFACE_DESCRIPTION: u32 = 1;
/// Obsolete since 2004, still in old archives.
const PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
pub(crate) const ENHANCED_PACKET: u32 = 6;

/// Written in the byte order of the section.
pub(crate) const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// Type and length.
const BLOCK_HEADER: usize = 8;
/// The length again.
const BLOCK_TRAILER: usize = 4;

/// The longest block whose contents are looked at. A frame and as much again for its options; blocks that are
/// only skipped (name resolution, secrets, ..) may be longer.
const MAXIMUM_BLOCK: u32 = 2 * MAXIMUM_FRAME;

/// Interfaces kept for one section; a hostile file could list millions.
const MAXIMUM_INTERFACES: usize = 65_536;

/// What an Interface Description Block says of the interface's frames.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link_type: LinkType,
    /// 0: no limit.
    snap_length: u32,
    unit: TimestampUnit,
    fcs_length: u8,
}

/// The state of the section being read.
#[derive(Debug)]
pub(crate) struct Pcapng {
    order: ByteOrder,
    interfaces: Vec<Interface>,
}

/// A packet block's fields before they are checked.
struct PacketFields {
    /// Offset of the frame in the block.
    offset: usize,
    interface: u32,
    captured: u32,
    original_length: u32,
    /// `None` in Simple Packet Blocks.
    timestamp: Option<u64>,
}

impl Pcapng {
    /// Reads the first section header.
    pub(crate) fn open<R: Read>(source: &mut Source<R>) -> Result<Self, PcapError> {
        let mut section = Self { order: ByteOrder::Little, interfaces: Vec::new() };
        section.begin_section(source)?;
        Ok(section)
    }

    /// The link type of the section's first interface.
    pub(crate) fn link_type(&self) -> Option<LinkType> {
        self.interfaces.first().map(|interface| interface.link_type)
    }

    /// The next frame, or `None` at the end of the file.
    #[inline]
    pub(crate) fn record<R: Read>(&mut self, source: &mut Source<R>) -> Result<Option<Record>, PcapError> {
        loop {
            if !source.fill(BLOCK_HEADER)? {
                let at_end = source.bytes().is_empty();
                return if at_end { Ok(None) } else { Err(source.truncated("block header", BLOCK_HEADER)) };
            }
            match self.order.u32(bytes_at(source.bytes(), 0)) {
                block_type @ (ENHANCED_PACKET | PACKET | SIMPLE_PACKET) => {
                    return self.packet(source, block_type).map(Some);
                }
                INTERFACE_DESCRIPTION => self.describe_interface(source)?,
                // Its type reads the same in both byte orders.
                SECTION_HEADER => self.begin_section(source)?,
                block_type => self.skip_block(source, block_type)?,
            }
        }
    }

    /// Section Header Block: byte order and version; forgets the interfaces of the section before.
    fn begin_section<R: Read>(&mut self, source: &mut Source<R>) -> Result<(), PcapError> {
        const FIXED: usize = 28;
        if !source.fill(FIXED)? {
            return Err(source.truncated("section header", FIXED));
        }
        let block = source.bytes();
        let magic: [u8; 4] = bytes_at(block, 8);
        self.order = match magic {
            _ if u32::from_le_bytes(magic) == BYTE_ORDER_MAGIC => ByteOrder::Little,
            _ if u32::from_be_bytes(magic) == BYTE_ORDER_MAGIC => ByteOrder::Big,
            _ => return Err(PcapError::ByteOrder { position: source.position_now(), magic }),
        };
        let (major, minor) = (self.order.u16(bytes_at(block, 12)), self.order.u16(bytes_at(block, 14)));
        // 1.2 was written by some tools and differs in nothing.
        if major != 1 || !matches!(minor, 0 | 2) {
            return Err(PcapError::Version {
                position: source.position_now(),
                format: Format::Pcapng,
                major,
                minor,
            });
        }
        self.interfaces.clear();
        let length = self.block_length(source, SECTION_HEADER, FIXED)?;
        // The section's length helps only those who seek, and its options describe who captured.
        self.skip(source, length)
    }

    /// Interface Description Block.
    fn describe_interface<R: Read>(&mut self, source: &mut Source<R>) -> Result<(), PcapError> {
        const FIXED: usize = 20;
        if self.interfaces.len() == MAXIMUM_INTERFACES {
            return Err(PcapError::TooManyInterfaces {
                position: source.position_now(),
                limit: MAXIMUM_INTERFACES,
            });
        }
        let length = self.whole_block(source, INTERFACE_DESCRIPTION, FIXED)?;
        let block = &source.bytes()[..length];
        let mut interface = Interface {
            link_type: LinkType(self.order.u16(bytes_at(block, 8))),
            snap_length: self.order.u32(bytes_at(block, 12)),
            unit: TimestampUnit::MICROSECONDS,
            fcs_length: 0,
        };
        for option in Options::new(self.order, &block[16..length - BLOCK_TRAILER]) {
            let (code, value) = option.map_err(|bad| bad.at(source))?;
            let too_short = || BadOption { code, length: value.len() as u16 }.at(source);
            match code {
                option::INTERFACE_RESOLUTION => {
                    let resolution = value.first().ok_or_else(too_short)?;
                    interface.unit = interface.unit.with_resolution(*resolution);
                }
                option::INTERFACE_OFFSET => {
                    let seconds = value.first_chunk().ok_or_else(too_short)?;
                    interface.unit = interface.unit.with_offset_seconds(self.order.i64(*seconds));
                }
                option::INTERFACE_FCS_LENGTH => {
                    // Bits to some writers, bytes to others (https://github.com/pcapng/pcapng/issues/60). A
                    // check sequence is of 2 or 4 bytes: what is 16 or more counts bits.
                    let stated = *value.first().ok_or_else(too_short)?;
                    interface.fcs_length = if stated >= 16 { stated / 8 } else { stated };
                }
                _ => {}
            }
        }
        self.interfaces.push(interface);
        source.consume(length);
        Ok(())
    }

    /// Enhanced, Simple or obsolete Packet Block.
    #[inline]
    fn packet<R: Read>(&self, source: &mut Source<R>, block_type: u32) -> Result<Record, PcapError> {
        let fixed = match block_type {
            SIMPLE_PACKET => 12,
            _ => 28,
        };
        let size = self.whole_block(source, block_type, fixed + BLOCK_TRAILER)?;
        let block = &source.bytes()[..size - BLOCK_TRAILER];
        let fields = self.packet_fields(block, block_type);
        let Some(&interface) = self.interfaces.get(fields.interface as usize) else {
            return Err(PcapError::UnknownInterface {
                position: source.position_now(),
                interface: fields.interface,
                known: self.interfaces.len(),
            });
        };
        if fields.captured > MAXIMUM_FRAME {
            return Err(PcapError::FrameTooLong { position: source.position_now(), length: fields.captured });
        }
        let length = fields.captured as usize;
        let end = fields.offset + length;
        if end > block.len() {
            return Err(PcapError::BlockLength {
                position: source.position_now(),
                block_type,
                length: size as u32,
                rule: "is too short for the frame in it",
            });
        }
        let mut fcs_length = interface.fcs_length;
        if block_type != SIMPLE_PACKET {
            for option in Options::new(self.order, block.get(end.next_multiple_of(4)..).unwrap_or(&[])) {
                let (code, value) = option.map_err(|bad| bad.at(source))?;
                if code == option::PACKET_FLAGS {
                    let flags = value
                        .first_chunk()
                        .ok_or_else(|| BadOption { code, length: value.len() as u16 }.at(source))?;
                    // Bits 5 to 8: bytes of FCS, 0 when unknown.
                    let stated = (self.order.u32(*flags) >> 5) as u8 & 0xf;
                    fcs_length = if stated == 0 { fcs_length } else { stated };
                }
            }
        }
        Ok(Record {
            timestamp_nanoseconds: fields.timestamp.map_or(0, |value| interface.unit.nanoseconds(value)),
            original_length: fields.original_length,
            interface: fields.interface,
            link_type: interface.link_type,
            fcs_length,
            offset: fields.offset,
            length,
            size,
        })
    }

    fn packet_fields(&self, block: &[u8], block_type: u32) -> PacketFields {
        let order = self.order;
        let word = |offset| order.u32(bytes_at(block, offset));
        if block_type == SIMPLE_PACKET {
            // It has no captured length: the smaller of the wire's and of the first interface's snapshot length.
            let original_length = word(8);
            let snap_length = self.interfaces.first().map_or(0, |interface| interface.snap_length);
            let captured = if snap_length == 0 { original_length } else { original_length.min(snap_length) };
            return PacketFields { offset: 12, interface: 0, captured, original_length, timestamp: None };
        }
        PacketFields {
            offset: 28,
            interface: match block_type {
                // The obsolete block has 16 bits of interface and 16 of drops.
                PACKET => u32::from(order.u16(bytes_at(block, 8))),
                _ => word(8),
            },
            captured: word(20),
            original_length: word(24),
            timestamp: Some(u64::from(word(12)) << 32 | u64::from(word(16))),
        }
    }

    /// The length of the block that begins here, at least `minimum` bytes long.
    #[inline]
    fn block_length<R: Read>(
        &self,
        source: &Source<R>,
        block_type: u32,
        minimum: usize,
    ) -> Result<u32, PcapError> {
        let length = self.order.u32(bytes_at(source.bytes(), 4));
        let rule = if !length.is_multiple_of(4) {
            "is not a multiple of 4"
        } else if (length as usize) < minimum {
            "is less than the block's own fields take"
        } else {
            return Ok(length);
        };
        Err(PcapError::BlockLength { position: source.position_now(), block_type, length, rule })
    }

    /// Brings the whole block into the window, checks both its lengths, and returns it.
    #[inline]
    fn whole_block<R: Read>(
        &self,
        source: &mut Source<R>,
        block_type: u32,
        minimum: usize,
    ) -> Result<usize, PcapError> {
        let length = self.block_length(source, block_type, minimum)?;
        if length > MAXIMUM_BLOCK {
            return Err(PcapError::BlockLength {
                position: source.position_now(),
                block_type,
                length,
                rule: "is more than the largest frame and its options take (512 KiB)",
            });
        }
        let size = length as usize;
        if !source.fill(size)? {
            return Err(source.truncated("block", size));
        }
        let trailer = self.order.u32(bytes_at(source.bytes(), size - BLOCK_TRAILER));
        if trailer != length {
            return Err(PcapError::BlockTrailer { position: source.position_now(), length, trailer });
        }
        Ok(size)
    }

    #[cold]
    fn skip_block<R: Read>(&self, source: &mut Source<R>, block_type: u32) -> Result<(), PcapError> {
        let length = self.block_length(source, block_type, BLOCK_HEADER + BLOCK_TRAILER)?;
        self.skip(source, length)
    }

    /// Passes over a block of any length without keeping it, and checks the length at its end.
    fn skip<R: Read>(&self, source: &mut Source<R>, length: u32) -> Result<(), PcapError> {
        // Errors name the start of the block, not where it was found to be wrong.
        let position = source.position_now();
        let missing = source.skip(u64::from(length) - BLOCK_TRAILER as u64)?;
        if missing > 0 || !source.fill(BLOCK_TRAILER)? {
            let missing = missing + (BLOCK_TRAILER - source.bytes().len().min(BLOCK_TRAILER)) as u64;
            return Err(PcapError::Truncated { position, what: "block", missing });
        }
        let trailer = self.order.u32(bytes_at(source.bytes(), 0));
        if trailer != length {
            return Err(PcapError::BlockTrailer { position, length, trailer });
        }
        source.consume(BLOCK_TRAILER);
        Ok(())
    }
}

/// The options of a block: code, length and value, each padded to 4 bytes, up to `opt_endofopt` or the end.
struct Options<'a> {
    order: ByteOrder,
    rest: &'a [u8],
}

/// An option that leaves its block.
struct BadOption {
    code: u16,
    length: u16,
}

impl BadOption {
    #[cold]
    fn at<R: Read>(&self, source: &Source<R>) -> PcapError {
        PcapError::OptionLength { position: source.position_now(), code: self.code, length: self.length }
    }
}

impl<'a> Options<'a> {
    fn new(order: ByteOrder, rest: &'a [u8]) -> Self {
        Self { order, rest }
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<(u16, &'a [u8]), BadOption>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        const END: u16 = 0;
        // Fewer bytes than an option's header: `opt_endofopt` may be left out.
        let (header, values) = self.rest.split_first_chunk::<4>()?;
        let (code, length) = (self.order.u16(bytes_at(header, 0)), self.order.u16(bytes_at(header, 2)));
        if code == END {
            return None;
        }
        let Some(value) = values.get(..length as usize) else {
            self.rest = &[];
            return Some(Err(BadOption { code, length }));
        };
        self.rest = values.get((length as usize).next_multiple_of(4)..).unwrap_or(&[]);
        Some(Ok((code, value)))
    }
}
