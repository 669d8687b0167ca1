use std::{fmt, io, path::PathBuf, sync::Arc};

use warmlane_mem::TooManyFrames;

use crate::{Format, LinkType, MAXIMUM_FRAME};

/// Where in a capture something was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The file's path, or what the reader's input was called.
    pub file: Arc<str>,
    /// Offset in bytes from the start of the file to the record or block.
    pub offset: u64,
    /// Number of the frame that would have come next, from 1 as Wireshark counts; `frame - 1` were delivered.
    pub frame: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, byte {}, frame {}", self.file, self.offset, self.frame)
    }
}

/// What can be wrong with a capture file, or with reading or writing it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PcapError {
    /// The file to read could not be opened.
    #[error("cannot open {}: {source}; check the path and its permissions", file.display())]
    Open {
        /// Which file.
        file: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel failed to read on.
    #[error("{position}: reading failed: {source}; check the disk or the pipe it comes from")]
    Read {
        /// Where.
        position: Position,
        /// What the kernel said.
        source: io::Error,
    },
    /// The file has no bytes at all.
    #[error("{file} is empty: a capture has at least a file header; capture again")]
    Empty {
        /// Which file.
        file: Arc<str>,
    },
    /// The first four bytes are of no capture format.
    #[error("{file} begins with bytes {magic:02x?}, which is neither pcap nor pcapng: {remedy}")]
    NotACapture {
        /// Which file.
        file: Arc<str>,
        /// Its first bytes.
        magic: [u8; 4],
        /// What to do about it.
        remedy: &'static str,
    },
    /// A version of the format that its fields are not defined for.
    #[error(
        "{position}: {format} version {major}.{minor} is not supported; rewrite it with `editcap -F {format}`"
    )]
    Version {
        /// Where.
        position: Position,
        /// Which format.
        format: Format,
        /// Major version found.
        major: u16,
        /// Minor version found.
        minor: u16,
    },
    /// The file ends in the middle of a header, record or block.
    #[error(
        "{position}: the file ends {missing} bytes before the end of a {what}; all frames before it are good \
         (the capture was cut off: capture again, or rewrite it with `editcap`)"
    )]
    Truncated {
        /// Where the incomplete part begins.
        position: Position,
        /// What is incomplete.
        what: &'static str,
        /// How many bytes at least are not there.
        missing: u64,
    },
    /// A frame that claims more bytes than any capture tool writes.
    #[error(
        "{position}: the frame claims {length} captured bytes, more than the {MAXIMUM_FRAME} any capture tool \
         writes; the file is damaged here"
    )]
    FrameTooLong {
        /// Where.
        position: Position,
        /// Captured length found.
        length: u32,
    },
    /// A pcapng block whose length breaks a rule of the format.
    #[error(
        "{position}: block of type {block_type:#x} has length {length}, which {rule}; the file is damaged here"
    )]
    BlockLength {
        /// Where.
        position: Position,
        /// Type of the block.
        block_type: u32,
        /// Length found.
        length: u32,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// The length at the end of a pcapng block differs from that at its start.
    #[error(
        "{position}: block length is {length} at its start and {trailer} at its end; the file is damaged here"
    )]
    BlockTrailer {
        /// Where.
        position: Position,
        /// Length at the start of the block.
        length: u32,
        /// Length at the end of the block.
        trailer: u32,
    },
    /// A section header without the byte-order magic 0x1a2b3c4d.
    #[error(
        "{position}: section header has byte-order magic {magic:02x?}, neither 1a2b3c4d nor swapped; the file is \
         damaged here"
    )]
    ByteOrder {
        /// Where.
        position: Position,
        /// Bytes found.
        magic: [u8; 4],
    },
    /// A pcapng frame of an interface that its section does not describe.
    #[error(
        "{position}: the frame is of interface {interface}, but the section describes {known}; the file is damaged, \
         or blocks were cut out of it"
    )]
    UnknownInterface {
        /// Where.
        position: Position,
        /// Interface number found.
        interface: u32,
        /// Interfaces described so far.
        known: usize,
    },
    /// More interface descriptions in a section than are kept.
    #[error("{position}: more than {limit} interfaces in one section; split the file with `editcap -c`")]
    TooManyInterfaces {
        /// Where.
        position: Position,
        /// The most that are kept.
        limit: usize,
    },
    /// A pcapng option that does not fit its block, or is too short for what it holds.
    #[error("{position}: option {code} claims {length} bytes, which does not fit; the file is damaged here")]
    OptionLength {
        /// Where.
        position: Position,
        /// Option code.
        code: u16,
        /// Length found.
        length: u16,
    },
    /// A capture of something else than Ethernet, given to a port.
    #[error(
        "{position}: link type {link_type} cannot be forwarded as Ethernet; re-capture on an Ethernet interface \
         (with tcpdump not `-i any`)"
    )]
    NotEthernet {
        /// Where.
        position: Position,
        /// What it is.
        link_type: LinkType,
    },
    /// A snapshot length that cannot be written.
    #[error("snapshot length {length} is not between 1 and {MAXIMUM_FRAME} bytes")]
    SnapLength {
        /// What was asked for.
        length: u32,
    },
    /// The file to write could not be created.
    #[error("cannot create {}: {source}; check the directory and its permissions", file.display())]
    Create {
        /// Which file (the one written to, which is renamed at the end).
        file: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Frames could not be written.
    #[error(
        "cannot write to {}: {source}; {lost} frames were lost and the {written} before them are kept there; \
         free some space and capture again",
        file.display()
    )]
    Write {
        /// The file written to.
        file: PathBuf,
        /// What the kernel said.
        source: io::Error,
        /// Frames taken but not in the file.
        lost: u64,
        /// Frames in the file.
        written: u64,
    },
    /// The finished file could not be brought to the disk, or not under its name.
    #[error(
        "cannot finish {}: {source}; its frames are in {}: rename that by hand",
        file.display(),
        partial.display()
    )]
    Finish {
        /// The name it should have.
        file: PathBuf,
        /// The name it has.
        partial: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A write after one that failed.
    #[error("{} takes no more frames since a write failed; its good frames are kept there", file.display())]
    Stopped {
        /// The file written to.
        file: PathBuf,
    },
    /// A port with no file at all.
    #[error("there is neither a file to read nor one to write: give it one with read= or write=")]
    NoFile,
    /// A frame of another link type, where Ethernet frames are needed.
    #[error("{}: frame {frame} is no Ethernet frame: record on an Ethernet interface", file.display())]
    FrameNotEthernet {
        /// The capture.
        file: PathBuf,
        /// Its number, from 1.
        frame: u64,
    },
    /// A frame that is not all there, where whole frames are needed.
    #[error(
        "{}: frame {frame} is cut off by the snap length of the capture: record whole frames (tcpdump -s 0)",
        file.display()
    )]
    FrameCutOff {
        /// The capture.
        file: PathBuf,
        /// Its number, from 1.
        frame: u64,
    },
    /// More frames than memory can hold.
    #[error(transparent)]
    TooManyFrames(#[from] TooManyFrames),
}
