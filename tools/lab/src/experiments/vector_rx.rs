//! From a network card's descriptors to buffer headers, one by one and four at a time.

use super::lines::lines;
use crate::bench::Measure;
use crate::experiment::{Claim, Column, Experiment, ExperimentError, Findings, Lanes, Setting};
use crate::plot::{Axis, Figure, Marks};
use std::sync::atomic::{Ordering, fence};
use warmlane_sys::clock;
use warmlane_sys::pages::TableMemory;
use warmlane_sys::simd;
use warmlane_sys::vector::{self, Vector, Work, ZERO};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "vector-rx",
    question: "What does it cost to make buffer headers of a network card's descriptors, one by one and with vector instructions?",
    claim: Some(Claim {
        source: "Intel's talk on DPDK's performance at the DPDK summit, San Francisco 2014",
        says: "packet input with vector instructions, four descriptors at a time, their flags counted afterwards, brings a packet \
               down to 54 cycles, receiving and sending and the forwarding between included",
    }),
    method: "A ring of 1,024 descriptors of 16 bytes, laid out as a card's write-back format: flags, packet type, hash, length, VLAN tag. The lab \
             plays the card, outside the time that counts: it writes the descriptors of 32 packets. Then the driver's part is timed: read \
             descriptors until one is not done, write length, type, VLAN tag and hash into the packet's header together with the fields that every \
             packet starts with, and post a new buffer in the descriptor. One way goes descriptor by descriptor, the other takes four at a time, \
             shuffles each into its header's layout and counts afterwards how many were done. Buffers come in order from a set whose headers \
             the first-level cache holds, or the last-level cache. The lab has no card: what its writes into memory cost is not in it.",
    run,
};

const RING: usize = 1_024;
/// Descriptors that the card writes at once.
const BURST: usize = 32;
/// Bursts in a unit of work.
const REPEAT: usize = 100;
/// Buffers: their headers are 16 KiB, and 2 MiB.
const BUFFERS: [(&str, usize); 2] = [("first level", 256), ("last level", 32_768)];

/// A line with what the data path must know of a packet.
type Header = [u64; 8];

/// In a descriptor: flags, 4 bytes; packet type, 2; length, 2; hash, 4; VLAN tag, 2; a spare.
type Descriptor = [u8; 16];
/// The card is done with a descriptor.
const DONE: u8 = 1;
/// From a descriptor to the second sixteen bytes of a header: type as 4 bytes, length as 4, hash, VLAN tag and length again as 2.
const ORDER: [u8; 16] = [4, 5, ZERO, ZERO, 6, 7, ZERO, ZERO, 8, 9, 10, 11, 12, 13, 6, 7];
/// What each packet starts with: offset of the data, one reference, one segment, the port.
const START: u64 = 0x0003_0001_0001_0080;

struct Driver {
    ring: Vec<Descriptor>,
    headers: TableMemory<Header>,
    /// The buffer that each descriptor was given.
    posted: Vec<u32>,
    /// Buffers that come after one another, `buffers` of them.
    buffers: usize,
    next_buffer: usize,
    next: usize,
    received: Vec<u32>,
    by_vector: bool,
    sequence: u32,
    counted: u64,
}

impl Driver {
    fn new(buffers: usize, by_vector: bool) -> Result<Self, ExperimentError> {
        Ok(Self {
            ring: vec![[0; 16]; RING],
            headers: lines(buffers)?,
            posted: (0..RING).map(|place| (place % buffers) as u32).collect(),
            buffers,
            next_buffer: RING % buffers,
            next: 0,
            received: Vec::with_capacity(BURST),
            by_vector,
            sequence: 0,
            counted: 0,
        })
    }

