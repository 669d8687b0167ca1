//! How routes become fields, fans, branches and leaves

use std::ops::Range;

use super::Ipv6Table;
use super::node::{
    BRANCH_LEAVES, FAN_BITS, FAN_LINKS, KEY_BITS, LEAF_HOPS, LINKS, Line, Link, Node, ROOT_BITS, ROOT_LINES,
};
use crate::arena::{Arena, NoRoom};
use crate::prefix::{Address, Ipv6Prefix};
use crate::rib::Stretch;
use crate::{NextHopId, TableError};

/// The length of the prefix that a link of the root stands for
const ROOT_LENGTH: u8 = ROOT_BITS as u8;
/// Bits that index the smallest field, one line
const LEAST_STRIDE: u8 = 4;
/// Bits that index the largest field, 256 KiB
const GREATEST_STRIDE: u8 = 16;
/// A field below the root may have this many links for each that leads to something of its own: registries give out
/// /32s, and one step that far is worth some memory
const THINNEST_BELOW_ROOT: usize = 128;
/// The same for any other field
const THINNEST: usize = 8;
/// With fewer routes than this inside, a field is given up for another node
const FEW_ROUTES: usize = 4;
/// A field lives through this many changes at least before its stride is chosen anew
const LEAST_PATIENCE: u32 = 64;
/// Lines that addresses are reserved for: 256 MiB
const MOST_LINES: usize = 1 << 22;
const _: () = assert!(MOST_LINES <= Link::LINES);

/// What a link was before, to give its nodes back or to take a failed change back
pub(super) struct Change {
    slot: usize,
    before: Link,
}

/// Links side by side, each for the prefix of `length` bits that follows the one before
struct Slots {
    range: Range<usize>,
    /// The first address of the first
    first: u128,
    length: u8,
}

/// An arena with an empty root
pub(super) fn arena() -> Result<Arena<Line>, NoRoom> {
    let lines = Arena::new(ROOT_LINES, MOST_LINES)?;
    for slot in &lines.memory().as_flattened()[..ROOT_LINES * LINKS] {
        Link::hop(NextHopId::NONE).store(slot);
    }
    Ok(lines)
}

impl Ipv6Table {
    /// Brings the nodes in line with the routes after those to `prefixes`, which are sorted, changed
    pub(super) fn refresh(
        &mut self,
        prefixes: impl IntoIterator<Item = Ipv6Prefix>,
    ) -> Result<(), TableError> {
        let mut changes = Vec::new();
        // The area that the last refresh covered; what comes next in order may lie in it.
        let mut done: Option<Ipv6Prefix> = None;
        for prefix in prefixes {
            if done.is_some_and(|done| done.covers(&prefix)) {
                continue;
            }
            let slots = self.lowest_slots(prefix);
            if let Err(no_room) = self.refresh_slots(&slots, &mut changes) {
                self.take_back(changes);
                return Err(no_room.into());
            }
            done = Some(slots.area());
        }
        for Change { before, .. } in changes {
            self.release(before);
        }
        self.lines.shrink_if_unused();
        Ok(())
    }

    /// Undoes changes, the last one first, for it may be inside what an earlier one made
    fn take_back(&mut self, changes: Vec<Change>) {
        for Change { slot, before } in changes.into_iter().rev() {
            let link = self.link_at(slot);
            before.store(self.slot(slot));
            self.release(link);
        }
    }

    fn slot(&self, slot: usize) -> &std::sync::atomic::AtomicU32 {
        &self.lines.memory().as_flattened()[slot]
    }

    fn link_at(&self, slot: usize) -> Link {
        Link::load(self.slot(slot))
    }

    /// The node in a line, for the only one who writes
    fn node(&self, line: usize) -> Node {
        // SAFETY: the callers give lines of nodes; only `&mut self` writes.
        *unsafe { Node::of(&self.lines.memory()[line]) }
    }

    /// The links that `prefix` covers or lies in, in the lowest field that is worth keeping
    fn lowest_slots(&mut self, prefix: Ipv6Prefix) -> Slots {
        let mut start = 0;
        let mut above = 0;
        let mut length = ROOT_LENGTH;
        loop {
            let slots = slots_of(start, above, length, prefix);
            let link = self.link_at(slots.range.start);
            let inside = Ipv6Prefix::containing(prefix.first(), length);
            if prefix.length() <= length
                || link.kind() != Link::FIELD
                || !self.rib.holds_more_than(FEW_ROUTES - 1, inside)
                || self.patience_is_over(link.line() as u32)
            {
                return slots;
            }
            start = link.line() * LINKS;
            above = length;
            length += link.stride() as u8;
        }
    }

