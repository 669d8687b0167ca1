//! What a transmit lane works from: frames ready to be copied, and what to write into the copies.
//!
//! A plan is made once, by `control`, and shared; each lane has its own [`StreamState`]s.

use std::sync::Arc;
use warmlane_mem::Frames;

use super::one_field::OneField;
use super::random::{WyRand, Zipf};

/// Streams that a plan may have: the signature has 16 bits for their number.
pub const MAXIMUM_STREAMS: usize = 1 << 16;

/// Checksums that a frame may have: tunnels have two outside and two inside.
pub(crate) const MAXIMUM_CHECKSUMS: usize = 4;

/// Streams, the frames they are made of, and in which order they take turns.
#[derive(Debug)]
pub struct Plan {
    /// The frames, each with a signature of sequence 0 in it if its stream is signed.
    pub(crate) frames: Frames,
    pub(crate) streams: Box<[StreamPlan]>,
    /// The order in which streams send: numbers of streams. Empty if there is one stream, whose frames then stand in
    /// its own order.
    pub(crate) schedule: Box<[u16]>,
    /// Mean bytes of a frame, the frame check sequence counted.
    pub(crate) mean_size: f64,
}

/// One stream.
#[derive(Debug)]
pub(crate) struct StreamPlan {
    pub(crate) name: Arc<str>,
    pub(crate) signed: bool,
    /// One round of the stream's frames.
    pub(crate) shapes: Box<[Shape]>,
    pub(crate) fields: Box<[FieldPlan]>,
    /// Offsets of the checksums that the fields change.
    pub(crate) checksums: Box<[ChecksumPlan]>,
    /// If a single field differs, and packets can be made in the faster way for that; the stream is then the only one.
    pub(crate) one_field: Option<OneField>,
}

/// A frame of a stream: what depends on its size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Its number in [`Plan::frames`].
    pub(crate) frame: u32,
    pub(crate) length: u32,
    /// ~HC + ~m of RFC 1624 equation 3 for each checksum, in 16 bits: what is left is to add m' and take the
    /// complement.
    pub(crate) bases: [u16; MAXIMUM_CHECKSUMS],
}

/// A checksum that changes with a field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChecksumPlan {
    pub(crate) offset: u32,
    /// 0 is sent as 0xffff, because it would mean "none" (RFC 768).
    pub(crate) is_udp: bool,
}

/// A field that varies.
#[derive(Clone, Debug)]
pub(crate) struct FieldPlan {
    pub(crate) offset: u32,
    /// 2, 4 or 8.
    pub(crate) bytes: u32,
    pub(crate) shift: u32,
    /// The other bits of the word.
    pub(crate) rest: u64,
    /// How often each checksum takes it in: 1, 0, or -1 for those of a tunnel that see it and its checksums change.
    pub(crate) coverage: [i8; MAXIMUM_CHECKSUMS],
    pub(crate) values: Values,
}

/// Where a field's values come from.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    pub(crate) order: Order,
    pub(crate) map: Map,
}

/// Which of the values comes next.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// One after the other, round and round.
    Turn,
    /// Any.
    Uniform,
    /// Any, the first ones more often.
    Zipf(Arc<Zipf>),
}

/// The values by their number.
#[derive(Clone, Debug)]
pub(crate) enum Map {
    /// `first` + number × `step`, `count` of them.
    Steps { first: u64, step: u64, count: u64 },
    /// These.
    List(Arc<[u64]>),
}

/// Where a stream is in its rounds.
#[derive(Clone, Debug)]
pub(crate) struct StreamState {
    pub(crate) sequence: u64,
    pub(crate) shape: usize,
    /// For each field: the number of the next value, if they take turns.
    pub(crate) turns: Box<[u64]>,
}

impl Plan {
    /// How many streams there are.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// A stream's name.
    pub fn name(&self, stream: usize) -> Option<&str> {
        self.streams.get(stream).map(|stream| &*stream.name)
    }

    /// Whether every stream's packets carry a signature.
    pub fn is_signed(&self) -> bool {
        self.streams.iter().all(|stream| stream.signed)
    }

    /// Mean bytes of a frame, the frame check sequence counted.
    pub const fn mean_size(&self) -> f64 {
        self.mean_size
    }

    /// Bytes of the longest frame, without frame check sequence.
    pub fn longest(&self) -> usize {
        self.frames.longest()
    }

    /// The state at the start.
    pub(crate) fn states(&self) -> Box<[StreamState]> {
        let state = |(number, stream): (usize, &StreamPlan)| StreamState {
            sequence: 0,
            // Streams with the same mix start at different places of it, so that their large frames don't meet.
            shape: if self.schedule.is_empty() { 0 } else { number % stream.shapes.len().max(1) },
            turns: vec![0; stream.fields.len()].into(),
        };
        self.streams.iter().enumerate().map(state).collect()
    }
}

impl Map {
    #[inline(always)]
    pub(crate) fn count(&self) -> u64 {
        match self {
            Self::Steps { count, .. } => *count,
            Self::List(values) => values.len() as u64,
        }
    }

    #[inline(always)]
    pub(crate) fn value(&self, number: u64) -> u64 {
        match self {
            Self::Steps { first, step, .. } => first.wrapping_add(number.wrapping_mul(*step)),
            // Orders give numbers below the count.
            Self::List(values) => values.get(number as usize).copied().unwrap_or(0),
        }
    }
}

impl Values {
    #[inline(always)]
    pub(crate) fn next(&self, turn: &mut u64, random: &mut WyRand) -> u64 {
        let count = self.map.count();
        let number = match &self.order {
            Order::Turn => {
                let number = *turn;
                *turn = if number + 1 >= count { 0 } else { number + 1 };
                number
            }
            Order::Uniform => random.below(count),
            Order::Zipf(zipf) => zipf.draw(random),
        };
        self.map.value(number)
    }
}
