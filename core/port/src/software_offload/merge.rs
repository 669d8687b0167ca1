//! Behind a receive queue that brings the frames of a flow one by one: merges them, as a network card with receive offload would.

use warmlane_counters::{Source, counters};
use warmlane_mem::{
    BURST_CAPACITY, Burst, Checksum, InnerChecksum, LayerOffsets, Packet, Segmentation, SegmentationKind,
};
use warmlane_wire::checksum::Sum;
use warmlane_wire::merge::{self, Around, Look, Merged, Next, Part};
use warmlane_wire::segment::Transport;

use super::pieces;
use crate::offloads::TransmitOffloads;
use crate::queue::ReceiveQueue;

/// Flows that packets can be added to at one time. Those of two flows in one place take turns, and are not merged.
const FLOWS: usize = 64;

/// Nothing to add to, or nothing added.
const NONE: u16 = u16::MAX;

/// Buffers that a merged packet has at most: 64 KiB in frames of Ethernet, and less than a chain can have.
const MOST_BUFFERS: usize = 64;

/// What merging leaves to who transmits the packet.
pub const MERGED: TransmitOffloads = TransmitOffloads::WITHOUT_TAGS;

counters! {
    /// What a merging queue has done.
    pub struct MergeCounters => MergeCountersView {
        /// Packets that were added to the one before them in their flow.
        merged: Note, "merged";
    }
}

/// Merges frames of a flow that come in one burst: TCP with data, and UDP, over IPv4 and IPv6, that follow each other without a gap. So it does
/// with those in a tunnel of VXLAN or GENEVE, whose datagrams become one.
/// None waits for frames of a later burst. Merged packets are to be cut before they leave on a wire, and cut they are the same frames
/// again: those with wrong checksums, or with anything else that would be lost, stay as they are.
pub struct Merger {
    /// What packets of a flow are added to, by its hash: a number in `open`.
    slots: [u16; FLOWS],
    open: Vec<Open>,
    /// The tunnels that these are in.
    tunnels: Vec<Around>,
    /// What was added, until it is hung behind its first packet; and what was added to that after it.
    added: Box<[Option<Packet>; BURST_CAPACITY]>,
    after: [u16; BURST_CAPACITY],
}

/// A packet that others may be added to.
#[derive(Clone, Copy)]
struct Open {
    merged: Merged,
    /// The tunnel that it is in: a number in `tunnels`, or [`NONE`].
    tunnel: u16,
    /// Bytes in front of the frame that is merged: those of the tunnel.
    inside: u8,
    /// Where it is in the burst that packets go to.
    place: u16,
    /// What was added first and last: numbers in `added`.
    first: u16,
    last: u16,
    /// Buffers of all of it.
    buffers: u16,
}

impl Default for Merger {
    fn default() -> Self {
        Self::new()
    }
}

impl Merger {
    /// One that holds nothing. It never does between bursts.
    pub fn new() -> Self {
        Self {
            slots: [NONE; FLOWS],
            open: Vec::with_capacity(BURST_CAPACITY),
            tunnels: Vec::with_capacity(BURST_CAPACITY),
            added: Box::new([const { None }; BURST_CAPACITY]),
            after: [NONE; BURST_CAPACITY],
        }
    }

    /// Moves packets to `burst`, which has space for them, and merges those of a flow. Returns how many were added to another one.
    pub fn merge(&mut self, from: &mut Burst, burst: &mut Burst) -> usize {
        if from.len() < 2 {
            from.move_to(burst);
            return 0;
        }
        for packet in from.iter() {
            packet.prefetch();
        }
        let mut count = 0;
        for packet in from.drain() {
            if let Some(packet) = self.add(packet, count, burst) {
                // There is space.
                drop(burst.push(packet));
            } else {
                count += 1;
            }
        }
        for open in &self.open {
            if open.last != NONE {
                let around = self.tunnels.get(usize::from(open.tunnel));
                finish(open, around, &mut self.added, &self.after, burst);
            }
        }
        self.open.clear();
        self.tunnels.clear();
        self.slots = [NONE; FLOWS];
        count
    }

    /// Adds a packet to the one before it in its flow, as number `number` of those that were added. Else it is the next to go to `burst`.
    #[inline]
    fn add(&mut self, packet: Packet, number: usize, burst: &Burst) -> Option<Packet> {
        let Some(flow) = merge::flow_at(packet.data()) else { return Some(self.begin(packet, burst)) };
        let slot = &mut self.slots[slot_of(flow)];
        if let Some(open) = self.open.get_mut(usize::from(*slot))
            && let Some(first) = burst.get(usize::from(open.place))
            && let Some(next) = open.takes(first, &packet, &mut self.tunnels)
        {
            let headers = usize::from(open.inside) + usize::from(open.merged.first().headers);
            open.merged.add(next);
            open.buffers += packet.segments() as u16;
            match open.last {
                NONE => open.first = number as u16,
                last => self.after[usize::from(last)] = number as u16,
            }
            (open.last, self.after[number]) = (number as u16, NONE);
            if open.merged.is_complete() {
                *slot = NONE;
            }
            let mut packet = packet;
            // They are in the first buffer, with some payload behind.
            let is_trimmed = packet.trim_front(headers);
            debug_assert!(is_trimmed.is_ok(), "headers end in the first buffer");
            self.added[number] = Some(packet);
            return None;
        }
        Some(self.begin(packet, burst))
    }

