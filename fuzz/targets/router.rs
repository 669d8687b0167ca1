//! What a router hears: any request of its own, and any message of the kernel's.

#![no_main]

use libfuzzer_sys::fuzz_target;
use warmlane_router::control::Request;
use warmlane_router::control::kernel::{View, decode};

fuzz_target!(|data: &[u8]| {
    if let Err(sentence) = Request::parse(data) {
        assert!(!sentence.is_empty());
    }
    // Messages one after the other: kind, flags and length in front of each.
    let mut view = View::default();
    let mut rest = data;
    while let Some(([kind, flags, length], body)) = rest.split_first_chunk() {
        let (body, after) = body.split_at(body.len().min(usize::from(*length)));
        // Kinds from 16 to 111, the flags that routes look at.
        if let Some(event) = decode(16 + u16::from(*kind % 96), u16::from(*flags) << 4, body) {
            view.apply(event);
        }
        rest = after;
    }
    let mut other = View::default();
    other.become_like(view);
});
