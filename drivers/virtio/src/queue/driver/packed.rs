//! A packed ring, as its driver uses it.

use super::{DriverRing, Post};
use crate::queue::side::Broken;
use crate::ring::packed::{AVAILABLE, PackedRing, Position, Suppression, Tail, USED};
use std::sync::atomic::{Ordering, fence};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct PackedDriverRing {
    ring: PackedRing,
    /// Where the next descriptor is written.
    next: Position,
    /// The first that was posted and is not published: with it the device sees the others.
    held: Option<(Position, Tail)>,
    /// Up to here the device was asked.
    asked: Position,
    /// Where the device writes the next used buffer.
    used: Position,
    event_index: bool,
}

impl PackedDriverRing {
    /// A ring that is all zero.
    pub(crate) const fn new(ring: PackedRing, event_index: bool) -> Self {
        let start = Position::START;
        Self { ring, next: start, held: None, asked: start, used: start, event_index }
    }
}

impl DriverRing for PackedDriverRing {
    #[inline(always)]
    fn take_used(&mut self, most: u16, mut take: impl FnMut(u32, u32) -> bool) -> Result<(), Broken> {
        let (ring, mut left) = (self.ring, most);
        self.used = self.used.walk(ring.size(), Position::used_flags, |position, used| {
            if left == 0 {
                return false;
            }
            left -= 1;
            let Tail { length, id, flags } = ring.tail(position);
            flags & (AVAILABLE | USED) == used && take(id.into(), length)
        });
        Ok(())
    }

    #[inline(always)]
    fn next_used(&mut self) -> Result<Option<(u32, u32)>, Broken> {
        let Tail { length, id, flags } = self.ring.tail(self.used);
        Ok(self.used.is_used(flags).then_some((id.into(), length)))
    }

    #[inline(always)]
    fn skip_used(&mut self, _buffers: u16, descriptors: u16) -> Result<(), Broken> {
        self.used = self.used.advanced(descriptors, self.ring.size());
        Ok(())
    }

    #[inline(always)]
    fn acquire(&self) {
        PackedRing::acquire();
    }

    #[inline(always)]
    fn post(&mut self, post: Post) {
        let position = self.next;
        self.ring.set_address(position, post.address);
        let flags = post.flags | position.available_flags();
        let tail = Tail { length: post.length, id: post.name, flags };
        if self.held.is_none() {
            self.held = Some((position, tail));
        } else {
            self.ring.set_tail(position, tail);
        }
        self.next = position.advanced(1, self.ring.size());
    }

    #[inline(always)]
    fn post_all(&mut self, mut posts: impl Iterator<Item = Post>) {
        if self.held.is_none() {
            let Some(first) = posts.next() else { return };
            self.post(first);
        }
        let ring = self.ring;
        self.next = self.next.walk(ring.size(), Position::available_flags, |position, available| {
            let Some(post) = posts.next() else { return false };
            ring.set_address(position, post.address);
            ring.set_tail(
                position,
                Tail { length: post.length, id: post.name, flags: post.flags | available },
            );
            true
        });
    }

    #[inline(always)]
    fn post_fresh(&mut self, posts: impl Iterator<Item = Post>) {
        self.post_all(posts);
    }

    #[inline(always)]
    fn publish(&mut self) {
        if let Some((position, tail)) = self.held.take() {
            self.ring.release_tail(position, tail);
        }
    }

    #[inline(always)]
    fn has_news(&self) -> bool {
        self.asked != self.next
    }

    #[inline(always)]
    fn device_wants_event(&mut self) -> bool {
        // F1: as for split rings.
        fence(Ordering::SeqCst);
        let old = std::mem::replace(&mut self.asked, self.next);
        match self.ring.device_suppression() {
            Suppression::Enabled => true,
            Suppression::Disabled => false,
            // Without event indices nobody says where.
            Suppression::At(event) => !self.event_index || self.next.has_passed(event, old, self.ring.size()),
        }
    }

    fn want_events(&mut self, wanted: bool) {
        let suppression = match (wanted, self.event_index) {
            (false, _) => Suppression::Disabled,
            (true, true) => Suppression::At(self.used),
            (true, false) => Suppression::Enabled,
        };
        self.ring.set_driver_suppression(suppression);
        // F2: as for split rings.
        fence(Ordering::SeqCst);
    }
}