    /// Notes that others may be added to a packet that is the next to go to `burst`, or that it ends what could be added to before.
    fn begin(&mut self, packet: Packet, burst: &Burst) -> Packet {
        let (data, length) = (packet.data(), packet.packet_length());
        let around = Around::at(data, length);
        let look = match &around {
            None => Look::at(data, length),
            Some(around) => look_inside(data, length, around),
        };
        match look {
            Look::Part(part) => {
                let slot = &mut self.slots[slot_of(part.flow)];
                *slot = NONE;
                let merged = Merged::new(part);
                let is_open = !merged.is_complete() && packet.segmentation().is_none();
                if is_open && self.open.len() < BURST_CAPACITY {
                    *slot = self.open.len() as u16;
                    let (place, buffers) = (burst.len() as u16, packet.segments() as u16);
                    let (mut tunnel, mut inside) = (NONE, 0);
                    if let Some(around) = around {
                        (tunnel, inside) = (self.tunnels.len() as u16, around.inside);
                        self.tunnels.push(around);
                    }
                    self.open.push(Open { merged, tunnel, inside, place, first: NONE, last: NONE, buffers });
                }
            }
            Look::Alone(flow) => self.slots[slot_of(flow)] = NONE,
            Look::Other => {}
            Look::Unclear => self.slots = [NONE; FLOWS],
        }
        packet
    }
}

/// Looks at the frame in a tunnel: it is of the tunnel's flow, whatever it is.
fn look_inside(data: &[u8], length: usize, around: &Around) -> Look {
    let (inside, flow) = (usize::from(around.inside), merge::flow_at(data).unwrap_or(0));
    match data.get(inside..).map(|frame| Look::at(frame, length - inside)) {
        Some(Look::Part(part)) => Look::Part(part.of_tunnel(flow)),
        _ => Look::Alone(flow),
    }
}

impl Open {
    /// The packet, if it can be added. If it is the first one, the packet that it would be added to has to be right as well.
    #[inline]
    fn takes(&self, first: &Packet, packet: &Packet, tunnels: &mut [Around]) -> Option<Next> {
        if self.tunnel != NONE {
            return self.takes_inside(first, packet, tunnels.get_mut(usize::from(self.tunnel))?);
        }
        let next = self.merged.next(first.data(), packet.data(), packet.packet_length())?;
        let is_taken = self.has_room(first, packet)
            && (self.last != NONE || is_intact(first, || *self.merged.first()))
            && is_intact(packet, || self.merged.part(&next));
        is_taken.then_some(next)
    }

    /// The same in a tunnel.
    // Apart, so that frames in none pay one test for it.
    #[inline(never)]
    fn takes_inside(&self, first: &Packet, packet: &Packet, around: &mut Around) -> Option<Next> {
        let (inside, length) = (usize::from(self.inside), packet.packet_length());
        let (ours, theirs) = (first.data().get(inside..)?, packet.data().get(inside..)?);
        let next = self.merged.next(ours, theirs, length - inside)?;
        let is_taken = around.is_next(first.data(), packet.data(), length)
            && self.has_room(first, packet)
            && (self.last != NONE || is_intact_inside(first, around, self.merged.first()))
            && is_intact_inside(packet, around, &self.merged.part(&next));
        if is_taken {
            around.add();
        }
        is_taken.then_some(next)
    }

    /// Whether the packet's buffers can be hung behind the first one's.
    #[inline(always)]
    fn has_room(&self, first: &Packet, packet: &Packet) -> bool {
        usize::from(self.buffers) + packet.segments() <= MOST_BUFFERS
            && packet.segmentation().is_none()
            && first.has_same_tag(packet)
            && (packet.segments() == 1 || !packet.has_shared_data())
    }
}

/// The place of a flow. The upper bits of its hash are the better ones.
#[inline(always)]
const fn slot_of(flow: u32) -> usize {
    (flow >> (u32::BITS - FLOWS.ilog2())) as usize
}

/// Whether a packet's checksum is right, or left to be computed. Whoever cuts the whole again computes new ones: what was wrong would
/// be right then.
#[inline(always)]
fn is_intact(packet: &Packet, part: impl FnOnce() -> Part) -> bool {
    packet.checksum() == Checksum::Good || is_right(packet, part)
}

/// The same where nobody has found it right.
#[inline(never)]
fn is_right(packet: &Packet, part: impl FnOnce() -> Part) -> bool {
    match packet.checksum() {
        Checksum::Good => true,
        Checksum::Bad => false,
        // Else it is that of something inside.
        Checksum::Partial { start, .. } => usize::from(start) == usize::from(part().transport),
        Checksum::Unknown => {
            let part = part();
            part.is_intact(packet.data(), payload_sum(packet, part.headers.into()))
        }
    }
}

