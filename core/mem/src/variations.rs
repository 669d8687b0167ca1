//! Copies of one frame that differ by a few numbers, as a generator sends: a copy and what is its own are written at once.

use crate::packet::{LINE_BYTES, Line, Packet};

/// In [`Offsets::order`]: a byte of the frame. Vectors write zero for it.
const KEPT: u8 = 0x80;

/// In [`Offsets::numbers`]: this one isn't used.
const UNUSED: u8 = u8::MAX;

/// Bytes of a number, and of a trailer.
const NUMBER: usize = size_of::<u16>();
pub(crate) const TRAILER: usize = size_of::<[u32; 4]>();

/// Where a copy's own four numbers go in the frame's first line.
#[derive(Clone, Copy, Debug)]
pub struct Offsets {
    /// Of each number, or [`UNUSED`].
    numbers: [u8; 4],
    /// For each byte of the line which byte of the numbers it is, counted from the lowest, or [`KEPT`].
    #[cfg(target_arch = "x86_64")]
    pub(crate) order: Line,
}

impl Offsets {
    /// Each number goes to this offset in the frame, in network order, or nowhere. Where two overlap, the later one counts. `None` if one isn't in the first
    /// [`LINE_BYTES`] bytes as a whole.
    pub fn new(offsets: [Option<usize>; 4]) -> Option<Self> {
        let mut order = Line([KEPT; LINE_BYTES]);
        let mut numbers = [UNUSED; 4];
        for (number, (known, offset)) in numbers.iter_mut().zip(offsets).enumerate() {
            let Some(offset) = offset else { continue };
            let bytes = order.0.get_mut(offset..offset.checked_add(NUMBER)?)?;
            for (byte, which) in bytes.iter_mut().rev().zip(NUMBER * number..) {
                *byte = which as u8;
            }
            *known = offset as u8;
        }
        Some(Self {
            numbers,
            #[cfg(target_arch = "x86_64")]
            order,
        })
    }

    /// What is written: bytes with their offset.
    pub(crate) fn written(self, [first, second]: [u32; 2]) -> impl Iterator<Item = (usize, [u8; NUMBER])> {
        let numbers = [first as u16, (first >> 16) as u16, second as u16, (second >> 16) as u16];
        let used = self.numbers.into_iter().zip(numbers).filter(|(offset, _)| *offset != UNUSED);
        used.map(|(offset, number)| (offset.into(), number.to_be_bytes()))
    }
}

/// By what copies of a frame differ.
#[derive(Clone, Copy, Debug)]
pub struct Variations<'a> {
    /// Where each copy's own numbers go.
    pub offsets: &'a Offsets,
    /// Each copy's own four numbers of 16 bits: the lower and the upper half of the first word, and those of the second.
    pub numbers: &'a [[u32; 2]],
    /// The last 16 bytes of each copy, in memory order; empty if all have the same. Ignored for shorter frames.
    pub trailers: &'a [[u32; 4]],
}

impl Variations<'_> {
    /// How many copies there can be.
    pub(crate) fn len(&self) -> usize {
        if self.trailers.is_empty() {
            self.numbers.len()
        } else {
            self.numbers.len().min(self.trailers.len())
        }
    }

    /// Writes what is copy number `number`'s own into a copy.
    pub(crate) fn write(&self, number: usize, packet: &mut Packet) {
        let data = packet.data_mut();
        if let Some(numbers) = self.numbers.get(number) {
            for (offset, bytes) in self.offsets.written(*numbers) {
                for (place, byte) in data.iter_mut().skip(offset).zip(bytes) {
                    *place = byte;
                }
            }
        }
        if let Some(words) = self.trailers.get(number)
            && let Some(trailer) = data.last_chunk_mut::<TRAILER>()
        {
            for (place, word) in trailer.as_chunks_mut::<4>().0.iter_mut().zip(words) {
                *place = word.to_ne_bytes();
            }
        }
    }
}
