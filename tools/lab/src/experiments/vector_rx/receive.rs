//! The driver's receiving part: from descriptors to headers, one by one and eight at a time.

use super::{BURST, RING, WIDTH};
use crate::error::LabError;
use crate::experiments::lines::lines;
use warmlane_sys::pages::TableMemory;
use warmlane_sys::vector::{self, Vector, Work, ZERO};

/// Sixteen bytes, which one vector instruction loads, shuffles or stores.
pub(super) type Quarter = [u8; 16];
/// A line with what the data path must know of a packet: what every packet starts with, what the card said, and the rest.
pub(super) type Header = [Quarter; 4];

/// In a descriptor: flags, 4 bytes; packet type, 2; length, 2; hash, 4; VLAN tag, 2; a spare. As the card reads it: a
/// spare, 8 bytes; the buffer's address, 8.
type Descriptor = Quarter;
/// The card is done with a descriptor.
const DONE: u8 = 1;
/// From a descriptor to the second quarter of a header: type as 4 bytes, length as 4, hash, VLAN tag and length again as 2.
const ORDER: Quarter = [4, 5, ZERO, ZERO, 6, 7, ZERO, ZERO, 8, 9, 10, 11, 12, 13, 6, 7];
/// What each packet starts with: offset of the data, one reference, one segment, the port; no flags.
const START: Quarter = 0x0003_0001_0001_0080_u128.to_le_bytes();
/// From two addresses to the descriptors of both.
const POST: [Quarter; 2] = [
    [ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, 0, 1, 2, 3, 4, 5, 6, 7],
    [ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, 8, 9, 10, 11, 12, 13, 14, 15],
];

/// Where a buffer lies, as the card is told.
#[inline(always)]
pub(super) const fn address(buffer: usize) -> u64 {
    buffer as u64 * 64
}

pub(super) struct Driver {
    ring: Vec<Descriptor>,
    pub(super) headers: TableMemory<Header>,
    /// The buffer that each descriptor was given.
    posted: Vec<u32>,
    /// Buffers that come after one another, `buffers` of them.
    buffers: usize,
    next_buffer: usize,
    next: usize,
    received: [u32; BURST],
    by_vector: bool,
    sequence: u32,
}

impl Driver {
    pub(super) fn new(buffers: usize, by_vector: bool) -> Result<Self, LabError> {
        Ok(Self {
            ring: vec![[0; 16]; RING],
            headers: lines(buffers)?,
            posted: (0..RING).map(|index| (index % buffers) as u32).collect(),
            buffers,
            next_buffer: RING % buffers,
            next: 0,
            received: [0; BURST],
            by_vector,
            sequence: 0,
        })
    }

    /// The card's part: so many packets have come, after those that the driver has taken.
    pub(super) fn deliver(&mut self, count: usize) {
        for number in 0..count {
            let descriptor = &mut self.ring[(self.next + number) % RING];
            self.sequence = self.sequence.wrapping_add(1);
            let length = (60 + self.sequence % 1_400) as u16;
            descriptor[..4].copy_from_slice(&[DONE, 0, 0, 0]);
            descriptor[4..6].copy_from_slice(&0x0111_u16.to_le_bytes());
            descriptor[6..8].copy_from_slice(&length.to_le_bytes());
            descriptor[8..12].copy_from_slice(&self.sequence.to_le_bytes());
            descriptor[12..14].copy_from_slice(&7_u16.to_le_bytes());
        }
    }

    /// The driver's part: at most [`BURST`] packets, as many as lie before the ring's end.
    #[inline(never)]
    pub(super) fn receive(&mut self) -> &[u32] {
        let end = (self.next + BURST).min(RING);
        let part = Part {
            ring: &mut self.ring[self.next..end],
            posted: &mut self.posted[self.next..end],
            headers: &mut self.headers,
            received: &mut self.received,
            next_buffer: self.next_buffer,
            buffers: self.buffers,
        };
        let (count, next_buffer) = if self.by_vector { vector::run(part) } else { part.one_by_one(0) };
        self.next_buffer = next_buffer;
        self.next = (self.next + count) % RING;
        &self.received[..count]
    }
}

/// What the driver works on.
struct Part<'a> {
    ring: &'a mut [Descriptor],
    posted: &'a mut [u32],
    headers: &'a mut [Header],
    received: &'a mut [u32; BURST],
    next_buffer: usize,
    buffers: usize,
}

