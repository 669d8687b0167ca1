//! Taking buffers and filling them with stored frames in one go.

#[cfg(target_arch = "x86_64")]
use super::registers::Wide;
use super::registers::{Plain, Registers};
use super::{CACHES, Cache, Writer, take};
use crate::burst::Burst;
use crate::frames::{Copied, Cursor, Entry, Frames};
use crate::header::{FIRST_WORD_PER_BYTE, Header, PacketState};
use crate::packet::{LINE_BYTES, Line};
use crate::pool::Pool;
use std::ptr::NonNull;
use warmlane_sys::prefetch::prefetch_read_at;

/// How many lines of stored frames behind the frame in hand are fetched into the cache.
const LINES_AHEAD: usize = 32;

/// Takes up to `wanted` (at most `burst.space()`) buffers of `pool` and copies the frames from `cursor` on into them,
/// one each. A frame that does not fit a buffer gives an empty packet.
#[inline]
pub(crate) fn take_copies(
    pool: &Pool,
    burst: &mut Burst,
    frames: &Frames,
    cursor: &mut Cursor,
    wanted: usize,
) -> Copied {
    let shared = pool.shared();
    let wanted = if frames.is_empty() { 0 } else { wanted.min(burst.space()) };
    // A cursor that comes from a larger set starts this one over.
    cursor.wrap(frames.len());
    let cache = CACHES.with(|caches| caches[usize::from(shared.slot)].get());
    // SAFETY: as in `take`; copying calls no code but this crate's.
    if let Some(cache) = unsafe { cache.as_mut() } {
        return cache.take_copies(burst, frames, cursor, wanted);
    }
    let before = burst.len();
    let packets = take(pool, burst, wanted);
    let mut bytes = 0;
    for packet in &mut burst[before..] {
        if let Some((lines, length)) = frames.get(cursor.next()) {
            bytes += length as u64;
            // What does not fit stays empty, as it should.
            let _ = packet.fill_lines(lines, length);
        }
        cursor.advance(frames.len());
    }
    Copied { packets, bytes }
}

impl Cache {
    /// As [`take`](Self::take), but each header is written with its packet's length in it, and the frame behind it:
    /// half the work of taking first and filling then.
    #[inline]
    fn take_copies(
        &mut self,
        burst: &mut Burst,
        frames: &Frames,
        cursor: &mut Cursor,
        wanted: usize,
    ) -> Copied {
        // Hardly ever is there a frame that doesn't fit; else none is asked.
        if frames.longest().div_ceil(LINE_BYTES) <= self.data_size / LINE_BYTES {
            self.take_copies_of::<true>(burst, frames, cursor, wanted)
        } else {
            self.take_copies_of::<false>(burst, frames, cursor, wanted)
        }
    }

    #[inline(always)]
    fn take_copies_of<const ALL_FIT: bool>(
        &mut self,
        burst: &mut Burst,
        frames: &Frames,
        cursor: &mut Cursor,
        wanted: usize,
    ) -> Copied {
        #[cfg(target_arch = "x86_64")]
        if self.wide {
            // SAFETY: `wide` says that this processor has what the function is compiled for.
            return unsafe { self.take_copies_wide::<ALL_FIT>(burst, frames, cursor, wanted) };
        }
        self.take_copies_by::<Plain, ALL_FIT>(burst, frames, cursor, wanted)
    }

