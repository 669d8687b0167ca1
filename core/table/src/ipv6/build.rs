//! How routes become fields, fans, branches and leaves

use super::Ipv6Table;
use super::node::{
    BRANCH_LEAVES, FAN_BITS, FAN_LINKS, KEY_BITS, LEAF_HOPS, LINKS, Line, Link, Node, ROOT_BITS, ROOT_LINES,
};
use crate::NextHopId;
use crate::arena::{Arena, NoSpace};
use crate::prefix::{Address, Ipv6Prefix};
use crate::rib::Stretch;

/// The length of the prefix that a link of the root stands for
pub(super) const ROOT_LENGTH: u8 = ROOT_BITS as u8;
/// Bits that index the smallest field worth a line of its own
pub(super) const LEAST_STRIDE: u8 = 4;
/// Bits that index the largest field, 256 KiB
pub(super) const GREATEST_STRIDE: u8 = 16;
/// A field below the root may have this many links for each that leads to something of its own: registries give out
/// /32s, and one step that far is worth some memory
const THINNEST_BELOW_ROOT: usize = 128;
/// The same for any other field
const THINNEST: usize = 8;
/// A field lives through this many changes at least before its stride is chosen anew
pub(super) const LEAST_CHANGES: usize = 64;
/// With fewer routes than this inside, a field is given up for another node
pub(super) const FEW_ROUTES: usize = 4;
/// Lines that addresses are reserved for: 256 MiB
const MOST_LINES: usize = 1 << 22;
const _: () = assert!(MOST_LINES <= Link::LINES);

/// A part of an area, up to the next one, and what is there: either a next hop, or a node for one unit, which is what is left
/// of the area after so many more bits
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The 32 bits after the area's at which it starts
    pub(super) start: u32,
    pub(super) link: Link,
}

/// An arena with an empty root
pub(super) fn arena() -> Result<Arena<Line>, NoSpace> {
    let lines = Arena::new(ROOT_LINES, MOST_LINES)?;
    for slot in &lines.memory().as_flattened()[..ROOT_LINES * LINKS] {
        Link::hop(NextHopId::NONE).store(slot);
    }
    Ok(lines)
}

impl Ipv6Table {
    /// A link for `area`, which `inside` divides
    pub(super) fn build(&mut self, inside: &[Stretch<u128>], area: Ipv6Prefix) -> Result<Link, NoSpace> {
        if let [only] = inside {
            return Ok(Link::hop(only.hop));
        }
        if fits_keys(inside, area) {
            return self.leaves(inside, area);
        }
        let stride = fan_stride(area);
        if let Some(parts) = divide(inside, area, stride, FAN_LINKS) {
            let entries = self.entries(&parts, inside, area, stride)?;
            return self.fan(&entries, stride);
        }
        let mut filled = Filled::default();
        for stretch in &inside[1..] {
            filled.add((rest_of(stretch.first, area) >> (u128::BITS - u32::from(GREATEST_STRIDE))) as u16);
        }
        let stride = filled.stride_or_least(area);
        let common =
            rest_of(inside[1].first, area).common_length(rest_of(inside[inside.len() - 1].first - 1, area));
        if is_worth_a_fan(common, stride)
            && let common = common.min(fan_stride(area))
            && let Some(parts) = divide(inside, area, common, FAN_LINKS)
        {
            // A field would have a single link that leads on.
            let entries = self.entries(&parts, inside, area, common)?;
            return self.fan(&entries, common);
        }
        let first = self.take_field(stride, inside.len())?;
        let (mut rest, count) = (inside, 1 << stride);
        let slot_of = |index| first as usize * LINKS + index;
        let mut index = 0;
        while index < count {
            let part = part_of(area, index, area.length() + stride);
            let inside = next_within(&mut rest, part);
            let start = |next: &Stretch<u128>| rest_of(next.first, area) >> (u128::BITS - u32::from(stride));
            // One stretch is often all there is of many links in a row.
            let end = match inside {
                [_] => rest.get(1).map_or(count, |next| start(next) as usize),
                _ => index + 1,
            };
            let link = self.build(inside, part)?;
            for slot in &self.lines.memory().as_flattened()[slot_of(index)..slot_of(end)] {
                link.store(slot);
            }
            index = end;
        }
        Ok(Link::field(first, stride))
    }

