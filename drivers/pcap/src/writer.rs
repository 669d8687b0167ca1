use std::path::Path;

use crate::{
    Format, LinkType, MAXIMUM_FRAME, PcapError,
    blocks::{BlockInterface, Blocks},
    classic::MAGIC_NANOSECONDS,
    output::Output,
    pcapng::ENHANCED_PACKET,
};

/// Bytes gathered before a write to the file.
const BUFFER: usize = 1 << 20;

/// The most that a record takes besides its frame: a pcapng block's fixed fields, padding and trailer.
const OVERHEAD: usize = 28 + 3 + 4;

/// Writes Ethernet frames into a capture file with nanosecond timestamps, in little-endian byte order.
///
/// The file grows as `.NAME.partial` beside its final name, which it takes in [`finish`](Self::finish): under the
/// final name there is a whole file or none. A path that exists and is no regular file (a named pipe, `/dev/null`)
/// is written in place instead. Dropping the writer finishes it too, but then nobody hears of an error. After a
/// failed write it takes no more frames, and the good ones stay under the temporary name.
#[derive(Debug)]
pub struct Writer {
    output: Output,
    format: Format,
    snap_length: u32,
    /// Whole records only; never longer than [`BUFFER`], so that it does not grow.
    buffer: Vec<u8>,
    /// Frames in `buffer`, and their bytes on the wire.
    buffered: Written,
    written: Written,
    state: State,
}

/// How much was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Frames.
    pub frames: u64,
    /// Their bytes as they were on the wire, also of those that the snapshot length cut.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// A write failed.
    Stopped,
    /// The file has its name, or was given up.
    Finished,
}

impl Writer {
    /// Creates a capture of whole frames.
    ///
    /// # Errors
    /// [`PcapError::Create`].
    pub fn create(path: &Path, format: Format) -> Result<Self, PcapError> {
        Self::with_snap_length(path, format, MAXIMUM_FRAME)
    }

    /// Creates a capture of the first `snap_length` bytes of each frame.
    ///
    /// # Errors
    /// [`PcapError::SnapLength`] unless it is 1 to [`MAXIMUM_FRAME`]; [`PcapError::Create`].
    pub fn with_snap_length(path: &Path, format: Format, snap_length: u32) -> Result<Self, PcapError> {
        if snap_length == 0 || snap_length > MAXIMUM_FRAME {
            return Err(PcapError::SnapLength { length: snap_length });
        }
        let mut writer = Self {
            output: Output::create(path)?,
            format,
            snap_length,
            buffer: Vec::with_capacity(BUFFER),
            buffered: Written::default(),
            written: Written::default(),
            state: State::Open,
        };
        match format {
            Format::Pcap => writer.pcap_header(),
            Format::Pcapng => writer.pcapng_headers(),
        }
        Ok(writer)
    }

    /// Appends a frame. The timestamp is in nanoseconds since the Unix epoch; pcap has 32 bits of seconds, so what
    /// is later than February 2106 is written as that.
    ///
    /// # Errors
    /// As [`write_segments`](Self::write_segments).
    pub fn write_frame(&mut self, timestamp_nanoseconds: u64, frame: &[u8]) -> Result<(), PcapError> {
        self.write_segments(timestamp_nanoseconds, frame.len(), [frame])
    }

    /// Appends a frame that lies in pieces, `length` bytes of it in all.
    ///
    /// # Errors
    /// [`PcapError::Write`] if the frames before it could not be written out; it is not taken itself then.
    /// [`PcapError::Stopped`] after that.
    pub fn write_segments<'a>(
        &mut self,
        timestamp_nanoseconds: u64,
        length: usize,
        segments: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(), PcapError> {
        if self.state != State::Open {
            return Err(self.stopped());
        }
        let captured = length.min(self.snap_length as usize);
        if self.buffer.len() + captured + OVERHEAD > BUFFER {
            self.write_out()?;
        }
        self.buffered.frames += 1;
        self.buffered.bytes += length as u64;
        let padding = captured.next_multiple_of(4) - captured;
        match self.format {
            Format::Pcap => self.pcap_record_header(timestamp_nanoseconds, captured, length),
            Format::Pcapng => self.block_header(timestamp_nanoseconds, captured, padding, length),
        }
        let mut missing = captured;
        for segment in segments {
            let part = &segment[..segment.len().min(missing)];
            self.buffer.extend_from_slice(part);
            missing -= part.len();
        }
        // Segments shorter than the length they were announced with must not shift all that follows.
        self.buffer.resize(self.buffer.len() + missing, 0);
        if self.format == Format::Pcapng {
            self.buffer.extend_from_slice(&[0; 3][..padding]);
            self.word(block_size(captured, padding));
        }
        Ok(())
    }