    /// The same, compiled for registers of 32 bytes: a line is two stores and not four, a header one and not two.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn take_copies_wide<const ALL_FIT: bool>(
        &mut self,
        burst: &mut Burst,
        frames: &Frames,
        cursor: &mut Cursor,
        wanted: usize,
    ) -> Copied {
        self.take_copies_by::<Wide, ALL_FIT>(burst, frames, cursor, wanted)
    }

    /// `ALL_FIT`: no frame is longer than a buffer.
    #[inline(always)]
    fn take_copies_by<R: Registers, const ALL_FIT: bool>(
        &mut self,
        burst: &mut Burst,
        frames: &Frames,
        cursor: &mut Cursor,
        wanted: usize,
    ) -> Copied {
        let data_lines = self.data_size / LINE_BYTES;
        let (stored, entries) = (frames.lines.as_slice(), frames.entries.as_slice());
        let fill = Fill::<R, ALL_FIT>::new(stored, data_lines, &self.clean);
        let each_has_one_line = frames.each_has_one_line();
        let mut copied = Copied::default();
        while copied.packets < wanted
            && let Some(indices) = self.load(wanted - copied.packets)
        {
            copied.packets += indices.len();
            // One frame over and over, as generators send: it is not looked up for each packet.
            if let [entry] = entries {
                copied.bytes += u64::from(entry.length) * indices.len() as u64;
                // SAFETY: the indices were just loaded, and there is space for as many packets as are wanted (caller), so this lane owns
                // their buffers; the entry is of these frames.
                unsafe {
                    let (lines, half) = fill.all(*entry);
                    if let [line] = lines {
                        self.append::<R>(
                            burst,
                            indices,
                            &SameLine { fill: &fill, half, line: R::line(line) },
                        );
                    } else {
                        self.append::<R>(burst, indices, &Same { fill: &fill, half, lines });
                    }
                }
                continue;
            }
            let mut rest = indices;
            while !rest.is_empty() {
                // As many as there are frames up to the last.
                let next = cursor.next();
                let run = &entries[next..];
                let (now, later) = rest.split_at(run.len().min(rest.len()));
                let run = &run[..now.len()];
                copied.bytes += run.iter().map(|entry| u64::from(entry.length)).sum::<u64>();
                let lines = if each_has_one_line { &stored[next..][..now.len()] } else { &[] };
                // SAFETY: as above, and there is an entry for each index, and a line if each has one. `ALL_FIT`, so a buffer has space for whole lines of the
                // longest frame.
                unsafe {
                    if ALL_FIT && each_has_one_line {
                        self.append::<R>(burst, now, &OneLineEach { fill: &fill, entries: run, lines });
                    } else {
                        self.append::<R>(burst, now, &Any { fill: &fill, entries: run });
                    }
                }
                cursor.advance_by(now.len(), entries.len());
                rest = later;
            }
        }
        self.count_taken(copied.packets, wanted);
        copied
    }
}

/// Fetches stored frames that come later: the set is usually larger than the private caches.
#[inline(always)]
fn fetch_behind(line: *const Line) {
    prefetch_read_at(line.wrapping_add(LINES_AHEAD).cast());
}

/// Fills buffers of one pool with stored frames. `ALL_FIT`: none is longer than a buffer.
pub(super) struct Fill<'a, R: Registers, const ALL_FIT: bool> {
    stored: &'a [Line],
    data_lines: usize,
    pub(super) data_offset: usize,
    /// A clean header's, to be stored at once.
    half: R::Half,
    /// Its first word for a packet without data.
    empty: u64,
}

impl<'a, R: Registers, const ALL_FIT: bool> Fill<'a, R, ALL_FIT> {
    #[inline(always)]
    pub(super) fn new(stored: &'a [Line], data_lines: usize, clean: &PacketState) -> Self {
        let (data_offset, empty) = (usize::from(clean.data_offset), clean.first_word(0));
        Self { stored, data_lines, data_offset, half: R::half(clean), empty }
    }

    /// The first word of a header for so many bytes.
    #[inline(always)]
    fn first_word(&self, length: u32) -> u64 {
        self.empty + u64::from(length) * FIRST_WORD_PER_BYTE
    }

    /// The lines of a frame, and how long it is; none of what doesn't fit, which leaves packets empty.
    ///
    /// # Safety
    /// The entry is one of the frames'.
    #[inline(always)]
    unsafe fn frame(&self, entry: Entry) -> (&'a [Line], u32) {
        // SAFETY: entries are made by `Frames::push` alone, for lines that it appended just before.
        let lines = unsafe { self.stored.get_unchecked(entry.lines()) };
        if ALL_FIT || lines.len() <= self.data_lines { (lines, entry.length) } else { (&[], 0) }
    }

    /// What is the same in all packets that get the same frame: its lines, and the half of a header.
    ///
    /// # Safety
    /// The entry is one of the frames'.
    #[inline(always)]
    pub(super) unsafe fn all(&self, entry: Entry) -> (&'a [Line], R::Half) {
        // SAFETY: the caller's condition.
        let (lines, length) = unsafe { self.frame(entry) };
        (lines, R::with_first_word(self.half, self.first_word(length)))
    }

