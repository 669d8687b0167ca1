//! Writes into copies of frames what differs from packet to packet.

use warmlane_mem::{Burst, Packet};

use super::plan::{FieldPlan, Plan, Shape, StreamPlan, StreamState};
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

    /// What the signatures of the first stream begin with.
    #[inline(always)]
    pub(crate) const fn first(self) -> First {
        First::new(0, self.trial)
    }

    #[inline(always)]
    pub(crate) const fn time(self) -> Time {
        self.time
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
    let number = stamp.first();
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
