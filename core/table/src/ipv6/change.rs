//! How nodes change with the routes: along the way to what changed, and there only
//!
//! A field's links are replaced one by one. Any other node is made anew with the changed link or stretches, and keeps the links
//! to all else, so a change costs the same however many routes lie beside it.

use super::Ipv6Table;
use super::build::{
    self, Entry, FEW_ROUTES, LEAST_CHANGES, ROOT_LENGTH, divide, field_lines, next_within, part_of, push,
    within,
};
use super::node::{FAN_LINKS, LINKS, Link, Node};
use super::overlay::{Cursor, Patch, overlaid};
use crate::TableError;
use crate::arena::NoSpace;
use crate::prefix::{Address, Ipv6Prefix};
use crate::rib::Stretch;
use crate::work;

/// Nodes and links of a change that space is kept for
const KEPT: usize = 1024;

/// Lines of a node
#[derive(Clone, Copy, Debug)]
struct Run {
    line: u32,
    size: usize,
    is_field: bool,
}

/// What a change has done so far, so that it can be completed or taken back
#[derive(Debug, Default)]
pub(super) struct Journal {
    /// Nodes that are new
    made: Vec<Run>,
    /// Nodes that nothing will lead to
    replaced: Vec<Run>,
    /// Links of fields, as they were before
    links: Vec<(usize, Link)>,
    /// Whether a route goes, so that less may do
    pub(super) removes: bool,
}

impl Journal {
    /// Keeps some space for the next change
    fn clear(&mut self) {
        self.made.clear();
        self.replaced.clear();
        self.links.clear();
        self.made.shrink_to(KEPT);
        self.replaced.shrink_to(KEPT);
        self.links.shrink_to(KEPT);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        (self.made.capacity() + self.replaced.capacity()) * size_of::<Run>()
            + self.links.capacity() * size_of::<(usize, Link)>()
    }
}

impl Ipv6Table {
    /// Brings the nodes in line with the routes after those to `prefixes`, which are sorted, changed
    pub(super) fn refresh(&mut self, prefixes: &[Ipv6Prefix]) -> Result<(), TableError> {
        let mut patches = Vec::new();
        self.add_patches(prefixes, &mut patches);
        let result = self.update_links(0, Ipv6Prefix::all(), ROOT_LENGTH, &patches);
        let mut journal = std::mem::take(&mut self.journal);
        if result.is_err() {
            // The last one first, for it may be inside what an earlier one led to.
            for (slot, before) in journal.links.iter().rev() {
                before.store(self.slot(*slot));
            }
        }
        for run in if result.is_ok() { &journal.replaced } else { &journal.made } {
            if run.is_field {
                self.changes_left.remove(&run.line);
            }
            self.lines.retire(run.line, run.size);
        }
        self.lines.shrink_if_unused();
        journal.clear();
        self.journal = journal;
        result.map_err(TableError::from)
    }

    /// Adds patches for `prefixes`, which are sorted: few of them, as each asks for the routes around it
    fn add_patches(&self, prefixes: &[Ipv6Prefix], patches: &mut Vec<Patch>) {
        let [first, .., last] = prefixes else {
            patches.extend(prefixes.iter().map(|prefix| self.patch(*prefix)));
            return;
        };
        let common = first.first().common_length(last.first()).min(first.length());
        let all = Ipv6Prefix::containing(first.first(), common);
        let longest = prefixes.iter().map(Ipv6Prefix::length).max().unwrap_or_default();
        // Neither many routes nor many links may lie between the prefixes.
        let is_dense = || {
            u32::from(longest - common) <= (4 * prefixes.len()).ilog2()
                && !self.rib.holds_more_than(4 * prefixes.len(), all)
        };
        if first.length() == common || is_dense() {
            patches.push(self.patch(all));
        } else {
            let upper = all.first() | 1 << (u128::BITS - 1 - u32::from(common));
            let (lower, upper) = prefixes.split_at(prefixes.partition_point(|prefix| prefix.first() < upper));
            self.add_patches(lower, patches);
            self.add_patches(upper, patches);
        }
    }