    /// A link for `area`, which `entries` divide whose units are of so many more bits
    pub(super) fn assemble(
        &mut self,
        entries: &[Entry],
        area: Ipv6Prefix,
        bits: u8,
    ) -> Result<Link, NoSpace> {
        if let [only] = entries {
            return Ok(only.link);
        }
        if entries.iter().all(|entry| entry.link.is_hop()) {
            let stretches: Vec<_> = entries.iter().map(|entry| entry.stretch(area)).collect();
            return self.build(&stretches, area);
        }
        if entries.len() <= FAN_LINKS {
            return self.fan(entries, bits);
        }
        self.spread(entries, area, bits)
    }

    /// The same by a field, as a fan does not hold them
    fn spread(&mut self, entries: &[Entry], area: Ipv6Prefix, bits: u8) -> Result<Link, NoSpace> {
        // What lies below may be worth a field that takes up some of its bits as well.
        let mut filled = Filled::default();
        self.count_entries(entries, bits, &mut filled);
        let stride = filled.stride_or_least(area);
        let common = (entries[1].start ^ (entries[entries.len() - 1].start - 1)).leading_zeros() as u8;
        if is_worth_a_fan(common, stride) && common < bits {
            // All that is divided is in one unit of so many bits.
            let first = entries[1].start & !(u32::MAX >> common);
            let unit = inner_area(area, first, common);
            let inner = self.spread(&entries_in(entries, first, common), unit, bits - common)?;
            let mut outer = vec![Entry { start: 0, link: entries[0].link }];
            push(&mut outer, Entry { start: first, link: inner });
            if let Some(start) = first.checked_add(unit_size(common)) {
                push(&mut outer, Entry { start, link: entries[entries.len() - 1].link });
            }
            return self.fan(&outer, common);
        }
        let first = self.take_field(stride, filled.count)?;
        self.split_entries(entries, area, bits, stride, first as usize * LINKS)?;
        Ok(Link::field(first, stride))
    }

    /// The same for what is in the unit of so many bits that starts there
    pub(super) fn assemble_unit(
        &mut self,
        entries: &[Entry],
        area: Ipv6Prefix,
        start: u32,
        bits: u8,
        left: u8,
    ) -> Result<Link, NoSpace> {
        match reaching(entries, start, bits) {
            [only] if only.link.is_hop() => Ok(only.link),
            inside => self.assemble(&entries_in(inside, start, bits), inner_area(area, start, bits), left),
        }
    }

    /// A leaf, or a branch with leaves
    fn leaves(&mut self, inside: &[Stretch<u128>], area: Ipv6Prefix) -> Result<Link, NoSpace> {
        let leaves = inside.chunks(LEAF_HOPS).map(|stretches| {
            let mut node = Node::EMPTY;
            for (last, next) in node.0.iter_mut().zip(&stretches[1..]) {
                *last = key(next, area) - 1;
            }
            for (hop, stretch) in node.0[LEAF_HOPS..].iter_mut().zip(stretches) {
                *hop = stretch.hop.stored();
            }
            node
        });
        if inside.len() <= LEAF_HOPS {
            let line = self.take(1, false)?;
            leaves.zip(&self.lines.memory()[line as usize..]).for_each(|(node, line)| node.write(line));
            return Ok(Link::node(Link::LEAF, line));
        }
        let mut branch = Node::EMPTY;
        for (last, next) in branch.0.iter_mut().zip(inside.chunks(LEAF_HOPS).skip(1)) {
            *last = key(&next[0], area) - 1;
        }
        let line = self.take(1 + inside.len().div_ceil(LEAF_HOPS), false)?;
        let nodes = std::iter::once(branch).chain(leaves);
        nodes.zip(&self.lines.memory()[line as usize..]).for_each(|(node, line)| node.write(line));
        Ok(Link::node(Link::BRANCH, line))
    }

