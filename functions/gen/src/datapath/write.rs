//! Writes into copies of frames what differs from packet to packet.

use std::mem;

use warmlane_mem::{Burst, Packet};
use warmlane_sys::vector::{self, Vector, Work};

use super::plan::{
    ChecksumPlan, FieldPlan, MAXIMUM_CHECKSUMS, Map, Order, Plan, Shape, StreamPlan, StreamState,
};
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
        && let Map::Steps { first, step, count } = field.values.map
    {
        // One 32-bit word, one size: what a benchmark of lookups sends, and worth its own loop.
        let covers: [bool; MAXIMUM_CHECKSUMS] = field.coverage.map(|coverage| coverage == 1);
        let covered = covers.iter().take_while(|covers| **covers).count();
        if covered == stream.checksums.len() && covered <= 2 {
            let steps = Steps { first: first as u32, step: step as u32, count };
            let one = OneWord { stream, shape, field };
            match field.values.order {
                Order::Uniform => {
                    return one.write(packets, state, number, stamp, &mut Uniform { steps, random });
                }
                Order::Turn => {
                    let mut turns = Turns { steps, turn: state.turns[0] };
                    one.write(packets, state, number, stamp, &mut turns);
                    state.turns[0] = turns.turn;
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
        let mut signature = [[0; 4]];
        signature::write_all(&mut signature, first, state.sequence, stamp.time);
        sign(data, signature[0]);
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
        values: &mut impl Values,
    ) {
        if self.stream.signed {
            self.write_signed::<true>(packets, state, number, stamp, values);
        } else {
            self.write_signed::<false>(packets, state, number, stamp, values);
        }
    }

    #[inline(always)]
    fn write_signed<const SIGNED: bool>(
        &self,
        packets: &mut [Packet],
        state: &mut StreamState,
        number: First,
        stamp: Stamp,
        values: &mut impl Values,
    ) {
        match *self.stream.checksums {
            [one, two] => self.write_by::<2, SIGNED>(packets, state, number, stamp, values, [one, two]),
            [one] => self.write_by::<1, SIGNED>(packets, state, number, stamp, values, [one]),
            _ => self.write_by::<0, SIGNED>(packets, state, number, stamp, values, []),
        }
    }

    #[inline(always)]
    fn write_by<const N: usize, const SIGNED: bool>(
        &self,
        packets: &mut [Packet],
        state: &mut StreamState,
        number: First,
        stamp: Stamp,
        values: &mut impl Values,
        checksums: [ChecksumPlan; N],
    ) {
        let Self { shape, field, .. } = self;
        let sequence = &mut state.sequence;
        vector::run(Groups::<_, N, SIGNED> {
            packets,
            shape,
            field,
            sequence,
            number,
            stamp,
            values,
            checksums,
        });
    }
}

/// Numbers 0 to `count` − 1 stand for these values.
#[derive(Clone, Copy)]
struct Steps {
    first: u32,
    step: u32,
    count: u64,
}

impl Steps {
    #[inline(always)]
    const fn value(self, number: u64) -> u32 {
        self.first.wrapping_add((number as u32).wrapping_mul(self.step))
    }
}

/// What is written into one packet after the other.
trait Values {
    /// Gives at least the first `count` their values, and takes no more turns than that.
    fn fill(&mut self, values: &mut [u32; GROUP], count: usize);
}

struct Uniform<'a> {
    steps: Steps,
    random: &'a mut WyRand,
}

impl Values for Uniform<'_> {
    #[inline(always)]
    fn fill(&mut self, values: &mut [u32; GROUP], _count: usize) {
        self.random.fill((self.steps.count - 1) as u32, values);
        for value in values {
            *value = self.steps.value((*value).into());
        }
    }
}

struct Turns {
    steps: Steps,
    turn: u64,
}

impl Values for Turns {
    #[inline(always)]
    fn fill(&mut self, values: &mut [u32; GROUP], count: usize) {
        if self.turn + GROUP as u64 <= self.steps.count {
            // None comes round, so vectors do it.
            let (first, step) = (self.steps.value(self.turn), self.steps.step);
            for (place, value) in values.iter_mut().enumerate() {
                *value = first.wrapping_add((place as u32).wrapping_mul(step));
            }
            let next = self.turn + count as u64;
            self.turn = if next == self.steps.count { 0 } else { next };
            return;
        }
        for value in &mut values[..count] {
            *value = self.steps.value(self.turn);
            self.turn = if self.turn + 1 >= self.steps.count { 0 } else { self.turn + 1 };
        }
    }
}

