//! Next hops in use: a number for each, by what it is for, as long as something leads there.

use std::collections::HashMap;

use warmlane_forward::control::groups::{Group, Member};
use warmlane_forward::control::{LiveError, LiveRoutes, NextHop};
use warmlane_table::NextHopId;

use super::desired::{Desired, HopContent, HopKey};

/// A next hop in use.
struct Slot {
    key: HopKey,
    /// Prefixes and groups that lead here.
    uses: u32,
    /// If it is a group: its members, each of which is used once by it.
    members: Vec<NextHopId>,
}

/// Next hops, by their numbers and by what they are for.
#[derive(Default)]
pub(crate) struct NextHops {
    by_key: HashMap<HopKey, NextHopId>,
    slots: Vec<Option<Slot>>,
    contents: Vec<NextHop>,
    /// `contents` isn't with the lanes yet.
    pub(crate) is_unpublished: bool,
}

impl NextHops {
    /// How many are in use.
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// What each number is. What it was stays after its last use: a lane may be about to ask.
    pub(crate) fn contents(&self) -> &[NextHop] {
        &self.contents
    }

    /// What a number in use is for.
    pub(crate) fn key(&self, id: NextHopId) -> Option<&HopKey> {
        self.slots.get(id.index())?.as_ref().map(|slot| &slot.key)
    }

    /// The number of a next hop, which is used once more from now on.
    pub(crate) fn acquire(
        &mut self,
        key: HopKey,
        desired: &Desired<'_>,
        live: &mut LiveRoutes,
    ) -> Result<NextHopId, LiveError> {
        if let Some(&id) = self.by_key.get(&key) {
            if let Some(Some(slot)) = self.slots.get_mut(id.index()) {
                slot.uses += 1;
            }
            return Ok(id);
        }
        let id = live.take_number()?;
        if self.slots.len() <= id.index() {
            self.slots.resize_with(id.index() + 1, || None);
            self.contents.resize(id.index() + 1, NextHop::Drop);
        }
        self.slots[id.index()] = Some(Slot { key: key.clone(), uses: 1, members: Vec::new() });
        self.contents[id.index()] = NextHop::Drop;
        self.by_key.insert(key, id);
        self.is_unpublished = true;
        if let Err(error) = self.fill(id, desired, live) {
            self.release(id, live);
            return Err(error);
        }
        Ok(id)
    }

    /// A next hop is used once less; after its last use its number is free as soon as no lane can have it.
    pub(crate) fn release(&mut self, id: NextHopId, live: &mut LiveRoutes) {
        let Some(entry) = self.slots.get_mut(id.index()) else { return };
        let Some(slot) = entry else { return };
        slot.uses = slot.uses.saturating_sub(1);
        if slot.uses > 0 {
            return;
        }
        if let Some(slot) = entry.take() {
            self.by_key.remove(&slot.key);
            live.free_number(id);
            for member in slot.members {
                self.release(member, live);
            }
        }
    }

    /// Works out anew what all next hops are.
    pub(crate) fn refresh(&mut self, desired: &Desired<'_>, live: &mut LiveRoutes) -> Result<(), LiveError> {
        let used: Vec<NextHopId> = self.by_key.values().copied().collect();
        // One that a group held may be gone by the time it is its turn; `fill` leaves it alone.
        used.into_iter().map(|id| self.fill(id, desired, live)).fold(Ok(()), Result::and)
    }

    /// Works out what a next hop is.
    fn fill(&mut self, id: NextHopId, desired: &Desired<'_>, live: &mut LiveRoutes) -> Result<(), LiveError> {
        let Some(Some(slot)) = self.slots.get(id.index()) else { return Ok(()) };
        let content = desired.content(&slot.key);
        let (content, members) = match content {
            HopContent::Plain(hop) => (hop, Vec::new()),
            HopContent::Group(paths) => {
                let mut members = Vec::new();
                for (path, weight) in paths {
                    match self.acquire(path, desired, live) {
                        Ok(hop) => members.push(Member { hop, weight }),
                        Err(error) => {
                            for member in &members {
                                self.release(member.hop, live);
                            }
                            return Err(error);
                        }
                    }
                }
                // Flows stay where they are, as far as that is possible.
                let group = match self.contents.get(id.index()) {
                    Some(NextHop::Group(old)) => {
                        let mut group = old.clone();
                        group.set_members(&members).map(|()| group)
                    }
                    _ => Group::new(&members),
                };
                let ids = members.iter().map(|member| member.hop).collect();
                (group.map_or(NextHop::Punt, NextHop::Group), ids)
            }
        };
        if let Some(known) = self.contents.get_mut(id.index())
            && *known != content
        {
            *known = content;
            self.is_unpublished = true;
        }
        if let Some(Some(slot)) = self.slots.get_mut(id.index()) {
            for member in std::mem::replace(&mut slot.members, members) {
                self.release(member, live);
            }
        }
        Ok(())
    }
}