    /// The card's part: so many packets have come. The ring's length is a multiple of them.
    fn deliver(&mut self, count: usize) {
        for descriptor in &mut self.ring[self.next..self.next + count] {
            self.sequence = self.sequence.wrapping_add(1);
            let length = (60 + self.sequence % 1_400) as u16;
            descriptor[..4].copy_from_slice(&[DONE, 0, 0, 0]);
            descriptor[4..6].copy_from_slice(&0x0111_u16.to_le_bytes());
            descriptor[6..8].copy_from_slice(&length.to_le_bytes());
            descriptor[8..12].copy_from_slice(&self.sequence.to_le_bytes());
            descriptor[12..14].copy_from_slice(&7_u16.to_le_bytes());
        }
    }

    /// The driver's part: at most [`BURST`] packets.
    #[inline(never)]
    fn receive(&mut self) -> usize {
        self.received.clear();
        let end = (self.next + BURST).min(RING);
        let part = Part {
            ring: &mut self.ring[self.next..end],
            posted: &mut self.posted[self.next..end],
            headers: &mut self.headers,
            received: &mut self.received,
            next_buffer: self.next_buffer,
            buffers: self.buffers,
        };
        self.next_buffer = if self.by_vector { vector::run(part) } else { part.one_by_one() };
        self.next = (self.next + self.received.len()) % RING;
        self.received.len()
    }
}

/// What the driver works on.
struct Part<'a> {
    ring: &'a mut [Descriptor],
    posted: &'a mut [u32],
    headers: &'a mut [Header],
    received: &'a mut Vec<u32>,
    next_buffer: usize,
    buffers: usize,
}

impl Part<'_> {
    /// Descriptor by descriptor, field by field; returns the buffer that comes next.
    fn one_by_one(mut self) -> usize {
        for place in 0..self.ring.len() {
            let descriptor = self.ring[place];
            if descriptor[0] & DONE == 0 {
                break;
            }
            let field =
                |place: usize| u64::from(u16::from_le_bytes([descriptor[place], descriptor[place + 1]]));
            let header = &mut self.headers[self.posted[place] as usize];
            header[0] = START;
            header[2] = field(4) | field(6) << 32;
            header[3] = field(8) | field(10) << 16 | field(12) << 32 | field(6) << 48;
            self.take(place);
        }
        self.next_buffer
    }

    /// Gives a descriptor a buffer.
    #[inline(always)]
    fn post(&mut self, place: usize, buffer: usize) {
        self.posted[place] = buffer as u32;
        // The address that the card reads; done no more.
        self.ring[place] = ((buffer as u128 * 64) << 64).to_le_bytes();
    }

    /// What is known of a packet, already in the header's layout.
    #[inline(always)]
    fn fill(&mut self, buffer: u32, known: [u8; 16]) {
        let known = u128::from_le_bytes(known);
        let header = &mut self.headers[buffer as usize];
        header[0] = START;
        (header[2], header[3]) = (known as u64, (known >> 64) as u64);
    }

    /// The packet leaves with its buffer, and a new one is posted.
    #[inline(always)]
    fn take(&mut self, place: usize) {
        self.received.push(self.posted[place]);
        self.post(place, self.next_buffer);
        self.next_buffer += 1;
        if self.next_buffer == self.buffers {
            self.next_buffer = 0;
        }
    }
}

impl Work for Part<'_> {
    type Output = usize;

    #[inline(always)]
    fn run<V: Vector>(mut self, vector: V) -> usize {
        for first in (0..self.ring.len()).step_by(4) {
            let (Some(&[a, b, c, d]), Some(&buffers)) =
                (self.ring[first..].first_chunk::<4>(), self.posted[first..].first_chunk::<4>())
            else {
                break;
            };
            // A descriptor that is not done leaves nonsense in a header that nobody reads yet.
            self.fill(buffers[0], vector.shuffle(a, ORDER));
            self.fill(buffers[1], vector.shuffle(b, ORDER));
            self.fill(buffers[2], vector.shuffle(c, ORDER));
            self.fill(buffers[3], vector.shuffle(d, ORDER));
            let done = (a[0] & DONE) | (b[0] & DONE) << 1 | (c[0] & DONE) << 2 | (d[0] & DONE) << 3;
            if done == 0b1111 && self.next_buffer + 4 <= self.buffers {
                self.received.extend_from_slice(&buffers);
                for place in 0..4 {
                    self.post(first + place, self.next_buffer + place);
                }
                self.next_buffer += 4;
                if self.next_buffer == self.buffers {
                    self.next_buffer = 0;
                }
                continue;
            }
            let count = done.trailing_ones() as usize;
            for place in 0..count {
                self.take(first + place);
            }
            if count < 4 {
                break;
            }
        }
        self.next_buffer
    }
}

