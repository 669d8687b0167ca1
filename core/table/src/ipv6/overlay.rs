//! What a node holds, with what changed laid over it

use super::build::{Entry, push};
use super::node::Link;
use crate::prefix::{Address, Ipv6Prefix};
use crate::rib::Stretch;

/// A prefix whose routes changed, and how they divide it now
pub(super) struct Patch {
    pub(super) prefix: Ipv6Prefix,
    pub(super) stretches: Vec<Stretch<u128>>,
}

/// A place in the entries of a fan
pub(super) struct Cursor<'a> {
    /// Those from the place on; the first may start before it
    pub(super) entries: &'a [Entry],
    /// `None` after the last
    pub(super) at: Option<u32>,
}

impl<'a> Cursor<'a> {
    /// What is at the place, which is not after the last
    pub(super) fn link(&self) -> Link {
        self.entries[0].link
    }

    /// The entries from the place to `end`
    pub(super) fn skipped(&self, end: Option<u32>) -> impl Iterator<Item = &'a Entry> + use<'a> {
        self.entries.iter().take_while(move |entry| end.is_none_or(|end| entry.start < end))
    }

    pub(super) fn skip_to(&mut self, end: Option<u32>) {
        self.at = end;
        if let Some(end) = end {
            let before = self.entries[1..].iter().take_while(|entry| entry.start <= end).count();
            self.entries = &self.entries[before..];
        }
    }

    pub(super) fn copy_until(&mut self, end: u32, to: &mut Vec<Entry>) {
        if let Some(at) = self.at
            && at < end
        {
            for entry in self.skipped(Some(end)) {
                push(to, Entry { start: entry.start.max(at), ..*entry });
            }
        }
        self.skip_to(Some(end));
    }

    pub(super) fn copy_rest(&self, to: &mut Vec<Entry>) {
        if let Some(at) = self.at {
            for entry in self.entries {
                push(to, Entry { start: entry.start.max(at), ..*entry });
            }
        }
    }
}

/// The stretches of an area with those of the patches, which lie in it, in their place
pub(super) fn overlaid(before: &[Stretch<u128>], area: Ipv6Prefix, patches: &[Patch]) -> Vec<Stretch<u128>> {
    let inside = patches.iter().map(|patch| patch.stretches.len() + 1).sum::<usize>();
    let mut now: Vec<Stretch<u128>> = Vec::with_capacity(before.len() + inside);
    let mut push = |first: u128, hop| {
        if now.last().is_none_or(|last| last.hop != hop) {
            now.push(Stretch { first, hop });
        }
    };
    let mut rest = before;
    // The first address that no patch so far covers, or lies before one
    let mut at = area.first();
    for patch in patches {
        let (until, beyond) =
            rest.split_at(rest.partition_point(|stretch| stretch.first < patch.prefix.first()));
        if at < patch.prefix.first() {
            for stretch in until {
                push(stretch.first.max(at), stretch.hop);
            }
        }
        patch.stretches.iter().for_each(|stretch| push(stretch.first, stretch.hop));
        if patch.prefix.last() == area.last() {
            return now;
        }
        at = patch.prefix.last().successor();
        // What follows the patch may start in it, or before.
        let inside = beyond.partition_point(|stretch| stretch.first <= at);
        rest = &rest[(until.len() + inside).saturating_sub(1)..];
    }
    for stretch in rest {
        push(stretch.first.max(at), stretch.hop);
    }
    now
}
