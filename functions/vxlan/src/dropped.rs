//! Frames that go nowhere: they are counted, and shown to whoever captures what is dropped.

use warmlane_lane::Outputs;
use warmlane_mem::Packet;
use warmlane_wire::vlan;

use crate::reason::{Reason, VxlanCounters};
use crate::tags::ADDRESSES;

/// A frame that goes nowhere, and why.
#[derive(Debug)]
pub(crate) struct Dropped {
    pub(crate) reason: Reason,
    pub(crate) packet: Packet,
}

/// The value of a result; if it is a reason, the frame is dropped for that.
macro_rules! or_drop {
    ($packet:ident, $result:expr) => {
        match $result {
            Ok(value) => value,
            Err(reason) => return Err($crate::dropped::Dropped { reason, packet: $packet }),
        }
    };
}

pub(crate) use or_drop;

impl Dropped {
    /// With as much in front of it as when it had so much headroom. What was around a frame is still there, as nobody has written to it.
    fn moved_back(mut self, headroom: usize) -> Self {
        let packet = &mut self.packet;
        let now = packet.headroom();
        // There was that much data, and that much space.
        let _ = packet.trim_front(headroom.saturating_sub(now));
        let _ = packet.prepend(now.saturating_sub(headroom));
        self
    }

    /// With the tag again that was taken off when it had so much headroom.
    #[cold]
    pub(crate) fn tagged_again(self, headroom: usize, tag: Option<[u8; vlan::TAG_LENGTH]>) -> Self {
        let Some(tag) = tag else { return self };
        let mut dropped = self.moved_back(headroom);
        let data = dropped.packet.data_mut();
        if data.len() >= vlan::TAG_LENGTH + ADDRESSES {
            data.copy_within(vlan::TAG_LENGTH..vlan::TAG_LENGTH + ADDRESSES, 0);
            data[ADDRESSES..ADDRESSES + vlan::TAG_LENGTH].copy_from_slice(&tag);
        }
        dropped
    }

    /// Counts it. Whoever wants to see it is shown it as it was when it had so much headroom: with what was around it, and without what
    /// had been put there.
    #[cold]
    pub(crate) fn count(self, headroom: usize, counters: &VxlanCounters, outputs: &Outputs<'_>) {
        let reason = self.reason;
        counters.drops().count(reason, 1);
        if outputs.shows_drops() {
            outputs.show_dropped(reason, &self.moved_back(headroom).packet);
        }
    }
}
