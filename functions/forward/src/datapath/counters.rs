//! What a forwarder has done.

use warmlane_counters::counters;

use super::reason::Reason;

counters! {
    /// The accounting of one lane's forwarder: between two bursts its balance is zero. What the forwarder made itself
    /// (`errors_sent`, `extra_fragments`) its ports send on top of `forwarded` and `answered`.
    pub struct ForwardCounters => ForwardCountersView, drops by Reason {
        /// Packets taken in.
        received: In, "packets";
        /// Packets that were held and came here once more. At rest these are all that were held.
        resumed: In, "packets";
        /// Packets passed on to a port; one that was cut into fragments counts once.
        forwarded: Out, "packets";
        /// Packets that were questions to us, and became the answers: ARP, neighbour solicitations, echo requests.
        answered: Out, "packets";
        /// Packets given to whoever takes what isn't for us.
        punted: Out, "packets";
        /// Packets held until their next neighbour's Ethernet address is known.
        held: Out, "packets";
        /// Packets whose next hop was found by flow.
        flow_hits: Note, "packets";
        /// Packets that were looked up by route because no flow matched; 0 without flows.
        flow_misses: Note, "packets";
        /// Packets that were cut into fragments.
        fragmented: Note, "packets";
        /// Fragments beyond the first of each packet that was cut.
        extra_fragments: Note, "packets";
        /// Fragments beyond the first that their port didn't take.
        fragments_lost: Note, "packets";
        /// ICMP and ICMPv6 errors sent.
        errors_sent: Note, "packets";
        /// Errors that were owed but not sent because there were too many.
        errors_limited: Note, "packets";
        /// Errors that were owed but not sent for lack of a buffer, an address of ours, or space in the port.
        errors_unsent: Note, "packets";
    }
}

impl ForwardCountersView {
    /// How many packets were given to ports: forwarded, answered and made here.
    pub fn sent(&self) -> u64 {
        self.forwarded() + self.answered() + self.errors_sent() + self.extra_fragments()
    }
}

impl ForwardCounters {
    #[inline]
    pub(super) fn drop_one(&self, reason: Reason) {
        self.drops().count(reason, 1);
    }
}
