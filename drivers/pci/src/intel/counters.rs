//! What the card itself counts, and what is done for it.

use super::registers::{
    CrcErrors, ExcessiveCollisions, Missed, NoDescriptor, Oversized, ReceiveErrors, Register, Typed,
    Undersized,
};
use crate::vfio::Registers;
use warmlane_counters::{CounterRef, counters};

counters! {
    /// Frames that a card lost, or nearly.
    pub(crate) struct CardCounters => CardCountersView {
        /// Frames lost because the card had no space for them: its lane is too slow.
        missed: Note, "packets";
        /// Frames that found no descriptor, and waited in the card.
        no_descriptor: Note, "packets";
        /// Frames with a wrong check sequence, which were dropped.
        crc_errors: Note, "packets";
        /// Frames with errors on the line, which were dropped.
        receive_errors: Note, "packets";
        /// Frames that were too long, and dropped.
        oversized: Note, "packets";
        /// Frames that were too short. QEMU's are filled up and received.
        undersized: Note, "packets";
        /// Frames that collided too often, and were not sent.
        collisions: Note, "packets";
    }
}

counters! {
    /// What a queue does for a card that can't do it.
    pub(crate) struct CardSoftwareCounters => CardSoftwareCountersView {
        /// Packets that were segmented in software, as the card can't.
        segmented: Note, "packets";
        /// Packets whose checksum was computed in software, as the card can't.
        checksums: Note, "packets";
    }
}

/// Adds what was counted since the last time: reading clears it.
pub(crate) fn collect(registers: &Typed<impl Registers>, counters: &CardCounters) {
    fn add<T: Register>(registers: &Typed<impl Registers>, counter: CounterRef<'_>) {
        let count = registers.read::<T>().bits();
        // What is gone reads as all ones.
        if count != u32::MAX {
            counter.add(count.into());
        }
    }
    add::<Missed>(registers, counters.missed());
    add::<NoDescriptor>(registers, counters.no_descriptor());
    add::<CrcErrors>(registers, counters.crc_errors());
    add::<ReceiveErrors>(registers, counters.receive_errors());
    add::<Oversized>(registers, counters.oversized());
    add::<Undersized>(registers, counters.undersized());
    add::<ExcessiveCollisions>(registers, counters.collisions());
}
