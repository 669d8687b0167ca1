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
use crate::variations::{TRAILER, Variations};
use std::ptr::NonNull;

/// Takes up to `wanted` (at most `burst.space()`, and no more than there are variations) buffers of `pool` and makes each a copy of the first of the
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
    let wanted = wanted.min(burst.space());
    let Some(&entry) = frames.entries.first() else { return Copied::default() };
    let cache = CACHES.with(|caches| caches[usize::from(shared.slot)].get());
    // SAFETY: as in `take`; copying calls no code but this crate's.
    if let Some(cache) = unsafe { cache.as_mut() } {
        return cache.take_variations(burst, (frames, entry), variations, wanted);
    }
    let before = burst.len();
    let packets = take(pool, burst, wanted.min(variations.len()));
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
        let wanted = wanted.min(variations.len());
        let fill = Fill::<R, false>::new(&frames.lines, self.data_size / LINE_BYTES, &self.clean);
        // SAFETY: the entry is of these frames.
        let (lines, half) = unsafe { fill.all(entry) };
        let order = R::order(variations.offsets);
        let line = R::cleared(R::line(lines.first().unwrap_or(&Line([0; LINE_BYTES]))), order);
        let rest = lines.get(1..).unwrap_or_default();
        let has_trailers = !variations.trailers.is_empty() && entry.length as usize >= TRAILER;
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
                trailers: variations.trailers.get(packets..).unwrap_or_default(),
                data: fill.data_offset,
                trailer: fill.data_offset + entry.length as usize - if has_trailers { TRAILER } else { 0 },
            };
            // SAFETY: the indices were just loaded, and there is space for as many packets as are wanted (caller), so this lane owns their
            // buffers. There are as many numbers, and trailers if there are any, as are wanted (above). All lines fit a buffer, or there are none.
            unsafe {
                match (lines, has_trailers) {
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
    trailers: &'a [[u32; 4]],
    /// Where data and the trailer start, from the start of a buffer's header.
    data: usize,
    trailer: usize,
}

/// Writes them. `ONE_LINE`: the frame has no more; `HAS_TRAILERS`: each has a trailer of its own.
struct Copies<'a, R: Registers, const ONE_LINE: bool, const HAS_TRAILERS: bool>(&'a Varied<'a, R>);

impl<R: Registers, const ONE_LINE: bool, const HAS_TRAILERS: bool> Writer
    for Copies<'_, R, ONE_LINE, HAS_TRAILERS>
{
    #[inline(always)]
    unsafe fn write(&self, header: NonNull<Header>, place: usize) {
        let Varied { half, line, order, rest, numbers, trailers, data, trailer } = *self.0;
        // SAFETY: the caller's condition: the buffer is the caller's, all lines fit it, and there are numbers, and a trailer if copies have any, for each place.
        unsafe {
            R::write_half(half, header.as_ptr().cast());
            let first = header.as_ptr().byte_add(data).cast();
            R::write_varied(line, order, *numbers.get_unchecked(place), first);
            if !ONE_LINE {
                for (number, line) in rest.iter().enumerate() {
                    R::write_line(R::line(line), first.add(1 + number));
                }
            }
            if HAS_TRAILERS {
                let trailer = header.as_ptr().byte_add(trailer).cast::<[u32; 4]>();
                trailer.write_unaligned(*trailers.get_unchecked(place));
            }
        }
    }
}
