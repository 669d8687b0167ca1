//! What a forwarder has done, readable by anyone at any time.

use std::sync::Arc;

use warmlane_port::DropCounters;
use warmlane_sync::counter::Counter;

use super::reason::Reason;

/// The books of one lane's forwarder. Only its lane writes.
///
/// Between two bursts, `received + resumed = forwarded + answered + punted + held + drops.total()`. What the forwarder made itself
/// (`errors_sent`, `extra_fragments`) its ports send on top of `forwarded` and `answered`.
#[derive(Debug)]
pub struct ForwardCounters {
    /// Packets taken in.
    pub received: Counter,
    /// Packets passed on to a port; one that was cut into fragments counts once.
    pub forwarded: Counter,
    /// Packets that were questions to us, and became the answers: ARP, neighbour solicitations, echo requests.
    pub answered: Counter,
    /// Packets given to whoever takes what isn't for us.
    pub punted: Counter,
    /// Packets held until their next station's Ethernet address is known.
    pub held: Counter,
    /// Packets that were held and came here once more. At rest these are all that were held.
    pub resumed: Counter,
    /// Packets that were cut into fragments.
    pub fragmented: Counter,
    /// Fragments beyond the first of each packet that was cut.
    pub extra_fragments: Counter,
    /// Fragments beyond the first that their port didn't take.
    pub fragments_lost: Counter,
    /// ICMP and ICMPv6 errors sent.
    pub errors_sent: Counter,
    /// Errors that were owed but not sent because there were too many.
    pub errors_limited: Counter,
    /// Errors that were owed but not sent for lack of a buffer, an address of ours, or room in the port.
    pub errors_unsent: Counter,
    /// Packets dropped, by [`Reason`].
    pub drops: DropCounters,
}

impl ForwardCounters {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            received: Counter::default(),
            forwarded: Counter::default(),
            answered: Counter::default(),
            punted: Counter::default(),
            held: Counter::default(),
            resumed: Counter::default(),
            fragmented: Counter::default(),
            extra_fragments: Counter::default(),
            fragments_lost: Counter::default(),
            errors_sent: Counter::default(),
            errors_limited: Counter::default(),
            errors_unsent: Counter::default(),
            drops: DropCounters::new(Reason::ALL),
        })
    }

    /// How often this reason dropped a packet.
    pub fn dropped(&self, reason: Reason) -> u64 {
        self.drops.get(reason.index())
    }

    /// Whether every packet received is accounted for: true between bursts.
    pub fn balanced(&self) -> bool {
        let accounted = self.forwarded.get()
            + self.answered.get()
            + self.punted.get()
            + self.held.get()
            + self.drops.total();
        self.received.get() + self.resumed.get() == accounted
    }

    /// How many packets were handed to ports: forwarded, answered and made here.
    pub fn sent(&self) -> u64 {
        self.forwarded.get() + self.answered.get() + self.errors_sent.get() + self.extra_fragments.get()
    }

    #[inline]
    pub(super) fn drop_one(&self, reason: Reason) {
        self.drops.count(reason.index(), 1);
    }
}
