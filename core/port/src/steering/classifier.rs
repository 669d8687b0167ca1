//! Finds the first rule that fits, for a burst of packets.
//!
//! Rules that look at the same bits of headers are one shape, and an exact match on those bits (Srinivasan, Suri and Varghese, "Packet
//! classification using tuple space search", SIGCOMM 1999). So the work grows with the shapes, of which people have few, not with
//! the rules. Tables are keyed by a hash of the bits; what they find is compared as a whole.

use std::collections::HashSet;

use warmlane_table::{ExactError, ExactReader, ExactTable, NO_VALUE};

use super::headers::{Headers, Mask};
use super::rule::{Action, Rule};

/// Packets that are looked at together.
pub(super) const GROUP: usize = 64;

/// What is found where no rule fits.
pub(super) const NO_RULE: u32 = NO_VALUE;

/// The rules of a port.
pub(super) struct Classifier {
    /// Those whose first rule comes first are asked first.
    shapes: Vec<Shape>,
    /// The bits that each rule looks for, under its shape's mask.
    wanted: Vec<Headers>,
    actions: Vec<Action>,
}

/// Rules that look at the same bits.
struct Shape {
    mask: Mask,
    /// Of the hash: one by which all rules have hashes of their own.
    seed: u64,
    /// The number of the rule, by hash.
    rules: ExactReader<[u8; 8]>,
    /// The first of its rules.
    first: u32,
}

impl Classifier {
    pub(super) fn new(rules: &[Rule]) -> Result<Self, ExactError> {
        let (masks, wanted): (Vec<Mask>, Vec<Headers>) = rules.iter().map(|rule| rule.of.bits()).unzip();
        let mut shapes: Vec<Shape> = Vec::new();
        for (index, mask) in masks.iter().enumerate() {
            if shapes.iter().any(|shape| shape.mask == *mask) {
                continue;
            }
            // Of rules for the same packets the first counts.
            let mut seen = HashSet::new();
            let alike: Vec<(Headers, u32)> = (index..rules.len())
                .filter(|number| masks[*number] == *mask && seen.insert(wanted[*number]))
                .map(|number| (wanted[number], number as u32))
                .collect();
            let (seed, rules) = table(&alike)?;
            shapes.push(Shape { mask: *mask, seed, rules, first: index as u32 });
        }
        let actions = rules.iter().map(|rule| rule.action).collect();
        Ok(Self { shapes, wanted, actions })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shapes.is_empty()
    }

    /// How many rules there are.
    pub(super) fn rules(&self) -> usize {
        self.actions.len()
    }

    pub(super) fn action(&self, rule: u32) -> Option<Action> {
        self.actions.get(rule as usize).copied()
    }

    /// The number of the first rule that fits each of up to [`GROUP`] packets, or [`NO_RULE`].
    pub(super) fn classify(&self, headers: &[Headers], found: &mut [u32]) {
        let (mut keys, mut candidates) = ([[0; 8]; GROUP], [NO_RULE; GROUP]);
        let count = headers.len().min(found.len()).min(GROUP);
        let (headers, found) = (&headers[..count], &mut found[..count]);
        found.fill(NO_RULE);
        for shape in &self.shapes {
            if found.iter().all(|rule| *rule < shape.first) {
                return;
            }
            for (key, headers) in keys.iter_mut().zip(headers) {
                *key = hash(shape.seed, &headers.and(&shape.mask)).to_le_bytes();
            }
            shape.rules.lookup_burst(&keys[..count], &mut candidates[..count]);
            for ((candidate, headers), found) in candidates.iter().zip(headers).zip(&mut *found) {
                if candidate < found
                    && self.wanted.get(*candidate as usize) == Some(&headers.and(&shape.mask))
                {
                    *found = *candidate;
                }
            }
        }
    }
}

/// A table of rules of one shape, and the seed of its hash.
fn table(rules: &[(Headers, u32)]) -> Result<(u64, ExactReader<[u8; 8]>), ExactError> {
    let mut seed = 0;
    loop {
        let mut table = ExactTable::new(rules.len())?;
        for (wanted, number) in rules {
            table.insert(&hash(seed, wanted).to_le_bytes(), *number)?;
        }
        if table.len() == rules.len() {
            return Ok((seed, table.reader()));
        }
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    }
}

/// A hash that tells rules apart. Packets that have a rule's by chance, or on purpose, are not taken for its own.
#[inline(always)]
fn hash(seed: u64, headers: &Headers) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    // The words don't wait for each other.
    let mut factor = MULTIPLIER;
    let sum = headers.0.iter().fold(seed, |sum, word| {
        factor = factor.rotate_left(9) | 1;
        let word = word ^ seed;
        sum.wrapping_add((word ^ word >> 32).wrapping_mul(factor))
    });
    (sum ^ sum >> 32).wrapping_mul(MULTIPLIER)
}
