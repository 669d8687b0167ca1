//! From a network card's descriptors to buffer headers, one by one and eight at a time.

use super::lines::lines;
use super::scalar_and_vector::compared;
use crate::error::LabError;
use crate::experiment::Experiment;
use crate::measure::Measure;
use crate::record::{Claim, Findings};
use crate::setting::{Lanes, Setting};
use std::hint::black_box;
use std::sync::atomic::{Ordering, fence};
use warmlane_sys::clock;
use warmlane_sys::pages::TableMemory;
use warmlane_sys::vector::{self, Vector, Work, ZERO};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "vector-rx",
    question: "What does it cost to make buffer headers of a network card's descriptors, one by one and with vector instructions?",
    claim: Some(Claim {
        source: "Intel's talk on DPDK's performance at the DPDK summit, San Francisco 2014",
        says: "packet input with vector instructions, four descriptors at a time, their flags counted afterwards, brings a packet \
               down to 54 cycles, receiving and sending and the forwarding between included",
    }),
    method: "A ring of 256 descriptors of 16 bytes, laid out as a card's write-back format: flags, packet type, hash, length, VLAN tag. The lab \
             plays the card, outside the time that counts: it writes all descriptors. Then the driver's part is timed, 32 packets at a time: read \
             descriptors until one is not done, write length, type, VLAN tag and hash into the packet's header together with the fields that every \
             packet starts with, and post a new buffer in the descriptor. One way goes descriptor by descriptor. The other looks whether eight are \
             done, shuffles each straight from the ring into its header's layout, two stores of 16 bytes a header, and posts eight new buffers by \
             shuffles, too; where fewer are done it goes on one by one. Buffers come in order from a set whose headers \
             the first-level cache holds, or the last-level cache. The lab has no card: what its writes into memory cost is not in it.",
    steps: None,
    run,
};

const RING: usize = 256;
/// Packets that the driver receives at once.
const BURST: usize = 32;
/// Rings in a unit of work.
const REPEAT: usize = 12;
/// Descriptors that the vector way takes at once.
const WIDTH: usize = 8;
/// Buffers: their headers are 16 KiB, and 2 MiB.
const BUFFERS: [(&str, usize); 2] = [("first level", 256), ("last level", 32_768)];

/// Sixteen bytes, which one vector instruction loads, shuffles or stores.
type Quarter = [u8; 16];
/// A line with what the data path must know of a packet: what every packet starts with, what the card said, and the rest.
type Header = [Quarter; 4];

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
const fn address(buffer: usize) -> u64 {
    buffer as u64 * 64
}

struct Driver {
    ring: Vec<Descriptor>,
    headers: TableMemory<Header>,
    /// The buffer that each descriptor was given.
    posted: Vec<u32>,
    /// Buffers that come after one another, `buffers` of them.
    buffers: usize,
    next_buffer: usize,
    next: usize,
    received: [u32; BURST],
    by_vector: bool,
    sequence: u32,
    counted: u64,
}

impl Driver {
    fn new(buffers: usize, by_vector: bool) -> Result<Self, LabError> {
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
            counted: 0,
        })
    }

    /// The card's part: so many packets have come, after those that the driver has taken.
    fn deliver(&mut self, count: usize) {
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
    fn receive(&mut self) -> &[u32] {
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

impl Measure for Driver {
    fn work(&mut self) -> u64 {
        let mut packets = 0;
        for _ in 0..REPEAT {
            self.deliver(RING);
            // A card's writes are long done when the driver reads; ours must be, or a wide load would wait for narrow stores.
            fence(Ordering::SeqCst);
            let begin = clock::cycles_ordered();
            for _ in 0..RING / BURST {
                packets += black_box(self.receive()).len();
            }
            self.counted += clock::cycles_ordered() - begin;
        }
        packets as u64
    }

    fn begin(&mut self) {
        self.counted = 0;
    }

    fn counted_cycles(&self) -> Option<u64> {
        Some(self.counted)
    }
}

fn run(setting: &Setting, progress: &mut dyn FnMut(&str)) -> Result<Findings, LabError> {
    let mut rows = Vec::new();
    for (name, buffers) in BUFFERS {
        progress(name);
        let (scalar, vector) = (Driver::new(buffers, false)?, Driver::new(buffers, true)?);
        let medians = setting.take_turns(Lanes::One, &mut [Box::new(scalar), Box::new(vector)])?.medians;
        rows.push((name, buffers, medians[0], medians[1]));
    }
    Ok(findings(&rows))
}

fn findings(rows: &[(&str, usize, f64, f64)]) -> Findings {
    let said: Vec<String> = rows
        .iter()
        .map(|(name, _, scalar, vector)| {
            format!("{vector:.1} cycles a packet instead of {scalar:.1} with headers in the {name} cache ({:.2} times)", scalar / vector)
        })
        .collect();
    let verdict = format!(
        "With {} instructions, receiving takes {}. The claim's 54 cycles are those of a whole forwarder with a card on Sandy Bridge (sending, lookup \
         and the card's traffic included), so that these, which are the driver's receiving part alone, can't be set against it; what the whole costs \
         here is `l3-forward` on the first page.",
        vector::level(),
        said.join(" and ")
    );
    compared(
        "headers in | buffers | one by one [cycles/packet] | vector [cycles/packet] | gain [%]",
        ["From descriptors to headers", "cache that holds the headers"],
        rows,
        verdict,
    )
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

    #[test]
    fn there_is_a_row_for_each_combination() {
        let findings = run(&Setting::tiny(), &mut |_| ()).unwrap();
        findings.assert_rows(BUFFERS.len());
    }
}