/// Packets that are written into, some at a time, and that are `SIGNED` or not.
struct Groups<'a, V, const N: usize, const SIGNED: bool> {
    packets: &'a mut [Packet],
    shape: &'a Shape,
    field: &'a FieldPlan,
    sequence: &'a mut u64,
    number: First,
    stamp: Stamp,
    values: &'a mut V,
    checksums: [ChecksumPlan; N],
}

/// How many at a time: as many as vectors do with few instructions each.
const GROUP: usize = 32;

/// How many are written in a turn.
const FOUR: usize = 4;

impl<F: Values, const N: usize, const SIGNED: bool> Work for Groups<'_, F, N, SIGNED> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(mut self, _vector: V) {
        for packets in mem::take(&mut self.packets).chunks_mut(GROUP) {
            self.write(packets);
        }
    }
}

impl<F: Values, const N: usize, const SIGNED: bool> Groups<'_, F, N, SIGNED> {
    /// Computes everything for a whole group, of which there may be fewer packets, and then writes it.
    #[inline(always)]
    fn write(&mut self, packets: &mut [Packet]) {
        let count = packets.len().min(GROUP);
        let (mut values, mut sums) = ([0_u32; GROUP], [[0_u16; GROUP]; N]);
        let mut signatures = [[0_u32; 4]; GROUP];
        self.values.fill(&mut values, count);
        // Loops and no `map`: what that calls isn't always compiled for vectors.
        for value in &mut values {
            *value <<= self.field.shift;
        }
        for (place, (sums, checksum)) in sums.iter_mut().zip(&self.checksums).enumerate() {
            let (base, zero) = (u32::from(self.shape.bases[place]), zero(checksum.is_udp));
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum = finished(base + (value >> 16) + (value & 0xffff), zero).to_be();
            }
        }
        for value in &mut values {
            *value = (*value | self.field.rest as u32).to_be();
        }
        if SIGNED {
            signature::write_all(&mut signatures, self.number, *self.sequence, self.stamp.time);
        }
        *self.sequence += count as u64;
        // Whoever made the plan has checked it; said here once, it is not looked at for each packet.
        let (length, field) = (self.shape.length as usize, self.field.offset);
        let offsets = self.checksums.each_ref().map(|checksum| checksum.offset);
        let fits = |offset: u32, bytes: usize| offset as usize + bytes <= length;
        let space = if SIGNED { signature::LENGTH } else { 0 };
        if !fits(field, 4) || !offsets.iter().all(|&offset| fits(offset, 2)) || !fits(0, space) {
            return;
        }
        let put = |packet: &mut Packet, place: usize| {
            let Some(data) = packet.data_mut().get_mut(..length) else { return };
            store(data, field, values[place].to_ne_bytes());
            for (sums, offset) in sums.iter().zip(offsets) {
                store(data, offset, sums[place].to_ne_bytes());
            }
            if SIGNED {
                sign(data, signatures[place]);
            }
        };
        // Four in each turn: what counts the turns is a sixth of the work else. Numbers that end with the group, so that
        // nothing is left to check.
        let (fours, rest) = packets.as_chunks_mut::<FOUR>();
        let written = fours.len() * FOUR;
        for first in 0..GROUP / FOUR {
            let Some(four) = fours.get_mut(first) else { break };
            for (place, packet) in four.iter_mut().enumerate() {
                put(packet, first * FOUR + place);
            }
        }
        for (place, packet) in rest.iter_mut().enumerate() {
            put(packet, (written + place) % GROUP);
        }
    }
}

/// Writes the signature, whose words are in the order of the wire, at the frame's end.
#[inline(always)]
fn sign(data: &mut [u8], words: [u32; 4]) {
    if let Some(end) = data.last_chunk_mut::<{ signature::LENGTH }>()
        && let Some(bytes) = words.map(u32::to_ne_bytes).as_flattened().first_chunk()
    {
        *end = *bytes;
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
