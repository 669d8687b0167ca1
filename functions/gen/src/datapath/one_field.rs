//! Streams of one frame in which one field differs from packet to packet, as benchmarks of lookups send: what is new in each is computed by vectors for
//! many at once, and written while the frame is copied.

use std::array;

use warmlane_mem::{Burst, Frames, Offsets, Pool, Variations};
use warmlane_sys::vector::{self, Vector, Work};

use super::plan::{ChecksumPlan, FieldPlan, Map, Order, Shape, StreamState};
use super::random::WyRand;
use super::signature;
use super::write::Stamp;

/// Checksums that can change with the field: there is space for two beside it.
const CHECKSUMS: usize = 2;

/// Packets that are taken together, at most.
const TOGETHER: usize = 64;

/// Packets that are computed together: as many as vectors do with few instructions each.
const GROUP: usize = 32;

/// How such a stream's packets are made.
#[derive(Clone, Debug)]
pub(crate) struct OneField {
    offsets: Offsets,
    /// How far the field's value is from the lowest of the 32 bits that are written.
    shift: u32,
    /// The other ones of them.
    rest: u32,
    /// Numbers 0 to `count` − 1 stand for the values `first` + number × `step`.
    first: u32,
    step: u32,
    /// What the values behind the first are ahead of it, in turn.
    steps: [u32; GROUP],
    count: u64,
    is_random: bool,
    /// Of each checksum: what is left of its sum without the field, and what is sent instead of zero.
    sums: [Sum; CHECKSUMS],
    signed: bool,
}

impl OneField {
    /// `None` if the stream isn't of this kind, or if something to be written lies behind the frame's first line.
    pub(crate) fn new(
        shapes: &[Shape],
        fields: &[FieldPlan],
        checksums: &[ChecksumPlan],
        signed: bool,
    ) -> Option<Self> {
        let ([shape], [field]) = (shapes, fields) else { return None };
        let Map::Steps { first, step, count } = field.values.map else { return None };
        let is_random = match field.values.order {
            Order::Turn => false,
            Order::Uniform => true,
            Order::Zipf(_) => return None,
        };
        let offset = field.offset as usize;
        let [upper, lower] = match field.bytes {
            2 => [None, Some(offset)],
            4 => [Some(offset), Some(offset + 2)],
            _ => return None,
        };
        let covers_all = field.coverage.iter().take(checksums.len()).all(|coverage| *coverage == 1);
        if checksums.len() > CHECKSUMS || !covers_all {
            return None;
        }
        let [one, two] = array::from_fn(|number| checksums.get(number).map(|sum| sum.offset as usize));
        let sums = array::from_fn(|number| {
            Sum::new(shape.bases[number], checksums.get(number).is_some_and(|sum| sum.is_udp))
        });
        Some(Self {
            offsets: Offsets::new([lower, upper, one, two])?,
            shift: field.shift,
            rest: field.rest as u32,
            first: first as u32,
            step: step as u32,
            steps: array::from_fn(|place| (place as u32).wrapping_mul(step as u32)),
            count,
            is_random,
            sums,
            signed,
        })
    }

    /// Appends up to `due` packets to `burst`, copies of the only frame. Returns how many there are, and their bytes.
    #[inline(always)]
    pub(crate) fn build(
        &self,
        (burst, due): (&mut Burst, usize),
        (pool, frames): (&Pool, &Frames),
        state: &mut StreamState,
        random: &mut WyRand,
        (own, stamp): (&mut PerPacket, Stamp),
    ) -> (usize, u64) {
        let (mut packets, mut bytes) = (0, 0);
        while packets < due {
            let wanted = (due - packets).min(TOGETHER);
            vector::run(Compute { plan: self, own, state, random, stamp, wanted });
            let trailers = if self.signed { &own.signatures[..] } else { &[] };
            let variations = Variations { offsets: &self.offsets, numbers: &own.numbers, trailers };
            let taken = pool.take_variations(burst, frames, &variations, wanted);
            self.advance(state, taken.packets as u64);
            packets += taken.packets;
            bytes += taken.bytes;
            if taken.packets < wanted {
                break;
            }
        }
        (packets, bytes)
    }

    /// Moves on by this many packets.
    #[inline(always)]
    fn advance(&self, state: &mut StreamState, packets: u64) {
        state.sequence += packets;
        let turn = state.turns[0] + packets;
        state.turns[0] = if turn < self.count { turn } else { turn % self.count };
    }

    #[inline(always)]
    const fn value(&self, number: u32) -> u32 {
        self.first.wrapping_add(number.wrapping_mul(self.step))
    }