    fn patch(&self, prefix: Ipv6Prefix) -> Patch {
        Patch { prefix, stretches: self.rib.stretches(prefix) }
    }

    /// Lines for a new node
    pub(super) fn take(&mut self, size: usize, is_field: bool) -> Result<u32, NoSpace> {
        let line = self.lines.take(size)?;
        self.journal.made.push(Run { line, size, is_field });
        Ok(line)
    }

    /// Lines for a new field, which will have been chosen for so many parts
    pub(super) fn take_field(&mut self, stride: u8, parts: usize) -> Result<u32, NoSpace> {
        let line = self.take(field_lines(stride), true)?;
        self.changes_left.insert(line, changes_until_restride(parts + (1 << stride)));
        Ok(line)
    }

    /// Notes that nothing will lead to a node, though something may to those below
    pub(super) fn replace(&mut self, link: Link) {
        let line = link.line();
        let size = match link.kind() {
            Link::HOP => return,
            Link::FIELD => field_lines(link.stride() as u8),
            Link::BRANCH => 1 + self.node(line).leaves(),
            _ => 1,
        };
        // A link's line has 23 bits.
        self.journal.replaced.push(Run { line: line as u32, size, is_field: link.kind() == Link::FIELD });
    }

    /// Notes the same of all that is below as well
    pub(super) fn replace_all(&mut self, link: Link) {
        match link.kind() {
            Link::FAN => {
                let node = self.node(link.line());
                let nodes = (0..FAN_LINKS).map(|index| node.link(index)).filter(|link| !link.is_hop());
                nodes.for_each(|link| self.replace_all(link));
            }
            Link::FIELD => {
                let first = link.line() * LINKS;
                for slot in first..first + (1 << link.stride()) {
                    let link = self.link_at(slot);
                    if !link.is_hop() {
                        self.replace_all(link);
                    }
                }
            }
            _ => {}
        }
        self.replace(link);
    }

    pub(super) fn slot(&self, slot: usize) -> &std::sync::atomic::AtomicU32 {
        &self.lines.memory().as_flattened()[slot]
    }

    pub(super) fn link_at(&self, slot: usize) -> Link {
        work::add(1);
        Link::load(self.slot(slot))
    }

    /// The node in a line, for the only one who writes
    pub(super) fn node(&self, line: usize) -> Node {
        work::add(1);
        // SAFETY: the callers give lines of nodes; only `&mut self` writes.
        *unsafe { Node::of(&self.lines.memory()[line]) }
    }

    /// Replaces those links, of the field for `area` that starts there, that the patches are about; each link is for a prefix of
    /// `length` bits
    fn update_links(
        &mut self,
        start: usize,
        area: Ipv6Prefix,
        length: u8,
        mut patches: &[Patch],
    ) -> Result<(), NoSpace> {
        while let [patch, others @ ..] = patches {
            let first = Ipv6Prefix::containing(patch.prefix.first(), length);
            // A field has at most 2^16 links.
            let index = ((first.first() ^ area.first()) >> (u128::BITS - u32::from(length))) as usize;
            if patch.prefix.length() >= length {
                let count = patches.iter().take_while(|patch| first.covers(&patch.prefix)).count();
                let (inside, others) = patches.split_at(count);
                self.update_link(start + index, first, inside)?;
                patches = others;
            } else {
                let count = 1 << (length - patch.prefix.length().clamp(area.length(), length));
                let mut inside = &patch.stretches[..];
                for index in index..index + count {
                    let part = part_of(area, index, length);
                    let before = self.link_at(start + index);
                    let link = self.build(next_within(&mut inside, part), part)?;
                    if !before.is_hop() {
                        self.replace_all(before);
                    }
                    self.set_link(start + index, before, link);
                }
                patches = others;
            }
        }
        Ok(())
    }

    fn update_link(&mut self, slot: usize, area: Ipv6Prefix, patches: &[Patch]) -> Result<(), NoSpace> {
        let before = self.link_at(slot);
        let link = self.update(before, area, patches)?;
        self.set_link(slot, before, link);
        Ok(())
    }

