//! Blocks of pcapng (draft-ietf-opsawg-pcapng) as they are written: little-endian, timestamps in nanoseconds, Ethernet frames.

use crate::pcapng::{BYTE_ORDER_MAGIC, ENHANCED_PACKET, INTERFACE_DESCRIPTION, SECTION_HEADER};
use crate::{LinkType, option};

/// Interface Statistics Block.
const INTERFACE_STATISTICS: u32 = 5;

/// Which way a packet went (`epb_flags`, bits 0 and 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketDirection {
    /// It came in.
    Inbound,
    /// It left.
    Outbound,
    /// Neither, or nobody knows.
    Unknown,
}

/// An interface that packets are of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockInterface<'a> {
    /// Its name; none if empty.
    pub name: &'a str,
    /// What it is; nothing if empty.
    pub description: &'a str,
    /// Bytes of each packet at most.
    pub snap_length: u32,
}

/// A packet with what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPacket<'a> {
    /// The number of its interface, in the order in which they were written, from 0.
    pub interface: u32,
    /// When, in nanoseconds since 1970 (UTC).
    pub timestamp_nanoseconds: u64,
    /// Bytes that the frame had.
    pub length: usize,
    /// The first of them.
    pub data: &'a [u8],
    /// Which way it went.
    pub direction: PacketDirection,
    /// For people to read; nothing if empty.
    pub comment: &'a str,
}

/// Appends blocks to bytes that are to be written. A capture begins with a [section](Self::section), then interfaces; all interfaces
/// come before their packets.
///
/// ```
/// use warmlane_pcap::{BlockInterface, BlockPacket, Blocks, PacketDirection};
///
/// let mut bytes = Vec::new();
/// let mut blocks = Blocks(&mut bytes);
/// blocks.section("example");
/// blocks.interface(&BlockInterface { name: "eth0", description: "", snap_length: 0 });
/// let frame = [0; 60];
/// blocks.packet(&BlockPacket {
///     interface: 0,
///     timestamp_nanoseconds: 1_700_000_000_000_000_000,
///     length: frame.len(),
///     data: &frame,
///     direction: PacketDirection::Inbound,
///     comment: "dropped: no-route",
/// });
/// assert_eq!(bytes.len() % 4, 0);
/// ```
#[derive(Debug)]
pub struct Blocks<'a>(pub &'a mut Vec<u8>);

impl Blocks<'_> {
    /// Section Header Block of unknown length, written by a program of this name; of none if empty.
    pub fn section(&mut self, application: &str) {
        self.block(SECTION_HEADER, |blocks| {
            blocks.word(BYTE_ORDER_MAGIC);
            blocks.half(1);
            blocks.half(0);
            blocks.word(u32::MAX);
            blocks.word(u32::MAX);
            if !application.is_empty() {
                blocks.text(option::SECTION_APPLICATION, application);
                blocks.end_of_options();
            }
        });
    }

    /// Interface Description Block.
    pub fn interface(&mut self, interface: &BlockInterface<'_>) {
        self.block(INTERFACE_DESCRIPTION, |blocks| {
            blocks.half(LinkType::ETHERNET.0);
            blocks.half(0);
            blocks.word(interface.snap_length);
            for (code, text) in [
                (option::INTERFACE_NAME, interface.name),
                (option::INTERFACE_DESCRIPTION, interface.description),
            ] {
                if !text.is_empty() {
                    blocks.text(code, text);
                }
            }
            // Units of 10^-9 s.
            blocks.option(option::INTERFACE_RESOLUTION, &[9]);
            blocks.end_of_options();
        });
    }

    /// Enhanced Packet Block.
    pub fn packet(&mut self, packet: &BlockPacket<'_>) {
        self.block(ENHANCED_PACKET, |blocks| {
            blocks.word(packet.interface);
            blocks.time(packet.timestamp_nanoseconds);
            blocks.word(packet.data.len() as u32);
            blocks.word(packet.length as u32);
            blocks.padded(packet.data);
            let flags: Option<u32> = match packet.direction {
                PacketDirection::Inbound => Some(1),
                PacketDirection::Outbound => Some(2),
                PacketDirection::Unknown => None,
            };
            if let Some(flags) = flags {
                blocks.option(option::PACKET_FLAGS, &flags.to_le_bytes());
            }
            if !packet.comment.is_empty() {
                blocks.text(option::COMMENT, packet.comment);
            }
            blocks.end_of_options();
        });
    }

    /// Interface Statistics Block: packets that there were, and how many of them are missing.
    pub fn statistics(&mut self, interface: u32, timestamp_nanoseconds: u64, received: u64, dropped: u64) {
        self.block(INTERFACE_STATISTICS, |blocks| {
            blocks.word(interface);
            blocks.time(timestamp_nanoseconds);
            blocks.option(option::STATISTICS_RECEIVED, &received.to_le_bytes());
            blocks.option(option::STATISTICS_DROPPED, &dropped.to_le_bytes());
            blocks.end_of_options();
        });
    }

    /// A block of a type, with its length in front and behind.
    fn block(&mut self, kind: u32, body: impl FnOnce(&mut Self)) {
        let start = self.0.len();
        self.word(kind);
        self.word(0);
        body(self);
        let length = (self.0.len() - start + 4) as u32;
        self.word(length);
        if let Some(place) = self.0.get_mut(start + 4..start + 8) {
            place.copy_from_slice(&length.to_le_bytes());
        }
    }

    fn time(&mut self, nanoseconds: u64) {
        self.word((nanoseconds >> 32) as u32);
        self.word(nanoseconds as u32);
    }

    fn half(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn word(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn padded(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        let padding = bytes.len().next_multiple_of(4) - bytes.len();
        self.0.extend_from_slice(&[0; 3][..padding]);
    }

    /// A text, of which there is space for 64 KiB.
    fn text(&mut self, code: u16, text: &str) {
        let mut end = text.len().min(usize::from(u16::MAX));
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.option(code, text.get(..end).unwrap_or_default().as_bytes());
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.half(code);
        self.half(value.len() as u16);
        self.padded(value);
    }

    fn end_of_options(&mut self) {
        self.word(0);
    }
}