/// The same of a packet in a tunnel, which has two. Of one that leaves either to be computed, the sender could have left all to be cut: it is
/// not merged.
fn is_intact_inside(packet: &Packet, around: &Around, part: &Part) -> bool {
    let is_outer_known = match packet.checksum() {
        Checksum::Good => true,
        Checksum::Unknown => !around.is_checked(),
        Checksum::Bad | Checksum::Partial { .. } => return false,
    };
    let is_inner_known = match packet.inner_checksum() {
        InnerChecksum::Good => true,
        InnerChecksum::Unknown => false,
        InnerChecksum::Bad => return false,
    };
    if is_outer_known && is_inner_known {
        return true;
    }
    let inside = usize::from(around.inside);
    let Some(headers) = packet.data().get(..inside + usize::from(part.headers)) else { return false };
    let sum = payload_sum(packet, headers.len());
    (is_inner_known || part.is_intact(&headers[inside..], sum))
        && (is_outer_known || around.is_intact(headers, sum, packet.packet_length() - headers.len()))
}

/// The sum over all behind a packet's headers.
fn payload_sum(packet: &Packet, headers: usize) -> Sum {
    pieces(packet, headers..packet.packet_length()).fold(Sum::new(), Sum::bytes)
}

/// Hangs what was added behind its first packet, and makes that one's headers those of the whole.
fn finish(
    open: &Open,
    around: Option<&Around>,
    added: &mut [Option<Packet>; BURST_CAPACITY],
    after: &[u16; BURST_CAPACITY],
    burst: &mut Burst,
) {
    let Some(first) = burst.get_mut(usize::from(open.place)) else { return };
    let mut number = usize::from(open.first);
    let packets = std::iter::from_fn(|| {
        let packet = added.get_mut(number)?.take();
        number = usize::from(after[number]);
        packet
    });
    let is_chained = first.chain_all(packets);
    debug_assert!(is_chained.is_ok(), "there are few buffers, and none of them is shared");
    let part = open.merged.first();
    let kind = match (part.kind, part.is_ipv6) {
        (Transport::Udp, _) => SegmentationKind::Udp,
        (Transport::Tcp, true) => SegmentationKind::Tcp6,
        (Transport::Tcp, false) => SegmentationKind::Tcp4,
    };
    let inside = usize::from(open.inside);
    let behind = |offset: u8| inside + usize::from(offset);
    let (network, transport, headers) = (behind(part.network), behind(part.transport), behind(part.headers));
    let offset = part.kind.checksum_offset();
    open.merged.finish(first.data_mut().get_mut(inside..).unwrap_or_default());
    let mut layers = LayerOffsets {
        l3: network as u16,
        l4: transport as u16,
        payload: headers as u16,
        ..LayerOffsets::default()
    };
    if let Some(around) = around {
        let length = first.packet_length();
        around.finish(first.data_mut(), length, transport, transport + offset);
        (layers.inner_l3, layers.inner_l4) = (layers.l3, layers.l4);
        (layers.l3, layers.l4) = (around.network.into(), around.transport.into());
        first.set_inner_checksum(InnerChecksum::Unknown);
    }
    first.set_layer_offsets(layers);
    first.set_checksum(Checksum::Partial { start: transport as u16, offset: offset as u8 });
    let congestion = open.merged.is_congestion_answered();
    first.set_segmentation(Some(Segmentation { kind, size: part.length, congestion }));
}

/// Merges what `queue` receives, burst by burst.
pub fn merge_received(queue: Box<dyn ReceiveQueue>) -> Box<dyn ReceiveQueue> {
    let intake = Box::new(Burst::with_limit(BURST_CAPACITY));
    Box::new(MergedReceive { queue, merger: Merger::new(), intake, counters: MergeCounters::new() })
}

struct MergedReceive {
    queue: Box<dyn ReceiveQueue>,
    merger: Merger,
    /// What was received; empty between calls.
    intake: Box<Burst>,
    counters: MergeCounters,
}

impl ReceiveQueue for MergedReceive {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        let before = burst.len();
        if burst.space() > 0 {
            *self.intake = Burst::with_limit(burst.space());
            self.queue.receive(&mut self.intake);
            let merged = self.merger.merge(&mut self.intake, burst);
            self.counters.merged().add(merged as u64);
        }
        burst.len() - before
    }

    fn leaves(&self) -> TransmitOffloads {
        self.queue.leaves().or(MERGED)
    }

    crate::as_inner_queue!(event, status, has_passed_on, stop, counters);

    fn own_counters(&self) -> Vec<Box<dyn Source>> {
        let own: Box<dyn Source> = Box::new(self.counters.view());
        self.queue.own_counters().into_iter().chain([own]).collect()
    }
}

#[cfg(test)]
mod tests;