    fn set_link(&mut self, slot: usize, before: Link, link: Link) {
        if link != before {
            link.store(self.slot(slot));
            self.journal.links.push((slot, before));
        }
    }

    /// A link for `area` in place of this one, after what the patches say, all of which reach into the area
    fn update(&mut self, link: Link, area: Ipv6Prefix, patches: &[Patch]) -> Result<Link, NoSpace> {
        if let [patch] = patches
            && patch.prefix.covers(&area)
        {
            let new = self.build(within(&patch.stretches, area), area)?;
            self.replace_all(link);
            return Ok(new);
        }
        match link.kind() {
            Link::FIELD => self.update_field(link, area, patches),
            Link::FAN => self.update_fan(link, area, patches),
            kind => {
                let before = if kind == Link::HOP {
                    vec![Stretch { first: area.first(), hop: link.next_hop() }]
                } else {
                    self.leaf_stretches(link, area)
                };
                let now = overlaid(&before, area, patches);
                if now == before {
                    return Ok(link);
                }
                let new = self.build(&now, area)?;
                self.replace(link);
                Ok(new)
            }
        }
    }

    fn update_field(&mut self, link: Link, area: Ipv6Prefix, patches: &[Patch]) -> Result<Link, NoSpace> {
        if self.journal.removes && !self.rib.holds_more_than(FEW_ROUTES - 1, area) {
            return self.rebuild(link, area);
        }
        let length = area.length() + link.stride() as u8;
        self.update_links(link.line() * LINKS, area, length, patches)?;
        // Every field has its entry from when it was made.
        let Some(changes_left) = self.changes_left.get_mut(&(link.line() as u32)) else { return Ok(link) };
        *changes_left = changes_left.saturating_sub(patches.len() as u32);
        if *changes_left == 0 { self.choose_stride(link, area) } else { Ok(link) }
    }

    /// A link for `area` as a new table has it. For areas with few routes, which are all visited.
    pub(super) fn rebuild(&mut self, link: Link, area: Ipv6Prefix) -> Result<Link, NoSpace> {
        let new = self.build(&self.rib.stretches(area), area)?;
        self.replace_all(link);
        Ok(new)
    }

    fn update_fan(&mut self, link: Link, area: Ipv6Prefix, mut patches: &[Patch]) -> Result<Link, NoSpace> {
        let bits = link.stride() as u8;
        let entries = self.fan_entries(link.line());
        let mut before = Cursor { entries: &entries, at: Some(0) };
        let mut now = Vec::with_capacity(entries.len() + 2);
        let unit_length = area.length() + bits;
        while let [patch, others @ ..] = patches {
            let unit = Ipv6Prefix::containing(patch.prefix.first(), unit_length);
            let start = build::start_in(area, unit.first());
            before.copy_until(start, &mut now);
            if patch.prefix.length() >= unit_length {
                let count = patches.iter().take_while(|patch| unit.covers(&patch.prefix)).count();
                let (inside, others) = patches.split_at(count);
                let link = self.update(before.link(), unit, inside)?;
                push(&mut now, Entry { start, link });
                before.skip_to(start.checked_add(build::unit_size(bits)));
                patches = others;
            } else {
                let end = start.checked_add(build::unit_size(patch.prefix.length() - area.length()));
                before.skipped(end).for_each(|entry| self.replace_all(entry.link));
                let parts = divide(&patch.stretches, area, bits, usize::MAX).unwrap_or_default();
                let count = parts.iter().take_while(|part| end.is_none_or(|end| part.0 < end)).count();
                for entry in self.entries(&parts[..count], &patch.stretches, area, bits)? {
                    push(&mut now, entry);
                }
                before.skip_to(end);
                patches = others;
            }
        }
        before.copy_rest(&mut now);
        if now == entries {
            return Ok(link);
        }
        let new = self.assemble(&now, area, bits)?;
        self.replace(link);
        Ok(new)
    }
}

