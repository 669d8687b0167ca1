//! Writes into copies of frames what differs from packet to packet.

use warmlane_mem::{Burst, Packet};

use super::plan::{FieldPlan, MAXIMUM_CHECKSUMS, Map, Order, Plan, Shape, StreamPlan, StreamState};
use super::random::WyRand;
use super::signature::{self, First, Time};

/// What the signatures of a burst have in common.
#[derive(Clone, Copy)]
pub(crate) struct Stamp {
    trial: u8,
    time: Time,
}

impl Stamp {
    #[inline(always)]
    pub(crate) const fn new(trial: u8, now: u64) -> Self {
        Self { trial, time: Time::new(now) }
    }
}

/// Writes into packets that hold the stream's frames in their order.
#[inline(always)]
pub(crate) fn stream(
    packets: &mut [Packet],
    stream: &StreamPlan,
    state: &mut StreamState,
    random: &mut WyRand,
    stamp: Stamp,
) {
    let number = First::new(0, stamp.trial);
    if let ([shape], [field]) = (&*stream.shapes, &*stream.fields)
        && field.bytes == 4
        && stream.signed
        && let Map::Steps { first, step, count } = field.values.map
    {
        // One 32-bit word, one size: what a benchmark of lookups sends, and worth its own loop.
        let covers: [bool; MAXIMUM_CHECKSUMS] = field.coverage.map(|coverage| coverage == 1);
        let covered = covers.iter().take_while(|covers| **covers).count();
        if covered == stream.checksums.len() && covered <= 2 {
            let (first, step) = (first as u32, step as u32);
            let steps = |number: u64| first.wrapping_add((number as u32).wrapping_mul(step));
            let one = OneWord { stream, shape, field };
            match field.values.order {
                Order::Uniform => {
                    let mut local = random.clone();
                    one.write(packets, state, number, stamp, || steps(local.below(count)));
                    *random = local;
                    return;
                }
                Order::Turn => {
                    let mut turn = state.turns[0];
                    let next = || {
                        let this = turn;
                        turn = if this + 1 >= count { 0 } else { this + 1 };
                        steps(this)
                    };
                    one.write(packets, state, number, stamp, next);
                    state.turns[0] = turn;
                    return;
                }
                Order::Zipf(_) => {}
            }
        }
    }
    for packet in packets {
        let Some(shape) = stream.shapes.get(state.shape) else { return };
        state.shape = if state.shape + 1 == stream.shapes.len() { 0 } else { state.shape + 1 };
        packet_of(packet.data_mut(), stream, shape, state, random, number, stamp);
    }
}

/// Copies the frames of the streams whose turn it is into the packets, which are empty, and writes into them. Returns
/// the bytes.
#[inline]
pub(crate) fn turns(
    burst: &mut Burst,
    plan: &Plan,
    states: &mut [StreamState],
    turn: &mut usize,
    random: &mut WyRand,
    stamp: Stamp,
) -> u64 {
    let mut bytes = 0;
    for packet in burst.iter_mut() {
        let Some(&number) = plan.schedule.get(*turn) else { return bytes };
        *turn = if *turn + 1 == plan.schedule.len() { 0 } else { *turn + 1 };
        let (Some(stream), Some(state)) =
            (plan.streams.get(usize::from(number)), states.get_mut(usize::from(number)))
        else {
            return bytes;
        };
        let Some(shape) = stream.shapes.get(state.shape) else { return bytes };
        state.shape = if state.shape + 1 == stream.shapes.len() { 0 } else { state.shape + 1 };
        if let Some((lines, length)) = plan.frames.get(shape.frame as usize) {
            // Whoever made the plan has checked that its frames fit the pool's buffers.
            let _ = packet.fill_lines(lines, length);
        }
        bytes += u64::from(shape.length);
        let first = First::new(number, stamp.trial);
        packet_of(packet.data_mut(), stream, shape, state, random, first, stamp);
    }
    bytes
}

