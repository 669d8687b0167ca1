//! Drops for who captures them.

use warmlane_counters::{DropReason, MAXIMUM_REASONS};
use warmlane_lane::Outputs;
use warmlane_mem::Packet;

use super::forward::Forwarder;
use super::scratch::Action;

impl Forwarder {
    /// Takes the slow path while somebody wants to see what is dropped. Which reason it was is told by the counters, and what the packet
    /// was, by a copy from before.
    #[cold]
    pub(super) fn take_slow_path_shown(&mut self, packet: Packet, action: Action, outputs: &mut Outputs<'_>) {
        let copy = packet.copy_in(&self.pool);
        let view = self.view();
        let mut before = [0; MAXIMUM_REASONS];
        for (count, (_, value)) in before.iter_mut().zip(view.drops().iter()) {
            *count = value;
        }
        self.do_action(packet, action, outputs);
        let mut reasons = view.drops().iter().zip(before);
        let grown = reasons.find(|((_, now), before)| now != before);
        let reason: Option<&DropReason> = grown.map(|((reason, _), _)| reason);
        match (reason, copy) {
            (Some(reason), Some(copy)) => outputs.show_drop(reason, &copy),
            // There was no buffer for a copy.
            (Some(_), None) => outputs.miss_drop(),
            (None, _) => {}
        }
    }
}
