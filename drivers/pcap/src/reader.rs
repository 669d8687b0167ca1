use std::{
    fs::File,
    io::{Read, Seek},
    path::Path,
    sync::Arc,
};

use crate::{
    Format, Frame, LinkType, PcapError, Position,
    classic::{self, Classic},
    frame::Record,
    pcapng::{self, Pcapng},
    source::Source,
};

/// Reads the frames of a capture file, one after the other, without allocating for any of them.
///
/// The format is found from the first bytes. Everything in the file is checked before it is used: whatever the
/// bytes are, the result is a frame or a [`PcapError`], and memory stays within the window of 1 MiB and a table
/// of interfaces.
///
/// After an error the reader gives no more frames: the formats have no mark to find the next record by.
///
/// ```no_run
/// let mut reader = warmlane_pcap::Reader::open("traffic.pcap".as_ref())?;
/// while let Some(frame) = reader.next_frame()? {
///     println!("{} bytes at {} ns", frame.data.len(), frame.timestamp_nanoseconds);
/// }
/// # Ok::<(), warmlane_pcap::PcapError>(())
/// ```
pub struct Reader<R> {
    source: Source<R>,
    capture: Capture,
    current: Option<Record>,
    /// Bytes of the current record, which are passed over when the next one is asked for.
    held: usize,
    ended: bool,
}

/// What is known from the file's first header on.
enum Capture {
    Classic(Classic),
    Pcapng(Pcapng),
}

impl Reader<File> {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// [`PcapError::Open`], or what is wrong with the header.
    pub fn open(path: &Path) -> Result<Self, PcapError> {
        let file = File::open(path).map_err(|source| PcapError::Open { file: path.to_owned(), source })?;
        Self::named(file, path.display().to_string().into())
    }
}

impl<R: Read> Reader<R> {
    /// Reads the header from any input; it needs no buffering of its own. Errors call it "capture".
    ///
    /// # Errors
    /// What is wrong with the header.
    pub fn new(input: R) -> Result<Self, PcapError> {
        Self::named(input, "capture".into())
    }

    /// The same with the name that errors shall call the input.
    ///
    /// # Errors
    /// What is wrong with the header.
    pub fn named(input: R, name: Arc<str>) -> Result<Self, PcapError> {
        let mut source = Source::new(input, name);
        let capture = Capture::detect(&mut source)?;
        Ok(Self { source, capture, current: None, held: 0, ended: false })
    }

    /// The next frame, or `None` at the end of the file.
    ///
    /// # Errors
    /// What is wrong with the file here; `None` from then on. [`PcapError::Truncated`] comes after all
    /// whole frames of a file that was cut off.
    #[inline]
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, PcapError> {
        self.advance()?;
        Ok(self.current())
    }

    /// Moves on to the next frame, which [`current`](Self::current) then lends as often as it is asked.
    /// `false` at the end of the file.
    ///
    /// # Errors
    /// As [`next_frame`](Self::next_frame).
    #[inline]
    pub fn advance(&mut self) -> Result<bool, PcapError> {
        self.source.consume(self.held);
        self.held = 0;
        self.current = None;
        if self.ended {
            return Ok(false);
        }
        let record = match &mut self.capture {
            Capture::Classic(classic) => classic.record(&mut self.source),
            Capture::Pcapng(pcapng) => pcapng.record(&mut self.source),
        };
        if let Ok(Some(record)) = record {
            self.held = record.size;
            self.current = Some(record);
            self.source.count_frame();
            return Ok(true);
        }
        self.ended = true;
        record.map(|_| false)
    }

    /// The frame that was moved to last.
    #[inline]
    pub fn current(&self) -> Option<Frame<'_>> {
        let record = self.current.as_ref()?;
        let data = self.source.bytes().get(record.offset..)?.get(..record.length)?;
        Some(Frame {
            timestamp_nanoseconds: record.timestamp_nanoseconds,
            original_length: record.original_length,
            data,
            interface: record.interface,
            link_type: record.link_type,
            fcs_length: record.fcs_length,
        })
    }

    /// Which format the file has.
    pub fn format(&self) -> Format {
        match self.capture {
            Capture::Classic(_) => Format::Pcap,
            Capture::Pcapng(_) => Format::Pcapng,
        }
    }

    /// The link type of the file; for pcapng that of the first interface of the current section, which is known
    /// from its first frame on at the latest.
    pub fn link_type(&self) -> Option<LinkType> {
        match &self.capture {
            Capture::Classic(classic) => Some(classic.link_type),
            Capture::Pcapng(pcapng) => pcapng.link_type(),
        }
    }

    /// Frames delivered so far (since the last [`rewind`](Self::rewind)).
    pub fn frames(&self) -> u64 {
        self.source.frame() - 1
    }

    /// Where the current record begins, or the next one if there is no current: for messages about it.
    pub fn position(&self) -> Position {
        let mut position = self.source.position_now();
        if self.current.is_some() {
            position.frame -= 1;
        }
        position
    }
}

impl<R: Read + Seek> Reader<R> {
    /// Starts again at the file's first byte, in the same window.
    ///
    /// # Errors
    /// Where the input cannot seek (a pipe), or its header is no longer what it was.
    pub fn rewind(&mut self) -> Result<(), PcapError> {
        self.current = None;
        self.held = 0;
        self.ended = true;
        self.source.rewind()?;
        self.capture = Capture::detect(&mut self.source)?;
        self.ended = false;
        Ok(())
    }
}

impl<R> std::fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("current", &self.current)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

impl Capture {
    fn detect<R: Read>(source: &mut Source<R>) -> Result<Self, PcapError> {
        if !source.fill(4)? {
            return Err(match source.bytes() {
                [] => PcapError::Empty { file: Arc::clone(source.file()) },
                _ => source.truncated("file header", 4),
            });
        }
        let magic: [u8; 4] = crate::endian::bytes_at(source.bytes(), 0);
        if let Some(found) = classic::detect(magic) {
            return Classic::open(source, found).map(Self::Classic);
        }
        if u32::from_be_bytes(magic) == pcapng::SECTION_HEADER {
            return Pcapng::open(source).map(Self::Pcapng);
        }
        let remedy = match magic {
            [0x1f, 0x8b, ..] => "it is compressed with gzip, unpack it with `gunzip`",
            [0x28, 0xb5, 0x2f, 0xfd] => "it is compressed with zstd, unpack it with `unzstd`",
            [0xfd, b'7', b'z', b'X'] => "it is compressed with xz, unpack it with `unxz`",
            [0x04, 0x22, 0x4d, 0x18] => "it is compressed with lz4, unpack it with `unlz4`",
            _ => "convert it with `editcap -F pcapng` if it is a capture of another format",
        };
        Err(PcapError::NotACapture { file: Arc::clone(source.file()), magic, remedy })
    }
}
