//! Drops for who captures them.

use warmlane_counters::{DropReason, MAXIMUM_REASONS};
use warmlane_lane::Outputs;
use warmlane_mem::Packet;

use super::forward::Forwarder;

impl Forwarder {
    /// Does something with a packet, which is shown to those who want to see what is dropped, if it is. Which reason it was is told by the
    /// counters, and what the packet was, by a copy from before.
    pub(super) fn showing_drops(
        &mut self,
        packet: Packet,
        outputs: &mut Outputs<'_>,
        work: impl FnOnce(&mut Self, Packet, &mut Outputs<'_>),
    ) {
        if !outputs.shows_drops() {
            return work(self, packet, outputs);
        }
        let copy = self.copies.copy(&packet);
        let view = self.view();
        let mut before = [0; MAXIMUM_REASONS];
        for (count, (_, value)) in before.iter_mut().zip(view.drops().iter()) {
            *count = value;
        }
        work(self, packet, outputs);
        let mut reasons = view.drops().iter().zip(before);
        let grown = reasons.find(|((_, now), before)| now != before);
        let reason: Option<&DropReason> = grown.map(|((reason, _), _)| reason);
        match (reason, copy) {
            (Some(reason), Some(copy)) => outputs.show_drop(reason, &copy),
            // There was no memory for a copy.
            (Some(_), None) => outputs.miss_drop(),
            (None, _) => {}
        }
    }
}
