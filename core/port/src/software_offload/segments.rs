//! A packet that is cut into segments.

use std::ops::Range;

use warmlane_counters::{DropCounters, Reason};
use warmlane_mem::{Burst, Checksum, Packet, PacketReader, Pool, SegmentationKind};
use warmlane_wire::checksum::Sum;
use warmlane_wire::segment::{Cut, MAXIMUM_HEADERS, SuperFrame, Transport, Tunnel};

use crate::watched::CountDropped as _;

/// A packet that is being cut: gives out its segments one by one, each a packet of its own with right checksums.
pub struct Segments {
    /// From the next segment's payload on.
    packet: PacketReader,
    /// The packet's beginning, with all headers.
    front: [u8; MAXIMUM_HEADERS],
    plan: SuperFrame,
    next: usize,
    pool: Pool,
}

impl Segments {
    /// Begins to cut a packet by its [segmentation](Packet::segmentation).
    ///
    /// # Errors
    /// The packet, if there is no such segmentation, or if its headers aren't what that says.
    pub fn new(packet: Packet) -> Result<Self, Packet> {
        let mut front = [0; MAXIMUM_HEADERS];
        let count = packet.copy_to(&mut front);
        let plan = plan(&packet, &front[..count]);
        match plan.zip(packet.own_pool()) {
            Some((plan, pool)) => {
                let mut packet = PacketReader::new(packet);
                packet.skip(plan.headers());
                Ok(Self { packet, front, plan, next: 0, pool })
            }
            None => Err(packet),
        }
    }

    /// How many segments there are still to come.
    pub fn remaining(&self) -> usize {
        self.plan.count() - self.next
    }

    /// Counts the segments that are still to come as dropped. Whoever captures drops is shown the packet that they are in, once.
    pub fn drop_rest<R: Reason>(&self, drops: &DropCounters<R>, reason: R) {
        if let Some(others) = self.remaining().checked_sub(1) {
            drops.count(reason, others as u64);
            drops.count_packet(reason, self.packet.packet());
        }
    }

    /// Makes the next segments, in buffers of the packet's own pool: as many as `burst` has space for, unless there are fewer, or not
    /// enough buffers. Returns how many.
    pub fn make(&mut self, burst: &mut Burst) -> usize {
        let before = burst.len();
        if self.plan.headers() + self.plan.payload(0).len() > self.pool.data_size() {
            while burst.space() > 0
                && let Some(segment) = self.make_chain()
            {
                // There is space.
                drop(burst.push(segment));
            }
            return burst.len() - before;
        }
        self.pool.take_burst(burst, self.remaining());
        for number in before..burst.len() {
            if !self.make_in(&mut burst[number]) {
                burst.truncate(number);
            }
        }
        burst.len() - before
    }

    /// Makes the next segment. `None` if there are not enough buffers, or if there is none left.
    pub fn make_next(&mut self) -> Option<Packet> {
        let mut burst = Burst::with_limit(1);
        self.make(&mut burst);
        burst.pop()
    }

    /// Makes the next segment in one buffer; says whether it fits.
    fn make_in(&mut self, segment: &mut Packet) -> bool {
        let length = self.plan.payload(self.next).len();
        let Ok(bytes) = segment.append(self.plan.headers() + length) else { return false };
        let (headers, mut rest) = bytes.split_at_mut(self.plan.headers());
        let mut sum = Sum::new();
        for piece in self.packet.peek(length) {
            let (now, later) = std::mem::take(&mut rest).split_at_mut(piece.len());
            sum = sum.copied(now, piece);
            rest = later;
        }
        self.plan.write_headers(&self.front, self.next, sum, headers);
        self.finish(segment, length);
        true
    }

    /// Makes the next segment in as many buffers as it takes.
    fn make_chain(&mut self) -> Option<Packet> {
        if self.remaining() == 0 {
            return None;
        }
        let length = self.plan.payload(self.next).len();
        let sum = self.packet.peek(length).fold(Sum::new(), Sum::bytes);
        let mut headers = [0; MAXIMUM_HEADERS];
        let headers = self.plan.write_headers(&self.front, self.next, sum, &mut headers);
        let mut segment = gather(&self.pool, std::iter::once(headers).chain(self.packet.peek(length)))?;
        self.finish(&mut segment, length);
        Some(segment)
    }

    /// Goes on behind a segment with `length` bytes of payload.
    fn finish(&mut self, segment: &mut Packet, length: usize) {
        segment.copy_metadata(self.packet.packet());
        segment.set_segmentation(None);
        segment.set_checksum(Checksum::Good);
        self.packet.skip(length);
        self.next += 1;
    }
}

/// How a packet that begins with `front` is cut; `None` if it is not, or can't be.
fn plan(packet: &Packet, front: &[u8]) -> Option<SuperFrame> {
    let segmentation = packet.segmentation()?;
    let transport = match segmentation.kind {
        SegmentationKind::Tcp4 | SegmentationKind::Tcp6 => Transport::Tcp,
        SegmentationKind::Udp => Transport::Udp,
    };
    let checksum_start = match packet.checksum() {
        Checksum::Partial { start, .. } => Some(start),
        _ => None,
    };
    let layers = packet.layer_offsets();
    let tunnel = (layers.inner_l3 > 0).then(|| Tunnel {
        network: layers.l3.into(),
        transport: layers.l4.into(),
        inside: layers.inner_l3.into(),
    });
    let cut = Cut { transport, size: segmentation.size, checksum_start, tunnel };
    SuperFrame::parse(front, packet.packet_length(), cut).ok()
}

/// The pieces of a packet's data that lie in a range of it, in bytes from its start, over all its buffers. None is empty.
pub fn pieces(packet: &Packet, range: Range<usize>) -> impl Iterator<Item = &[u8]> {
    let mut start = 0;
    packet.segment_data().filter_map(move |data| {
        let (from, to) = (range.start.saturating_sub(start), range.end.saturating_sub(start));
        start += data.len();
        data.get(from..to.min(data.len())).filter(|piece| !piece.is_empty())
    })
}

/// Copies pieces, one behind the other, into as few buffers as they fit. `None` if the pool has not that many, or if they
/// would be more than 255.
fn gather<'a>(pool: &Pool, pieces: impl Iterator<Item = &'a [u8]>) -> Option<Packet> {
    let mut whole: Option<Packet> = None;
    let mut last = pool.take()?;
    for mut data in pieces {
        while !data.is_empty() {
            let count = data.len().min(last.tailroom());
            let (now, later) = data.split_at(count);
            last.append(count).ok()?.copy_from_slice(now);
            data = later;
            if !data.is_empty() {
                let full = std::mem::replace(&mut last, pool.take()?);
                whole = Some(join(whole, full)?);
            }
        }
    }
    join(whole, last)
}

fn join(whole: Option<Packet>, last: Packet) -> Option<Packet> {
    let Some(mut whole) = whole else { return Some(last) };
    whole.chain(last).ok()?;
    Some(whole)
}
