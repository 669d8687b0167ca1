//! What cutting a packet for a link takes, and merging what was cut.

use super::fixture;
use crate::bench::Bench;
use crate::error::LabError;
use crate::measure::Measure;
use crate::setting::Lanes;
use std::net::Ipv4Addr;
use warmlane_mem::{Burst, Checksum, LaneCache, Packet, Pool, Segmentation, SegmentationKind};
use warmlane_port::software_offload::{Merger, Segments};
use warmlane_wire::{Frame, Ipv4Fields, MacAddress, TcpFields, TcpFlags};

pub(super) const BENCHES: &[Bench] = &[
    Bench {
        name: "gso",
        unit: "segment",
        sentence: "cut a packet of TCP over IPv4 into 16 segments with 1,448 bytes each, with right checksums, and free all",
        lanes: Lanes::One,
        prepare: |_| Ok(Box::new(Cutting::new()?)),
    },
    Bench {
        name: "gro",
        unit: "segment",
        sentence: "merge a burst of 64 segments, 16 of each of four flows in turn, whose checksums are known to be right, and free all",
        lanes: Lanes::One,
        prepare: |_| Ok(Box::new(Merging::new()?)),
    },
];

/// `peers/segments.c` has the same.
const SEGMENTS: usize = 16;
const PAYLOAD: usize = 1_448;
const FLOWS: usize = 4;
const BURST: usize = SEGMENTS * FLOWS;
/// Options of most TCP segments today: two of padding, and timestamps.
const OPTIONS: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 7];
const HEADERS: usize = 14 + 20 + 20 + OPTIONS.len();
const TRANSPORT: u16 = 34;

/// A segment of a flow, from byte `number * PAYLOAD` of it on.
fn segment(flow: usize, number: usize, payload: &[u8]) -> Result<Vec<u8>, LabError> {
    let (source, destination) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 2));
    let ipv4 = Ipv4Fields {
        // Of 0 it would be said that there is none.
        identification: number as u16 + 1,
        dont_fragment: true,
        ..Ipv4Fields::new(source, destination)
    };
    let tcp = TcpFields {
        sequence: (number * PAYLOAD) as u32,
        flags: TcpFlags::ACK,
        options: &OPTIONS,
        ..TcpFields::new(1_024 + flow as u16, 80)
    };
    let link = Frame::new().ethernet(MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2]));
    link.ipv4(ipv4).tcp(tcp).payload(payload).to_vec().map_err(LabError::setup)
}

/// The headers of a segment.
fn front(segment: &[u8]) -> [u8; HEADERS] {
    segment.first_chunk().copied().unwrap_or([0; HEADERS])
}

/// A packet is made of buffers, cut, and freed.
struct Cutting {
    pool: Pool,
    headers: [u8; HEADERS],
    /// Buffers that the packet is made of.
    parts: Burst,
    burst: Burst,
    _lane: LaneCache,
}

impl Cutting {
    fn new() -> Result<Self, LabError> {
        let (pool, lane) = fixture::pool("gso")?;
        let headers = segment(0, 0, &vec![7; SEGMENTS * PAYLOAD])?;
        let (parts, burst) = (Burst::new(), Burst::new());
        let mut cutting = Self { pool, headers: front(&headers), parts, burst, _lane: lane };
        let first = cutting.packet().ok_or_else(|| LabError::setup("there are no buffers"))?;
        let segments = Segments::new(first).map_err(|_| LabError::setup("the packet can't be cut"))?;
        if segments.remaining() != SEGMENTS {
            return Err(LabError::setup("the packet is cut into other segments"));
        }
        Ok(cutting)
    }

    /// The packet that is cut: in buffers that are full, as a TAP device fills them.
    fn packet(&mut self) -> Option<Packet> {
        let length = HEADERS + SEGMENTS * PAYLOAD;
        self.pool.take_burst(&mut self.parts, length.div_ceil(self.pool.data_size()));
        let mut left = length;
        for part in self.parts.iter_mut() {
            let count = left.min(part.tailroom());
            part.append(count).ok()?;
            left -= count;
        }
        // From behind, which takes no walk along the chain.
        let mut packet = self.parts.pop()?;
        while let Some(mut before) = self.parts.pop() {
            before.chain(packet).ok()?;
            packet = before;
        }
        packet.data_mut()[..HEADERS].copy_from_slice(&self.headers);
        packet.set_checksum(Checksum::Partial { start: TRANSPORT, offset: 16 });
        packet.set_segmentation(Some(Segmentation {
            kind: SegmentationKind::Tcp4,
            size: PAYLOAD as u16,
            congestion: false,
        }));
        Some(packet)
    }
}

impl Measure for Cutting {
    fn work(&mut self) -> u64 {
        let mut count = 0;
        for _ in 0..16 {
            let Some(Ok(mut segments)) = self.packet().map(Segments::new) else { break };
            count += segments.make(&mut self.burst) as u64;
            self.burst.clear();
        }
        count
    }
}

/// Segments are made of buffers, merged, and freed.
struct Merging {
    pool: Pool,
    headers: Vec<[u8; HEADERS]>,
    merger: Merger,
    from: Burst,
    to: Burst,
    _lane: LaneCache,
}

impl Merging {
    fn new() -> Result<Self, LabError> {
        let (pool, lane) = fixture::pool("gro")?;
        let headers = (0..BURST)
            .map(|at| Ok(front(&segment(at % FLOWS, at / FLOWS, &[7; PAYLOAD])?)))
            .collect::<Result<_, LabError>>()?;
        let (from, to) = (Burst::with_limit(BURST), Burst::with_limit(BURST));
        let mut merging = Self { pool, headers, merger: Merger::new(), from, to, _lane: lane };
        if merging.merge() != FLOWS {
            return Err(LabError::setup("segments are not merged"));
        }
        Ok(merging)
    }

    /// How many packets a burst of segments becomes.
    fn merge(&mut self) -> usize {
        self.pool.take_burst(&mut self.from, BURST);
        for (packet, headers) in self.from.iter_mut().zip(&self.headers) {
            if let Ok(bytes) = packet.append(HEADERS + PAYLOAD) {
                bytes[..HEADERS].copy_from_slice(headers);
            }
            packet.set_checksum(Checksum::Good);
        }
        self.merger.merge(&mut self.from, &mut self.to);
        let count = self.to.len();
        self.to.clear();
        count
    }
}

impl Measure for Merging {
    fn work(&mut self) -> u64 {
        (0..16).map(|_| if self.merge() == FLOWS { BURST as u64 } else { 0 }).sum()
    }
}
