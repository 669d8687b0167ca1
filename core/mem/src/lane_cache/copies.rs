//! Taking buffers and filling them with stored frames in one go.

use super::{CACHES, Cache, take};
use crate::burst::Burst;
use crate::frames::{Copied, Cursor, Entry, Frames};
use crate::header::{FIRST_WORD_PER_BYTE, PacketState};
use crate::packet::{LINE_BYTES, Line, Packet};
use crate::pool::Pool;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m256i, _mm256_load_si256, _mm256_store_si256, _mm256_storeu_si256};
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
        while copied.packets < wanted {
            let packets = self.take_chunk(burst, wanted - copied.packets);
            if packets.is_empty() {
                break;
            }
            copied.packets += packets.len();
            // One frame over and over, as generators send: it is not looked up for each packet.
            if let [entry] = entries {
                // SAFETY: the packets were just taken, so this lane owns their buffers; the entry is of these frames.
                unsafe { fill.all(packets, *entry) };
                copied.bytes += u64::from(entry.length) * packets.len() as u64;
                continue;
            }
            let mut rest = &*packets;
            while !rest.is_empty() {
                // As many as there are frames up to the last.
                let next = cursor.next();
                let run = &entries[next..];
                let (now, later) = rest.split_at(run.len().min(rest.len()));
                if ALL_FIT && each_has_one_line {
                    for ((packet, entry), line) in now.iter().zip(run).zip(&stored[next..]) {
                        fetch_behind(line);
                        copied.bytes += u64::from(entry.length);
                        // SAFETY: as above. `ALL_FIT`, so a buffer has space for whole lines of the longest frame, which is one.
                        unsafe { fill.line(packet, entry.length, line) };
                    }
                } else {
                    for (packet, entry) in now.iter().zip(run) {
                        fetch_behind(stored.as_ptr().wrapping_add(entry.lines().end));
                        copied.bytes += u64::from(entry.length);
                        // SAFETY: as above.
                        unsafe { fill.packet(packet, *entry) };
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
struct Fill<'a, R: Registers, const ALL_FIT: bool> {
    stored: &'a [Line],
    data_lines: usize,
    data_offset: usize,
    clean: PacketState,
    /// `clean`, to be stored at once.
    half: R::Half,
    /// Its first word for a packet without data.
    empty: u64,
}

impl<'a, R: Registers, const ALL_FIT: bool> Fill<'a, R, ALL_FIT> {
    #[inline(always)]
    fn new(stored: &'a [Line], data_lines: usize, clean: &PacketState) -> Self {
        let (data_offset, empty) = (usize::from(clean.data_offset), clean.first_word(0));
        Self { stored, data_lines, data_offset, clean: *clean, half: R::half(clean), empty }
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

    /// Writes the header, and the frame behind it.
    ///
    /// # Safety
    /// The packet is of that pool, nobody else touches its buffer, and the entry is one of the frames'.
    #[inline(always)]
    unsafe fn packet(&self, packet: &Packet, entry: Entry) {
        // SAFETY: the caller's condition; at most data_lines lines are written behind the headroom, which end inside the buffer.
        unsafe {
            let (lines, length) = self.frame(entry);
            // Nearly all frames of the rates that matter have one line.
            if let [line] = lines {
                self.line(packet, length, line);
            } else {
                self.header(packet, length);
                self.copy(packet, lines);
            }
        }
    }

    /// The same for a frame of one line.
    ///
    /// # Safety
    /// As for `packet`, and the buffer has space for a line.
    #[inline(always)]
    unsafe fn line(&self, packet: &Packet, length: u32, line: &Line) {
        // SAFETY: the caller's condition.
        unsafe {
            self.header(packet, length);
            R::write_line(R::line(line), packet.as_header().as_ptr().byte_add(self.data_offset).cast());
        }
    }

    /// The same for many packets, which get the same frame.
    ///
    /// # Safety
    /// As for `packet`.
    #[inline(always)]
    unsafe fn all(&self, packets: &[Packet], entry: Entry) {
        // SAFETY: the caller's condition.
        let (lines, length) = unsafe { self.frame(entry) };
        let half = R::half(&self.clean.with_length(length));
        if let [line] = lines {
            let line = R::line(line);
            for header in packets.iter().map(|packet| packet.as_header().as_ptr()) {
                // SAFETY: as in `packet`.
                unsafe {
                    R::write_half(half, header.cast());
                    R::write_line(line, header.byte_add(self.data_offset).cast());
                }
            }
        } else {
            for packet in packets {
                // SAFETY: as in `packet`.
                unsafe {
                    R::write_half(half, packet.as_header().as_ptr().cast());
                    self.copy(packet, lines);
                }
            }
        }
    }

    /// # Safety
    /// As for `packet`.
    #[inline(always)]
    unsafe fn header(&self, packet: &Packet, length: u32) {
        let header = packet.as_header().as_ptr();
        // SAFETY: the caller's condition.
        unsafe {
            R::write_half(self.half, header.cast());
            header.cast::<u64>().write(self.empty + u64::from(length) * FIRST_WORD_PER_BYTE);
        }
    }

    /// Copies `lines` to where data starts.
    ///
    /// # Safety
    /// As for `packet`, and the buffer has space for them.
    #[inline(always)]
    unsafe fn copy(&self, packet: &Packet, lines: &[Line]) {
        for (number, line) in lines.iter().enumerate() {
            let offset = self.data_offset + number * LINE_BYTES;
            // SAFETY: the caller's condition.
            unsafe { R::write_line(R::line(line), packet.as_header().as_ptr().byte_add(offset).cast()) };
        }
    }
}

/// Registers by which lines and the halves of headers that are reset are written. What doesn't change from packet to packet stays there.
trait Registers {
    type Half: Copy;
    type Line: Copy;

    fn half(state: &PacketState) -> Self::Half;

    fn line(line: &Line) -> Self::Line;

    /// # Safety
    /// A `PacketState` can be written there.
    unsafe fn write_half(half: Self::Half, place: *mut PacketState);

    /// Writes a line to any address.
    ///
    /// # Safety
    /// There is space for it, and nobody else touches it meanwhile.
    unsafe fn write_line(line: Self::Line, place: *mut [u8; LINE_BYTES]);
}

/// Those that all processors have.
struct Plain;

impl Registers for Plain {
    type Half = PacketState;
    type Line = [u8; LINE_BYTES];

    #[inline(always)]
    fn half(state: &PacketState) -> PacketState {
        *state
    }

    #[inline(always)]
    fn line(line: &Line) -> [u8; LINE_BYTES] {
        line.0
    }

    #[inline(always)]
    unsafe fn write_half(half: PacketState, place: *mut PacketState) {
        // SAFETY: the caller's condition.
        unsafe { place.write(half) };
    }

    #[inline(always)]
    unsafe fn write_line(line: [u8; LINE_BYTES], place: *mut [u8; LINE_BYTES]) {
        // SAFETY: the caller's condition.
        unsafe { place.write_unaligned(line) };
    }
}

/// Those of 32 bytes; only [`Cache::take_copies_wide`] uses it.
#[cfg(target_arch = "x86_64")]
struct Wide;

#[cfg(target_arch = "x86_64")]
impl Registers for Wide {
    type Half = __m256i;
    type Line = [__m256i; 2];

    #[inline(always)]
    fn half(state: &PacketState) -> __m256i {
        // SAFETY: who uses this has AVX2.
        unsafe { state.in_register() }
    }

    #[inline(always)]
    fn line(line: &Line) -> [__m256i; 2] {
        let halves = std::ptr::from_ref(line).cast::<__m256i>();
        // SAFETY: a line is two registers, and aligned to its size; who uses this has AVX2.
        unsafe { [_mm256_load_si256(halves), _mm256_load_si256(halves.add(1))] }
    }

    #[inline(always)]
    unsafe fn write_half(half: __m256i, place: *mut PacketState) {
        // SAFETY: a `PacketState` has the size and the alignment of a register; the caller's condition.
        unsafe { _mm256_store_si256(place.cast(), half) };
    }

    #[inline(always)]
    unsafe fn write_line([first, second]: [__m256i; 2], place: *mut [u8; LINE_BYTES]) {
        // SAFETY: the caller's condition.
        unsafe {
            _mm256_storeu_si256(place.cast(), first);
            _mm256_storeu_si256(place.byte_add(LINE_BYTES / 2).cast(), second);
        }
    }
}