    /// Entries of which each is a part of `inside`, divided ones with a node
    pub(super) fn entries(
        &mut self,
        parts: &[(u32, Option<NextHopId>)],
        inside: &[Stretch<u128>],
        area: Ipv6Prefix,
        bits: u8,
    ) -> Result<Vec<Entry>, NoSpace> {
        let mut entries = Vec::with_capacity(parts.len());
        for &(start, hop) in parts {
            let link = if let Some(hop) = hop {
                Link::hop(hop)
            } else {
                let unit = inner_area(area, start, bits);
                self.build(within(inside, unit), unit)?
            };
            entries.push(Entry { start, link });
        }
        Ok(entries)
    }

    fn fan(&mut self, entries: &[Entry], stride: u8) -> Result<Link, NoSpace> {
        let line = self.take(1, false)?;
        let mut node = Node::EMPTY;
        for (index, next) in entries[1..].iter().enumerate() {
            node.set_pair(index, next.start - 1);
        }
        for index in 0..FAN_LINKS {
            let link = entries.get(index).map_or(Link::hop(NextHopId::NONE), |entry| entry.link);
            node.set_pair(FAN_LINKS + index, link.bits());
        }
        node.write(&self.lines.memory()[line as usize]);
        Ok(Link::fan(line, stride))
    }

    /// What the fan at `line` divides its area into
    pub(super) fn fan_entries(&self, line: usize) -> Vec<Entry> {
        let node = self.node(line);
        let lasts = node.pairs();
        let count = 1 + lasts[..FAN_LINKS].iter().filter(|last| **last != u32::MAX).count();
        let start = |index| if index == 0 { 0 } else { lasts[index - 1] + 1 };
        (0..count).map(|index| Entry { start: start(index), link: node.link(index) }).collect()
    }

    /// What a leaf or a branch divides its area into
    pub(super) fn leaf_stretches(&self, link: Link, area: Ipv6Prefix) -> Vec<Stretch<u128>> {
        let mut stretches = Vec::with_capacity(BRANCH_LEAVES * LEAF_HOPS + 2);
        let mut add = |node: Node, mut start: u16| {
            for (last, hop) in node.0[..LEAF_HOPS].iter().zip(&node.0[LEAF_HOPS..]) {
                let first = area.first() | u128::from(start) << (u128::BITS - KEY_BITS) >> area.length();
                stretches.push(Stretch { first, hop: NextHopId::from_stored(*hop) });
                match last.checked_add(1) {
                    Some(next) => start = next,
                    None => break,
                }
            }
        };
        if link.kind() == Link::LEAF {
            add(self.node(link.line()), 0);
        } else {
            let branch = self.node(link.line());
            for leaf in 0..branch.leaves() {
                let start = if leaf == 0 { 0 } else { branch.0[leaf - 1] + 1 };
                add(self.node(link.line() + 1 + leaf), start);
            }
        }
        stretches
    }
}

impl Entry {
    /// The same, if it is a next hop
    fn stretch(self, area: Ipv6Prefix) -> Stretch<u128> {
        Stretch { first: inner_area(area, self.start, FAN_BITS as u8).first(), hop: self.link.next_hop() }
    }
}

/// Bits that a field for `area` may have
pub(super) fn greatest_stride(area: Ipv6Prefix) -> u8 {
    GREATEST_STRIDE.min(u128::BITS as u8 - area.length())
}

/// Lines of a field
pub(super) fn field_lines(stride: u8) -> usize {
    1 << (stride - LEAST_STRIDE)
}

/// Bits that a fan takes up that may take all
fn fan_stride(area: Ipv6Prefix) -> u8 {
    (FAN_BITS as u8).min(u128::BITS as u8 - area.length())
}

