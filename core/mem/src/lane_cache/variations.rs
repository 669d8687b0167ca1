//! Taking buffers and filling them with copies of one frame that differ by a few numbers.

use super::copies::Fill;
#[cfg(target_arch = "x86_64")]
use super::registers::Wide;
use super::registers::{Plain, Registers};
use super::{CACHES, Cache, Reset, Writer, take};
use crate::burst::Burst;
use crate::frames::{Copied, Entry, Frames};
use crate::header::Header;
use crate::packet::{LINE_BYTES, Line};
use crate::pool::Pool;
use crate::variations::Variations;
use std::ptr::NonNull;

/// Bytes of what a copy ends with.
const END: usize = size_of::<[u32; 4]>();

/// Takes up to `wanted` (at most `burst.space()`, and as many as there are variations) buffers of `pool` and makes each a copy of the first of the
/// `frames`, with its own numbers. A frame that does not fit a buffer gives empty packets.
#[inline]
pub(crate) fn take_variations(
    pool: &Pool,
    burst: &mut Burst,
    frames: &Frames,
    variations: &Variations<'_>,
    wanted: usize,
) -> Copied {
    let shared = pool.shared();
    let wanted = wanted.min(burst.space()).min(variations.len());
    let Some(&entry) = frames.entries.first() else { return Copied::default() };
    let cache = CACHES.with(|caches| caches[usize::from(shared.slot)].get());
    // SAFETY: as in `take`; copying calls no code but this crate's.
    if let Some(cache) = unsafe { cache.as_mut() } {
        return cache.take_variations(burst, (frames, entry), variations, wanted);
    }
    let before = burst.len();
    let packets = take(pool, burst, wanted);
    for (number, packet) in burst[before..].iter_mut().enumerate() {
        // What does not fit stays empty, as it should.
        if let Some((lines, length)) = frames.get(0)
            && packet.fill_lines(lines, length).is_ok()
        {
            variations.write(number, packet);
        }
    }
    Copied { packets, bytes: packets as u64 * u64::from(entry.length) }
}

impl Cache {
    #[inline]
    fn take_variations(
        &mut self,
        burst: &mut Burst,
        frame: (&Frames, Entry),
        variations: &Variations<'_>,
        wanted: usize,
    ) -> Copied {
        #[cfg(target_arch = "x86_64")]
        if self.wide {
            // SAFETY: `wide` says that this processor has what the function is compiled for.
            return unsafe { self.take_variations_wide(burst, frame, variations, wanted) };
        }
        self.take_variations_by::<Plain>(burst, frame, variations, wanted)
    }

    /// The same, compiled for registers of 32 bytes: a copy's own numbers are put into a line by four instructions.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn take_variations_wide(
        &mut self,
        burst: &mut Burst,
        frame: (&Frames, Entry),
        variations: &Variations<'_>,
        wanted: usize,
    ) -> Copied {
        self.take_variations_by::<Wide>(burst, frame, variations, wanted)
    }

    #[inline(always)]
    fn take_variations_by<R: Registers>(
        &mut self,
        burst: &mut Burst,
        (frames, entry): (&Frames, Entry),
        variations: &Variations<'_>,
        wanted: usize,
    ) -> Copied {
        let fill = Fill::<R, false>::new(&frames.lines, self.data_size / LINE_BYTES, &self.clean);
        // SAFETY: the entry is of these frames.
        let (lines, half) = unsafe { fill.all(entry) };
        let order = R::order(variations.places);
        let line = R::cleared(R::line(lines.first().unwrap_or(&Line([0; LINE_BYTES]))), order);
        let rest = lines.get(1..).unwrap_or_default();
        let has_ends = !variations.ends.is_empty() && entry.length as usize >= END;
        let mut packets = 0;
        while packets < wanted
            && let Some(indices) = self.load(wanted - packets)
        {
            let varied = Varied {
                half,
                line,
                order,
                rest,
                numbers: variations.numbers.get(packets..).unwrap_or_default(),
                ends: variations.ends.get(packets..).unwrap_or_default(),
                data: fill.data_offset,
                end: fill.data_offset + entry.length as usize - if has_ends { END } else { 0 },
            };
            // SAFETY: the indices were just loaded, and there is space for as many packets as are wanted (caller), so this lane owns their
            // buffers. There are as many numbers, and ends if there are any, as are wanted. All lines fit a buffer, or there are none.
            unsafe {
                match (lines, has_ends) {
                    ([], _) => self.append::<R>(burst, indices, &Reset::<R>(half)),
                    ([_], false) => self.append::<R>(burst, indices, &Copies::<R, true, false>(&varied)),
                    ([_], true) => self.append::<R>(burst, indices, &Copies::<R, true, true>(&varied)),
                    (_, false) => self.append::<R>(burst, indices, &Copies::<R, false, false>(&varied)),
                    (_, true) => self.append::<R>(burst, indices, &Copies::<R, false, true>(&varied)),
                }
            }
            packets += indices.len();
        }
        self.count_taken(packets, wanted);
        Copied { packets, bytes: packets as u64 * u64::from(entry.length) }
    }
}

/// What copies are made of.
struct Varied<'a, R: Registers> {
    half: R::Half,
    /// The frame's first line, with nothing where a copy's own numbers go.
    line: R::Line,
    order: R::Order,
    rest: &'a [Line],
    numbers: &'a [[u32; 2]],
    ends: &'a [[u32; 4]],
    /// Where data starts, and where a copy's end does, behind a buffer's header.
    data: usize,
    end: usize,
}

/// Writes them. `ONE_LINE`: the frame has no more; `HAS_ENDS`: each has an end of its own.
struct Copies<'a, R: Registers, const ONE_LINE: bool, const HAS_ENDS: bool>(&'a Varied<'a, R>);

impl<R: Registers, const ONE_LINE: bool, const HAS_ENDS: bool> Writer for Copies<'_, R, ONE_LINE, HAS_ENDS> {
    #[inline(always)]
    unsafe fn write(&self, header: NonNull<Header>, place: usize) {
        let Varied { half, line, order, rest, numbers, ends, data, end } = *self.0;
        // SAFETY: the caller's condition: the buffer is the caller's, all lines fit it, and there are numbers, and an end if copies have any, for each place.
        unsafe {
            R::write_half(half, header.as_ptr().cast());
            let first = header.as_ptr().byte_add(data).cast();
            R::write_varied(line, order, *numbers.get_unchecked(place), first);
            if !ONE_LINE {
                for (number, line) in rest.iter().enumerate() {
                    R::write_line(R::line(line), first.add(1 + number));
                }
            }
            if HAS_ENDS {
                let end = header.as_ptr().byte_add(end).cast::<[u32; 4]>();
                end.write_unaligned(*ends.get_unchecked(place));
            }
        }
    }
}
