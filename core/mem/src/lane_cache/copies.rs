//! Taking buffers and filling them with stored frames in one go.

use super::{CACHES, Cache, take};
use crate::burst::Burst;
use crate::frames::{Copied, Cursor, Entry, Frames};
use crate::header::{FIRST_WORD_PER_BYTE, PacketState};
use crate::packet::{LINE_BYTES, Line, Packet};
use crate::pool::Pool;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::_mm256_store_si256;
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
        let clean = self.clean;
        // SAFETY: the function's own condition.
        self.take_copies_by::<ALL_FIT>(burst, frames, cursor, wanted, |header| unsafe { header.write(clean) })
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
        let clean = self.clean.in_register();
        // SAFETY: the function's own condition; a `PacketState` has the size and the alignment of a register.
        self.take_copies_by::<ALL_FIT>(burst, frames, cursor, wanted, |header| unsafe {
            _mm256_store_si256(header.cast(), clean);
        })
    }

    /// `reset` writes a clean header's first half to where it is told, which is in a buffer that this lane owns. `ALL_FIT`: no
    /// frame is longer than a buffer.
    #[inline(always)]
    fn take_copies_by<const ALL_FIT: bool>(
        &mut self,
        burst: &mut Burst,
        frames: &Frames,
        cursor: &mut Cursor,
        wanted: usize,
        reset: impl Fn(*mut PacketState),
    ) -> Copied {
        let data_lines = self.data_size / LINE_BYTES;
        let (stored, entries) = (frames.lines.as_slice(), frames.entries.as_slice());
        let (data_offset, empty) = (usize::from(self.clean.data_offset), self.clean.first_word(0));
        let fill = Fill::<_, ALL_FIT> { stored, data_lines, data_offset, empty, reset };
        let mut copied = Copied::default();
        while copied.packets < wanted {
            let packets = self.take_chunk(burst, wanted - copied.packets);
            if packets.is_empty() {
                break;
            }
            copied.packets += packets.len();
            // One frame over and over, as generators send: it is not looked up for each packet.
            if let [entry] = entries {
                for packet in &*packets {
                    // SAFETY: the packet was just taken, so this lane owns the buffer; the entry is of these frames.
                    unsafe { fill.packet(packet, *entry) };
                }
                copied.bytes += u64::from(entry.length) * packets.len() as u64;
                continue;
            }
            let mut rest = &*packets;
            while !rest.is_empty() {
                // As many as there are frames up to the last.
                let run = &entries[cursor.next()..];
                let (now, later) = rest.split_at(run.len().min(rest.len()));
                for (packet, entry) in now.iter().zip(run) {
                    // The set is usually larger than the private caches.
                    prefetch_read_at(stored.as_ptr().wrapping_add(entry.lines().end + LINES_AHEAD).cast());
                    copied.bytes += u64::from(entry.length);
                    // SAFETY: as above.
                    unsafe { fill.packet(packet, *entry) };
                }
                cursor.advance_by(now.len(), entries.len());
                rest = later;
            }
        }
        self.count_taken(copied.packets, wanted);
        copied
    }
}

/// Fills buffers of one pool with stored frames. `ALL_FIT`: none is longer than a buffer.
struct Fill<'a, R, const ALL_FIT: bool> {
    stored: &'a [Line],
    data_lines: usize,
    data_offset: usize,
    /// The first word of a clean header without data.
    empty: u64,
    /// Writes a clean header's first half.
    reset: R,
}

impl<R: Fn(*mut PacketState), const ALL_FIT: bool> Fill<'_, R, ALL_FIT> {
    /// Writes the header, and the frame behind it; one that doesn't fit leaves the packet empty.
    ///
    /// # Safety
    /// The packet is of that pool, nobody else touches its buffer, and the entry is one of the frames'.
    #[inline(always)]
    unsafe fn packet(&self, packet: &Packet, entry: Entry) {
        // SAFETY: entries are made by `Frames::push` alone, for lines that it appended just before.
        let lines = unsafe { self.stored.get_unchecked(entry.lines()) };
        let fits = ALL_FIT || lines.len() <= self.data_lines;
        let length = if fits { entry.length } else { 0 };
        // SAFETY: the caller's condition; at most data_lines lines are written behind the headroom, which end inside the buffer.
        unsafe {
            let header = packet.as_header().as_ptr();
            (self.reset)(header.cast());
            header.cast::<u64>().write(self.empty + u64::from(length) * FIRST_WORD_PER_BYTE);
            if fits {
                copy_lines(header.cast::<u8>().add(self.data_offset), lines);
            }
        }
    }
}

/// Copies `lines` to `target`, which may stand at any address.
///
/// # Safety
/// There is space for them, and nobody else touches it meanwhile.
#[inline(always)]
unsafe fn copy_lines(target: *mut u8, lines: &[Line]) {
    // Nearly all frames of the rates that matter have one line.
    if let [line] = lines {
        // SAFETY: passed on to the caller.
        unsafe { target.cast::<[u8; LINE_BYTES]>().write_unaligned(line.0) };
        return;
    }
    for (number, line) in lines.iter().enumerate() {
        // SAFETY: passed on to the caller.
        unsafe { target.add(number * LINE_BYTES).cast::<[u8; LINE_BYTES]>().write_unaligned(line.0) };
    }
}