    fn patience_is_over(&mut self, field: u32) -> bool {
        // Every field has its entry from when it was made.
        let Some(patience) = self.patience.get_mut(&field) else { return true };
        *patience = patience.saturating_sub(1);
        *patience == 0
    }

    /// Replaces links of one field; those that it replaced before it ran out of room are in `changes` as well
    fn refresh_slots(&mut self, slots: &Slots, changes: &mut Vec<Change>) -> Result<(), NoRoom> {
        let area = slots.area();
        let stretches = self.rib.stretches(area);
        let mut inside = &stretches[..];
        for (index, slot) in slots.range.clone().enumerate() {
            let part = part_of(area, index, slots.length);
            let before = self.link_at(slot);
            let link = self.link(next_within(&mut inside, part), part)?;
            if link != before {
                link.store(self.slot(slot));
                changes.push(Change { slot, before });
            }
        }
        Ok(())
    }

    /// A link for `area`, which `inside` divides
    fn link(&mut self, inside: &[Stretch<u128>], area: Ipv6Prefix) -> Result<Link, NoRoom> {
        if let [only] = inside {
            return Ok(Link::hop(only.hop));
        }
        if fits_keys(inside, area) {
            return self.leaves(inside, area);
        }
        match Fan::new(inside, area) {
            Some(fan) => self.fan(&fan, inside, area),
            None => self.field(inside, area),
        }
    }

    /// A leaf, or a branch with leaves
    fn leaves(&mut self, inside: &[Stretch<u128>], area: Ipv6Prefix) -> Result<Link, NoRoom> {
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
            let line = self.lines.take(1)?;
            leaves.zip(&self.lines.memory()[line as usize..]).for_each(|(node, line)| node.write(line));
            return Ok(Link::node(Link::LEAF, line));
        }
        let mut branch = Node::EMPTY;
        for (last, next) in branch.0.iter_mut().zip(inside.chunks(LEAF_HOPS).skip(1)) {
            *last = key(&next[0], area) - 1;
        }
        let line = self.lines.take(1 + inside.len().div_ceil(LEAF_HOPS))?;
        let nodes = std::iter::once(branch).chain(leaves);
        nodes.zip(&self.lines.memory()[line as usize..]).for_each(|(node, line)| node.write(line));
        Ok(Link::node(Link::BRANCH, line))
    }

    fn fan(&mut self, fan: &Fan, inside: &[Stretch<u128>], area: Ipv6Prefix) -> Result<Link, NoRoom> {
        let line = self.lines.take(1)?;
        let mut links = [Link::hop(NextHopId::NONE); FAN_LINKS];
        for index in 0..fan.count {
            let link = if let Some(hop) = fan.hops[index] {
                Ok(Link::hop(hop))
            } else {
                let start = u128::from(fan.starts[index]) << 96 >> area.length();
                let unit = Ipv6Prefix::containing(area.first() | start, area.length() + FAN_BITS as u8);
                self.link(within(inside, unit), unit)
            };
            match link {
                Ok(link) => links[index] = link,
                Err(no_room) => {
                    links[..index].iter().for_each(|link| self.release(*link));
                    self.lines.give_unused(line, 1);
                    return Err(no_room);
                }
            }
        }
        let mut node = Node::EMPTY;
        for (index, start) in fan.starts[1..fan.count].iter().enumerate() {
            node.set_pair(index, start - 1);
        }
        for (index, link) in links.iter().enumerate() {
            node.set_pair(FAN_LINKS + index, link.bits());
        }
        node.write(&self.lines.memory()[line as usize]);
        Ok(Link::node(Link::FAN, line))
    }

    fn field(&mut self, inside: &[Stretch<u128>], area: Ipv6Prefix) -> Result<Link, NoRoom> {
        let stride = stride_for(inside, area);
        let size = 1 << (stride - LEAST_STRIDE);
        let first = self.lines.take(size)?;
        let start = first as usize * LINKS;
        let mut rest = inside;
        for index in 0..1 << stride {
            let part = part_of(area, index, area.length() + stride);
            match self.link(next_within(&mut rest, part), part) {
                Ok(link) => link.store(self.slot(start + index)),
                Err(no_room) => {
                    self.release_slots(start..start + index);
                    self.lines.give_unused(first, size);
                    return Err(no_room);
                }
            }
        }
        self.patience.insert(first, LEAST_PATIENCE.max(2 * inside.len() as u32));
        Ok(Link::field(first, stride))
    }

    /// Gives back the node that `link` leads to, with all below it
    fn release(&mut self, link: Link) {
        let line = link.line();
        let size = match link.kind() {
            Link::LEAF => 1,
            Link::BRANCH => 1 + self.node(line).leaves(),
            Link::FAN => {
                let node = self.node(line);
                (0..FAN_LINKS).for_each(|index| self.release(node.link(index)));
                1
            }
            Link::FIELD => {
                self.release_slots(line * LINKS..(line * LINKS) + (1 << link.stride()));
                self.patience.remove(&(line as u32));
                1 << (link.stride() - u32::from(LEAST_STRIDE))
            }
            _ => return,
        };
        // A link's line has 24 bits.
        self.lines.retire(line as u32, size);
    }

    fn release_slots(&mut self, slots: Range<usize>) {
        for slot in slots {
            self.release(self.link_at(slot));
        }
    }
}

