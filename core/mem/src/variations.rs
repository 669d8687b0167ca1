//! Copies of one frame that differ by a few numbers, as a generator sends: a copy and what is its own are written at once.

use crate::packet::{LINE_BYTES, Line, Packet};

/// In [`Places::order`]: a byte of the frame. Vectors write zero for it.
const KEPT: u8 = 0x80;

/// In [`Places::offsets`]: this number isn't used.
const UNUSED: u8 = u8::MAX;

/// Bytes of a number.
const NUMBER: usize = size_of::<u16>();

/// Where a copy's own four numbers go in the frame's first line.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// The offset of each number, or [`UNUSED`].
    offsets: [u8; 4],
    /// For each byte of the line which byte of the numbers it is, counted from the lowest, or [`KEPT`].
    pub(crate) order: Line,
}

impl Places {
    /// Each number goes to this offset in the frame, in network order, or nowhere. Where two overlap, the later one counts. `None` if one isn't in the first
    /// [`LINE_BYTES`] bytes as a whole.
    pub fn new(offsets: [Option<usize>; 4]) -> Option<Self> {
        let mut order = Line([KEPT; LINE_BYTES]);
        let mut places = [UNUSED; 4];
        for (number, (place, offset)) in places.iter_mut().zip(offsets).enumerate() {
            let Some(offset) = offset else { continue };
            let bytes = order.0.get_mut(offset..offset.checked_add(NUMBER)?)?;
            for (byte, which) in bytes.iter_mut().rev().zip(NUMBER * number..) {
                *byte = which as u8;
            }
            *place = offset as u8;
        }
        Some(Self { offsets: places, order })
    }

    /// What is written: bytes with their offset.
    pub(crate) fn written(self, [first, second]: [u32; 2]) -> impl Iterator<Item = (usize, [u8; NUMBER])> {
        let numbers = [first as u16, (first >> 16) as u16, second as u16, (second >> 16) as u16];
        let used = self.offsets.into_iter().zip(numbers).filter(|(offset, _)| *offset != UNUSED);
        used.map(|(offset, number)| (offset.into(), number.to_be_bytes()))
    }
}

/// By what copies of a frame differ.
#[derive(Clone, Copy, Debug)]
pub struct Variations<'a> {
    /// Where each copy's own numbers go.
    pub places: &'a Places,
    /// Each copy's own four numbers of 16 bits: the lower and the upper half of the first word, and those of the second.
    pub numbers: &'a [[u32; 2]],
    /// What each copy ends with, as it lies in memory; empty if that is the same in all. Left out of a frame that is shorter.
    pub ends: &'a [[u32; 4]],
}

impl Variations<'_> {
    /// How many copies there can be.
    pub(crate) fn len(&self) -> usize {
        if self.ends.is_empty() { self.numbers.len() } else { self.numbers.len().min(self.ends.len()) }
    }

    /// Writes what is copy number `number`'s own into a copy.
    pub(crate) fn write(&self, number: usize, packet: &mut Packet) {
        let data = packet.data_mut();
        if let Some(numbers) = self.numbers.get(number) {
            for (offset, bytes) in self.places.written(*numbers) {
                if let Some(place) = data.get_mut(offset..offset + NUMBER) {
                    place.copy_from_slice(&bytes);
                }
            }
        }
        if let Some(words) = self.ends.get(number)
            && let Some(end) = data.last_chunk_mut::<16>()
        {
            let (words_of_end, _) = end.as_chunks_mut::<4>();
            for (place, word) in words_of_end.iter_mut().zip(words) {
                *place = word.to_ne_bytes();
            }
        }
    }
}