impl Part<'_> {
    /// Descriptor by descriptor, field by field, after those that are taken already; returns how many are taken, and the buffer
    /// that comes next.
    #[inline(always)]
    fn one_by_one(mut self, taken: usize) -> (usize, usize) {
        let mut count = taken;
        let slots = self.ring[taken..].iter_mut().zip(&mut self.posted[taken..]);
        for ((descriptor, posted), received) in slots.zip(&mut self.received[taken..]) {
            if descriptor[0] & DONE == 0 {
                break;
            }
            let field =
                |offset: usize| u64::from(u16::from_le_bytes([descriptor[offset], descriptor[offset + 1]]));
            let (low, high) =
                (field(4) | field(6) << 32, field(8) | field(10) << 16 | field(12) << 32 | field(6) << 48);
            let header = &mut self.headers[*posted as usize];
            header[0] = START;
            header[1] = (u128::from(high) << 64 | u128::from(low)).to_le_bytes();
            *received = *posted;
            *posted = self.next_buffer as u32;
            // Done no more.
            *descriptor = (u128::from(address(self.next_buffer)) << 64).to_le_bytes();
            self.next_buffer = after(self.next_buffer, 1, self.buffers);
            count += 1;
        }
        (count, self.next_buffer)
    }
}

/// The buffer that comes so many after another; the first one follows the last.
#[inline(always)]
const fn after(buffer: usize, count: usize, buffers: usize) -> usize {
    if buffer + count == buffers { 0 } else { buffer + count }
}

impl Work for Part<'_> {
    type Output = (usize, usize);

    /// Nothing here takes a byte out of a descriptor that is shuffled as well: the compiler would keep such an array as
    /// sixteen bytes and put each back into the vector by an instruction of its own, which cost more than all fields one by one.
    #[inline(always)]
    fn run<V: Vector>(mut self, vector: V) -> (usize, usize) {
        let mut count = 0;
        let slots = self.ring.as_chunks_mut::<WIDTH>().0.iter_mut();
        let slots = slots.zip(self.posted.as_chunks_mut::<WIDTH>().0);
        for ((ring, posted), received) in slots.zip(self.received.as_chunks_mut::<WIDTH>().0) {
            let done = ring.iter().fold(DONE, |done, descriptor| done & descriptor[0]);
            if done == 0 || self.next_buffer + WIDTH > self.buffers {
                break;
            }
            for (descriptor, buffer) in ring.iter().zip(posted.iter()) {
                let header = &mut self.headers[*buffer as usize];
                header[0] = START;
                header[1] = vector.shuffle(*descriptor, ORDER);
            }
            *received = *posted;
            for (number, buffer) in posted.iter_mut().enumerate() {
                *buffer = (self.next_buffer + number) as u32;
            }
            for (number, descriptors) in ring.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                let first = self.next_buffer + 2 * number;
                let both = u128::from(address(first + 1)) << 64 | u128::from(address(first));
                let [even, odd] = POST;
                let both = both.to_le_bytes();
                *descriptors = [vector.shuffle(both, even), vector.shuffle(both, odd)];
            }
            self.next_buffer = after(self.next_buffer, WIDTH, self.buffers);
            count += WIDTH;
        }
        self.one_by_one(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All deliveries that the ring's end and the buffers' end cut in other ways, and all levels.
    #[test]
    fn both_ways_receive_the_same() {
        for buffers in [256, 1_003] {
            let mut drivers = [false, true].map(|by_vector| Driver::new(buffers, by_vector).unwrap());
            for count in [32, 5, 27, 4, 1, 0, 31, 28, 8, 24, 9, 16].repeat(40) {
                let before = drivers[0].next;
                let received = drivers.each_mut().map(|driver| {
                    driver.deliver(count);
                    let mut received = driver.receive().to_vec();
                    // What lies behind the ring's end comes with the next burst.
                    received.extend_from_slice(driver.receive());
                    received
                });
                let [scalar, vector] = &drivers;
                assert_eq!((received[0].len(), scalar.next), (count, (before + count) % RING));
                assert_eq!(received[0], received[1]);
                for &buffer in &received[0] {
                    assert_eq!(scalar.headers[buffer as usize], vector.headers[buffer as usize]);
                }
                if let Some(&last) = received[0].last() {
                    let header = scalar.headers[last as usize];
                    let length = u128::from(60 + scalar.sequence % 1_400);
                    let known =
                        length << 112 | 7 << 96 | u128::from(scalar.sequence) << 64 | length << 32 | 0x0111;
                    assert_eq!(header, [START, known.to_le_bytes(), [0; 16], [0; 16]]);
                }
                assert!(scalar.ring == vector.ring && scalar.posted == vector.posted);
                assert_eq!(scalar.next_buffer, vector.next_buffer);
            }
        }
    }

    #[test]
    fn a_posted_descriptor_holds_its_buffer_s_address() {
        for by_vector in [false, true] {
            let mut driver = Driver::new(256, by_vector).unwrap();
            driver.deliver(RING);
            while !driver.receive().is_empty() {}
            for (descriptor, buffer) in driver.ring.iter().zip(&driver.posted) {
                assert_eq!(u128::from_le_bytes(*descriptor), u128::from(address(*buffer as usize)) << 64);
            }
        }
    }
}
