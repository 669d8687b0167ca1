//! What is seen of packets that are followed where they come in and leave.

use super::Follower;
use warmlane_mem::{BufferId, Burst, Packet};

/// Packets have come in.
#[inline(never)]
pub(crate) fn end_received(followers: &[(usize, Follower)], received: &[Packet]) {
    for (input, follower) in followers {
        let mut following = follower.lock();
        for packet in received {
            following.see(*input, packet);
        }
    }
}

/// Has packets sent by a queue, which says how many it has taken.
#[inline(never)]
pub(crate) fn transmit_followed(
    followers: &[(usize, Follower)],
    burst: &mut Burst,
    transmit: &mut dyn FnMut(&mut Burst) -> usize,
) -> usize {
    let mut found: Vec<(usize, BufferId)> = Vec::new();
    for (_, follower) in followers {
        let following = follower.lock();
        if following.is_busy() {
            let here = burst.iter().enumerate().filter(|(_, packet)| following.has(packet));
            found.extend(here.map(|(place, packet)| (place, packet.id())));
        }
    }
    let taken = transmit(burst);
    for (_, id) in found.iter().filter(|(place, _)| *place < taken) {
        for (output, follower) in followers {
            follower.lock().sent(*id, *output);
        }
    }
    taken
}
