//! How routes become fields and fans

use std::ops::Range;

use super::{
    FAN_KEYS, FIELD, FIRST_LINE, Ipv6Table, LINKS, Line, NODE, ROOT_BITS, STRIDE_MASK, STRIDE_SHIFT,
};
use crate::arena::{Arena, OutOfMemory};
use crate::prefix::{Address, Ipv6Prefix};
use crate::rib::Stretch;
use crate::{NextHopId, TableError};

/// The length of the prefix that a link of the root stands for
const ROOT_LENGTH: u8 = ROOT_BITS as u8;
const ROOT_LINES: usize = (1 << ROOT_BITS) / LINKS;
/// Bits that index the smallest field, one line
const LEAST_STRIDE: u8 = 4;
/// Bits that index the largest field, 256 KiB
const GREATEST_STRIDE: u8 = 16;
/// A field may have this many links for each that leads to something of its own
const THINNEST: usize = 8;
/// With fewer routes than this inside, a field is given up for a fan
const FEW_ROUTES: usize = 4;
/// A field lives through this many changes at least before its stride is chosen anew
const LEAST_PATIENCE: u32 = 64;

/// What a link was before, to give its nodes back or to take a failed change back
struct Change {
    slot: usize,
    before: u32,
}

/// Links side by side, each for the prefix of `length` bits that follows the one before
struct Slots {
    range: Range<usize>,
    /// The first address of the first
    first: u128,
    length: u8,
}

/// An arena for a table of about `routes` routes, with an empty root
pub(super) fn arena(routes: usize) -> Result<Arena<Line>, OutOfMemory> {
    Arena::new(ROOT_LINES, ROOT_LINES + routes, FIRST_LINE as usize)
}

impl Ipv6Table {
    /// Brings the nodes in line with the routes after the route to `prefix` changed
    pub(super) fn refresh(&mut self, prefix: Ipv6Prefix) -> Result<(), TableError> {
        let slots = self.lowest_slots(prefix);
        self.refresh_slots(&slots)?;
        self.lines.shrink_if_unused();
        if self.lines.is_sparse() {
            self.rebuild();
        }
        Ok(())
    }

    /// Builds everything anew without gaps; without memory for that, the table stays as it is and is as right as before
    fn rebuild(&mut self) {
        let Ok(lines) = arena(self.rib.len()) else { return };
        let before = (std::mem::replace(&mut self.lines, lines), std::mem::take(&mut self.patience));
        if self.refresh_slots(&slots_of(0, 0, ROOT_LENGTH, Ipv6Prefix::all())).is_err() {
            (self.lines, self.patience) = before;
        }
    }

    /// The links that `prefix` covers or lies in, in the lowest field that is worth keeping
    fn lowest_slots(&mut self, prefix: Ipv6Prefix) -> Slots {
        let mut start = 0;
        let mut above = 0;
        let mut length = ROOT_LENGTH;
        loop {
            let slots = slots_of(start, above, length, prefix);
            let link = self.lines.slots().as_flattened()[slots.range.start];
            let inside = Ipv6Prefix::containing(prefix.first(), length);
            if prefix.length() <= length
                || link & NODE == 0
                || link & FIELD == 0
                || !self.rib.holds_more_than(FEW_ROUTES - 1, inside)
                || self.patience_is_over(link & FIRST_LINE)
            {
                return slots;
            }
            start = (link & FIRST_LINE) as usize * LINKS;
            above = length;
            length += (link >> STRIDE_SHIFT & STRIDE_MASK) as u8;
        }
    }

    fn patience_is_over(&mut self, field: u32) -> bool {
        // Every field has its entry from when it was made.
        let Some(patience) = self.patience.get_mut(&field) else { return true };
        *patience = patience.saturating_sub(1);
        *patience == 0
    }

    /// Replaces links of one field
    fn refresh_slots(&mut self, slots: &Slots) -> Result<(), TableError> {
        let count = slots.range.len();
        let area = Ipv6Prefix::containing(slots.first, slots.length - count.trailing_zeros() as u8);
        let stretches = self.rib.stretches(area);
        let mut changes: Vec<Change> = Vec::new();
        for (index, slot) in slots.range.clone().enumerate() {
            let part = part_of(area, index, slots.length);
            let before = self.lines.slots().as_flattened()[slot];
            match self.link(within(&stretches, part), part) {
                Ok(link) => {
                    self.lines.slots_mut().as_flattened_mut()[slot] = link;
                    changes.push(Change { slot, before });
                }
                Err(error) => {
                    for Change { slot, before } in changes {
                        let link =
                            std::mem::replace(&mut self.lines.slots_mut().as_flattened_mut()[slot], before);
                        self.release(link);
                    }
                    return Err(error.into());
                }
            }
        }
        for Change { before, .. } in changes {
            self.release(before);
        }
        Ok(())
    }