impl Slots {
    fn area(&self) -> Ipv6Prefix {
        Ipv6Prefix::containing(self.first, self.length - self.range.len().trailing_zeros() as u8)
    }
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

/// The stretches of an area at the resolution of a fan
struct Fan {
    count: usize,
    /// The 32 bits after the area's at which each starts
    starts: [u32; FAN_LINKS],
    /// What is there; `None` where a single value of the 32 bits is divided further
    hops: [Option<NextHopId>; FAN_LINKS],
}

impl Fan {
    /// `None` if there are too many for a fan
    fn new(inside: &[Stretch<u128>], area: Ipv6Prefix) -> Option<Self> {
        let mut fan = Self { count: 0, starts: [0; FAN_LINKS], hops: [None; FAN_LINKS] };
        let rest = |address: u128| (address & !u128::mask(area.length())) << area.length();
        let starts = |stretch: &Stretch<u128>| rest(stretch.first.max(area.first()));
        for (index, stretch) in inside.iter().enumerate() {
            let start = starts(stretch);
            let unit = (start >> 96) as u32;
            if start << 32 == 0 {
                fan.push(unit, Some(stretch.hop))?;
            } else {
                // It starts inside a unit, which is divided then. An earlier one may have divided it already.
                fan.push(unit, None)?;
            }
            let next = inside.get(index + 1).map(starts);
            let divided = fan.hops[fan.count - 1].is_none();
            // What follows a divided unit is the stretch's own again, if it reaches that far.
            if divided && unit < u32::MAX && next.is_none_or(|next| (next >> 96) as u32 > unit) {
                fan.push(unit + 1, Some(stretch.hop))?;
            }
        }
        Some(fan)
    }

    fn push(&mut self, start: u32, hop: Option<NextHopId>) -> Option<()> {
        if self.count > 0 && self.starts[self.count - 1] == start {
            self.count -= 1;
        }
        if self.count == self.starts.len() {
            return None;
        }
        (self.starts[self.count], self.hops[self.count]) = (start, hop);
        self.count += 1;
        Some(())
    }
}

/// The links from `start` on, each for a prefix of `length` bits in a field that stands for one of `above` bits, that
/// `prefix` covers or lies in
fn slots_of(start: usize, above: u8, length: u8, prefix: Ipv6Prefix) -> Slots {
    let field = Ipv6Prefix::containing(prefix.first(), above);
    let first = Ipv6Prefix::containing(prefix.first(), length).first();
    // A field has at most 2^16 links.
    let index = ((first ^ field.first()) >> (u128::BITS - u32::from(length))) as usize;
    let count = 1 << (length - prefix.length().clamp(above, length));
    Slots { range: start + index..start + index + count, first, length }
}

/// The prefix of `length` bits in `area` with `index` before it
fn part_of(area: Ipv6Prefix, index: usize, length: u8) -> Ipv6Prefix {
    Ipv6Prefix::containing(area.first() | (index as u128) << (u128::BITS - u32::from(length)), length)
}

/// How many bits should index a field for `area`: as many as leave it filled well enough
fn stride_for(inside: &[Stretch<u128>], area: Ipv6Prefix) -> u8 {
    let most = GREATEST_STRIDE.min(u128::BITS as u8 - area.length());
    let filled = |stride: u8| {
        let of = |stretch: &Stretch<u128>| {
            stretch.first.max(area.first()) >> (u128::BITS - u32::from(area.length() + stride))
        };
        1 + inside.windows(2).filter(|pair| of(&pair[0]) != of(&pair[1])).count()
    };
    let thinnest = if area.length() == ROOT_LENGTH { THINNEST_BELOW_ROOT } else { THINNEST };
    (LEAST_STRIDE + 1..=most)
        .rev()
        .find(|&stride| filled(stride) * thinnest >= 1 << stride)
        .unwrap_or(LEAST_STRIDE)
}

/// Those of `inside`, of which the earlier ones are cut off, that reach into `part`; for parts in order
fn next_within<'a>(inside: &mut &'a [Stretch<u128>], part: Ipv6Prefix) -> &'a [Stretch<u128>] {
    // Most parts of a large field have one stretch in common with the one before.
    while inside.get(1).is_some_and(|next| next.first <= part.first()) {
        *inside = &inside[1..];
    }
    let reaching = inside[1..].iter().take_while(|stretch| stretch.first <= part.last()).count();
    &inside[..=reaching]
}

