//! A split ring, as its driver uses it.

use super::{DriverRing, Post};
use crate::queue::side::Broken;
use crate::ring::split::SplitRing;
use crate::ring::{Descriptor, NEXT, WRITE, wants_event};
use std::sync::atomic::{Ordering, fence};

const BAD_INDEX: Broken = Broken("an impossible index of used buffers");

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct SplitDriverRing {
    ring: SplitRing,
    /// Posts that were never written to this ring: descriptors of buffers that the device fills are always the same.
    unwritten: u32,
    /// The next available entry.
    next: u16,
    /// Entries below were published.
    published: u16,
    /// The device was asked about entries below.
    asked: u16,
    /// The next used entry.
    used: u16,
    /// Used entries below were seen.
    seen: u16,
    event_index: bool,
}

impl SplitDriverRing {
    /// A ring that is all zero.
    pub(crate) const fn new(ring: SplitRing, event_index: bool) -> Self {
        let unwritten = ring.size() as u32;
        Self { ring, unwritten, next: 0, published: 0, asked: 0, used: 0, seen: 0, event_index }
    }
}

impl SplitDriverRing {
    /// How many used entries are there; it looks for more if none was seen.
    #[inline(always)]
    fn used_entries(&mut self) -> Result<u16, Broken> {
        if self.used == self.seen {
            self.seen = self.ring.used_index();
            // No more than were made available.
            if self.seen.wrapping_sub(self.used) > self.published.wrapping_sub(self.used) {
                self.seen = self.used;
                return Err(BAD_INDEX);
            }
        }
        Ok(self.seen.wrapping_sub(self.used))
    }
}

impl DriverRing for SplitDriverRing {
    #[inline(always)]
    fn take_used(&mut self, most: u16, mut take: impl FnMut(u32, u32) -> bool) -> Result<(), Broken> {
        let (ring, mut left) = (self.ring, most);
        while left > 0 {
            let there = self.used_entries()?.min(left);
            let (start, mut taken) = (self.used, 0);
            while taken < there {
                let (name, length) = ring.used_entry(start.wrapping_add(taken));
                if !take(name, length) {
                    break;
                }
                taken += 1;
            }
            self.used = start.wrapping_add(taken);
            if there == 0 || taken < there {
                break;
            }
            left -= there;
        }
        Ok(())
    }

    #[inline(always)]
    fn next_used(&mut self) -> Result<Option<(u32, u32)>, Broken> {
        Ok((self.used_entries()? > 0).then(|| self.ring.used_entry(self.used)))
    }

    #[inline(always)]
    fn skip_used(&mut self, buffers: u16, _descriptors: u16) -> Result<(), Broken> {
        if buffers > self.seen.wrapping_sub(self.used) {
            return Err(BAD_INDEX);
        }
        self.used = self.used.wrapping_add(buffers);
        Ok(())
    }

    /// With the index.
    #[inline(always)]
    fn acquire(&self) {}

    #[inline(always)]
    fn post(&mut self, post: Post) {
        let Post { number, name, address, length, flags, next } = post;
        if flags & WRITE == 0 || self.unwritten > 0 {
            self.ring.set_descriptor(number, Descriptor { address, length, flags, id: next });
            self.unwritten = self.unwritten.saturating_sub(1);
        }
        if flags & NEXT == 0 {
            self.ring.set_available_entry(self.next, name);
            self.next = self.next.wrapping_add(1);
        }
    }

    #[inline(always)]
    fn post_all(&mut self, posts: impl Iterator<Item = Post>) {
        for post in posts {
            self.post(post);
        }
    }

    #[inline(always)]
    fn post_fresh(&mut self, posts: impl Iterator<Item = Post>) {
        let (ring, mut next) = (self.ring, self.next);
        for Post { number, name, address, length, flags, .. } in posts {
            ring.set_descriptor(number, Descriptor { address, length, flags, id: 0 });
            ring.set_available_entry(next, name);
            next = next.wrapping_add(1);
        }
        self.next = next;
    }

    #[inline(always)]
    fn publish(&mut self) {
        if self.published != self.next {
            self.ring.publish_available(self.next);
            self.published = self.next;
        }
    }

    #[inline(always)]
    fn has_news(&self) -> bool {
        self.asked != self.published
    }

    #[inline(always)]
    fn device_wants_event(&mut self) -> bool {
        // F1: pairs with F2 of the device, as there: either it sees the index, or this side what it wants.
        fence(Ordering::SeqCst);
        let (old, new) = (std::mem::replace(&mut self.asked, self.published), self.published);
        if self.event_index {
            wants_event(self.ring.available_event(), new, old)
        } else {
            self.ring.device_wants_events()
        }
    }

    fn want_events(&mut self, wanted: bool) {
        if self.event_index {
            // As far away as there is; the flag means nothing then (section 2.7.7).
            self.ring.set_used_event(if wanted { self.used } else { self.used.wrapping_sub(1) });
        } else {
            self.ring.set_driver_wants_events(wanted);
        }
        // F2: pairs with F1 of the device.
        fence(Ordering::SeqCst);
    }
}