/// The 32 bits after the area's at which an address in it starts
pub(super) fn start_in(area: Ipv6Prefix, address: u128) -> u32 {
    (rest_of(address, area) >> (u128::BITS - FAN_BITS)) as u32
}

/// How far the starts of units of so many bits are from each other
pub(super) fn unit_size(bits: u8) -> u32 {
    1u32.checked_shl(FAN_BITS - u32::from(bits)).unwrap_or(0)
}

/// The unit of so many bits in `area` that starts there
pub(super) fn inner_area(area: Ipv6Prefix, start: u32, bits: u8) -> Ipv6Prefix {
    let start = u128::from(start) << (u128::BITS - FAN_BITS) >> area.length();
    Ipv6Prefix::containing(area.first() | start, area.length().saturating_add(bits))
}

/// Adds an entry, unless what was there before it goes on
pub(super) fn push(entries: &mut Vec<Entry>, entry: Entry) {
    let goes_on = |last: &Entry| last.link == entry.link && entry.link.is_hop();
    if entries.last().is_some_and(|last| last.start == entry.start) {
        entries.pop();
    }
    if !entries.last().is_some_and(goes_on) {
        entries.push(entry);
    }
}

/// Those of the entries that reach into the unit of so many bits that starts there
fn reaching(entries: &[Entry], start: u32, bits: u8) -> &[Entry] {
    let last = start | u32::MAX.checked_shr(bits.into()).unwrap_or(0);
    let from = entries.partition_point(|entry| entry.start <= start).saturating_sub(1);
    let to = entries.partition_point(|entry| entry.start <= last);
    &entries[from..to]
}

/// The same as the unit sees them
fn entries_in(entries: &[Entry], start: u32, bits: u8) -> Vec<Entry> {
    let inner = |entry: &Entry| entry.start.max(start).checked_shl(bits.into()).unwrap_or(0);
    reaching(entries, start, bits)
        .iter()
        .map(|entry| Entry { start: inner(entry), link: entry.link })
        .collect()
}

/// Whether a branch and its leaves can hold the stretches of `area`
fn fits_keys(inside: &[Stretch<u128>], area: Ipv6Prefix) -> bool {
    let host_bits = !u128::mask(area.length().saturating_add(KEY_BITS as u8));
    inside.len() <= BRANCH_LEAVES * LEAF_HOPS
        && inside[1..].iter().all(|stretch| stretch.first & host_bits == 0)
}

/// The bits after those of `area` at which a stretch starts, which is not the first
fn key(stretch: &Stretch<u128>, area: Ipv6Prefix) -> u16 {
    (stretch.first << area.length() >> (u128::BITS - KEY_BITS)) as u16
}

/// The bits of an address after those of an area that it lies in
fn rest_of(address: u128, area: Ipv6Prefix) -> u128 {
    address << area.length()
}

/// The parts of an area, as far as `inside` reaches, whose starts have so many bits: where each starts, and what is there, or
/// `None` where a unit is divided further. There is nothing if there are more than `most`.
pub(super) fn divide(
    inside: &[Stretch<u128>],
    area: Ipv6Prefix,
    bits: u8,
    most: usize,
) -> Option<Vec<(u32, Option<NextHopId>)>> {
    let mut parts: Vec<(u32, Option<NextHopId>)> = Vec::with_capacity(most.min(2 * inside.len()) + 1);
    let mut push = |start: u32, hop: Option<NextHopId>| {
        if parts.last().is_some_and(|last| last.0 == start) {
            parts.pop();
        }
        parts.push((start, hop));
        (parts.len() <= most).then_some(())
    };
    let starts = |stretch: &Stretch<u128>| rest_of(stretch.first.max(area.first()), area);
    let unit_of = |start: u128| {
        (start >> (u128::BITS - FAN_BITS)) as u32 & !u32::MAX.checked_shr(bits.into()).unwrap_or(0)
    };
    let mut divided = None;
    for (index, stretch) in inside.iter().enumerate() {
        let start = starts(stretch);
        let unit = unit_of(start);
        if start << bits == 0 {
            push(unit, Some(stretch.hop))?;
        } else {
            // It starts inside a unit, which is divided then. An earlier one may have divided it already.
            push(unit, None)?;
            divided = Some(unit);
        }
        let next = inside.get(index + 1).map(starts);
        // What follows a divided unit is the stretch's own again, if it reaches that far.
        if divided == Some(unit)
            && let Some(after) = unit.checked_add(unit_size(bits))
            && next.is_none_or(|next| unit_of(next) > unit)
        {
            push(after, Some(stretch.hop))?;
        }
    }
    Some(parts)
}

