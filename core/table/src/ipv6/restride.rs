//! How a field gets another stride
//!
//! What lies below its children stays as it is: only the field and the nodes right below it are made anew.

use super::Ipv6Table;
use super::build::{
    Entry, FEW_ROUTES, Filled, GREATEST_STRIDE, LEAST_STRIDE, greatest_stride, part_of, push, thinnest,
    unit_size, within,
};
use super::change::changes_until_restride;
use super::node::{FAN_BITS, LINKS, Link};
use crate::arena::NoSpace;
use crate::prefix::Ipv6Prefix;

impl Ipv6Table {
    /// Sees to it that a field for `area` that has been changed often has a stride that suits what is inside
    pub(super) fn choose_stride(&mut self, link: Link, area: Ipv6Prefix) -> Result<Link, NoSpace> {
        let stride = link.stride() as u8;
        // An eighth of what it may have at the thinnest
        let few = ((1 << stride) / thinnest(area) / 8).max(FEW_ROUTES);
        if stride > LEAST_STRIDE && !self.rib.holds_more_than(few - 1, area) {
            return self.rebuild(link, area);
        }
        let most = greatest_stride(area);
        let mut filled = Filled::default();
        if stride < most {
            self.count_starts(link, 0, GREATEST_STRIDE.into(), &mut filled);
        }
        self.changes_left.insert(link.line() as u32, changes_until_restride(filled.count + (1 << stride)));
        match filled.stride(stride + 1..=most, thinnest(area)) {
            Some(more) => self.widen(link, area, more),
            None => Ok(link),
        }
    }

    /// Counts where stretches and nodes start below `link`, which stands for `left` bits of 16 that begin with `start`. What
    /// has no bits left is not looked into.
    fn count_starts(&self, link: Link, start: u32, left: u32, filled: &mut Filled) {
        filled.add(start as u16);
        let stride = link.stride();
        match link.kind() {
            _ if left == 0 => {}
            Link::HOP => {}
            Link::FIELD => {
                let mut before = None;
                for (index, slot) in (0..1u32 << stride).zip(link.line() * LINKS..) {
                    let link = self.link_at(slot);
                    if before != Some(link) {
                        let (start, left) = inner_start(start, left, index << (u32::BITS - stride), stride);
                        self.count_starts(link, start, left, filled);
                    }
                    before = link.is_hop().then_some(link);
                }
            }
            Link::FAN => {
                for entry in self.fan_entries(link.line()) {
                    let (start, left) = inner_start(start, left, entry.start, stride);
                    self.count_starts(entry.link, start, left, filled);
                }
            }
            _ => {
                let whole = Ipv6Prefix::all();
                for stretch in &self.leaf_stretches(link, whole)[1..] {
                    filled.add(inner_start(start, left, (stretch.first >> 96) as u32, 0).0 as u16);
                }
            }
        }
    }

    /// The same for what entries lead to whose units are of so many bits
    pub(super) fn count_entries(&self, entries: &[Entry], bits: u8, filled: &mut Filled) {
        for entry in entries {
            let (start, left) = inner_start(0, GREATEST_STRIDE.into(), entry.start, bits.into());
            self.count_starts(entry.link, start, left, filled);
        }
    }

    /// A field of a greater stride in place of this one
    fn widen(&mut self, link: Link, area: Ipv6Prefix, stride: u8) -> Result<Link, NoSpace> {
        let first = self.take_field(stride, 0)?;
        self.split(link, area, stride, first as usize * LINKS)?;
        Ok(Link::field(first, stride))
    }

    /// Makes links from `to` on for what is left of `area` after so many more bits
    fn split(&mut self, link: Link, area: Ipv6Prefix, bits: u8, to: usize) -> Result<(), NoSpace> {
        if bits == 0 {
            link.store(self.slot(to));
            return Ok(());
        }
        let stride = link.stride() as u8;
        let length = area.length() + bits;
        match link.kind() {
            Link::HOP => (to..to + (1 << bits)).for_each(|slot| link.store(self.slot(slot))),
            Link::FIELD => {
                let slots = link.line() * LINKS..link.line() * LINKS + (1 << stride);
                if stride <= bits {
                    for (index, slot) in slots.enumerate() {
                        let part = part_of(area, index, area.length() + stride);
                        let to = to + (index << (bits - stride));
                        self.split(self.link_at(slot), part, bits - stride, to)?;
                    }
                } else {
                    for index in 0..1 << bits {
                        let count = 1 << (stride - bits);
                        let first = slots.start + index * count;
                        let part = self.subfield(first, part_of(area, index, length), stride - bits)?;
                        part.store(self.slot(to + index));
                    }
                }
            }
            Link::FAN => {
                let entries = self.fan_entries(link.line());
                self.split_entries(&entries, area, stride, bits, to)?;
            }
            _ => {
                let stretches = self.leaf_stretches(link, area);
                for index in 0..1 << bits {
                    let part = part_of(area, index, length);
                    let part = self.build(within(&stretches, part), part)?;
                    part.store(self.slot(to + index));
                }
            }
        }
        self.replace(link);
        Ok(())
    }

    /// The same of what entries lead to whose units are of `unit_bits`
    pub(super) fn split_entries(
        &mut self,
        entries: &[Entry],
        area: Ipv6Prefix,
        unit_bits: u8,
        bits: u8,
        to: usize,
    ) -> Result<(), NoSpace> {
        if unit_bits <= bits {
            let unit_of = |entry: &Entry| (entry.start >> (FAN_BITS as u8 - unit_bits)) as usize;
            for (index, entry) in entries.iter().enumerate() {
                for unit in unit_of(entry)..entries.get(index + 1).map_or(1 << unit_bits, unit_of) {
                    let part = part_of(area, unit, area.length() + unit_bits);
                    self.split(entry.link, part, bits - unit_bits, to + (unit << (bits - unit_bits)))?;
                }
            }
        } else {
            for index in 0..1u32 << bits {
                let start = index << (FAN_BITS as u8 - bits);
                let part = self.assemble_unit(entries, area, start, bits, unit_bits - bits)?;
                part.store(self.slot(to + index as usize));
            }
        }
        Ok(())
    }

    /// A link for `area` that leads to these links of a field
    fn subfield(&mut self, first: usize, area: Ipv6Prefix, stride: u8) -> Result<Link, NoSpace> {
        let mut entries = Vec::new();
        for index in 0..1u32 << stride {
            let entry =
                Entry { start: index * unit_size(stride), link: self.link_at(first + index as usize) };
            push(&mut entries, entry);
        }
        self.assemble(&entries, area, stride)
    }
}

/// Where what begins with `next`, after the bits of `start`, starts in 16 bits of which `left` are left, and how many are after so
/// many more
fn inner_start(start: u32, left: u32, next: u32, stride: u32) -> (u32, u32) {
    (start | (u64::from(next) << left >> u32::BITS) as u32, left.saturating_sub(stride))
}