impl Measure for Driver {
    fn work(&mut self) -> u64 {
        let mut packets = 0;
        for _ in 0..REPEAT {
            self.deliver(BURST);
            // A card's writes are long done when the driver reads; ours must be, or a wide load would wait for narrow stores.
            fence(Ordering::SeqCst);
            let begin = clock::cycles_ordered();
            packets += self.receive();
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

fn run(setting: &Setting, progress: &mut dyn FnMut(&str)) -> Result<Findings, ExperimentError> {
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
        simd::detected(),
        said.join(" and ")
    );
    Findings {
        columns: vec![
            Column::plain("headers in"),
            Column::plain("buffers"),
            Column::figures("one by one", "cycles/packet"),
            Column::figures("vector", "cycles/packet"),
            Column::figures("gain", "%"),
        ],
        rows: rows
            .iter()
            .map(|&(name, buffers, scalar, vector)| {
                vec![
                    name.into(),
                    buffers.into(),
                    scalar.into(),
                    vector.into(),
                    (100.0 * (scalar / vector - 1.0)).into(),
                ]
            })
            .collect(),
        figures: vec![Figure {
            title: "From descriptors to headers".to_owned(),
            x: Axis::linear("cache that holds the headers"),
            y: Axis::linear("cycles per packet"),
            marks: Marks::Bars {
                groups: rows.iter().map(|row| row.0.to_owned()).collect(),
                series: vec![
                    ("one by one".to_owned(), rows.iter().map(|row| row.2).collect()),
                    ("vector".to_owned(), rows.iter().map(|row| row.3).collect()),
                ],
            },
        }],
        verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn both_ways_receive_the_same() {
        let mut drivers = [false, true].map(|by_vector| Driver::new(256, by_vector).unwrap());
        for count in [32, 5, 27, 4, 1, 0, 31, 28].repeat(20) {
            for driver in &mut drivers {
                driver.deliver(count);
                assert_eq!(driver.receive(), count);
            }
            let [scalar, vector] = &drivers;
            assert_eq!(scalar.received, vector.received);
            for &buffer in &scalar.received {
                assert_eq!(scalar.headers[buffer as usize], vector.headers[buffer as usize]);
            }
            if let Some(&last) = scalar.received.last() {
                let header = scalar.headers[last as usize];
                let length = 60 + scalar.sequence % 1_400;
                assert_eq!(header[2], u64::from(length) << 32 | 0x0111);
                assert_eq!(header[3], u64::from(length) << 48 | 7 << 32 | u64::from(scalar.sequence));
            }
            assert!(scalar.ring == vector.ring && scalar.posted == vector.posted);
        }
    }

    #[test]
    fn there_is_a_row_for_each_combination() {
        let cpu = warmlane_sys::affinity::allowed_cpus().unwrap()[0];
        let setting = Setting {
            cpu,
            second_cpu: None,
            length: Duration::from_millis(1),
            rounds: 1,
            ..Setting::default()
        };
        let findings = run(&setting, &mut |_| ()).unwrap();
        assert_eq!(findings.rows.len(), BUFFERS.len());
        assert!(findings.rows.iter().all(|row| row.len() == findings.columns.len()));
    }
}