#[inline(always)]
fn packet_of(
    data: &mut [u8],
    stream: &StreamPlan,
    shape: &Shape,
    state: &mut StreamState,
    random: &mut WyRand,
    first: First,
    stamp: Stamp,
) {
    let mut sums = shape.bases.map(u32::from);
    for (field, turn) in stream.fields.iter().zip(state.turns.iter_mut()) {
        let value = field.values.next(turn, random) << field.shift;
        store_word(data, field, value | field.rest);
        let words = folded(value);
        for (sum, coverage) in sums.iter_mut().zip(field.coverage) {
            match coverage {
                1 => *sum += words,
                -1 => *sum += 0xffff - words,
                _ => {}
            }
        }
    }
    for (checksum, sum) in stream.checksums.iter().zip(sums) {
        let value = finished(sum, zero(checksum.is_udp));
        store(data, checksum.offset, value.to_be_bytes());
    }
    if stream.signed {
        sign(data, first.with(state.sequence), stamp);
    }
    state.sequence += 1;
}

/// The loop for one varied word and frames of one size.
struct OneWord<'a> {
    stream: &'a StreamPlan,
    shape: &'a Shape,
    field: &'a FieldPlan,
}

impl OneWord<'_> {
    #[inline(always)]
    fn write(
        &self,
        packets: &mut [Packet],
        state: &mut StreamState,
        number: First,
        stamp: Stamp,
        next: impl FnMut() -> u32,
    ) {
        match *self.stream.checksums {
            [one, two] => self.write_by(packets, state, number, stamp, next, [one, two]),
            [one] => self.write_by(packets, state, number, stamp, next, [one]),
            _ => self.write_by(packets, state, number, stamp, next, []),
        }
    }

    #[inline(always)]
    fn write_by<const N: usize>(
        &self,
        packets: &mut [Packet],
        state: &mut StreamState,
        number: First,
        stamp: Stamp,
        mut next: impl FnMut() -> u32,
        checksums: [super::plan::ChecksumPlan; N],
    ) {
        let (offset, shift, rest) = (self.field.offset, self.field.shift, self.field.rest as u32);
        let zeros = checksums.map(|checksum| zero(checksum.is_udp));
        let mut sequence = state.sequence;
        for packet in packets {
            let data = packet.data_mut();
            let value = next() << shift;
            store(data, offset, (value | rest).to_be_bytes());
            let words = (value >> 16) + (value & 0xffff);
            for (place, checksum) in checksums.iter().enumerate() {
                let sum = u32::from(self.shape.bases[place]) + words;
                store(data, checksum.offset, finished(sum, zeros[place]).to_be_bytes());
            }
            sign(data, number.with(sequence), stamp);
            sequence += 1;
        }
        state.sequence = sequence;
    }
}

/// Writes the signature at the frame's end.
#[inline(always)]
fn sign(data: &mut [u8], first: First, stamp: Stamp) {
    if let Some(end) = data.last_chunk_mut::<{ signature::LENGTH }>() {
        let second = first.second(stamp.time);
        *end = (u128::from(first.0) << 64 | u128::from(second)).to_be_bytes();
    }
}

#[inline(always)]
fn store<const N: usize>(data: &mut [u8], offset: u32, bytes: [u8; N]) {
    let offset = offset as usize;
    if let Some(place) = data.get_mut(offset..offset + N) {
        place.copy_from_slice(&bytes);
    }
}

#[inline(always)]
fn store_word(data: &mut [u8], field: &FieldPlan, word: u64) {
    match field.bytes {
        2 => store(data, field.offset, (word as u16).to_be_bytes()),
        4 => store(data, field.offset, (word as u32).to_be_bytes()),
        _ => store(data, field.offset, word.to_be_bytes()),
    }
}

/// The ones' complement sum of a word's four 16-bit words.
#[inline(always)]
const fn folded(value: u64) -> u32 {
    let halves = (value >> 16 & 0x0000_ffff_0000_ffff) + (value & 0x0000_ffff_0000_ffff);
    let sum = ((halves >> 32) + (halves & 0xffff_ffff)) as u32;
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum & 0xffff) + (sum >> 16)
}

/// How a checksum of zero is sent: as ones by UDP, where zero says that there is none (RFC 768).
#[inline(always)]
const fn zero(is_udp: bool) -> u16 {
    if is_udp { 0xffff } else { 0 }
}

/// The checksum field of a sum: RFC 1624 equation 3, HC' = ~(~HC + ~m + m').
#[inline(always)]
const fn finished(sum: u32, zero: u16) -> u16 {
    // Adding the halves crosswise leaves the folded sum, carry included, in the upper one.
    let checksum = !((sum.wrapping_add(sum.rotate_left(16))) >> 16) as u16;
    if checksum == 0 { zero } else { checksum }
}
