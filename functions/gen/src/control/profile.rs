//! What to send, checked: streams with their templates, sizes and rules.

use std::sync::Arc;

use thiserror::Error;
use warmlane_mem::{Frames, TooManyFrames};

use super::payload::Payload;
use super::sizes::{Sizes, spread};
use super::template::{FCS, Field, Template, TemplateError};
use crate::datapath::random::Zipf;
use crate::datapath::signature::Signature;
use crate::datapath::{
    ChecksumPlan, FieldPlan, MAXIMUM_CHECKSUMS, MAXIMUM_STREAMS, Map, OneField, Order, Plan, Shape,
    StreamPlan, Values,
};

/// Turns in a round of all streams, at most: the sum of their shares.
pub const MAXIMUM_SHARES: u64 = 1 << 20;

/// Fields that one stream may vary.
pub const MAXIMUM_RULES: usize = 8;

/// Streams that share the time.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// The streams; at least one.
    pub streams: Vec<Stream>,
}

/// Packets of one template.
#[derive(Debug, Clone, PartialEq)]
pub struct Stream {
    /// What reports call it.
    pub name: String,
    /// How many packets it sends for each one that a stream of share 1 sends.
    pub share: u32,
    /// What they look like.
    pub template: Template,
    /// How long they are.
    pub sizes: Sizes,
    /// What is behind the headers.
    pub payload: Payload,
    /// Whether they carry a signature, by which losses and latency are measured.
    pub signed: bool,
    /// Fields that differ from packet to packet.
    pub rules: Vec<Rule>,
}

/// How a field differs from packet to packet.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// The field's name, as in `ipv4.source`.
    pub field: String,
    /// Its values.
    pub values: RuleValues,
    /// In which order they come.
    pub order: RuleOrder,
}

/// The values of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleValues {
    /// From the template's value on, this many, this far apart.
    Steps {
        /// How many.
        count: u64,
        /// How far apart; may be negative.
        step: i64,
    },
    /// These.
    List(Vec<u64>),
}

/// The order of a field's values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RuleOrder {
    /// One after the other, round and round.
    Turn,
    /// Any, all as often.
    Random,
    /// Any, the one with rank *r* with a probability proportional to 1 / *r*^exponent.
    Zipf {
        /// The exponent.
        exponent: f64,
    },
}

/// Why a profile cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProfileError {
    /// No stream.
    #[error("there is no stream: add at least one [[stream]]")]
    NoStream,
    /// More than the signature can number, or more than a schedule holds.
    #[error("{streams} streams with {shares} shares together: use at most 65536 and 1048576")]
    TooManyStreams {
        /// How many streams.
        streams: usize,
        /// Sum of their shares.
        shares: u64,
    },
    /// A stream's template doesn't give a frame.
    #[error("stream \"{stream}\": {error}")]
    Template {
        /// The stream's name.
        stream: String,
        /// What is wrong.
        error: TemplateError,
    },
    /// A rule can't be applied.
    #[error("stream \"{stream}\", field \"{field}\": {problem}")]
    Rule {
        /// The stream's name.
        stream: String,
        /// The field's name.
        field: String,
        /// What is wrong, and what to do.
        problem: RuleProblem,
    },
    /// Too many frames to store.
    #[error("{0}")]
    Frames(String),
}

/// Why a rule can't be applied.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RuleProblem {
    /// Values outside the field.
    #[error("value {value} does not fit its {bits} bits: use 0 to {maximum}")]
    Range {
        /// The first value that doesn't fit.
        value: String,
        /// The field's width.
        bits: u32,
        /// The largest that fits.
        maximum: u64,
    },
    /// A count or list that is empty or too long.
    #[error("{count} values: use 1 to {maximum}")]
    Count {
        /// How many.
        count: u64,
        /// How many there may be.
        maximum: u64,
    },
    /// Two rules for one 16-bit word.
    #[error("shares its word of the packet with field \"{other}\", which varies too: vary one of them")]
    Overlap {
        /// The other field.
        other: String,
    },
    /// Too many rules.
    #[error("is one of {rules} rules: use at most 8 for a stream")]
    TooMany {
        /// How many there are.
        rules: usize,
    },
    /// An exponent that makes no distribution.
    #[error("exponent {exponent} makes no distribution: use 0 to 10")]
    Exponent {
        /// What was given.
        exponent: String,
    },
}

impl From<TooManyFrames> for ProfileError {
    fn from(error: TooManyFrames) -> Self {
        Self::Frames(error.to_string())
    }
}

