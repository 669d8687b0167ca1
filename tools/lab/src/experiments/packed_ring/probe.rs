//! The places in rings of virtio where orderings stand, as functions of their own, to see what they become on another processor. Compiled
//! in `drivers/virtio/src` from standard input.

#![crate_type = "lib"]
#![allow(dead_code, reason = "most of what rings can do is not looked at here")]

mod ring;

use ring::packed::{PackedRing, Position, Tail};
use ring::split::SplitRing;
use std::sync::atomic::{Ordering, fence};

#[unsafe(no_mangle)]
pub fn packed_take(ring: &PackedRing, position: Position) -> Option<u64> {
    position.is_available(ring.tail(position).flags).then(|| {
        PackedRing::acquire();
        ring.address(position)
    })
}

#[unsafe(no_mangle)]
pub fn packed_take_with_full_fence(ring: &PackedRing, position: Position) -> Option<u64> {
    position.is_available(ring.tail(position).flags).then(|| {
        fence(Ordering::SeqCst);
        ring.address(position)
    })
}

#[unsafe(no_mangle)]
pub fn packed_publish(ring: &PackedRing, position: Position, tail: Tail) {
    ring.release_tail(position, tail);
}

#[unsafe(no_mangle)]
pub fn packed_publish_with_full_fence(ring: &PackedRing, position: Position, tail: Tail) {
    fence(Ordering::SeqCst);
    ring.set_tail(position, tail);
}

#[unsafe(no_mangle)]
pub fn split_take(ring: &SplitRing, next: u16) -> Option<u16> {
    (ring.available_index() != next).then(|| ring.available_entry(next))
}

#[unsafe(no_mangle)]
pub fn split_take_with_full_fence(ring: &SplitRing, next: u16) -> Option<u16> {
    (ring.available_index() != next).then(|| {
        fence(Ordering::SeqCst);
        ring.available_entry(next)
    })
}

#[unsafe(no_mangle)]
pub fn split_publish(ring: &SplitRing, index: u16) {
    ring.publish_used(index);
}

#[unsafe(no_mangle)]
pub fn split_publish_with_full_fence(ring: &SplitRing, index: u16) {
    fence(Ordering::SeqCst);
    ring.publish_used(index);
}