    /// The field's values in the next packets, of which the first has this turn.
    #[inline(always)]
    fn values(&self, turn: u64, random: &mut WyRand) -> [u32; GROUP] {
        let mut values = [0; GROUP];
        if self.is_random {
            random.fill((self.count - 1) as u32, &mut values);
            for value in &mut values {
                *value = self.value(*value);
            }
        } else if turn + GROUP as u64 <= self.count {
            // None comes round, so vectors do it.
            let first = self.value(turn as u32);
            values = self.steps;
            for value in &mut values {
                *value = value.wrapping_add(first);
            }
        } else {
            let mut turn = turn % self.count;
            for value in &mut values {
                *value = self.value(turn as u32);
                turn = if turn + 1 < self.count { turn + 1 } else { 0 };
            }
        }
        values
    }
}

/// A checksum that changes with the field, by RFC 1624 equation 3: HC' = ~(~HC + ~m + m').
#[derive(Clone, Copy, Debug)]
struct Sum {
    base: u32,
    /// What the folded sum is taken from: then it is its complement.
    ones: u32,
}

impl Sum {
    /// From ~HC + ~m in 16 bits.
    ///
    /// UDP sends a checksum of 0 as 0xffff (RFC 768). Adding 1 before folding, and subtracting from 0x10000 instead of 0xffff, gives that without a
    /// comparison: only sums of 0 and 0xffff come out differently.
    const fn new(base: u16, is_udp: bool) -> Self {
        let higher = is_udp as u32;
        Self { base: base as u32 + higher, ones: 0xffff + higher }
    }

    /// The checksum with the sum of the field's words.
    #[inline(always)]
    const fn checksum(self, words: u32) -> u32 {
        let sum = self.base + words;
        // Adding the halves crosswise leaves the folded sum, carry included, in the upper one.
        self.ones - (sum.wrapping_add(sum.rotate_left(16)) >> 16)
    }
}

/// What is each packet's own, of the next ones.
#[derive(Debug)]
pub(crate) struct PerPacket {
    /// The field's word, and the two checksums.
    numbers: [[u32; 2]; TOGETHER],
    signatures: [[u32; 4]; TOGETHER],
}

impl Default for PerPacket {
    fn default() -> Self {
        Self { numbers: [[0; 2]; TOGETHER], signatures: [[0; 4]; TOGETHER] }
    }
}

/// Computes what is each packet's own, of at least the next `wanted`.
struct Compute<'a> {
    plan: &'a OneField,
    own: &'a mut PerPacket,
    state: &'a StreamState,
    random: &'a mut WyRand,
    stamp: Stamp,
    wanted: usize,
}

impl Work for Compute<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self, _vector: V) {
        let Self { plan, own, state, random, stamp, wanted } = self;
        let ([one, two], shift, rest) = (plan.sums, plan.shift, plan.rest);
        let (all_numbers, _) = own.numbers.as_chunks_mut::<GROUP>();
        let (all_signatures, _) = own.signatures.as_chunks_mut::<GROUP>();
        let mut before = 0;
        for (numbers, signatures) in all_numbers.iter_mut().zip(all_signatures) {
            if before >= wanted {
                break;
            }
            let values = plan.values(state.turns[0] + before as u64, random);
            // A loop and no `map`: what that calls isn't always compiled for vectors.
            for (numbers, value) in numbers.iter_mut().zip(values) {
                let value = value << shift;
                let words = (value >> 16) + (value & 0xffff);
                *numbers = [value | rest, one.checksum(words) | two.checksum(words) << 16];
            }
            if plan.signed {
                signature::write_all(signatures, stamp.first(), state.sequence + before as u64, stamp.time());
            }
            before += GROUP;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_wire::checksum;

    /// Of a message of two words that are summed, all those of the first and some of the second.
    #[test]
    fn checksums_are_those_of_the_whole() {
        for second in [0, 1, 0x7fff, 0xfffe, 0xffff_u16] {
            for (first, is_udp) in (0..=0xffff_u16).flat_map(|first| [(first, false), (first, true)]) {
                let message = [first.to_be_bytes(), second.to_be_bytes()].concat();
                let expected = match !checksum::sum(&message) {
                    0 if is_udp => 0xffff,
                    checksum => checksum,
                };
                let found = Sum::new(second, is_udp).checksum(first.into());
                assert_eq!(found, u32::from(expected), "{first:x} {second:x} {is_udp}");
            }
        }
        assert_eq!(Sum::new(0xffff, true).checksum(0x1_fffe), 0xffff, "of the largest sum");
        assert_eq!(Sum::new(0xfffe, true).checksum(0x1_fffe), 1);
    }
}