impl Profile {
    /// The same streams with frames of one size.
    #[must_use]
    pub fn with_size(&self, size: u16) -> Self {
        let mut profile = self.clone();
        profile.streams.iter_mut().for_each(|stream| stream.sizes = Sizes::fixed(size));
        profile
    }

    /// What a transmit lane works from.
    ///
    /// # Errors
    /// [`ProfileError`]: the first thing that is wrong.
    pub fn plan(&self) -> Result<Plan, ProfileError> {
        let shares: Vec<u32> = self.streams.iter().map(|stream| stream.share).collect();
        let sum: u64 = shares.iter().map(|&share| u64::from(share)).sum();
        if self.streams.is_empty() || sum == 0 {
            return Err(ProfileError::NoStream);
        }
        if self.streams.len() > MAXIMUM_STREAMS || sum > MAXIMUM_SHARES {
            return Err(ProfileError::TooManyStreams { streams: self.streams.len(), shares: sum });
        }
        let mut frames = Frames::new();
        // A stream alone has a frame for each turn of its round, so that a lane can copy them in one sweep.
        let alone = self.streams.len() == 1;
        // There are no more than a signature has numbers for.
        let streams = (self.streams.iter().enumerate())
            .map(|(number, stream)| stream.plan(number as u16, alone, &mut frames))
            .collect::<Result<Box<[_]>, _>>()?;
        let schedule = if alone { Vec::new() } else { spread(&shares) };
        let weighted: f64 =
            self.streams.iter().map(|stream| f64::from(stream.share) * stream.sizes.mean()).sum();
        Ok(Plan {
            frames,
            streams,
            schedule: schedule.into_iter().map(|number| number as u16).collect(),
            mean_size: weighted / sum as f64,
        })
    }
}

impl Stream {
    fn plan(&self, number: u16, alone: bool, frames: &mut Frames) -> Result<StreamPlan, ProfileError> {
        let template_error = |error| ProfileError::Template { stream: self.name.clone(), error };
        let fields = self.fields()?;
        let all_checksums = self.template.checksums();
        // Only checksums that some field changes are written.
        let changed: Vec<usize> = (0..all_checksums.len())
            .filter(|&index| fields.iter().any(|(field, _)| field.coverage[index] != 0))
            .collect();
        let signature = Signature { stream: number, trial: 0, sequence: 0, time: 0 };
        let signature = self.signed.then(|| signature.to_bytes());

        let mut stored: Vec<(u16, u32)> = Vec::new();
        let mut shapes = Vec::with_capacity(self.sizes.round().len());
        for &size in self.sizes.round() {
            let bytes =
                self.template.build(usize::from(size), &self.payload, signature).map_err(template_error)?;
            let known = stored.iter().find(|(other, _)| *other == size && !alone);
            let frame = if let Some(&(_, frame)) = known {
                frame
            } else {
                let frame = frames.len() as u32;
                frames.push(&bytes)?;
                stored.push((size, frame));
                frame
            };
            let mut bases = [0; MAXIMUM_CHECKSUMS];
            for (base, &index) in bases.iter_mut().zip(&changed) {
                *base = self.base(&bytes, index, all_checksums[index].is_udp, &fields);
            }
            shapes.push(Shape { frame, length: u32::from(size) - FCS as u32, bases });
        }

        let bytes = self
            .template
            .build(self.template.minimum_size(self.signed), &self.payload, signature)
            .map_err(template_error)?;
        let fields: Box<[FieldPlan]> = fields
            .iter()
            .map(|(field, values)| {
                let mask = mask(field.bits) << field.shift;
                let mut coverage = [0; MAXIMUM_CHECKSUMS];
                for (covers, &index) in coverage.iter_mut().zip(&changed) {
                    *covers = field.coverage[index];
                }
                FieldPlan {
                    offset: field.offset as u32,
                    bytes: field.bytes as u32,
                    shift: field.shift,
                    rest: word(&bytes, field) & !mask,
                    coverage,
                    values: values.clone(),
                }
            })
            .collect();
        let checksums: Box<[ChecksumPlan]> = changed
            .iter()
            .map(|&index| ChecksumPlan {
                offset: all_checksums[index].offset as u32,
                is_udp: all_checksums[index].is_udp,
            })
            .collect();
        let name = self.name.as_str().into();
        let (signed, shapes) = (self.signed, shapes.into_boxed_slice());
        let one_field = OneField::new(&shapes, &fields, &checksums, signed).filter(|_| alone);
        Ok(StreamPlan { name, signed, shapes, fields, checksums, one_field })
    }

