//! A window of bytes that slides over an input.

use std::{
    io::{self, Read, Seek, SeekFrom},
    sync::Arc,
};

use crate::{PcapError, Position};

/// Bytes asked of the input at once: large enough that the system call and its copy set-up vanish beside the
/// copy, and larger than the largest record.
const WINDOW: usize = 1 << 20;

/// The input, and what has been read of it but not yet been consumed.
pub(crate) struct Source<R> {
    input: R,
    file: Arc<str>,
    window: Box<[u8]>,
    start: usize,
    end: usize,
    /// Offset in the input of `window[start]`.
    position: u64,
    /// Number of the frame that comes next, from 1.
    frame: u64,
}

impl<R: Read> Source<R> {
    pub(crate) fn new(input: R, file: Arc<str>) -> Self {
        let window = vec![0; WINDOW].into_boxed_slice();
        Self { input, file, window, start: 0, end: 0, position: 0, frame: 1 }
    }

    pub(crate) fn file(&self) -> &Arc<str> {
        &self.file
    }

    pub(crate) fn frame(&self) -> u64 {
        self.frame
    }

    pub(crate) fn count_frame(&mut self) {
        self.frame += 1;
    }

    #[cold]
    pub(crate) fn position_now(&self) -> Position {
        Position { file: Arc::clone(&self.file), offset: self.position, frame: self.frame }
    }

    /// The error for input that ends before the `wanted` bytes of `what` that begin here.
    #[cold]
    pub(crate) fn truncated(&self, what: &'static str, wanted: usize) -> PcapError {
        let missing = wanted.saturating_sub(self.bytes().len()) as u64;
        PcapError::Truncated { position: self.position_now(), what, missing }
    }

    /// What lies in the window from here on.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.window[self.start..self.end]
    }

    /// Tries to have `length` bytes (at most the window's size) in the window. `false`: the input ended before.
    #[inline]
    pub(crate) fn fill(&mut self, length: usize) -> Result<bool, PcapError> {
        if self.end - self.start >= length { Ok(true) } else { self.read_on(length) }
    }

    #[cold]
    fn read_on(&mut self, length: usize) -> Result<bool, PcapError> {
        debug_assert!(length <= WINDOW, "records are bounded below the window's size");
        self.window.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < length {
            match self.input.read(&mut self.window[self.end..]) {
                Ok(0) => return Ok(false),
                Ok(count) => self.end += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(PcapError::Read { position: self.position_now(), source }),
            }
        }
        Ok(true)
    }

    /// Moves on by `length` bytes, which are in the window.
    #[inline]
    pub(crate) fn consume(&mut self, length: usize) {
        debug_assert!(length <= self.end - self.start, "only what was filled is consumed");
        self.start += length;
        self.position += length as u64;
    }

    /// Moves on by any number of bytes; returns how many of them the input did not have.
    pub(crate) fn skip(&mut self, mut length: u64) -> Result<u64, PcapError> {
        loop {
            let here = length.min(self.bytes().len() as u64);
            self.consume(here as usize);
            length -= here;
            if length == 0 || !self.fill(1)? {
                return Ok(length);
            }
        }
    }
}

impl<R: Read + Seek> Source<R> {
    /// Back to the first byte.
    pub(crate) fn rewind(&mut self) -> Result<(), PcapError> {
        self.input
            .seek(SeekFrom::Start(0))
            .map_err(|source| PcapError::Read { position: self.position_now(), source })?;
        (self.start, self.end, self.position, self.frame) = (0, 0, 0, 1);
        Ok(())
    }
}
