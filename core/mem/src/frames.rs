//! Frames stored to be copied into packets, over and over.
//!
//! They stand one behind the other, each padded to whole cache lines: reading them is a sequential walk that the
//! hardware prefetcher follows, and copying one has no tail to handle.

use crate::packet::{LINE_BYTES, Line};

/// Where a frame is stored, and how long it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    first_line: u32,
    pub(crate) length: u32,
}

impl Entry {
    #[inline(always)]
    pub(crate) const fn lines(self) -> std::ops::Range<usize> {
        let first = self.first_line as usize;
        first..first + (self.length as usize).div_ceil(LINE_BYTES)
    }
}

/// Frames to copy from. Several queues can share one set.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    pub(crate) lines: Vec<Line>,
    pub(crate) entries: Vec<Entry>,
    bytes: u64,
    longest: usize,
}

/// More frames than can be stored: lines are numbered with 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{frames} frames exceed the 256 GiB that can be stored: give fewer")]
pub struct TooManyFrames {
    /// Frames stored so far.
    pub frames: usize,
}

impl Frames {
    /// No frames.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a frame: a whole Ethernet frame without its check sequence.
    ///
    /// # Errors
    /// [`TooManyFrames`], if the frames stored so far fill the space.
    pub fn push(&mut self, frame: &[u8]) -> Result<(), TooManyFrames> {
        let too_many = TooManyFrames { frames: self.entries.len() };
        let (Ok(first_line), Ok(length)) = (u32::try_from(self.lines.len()), u32::try_from(frame.len()))
        else {
            return Err(too_many);
        };
        for chunk in frame.chunks(LINE_BYTES) {
            let mut line = Line([0; LINE_BYTES]);
            line.0[..chunk.len()].copy_from_slice(chunk);
            self.lines.push(line);
        }
        self.entries.push(Entry { first_line, length });
        self.bytes += u64::from(length);
        self.longest = self.longest.max(frame.len());
        Ok(())
    }

    /// How many frames there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of all frames together.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether each frame has one line, so that frame and line have the same number.
    #[inline(always)]
    pub(crate) fn each_has_one_line(&self) -> bool {
        // As many lines as frames, and none of two: none of none, either.
        self.longest <= LINE_BYTES && self.lines.len() == self.entries.len()
    }

    /// The longest frame's bytes.
    pub const fn longest(&self) -> usize {
        self.longest
    }

    /// The lines of frame `number`, and its length in bytes; `None` if there is no such frame.
    pub fn get(&self, number: usize) -> Option<(&[Line], usize)> {
        let entry = self.entries.get(number)?;
        Some((&self.lines[entry.lines()], entry.length as usize))
    }
}

/// A place in a set of frames that goes round.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor(usize);

impl Cursor {
    /// The number of the frame that comes next.
    pub const fn next(self) -> usize {
        self.0
    }

    /// Steps over one of `count` frames.
    #[inline(always)]
    pub const fn advance(&mut self, count: usize) {
        self.advance_by(1, count);
    }

    /// Steps over `steps` of `count` frames, of which as many come before the end.
    #[inline(always)]
    pub(crate) const fn advance_by(&mut self, steps: usize, count: usize) {
        self.0 += steps;
        self.wrap(count);
    }

    /// Goes back to the first frame if there are no more than `count`.
    #[inline(always)]
    pub(crate) const fn wrap(&mut self, count: usize) {
        if self.0 >= count {
            self.0 = 0;
        }
    }
}

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Packets appended.
    pub packets: usize,
    /// Bytes of the frames in them.
    pub bytes: u64,
}