/// The prefix of `length` bits in `area` with `index` before it
pub(super) fn part_of(area: Ipv6Prefix, index: usize, length: u8) -> Ipv6Prefix {
    Ipv6Prefix::containing(area.first() | (index as u128) << (u128::BITS - u32::from(length)), length)
}

/// How many links a field for `area` may have for each that leads to something of its own
pub(super) fn thinnest(area: Ipv6Prefix) -> usize {
    if area.length() == ROOT_LENGTH { THINNEST_BELOW_ROOT } else { THINNEST }
}

/// Whether a field of this stride would only be the first of several with a single link that leads on each, for all that is
/// inside agrees in so many bits
fn is_worth_a_fan(common: u8, stride: u8) -> bool {
    stride == LEAST_STRIDE && common >= 2 * LEAST_STRIDE
}

/// How many links of a field would lead to something of their own, by its stride
#[derive(Default)]
pub(super) struct Filled {
    before: u16,
    /// By the highest bit in which two starts in a row differ
    differ: [usize; GREATEST_STRIDE as usize],
    /// Starts that were given
    pub(super) count: usize,
}

impl Filled {
    /// The next start, by its first 16 bits; one by one in order
    pub(super) fn add(&mut self, start: u16) {
        let differ = (start ^ self.before).leading_zeros() as usize;
        if let Some(count) = self.differ.get_mut(differ) {
            *count += 1;
        }
        self.before = start;
        self.count += 1;
    }

    /// How many bits should index a field for `area`: as many as leave it filled well enough
    fn stride_or_least(&self, area: Ipv6Prefix) -> u8 {
        self.stride(LEAST_STRIDE + 1..=greatest_stride(area), thinnest(area)).unwrap_or(LEAST_STRIDE)
    }

    /// The greatest of the strides that leaves a field filled well enough
    pub(super) fn stride(&self, strides: std::ops::RangeInclusive<u8>, thinnest: usize) -> Option<u8> {
        strides.rev().find(|&stride| {
            let filled = 1 + self.differ[..usize::from(stride)].iter().sum::<usize>();
            filled * thinnest >= 1 << stride
        })
    }
}

/// Those of `inside`, of which the earlier ones are cut off, that reach into `part`; for parts in order
pub(super) fn next_within<'a>(inside: &mut &'a [Stretch<u128>], part: Ipv6Prefix) -> &'a [Stretch<u128>] {
    // Most parts of a large field have one stretch in common with the one before.
    while inside.get(1).is_some_and(|next| next.first <= part.first()) {
        *inside = &inside[1..];
    }
    let reaching = inside[1..].iter().take_while(|stretch| stretch.first <= part.last()).count();
    &inside[..=reaching]
}

/// The stretches that reach into `part`; the first may start before it
pub(super) fn within(stretches: &[Stretch<u128>], part: Ipv6Prefix) -> &[Stretch<u128>] {
    let from = stretches.partition_point(|stretch| stretch.first <= part.first());
    let to = stretches.partition_point(|stretch| stretch.first <= part.last());
    // The stretches start at or before the part, so one at least does.
    &stretches[from.saturating_sub(1)..to]
}
