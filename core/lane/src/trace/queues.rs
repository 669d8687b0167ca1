//! What is seen of packets that are followed where they come in and leave.

use super::Follower;
use warmlane_mem::{BufferId, Packet};

/// Packets have come in.
pub(crate) fn end_received(followers: &[(usize, Follower)], received: &[Packet]) {
    for (input, follower) in followers {
        let mut following = follower.lock();
        for packet in received {
            following.see(*input, packet);
        }
    }
}

/// Which packets of a burst are followed, before a queue takes some, and by whom.
pub(crate) fn followed(followers: &[(usize, Follower)], burst: &[Packet]) -> Vec<(usize, BufferId)> {
    let mut found = Vec::new();
    for (_, follower) in followers {
        let following = follower.lock();
        if following.is_busy() {
            let here = burst.iter().enumerate().filter(|(_, packet)| following.has(packet));
            found.extend(here.map(|(place, packet)| (place, packet.id())));
        }
    }
    found
}

/// The first `taken` packets have been taken.
pub(crate) fn end_transmitted(followers: &[(usize, Follower)], found: &[(usize, BufferId)], taken: usize) {
    for (_, id) in found.iter().filter(|(place, _)| *place < taken) {
        for (output, follower) in followers {
            follower.lock().sent(*id, *output);
        }
    }
}