/// How many changes a field lives through, if it costs that much to choose its stride
pub(super) fn changes_until_restride(cost: usize) -> u32 {
    LEAST_CHANGES.max(cost / 8) as u32
}

#[cfg(test)]
mod tests {
    use warmlane_sync::rcu::Domain;
    use warmlane_sys::random::Random;

    use super::super::node::Line;
    use super::*;
    use crate::NextHopId;

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
                    (table.lookup(host.first().to_be_bytes()), table.lookup(site.first().to_be_bytes())),
                    (NextHopId::NONE, hop(1))
                );
            }
        }
        table.lines.set_limit(usize::MAX);
        table.insert(host, hop(2)).unwrap();
        assert_eq!(
            (table.lookup(host.first().to_be_bytes()), table.lookup(site.first().to_be_bytes())),
            (hop(2), hop(1))
        );
    }

    #[test]
    fn patches_side_by_side_leave_nothing_between_them() {
        let hop = |number| NextHopId::new(number).unwrap();
        let patch = |text: &str, number| {
            let prefix: Ipv6Prefix = text.parse().unwrap();
            Patch { prefix, stretches: vec![Stretch { first: prefix.first(), hop: hop(number) }] }
        };
        let patches = [patch("::1/128", 2), patch("::2/127", 3), patch("::6/128", 1), patch("::ffff/128", 4)];
        let before = [Stretch { first: 0, hop: hop(1) }, Stretch { first: 3, hop: hop(5) }];
        let now = overlaid(&before, "::/112".parse().unwrap(), &patches);
        let expected = [(0, 1), (1, 2), (2, 3), (4, 5), (6, 1), (7, 5), (0xffff, 4)];
        assert_eq!(now, expected.map(|(first, number)| Stretch { first, hop: hop(number) }));
    }

    #[test]
    fn without_memory_at_any_step_the_table_stays_as_it_is() {
        let hop = |number| NextHopId::new(number).unwrap();
        let mut random = Random::new(0);
        let mut table = Ipv6Table::new().unwrap();
        // Enough of them that fields are made, get other strides and hold other nodes.
        let site = 0x2001_0db8_u128 << 96;
        let near = |random: &mut Random| match random.below(3) {
            0 => u128::from(random.bits()),
            1 => u128::from(random.bits() % 2000),
            _ => u128::from(random.bits() & 0x7) << 64 | u128::from(random.bits()) >> 40,
        };
        let mut hosts: Vec<_> = (0..3000).map(|_| site | near(&mut random)).collect();
        hosts.sort_unstable();
        hosts.dedup();
        (1..hosts.len()).for_each(|last| hosts.swap(last, random.below(last + 1)));
        let mut refusals = 0;
        for (number, host) in hosts.iter().enumerate() {
            let host = Ipv6Prefix::containing(*host, 128);
            let (used, end) = (table.lines.used(), table.lines.end());
            let mut more = 0;
            table.lines.set_limit(end);
            while let Err(error) = table.insert(host, hop(number as u32)) {
                assert!(matches!(error, TableError::Full { .. }), "{error}");
                assert_eq!((table.len(), table.lines.used()), (number, used));
                assert_eq!(table.lookup(host.first().to_be_bytes()), NextHopId::NONE);
                if refusals % 16 == 0 {
                    let mut others = hosts[..number].iter().enumerate();
                    assert!(
                        others.all(|(number, host)| table.lookup(host.to_be_bytes()) == hop(number as u32))
                    );
                }
                refusals += 1;
                more += 1 + more / 8;
                table.lines.set_limit(end + more);
            }
        }
        assert!(refusals > 1000, "{refusals}");
        assert!(
            hosts
                .iter()
                .enumerate()
                .all(|(number, host)| table.lookup(host.to_be_bytes()) == hop(number as u32))
        );
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
        assert_eq!(
            (before.lookup(site.first().to_be_bytes()), before.lookup(part.first().to_be_bytes())),
            (hop(1), hop(number - 1))
        );
        reader.quiescent();
        assert_eq!(table.insert(part, hop(7)), Ok(Some(hop(number - 1))));
    }
}