    /// What is left of a checksum's sum when the varied fields are taken out of it, in 16 bits.
    fn base(&self, bytes: &[u8], index: usize, is_udp: bool, fields: &[(Field, Values)]) -> u16 {
        let offset = self.template.checksums()[index].offset;
        let found = bytes.get(offset..offset + 2).map_or(0, |found| u16::from_be_bytes([found[0], found[1]]));
        // UDP sends a checksum of 0 as 0xffff (RFC 768).
        let mut sum = u32::from(if is_udp && found == 0xffff { 0xffff } else { !found });
        for (field, _) in fields {
            let value = word(bytes, field) & (mask(field.bits) << field.shift);
            let words = warmlane_wire::checksum::sum(&value.to_be_bytes());
            match field.coverage[index] {
                1 => sum += u32::from(!words),
                -1 => sum += u32::from(words),
                _ => {}
            }
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    /// The fields that vary, with their values.
    fn fields(&self) -> Result<Vec<(Field, Values)>, ProfileError> {
        let bytes = self
            .template
            .build(self.template.minimum_size(false), &self.payload, None)
            .map_err(|error| ProfileError::Template { stream: self.name.clone(), error })?;
        let mut fields: Vec<(Field, Values)> = Vec::new();
        for rule in &self.rules {
            let fault = |problem| ProfileError::Rule {
                stream: self.name.clone(),
                field: rule.field.clone(),
                problem,
            };
            if self.rules.len() > MAXIMUM_RULES {
                return Err(fault(RuleProblem::TooMany { rules: self.rules.len() }));
            }
            let field = self
                .template
                .field(&rule.field)
                .map_err(|error| ProfileError::Template { stream: self.name.clone(), error })?;
            let overlaps = |other: &Field| {
                field.offset < other.offset + other.bytes && other.offset < field.offset + field.bytes
            };
            if let Some((other, _)) = fields.iter().find(|(other, _)| overlaps(other)) {
                return Err(fault(RuleProblem::Overlap { other: other.name.clone() }));
            }
            let first = (word(&bytes, &field) >> field.shift) & mask(field.bits);
            let values = rule.values(&field, first).map_err(fault)?;
            fields.push((field, values));
        }
        Ok(fields)
    }
}

impl Rule {
    fn values(&self, field: &Field, first: u64) -> Result<Values, RuleProblem> {
        let maximum = mask(field.bits);
        let range = |value: i128| {
            let fits = u64::try_from(value).is_ok_and(|value| value <= maximum);
            let value = value.to_string();
            if fits { Ok(()) } else { Err(RuleProblem::Range { value, bits: field.bits, maximum }) }
        };
        let limit = match self.order {
            RuleOrder::Zipf { .. } => Zipf::MAXIMUM as u64,
            _ => 1 << 32,
        };
        let map = match &self.values {
            RuleValues::Steps { count, step } => {
                if !(1..=limit).contains(count) {
                    return Err(RuleProblem::Count { count: *count, maximum: limit });
                }
                range(i128::from(first) + i128::from(*count - 1) * i128::from(*step))?;
                Map::Steps { first, step: step.cast_unsigned(), count: *count }
            }
            RuleValues::List(values) => {
                if !(1..=limit).contains(&(values.len() as u64)) {
                    return Err(RuleProblem::Count { count: values.len() as u64, maximum: limit });
                }
                values.iter().try_for_each(|&value| range(i128::from(value)))?;
                Map::List(values.as_slice().into())
            }
        };
        let order = match self.order {
            RuleOrder::Turn => Order::Turn,
            RuleOrder::Random => Order::Uniform,
            RuleOrder::Zipf { exponent } if (0.0..=10.0).contains(&exponent) => {
                Order::Zipf(Arc::new(Zipf::new(map.count() as usize, exponent)))
            }
            RuleOrder::Zipf { exponent } => {
                return Err(RuleProblem::Exponent { exponent: exponent.to_string() });
            }
        };
        Ok(Values { order, map })
    }
}

/// `bits` ones.
const fn mask(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// The big-endian word that holds a field.
fn word(bytes: &[u8], field: &Field) -> u64 {
    let word = bytes.get(field.offset..field.offset + field.bytes).unwrap_or_default();
    word.iter().fold(0, |word, &byte| word << 8 | u64::from(byte))
}
