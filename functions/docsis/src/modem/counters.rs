//! What the other end counts.

use warmlane_counters::counters;

use super::reason::ModemDrop;

counters! {
    /// The accounting of the other end. Packets of the tunnel and the frames in them are counted apart.
    pub struct ModemCounters => ModemCountersView, drops by ModemDrop {
        /// Packets of the tunnel that came in.
        received: Note, "packets";
        /// Packets of the tunnel that should have come and didn't.
        missing: Note, "packets";
        /// MAC frames that were put together.
        frames: Note, "frames";
        /// Ethernet frames that were passed on.
        delivered: Note, "packets";
        /// Bytes of these.
        bytes: Note, "bytes";
        /// Numbers of bonded flows that no packet came for.
        given_up: Note, "packets";
        /// Keys that were put into use.
        keys: Note, "keys";
    }
}