    /// # Safety
    /// The header is of a buffer of that pool that nobody else touches.
    #[inline(always)]
    unsafe fn header(&self, header: NonNull<Header>, length: u32) {
        // SAFETY: the caller's condition.
        unsafe {
            R::write_half(self.half, header.as_ptr().cast());
            header.as_ptr().cast::<u64>().write(self.first_word(length));
        }
    }

    /// Writes one line to where data starts.
    ///
    /// # Safety
    /// As for `header`, and the buffer has space for it.
    #[inline(always)]
    unsafe fn line(&self, header: NonNull<Header>, line: R::Line) {
        // SAFETY: the caller's condition.
        unsafe { R::write_line(line, header.as_ptr().byte_add(self.data_offset).cast()) };
    }

    /// Copies `lines` to where data starts.
    ///
    /// # Safety
    /// As for `header`, and the buffer has space for them.
    #[inline(always)]
    unsafe fn copy(&self, header: NonNull<Header>, lines: &[Line]) {
        for (number, line) in lines.iter().enumerate() {
            let offset = self.data_offset + number * LINE_BYTES;
            // SAFETY: the caller's condition.
            unsafe { R::write_line(R::line(line), header.as_ptr().byte_add(offset).cast()) };
        }
    }
}

/// The same frame of one line for all.
struct SameLine<'a, R: Registers, const ALL_FIT: bool> {
    fill: &'a Fill<'a, R, ALL_FIT>,
    half: R::Half,
    line: R::Line,
}

impl<R: Registers, const ALL_FIT: bool> Writer for SameLine<'_, R, ALL_FIT> {
    #[inline(always)]
    unsafe fn write(&self, header: NonNull<Header>, _place: usize) {
        // SAFETY: the caller's condition; the frame fits the buffer.
        unsafe {
            R::write_half(self.half, header.as_ptr().cast());
            self.fill.line(header, self.line);
        }
    }
}

/// The same frame for all.
struct Same<'a, R: Registers, const ALL_FIT: bool> {
    fill: &'a Fill<'a, R, ALL_FIT>,
    half: R::Half,
    lines: &'a [Line],
}

impl<R: Registers, const ALL_FIT: bool> Writer for Same<'_, R, ALL_FIT> {
    #[inline(always)]
    unsafe fn write(&self, header: NonNull<Header>, _place: usize) {
        // SAFETY: the caller's condition; the frame fits the buffer.
        unsafe {
            R::write_half(self.half, header.as_ptr().cast());
            self.fill.copy(header, self.lines);
        }
    }
}

/// Frames of one line each, which fit. There are as many entries and lines as places.
struct OneLineEach<'a, R: Registers, const ALL_FIT: bool> {
    fill: &'a Fill<'a, R, ALL_FIT>,
    entries: &'a [Entry],
    lines: &'a [Line],
}

impl<R: Registers, const ALL_FIT: bool> Writer for OneLineEach<'_, R, ALL_FIT> {
    #[inline(always)]
    unsafe fn write(&self, header: NonNull<Header>, place: usize) {
        // SAFETY: the caller's condition.
        unsafe {
            let (entry, line) = (self.entries.get_unchecked(place), self.lines.get_unchecked(place));
            fetch_behind(line);
            self.fill.header(header, entry.length);
            self.fill.line(header, R::line(line));
        }
    }
}

/// Frames of any length. There are as many entries as places.
struct Any<'a, R: Registers, const ALL_FIT: bool> {
    fill: &'a Fill<'a, R, ALL_FIT>,
    entries: &'a [Entry],
}

impl<R: Registers, const ALL_FIT: bool> Writer for Any<'_, R, ALL_FIT> {
    #[inline(always)]
    unsafe fn write(&self, header: NonNull<Header>, place: usize) {
        // SAFETY: the caller's condition; at most as many lines as a buffer has are written, or none.
        unsafe {
            let entry = self.entries.get_unchecked(place);
            fetch_behind(self.fill.stored.as_ptr().wrapping_add(entry.lines().end));
            let (lines, length) = self.fill.frame(*entry);
            self.fill.header(header, length);
            // Nearly all frames of the rates that matter have one line.
            if let [line] = lines {
                self.fill.line(header, R::line(line));
            } else {
                self.fill.copy(header, lines);
            }
        }
    }
}
