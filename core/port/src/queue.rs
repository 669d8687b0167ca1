//! The two ends of a port.

use std::any::Any;
use std::os::fd::BorrowedFd;

use warmlane_counters::{NoDrops, Reason, Source, counters};
use warmlane_mem::Burst;

use crate::offloads::TransmitOffloads;

/// Whether a queue can still be expected to move packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueStatus {
    /// It can.
    Running,
    /// It has no interface at present, and may get one later: worth asking now and then.
    Vacant,
    /// It is done: the file is read, the count is reached, or the other side has closed.
    Finished,
    /// It broke. The sentence says what broke, why, and what to do.
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

impl<R: Reason> QueueCounters<R> {
    /// Counts packets that have moved, of so many bytes together.
    #[inline(always)]
    pub fn count(&self, packets: u64, bytes: u64) {
        self.packets().add(packets);
        self.bytes().add(bytes);
    }
}

impl QueueCountersView {
    /// For a queue that wraps another one: its own counts, and the drops of both.
    #[must_use]
    pub fn with_drops_of(mut self, inner: &Self) -> Self {
        self.drops = self.drops.and(&inner.drops);
        self
    }
}

/// Where packets come in. It moves to the lane that polls it, and has a pool of its own to receive into.
pub trait ReceiveQueue: Send {
    /// Appends up to `burst.space()` packets to `burst` and returns how many. Never blocks.
    fn receive(&mut self, burst: &mut Burst) -> usize;

    /// What its packets may still need before they leave on a wire. A pipeline does this in software
    /// ([`software_offload`](crate::software_offload)) before they reach a stage or queue that can't handle it. Without a pipeline, that
    /// is up to the caller.
    fn leaves(&self) -> TransmitOffloads {
        TransmitOffloads::NONE
    }

    /// A descriptor to wait on (poll(2)) instead of polling the queue: it becomes readable when packets arrive from now on. The call also
    /// prepares for a burst after a long pause. `None` if there is no such descriptor, if packets are already waiting that it wouldn't
    /// announce, or if the queue needs something that nothing announces, such as buffers: then keep polling.
    fn event(&mut self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether more can come. Worth asking when `receive` has returned 0.
    fn status(&self) -> QueueStatus;

    /// Whether `receive`, when it returned 0, has passed packets on to other lanes or dropped them as it should: then this lane is not idle.
    fn has_passed_on(&self) -> bool {
        false
    }

    /// Take nothing new in from the world: the lane stops. Says whether there may be something else to bring or to pass on, from or to other
    /// lanes of this program. Then the queue is received from until it has [finished](QueueStatus::Finished).
    fn stop(&mut self) -> bool {
        false
    }

    /// What it has moved and dropped; any thread can read it.
    fn counters(&self) -> QueueCountersView;

    /// What only this kind of port counts, for the registry.
    fn own_counters(&self) -> Vec<Box<dyn Source>> {
        Vec::new()
    }

    /// Itself, for whoever has put it in front of another queue and will take it away again.
    fn as_any(&mut self) -> Option<&mut dyn Any> {
        None
    }
}

/// Where packets go out.
pub trait TransmitQueue: Send {
    /// Takes packets from the front of `burst` and returns how many. Those that it has no space for stay, in order.
    ///
    /// A packet that can never be sent (one that is too large for the link, for example) is taken as well, and counted as a drop under
    /// its reason. Never blocks.
    fn transmit(&mut self, burst: &mut Burst) -> usize;

    /// Which offloads it does. It may assume that no packet needs others.
    fn offloads(&self) -> TransmitOffloads {
        TransmitOffloads::NONE
    }

    /// Whether its [`offloads`](Self::offloads) can change while it runs, because the other side decides. If so, they are asked for before
    /// each burst in which a packet needs one.
    fn offloads_change(&self) -> bool {
        false
    }

    /// Whether it holds packets that it took and couldn't pass on yet. If so, [`flush`](Self::flush) must be called until it no longer
    /// does.
    fn is_holding(&self) -> bool {
        false
    }

    /// Whether a call of [`transmit`](Self::transmit) costs as much as many packets, because of a system call for example. A busy lane
    /// then gathers several bursts per call.
    fn is_costly_to_call(&self) -> bool {
        false
    }

    /// Whether a lane should wait for space instead of dropping packets: it may refuse packets for a while, but loses none (files, rings).
    fn is_lossless(&self) -> bool {
        false
    }

    /// A descriptor to wait on after [`transmit`](Self::transmit) took nothing: it becomes writable when there may be space again. `None` if
    /// there is no such descriptor: then try again.
    fn event(&mut self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Sends what is buffered and frees what was sent. Lanes call it when idle, and before they end.
    fn flush(&mut self) {}

    /// Whether packets can still leave. Worth asking when `transmit` took nothing.
    fn status(&self) -> QueueStatus;

    /// What it has moved and dropped; any thread can read it.
    fn counters(&self) -> QueueCountersView;

    /// What only this kind of port counts, for the registry.
    fn own_counters(&self) -> Vec<Box<dyn Source>> {
        Vec::new()
    }

    /// Itself, for whoever has put it in front of another queue and will take it away again.
    fn as_any(&mut self) -> Option<&mut dyn Any> {
        None
    }
}