/// The stretches that reach into `part`; the first may start before it
fn within(stretches: &[Stretch<u128>], part: Ipv6Prefix) -> &[Stretch<u128>] {
    let from = stretches.partition_point(|stretch| stretch.first <= part.first());
    let to = stretches.partition_point(|stretch| stretch.first <= part.last());
    // The stretches start at or before the part, so one at least does.
    &stretches[from.saturating_sub(1)..to]
}

#[cfg(test)]
mod tests {
    use warmlane_sync::rcu::Domain;

    use super::*;

    #[test]
    fn without_memory_the_table_stays_as_it_is() {
        let prefix = |text: &str| text.parse::<Ipv6Prefix>().unwrap();
        let hop = |number| NextHopId::new(number).unwrap();
        let (site, host) = (prefix("2001:db8:1::/48"), prefix("2001:db8:2::1/128"));
        let mut table = Ipv6Table::from_routes([(site, hop(1))]).unwrap();
        // A host route needs a fan for each 32 bits after the root's 16: let it have the first, but not all.
        for more in 0..4 {
            let end = table.lines.end();
            table.lines.set_limit(end + more);
            let used = table.lines.used();
            let bytes = (end + more + 1) * size_of::<Line>();
            if let Err(error) = table.insert(host, hop(2)) {
                assert_eq!(error, TableError::Full { bytes });
                assert_eq!((table.len(), table.lines.used()), (1, used));
                assert_eq!(
                    (table.lookup(host.first()), table.lookup(site.first())),
                    (NextHopId::NONE, hop(1))
                );
            }
        }
        table.lines.set_limit(usize::MAX);
        table.insert(host, hop(2)).unwrap();
        assert_eq!((table.lookup(host.first()), table.lookup(site.first())), (hop(2), hop(1)));
    }

    #[test]
    fn a_reader_that_does_not_report_fills_the_table_but_breaks_nothing() {
        let domain = Domain::new(1).unwrap();
        let mut reader = domain.reader("stuck").unwrap();
        let (site, part) = ("2001:db8::/32".parse().unwrap(), "2001:db8:8000::/33".parse().unwrap());
        let hop = |number| NextHopId::new(number).unwrap();
        let mut table = Ipv6Table::from_routes([(site, hop(1))]).unwrap();
        let lookup = table.share(&domain).unwrap();
        table.lines.set_limit(table.lines.end() + 2000);
        let before = lookup.read(&reader).unwrap();
        let mut number = 2;
        let full = loop {
            match table.insert(part, hop(number)) {
                Ok(_) => number += 1,
                Err(error) => break error,
            }
            assert!(number < 3000, "nothing stands in the way");
        };
        assert!(number > 1000 && matches!(full, TableError::Full { .. }), "{number}: {full}");
        assert_eq!((before.lookup(site.first()), before.lookup(part.first())), (hop(1), hop(number - 1)));
        reader.quiescent();
        assert_eq!(table.insert(part, hop(7)), Ok(Some(hop(number - 1))));
    }
}