    /// What is in the file, as far as the kernel has taken it; frames still in the buffer are not in it.
    pub fn written(&self) -> Written {
        self.written
    }

    /// Frames taken that are not in the file yet.
    pub fn buffered(&self) -> Written {
        self.buffered
    }

    /// Hands what is buffered to the kernel.
    ///
    /// # Errors
    /// [`PcapError::Write`]; the buffered frames are lost then. [`PcapError::Stopped`] after that.
    pub fn flush(&mut self) -> Result<(), PcapError> {
        match self.state {
            State::Open => self.write_out(),
            State::Stopped | State::Finished => Err(self.stopped()),
        }
    }

    /// Writes what is buffered, brings it to the disk, and gives the file its name.
    ///
    /// # Errors
    /// [`PcapError::Write`], [`PcapError::Stopped`] if a write failed before, or [`PcapError::Finish`]. The name is
    /// not taken then.
    pub fn finish(mut self) -> Result<(), PcapError> {
        self.finish_in_place()
    }

    /// Throws away what was written; a file that has the name already stays as it is. What is written in place, such
    /// as a named pipe, keeps what went into it.
    pub fn abandon(&mut self) {
        if self.state != State::Finished {
            self.state = State::Finished;
            self.output.abandon();
        }
    }

    fn finish_in_place(&mut self) -> Result<(), PcapError> {
        self.flush()?;
        self.state = State::Finished;
        self.output.finish()
    }

    #[cold]
    fn write_out(&mut self) -> Result<(), PcapError> {
        let result = self.output.append(&self.buffer);
        self.buffer.clear();
        let buffered = std::mem::take(&mut self.buffered);
        if let Err(source) = result {
            self.state = State::Stopped;
            return Err(PcapError::Write {
                file: self.output.written_path().to_owned(),
                source,
                lost: buffered.frames,
                written: self.written.frames,
            });
        }
        self.written.frames += buffered.frames;
        self.written.bytes += buffered.bytes;
        Ok(())
    }

    #[cold]
    fn stopped(&self) -> PcapError {
        PcapError::Stopped { file: self.output.written_path().to_owned() }
    }

    fn half(&mut self, value: u16) {
        self.buffer.extend_from_slice(&value.to_le_bytes());
    }

    fn word(&mut self, value: u32) {
        self.buffer.extend_from_slice(&value.to_le_bytes());
    }

    /// pcap-savefile(5): magic, version 2.4, two unused words, snapshot length, link type.
    fn pcap_header(&mut self) {
        self.word(MAGIC_NANOSECONDS);
        self.half(2);
        self.half(4);
        self.word(0);
        self.word(0);
        self.word(self.snap_length);
        self.word(u32::from(LinkType::ETHERNET.0));
    }

    fn pcap_record_header(&mut self, timestamp_nanoseconds: u64, captured: usize, length: usize) {
        const NANOSECONDS: u64 = 1_000_000_000;
        let seconds = u32::try_from(timestamp_nanoseconds / NANOSECONDS).unwrap_or(u32::MAX);
        self.word(seconds);
        self.word((timestamp_nanoseconds % NANOSECONDS) as u32);
        self.word(captured as u32);
        self.word(length as u32);
    }

    /// Section header of unknown length, and the one interface.
    fn pcapng_headers(&mut self) {
        let mut blocks = Blocks(&mut self.buffer);
        blocks.section("");
        blocks.interface(&BlockInterface { snap_length: self.snap_length, ..BlockInterface::default() });
    }

    /// Enhanced Packet Block up to the frame.
    fn block_header(&mut self, timestamp_nanoseconds: u64, captured: usize, padding: usize, length: usize) {
        self.word(ENHANCED_PACKET);
        self.word(block_size(captured, padding));
        self.word(0);
        self.word((timestamp_nanoseconds >> 32) as u32);
        self.word(timestamp_nanoseconds as u32);
        self.word(captured as u32);
        self.word(length as u32);
    }
}

fn block_size(captured: usize, padding: usize) -> u32 {
    (28 + captured + padding + 4) as u32
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.state == State::Open {
            // Who wants to hear of an error calls `finish`.
            let _ = self.finish_in_place();
        }
    }
}