    /// A link for `area`, which `inside` divides
    fn link(&mut self, inside: &[Stretch<u128>], area: Ipv6Prefix) -> Result<u32, OutOfMemory> {
        if let [only] = inside {
            return Ok(u32::from(only.hop.stored()));
        }
        match Fan::new(inside, area) {
            Some(fan) => self.fan(&fan, inside, area),
            None => self.field(inside, area),
        }
    }

    fn fan(&mut self, fan: &Fan, inside: &[Stretch<u128>], area: Ipv6Prefix) -> Result<u32, OutOfMemory> {
        let line = self.lines.take(1)?;
        let mut links = [0; FAN_KEYS + 1];
        for index in 0..fan.count {
            let link = if let Some(hop) = fan.hops[index] {
                Ok(u32::from(hop.stored()))
            } else {
                let start = u128::from(fan.starts[index]) << 96 >> area.length();
                let unit = Ipv6Prefix::containing(area.first() | start, area.length() + 32);
                self.link(within(inside, unit), unit)
            };
            match link {
                Ok(link) => links[index..].fill(link),
                Err(error) => {
                    self.release_each(&links[..index]);
                    self.lines.give(line, 1);
                    return Err(error);
                }
            }
        }
        let node = &mut self.lines.slots_mut()[line as usize];
        // Places without a start have the greatest, and with it the last link again.
        node[..FAN_KEYS].fill(u32::MAX);
        node[..fan.count - 1].copy_from_slice(&fan.starts[1..fan.count]);
        node[FAN_KEYS..=2 * FAN_KEYS].copy_from_slice(&links);
        Ok(line | NODE)
    }

    fn field(&mut self, inside: &[Stretch<u128>], area: Ipv6Prefix) -> Result<u32, OutOfMemory> {
        let stride = stride_for(inside, area);
        let size = 1 << (stride - LEAST_STRIDE);
        let first = self.lines.take(size)?;
        let start = first as usize * LINKS;
        for index in 0..1 << stride {
            let part = part_of(area, index, area.length() + stride);
            match self.link(within(inside, part), part) {
                Ok(link) => self.lines.slots_mut().as_flattened_mut()[start + index] = link,
                Err(error) => {
                    self.release_slots(start..start + index);
                    self.lines.give(first, size);
                    return Err(error);
                }
            }
        }
        self.patience.insert(first, LEAST_PATIENCE.max(2 * inside.len() as u32));
        Ok(first | u32::from(stride) << STRIDE_SHIFT | FIELD | NODE)
    }

    /// Gives back the node that `link` leads to, with all below it
    fn release(&mut self, link: u32) {
        let first = link & FIRST_LINE;
        if link & NODE == 0 {
            return;
        }
        if link & FIELD == 0 {
            let node = self.lines.slots()[first as usize];
            self.release_each(&node[FAN_KEYS..=2 * FAN_KEYS]);
            self.lines.give(first, 1);
        } else {
            let stride = link >> STRIDE_SHIFT & STRIDE_MASK;
            let start = first as usize * LINKS;
            self.release_slots(start..start + (1 << stride));
            self.patience.remove(&first);
            self.lines.give(first, 1 << (stride - u32::from(LEAST_STRIDE)));
        }
    }

    fn release_slots(&mut self, slots: Range<usize>) {
        for slot in slots {
            self.release(self.lines.slots().as_flattened()[slot]);
        }
    }

    /// Of links that stand in several places next to each other, each once
    fn release_each(&mut self, links: &[u32]) {
        for (index, &link) in links.iter().enumerate() {
            if index == 0 || links[index - 1] != link {
                self.release(link);
            }
        }
    }
}

/// The stretches of an area at the resolution of a fan
struct Fan {
    count: usize,
    /// The 32 bits after the area's at which each starts
    starts: [u32; FAN_KEYS + 1],
    /// What is there; `None` where a single value of the 32 bits is divided further
    hops: [Option<NextHopId>; FAN_KEYS + 1],
}

impl Fan {
    /// `None` if there are too many for a fan
    fn new(inside: &[Stretch<u128>], area: Ipv6Prefix) -> Option<Self> {
        let mut fan = Self { count: 0, starts: [0; FAN_KEYS + 1], hops: [None; FAN_KEYS + 1] };
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
    (LEAST_STRIDE + 1..=most)
        .rev()
        .find(|&stride| filled(stride) * THINNEST >= 1 << stride)
        .unwrap_or(LEAST_STRIDE)
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
                assert_eq!(error, TableError::Memory { bytes });
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
}
