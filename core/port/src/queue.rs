//! The two ends of a port.

use std::os::fd::BorrowedFd;

use warmlane_counters::{NoDrops, Source, counters};
use warmlane_mem::Burst;

use crate::offloads::TransmitOffloads;

/// Whether a queue can still be expected to move packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueStatus {
    /// It can.
    Running,
    /// It has nothing to move packets by at present, and may have later: worth asking now and then.
    Vacant,
    /// It came to its regular end: the file is read, the count is reached, the other side closed.
    Finished,
    /// It broke, and why: a sentence that names the thing and the remedy.
    Failed(String),
}

impl QueueStatus {
    /// For a queue that runs until something breaks: `failure` says what did.
    pub fn unless(failure: Option<&str>) -> Self {
        failure.map_or(Self::Running, |sentence| Self::Failed(sentence.to_owned()))
    }
}

counters! {
    /// What a queue has moved and dropped.
    pub struct QueueCounters<R = NoDrops> => QueueCountersView, drops by R {
        /// Packets received or transmitted.
        packets: Note, "packets";
        /// Bytes received or transmitted: whole frames without the frame check sequence.
        bytes: Note, "bytes";
    }
}

impl QueueCountersView {
    /// For a queue in front of another one: its own counts, and the drops of both.
    #[must_use]
    pub fn with_drops_of(mut self, inner: &Self) -> Self {
        self.drops = self.drops.and(&inner.drops);
        self
    }
}

/// Where packets come in. It moves to the lane that polls it, and has its pool inside.
pub trait ReceiveQueue: Send {
    /// Appends up to `burst.space()` packets to `burst` and returns how many. Never blocks.
    fn receive(&mut self, burst: &mut Burst) -> usize;

    /// What the packets that it brings may still need before they leave by a wire. A pipeline sees to it that who can't deal
    /// with it never meets it ([`software_offload`](crate::software_offload)). Without a pipeline the caller has to.
    fn leaves(&self) -> TransmitOffloads {
        TransmitOffloads::NONE
    }

    /// A descriptor that becomes readable when packets come from now on, to wait on (poll(2)) instead of polling. It makes ready
    /// what a burst after a long pause needs. `None` where there is no such descriptor, while packets are there of which it
    /// wouldn't tell, and while something else is needed that nobody tells of, such as buffers: then poll.
    fn event(&mut self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether more can come; worth asking when `receive` returned 0.
    fn status(&self) -> QueueStatus;

    /// What it has moved and dropped, to read from anywhere.
    fn counters(&self) -> QueueCountersView;

    /// What else it counts, as only its kind of port does, for the registry.
    fn own_counters(&self) -> Vec<Box<dyn Source>> {
        Vec::new()
    }
}

/// Where packets go out.
pub trait TransmitQueue: Send {
    /// Takes packets from the front of `burst` and returns how many; those it has no space for stay, in order.
    ///
    /// A packet that can never be sent (too large for the link, say) is taken too, and counted as a drop with its
    /// reason. Never blocks.
    fn transmit(&mut self, burst: &mut Burst) -> usize;

    /// What it does for packets that need it. It may take for granted that none needs anything else.
    fn offloads(&self) -> TransmitOffloads {
        TransmitOffloads::NONE
    }

    /// Whether that may change while it runs, because the other side decides: then it is asked again before each burst in which a
    /// packet needs something.
    fn offloads_change(&self) -> bool {
        false
    }

    /// Whether it holds packets that it took and can't pass on yet: then [`flush`](Self::flush) is to be called until it
    /// doesn't.
    fn is_holding(&self) -> bool {
        false
    }

    /// Whether a call of [`transmit`](Self::transmit) costs as much as many packets do, a system call for instance: a lane that
    /// has much to do then gathers several bursts for each.
    fn is_costly_to_call(&self) -> bool {
        false
    }

    /// Whether transmission can be refused for a while and succeed later, without anything having been lost (files,
    /// rings), so that a lane waits instead of dropping.
    fn is_lossless(&self) -> bool {
        false
    }

    /// A descriptor that becomes writable when there may be space again, to wait on after [`transmit`](Self::transmit) took
    /// nothing. `None` where there is none: then try again.
    fn event(&mut self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Pushes out what is buffered and reclaims what was sent. Lanes call it when idle, and before they end.
    fn flush(&mut self) {}

    /// Whether packets can still leave; worth asking when `transmit` took nothing.
    fn status(&self) -> QueueStatus;

    /// What it has moved and dropped, to read from anywhere.
    fn counters(&self) -> QueueCountersView;

    /// What else it counts, as only its kind of port does, for the registry.
    fn own_counters(&self) -> Vec<Box<dyn Source>> {
        Vec::new()
    }
}
